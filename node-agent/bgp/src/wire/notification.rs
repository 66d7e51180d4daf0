//! Codec of NOTIFICATION messages (RFC 4271 §4.5) with any code, subcode and data.

use super::{
    Context, EncodeError,
    frame::{self, Kind},
    reader::Reader,
};
use crate::notification::{Notification, code, header};

/// Decodes the body of a NOTIFICATION. The length check of the header guarantees that code and subcode are
/// present.
pub(super) fn decode(body: &[u8]) -> Result<Notification, Notification> {
    let mut reader = Reader::new(body);
    let bad_length = || Notification::new(code::HEADER, header::BAD_LENGTH);
    let (code, subcode) = reader.u8().zip(reader.u8()).ok_or_else(bad_length)?;
    Ok(Notification { code, subcode, data: reader.rest().into() })
}

/// Encodes a NOTIFICATION. The data field may contain a received attribute or message of maximum length. The field
/// is truncated if necessary, because the code matters more than the end of the data (RFC 8654 §5).
pub(super) fn encode(message: &Notification, context: &Context) -> Result<Vec<u8>, EncodeError> {
    let Notification { code, subcode, data } = message;
    let mut out = frame::begin(Kind::Notification);
    out.extend([*code, *subcode]);
    let room = context.message_bytes_max() - out.len();
    out.extend(data.iter().take(room));
    frame::finish(out, context.message_bytes_max())
}
