//! Handling of malformed UPDATE messages (RFC 7606): a table with the rules for each attribute, and the
//! general rules.

use std::fmt;

use super::Context;
use crate::notification::update;

/// Action for a malformed attribute, from weakest to strongest (RFC 7606 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Attribute discard: the attribute is ignored, and the routes are kept.
    Discard,
    /// Treat-as-withdraw: the routes of the message are treated as withdrawn.
    TreatAsWithdraw,
    /// Session reset: [`super::decode`] returns a NOTIFICATION instead of a fault.
    ResetSession,
}

/// Kind of malformation, which together with the attribute type determines the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Malformation {
    /// The Optional or Transitive bit conflicts with the attribute type (RFC 7606 §3 c).
    Flags,
    /// The length is invalid for the attribute type (RFC 7606 §4, §7).
    Length,
    /// The value is undefined or impossible for the attribute.
    Value,
    /// The attribute type occurs more than once (RFC 7606 §3 g).
    Duplicate,
    /// A mandatory attribute is absent (RFC 7606 §3 d).
    Missing,
    /// The peer must not send the attribute, because the peer is external or supports 4-octet AS numbers.
    Misplaced,
    /// The attribute extends beyond the attribute field, or the field ends within the attribute's header (RFC
    /// 7606 §4).
    Overrun,
    /// An unknown attribute is flagged as well-known (RFC 4271 §6.3).
    Unrecognized,
    /// The length of the next hop is invalid for the family (RFC 7606 §7.11).
    NextHopLength,
    /// Prefixes are invalid for the family (RFC 7606 §5.3).
    Prefixes,
    /// The type of a path segment is undefined (RFC 7606 §7.2).
    SegmentType,
    /// A path segment is empty or too long (RFC 7606 §7.2).
    SegmentLength,
    /// A path contains AS 0 (RFC 7607 §2).
    AsZero,
    /// A path contains an `AS_SET` or `AS_CONFED_SET` (RFC 9774 §3).
    AsSet,
    /// A confederation segment comes from a peer outside of the confederation (RFC 5065 §5).
    ConfederationSegment,
}

/// Malformed attribute of an UPDATE that did not end the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeFault {
    /// Type code of the attribute; 0 if the bytes ended before it.
    pub attribute: u8,
    /// Action taken for the attribute and its routes.
    pub action: Action,
    /// Kind of malformation, such as a wrong length.
    pub why: Malformation,
}

/// Optional bit of the Attribute Flags field (RFC 4271 §4.3).
pub(super) const OPTIONAL: u8 = 0x80;
pub(super) const TRANSITIVE: u8 = 0x40;
pub(super) const EXTENDED_LENGTH: u8 = 0x10;

/// Attribute type codes, named as in the IANA registry.
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

/// Rule for the length of an attribute value in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// Any length; the decoder of the value checks it.
    Any,
    Exactly(usize),
    AtLeast(usize),
    /// Nonzero multiple of this number of bytes.
    MultipleOf(usize),
    /// Length of an AS number and an IPv4 address: 6 or 8 bytes, depending on the AS number size.
    AsAndAddress,
}

/// Peers from which an attribute is accepted; from other peers it is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Anybody,
    /// Only internal peers (IBGP).
    Internal,
    /// Only speakers without support for 4-octet AS numbers.
    TwoOctetAs,
}

/// Rules for an attribute type: valid flags, lengths and senders, and the actions for violations.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) code: u8,
    pub(super) name: &'static str,
    /// Required values of the Optional and Transitive bits.
    pub(super) flags: u8,
    pub(super) length: Length,
    /// Peers that may send the attribute; it is discarded if it comes from others.
    pub(super) sender: Sender,
    on_flags: Action,
    on_length: Action,
    on_value: Action,
    /// Subcode of UPDATE Message Error if the value is invalid.
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

/// Rules for the supported attribute types. Other attributes are ignored if they are optional.
///
/// The three actions in brackets apply to invalid flags, an invalid length and an invalid value, in this
/// order. The action for invalid flags follows RFC 7606 §3 c, except for the attributes of RFC 4760 (§5.3). A
/// comment above each group of rules names the section that defines the other two actions.
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
    // §5.3, §7.11 and §7.12: without the prefixes treat-as-withdraw is impossible
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

/// Returns the rules for an attribute type, or `None` if it is not supported.
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

/// Returns true for the attributes that contain prefixes. To treat routes as withdrawn, these prefixes must
/// be readable (RFC 7606 §3 j).
const fn is_multi_protocol(code: u8) -> bool {
    matches!(code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI)
}

/// Returns the action for an attribute of this type with this kind of malformation (RFC 7606).
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
        // Applies to both paths (RFC 9774 §3).
        Malformation::AsSet => W,
        Malformation::Duplicate | Malformation::Overrun if is_multi_protocol(code) => R,
        Malformation::Duplicate | Malformation::Misplaced => D,
        Malformation::Missing | Malformation::Overrun => W,
        Malformation::Unrecognized => R,
    }
}

/// Returns the subcode of UPDATE Message Error for a session reset because of this malformation (RFC 4271
/// §6.3, RFC 4760 §7).
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
