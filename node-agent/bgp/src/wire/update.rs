//! Codec of UPDATE (RFC 4271 §4.3) with error handling (RFC 7606).

use ipnet::IpNet;

use super::{
    AttributeFault, Context, EncodeError, HEADER_BYTES,
    attributes::{self, Fault},
    errors::{Action, EXTENDED_LENGTH, OPTIONAL, code},
    frame::{self, Kind},
    multi_protocol::{Reach, Unreach, write_reach, write_unreach},
    nlri,
    reader::Reader,
    writer::counted_by_u16,
};
use crate::{
    attributes::{Attributes, NextHop},
    family::Family,
    message::Update,
    notification::{self, Notification},
};

/// Length in bytes of the message header and of the two length fields for withdrawn routes and attributes.
const FIXED_BYTES: usize = HEADER_BYTES + 4;
/// Length in bytes of an attribute header with a two-octet length, followed by AFI and SAFI.
const MULTI_PROTOCOL_BYTES: usize = 4 + 3;

const fn error(subcode: u8) -> Notification {
    Notification::new(notification::code::UPDATE, subcode)
}

/// Decodes the body of an UPDATE. The error is the NOTIFICATION for a session reset.
pub(super) fn decode(body: &[u8], context: &Context) -> Result<(Update, Vec<AttributeFault>), Notification> {
    let mut reader = Reader::new(body);
    // The lists must not exceed the message (RFC 4271 §6.3, RFC 7606 §3 b).
    let bad_lists = || error(notification::update::ATTRIBUTE_LIST);
    let withdrawn_field = reader.counted_by_u16().ok_or_else(bad_lists)?;
    let attributes_field = reader.counted_by_u16().ok_or_else(bad_lists)?;
    // Treat-as-withdraw requires all prefixes (RFC 7606 §3 i and j).
    let read_ipv4 = |field| nlri::read(field, Family::Ipv4Unicast);
    let bad_prefixes = |nlri::NlriError| error(notification::update::NETWORK_FIELD);
    let withdrawn = read_ipv4(withdrawn_field).map_err(bad_prefixes)?;
    let announced = read_ipv4(reader.rest()).map_err(bad_prefixes)?;
    let found = attributes::read(attributes_field, context);
    if let Some(fault) = found.worst(Action::ResetSession) {
        return Err(fault.notification());
    }
    if withdrawn.is_empty()
        && announced.is_empty()
        && let Some(family) = end_of_rib(attributes_field, &found)
    {
        return Ok((Update { end_of_rib: Some(family), ..Update::default() }, Vec::new()));
    }
    routes(withdrawn, announced, found)
}

/// Returns the family of an End-of-RIB marker (RFC 4724 §2), or `None` if the message is not one. The body of
/// the message must contain no prefixes.
fn end_of_rib(attributes_field: &[u8], found: &attributes::AttributeList<'_>) -> Option<Family> {
    match &found.unreach {
        None => attributes_field.is_empty().then_some(Family::Ipv4Unicast),
        Some(Unreach::Ours { family, prefixes }) => {
            let is_all = found.faults.is_empty() && !found.has_more_than_unreach;
            (is_all && prefixes.is_empty()).then_some(*family)
        }
        Some(Unreach::Foreign(..)) => None,
    }
}

fn routes(
    mut withdrawn: Vec<IpNet>,
    mut announced: Vec<IpNet>,
    mut found: attributes::AttributeList<'_>,
) -> Result<(Update, Vec<AttributeFault>), Notification> {
    let has_routes_in_body = !announced.is_empty();
    if has_routes_in_body || found.reach.as_ref().is_some_and(|reach| !reach.is_empty()) {
        found.blame_missing(has_routes_in_body);
    } else if found.has_more_than_unreach
        && let Some(fault) = found.worst(Action::TreatAsWithdraw)
    {
        // A malformed message without routes may have lost its prefixes (RFC 7606 §5.2).
        return Err(fault.notification());
    }
    let mut update = Update::default();
    match found.unreach.take() {
        Some(Unreach::Ours { prefixes, .. }) => withdrawn.extend(prefixes),
        Some(Unreach::Foreign(family, count)) => count_foreign(&mut update, family, count),
        None => {}
    }
    let mut next_hop = found.next_hop.filter(|_| has_routes_in_body).map(NextHop::V4);
    match found.reach.take() {
        Some(Reach::Ours { next_hop: of_attribute, prefixes }) => {
            announced.extend(prefixes);
            next_hop = next_hop.or(Some(of_attribute));
        }
        Some(Reach::Foreign(family, count)) => count_foreign(&mut update, family, count),
        None => {}
    }
    let is_withdrawn = found.worst(Action::TreatAsWithdraw).is_some();
    let faults = found.faults.iter().map(|Fault { fault, .. }| *fault).collect();
    let attributes = next_hop.filter(|_| !is_withdrawn).and_then(|next_hop| found.attributes(next_hop));
    if attributes.is_none() || announced.is_empty() {
        withdrawn.append(&mut announced);
    } else {
        update.attributes = attributes;
    }
    Ok((Update { withdrawn, announced, ..update }, faults))
}

fn count_foreign(update: &mut Update, family: (u16, u8), count: usize) {
    if count > 0 {
        *update.foreign.entry(family).or_default() += count;
    }
}

/// Encodes an UPDATE that contains one kind of routes (RFC 7606 §5.1): announced or withdrawn, of one family.
pub(super) fn encode(update: &Update, context: &Context) -> Result<Vec<u8>, EncodeError> {
    let Update { withdrawn, announced, attributes, end_of_rib, foreign: _ } = update;
    let mut out = frame::begin(Kind::Update);
    match (withdrawn.as_slice(), announced.as_slice(), end_of_rib) {
        ([], [], Some(Family::Ipv4Unicast)) => out.extend([0; 4]),
        ([], [], Some(Family::Ipv6Unicast)) => write_end_of_rib(&mut out),
        ([first, ..], [], None) => write_withdrawn(&mut out, Family::of(first), withdrawn)?,
        ([], [first, ..], None) => {
            let attributes = attributes.as_ref().ok_or(EncodeError::NoAttributes)?;
            write_announced(&mut out, Family::of(first), announced, attributes, context)?;
        }
        ([], [], None) => return Err(EncodeError::Empty),
        _ => return Err(EncodeError::Mixed),
    }
    frame::finish(out, context.message_bytes_max())
}

/// Writes the End-of-RIB marker for IPv6 in its shortest form, which all implementations accept.
fn write_end_of_rib(out: &mut Vec<u8>) {
    out.extend([0, 0, 0, 6]);
    attributes::write_one(out, OPTIONAL, code::MP_UNREACH_NLRI, |out| {
        write_unreach(out, Family::Ipv6Unicast, &[])
    });
}

fn write_withdrawn(out: &mut Vec<u8>, family: Family, prefixes: &[IpNet]) -> Result<(), EncodeError> {
    same_family(family, prefixes)?;
    match family {
        Family::Ipv4Unicast => {
            counted_by_u16(out, |out| prefixes.iter().for_each(|prefix| nlri::write(out, prefix)))?;
            out.extend([0; 2]);
            Ok(())
        }
        Family::Ipv6Unicast => {
            out.extend([0; 2]);
            counted_by_u16(out, |out| {
                write_multi_protocol(out, code::MP_UNREACH_NLRI, |out| write_unreach(out, family, prefixes));
            })
        }
    }
}

fn write_announced(
    out: &mut Vec<u8>,
    family: Family,
    prefixes: &[IpNet],
    attributes: &Attributes,
    context: &Context,
) -> Result<(), EncodeError> {
    same_family(family, prefixes)?;
    out.extend([0; 2]);
    match (family, attributes.next_hop) {
        (Family::Ipv4Unicast, NextHop::V4(address)) => {
            counted_by_u16(out, |out| attributes::write(out, attributes, Some(address), context))?;
            prefixes.iter().for_each(|prefix| nlri::write(out, prefix));
            Ok(())
        }
        (Family::Ipv4Unicast, NextHop::V6 { .. }) if !context.extended_next_hop => Err(EncodeError::NextHop),
        // First in the list, so that the routes are found even if later attributes are malformed (RFC 7606
        // §5.1).
        (_, next_hop) => counted_by_u16(out, |out| {
            write_multi_protocol(out, code::MP_REACH_NLRI, |out| {
                write_reach(out, family, next_hop, prefixes)
            });
            attributes::write(out, attributes, None, context);
        }),
    }
}

fn same_family(family: Family, prefixes: &[IpNet]) -> Result<(), EncodeError> {
    if prefixes.iter().all(|prefix| Family::of(prefix) == family) { Ok(()) } else { Err(EncodeError::Mixed) }
}

/// Writes a multiprotocol attribute, always with a two-octet length, so that the size of the header does not
/// depend on the prefixes.
fn write_multi_protocol(out: &mut Vec<u8>, code: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend([OPTIONAL | EXTENDED_LENGTH, code, 0, 0]);
    let value_at = out.len();
    write(out);
    let length = u16::try_from(out.len() - value_at).unwrap_or(u16::MAX);
    out[value_at - 2..value_at].copy_from_slice(&length.to_be_bytes());
}

/// Returns the length in bytes of an UPDATE that announces prefixes, without the prefixes.
pub(super) fn overhead(attributes: &Attributes, family: Family, context: &Context) -> usize {
    let mut out = Vec::new();
    match (family, attributes.next_hop) {
        (Family::Ipv4Unicast, NextHop::V4(address)) => {
            attributes::write(&mut out, attributes, Some(address), context)
        }
        (_, next_hop) => {
            write_multi_protocol(&mut out, code::MP_REACH_NLRI, |out| {
                write_reach(out, family, next_hop, &[])
            });
            attributes::write(&mut out, attributes, None, context);
        }
    }
    FIXED_BYTES + out.len()
}

/// Returns the length in bytes of an UPDATE that withdraws prefixes, without the prefixes.
pub(super) const fn withdrawal_overhead(family: Family) -> usize {
    match family {
        Family::Ipv4Unicast => FIXED_BYTES,
        Family::Ipv6Unicast => FIXED_BYTES + MULTI_PROTOCOL_BYTES,
    }
}
