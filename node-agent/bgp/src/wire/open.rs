//! Codec of OPEN (RFC 4271 §4.2) with optional parameters in both formats (RFC 5492, RFC 9072), and its
//! errors (RFC 4271 §6.2).

use std::net::Ipv4Addr;

use super::{
    EncodeError, MESSAGE_BYTES_MAX,
    capabilities::{decode_capabilities, encode_capabilities},
    frame::{self, Kind},
    reader::Reader,
};
use crate::{
    capability::Capability,
    message::Open,
    notification::{Notification, code, open},
};

const VERSION: u8 = 4;
/// Placeholder for an AS number that does not fit into two octets (RFC 6793 §9).
pub(super) const AS_TRANS: u16 = 23_456;
/// Parameter type of the Capabilities Optional Parameter (RFC 5492 §4).
const CAPABILITIES: u8 = 2;
/// Value of the length field and of the first parameter type that marks extended optional parameters, whose
/// lengths have two octets (RFC 9072 §2).
const EXTENDED: u8 = 255;
/// Maximum total length in bytes of capabilities that fit into one parameter with a one-octet length.
const SHORT_CAPABILITIES_BYTES_MAX: usize = EXTENDED as usize - 1 - 2;

const fn error(subcode: u8) -> Notification {
    Notification::new(code::OPEN, subcode)
}

/// Decodes the body of an OPEN. The error is the NOTIFICATION to send.
pub(super) fn decode(body: &[u8]) -> Result<Open, Notification> {
    let mut reader = Reader::new(body);
    let unspecific = || error(open::UNSPECIFIC);
    let version = reader.u8().ok_or_else(unspecific)?;
    if version != VERSION {
        // The data is the only supported version (RFC 4271 §6.2).
        return Err(Notification { data: u16::from(VERSION).to_be_bytes().into(), ..error(open::VERSION) });
    }
    let as_field = reader.u16().ok_or_else(unspecific)?;
    let hold_time = reader.u16().ok_or_else(unspecific)?;
    let router_id = reader.array::<4>().map(Ipv4Addr::from).ok_or_else(unspecific)?;
    let capabilities = parameters(reader)?;
    let four_octet_as = capabilities.iter().rev().find_map(|capability| match capability {
        Capability::FourOctetAs(asn) => Some(*asn),
        Capability::MultiProtocol(_)
        | Capability::RouteRefresh
        | Capability::ExtendedNextHop(_)
        | Capability::ExtendedMessage
        | Capability::Role(_)
        | Capability::GracefulRestart(_)
        | Capability::EnhancedRouteRefresh
        | Capability::HostName { .. }
        | Capability::Unknown { .. } => None,
    });
    let asn = four_octet_as.unwrap_or_else(|| as_field.into());
    // RFC 7607 §2.
    if asn == 0 || as_field == 0 {
        return Err(error(open::BAD_PEER_AS));
    }
    if matches!(hold_time, 1 | 2) {
        return Err(error(open::HOLD_TIME));
    }
    // RFC 6286 §2.2.
    if router_id.is_unspecified() {
        return Err(error(open::BAD_IDENTIFIER));
    }
    Ok(Open { asn, hold_time, router_id, capabilities })
}

fn parameters(mut reader: Reader<'_>) -> Result<Vec<Capability>, Notification> {
    let unspecific = || error(open::UNSPECIFIC);
    let length = reader.u8().ok_or_else(unspecific)?;
    let mut ahead = reader;
    // In the extended format the one-octet length is irrelevant, except that it must not be 0 (RFC 9072 §2).
    let is_extended = length != 0 && ahead.u8() == Some(EXTENDED);
    let field = if is_extended { ahead.counted_by_u16() } else { reader.bytes(length.into()) };
    let field = field.ok_or_else(unspecific)?;
    let behind = if is_extended { ahead } else { reader };
    if !behind.is_empty() {
        return Err(unspecific());
    }
    let mut parameters = Reader::new(field);
    let mut capabilities = Vec::new();
    while !parameters.is_empty() {
        let kind = parameters.u8().ok_or_else(unspecific)?;
        let value = if is_extended { parameters.counted_by_u16() } else { parameters.counted_by_u8() };
        let value = value.ok_or_else(unspecific)?;
        if kind != CAPABILITIES {
            return Err(error(open::OPTIONAL_PARAMETER));
        }
        capabilities.extend(decode_capabilities(value).ok_or_else(unspecific)?);
    }
    Ok(capabilities)
}

/// Encodes an OPEN. All capabilities are in one parameter, which has the extended format if necessary.
pub(super) fn encode(message: &Open) -> Result<Vec<u8>, EncodeError> {
    let Open { asn, hold_time, router_id, capabilities } = message;
    let mut out = frame::begin(Kind::Open);
    out.push(VERSION);
    out.extend(u16::try_from(*asn).unwrap_or(AS_TRANS).to_be_bytes());
    out.extend(hold_time.to_be_bytes());
    out.extend(router_id.octets());
    let capabilities = encode_capabilities(capabilities)?;
    let length =
        u8::try_from(capabilities.len()).ok().filter(|_| capabilities.len() <= SHORT_CAPABILITIES_BYTES_MAX);
    match length {
        Some(0) => out.push(0),
        Some(length) => out.extend([length + 2, CAPABILITIES, length]),
        None => {
            let bytes = out.len() + 7 + capabilities.len();
            let too_long = |_| EncodeError::TooLong { bytes, bytes_max: MESSAGE_BYTES_MAX };
            let all = u16::try_from(capabilities.len() + 3).map_err(too_long)?;
            out.extend([EXTENDED, EXTENDED]);
            out.extend(all.to_be_bytes());
            out.push(CAPABILITIES);
            out.extend((all - 3).to_be_bytes());
        }
    }
    out.extend(capabilities);
    frame::finish(out, MESSAGE_BYTES_MAX)
}
