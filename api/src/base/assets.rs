//! Static files of the status page: embedded in release builds, read from the directory `web` in debug
//! builds, so that the page can be changed without a rebuild.
//!
//! Files are looked up by name in a fixed set; client input is never used to build a path.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;
use rust_embed::RustEmbed;

use crate::base::{hex::hex, negotiate::Coding};

/// Maximum length of a requested file name in characters; the longest real name has about forty.
const NAME_LENGTH_MAX: usize = 128;
/// Minimum size in bytes of a file that is compressed. A smaller one fits into one TCP segment without
/// compression.
const PACKED_BYTES_MIN: usize = 512;
/// Compression level of gzip: the highest, because each file is compressed only once.
const GZIP_LEVEL: u32 = 9;
/// Brotli quality (0–11). Quality 11 takes ten times as long, reduces the size by only a few percent, and delays
/// the first response.
const BROTLI_QUALITY: u32 = 9;
/// Base-2 logarithm of the Brotli window size in bytes. Every file fits into the window.
const BROTLI_WINDOW_BITS: u32 = 22;
/// Size in bytes of the Brotli encoder's input buffer.
const BROTLI_BUFFER_BYTES: usize = 4096;
/// File name of the status page, served for `/`.
pub(crate) const INDEX: &str = "index.html";

/// File name extensions of served files, with their media types. Other files are not served.
const TYPES: [(&str, &str); 8] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("json", "application/json"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
];
/// Extensions of files in compressed formats, which are served without a further content coding.
const DENSE: [&str; 2] = ["png", "woff2"];

#[derive(RustEmbed)]
#[folder = "../web"]
struct Files;

/// File of the status page, uncompressed and, if that makes it smaller, compressed with gzip and Brotli.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Value of `Content-Type`.
    pub(crate) content_type: &'static str,
    /// SHA-256 of the uncompressed contents, in lower-case hexadecimal; part of the entity tags.
    digest: String,
    plain: Bytes,
    gzip: Option<Bytes>,
    brotli: Option<Bytes>,
}

/// Cache of the requested files of the status page, by path. Only existing files are added, so clients cannot
/// make the cache grow without limit.
#[derive(Debug, Default)]
pub(crate) struct Assets(Mutex<BTreeMap<String, Arc<Asset>>>);

impl Assets {
    /// Returns a file by its path below the directory of the status page, or `None` if no such file is
    /// served.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Asset>> {
        let content_type = type_of(name)?;
        let file = Files::get(name)?;
        let digest = hex(&file.metadata.sha256_hash());
        if let Some(kept) = self.lock().get(name).filter(|kept| kept.digest == digest) {
            return Some(Arc::clone(kept));
        }
        let asset = Arc::new(Asset::new(name, content_type, digest, Bytes::from(file.data.into_owned())));
        self.lock().insert(name.to_owned(), Arc::clone(&asset));
        Some(asset)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Asset>>> {
        // A file is inserted as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asset {
    fn new(name: &str, content_type: &'static str, digest: String, plain: Bytes) -> Self {
        let is_packed = plain.len() >= PACKED_BYTES_MIN && !DENSE.contains(&extension(name));
        let smaller = |packed: io::Result<Vec<u8>>| {
            packed.ok().filter(|packed| is_packed && packed.len() < plain.len()).map(Bytes::from)
        };
        let (gzip, brotli) = (smaller(gzip(&plain)), smaller(brotli(&plain)));
        Self { content_type, digest, plain, gzip, brotli }
    }

    /// Returns the smallest compressed form of the file among the content codings for which `accepted`
    /// returns true, or the uncompressed file if there is none, with its content coding.
    pub(crate) fn form(&self, accepted: impl Fn(Coding) -> bool) -> (Coding, &Bytes) {
        let packed = [(Coding::Brotli, &self.brotli), (Coding::Gzip, &self.gzip)];
        let packed = packed.into_iter().filter(|(coding, _)| accepted(*coding));
        let forms = packed.filter_map(|(coding, bytes)| Some((coding, bytes.as_ref()?)));
        forms.min_by_key(|(_, bytes)| bytes.len()).unwrap_or((Coding::Identity, &self.plain))
    }

    /// Returns the strong entity tag of a representation: each content coding has its own (RFC 9110, 8.8.3).
    pub(crate) fn tag(&self, coding: Coding) -> HeaderValue {
        let digest = &self.digest;
        let text = match coding {
            Coding::Identity => format!("\"{digest}\""),
            Coding::Gzip | Coding::Brotli => format!("\"{digest}-{}\"", coding.as_str()),
        };
        HeaderValue::from_str(&text).expect("digits and the word of a coding are header text")
    }
}

/// Returns the media type of a file by its extension, or `None` if the name is invalid or the file is not served.
fn type_of(name: &str) -> Option<&'static str> {
    let is_plain = |character: u8| character.is_ascii_alphanumeric() || b"-_.".contains(&character);
    let is_segment =
        |segment: &str| !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(is_plain);
    let is_name = name.len() <= NAME_LENGTH_MAX && name.split('/').all(is_segment);
    let (_, content_type) = TYPES.iter().find(|(known, _)| *known == extension(name))?;
    is_name.then_some(*content_type)
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
    writer.write_all(plain)?;
    writer.finish()
}

fn brotli(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer =
        CompressorWriter::new(Vec::new(), BROTLI_BUFFER_BYTES, BROTLI_QUALITY, BROTLI_WINDOW_BITS);
    writer.write_all(plain)?;
    writer.flush()?;
    Ok(writer.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_files_of_the_page_are_looked_for() {
        assert_eq!(type_of("views/nodes.js"), Some("text/javascript; charset=utf-8"));
        for wrong in [
            "",
            "..",
            "../Cargo.toml",
            "a/../index.html",
            "/index.html",
            "index.html/",
            "a//b.js",
            ".git/x.js",
            "a\\b.js",
            "a%2e.js",
            "README.md",
            "index",
            "x\0.js",
            "ä.js",
            &format!("{}.js", "a".repeat(NAME_LENGTH_MAX)),
        ] {
            assert_eq!(type_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_sent_in_its_smallest_form_and_each_form_has_a_tag_of_its_own() {
        let text = Bytes::from("all the same, ".repeat(1000));
        let asset = Asset::new("a.js", "text/javascript", "d".to_owned(), text.clone());
        let (coding, packed) = asset.form(|coding| coding == Coding::Gzip);
        assert_eq!((coding, asset.tag(coding)), (Coding::Gzip, HeaderValue::from_static("\"d-gzip\"")));
        assert!(packed.len() < text.len() / 10);
        assert_eq!(asset.form(|_| false), (Coding::Identity, &text));
        assert_eq!(asset.tag(Coding::Identity), "\"d\"");
        let dense = Asset::new("a.png", "image/png", "d".to_owned(), text.clone());
        assert_eq!(dense.form(|_| true), (Coding::Identity, &text));
    }
}
