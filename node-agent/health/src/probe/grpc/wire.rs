//! Codec of the two messages of the gRPC health checking protocol, with gRPC framing. Pure and total. Unknown
//! fields are skipped, as protobuf requires.

use std::fmt;

/// Length in bytes of the prefix of a gRPC message: compression flag and message length.
const PREFIX_BYTES: usize = 5;
/// Maximum length of a protobuf varint in bytes.
const VARINT_BYTES_MAX: u32 = 10;
/// Tag of field 1 in the request, a string: the name of the service.
const SERVICE: u8 = 1 << 3 | 2;
const STATUS_FIELD: u64 = 1;

/// Status of a service in the response (`ServingStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServingStatus {
    /// UNKNOWN: the server has not determined the status.
    Unknown,
    /// SERVING: the service is healthy.
    Serving,
    /// NOT_SERVING: the service is unhealthy.
    NotServing,
    /// SERVICE_UNKNOWN: the server has no service of the requested name.
    ServiceUnknown,
    /// Status number that the protocol does not define.
    Other(u64),
}

/// Reason why a response cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end before the end of the message.
    Truncated,
    /// Further bytes follow after the end of the message.
    TooLong,
    /// The message is compressed, although compression was not negotiated.
    Compressed,
    /// A varint exceeds 64 bits.
    Overflow,
    /// A field has an invalid number or wire type.
    BadField,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "it ends too early",
            Self::TooLong => "it goes on after its end",
            Self::Compressed => "it is compressed",
            Self::Overflow => "a number is too large",
            Self::BadField => "a field is malformed",
        })
    }
}

/// Encodes the request for the status of a gRPC service. An empty name requests the status of the whole
/// server.
#[must_use]
pub(super) fn render_request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(SERVICE);
        let mut length = service.len();
        while length >= 0x80 {
            message.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.push((length & 0x7f) as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], length.to_be_bytes().as_slice(), &message].concat()
}

/// Decodes the response of a gRPC health check.
///
/// # Errors
/// Returns [`Fault`] unless the bytes are exactly one uncompressed message.
pub(super) fn parse_response(bytes: &[u8]) -> Result<ServingStatus, Fault> {
    let (prefix, mut rest) = bytes.split_at_checked(PREFIX_BYTES).ok_or(Fault::Truncated)?;
    let &[compressed, a, b, c, d] = prefix else { return Err(Fault::Truncated) };
    if compressed != 0 {
        return Err(Fault::Compressed);
    }
    let length = u32::from_be_bytes([a, b, c, d]);
    match u32::try_from(rest.len()).unwrap_or(u32::MAX).cmp(&length) {
        std::cmp::Ordering::Less => return Err(Fault::Truncated),
        std::cmp::Ordering::Greater => return Err(Fault::TooLong),
        std::cmp::Ordering::Equal => {}
    }
    let mut status = 0;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let field = tag >> 3;
        if field == 0 {
            return Err(Fault::BadField);
        }
        match tag & 7 {
            0 => {
                let value = varint(&mut rest)?;
                // The last value of a repeated field counts.
                if field == STATUS_FIELD {
                    status = value;
                }
            }
            1 => skip(&mut rest, 8)?,
            2 => {
                let length = varint(&mut rest)?;
                skip(&mut rest, length)?;
            }
            5 => skip(&mut rest, 4)?,
            // Groups, which are obsolete, and undefined wire types.
            _ => return Err(Fault::BadField),
        }
    }
    Ok(match status {
        0 => ServingStatus::Unknown,
        1 => ServingStatus::Serving,
        2 => ServingStatus::NotServing,
        3 => ServingStatus::ServiceUnknown,
        other => ServingStatus::Other(other),
    })
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Fault> {
    let mut value = 0_u64;
    for index in 0..VARINT_BYTES_MAX {
        let (&byte, rest) = bytes.split_first().ok_or(Fault::Truncated)?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if index == VARINT_BYTES_MAX - 1 && part > 1 {
            return Err(Fault::Overflow);
        }
        value |= part << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Fault::Overflow)
}

fn skip(bytes: &mut &[u8], length: u64) -> Result<(), Fault> {
    let length = usize::try_from(length).map_err(|_too_large| Fault::Truncated)?;
    *bytes = bytes.get(length..).ok_or(Fault::Truncated)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0], length.to_be_bytes().as_slice(), message].concat()
    }

    #[test]
    fn requests_are_as_the_protocol_says() {
        assert_eq!(render_request(""), [0, 0, 0, 0, 0]);
        assert_eq!(render_request("db"), [0, 0, 0, 0, 4, 0x0a, 2, b'd', b'b']);
        let long = render_request(&"x".repeat(255));
        assert_eq!(long[..8], [0, 0, 0, 1, 2, 0x0a, 0xff, 0x01]);
        assert_eq!(long.len(), 8 + 255);
    }

    #[test]
    fn responses_are_understood() {
        for (message, status) in [
            (&[][..], ServingStatus::Unknown),
            (&[8, 0], ServingStatus::Unknown),
            (&[8, 1], ServingStatus::Serving),
            (&[8, 2], ServingStatus::NotServing),
            (&[8, 3], ServingStatus::ServiceUnknown),
            (&[8, 0x80, 1], ServingStatus::Other(128)),
            // The last value counts, also in a non-minimal varint encoding.
            (&[8, 2, 8, 0x81, 0], ServingStatus::Serving),
            // Unknown fields are skipped: varint, string, 32 and 64 bits, and a field 1 of another wire type.
            (&[16, 5, 26, 2, b'o', b'k', 8, 1], ServingStatus::Serving),
            (&[37, 1, 2, 3, 4, 41, 1, 2, 3, 4, 5, 6, 7, 8, 8, 1], ServingStatus::Serving),
            (&[10, 1, 1, 8, 1], ServingStatus::Serving),
            (&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], ServingStatus::Other(u64::MAX)),
        ] {
            assert_eq!(parse_response(&frame(message)), Ok(status), "{message:?}");
        }
    }

    #[test]
    fn what_is_malformed_is_said() {
        for (bytes, fault) in [
            (frame(&[8]), Fault::Truncated),
            (frame(&[8, 0x80]), Fault::Truncated),
            (frame(&[0, 1]), Fault::BadField),
            (frame(&[11]), Fault::BadField),
            (frame(&[14, 1]), Fault::BadField),
            (frame(&[18, 200, 1]), Fault::Truncated),
            (frame(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Fault::Overflow),
            (frame(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0]), Fault::Overflow),
            (frame(&[18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Fault::Truncated),
            ([frame(&[8, 1]), vec![0]].concat(), Fault::TooLong),
            (vec![1, 0, 0, 0, 2, 8, 1], Fault::Compressed),
            (vec![0, 0xff, 0xff, 0xff, 0xff, 8, 1], Fault::Truncated),
        ] {
            assert_eq!(parse_response(&bytes), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn every_truncation_is_a_fault() {
        let whole = frame(&[16, 5, 26, 2, b'o', b'k', 37, 1, 2, 3, 4, 8, 1]);
        assert_eq!(parse_response(&whole), Ok(ServingStatus::Serving));
        for length in 0..whole.len() {
            assert_eq!(parse_response(&whole[..length]), Err(Fault::Truncated), "{length}");
        }
        // The same truncation with a matching length prefix.
        for length in 1..whole.len() - PREFIX_BYTES {
            let cut = frame(&whole[PREFIX_BYTES..PREFIX_BYTES + length]);
            assert_ne!(parse_response(&cut), Ok(ServingStatus::Serving), "{length}");
        }
    }
}
