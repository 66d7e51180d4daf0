//! User data of the backend's sets: type information from which `nft list` derives the types of a key.
//!
//! The random number of a target slot has no type name that `nft` could use in a `type` line. With user data
//! in this format, `nft` prints and parses the type as `typeof … numgen random mod 2`, for any modulus. The
//! kernel stores the user data without interpreting it.

use model::primitives::net::IpFamily;

use super::schema::{LookupType, SetId, SetRole};

// Tags and numbers of the user data written by the `nft` command (libnftnl `udata.h`, nftables
// `expression.h`).
const KEY_BYTE_ORDER: u8 = 0;
const KEY_TYPEOF: u8 = 3;
const DATA_TYPEOF: u8 = 4;
const HOST_ENDIAN: u32 = 1;
const EXPRESSION: u8 = 0;
const DETAILS: u8 = 1;
const EXPRESSION_PAYLOAD: u32 = 7;
const EXPRESSION_META: u32 = 9;
const EXPRESSION_CONCAT: u32 = 13;
const EXPRESSION_NUMGEN: u32 = 23;
const HEADER_TRANSPORT: u32 = 11;
const HEADER_IPV4: u32 = 12;
const HEADER_IPV6: u32 = 13;

/// Returns the user data of a map whose key contains a target slot or whose value is a mark; `None` for other
/// sets, which need none.
#[must_use]
pub(super) fn key_and_value(set: SetId) -> Option<Vec<u8>> {
    let address = match set.family {
        IpFamily::V4 => payload(HEADER_IPV4, 12),
        IpFamily::V6 => payload(HEADER_IPV6, 9),
    };
    let protocol = expression(EXPRESSION_META, &number(0, 16));
    let port = payload(HEADER_TRANSPORT, 2);
    let slot = expression(EXPRESSION_NUMGEN, &[number(0, 1), number(1, 2), number(2, 0)].concat());
    let source = match set.family {
        IpFamily::V4 => payload(HEADER_IPV4, 11),
        IpFamily::V6 => payload(HEADER_IPV6, 8),
    };
    // The word of a port range and the id of a target have no type either; a mark has the same size.
    let mark = expression(EXPRESSION_META, &number(0, 3));
    let frontend = |place| match place {
        LookupType::Address => vec![&address, &protocol, &port],
        LookupType::Range => vec![&address, &protocol, &mark],
        LookupType::NodePort => vec![&protocol, &port],
    };
    let target = concat(&[&address, &port]);
    let (key, data) = match set.role {
        // Without user data, `nft` prints and parses a mark in the opposite byte order.
        SetRole::Dispatch(place) | SetRole::DispatchFrom(place, _) | SetRole::AffinityGroups(place) => {
            (frontend(place), mark.clone())
        }
        SetRole::Endpoints(place) => ([frontend(place), vec![&slot]].concat(), target),
        SetRole::Affinity => (vec![&mark, &source], mark.clone()),
        SetRole::AffinitySlots(place) => ([frontend(place), vec![&slot]].concat(), mark.clone()),
        SetRole::AffinityTargets(place, _) => ([frontend(place), vec![&mark]].concat(), target),
        SetRole::Chains(_) | SetRole::ChainsFrom(_) => return Some(number(KEY_BYTE_ORDER, HOST_ENDIAN)),
        SetRole::AllowedSources(_)
        | SetRole::Ranges
        | SetRole::Failover
        | SetRole::VirtualAddresses
        | SetRole::Hairpins
        | SetRole::Networks(_) => return None,
    };
    let key = key.into_iter().map(Vec::as_slice).collect::<Vec<_>>();
    Some([field(KEY_TYPEOF, &concat(&key)), field(DATA_TYPEOF, &data)].concat())
}

/// Encodes one field: tag, length, bytes. All fields of the backend are shorter than 256 bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("the notes are fixed and short");
    [&[tag, length], bytes].concat()
}

fn number(tag: u8, number: u32) -> Vec<u8> {
    field(tag, &number.to_ne_bytes())
}

fn expression(kind: u32, details: &[u8]) -> Vec<u8> {
    [number(EXPRESSION, kind), field(DETAILS, details)].concat()
}

fn payload(header: u32, part: u32) -> Vec<u8> {
    expression(EXPRESSION_PAYLOAD, &[number(0, header), number(1, part)].concat())
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    let parts = (0..).zip(parts).map(|(tag, part)| field(tag, part));
    expression(EXPRESSION_CONCAT, &parts.collect::<Vec<_>>().concat())
}
