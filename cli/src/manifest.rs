//! Reads the files given with `-f`: one file, a directory in name order, or stdin.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use client::Url;
use model::{
    kinds::resource::ObjectKey,
    primitives::name::{Name, Namespace},
};
use serde_json::Value;

use crate::{
    client::shell_quoted,
    error::Failure,
    import::Source,
    parse::{self, Language},
    resource::parse_kind,
    terminal::clean,
    views::{render::object_name, typed::ObjectHeader},
};

/// Maximum total size of all files in bytes; above the server's request limit, so that the server reports the
/// violation.
const MANIFEST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Contents and names of the files given with `-f`.
pub(crate) struct Manifest {
    files: Vec<File>,
}

/// Maximum size of a manifest given by URL, in bytes: the server's request limit.
const DOWNLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

struct File {
    /// Name of the input in messages: the path, or `stdin`.
    name: String,
    path: PathBuf,
    bytes: Vec<u8>,
    language: Language,
}

impl Manifest {
    /// Reads a file, the `.yaml`, `.yml` and `.json` files of a directory, or stdin when `path` is `-`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut left = MANIFEST_BYTES_MAX;
        if path.as_os_str() == "-" {
            return Ok(Self { files: vec![read_one(path, "stdin", std::io::stdin(), &mut left)?] });
        }
        let paths = if path.is_dir() { directory(path)? } else { vec![path.to_owned()] };
        let mut files = Vec::new();
        for path in paths {
            let open = std::fs::File::open(&path).map_err(|error| refused(&path, &error))?;
            files.push(read_one(&path, &path.display().to_string(), open, &mut left)?);
        }
        Ok(Self { files })
    }

    /// Reads `path` as [`Self::read`] does, or downloads the file if it is an `http://` or `https://` URL.
    pub(crate) async fn load(path: &Path, timeout: Duration) -> Result<Self, Failure> {
        let url = path.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"));
        let Some(text) = url else { return Self::read(path) };
        let failed = |cause: String| Failure::File { path: path.to_owned(), cause };
        let url: Url = text.parse().map_err(|error| failed(format!("{error}")))?;
        let bytes = client::fetch(&url, timeout, DOWNLOAD_BYTES_MAX).await.map_err(failed)?;
        let language = Language::detect(url.path(), &bytes);
        Ok(Self { files: vec![File { name: text.to_owned(), path: path.to_owned(), bytes, language }] })
    }

    /// Builds the body of one request. A single file is used unmodified. Several files become the documents
    /// of one YAML stream; JSON files can be part of it, because JSON is valid YAML.
    pub(crate) fn into_body(self) -> (Language, Vec<u8>) {
        let mut files = self.files;
        match (files.pop(), files.is_empty()) {
            (Some(only), true) => (only.language, only.bytes),
            (last, _) => {
                let mut body = Vec::new();
                for file in files.into_iter().chain(last) {
                    body.extend_from_slice(b"---\n");
                    body.extend_from_slice(&file.bytes);
                    body.push(b'\n');
                }
                (Language::Yaml, body)
            }
        }
    }

    /// Returns the path, name and contents of each file, for the import of other formats.
    pub(crate) fn into_sources(self) -> Vec<(PathBuf, Source)> {
        let source = |file: File| (file.path, Source { name: file.name, bytes: file.bytes });
        self.files.into_iter().map(source).collect()
    }

    /// Parses the objects of all files.
    pub(crate) fn into_objects(self) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        for file in self.files {
            let objects = parse::objects(file.language, &file.bytes);
            all.extend(objects.map_err(|cause| Failure::File { path: file.path, cause })?);
        }
        Ok(all)
    }

    /// Returns a name for each object, such as `service/web in FILE`, for messages.
    ///
    /// # Errors
    /// Returns an error that names the file if a file cannot be parsed, or if it contains objects of Kubernetes or MetalLB.
    pub(crate) fn item_names(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for file in &self.files {
            let wrong = |cause| Failure::File { path: file.path.clone(), cause };
            for object in parse::objects(file.language, &file.bytes).map_err(wrong)? {
                let is_named = !ObjectHeader::of(&object).metadata.name.is_empty();
                let name = if is_named {
                    format!("{} in {}", object_name(&object), file.name)
                } else {
                    format!("an object in {}", file.name)
                };
                if let Some(version) = foreign_version(&object) {
                    let quoted = shell_quoted(&file.name);
                    return Err(Failure::usage(
                        format!("{name} has apiVersion {}, which is not one of Tidegate", clean(version)),
                        format!(
                            "convert it: `tidegate import {quoted} --apply`, or `tidegate apply -f {quoted} --from FORMAT`"
                        ),
                    ));
                }
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the keys of all objects, the last one first. Manifests usually define an object before others
    /// refer to it, so the referring objects are deleted first.
    pub(crate) fn keys_in_reverse(&self) -> Result<Vec<ObjectKey>, Failure> {
        let mut keys = Vec::new();
        for file in &self.files {
            let wrong = |cause: String| Failure::File { path: file.path.clone(), cause };
            for (at, object) in parse::objects(file.language, &file.bytes).map_err(wrong)?.iter().enumerate()
            {
                keys.push(key_of(object).map_err(|cause| wrong(format!("object {}: {cause}", at + 1)))?);
            }
        }
        keys.reverse();
        Ok(keys)
    }
}

/// Returns the `apiVersion` of an object that `tidegate import` converts; `None` for other objects.
fn foreign_version(object: &Value) -> Option<&str> {
    let version = object.get("apiVersion")?.as_str()?;
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let is_foreign = version == "v1"
        || group.ends_with(".k8s.io")
        || group == "metallb.io"
        || group == "metallb.universe.tf";
    is_foreign.then_some(version)
}

fn key_of(object: &Value) -> Result<ObjectKey, String> {
    let ObjectHeader { kind, metadata } = ObjectHeader::of(object);
    let kind = parse_kind(&kind).map_err(|error| format!("kind: {error}"))?;
    let name = Name::parse(&metadata.name).map_err(|error| format!("metadata.name: {error}"))?;
    let namespace = Some(metadata.namespace).filter(|namespace| !namespace.is_empty());
    let namespace = kind.is_namespaced().then(|| Namespace::parse(namespace.as_deref().unwrap_or("default")));
    let namespace = namespace.transpose().map_err(|error| format!("metadata.namespace: {error}"))?;
    Ok(ObjectKey { kind, namespace, name })
}

fn directory(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| refused(path, &error))? {
        let file = entry.map_err(|error| refused(path, &error))?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && file.is_file() {
            found.push(file);
        }
    }
    if found.is_empty() {
        return Err(Failure::File {
            path: path.to_owned(),
            cause: "the directory contains no .yaml, .yml or .json file".to_owned(),
        });
    }
    found.sort();
    Ok(found)
}

fn read_one(path: &Path, name: &str, source: impl Read, left: &mut u64) -> Result<File, Failure> {
    let mut bytes = Vec::new();
    source.take(*left + 1).read_to_end(&mut bytes).map_err(|error| refused(path, &error))?;
    *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| Failure::File {
        path: path.to_owned(),
        cause: format!("the files exceed {} MiB in total", MANIFEST_BYTES_MAX / (1024 * 1024)),
    })?;
    let language = Language::detect(name, &bytes);
    Ok(File { name: name.to_owned(), path: path.to_owned(), bytes, language })
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::File { path: path.to_owned(), cause: error.to_string() }
}
