//! Codec of the path attributes in an UPDATE (RFC 4271 §4.3). Decoding collects all malformed attributes.

use std::{collections::BTreeSet, net::Ipv4Addr};

use super::{
    Context, Malformation,
    as_path::{self, Width},
    errors::{self, Action, AttributeFault, EXTENDED_LENGTH, OPTIONAL, TRANSITIVE, code},
    multi_protocol::{Reach, Unreach, read_reach, read_unreach},
    open::AS_TRANS,
    reader::Reader,
};
use crate::{
    attributes::{AsPath, Attributes, Community, ExtendedCommunity, LargeCommunity, NextHop, Origin},
    notification::{self, Notification},
};

/// Malformed attribute, with its bytes including the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault<'a> {
    pub(super) fault: AttributeFault,
    bytes: &'a [u8],
}

/// Attribute in an UPDATE whose value has not been decoded yet.
#[derive(Debug, Clone, Copy)]
struct Raw<'a> {
    flags: u8,
    code: u8,
    value: &'a [u8],
    /// Bytes of the attribute including the header, for the data field of a NOTIFICATION.
    bytes: &'a [u8],
}

/// Number of times that an attribute type occurs in an UPDATE.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Occurrences {
    #[default]
    Never,
    Once,
    Again,
}

/// Decoded path attributes of one UPDATE, with the malformed ones.
#[derive(Debug)]
pub(super) struct AttributeList<'a> {
    seen: [Occurrences; 256],
    pub(super) faults: Vec<Fault<'a>>,
    /// True if the UPDATE contains attributes other than `MP_UNREACH_NLRI`.
    pub(super) has_more_than_unreach: bool,
    pub(super) reach: Option<Reach>,
    pub(super) unreach: Option<Unreach>,
    pub(super) next_hop: Option<Ipv4Addr>,
    origin: Option<Origin>,
    as_path: Option<AsPath>,
    as4_path: Option<AsPath>,
    med: Option<u32>,
    local_pref: Option<u32>,
    is_atomic_aggregate: bool,
    aggregator: Option<(u32, Ipv4Addr)>,
    as4_aggregator: Option<(u32, Ipv4Addr)>,
    communities: BTreeSet<Community>,
    originator_id: Option<Ipv4Addr>,
    cluster_list: Vec<Ipv4Addr>,
    extended_communities: BTreeSet<ExtendedCommunity>,
    large_communities: BTreeSet<LargeCommunity>,
    only_to_customer: Option<u32>,
}

/// Decodes path attributes until the end of the field, or until an error after which the next attribute
/// cannot be found.
pub(super) fn read<'a>(field: &'a [u8], context: &Context) -> AttributeList<'a> {
    let mut found = AttributeList::new();
    let mut reader = Reader::new(field);
    while !reader.is_empty() {
        let bytes = reader.rest();
        match next(&mut reader) {
            Ok(raw) => found.take(raw, context),
            Err(code) => {
                found.has_more_than_unreach |= code != code::MP_UNREACH_NLRI;
                found.blame(code, Malformation::Overrun, bytes);
                break;
            }
        }
    }
    found
}

/// Returns the next attribute. The error is the type code of an attribute that extends beyond the field, or 0
/// if the field ends before the type code.
fn next<'a>(reader: &mut Reader<'a>) -> Result<Raw<'a>, u8> {
    let before = reader.rest();
    let (flags, code) = reader.u8().zip(reader.u8()).ok_or(0)?;
    let value = if flags & EXTENDED_LENGTH == 0 { reader.counted_by_u8() } else { reader.counted_by_u16() };
    let value = value.ok_or(code)?;
    Ok(Raw { flags, code, value, bytes: &before[..before.len() - reader.rest().len()] })
}

impl<'a> AttributeList<'a> {
    const fn new() -> Self {
        Self {
            seen: [Occurrences::Never; 256],
            faults: Vec::new(),
            has_more_than_unreach: false,
            reach: None,
            unreach: None,
            next_hop: None,
            origin: None,
            as_path: None,
            as4_path: None,
            med: None,
            local_pref: None,
            is_atomic_aggregate: false,
            aggregator: None,
            as4_aggregator: None,
            communities: BTreeSet::new(),
            originator_id: None,
            cluster_list: Vec::new(),
            extended_communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            only_to_customer: None,
        }
    }

    fn blame(&mut self, attribute: u8, why: Malformation, bytes: &'a [u8]) {
        self.faults.push(Fault { fault: AttributeFault::new(attribute, why), bytes });
    }

    fn take(&mut self, raw: Raw<'a>, context: &Context) {
        let Raw { flags, code, value, bytes } = raw;
        self.has_more_than_unreach |= code != code::MP_UNREACH_NLRI;
        let seen = &mut self.seen[usize::from(code)];
        match *seen {
            Occurrences::Never => *seen = Occurrences::Once,
            Occurrences::Once => {
                *seen = Occurrences::Again;
                return self.blame(code, Malformation::Duplicate, bytes);
            }
            Occurrences::Again => return,
        }
        let Some(rule) = errors::known(code) else {
            if flags & OPTIONAL == 0 {
                self.blame(code, Malformation::Unrecognized, bytes);
            }
            return;
        };
        let checked = if !rule.sender.may_be(context) {
            Err(Malformation::Misplaced)
        } else if flags & (OPTIONAL | TRANSITIVE) != rule.flags {
            Err(Malformation::Flags)
        } else if !rule.length.fits(value.len(), context) {
            Err(Malformation::Length)
        } else {
            self.keep(code, value, context)
        };
        if let Err(why) = checked {
            self.blame(code, why, bytes);
        }
    }

    /// Decodes and stores the value of an attribute whose flags and length are valid.
    fn keep(&mut self, code: u8, value: &[u8], context: &Context) -> Result<(), Malformation> {
        let mut reader = Reader::new(value);
        match code {
            code::ORIGIN => self.origin = Some(origin(value)?),
            code::AS_PATH => {
                let path = as_path::read(value, Width::of(context))?;
                as_path::check(&path, context)?;
                self.as_path = Some(path);
            }
            code::NEXT_HOP => self.next_hop = reader.array::<4>().map(Ipv4Addr::from),
            code::MULTI_EXIT_DISC => self.med = reader.u32(),
            code::LOCAL_PREF => self.local_pref = reader.u32(),
            code::ATOMIC_AGGREGATE => self.is_atomic_aggregate = true,
            code::AGGREGATOR => self.aggregator = Some(aggregator(value, Width::of(context))?),
            code::AS4_AGGREGATOR => self.as4_aggregator = Some(aggregator(value, Width::Four)?),
            code::AS4_PATH => {
                let path = as_path::without_confederations(&as_path::read(value, Width::Four)?);
                as_path::check(&path, context)?;
                self.as4_path = Some(path);
            }
            code::COMMUNITIES => {
                while let Some(community) = reader.u32() {
                    self.communities.insert(Community(community));
                }
            }
            code::ORIGINATOR_ID => self.originator_id = reader.array::<4>().map(Ipv4Addr::from),
            code::CLUSTER_LIST => {
                while let Some(id) = reader.array::<4>() {
                    self.cluster_list.push(id.into());
                }
            }
            code::EXTENDED_COMMUNITIES => {
                while let Some(community) = reader.array() {
                    self.extended_communities.insert(ExtendedCommunity(community));
                }
            }
            code::LARGE_COMMUNITY => {
                while let Some((global, (first, second))) = reader.u32().zip(reader.u32().zip(reader.u32())) {
                    self.large_communities.insert(LargeCommunity([global, first, second]));
                }
            }
            code::ONLY_TO_CUSTOMER => self.only_to_customer = reader.u32(),
            code::MP_REACH_NLRI => self.reach = Some(read_reach(value, context)?),
            code::MP_UNREACH_NLRI => self.unreach = Some(read_unreach(value)?),
            // Validated but not used.
            _ => {}
        }
        Ok(())
    }

    /// Records each missing mandatory attribute (RFC 4271 §5, RFC 4760 §3); a malformed one is not missing.
    /// `has_routes_in_body` is true if the UPDATE announces IPv4 prefixes outside of `MP_REACH_NLRI`. Only
    /// such prefixes require `NEXT_HOP`, which must be a host address.
    pub(super) fn blame_missing(&mut self, has_routes_in_body: bool) {
        let mandatory = [(code::ORIGIN, true), (code::AS_PATH, true), (code::NEXT_HOP, has_routes_in_body)];
        for (code, is_mandatory) in mandatory {
            if is_mandatory && self.seen[usize::from(code)] == Occurrences::Never {
                self.blame(code, Malformation::Missing, &[]);
            }
        }
        // A next hop that is not a host address makes the routes unusable (RFC 4271 §6.3); without IPv4
        // routes in the body it is irrelevant.
        if has_routes_in_body && self.next_hop.is_some_and(|address| !is_host(address)) {
            self.blame(code::NEXT_HOP, Malformation::Value, &[]);
        }
    }

    /// Returns the first malformed attribute whose action (RFC 7606) is `least` or stronger.
    pub(super) fn worst(&self, least: Action) -> Option<&Fault<'a>> {
        self.faults.iter().find(|fault| fault.fault.action >= least)
    }

    /// Returns the attributes of the announced routes, or `None` if a mandatory attribute is missing or
    /// malformed.
    pub(super) fn attributes(self, next_hop: NextHop) -> Option<Attributes> {
        // If a 2-octet speaker has aggregated the route, older 4-octet attributes are obsolete (RFC 6793
        // §4.2.3).
        let is_aggregated_anew = self.as4_aggregator.is_some()
            && self.aggregator.is_some_and(|(asn, _)| asn != u32::from(AS_TRANS));
        let (as4_path, as4_aggregator) =
            if is_aggregated_anew { (None, None) } else { (self.as4_path, self.as4_aggregator) };
        let as_path = match (self.as_path?, as4_path) {
            (two, Some(four)) => as_path::merge(two, four),
            (path, None) => path,
        };
        Some(Attributes {
            origin: self.origin?,
            as_path,
            next_hop,
            med: self.med,
            local_pref: self.local_pref,
            is_atomic_aggregate: self.is_atomic_aggregate,
            aggregator: self.aggregator.map(|aggregator| as4_aggregator.unwrap_or(aggregator)),
            communities: self.communities,
            originator_id: self.originator_id,
            cluster_list: self.cluster_list,
            extended_communities: self.extended_communities,
            large_communities: self.large_communities,
            only_to_customer: self.only_to_customer,
        })
    }
}

impl Fault<'_> {
    /// Returns the NOTIFICATION for a session reset. The data field contains the malformed attribute, or the type
    /// code of a missing one.
    pub(super) fn notification(&self) -> Notification {
        let AttributeFault { attribute, action: _, why } = self.fault;
        // Duplicate and overrun concern the list, not one attribute (RFC 4271 §6.3).
        let data = if why == Malformation::Missing {
            vec![attribute]
        } else if matches!(why, Malformation::Duplicate | Malformation::Overrun) {
            Vec::new()
        } else {
            self.bytes.into()
        };
        Notification { code: notification::code::UPDATE, subcode: errors::subcode(attribute, why), data }
    }
}

fn origin(value: &[u8]) -> Result<Origin, Malformation> {
    match value {
        [0] => Ok(Origin::Igp),
        [1] => Ok(Origin::Egp),
        [2] => Ok(Origin::Incomplete),
        _ => Err(Malformation::Value),
    }
}

fn aggregator(value: &[u8], width: Width) -> Result<(u32, Ipv4Addr), Malformation> {
    let mut reader = Reader::new(value);
    let asn = width.read(&mut reader).ok_or(Malformation::Length)?;
    let address = reader.array::<4>().map(Ipv4Addr::from).ok_or(Malformation::Length)?;
    if asn == 0 { Err(Malformation::AsZero) } else { Ok((asn, address)) }
}

fn is_host(address: Ipv4Addr) -> bool {
    // 0.0.0.0/8, multicast and reserved addresses.
    !matches!(address.octets()[0], 0 | 224..=255)
}

/// Writes one attribute: flags, type code, length, and the value that `write` appends.
pub(super) fn write_one(out: &mut Vec<u8>, flags: u8, code: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend([flags, code, 0]);
    let flags_at = out.len() - 3;
    let value_at = out.len();
    write(out);
    let length = out.len() - value_at;
    if let Ok(length) = u8::try_from(length) {
        out[value_at - 1] = length;
        return;
    }
    // A value of more than 65,535 bytes fits into no message anyway, so the length field is irrelevant.
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    out[flags_at] |= EXTENDED_LENGTH;
    out[value_at - 1] = high;
    out.insert(value_at, low);
}

/// Writes the attributes of a route in the order of their type codes, except for `MP_REACH_NLRI`.
pub(super) fn write(
    out: &mut Vec<u8>,
    attributes: &Attributes,
    next_hop: Option<Ipv4Addr>,
    context: &Context,
) {
    let Attributes {
        origin,
        as_path,
        next_hop: _,
        med,
        local_pref,
        is_atomic_aggregate,
        aggregator,
        communities,
        originator_id,
        cluster_list,
        extended_communities,
        large_communities,
        only_to_customer,
    } = attributes;
    let width = Width::of(context);
    let mut put = |code: u8, value: &dyn Fn(&mut Vec<u8>)| {
        let flags = errors::known(code).map_or(OPTIONAL | TRANSITIVE, |rule| rule.flags);
        write_one(out, flags, code, value);
    };
    put(code::ORIGIN, &|out| out.push(origin_byte(*origin)));
    put(code::AS_PATH, &|out| as_path::write(out, as_path, width));
    if let Some(address) = next_hop {
        put(code::NEXT_HOP, &|out| out.extend(address.octets()));
    }
    if let Some(med) = med {
        put(code::MULTI_EXIT_DISC, &|out| out.extend(med.to_be_bytes()));
    }
    if let Some(preference) = local_pref
        && !context.is_external
    {
        put(code::LOCAL_PREF, &|out| out.extend(preference.to_be_bytes()));
    }
    if *is_atomic_aggregate {
        put(code::ATOMIC_AGGREGATE, &|_| {});
    }
    if let Some(aggregator) = aggregator {
        put(code::AGGREGATOR, &|out| write_aggregator(out, *aggregator, width));
    }
    if !communities.is_empty() {
        put(code::COMMUNITIES, &|out| {
            out.extend(communities.iter().flat_map(|Community(word)| word.to_be_bytes()))
        });
    }
    if let Some(id) = originator_id
        && !context.is_external
    {
        put(code::ORIGINATOR_ID, &|out| out.extend(id.octets()));
    }
    if !cluster_list.is_empty() && !context.is_external {
        put(code::CLUSTER_LIST, &|out| out.extend(cluster_list.iter().flat_map(Ipv4Addr::octets)));
    }
    if !extended_communities.is_empty() {
        put(code::EXTENDED_COMMUNITIES, &|out| {
            out.extend(extended_communities.iter().flat_map(|ExtendedCommunity(bytes)| bytes));
        });
    }
    if width == Width::Two {
        if let Some(path) = as_path::beside_two_octets(as_path) {
            put(code::AS4_PATH, &|out| as_path::write(out, &path, Width::Four));
        }
        if let Some((asn, address)) = aggregator
            && u16::try_from(*asn).is_err()
        {
            put(code::AS4_AGGREGATOR, &|out| write_aggregator(out, (*asn, *address), Width::Four));
        }
    }
    if !large_communities.is_empty() {
        put(code::LARGE_COMMUNITY, &|out| {
            let words = large_communities.iter().flat_map(|LargeCommunity(words)| words);
            out.extend(words.flat_map(|word| word.to_be_bytes()));
        });
    }
    if let Some(asn) = only_to_customer {
        put(code::ONLY_TO_CUSTOMER, &|out| out.extend(asn.to_be_bytes()));
    }
}

fn write_aggregator(out: &mut Vec<u8>, (asn, address): (u32, Ipv4Addr), width: Width) {
    width.write(out, asn);
    out.extend(address.octets());
}

const fn origin_byte(origin: Origin) -> u8 {
    match origin {
        Origin::Igp => 0,
        Origin::Egp => 1,
        Origin::Incomplete => 2,
    }
}
