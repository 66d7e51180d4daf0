//! Responses of upstream servers, in a form that is independent of the client: id 0, the question in lower case, no OPT
//! record, and limited times.

use std::ops::Range;

use hickory_proto::{
    op::{Message, MessageType, OpCode, ResponseCode},
    rr::{Name, RData, Record, RecordType},
};

use super::{HEADER_BYTES, key::QuestionKey, relevant};

/// Time in seconds for which clients may cache a response whose records have expired (RFC 8767 §4).
const STALE_TTL: u32 = 30;
/// Size of type, class, time and length of a record in bytes.
const RECORD_BYTES: usize = 10;
/// Maximum time in seconds that is valid; longer ones count as 0 (RFC 2181 §8).
const TTL_MAX: u32 = i32::MAX as u32;

/// Limits on the times of responses in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TtlLimits {
    /// Limit for records.
    pub(crate) positive: u32,
    /// Limit for the absence of records.
    pub(crate) negative: u32,
}

/// Meaning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The wanted records.
    Positive,
    /// The name, or the last name of a chain of aliases, has no records of the type; or it does not exist and the
    /// asked name is an alias.
    NoData,
    /// The asked name does not exist, and no name below it (RFC 8020).
    NoName,
    /// The upstream server failed or refused.
    Failure,
}

/// Response of an upstream server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// Positions of the times of the records.
    ttls: Box<[u16]>,
    /// Meaning of the response.
    pub(crate) kind: ReplyKind,
    /// Time in seconds for which the response may be cached; 0 if it must not be cached.
    pub(crate) lifetime: u32,
}

/// Position of a record in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub(super) owner: Range<usize>,
    pub(super) record_type: u16,
    ttl: Range<usize>,
    pub(super) data: Range<usize>,
}

impl Reply {
    /// Parses the response of an upstream server to a question, without records that do not belong to the question. Returns `None` if the response is malformed,
    /// truncated, or the response to another operation, in which records may have other forms (RFC 2136 §2.5).
    pub(crate) fn parse(key: &QuestionKey, response: &[u8], limits: TtlLimits) -> Option<Self> {
        let mut message = Message::from_vec(response).ok()?;
        if message.metadata.truncation || message.metadata.op_code != OpCode::Query {
            return None;
        }
        relevant::keep(&key.name, &mut message);
        let kind = kind_of(key, &message);
        let limit = if kind == ReplyKind::Positive { limits.positive } else { limits.negative };
        let negative_ttl = negative_ttl(&message.authorities);
        for record in
            message.answers.iter_mut().chain(&mut message.authorities).chain(&mut message.additionals)
        {
            record.ttl = if record.ttl > TTL_MAX { 0 } else { record.ttl.min(limit) };
            if record.name.eq_ignore_root(&key.name) {
                // The encoding is then a reference to the question, which is replaced by the spelling of a client.
                record.name = key.name.clone();
            }
        }
        let answers_ttl = message.answers.iter().map(|record| record.ttl).min();
        let lifetime = match kind {
            ReplyKind::Positive => answers_ttl.unwrap_or(0),
            ReplyKind::NoData | ReplyKind::NoName => {
                let ttl = negative_ttl.map_or(0, |ttl| ttl.min(limit));
                for start in message.authorities.iter_mut().filter(|it| it.record_type() == RecordType::SOA) {
                    start.ttl = ttl;
                }
                answers_ttl.unwrap_or(ttl).min(ttl)
            }
            ReplyKind::Failure => 0,
        };
        message.edns = None;
        message.signature = None;
        message.queries = vec![key.query()];
        let metadata = &mut message.metadata;
        metadata.id = 0;
        metadata.message_type = MessageType::Response;
        metadata.authoritative = false;
        if metadata.response_code.high() != 0 {
            // Without an OPT record, only codes below 16 can be encoded.
            metadata.response_code = ResponseCode::ServFail;
        }
        let bytes = message.to_vec().ok()?;
        let ttls = places(&bytes).filter_map(|place| u16::try_from(place.ttl.start).ok()).collect();
        Some(Self { bytes, ttls, kind, lifetime })
    }

    /// Size of the response in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the response with the times that remain after `age` seconds.
    pub(crate) fn aged(&self, age: u32) -> Vec<u8> {
        self.with_ttls(|ttl| ttl.saturating_sub(age))
    }

    /// Returns the response with the times of one whose records have expired.
    pub(crate) fn expired(&self) -> Vec<u8> {
        self.with_ttls(|_| STALE_TTL)
    }

    fn with_ttls(&self, change: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        self.change_ttls(&mut bytes, change);
        bytes
    }

    /// Appends the response with the times that remain after `age` seconds.
    pub(super) fn append_aged(&self, age: u32, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&self.bytes);
        if let Some(copy) = bytes.get_mut(start..) {
            self.change_ttls(copy, |ttl| ttl.saturating_sub(age));
        }
    }

    /// Changes the times of a copy of the response.
    fn change_ttls(&self, bytes: &mut [u8], change: impl Fn(u32) -> u32) {
        for at in &self.ttls {
            let slot = bytes.get_mut(usize::from(*at)..).and_then(|slot| slot.first_chunk_mut::<4>());
            if let Some(slot) = slot {
                *slot = change(u32::from_be_bytes(*slot)).to_be_bytes();
            }
        }
    }
}

/// Returns the response that says that a name does not exist, in the form of one for a name below it.
pub(crate) fn denial_below(response: &[u8], key: &QuestionKey) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(response).ok()?;
    message.queries = vec![key.query()];
    message.to_vec().ok()
}

fn kind_of(key: &QuestionKey, message: &Message) -> ReplyKind {
    let answers = &message.answers;
    let code = message.metadata.response_code;
    let is_wanted =
        |record: &Record| record.record_type() == key.record_type || key.record_type == RecordType::ANY;
    if code == ResponseCode::NoError && answers.iter().any(is_wanted) {
        ReplyKind::Positive
    } else if code == ResponseCode::NXDomain && answers.is_empty() {
        ReplyKind::NoName
    } else if matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        ReplyKind::NoData
    } else {
        ReplyKind::Failure
    }
}

/// Returns the time in seconds for which the absence of records may be cached: that of the start of authority
/// (RFC 2308 §5). `None` without one.
fn negative_ttl(authority: &[Record]) -> Option<u32> {
    authority.iter().find_map(|record| {
        let RData::SOA(start) = &record.data else { return None };
        let ttl = record.ttl.min(start.minimum);
        Some(if ttl > TTL_MAX { 0 } else { ttl })
    })
}

/// Encodes a name without compression.
pub(crate) fn wire_form(name: &Name) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 1);
    for label in name {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label);
    }
    bytes.push(0);
    bytes
}

/// Rotates the addresses of the answer section by `turn`.
pub(super) fn rotate_addresses(bytes: &mut [u8], turn: usize) {
    const ADDRESSES: [u16; 2] = [1, 28];
    let count = bytes.get(6..8).and_then(|count| count.first_chunk()).map_or(0, |it| u16::from_be_bytes(*it));
    if count < 2 {
        return;
    }
    let places: Vec<_> = places(bytes).take(usize::from(count)).collect();
    let Some(first) = places.iter().find(|place| ADDRESSES.contains(&place.record_type)) else { return };
    let set: Vec<_> = places
        .iter()
        .filter(|place| place.record_type == first.record_type && place.data.len() == first.data.len())
        .filter(|place| bytes.get(place.owner.clone()) == bytes.get(first.owner.clone()))
        .map(|place| place.data.clone())
        .collect();
    let mut values: Vec<Vec<u8>> =
        set.iter().filter_map(|place| bytes.get(place.clone())).map(<[u8]>::to_vec).collect();
    if values.len() < 2 {
        return;
    }
    let middle = turn % values.len();
    values.rotate_left(middle);
    for (place, value) in set.into_iter().zip(values) {
        if let Some(slot) = bytes.get_mut(place) {
            slot.copy_from_slice(&value);
        }
    }
}

/// Returns the positions of all records of a message with one question. Ends at the first malformed record.
pub(super) fn places(bytes: &[u8]) -> impl Iterator<Item = RecordPlace> {
    let count = |at: usize| {
        bytes
            .get(at..at + 2)
            .and_then(|count| count.first_chunk())
            .map_or(0, |it| usize::from(u16::from_be_bytes(*it)))
    };
    let mut next = skip_name(bytes, HEADER_BYTES).map(|end| end + 4);
    let records = count(6) + count(8) + count(10);
    (0..records).map_while(move |_| {
        let start = next?;
        let fixed = skip_name(bytes, start)?;
        let [type_high, type_low, _, _, _, _, _, _, size_high, size_low] =
            *bytes.get(fixed..)?.first_chunk::<RECORD_BYTES>()?;
        let data = fixed + RECORD_BYTES;
        let end = data + usize::from(u16::from_be_bytes([size_high, size_low]));
        next = Some(end);
        (end <= bytes.len()).then_some(RecordPlace {
            owner: start..fixed,
            record_type: u16::from_be_bytes([type_high, type_low]),
            ttl: fixed + 4..fixed + 8,
            data: data..end,
        })
    })
}

/// Returns the position after a name. `None` if the name is malformed.
pub(super) fn skip_name(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + length,
            // Reference to an earlier name (RFC 1035 §4.1.4).
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}
