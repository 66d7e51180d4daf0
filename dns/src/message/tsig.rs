//! Signatures of messages with shared keys (TSIG, RFC 8945): verification of requests and signatures of responses, and
//! both in the other direction for notifications.
//!
//! A signature is the last record of a message. It covers the message without it, the fields of the record, and in
//! responses the signature of the message before. A client may truncate the hash to half of its size; the responses to it
//! have a hash of the same size (§5.2.2.1).

#[cfg(test)]
mod tests;

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{Name, RecordType},
};
use ring::hmac;

use super::{
    Request, encode_name,
    reply::{places, wire_form},
    text_of,
};

/// Type of the record with the signature.
const TSIG: u16 = 250;
/// Class (ANY) and time to live of the record.
const CLASS_AND_TTL: [u8; 6] = [0, 255, 0, 0, 0, 0];
/// Time in seconds by which the clock of a client may differ from that of this server (RFC 8945 §10).
const FUDGE_SECS: u16 = 300;
/// Minimum size of a truncated hash in bytes; it also has at least half of the whole size (RFC 8945 §5.2.2.1).
const HASH_BYTES_MIN: usize = 10;
/// Size of the fixed fields of the record's value before the signature and after it, in bytes.
const FIELDS_BYTES: (usize, usize) = (10, 6);

/// Reason for which a signature is rejected, with its number (RFC 8945 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureError {
    /// Wrong signature (BADSIG).
    Signature = 16,
    /// Unknown key, or an algorithm that is not supported (BADKEY).
    Key = 17,
    /// Time of the signature too far from the time of this server (BADTIME).
    Time = 18,
}

/// Result of a failed verification, which determines the response.
#[derive(Debug)]
enum SignatureRejection {
    /// The hash has an invalid size. The response has no signature record (RFC 8945 §5.2.2.1).
    Malformed,
    /// The key or the hash is wrong. The response has the error in a record without a hash (RFC 8945 §5.3.2).
    Unsigned(SignatureError),
    /// The time is wrong. The response has the error in a valid signature.
    Signed(Box<Signer>),
}

/// Supported algorithm.
#[derive(Debug)]
struct Algorithm {
    /// Name in lower case without compression.
    name: &'static [u8],
    hash: &'static hmac::Algorithm,
}

static ALGORITHMS: [Algorithm; 3] = [
    Algorithm { name: b"\x0bhmac-sha256\0", hash: &hmac::HMAC_SHA256 },
    Algorithm { name: b"\x0bhmac-sha384\0", hash: &hmac::HMAC_SHA384 },
    Algorithm { name: b"\x0bhmac-sha512\0", hash: &hmac::HMAC_SHA512 },
];

/// Signature of a request, not yet verified.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    key: Name,
    algorithm: Vec<u8>,
    fields: SignatureFields,
    mac: Vec<u8>,
    /// Message without the signature, with the id that was signed.
    message: Vec<u8>,
}

/// Fields of a signature other than the hash.
#[derive(Debug, Clone, Default)]
struct SignatureFields {
    time: u64,
    fudge: u16,
    id: u16,
    error: u16,
    other: Vec<u8>,
}

/// Signs the responses to a request with a valid signature, or a request.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    name: Vec<u8>,
    /// Name of the key in lower case.
    key_name: String,
    algorithm: &'static Algorithm,
    key: hmac::Key,
    /// Hash of the previous message; `None` before a request.
    previous: Option<Vec<u8>>,
    /// Size of hashes in bytes.
    hash_bytes: usize,
    fields: SignatureFields,
    is_first: bool,
}

impl Signature {
    /// Reads the signature of a message with one question. Returns `None` if the message has none.
    ///
    /// # Errors
    /// Returns an error if the record is malformed, or not the last one of the message (RFC 8945 §5.1).
    pub(super) fn read(packet: &[u8], message: &Message) -> Result<Option<Self>, ()> {
        let all: Vec<_> = places(packet).collect();
        let Some(place) = all.iter().find(|place| place.record_type == TSIG) else { return Ok(None) };
        let is_last = all.last() == Some(place) && place.data.end == packet.len();
        let record = message.additionals.last().filter(|record| record.record_type() == RecordType::TSIG);
        let (true, Some(record)) = (is_last, record) else { return Err(()) };
        let fixed = packet.get(place.owner.end + 2..place.owner.end + 2 + CLASS_AND_TTL.len());
        if fixed != Some(&CLASS_AND_TTL) {
            return Err(());
        }
        let mut signed = packet.get(..place.owner.start).ok_or(())?.to_vec();
        let data = packet.get(place.data.clone()).ok_or(())?;
        let (algorithm, fields, mac) = read_fields(data).ok_or(())?;
        let additional = u16::from_be_bytes([signed[10], signed[11]]).checked_sub(1).ok_or(())?;
        signed[10..12].copy_from_slice(&additional.to_be_bytes());
        signed[..2].copy_from_slice(&fields.id.to_be_bytes());
        Ok(Some(Self { key: record.name.to_lowercase(), algorithm, fields, mac, message: signed }))
    }

    /// Returns the name of the key in lower case.
    fn key_name(&self) -> String {
        text_of(&self.key)
    }

    /// Verifies the signature with the secret of its key at a time in seconds since 1970. The checks and their order are
    /// those of RFC 8945 §5.2.
    fn verify(&self, secret: Option<&[u8]>, now: u64) -> Result<Signer, SignatureRejection> {
        let algorithm = ALGORITHMS.iter().find(|known| known.name == self.algorithm);
        let (Some(secret), Some(algorithm)) = (secret, algorithm) else {
            return Err(SignatureRejection::Unsigned(SignatureError::Key));
        };
        if !algorithm.permits_size(self.mac.len()) {
            return Err(SignatureRejection::Malformed);
        }
        let signer = Signer {
            name: wire_form(&self.key),
            key_name: self.key_name(),
            algorithm,
            key: hmac::Key::new(*algorithm.hash, secret),
            previous: Some(self.mac.clone()),
            hash_bytes: self.mac.len(),
            fields: SignatureFields {
                time: now,
                fudge: FUDGE_SECS,
                id: self.fields.id,
                ..SignatureFields::default()
            },
            is_first: true,
        };
        let signed = [&self.message[..], &variables(&signer.name, algorithm, &self.fields)].concat();
        if !is_hash(&signer.key, &signed, &self.mac) {
            return Err(SignatureRejection::Unsigned(SignatureError::Signature));
        }
        if self.fields.time.abs_diff(now) > u64::from(self.fields.fudge) {
            // The client learns the time of this server (RFC 8945 §5.2.3).
            let fields = SignatureFields {
                time: self.fields.time,
                error: SignatureError::Time as u16,
                other: now.to_be_bytes()[2..].to_vec(),
                ..signer.fields.clone()
            };
            return Err(SignatureRejection::Signed(Box::new(Signer { fields, ..signer })));
        }
        Ok(signer)
    }
}

impl Algorithm {
    /// Returns true if hashes of the algorithm may have a size in bytes: the whole size, or a permitted truncation.
    fn permits_size(&self, bytes: usize) -> bool {
        let whole = self.hash.digest_algorithm().output_len();
        (HASH_BYTES_MIN.max(whole / 2)..=whole).contains(&bytes)
    }
}

impl Signer {
    /// Returns the name of the key in lower case.
    pub(crate) fn key_name(&self) -> &str {
        &self.key_name
    }

    /// Creates a signer of a request with an id, at a time in seconds since 1970.
    pub(crate) fn of_request(key_name: &str, secret: &[u8], id: u16, now: u64) -> Option<Self> {
        let [algorithm, ..] = &ALGORITHMS;
        Some(Self {
            name: wire_form(&encode_name(key_name)?),
            key_name: key_name.to_owned(),
            algorithm,
            key: hmac::Key::new(*algorithm.hash, secret),
            previous: None,
            hash_bytes: algorithm.hash.digest_algorithm().output_len(),
            fields: SignatureFields { time: now, fudge: FUDGE_SECS, id, ..SignatureFields::default() },
            is_first: true,
        })
    }

    /// Returns true if a message is the response to the signed request: it has a signature with the same key and without
    /// an error, at about the time `now` in seconds since 1970 (RFC 8945 §5.4).
    pub(super) fn verifies(&self, packet: &[u8], message: &Message, now: u64) -> bool {
        let Some(previous) = &self.previous else { return false };
        let Ok(Some(signature)) = Signature::read(packet, message) else { return false };
        let Signature { fields, mac, .. } = &signature;
        let is_same_key = signature.key_name() == self.key_name && signature.algorithm == self.algorithm.name;
        let is_valid = is_same_key
            && fields.error == 0
            && fields.time.abs_diff(now) <= u64::from(fields.fudge)
            && self.algorithm.permits_size(mac.len());
        let covered = [
            &size_of_part(previous)[..],
            previous,
            &signature.message,
            &variables(&self.name, self.algorithm, fields),
        ];
        is_valid && is_hash(&self.key, &covered.concat(), mac)
    }

    /// Appends the signature to a request, or to the next message of the response. The first one covers all fields, later
    /// ones only the time (RFC 8945 §5.3.1).
    pub(crate) fn sign(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key);
        if let Some(previous) = &self.previous {
            context.update(&size_of_part(previous));
            context.update(previous);
        }
        context.update(&message);
        if self.is_first {
            context.update(&variables(&self.name, self.algorithm, &self.fields));
        } else {
            context.update(&time(&self.fields));
        }
        let mut mac = context.sign().as_ref().to_vec();
        mac.truncate(self.hash_bytes);
        append(&mut message, &self.name, self.algorithm.name, &self.fields, &mac);
        self.previous = Some(mac);
        self.is_first = false;
        message
    }
}

impl Request {
    /// Returns true if the request has a signature.
    pub(crate) const fn is_signed(&self) -> bool {
        self.signature.is_some()
    }

    /// Returns the name of the key of the request's signature in lower case, which may be invalid; `None` if the request
    /// has no signature.
    pub(crate) fn claimed_key(&self) -> Option<String> {
        self.signature.as_ref().map(|signature| signature.key_name())
    }

    /// Returns the name of the key with which the request is signed, after verification.
    pub(crate) fn verified_key(&self) -> Option<&str> {
        self.signer.as_ref().map(|signer| signer.key_name())
    }

    /// Returns the id of a request with a valid signature, and the signature. A repetition of the request has the same.
    pub(crate) fn transaction(&self) -> Option<(u16, Vec<u8>)> {
        let signer = self.signer.as_ref().filter(|signer| signer.is_first)?;
        Some((self.id, signer.previous.clone()?))
    }

    /// Verifies the signature with the secret of its key, at a time in seconds since 1970, so that responses are signed.
    /// A request without a signature stays as it is.
    ///
    /// # Errors
    /// Returns the encoded error response if the signature is invalid.
    pub(crate) fn verify(mut self, secret: Option<&[u8]>, now: u64) -> Result<Self, Vec<u8>> {
        let Some(signature) = self.signature.take() else { return Ok(self) };
        match signature.verify(secret, now) {
            Ok(signer) => {
                self.signer = Some(Box::new(signer));
                Ok(self)
            }
            Err(SignatureRejection::Malformed) => Err(self.fail(ResponseCode::FormErr)),
            Err(SignatureRejection::Signed(mut signer)) => Err(signer.sign(self.fail(ResponseCode::NotAuth))),
            Err(SignatureRejection::Unsigned(error)) => {
                let mut response = self.fail(ResponseCode::NotAuth);
                let fields = SignatureFields {
                    time: now,
                    fudge: FUDGE_SECS,
                    id: signature.fields.id,
                    error: error as u16,
                    other: Vec::new(),
                };
                append(&mut response, &wire_form(&signature.key), &signature.algorithm, &fields, &[]);
                Err(response)
            }
        }
    }
}

/// Returns true if `mac` is the beginning of the hash of a text. The comparison takes the same time for all values.
fn is_hash(key: &hmac::Key, text: &[u8], mac: &[u8]) -> bool {
    let expected = hmac::sign(key, text);
    let pairs = expected.as_ref().iter().zip(mac);
    mac.len() <= expected.as_ref().len() && pairs.fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

/// Reads the value of the record: algorithm, fields and hash. Returns `None` if it is malformed.
fn read_fields(data: &[u8]) -> Option<(Vec<u8>, SignatureFields, Vec<u8>)> {
    // The name of the algorithm is not compressed (RFC 8945 §4.2).
    let mut end = 0;
    while let length @ 1..=63 = usize::from(*data.get(end)?) {
        end += 1 + length;
    }
    if *data.get(end)? != 0 {
        return None;
    }
    let (algorithm, rest) = data.split_at_checked(end + 1)?;
    let (fixed, rest) = rest.split_at_checked(FIELDS_BYTES.0)?;
    let number = |at: usize| Some(u16::from_be_bytes(*fixed.get(at..)?.first_chunk()?));
    let (high, fudge, size) = (number(0)?, number(6)?, number(8)?);
    let low = u32::from_be_bytes(*fixed.get(2..)?.first_chunk()?);
    let (mac, rest) = rest.split_at_checked(usize::from(size))?;
    let (fixed, other) = rest.split_at_checked(FIELDS_BYTES.1)?;
    let number = |at: usize| Some(u16::from_be_bytes(*fixed.get(at..)?.first_chunk()?));
    if usize::from(number(4)?) != other.len() {
        return None;
    }
    let time = u64::from(high) << 32 | u64::from(low);
    let fields = SignatureFields { time, fudge, id: number(0)?, error: number(2)?, other: other.to_vec() };
    Some((algorithm.to_ascii_lowercase(), fields, mac.to_vec()))
}

/// Encodes the fields of the record that a signature covers (RFC 8945 §4.3.3).
fn variables(name: &[u8], algorithm: &Algorithm, fields: &SignatureFields) -> Vec<u8> {
    let mut bytes = name.to_vec();
    bytes.extend(CLASS_AND_TTL);
    bytes.extend(algorithm.name);
    bytes.extend(time(fields));
    bytes.extend(fields.error.to_be_bytes());
    bytes.extend(size_of_part(&fields.other));
    bytes.extend(&fields.other);
    bytes
}

/// Encodes the time of a signature and its tolerance.
fn time(fields: &SignatureFields) -> Vec<u8> {
    [&fields.time.to_be_bytes()[2..], &fields.fudge.to_be_bytes()].concat()
}

/// Appends the record with a signature to a message.
fn append(message: &mut Vec<u8>, name: &[u8], algorithm: &[u8], fields: &SignatureFields, mac: &[u8]) {
    let Some(count) = message.get(10..12).and_then(|count| count.first_chunk().copied()) else { return };
    let mut data = algorithm.to_vec();
    data.extend(time(fields));
    data.extend(size_of_part(mac));
    data.extend(mac);
    data.extend(fields.id.to_be_bytes());
    data.extend(fields.error.to_be_bytes());
    data.extend(size_of_part(&fields.other));
    data.extend(&fields.other);
    message.extend(name);
    message.extend(TSIG.to_be_bytes());
    message.extend(CLASS_AND_TTL);
    message.extend(size_of_part(&data));
    message.extend(data);
    message[10..12].copy_from_slice(&u16::from_be_bytes(count).saturating_add(1).to_be_bytes());
}

/// Encodes the size of a part of a message, which is smaller than a message.
fn size_of_part(part: &[u8]) -> [u8; 2] {
    u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes()
}
