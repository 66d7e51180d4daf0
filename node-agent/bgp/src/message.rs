//! The messages (RFC 4271 §4, RFC 2918) as values; their bytes are the business of `wire`.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::IpNet;

use crate::{attributes::Attributes, capability::Capability, family::Family, notification::Notification};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The first one of a connection.
    Open(Open),
    /// Routes.
    Update(Box<Update>),
    /// The last one of a connection: why it ends.
    Notification(Notification),
    /// Sign of life.
    Keepalive,
    /// Asks for routes again (RFC 2918), or frames the answer (RFC 7313).
    Refresh(Refresh),
}

/// Who somebody is and what it can do (RFC 4271 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its AS number: the one of the 4-octet capability where that is present (RFC 6793), else that of the field.
    pub asn: u32,
    /// Longest silence in seconds; 0: no keepalives; never 1 or 2.
    pub hold_time: u16,
    /// Its BGP Identifier; not zero (RFC 6286).
    pub router_id: Ipv4Addr,
    /// What it can do, in the order sent.
    pub capabilities: Vec<Capability>,
}

/// Routes withdrawn and announced, in one message (RFC 4271 §4.3, RFC 4760).
///
/// All prefixes of one message are of one family when it is made here. One that was received may hold several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// Prefixes that are not reachable any longer. What a malformed attribute makes unusable (RFC 7606 "treat-as-withdraw")
    /// was moved here when it was read.
    pub withdrawn: Vec<IpNet>,
    /// Prefixes that are reachable with `attributes`.
    pub announced: Vec<IpNet>,
    /// Present when something is announced.
    pub attributes: Option<Attributes>,
    /// The message is an End-of-RIB marker (RFC 4724 §2): nothing else is in it.
    pub end_of_rib: Option<Family>,
    /// Routes of other families than the two, by (AFI, SAFI): counted, not read.
    pub foreign: BTreeMap<(u16, u8), usize>,
}

/// A route refresh (RFC 2918) or its frame (RFC 7313).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refresh {
    /// The routes meant; `None`: of a family that is none of the two.
    pub family: Option<Family>,
    /// What is said about them.
    pub kind: RefreshKind,
}

/// The subtype of a route refresh (RFC 7313 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshKind {
    /// "Send me all of them": 0.
    Request,
    /// Beginning of the answer, `BoRR`: 1.
    Begin,
    /// End of the answer, `EoRR`: 2.
    End,
    /// Another subtype, to be ignored.
    Unknown(u8),
}
