//! Codec of ROUTE-REFRESH (RFC 2918) and its subtypes (RFC 7313).

use super::{
    EncodeError, HEADER_BYTES,
    frame::{self, Kind},
    reader::Reader,
};
use crate::{
    family::Family,
    message::{Refresh, RefreshKind},
    notification::{Notification, code, refresh},
};

/// Decodes the body of a ROUTE-REFRESH; `frame` is the whole message.
///
/// Bytes after the fields of a request are ignored (RFC 5291 filters, which are never negotiated).
pub(super) fn decode(body: &[u8], frame: &[u8]) -> Result<Refresh, Notification> {
    let mut reader = Reader::new(body);
    let fields = reader.u16().zip(reader.u8()).zip(reader.u8());
    // The data of the error is the whole message (RFC 7313 §5).
    let bad_length =
        || Notification { data: frame.into(), ..Notification::new(code::REFRESH, refresh::BAD_LENGTH) };
    let ((afi, subtype), safi) = fields.ok_or_else(bad_length)?;
    let kind = match subtype {
        0 => RefreshKind::Request,
        1 => RefreshKind::Begin,
        2 => RefreshKind::End,
        other => RefreshKind::Unknown(other),
    };
    if matches!(kind, RefreshKind::Begin | RefreshKind::End) && !reader.is_empty() {
        return Err(bad_length());
    }
    Ok(Refresh { family: Family::parse(afi, safi), kind })
}

/// Encodes a ROUTE-REFRESH. If the family is `None`, the undefined AFI 0 is written.
pub(super) fn encode(message: Refresh) -> Result<Vec<u8>, EncodeError> {
    let Refresh { family, kind } = message;
    let subtype = match kind {
        RefreshKind::Request => 0,
        RefreshKind::Begin => 1,
        RefreshKind::End => 2,
        RefreshKind::Unknown(other) => other,
    };
    let (afi, safi) = family.map_or((0, 0), |family| (family.afi(), family.safi()));
    let mut out = frame::begin(Kind::Refresh);
    out.extend(afi.to_be_bytes());
    out.extend([subtype, safi]);
    frame::finish(out, HEADER_BYTES + 4)
}
