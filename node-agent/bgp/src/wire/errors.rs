//! What is done about a malformed UPDATE (RFC 7606): one table, attribute by attribute, and the few rules that hold for all.

use std::fmt;

use super::Context;
use crate::notification::update;

/// What is done, from the mildest to the strongest (RFC 7606 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The attribute is left out; the routes stand.
    Discard,
    /// The routes of the message are withdrawn.
    TreatAsWithdraw,
    /// The session ends; [`super::decode`] then answers a NOTIFICATION instead of a fault.
    ResetSession,
}

/// What is wrong with an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Malformation {
    /// The Optional or the Transitive bit is not as specified (RFC 7606 §3 c).
    Flags,
    /// Its length is none that it can have (RFC 7606 §4, §7).
    Length,
    /// Its value is none that is defined, or cannot be true.
    Value,
    /// It is there a second time (RFC 7606 §3 g).
    Duplicate,
    /// It has to be there, and is not (RFC 7606 §3 d).
    Missing,
    /// This peer must not send it: it is of another AS, or knows AS numbers of four octets.
    Misplaced,
    /// It goes beyond the list of attributes, or the list ends within its header (RFC 7606 §4).
    Overrun,
    /// It is said to be well-known, and is not known (RFC 4271 §6.3).
    Unrecognized,
    /// Its next hop is none of its family (RFC 7606 §7.11).
    NextHopLength,
    /// Its prefixes are none of its family (RFC 7606 §5.3).
    Prefixes,
    /// A segment of a path is of no defined type (RFC 7606 §7.2).
    SegmentType,
    /// A segment of a path is empty, or goes beyond it (RFC 7606 §7.2).
    SegmentLength,
    /// A path goes through AS 0 (RFC 7607 §2).
    AsZero,
    /// A path has a set in it (RFC 9774 §3).
    AsSet,
    /// A path has a segment of a confederation, and the peer is in none with us (RFC 5065 §5).
    ConfederationSegment,
}

/// A malformed attribute that did not end the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeFault {
    /// The attribute's type code; 0 when the list of attributes ended before one could be read.
    pub attribute: u8,
    /// What was done.
    pub action: Action,
    /// What was wrong.
    pub why: Malformation,
}

/// The bits of Attribute Flags (RFC 4271 §4.3).
pub(super) const OPTIONAL: u8 = 0x80;
pub(super) const TRANSITIVE: u8 = 0x40;
pub(super) const EXTENDED_LENGTH: u8 = 0x10;

/// Attribute type codes, by the names of the registry.
pub(super) mod code {
    pub(in crate::wire) const ORIGIN: u8 = 1;
    pub(in crate::wire) const AS_PATH: u8 = 2;
    pub(in crate::wire) const NEXT_HOP: u8 = 3;
    pub(in crate::wire) const MULTI_EXIT_DISC: u8 = 4;
    pub(in crate::wire) const LOCAL_PREF: u8 = 5;
    pub(in crate::wire) const ATOMIC_AGGREGATE: u8 = 6;
    pub(in crate::wire) const AGGREGATOR: u8 = 7;
    pub(in crate::wire) const COMMUNITIES: u8 = 8;
    pub(in crate::wire) const ORIGINATOR_ID: u8 = 9;
    pub(in crate::wire) const CLUSTER_LIST: u8 = 10;
    pub(in crate::wire) const MP_REACH_NLRI: u8 = 14;
    pub(in crate::wire) const MP_UNREACH_NLRI: u8 = 15;
    pub(in crate::wire) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(in crate::wire) const AS4_PATH: u8 = 17;
    pub(in crate::wire) const AS4_AGGREGATOR: u8 = 18;
    pub(in crate::wire) const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub(in crate::wire) const LARGE_COMMUNITY: u8 = 32;
    pub(in crate::wire) const ONLY_TO_CUSTOMER: u8 = 35;
}

/// Lengths that an attribute can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// Decided by what is in it.
    Any,
    Exactly(usize),
    AtLeast(usize),
    /// A multiple, and not none.
    MultipleOf(usize),
    /// An AS number and an IPv4 address.
    AsAndAddress,
}

/// Who may send an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Anybody,
    /// Peers of the own AS.
    Internal,
    /// Speakers that know no AS numbers of four octets.
    TwoOctetAs,
}

/// What is known about an attribute.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) code: u8,
    pub(super) name: &'static str,
    /// The Optional and the Transitive bit.
    pub(super) flags: u8,
    pub(super) length: Length,
    /// From anybody else it is left out whatever it holds.
    pub(super) sender: Sender,
    on_flags: Action,
    on_length: Action,
    on_value: Action,
    /// The subcode of UPDATE Message Error for a bad value.
    value_subcode: u8,
}

const fn rule(
    code: u8,
    name: &'static str,
    flags: u8,
    length: Length,
    sender: Sender,
    [on_flags, on_length, on_value]: [Action; 3],
    value_subcode: u8,
) -> Rule {
    Rule { code, name, flags, length, sender, on_flags, on_length, on_value, value_subcode }
}

use Action::{Discard as D, ResetSession as R, TreatAsWithdraw as W};
use Length::{Any, AsAndAddress, AtLeast, Exactly, MultipleOf};
use Sender::{Anybody, Internal, TwoOctetAs};

const OT: u8 = OPTIONAL | TRANSITIVE;
const O: u8 = OPTIONAL;
const T: u8 = TRANSITIVE;

/// Attributes with a specification that says what is wrong with them. Others are skipped when they are optional.
///
/// Actions: for wrong flags, wrong length, wrong value. For flags RFC 7606 §3 c holds, but for the two attributes of
/// RFC 4760, where §5.3 does. For the rest the section stands at the line.
#[rustfmt::skip]
static RULES: [Rule; 18] = [
    // RFC 7606 §7.1 to §7.7
    rule(code::ORIGIN,           "ORIGIN",           T,  Exactly(1),   Anybody,  [W, W, W], update::ORIGIN),
    rule(code::AS_PATH,          "AS_PATH",          T,  Any,          Anybody,  [W, W, W], update::AS_PATH),
    rule(code::NEXT_HOP,         "NEXT_HOP",         T,  Exactly(4),   Anybody,  [W, W, W], update::NEXT_HOP),
    rule(code::MULTI_EXIT_DISC,  "MULTI_EXIT_DISC",  O,  Exactly(4),   Anybody,  [W, W, W], update::OPTIONAL_ATTRIBUTE),
    rule(code::LOCAL_PREF,       "LOCAL_PREF",       T,  Exactly(4),   Internal, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    rule(code::ATOMIC_AGGREGATE, "ATOMIC_AGGREGATE", T,  Exactly(0),   Anybody,  [W, D, D], update::OPTIONAL_ATTRIBUTE),
    rule(code::AGGREGATOR,       "AGGREGATOR",       OT, AsAndAddress, Anybody,  [W, D, D], update::OPTIONAL_ATTRIBUTE),
    // §7.8 to §7.10
    rule(code::COMMUNITIES,   "COMMUNITIES",   OT, MultipleOf(4), Anybody,  [W, W, W], update::OPTIONAL_ATTRIBUTE),
    rule(code::ORIGINATOR_ID, "ORIGINATOR_ID", O,  Exactly(4),    Internal, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    rule(code::CLUSTER_LIST,  "CLUSTER_LIST",  O,  MultipleOf(4), Internal, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    // §5.3, §7.11 and §7.12: without their prefixes nothing can be withdrawn
    rule(code::MP_REACH_NLRI,   "MP_REACH_NLRI",   O, AtLeast(5), Anybody, [R, R, R], update::OPTIONAL_ATTRIBUTE),
    rule(code::MP_UNREACH_NLRI, "MP_UNREACH_NLRI", O, AtLeast(3), Anybody, [R, R, R], update::OPTIONAL_ATTRIBUTE),
    // §7.14
    rule(code::EXTENDED_COMMUNITIES, "EXTENDED COMMUNITIES", OT, MultipleOf(8), Anybody, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    // RFC 6793 §6
    rule(code::AS4_PATH,       "AS4_PATH",       OT, AtLeast(6), TwoOctetAs, [W, D, D], update::OPTIONAL_ATTRIBUTE),
    rule(code::AS4_AGGREGATOR, "AS4_AGGREGATOR", OT, Exactly(8), TwoOctetAs, [W, D, D], update::OPTIONAL_ATTRIBUTE),
    // RFC 7606 §7.15
    rule(code::IPV6_EXTENDED_COMMUNITIES, "IPv6 EXTENDED COMMUNITIES", OT, MultipleOf(20), Anybody, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    // RFC 8092 §6
    rule(code::LARGE_COMMUNITY, "LARGE_COMMUNITY", OT, MultipleOf(12), Anybody, [W, W, W], update::OPTIONAL_ATTRIBUTE),
    // RFC 9234 §5
    rule(code::ONLY_TO_CUSTOMER, "ONLY_TO_CUSTOMER", OT, Exactly(4), Anybody, [W, W, W], update::OPTIONAL_ATTRIBUTE),
];

/// What is known about the attribute of this type.
pub(super) fn known(code: u8) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

impl Length {
    pub(super) const fn fits(self, bytes: usize, context: &Context) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(exactly) => bytes == exactly,
            Self::AtLeast(least) => bytes >= least,
            Self::MultipleOf(unit) => bytes != 0 && bytes.is_multiple_of(unit),
            Self::AsAndAddress => bytes == if context.four_octet_as { 8 } else { 6 },
        }
    }
}

impl Sender {
    pub(super) const fn may_be(self, context: &Context) -> bool {
        match self {
            Self::Anybody => true,
            Self::Internal => !context.is_external,
            Self::TwoOctetAs => !context.four_octet_as,
        }
    }
}

/// It holds prefixes, which have to be known to be withdrawn (RFC 7606 §3 j).
const fn is_multi_protocol(code: u8) -> bool {
    matches!(code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI)
}

/// What is done about it.
pub(super) fn action(code: u8, why: Malformation) -> Action {
    let rule = known(code);
    match why {
        Malformation::Flags => rule.map_or(W, |rule| rule.on_flags),
        Malformation::Length => rule.map_or(W, |rule| rule.on_length),
        Malformation::Value
        | Malformation::NextHopLength
        | Malformation::Prefixes
        | Malformation::SegmentType
        | Malformation::SegmentLength
        | Malformation::AsZero
        | Malformation::ConfederationSegment => rule.map_or(W, |rule| rule.on_value),
        // Whichever of the two paths it is in (RFC 9774 §3).
        Malformation::AsSet => W,
        Malformation::Duplicate | Malformation::Overrun if is_multi_protocol(code) => R,
        Malformation::Duplicate | Malformation::Misplaced => D,
        Malformation::Missing | Malformation::Overrun => W,
        Malformation::Unrecognized => R,
    }
}

/// The subcode of UPDATE Message Error when the session ends by it (RFC 4271 §6.3, RFC 4760 §7).
pub(super) fn subcode(code: u8, why: Malformation) -> u8 {
    match why {
        Malformation::Duplicate | Malformation::Overrun => update::ATTRIBUTE_LIST,
        Malformation::Unrecognized => update::UNRECOGNIZED_WELL_KNOWN,
        Malformation::Missing => update::MISSING_WELL_KNOWN,
        Malformation::Flags if !is_multi_protocol(code) => update::FLAGS,
        Malformation::Length if !is_multi_protocol(code) => update::LENGTH,
        Malformation::Flags
        | Malformation::Length
        | Malformation::Value
        | Malformation::Misplaced
        | Malformation::NextHopLength
        | Malformation::Prefixes
        | Malformation::SegmentType
        | Malformation::SegmentLength
        | Malformation::AsZero
        | Malformation::AsSet
        | Malformation::ConfederationSegment => {
            known(code).map_or(update::OPTIONAL_ATTRIBUTE, |rule| rule.value_subcode)
        }
    }
}

impl AttributeFault {
    pub(super) fn new(attribute: u8, why: Malformation) -> Self {
        Self { attribute, action: action(attribute, why), why }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discard => "attribute left out",
            Self::TreatAsWithdraw => "routes withdrawn",
            Self::ResetSession => "session ended",
        })
    }
}

impl fmt::Display for Malformation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flags => "wrong flags",
            Self::Length => "wrong length",
            Self::Value => "wrong value",
            Self::Duplicate => "more than once",
            Self::Missing => "missing",
            Self::Misplaced => "not for this peer to send",
            Self::Overrun => "beyond the list of attributes",
            Self::Unrecognized => "unknown, but well-known",
            Self::NextHopLength => "wrong length of the next hop",
            Self::Prefixes => "wrong prefixes",
            Self::SegmentType => "segment of an unknown type",
            Self::SegmentLength => "segment of a wrong length",
            Self::AsZero => "AS 0",
            Self::AsSet => "AS set",
            Self::ConfederationSegment => "segment of a confederation",
        })
    }
}

impl fmt::Display for AttributeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attribute, action, why } = self;
        match known(*attribute) {
            Some(rule) => write!(f, "{} ({attribute}): {why}; {action}", rule.name),
            None => write!(f, "attribute {attribute}: {why}; {action}"),
        }
    }
}
