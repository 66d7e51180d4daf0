//! Format of the etcd values that contain change log, history and objects: an envelope, a table of commits
//! (not for objects), and the encoded texts.
//!
//! ```text
//! {"v":1,"id":"…","pieces":0,"bytes":123}        envelope: version, id of the write, number of pieces, size
//! [[7,1795219200,60,0],[8,1795219200,63,0]]      table: revision, time, text bytes, related bytes elsewhere
//! …                                              texts of the table's rows, one after the other
//! ```
//! A payload that is too large for one key is stored in pieces under other keys, and the value ends after the
//! envelope. Everything is validated when read, because other programs can write to etcd.

use serde::{Deserialize, Serialize};

/// Version of the key layout and of the value format in etcd.
pub(super) const FORMAT: u32 = 1;
/// Maximum size in bytes of the value of a commit group (commits written in one etcd transaction) that is
/// stored under a single key. A transaction contains up to five such values (log, and heads and bodies of the
/// history) and stays below etcd's default request limit of 1.5 MiB.
pub(super) const GROUP_INLINE_BYTES_MAX: usize = 256 * 1024;
/// Maximum size in bytes of an object that is stored under a single key; keeps pages of many objects small.
pub(super) const OBJECT_INLINE_BYTES_MAX: usize = 64 * 1024;
/// Size of a piece in bytes; well below the request limit of 1.5 MiB.
pub(super) const PIECE_BYTES: usize = 1024 * 1024;
/// Maximum number of pieces of a value. They hold several times the largest commit group, because a history
/// value contains the objects both before and after each change.
pub(super) const PIECES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    v: u32,
    /// Unique id of the write attempt.
    pub(super) id: String,
    /// Number of pieces; 0 if the payload follows in the same value.
    pub(super) pieces: usize,
    /// Size of the payload in bytes.
    bytes: usize,
}

/// Value prepared for writing, with its pieces if it is too large for one key.
#[derive(Debug)]
pub(super) struct EncodedValue {
    /// Value of the key: an envelope, and the payload unless it is in pieces.
    pub(super) value: Vec<u8>,
    /// Pieces that must be written before the value.
    pub(super) pieces: Vec<Vec<u8>>,
}

/// Value as read from a key: an envelope, and the payload unless it is in pieces.
#[derive(Debug)]
pub(super) struct DecodedValue {
    pub(super) envelope: Envelope,
    /// Payload in the value itself; empty if the payload is in pieces.
    pub(super) payload: Vec<u8>,
}

/// Row of the table at the start of a commit group's value, before the texts; one for each commit or history
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row(
    /// Revision of the commit.
    pub(super) u64,
    /// Time of the commit in Unix seconds.
    pub(super) i64,
    /// Length in bytes of the commit's text below the table.
    pub(super) usize,
    /// Size in bytes of related data in another value, such as the body of a history entry whose head is in
    /// this value.
    pub(super) usize,
);

/// Encodes a payload. Up to `inline_max` bytes it is part of the value itself; a larger one is split into
/// pieces for separate keys.
pub(super) fn seal(id: &str, payload: Vec<u8>, inline_max: usize) -> EncodedValue {
    let bytes = payload.len();
    let is_inline = bytes <= inline_max;
    let pieces = if is_inline { 0 } else { bytes.div_ceil(PIECE_BYTES) };
    let envelope = Envelope { v: FORMAT, id: id.to_owned(), pieces, bytes };
    let mut value = serde_json::to_vec(&envelope).expect("the envelope has string keys only");
    value.push(b'\n');
    if is_inline {
        value.extend_from_slice(&payload);
        return EncodedValue { value, pieces: Vec::new() };
    }
    EncodedValue { value, pieces: payload.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect() }
}

/// Splits a value into its envelope and its inline payload.
pub(super) fn open(value: &[u8]) -> Result<DecodedValue, String> {
    let (line, payload) = split_line(value)?;
    let envelope: Envelope = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if envelope.v != FORMAT {
        return Err(format!(
            "unsupported version {}, this version supports {FORMAT}; start the newer version",
            envelope.v
        ));
    }
    if envelope.pieces > PIECES_MAX {
        return Err(format!("the value has {} pieces, at most {PIECES_MAX} are allowed", envelope.pieces));
    }
    if envelope.pieces == 0 && envelope.bytes != payload.len() {
        return Err(format!("the value has {} bytes instead of {}", payload.len(), envelope.bytes));
    }
    Ok(DecodedValue { envelope, payload: payload.to_vec() })
}

/// Assembles a payload from its pieces. Returns an error if they do not match the envelope.
pub(super) fn join(envelope: &Envelope, pieces: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    if pieces.len() != envelope.pieces {
        return Err(format!("only {} of {} pieces exist", pieces.len(), envelope.pieces));
    }
    let payload = pieces.concat();
    if payload.len() == envelope.bytes {
        Ok(payload)
    } else {
        Err(format!("the pieces have {} bytes instead of {}", payload.len(), envelope.bytes))
    }
}

/// Encodes the table of rows, followed by the text of each row.
pub(super) fn encode_rows<'a>(rows: impl Iterator<Item = (Row, &'a str)>) -> Vec<u8> {
    let (mut table, mut texts) = (Vec::new(), String::new());
    for (row, text) in rows {
        table.push(row);
        texts.push_str(text);
    }
    let mut payload = serde_json::to_vec(&table).expect("numbers serialise");
    payload.push(b'\n');
    payload.extend_from_slice(texts.as_bytes());
    payload
}

/// Decodes rows and their texts. Validates that revisions increase and do not exceed `last`.
pub(super) fn decode_rows(payload: &[u8], last: u64) -> Result<Vec<(Row, &[u8])>, String> {
    let (line, mut texts) = split_line(payload)?;
    let table: Vec<Row> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let mut rows = Vec::with_capacity(table.len());
    let mut before = None;
    for row in table {
        let Row(revision, _, bytes, beside) = row;
        if beside > PIECES_MAX * PIECE_BYTES {
            return Err(format!("revision {revision} has {beside} bytes elsewhere, more than allowed"));
        }
        if Some(revision) <= before || revision > last {
            return Err(format!("revision {revision} is not between {before:?} and {last}"));
        }
        before = Some(revision);
        let (text, rest) =
            texts.split_at_checked(bytes).ok_or("the texts are shorter than the table states")?;
        texts = rest;
        rows.push((row, text));
    }
    if texts.is_empty() { Ok(rows) } else { Err("the texts are longer than the table states".to_owned()) }
}

fn split_line(value: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let end = value.iter().position(|byte| *byte == b'\n').ok_or("the first line is missing")?;
    Ok((&value[..end], &value[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written_whole_or_in_pieces() {
        for bytes in [0, 10, 11, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let payload: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let sealed = seal("me", payload.clone(), 10);
            assert!(sealed.value.len() < 100);
            let opened = open(&sealed.value).unwrap();
            assert_eq!(opened.envelope.id, "me");
            let read = if bytes <= 10 {
                opened.payload
            } else {
                let missing = join(&opened.envelope, &sealed.pieces[1..]);
                assert!(missing.unwrap_err().contains("pieces exist"));
                join(&opened.envelope, &sealed.pieces).unwrap()
            };
            assert_eq!(read, payload);
        }
    }

    #[test]
    fn rows_are_read_as_written() {
        let rows = [(Row(7, -1, 3, 9), "abc"), (Row(9, 5, 0, 0), "")];
        let payload = encode_rows(rows.into_iter());
        let read = decode_rows(&payload, 9).unwrap();
        assert_eq!(read, [(rows[0].0, &b"abc"[..]), (rows[1].0, &b""[..])]);
        assert!(decode_rows(&payload, 8).is_err());
    }

    /// Decoding a truncated or foreign value returns an error and never panics.
    #[test]
    fn what_is_not_ours_is_refused_with_a_reason() {
        let payload = encode_rows([(Row(7, 0, 3, 0), "abc")].into_iter());
        let value = seal("me", payload.clone(), 1000).value;
        for end in 0..value.len() {
            assert!(open(&value[..end]).is_err(), "{end}");
        }
        for end in 0..payload.len() {
            assert!(decode_rows(&payload[..end], 7).is_err(), "{end}");
        }
        let cases = [
            ("{\"v\":2,\"id\":\"\",\"pieces\":0,\"bytes\":0}\n", "start the newer version"),
            ("{\"v\":1,\"id\":\"\",\"pieces\":513,\"bytes\":0}\n", "at most 512"),
            ("{\"v\":1,\"id\":\"\",\"pieces\":0,\"bytes\":1}\n", "0 bytes instead of 1"),
            ("{}\n", "missing field"),
            ("x\n", "expected value"),
        ];
        for (value, expected) in cases {
            let reason = open(value.as_bytes()).unwrap_err();
            assert!(reason.contains(expected), "{value}: {reason}");
        }
        for payload in [
            "[[7,0,0,0],[7,0,0,0]]\n",
            "[[8,0,0,0],[7,0,0,0]]\n",
            "[[7,0,0,0]]\nx",
            "[[7,0,9,0]]\nx",
            "[[7,0,0,999999999999]]\n",
        ] {
            assert!(decode_rows(payload.as_bytes(), 8).is_err(), "{payload}");
        }
    }
}
