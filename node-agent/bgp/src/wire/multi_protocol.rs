//! Codec of `MP_REACH_NLRI` and `MP_UNREACH_NLRI` (RFC 4760), with next hops as in RFC 2545 and RFC 8950.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Context, Malformation, nlri, reader::Reader};
use crate::{attributes::NextHop, family::Family};

/// AFI and SAFI of an unsupported address family.
type Foreign = (u16, u8);

/// Content of an `MP_REACH_NLRI`: announced routes of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    Ours {
        next_hop: NextHop,
        prefixes: Vec<IpNet>,
    },
    /// Unsupported family, and number of its announced routes.
    Foreign(Foreign, usize),
}

/// Content of an `MP_UNREACH_NLRI`: withdrawn routes of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreach {
    Ours {
        family: Family,
        prefixes: Vec<IpNet>,
    },
    /// Unsupported family, and number of its withdrawn routes.
    Foreign(Foreign, usize),
}

impl Reach {
    /// Returns true if the attribute contains no routes.
    pub(super) const fn is_empty(&self) -> bool {
        match self {
            Self::Ours { prefixes, .. } => prefixes.is_empty(),
            Self::Foreign(_, count) => *count == 0,
        }
    }
}

pub(super) fn read_reach(value: &[u8], context: &Context) -> Result<Reach, Malformation> {
    let mut reader = Reader::new(value);
    let (afi, safi) = reader.u16().zip(reader.u8()).ok_or(Malformation::Length)?;
    let next_hop = reader.counted_by_u8().ok_or(Malformation::NextHopLength)?;
    // Reserved byte, ignored on receipt (RFC 4760 §3).
    let _reserved = reader.u8().ok_or(Malformation::Length)?;
    let Some(family) = Family::parse(afi, safi) else {
        return Ok(Reach::Foreign((afi, safi), nlri::count_foreign(reader.rest())));
    };
    let next_hop = read_next_hop(next_hop, family, context).ok_or(Malformation::NextHopLength)?;
    let prefixes = nlri::read(reader.rest(), family).map_err(|nlri::NlriError| Malformation::Prefixes)?;
    Ok(Reach::Ours { next_hop, prefixes })
}

fn read_next_hop(bytes: &[u8], family: Family, context: &Context) -> Option<NextHop> {
    let mut reader = Reader::new(bytes);
    if family == Family::Ipv4Unicast && bytes.len() == 4 {
        return Some(NextHop::V4(Ipv4Addr::from(reader.array::<4>()?)));
    }
    if family == Family::Ipv4Unicast && !context.extended_next_hop {
        return None;
    }
    let global = Ipv6Addr::from(reader.array::<16>()?);
    let link_local = if reader.is_empty() { None } else { Some(Ipv6Addr::from(reader.array::<16>()?)) };
    reader.is_empty().then_some(NextHop::V6 { global, link_local })
}

pub(super) fn read_unreach(value: &[u8]) -> Result<Unreach, Malformation> {
    let mut reader = Reader::new(value);
    let (afi, safi) = reader.u16().zip(reader.u8()).ok_or(Malformation::Length)?;
    let Some(family) = Family::parse(afi, safi) else {
        return Ok(Unreach::Foreign((afi, safi), nlri::count_foreign(reader.rest())));
    };
    let prefixes = nlri::read(reader.rest(), family).map_err(|nlri::NlriError| Malformation::Prefixes)?;
    Ok(Unreach::Ours { family, prefixes })
}

/// Encodes the value of an `MP_REACH_NLRI`.
pub(super) fn write_reach(out: &mut Vec<u8>, family: Family, next_hop: NextHop, prefixes: &[IpNet]) {
    write_family(out, family);
    match next_hop {
        NextHop::V4(address) if family == Family::Ipv4Unicast => {
            out.push(4);
            out.extend(address.octets());
        }
        // IPv4-mapped form of an IPv4 next hop for IPv6 routes (RFC 4291 §2.5.5.2).
        NextHop::V4(address) => {
            out.push(16);
            out.extend(address.to_ipv6_mapped().octets());
        }
        NextHop::V6 { global, link_local: None } => {
            out.push(16);
            out.extend(global.octets());
        }
        NextHop::V6 { global, link_local: Some(link_local) } => {
            out.push(32);
            out.extend(global.octets());
            out.extend(link_local.octets());
        }
    }
    out.push(0);
    prefixes.iter().for_each(|prefix| nlri::write(out, prefix));
}

/// Encodes the value of an `MP_UNREACH_NLRI`.
pub(super) fn write_unreach(out: &mut Vec<u8>, family: Family, prefixes: &[IpNet]) {
    write_family(out, family);
    prefixes.iter().for_each(|prefix| nlri::write(out, prefix));
}

fn write_family(out: &mut Vec<u8>, family: Family) {
    out.extend(family.afi().to_be_bytes());
    out.push(family.safi());
}
