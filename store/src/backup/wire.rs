//! Format of each line of a backup.

use model::{
    cluster::history::RevisionEntry,
    kinds::resource::Object,
    primitives::quantity::{Position, Revision, Timestamp},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::VERSION;
use crate::{error::StoreError, history, record};

/// Value of the field `format` in the first line of a backup.
pub(super) const FORMAT: &str = "tidegate-backup";
/// Prefix of the last line of a backup; no other line begins with it.
pub(super) const END: &[u8] = b"{\"end\":";

/// First line of a backup: format, version, time and position.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BackupHeader {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) made_at: Timestamp,
    pub(super) position: Position,
    pub(super) history_floor: Revision,
}

/// Fields that the first line of a backup has in every format version.
#[derive(Debug, Deserialize)]
pub(super) struct AnyBackupHeader {
    pub(super) format: String,
    pub(super) version: u32,
}

/// Line of a backup between the first and the last, as decoded from the file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum LineIn<'a> {
    #[serde(borrow)]
    Object(ObjectIn<'a>),
    Vault(VaultIn),
    #[serde(borrow)]
    History(HistoryIn<'a>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectIn<'a> {
    key: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VaultIn {
    key: String,
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryIn<'a> {
    revision: i64,
    at: i64,
    #[serde(borrow)]
    head: &'a RawValue,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Line of a backup between the first and the last, to be encoded.
#[derive(Debug)]
pub(super) enum Line {
    Object(Box<Object>),
    Vault(String, Vec<u8>),
    History(RevisionEntry),
}

/// Encodes the first line of a backup.
pub(super) fn head(made_at: Timestamp, position: Position, history_floor: Revision) -> String {
    let head = BackupHeader { format: FORMAT.to_owned(), version: VERSION, made_at, position, history_floor };
    serde_json::to_string(&head).expect("strings and numbers serialize without failing") + "\n"
}

/// Encodes the backup line of an object.
pub(super) fn object(object: &Object) -> String {
    let (key, body) = (text(&object.key().to_store_key()), record::encode(object));
    format!("{{\"object\":{{\"key\":{key},\"body\":{body}}}}}\n")
}

/// Encodes the backup line of a vault record.
pub(super) fn vault(key: &str, body: &[u8]) -> String {
    format!("{{\"vault\":{{\"key\":{},\"body\":\"{}\"}}}}\n", text(key), hex(body))
}

/// Encodes the backup line of a history entry.
pub(super) fn entry(entry: &RevisionEntry) -> String {
    let history::EncodedEntry { revision, at, is_by_server: _, head, body } = history::encode_alone(entry);
    let at = at.unix_seconds();
    format!("{{\"history\":{{\"revision\":{revision},\"at\":{at},\"head\":{head},\"body\":{body}}}}}\n")
}

/// Encodes the last line of a backup, with the number of lines before it and the digest of their bytes.
pub(super) fn end(lines: u64, digest: &[u8]) -> String {
    format!("{{\"end\":{{\"lines\":{lines},\"sha256\":\"{}\"}}}}\n", hex(digest))
}

/// Decodes a line between the first and the last of a backup.
pub(super) fn parse(line: &[u8]) -> Result<Line, StoreError> {
    let unreadable = |reason: String| StoreError::Unreadable { key: "a line".to_owned(), reason };
    match serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))? {
        LineIn::Object(ObjectIn { key, body }) => {
            record::decode(&key, body.get().as_bytes()).map(|object| Line::Object(Box::new(object)))
        }
        LineIn::Vault(VaultIn { key, body }) => {
            let bytes = unhex(&body).ok_or_else(|| unreadable(format!("the record {key} is not hex")))?;
            Ok(Line::Vault(key, bytes))
        }
        LineIn::History(HistoryIn { revision, at, head, body }) => {
            let head = head.get().as_bytes().to_vec();
            history::decode((revision, at, head), body.get().as_bytes()).map(Line::History)
        }
    }
}

fn text(text: &str) -> String {
    serde_json::to_string(text).expect("a text serialises")
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_both_ways_and_refuses_the_rest() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)).as_deref(), Some(&bytes[..]));
        for bad in ["0", "0g", "é0", "+1", " 1"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
