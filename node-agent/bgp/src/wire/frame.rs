//! Codec of the message header (RFC 4271 §4.1), and its errors (§6.1).

use super::{Context, EncodeError, HEADER_BYTES, MESSAGE_BYTES_MAX};
use crate::notification::{Notification, code, header};

/// Marker at the start of each message: all bits are one (RFC 4271 §4.1).
const MARKER: [u8; 16] = [0xff; 16];
const LENGTH_AT: usize = 16;
const TYPE_AT: usize = 18;

/// Message types and their codes (RFC 4271 §4.1, RFC 2918).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Update,
    Notification,
    Keepalive,
    Refresh,
}

impl Kind {
    const fn parse(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Open),
            2 => Some(Self::Update),
            3 => Some(Self::Notification),
            4 => Some(Self::Keepalive),
            5 => Some(Self::Refresh),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Update => 2,
            Self::Notification => 3,
            Self::Keepalive => 4,
            Self::Refresh => 5,
        }
    }

    /// Returns the minimum and maximum length of messages of this type. ROUTE-REFRESH may have any length
    /// here, because an invalid length has its own error code (RFC 7313 §5).
    const fn lengths(self, context: &Context) -> (usize, usize) {
        match self {
            Self::Open => (HEADER_BYTES + 10, MESSAGE_BYTES_MAX),
            Self::Update => (HEADER_BYTES + 4, context.message_bytes_max()),
            Self::Notification => (HEADER_BYTES + 2, context.message_bytes_max()),
            Self::Keepalive => (HEADER_BYTES, HEADER_BYTES),
            Self::Refresh => (HEADER_BYTES, context.message_bytes_max()),
        }
    }
}

/// Returns the type and the length in the header of a message. The error is the NOTIFICATION to send for an
/// invalid header.
pub(super) fn read(
    frame_header: &[u8; HEADER_BYTES],
    context: &Context,
) -> Result<(Kind, usize), Notification> {
    if !frame_header.starts_with(&MARKER) {
        return Err(Notification::new(code::HEADER, header::NOT_SYNCHRONIZED));
    }
    let length_field = [frame_header[LENGTH_AT], frame_header[LENGTH_AT + 1]];
    let length = usize::from(u16::from_be_bytes(length_field));
    // The data of the error is the Length field.
    let bad_length =
        || Notification { data: length_field.into(), ..Notification::new(code::HEADER, header::BAD_LENGTH) };
    if length < HEADER_BYTES || length > context.message_bytes_max() {
        return Err(bad_length());
    }
    let type_field = frame_header[TYPE_AT];
    let Some(kind) = Kind::parse(type_field) else {
        return Err(Notification {
            data: vec![type_field],
            ..Notification::new(code::HEADER, header::BAD_TYPE)
        });
    };
    let (shortest, longest) = kind.lengths(context);
    if length < shortest || length > longest { Err(bad_length()) } else { Ok((kind, length)) }
}

/// Returns the type and the body of a message. If its size differs from the length in the header, the error
/// is Bad Message Length.
pub(super) fn split<'a>(frame: &'a [u8], context: &Context) -> Result<(Kind, &'a [u8]), Notification> {
    let bad_length = |data: &[u8]| Notification {
        data: data.into(),
        ..Notification::new(code::HEADER, header::BAD_LENGTH)
    };
    let Some((frame_header, body)) = frame.split_first_chunk() else { return Err(bad_length(&[])) };
    let (kind, length) = read(frame_header, context)?;
    if length != frame.len() {
        return Err(bad_length(&frame_header[LENGTH_AT..TYPE_AT]));
    }
    Ok((kind, body))
}

/// Starts a message of this type with an incomplete header. [`finish`] sets the length.
pub(super) fn begin(kind: Kind) -> Vec<u8> {
    let mut out = MARKER.to_vec();
    out.extend([0, 0, kind.byte()]);
    out
}

/// Completes the header of a message of at most `bytes_max` bytes. This limit is at most
/// [`super::EXTENDED_MESSAGE_BYTES_MAX`].
pub(super) fn finish(mut out: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, EncodeError> {
    let too_long = EncodeError::TooLong { bytes: out.len(), bytes_max };
    if out.len() > bytes_max {
        return Err(too_long);
    }
    let length = u16::try_from(out.len()).map_err(|_| too_long)?;
    out[LENGTH_AT..TYPE_AT].copy_from_slice(&length.to_be_bytes());
    Ok(out)
}
