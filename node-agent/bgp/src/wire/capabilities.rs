//! Codec of capabilities (RFC 5492 §4): a sequence of code, length and value.
//!
//! A malformed or unknown capability never ends a session; its bytes are kept unchanged.

use std::collections::BTreeMap;

use super::{EncodeError, reader::Reader, writer::counted_by_u8};
use crate::{
    capability::{Capability, GracefulRestart, Role},
    family::Family,
    notification::text::harmless,
};

const MULTI_PROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const EXTENDED_NEXT_HOP: u8 = 5;
const EXTENDED_MESSAGE: u8 = 6;
const ROLE: u8 = 9;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;
const ENHANCED_ROUTE_REFRESH: u8 = 70;
const HOST_NAME: u8 = 73;

/// Restart State bit (R) in the first field of Graceful Restart (RFC 4724 §3).
const RESTARTED: u16 = 0x8000;
const NOTIFICATION: u16 = 0x4000;
const RESTART_TIME: u16 = 0x0fff;
/// F bit of a family in Graceful Restart (RFC 4724 §3): forwarding state was preserved.
const FORWARDING: u8 = 0x80;

/// AFI of IPv6 as the family of the next hop in Extended Next Hop Encoding (RFC 8950 §4).
const IPV6: u16 = 2;
/// Maximum length of host name and of domain name in the FQDN capability, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Decodes a list of capabilities, or returns `None` if the last one extends beyond the bytes.
#[must_use]
pub fn decode_capabilities(bytes: &[u8]) -> Option<Vec<Capability>> {
    let mut reader = Reader::new(bytes);
    let mut capabilities = Vec::new();
    while !reader.is_empty() {
        let code = reader.u8()?;
        let value = reader.counted_by_u8()?;
        let capability = read(code, Reader::new(value));
        capabilities.push(capability.unwrap_or_else(|| Capability::Unknown { code, value: value.into() }));
    }
    Some(capabilities)
}

/// Decodes a capability, or returns `None` if its code is unknown or its length is invalid.
fn read(code: u8, mut value: Reader<'_>) -> Option<Capability> {
    let capability = match code {
        MULTI_PROTOCOL => {
            let (afi, _reserved, safi) = (value.u16()?, value.u8()?, value.u8()?);
            Capability::MultiProtocol(Family::parse(afi, safi)?)
        }
        ROUTE_REFRESH => Capability::RouteRefresh,
        EXTENDED_NEXT_HOP => return extended_next_hop(value),
        EXTENDED_MESSAGE => Capability::ExtendedMessage,
        ROLE => Capability::Role(role(value.u8()?)?),
        GRACEFUL_RESTART => return graceful_restart(value),
        FOUR_OCTET_AS => Capability::FourOctetAs(value.u32()?),
        ENHANCED_ROUTE_REFRESH => Capability::EnhancedRouteRefresh,
        HOST_NAME => {
            let (host, domain) = (name(value.counted_by_u8()?)?, name(value.counted_by_u8()?)?);
            Capability::HostName { host, domain }
        }
        _ => return None,
    };
    value.is_empty().then_some(capability)
}

/// Decodes Extended Next Hop Encoding. Entries with an unsupported family or with a next hop other than IPv6
/// are ignored. Returns `None` if the value is malformed, or if it contains only ignored entries.
fn extended_next_hop(mut value: Reader<'_>) -> Option<Capability> {
    let was_empty = value.is_empty();
    let mut families = Vec::new();
    while !value.is_empty() {
        let (afi, safi, next_hop_afi) = (value.u16()?, value.u16()?, value.u16()?);
        let family = u8::try_from(safi).ok().and_then(|safi| Family::parse(afi, safi));
        families.extend(family.filter(|_| next_hop_afi == IPV6));
    }
    (was_empty || !families.is_empty()).then_some(Capability::ExtendedNextHop(families))
}

/// Decodes Graceful Restart. Unsupported families are ignored.
fn graceful_restart(mut value: Reader<'_>) -> Option<Capability> {
    let head = value.u16()?;
    let mut families = BTreeMap::new();
    while !value.is_empty() {
        let (afi, safi, flags) = (value.u16()?, value.u8()?, value.u8()?);
        families.extend(Family::parse(afi, safi).map(|family| (family, flags & FORWARDING != 0)));
    }
    Some(Capability::GracefulRestart(GracefulRestart {
        is_restarted: head & RESTARTED != 0,
        notification: head & NOTIFICATION != 0,
        restart_time: head & RESTART_TIME,
        families,
    }))
}

const fn role(byte: u8) -> Option<Role> {
    match byte {
        0 => Some(Role::Provider),
        1 => Some(Role::RouteServer),
        2 => Some(Role::RouteServerClient),
        3 => Some(Role::Customer),
        4 => Some(Role::Peer),
        _ => None,
    }
}

const fn role_byte(role: Role) -> u8 {
    match role {
        Role::Provider => 0,
        Role::RouteServer => 1,
        Role::RouteServerClient => 2,
        Role::Customer => 3,
        Role::Peer => 4,
    }
}

fn name(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= NAME_BYTES_MAX)?;
    Some(text.chars().map(harmless).collect())
}

/// Encodes a list of capabilities, for OPEN or for the data field of an "Unsupported Capability" error (RFC
/// 5492 §5).
///
/// # Errors
/// Returns [`EncodeError`] if a value is longer than 255 bytes.
pub fn encode_capabilities(capabilities: &[Capability]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    for capability in capabilities {
        out.push(code(capability));
        counted_by_u8(&mut out, |out| write(out, capability))?;
    }
    Ok(out)
}

const fn code(capability: &Capability) -> u8 {
    match capability {
        Capability::MultiProtocol(_) => MULTI_PROTOCOL,
        Capability::RouteRefresh => ROUTE_REFRESH,
        Capability::ExtendedNextHop(_) => EXTENDED_NEXT_HOP,
        Capability::ExtendedMessage => EXTENDED_MESSAGE,
        Capability::Role(_) => ROLE,
        Capability::GracefulRestart(_) => GRACEFUL_RESTART,
        Capability::FourOctetAs(_) => FOUR_OCTET_AS,
        Capability::EnhancedRouteRefresh => ENHANCED_ROUTE_REFRESH,
        Capability::HostName { .. } => HOST_NAME,
        Capability::Unknown { code, .. } => *code,
    }
}

fn write(out: &mut Vec<u8>, capability: &Capability) {
    match capability {
        Capability::MultiProtocol(family) => {
            out.extend(family.afi().to_be_bytes());
            out.extend([0, family.safi()]);
        }
        Capability::RouteRefresh | Capability::ExtendedMessage | Capability::EnhancedRouteRefresh => {}
        Capability::ExtendedNextHop(families) => {
            for family in families {
                let words = [family.afi(), u16::from(family.safi()), IPV6];
                out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
            }
        }
        Capability::Role(role) => out.push(role_byte(*role)),
        Capability::GracefulRestart(restart) => write_graceful_restart(out, restart),
        Capability::FourOctetAs(asn) => out.extend(asn.to_be_bytes()),
        Capability::HostName { host, domain } => {
            write_name(out, host);
            write_name(out, domain);
        }
        Capability::Unknown { value, .. } => out.extend(value),
    }
}

fn write_graceful_restart(out: &mut Vec<u8>, restart: &GracefulRestart) {
    let GracefulRestart { is_restarted, notification, restart_time, families } = restart;
    let flag = |set: bool, bit: u16| if set { bit } else { 0 };
    let time = (*restart_time).min(RESTART_TIME);
    let head = flag(*is_restarted, RESTARTED) | flag(*notification, NOTIFICATION) | time;
    out.extend(head.to_be_bytes());
    for (family, forwards) in families {
        out.extend(family.afi().to_be_bytes());
        out.extend([family.safi(), if *forwards { FORWARDING } else { 0 }]);
    }
}

/// Writes the length of a name and the name, truncated at a character boundary to [`NAME_BYTES_MAX`] bytes.
fn write_name(out: &mut Vec<u8>, name: &str) {
    let kept = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    out.push(u8::try_from(kept.len()).expect("cut to at most 64 bytes"));
    out.extend(kept.bytes());
}
