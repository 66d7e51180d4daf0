//! BGP messages (RFC 4271 §4, RFC 2918) as Rust types. Module `wire` encodes and decodes them.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::IpNet;

use crate::{attributes::Attributes, capability::Capability, family::Family, notification::Notification};

/// BGP message of any type, without the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// OPEN, the first message of a connection.
    Open(Open),
    /// UPDATE, which announces and withdraws routes.
    Update(Box<Update>),
    /// NOTIFICATION, the last message of a connection.
    Notification(Notification),
    /// KEEPALIVE, which restarts the neighbor's Hold Timer.
    Keepalive,
    /// ROUTE-REFRESH: a request for all routes (RFC 2918), or a marker at the beginning or end of the
    /// response (RFC 7313).
    Refresh(Refresh),
}

/// OPEN message (RFC 4271 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// AS number: from the 4-octet AS number capability (RFC 6793) if present, otherwise from My Autonomous
    /// System.
    pub asn: u32,
    /// Hold Time in seconds, never 1 or 2; 0 means that no KEEPALIVE messages are sent.
    pub hold_time: u16,
    /// BGP Identifier; not zero (RFC 6286).
    pub router_id: Ipv4Addr,
    /// Capabilities, in the order in which they are sent.
    pub capabilities: Vec<Capability>,
}

/// UPDATE message (RFC 4271 §4.3, RFC 4760).
///
/// Sent messages contain prefixes of one family; a received message may contain prefixes of several families.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// Withdrawn prefixes, including announced prefixes with malformed attributes (RFC 7606
    /// "treat-as-withdraw").
    pub withdrawn: Vec<IpNet>,
    /// Prefixes that are announced with the path attributes in `attributes`.
    pub announced: Vec<IpNet>,
    /// Path attributes; present if prefixes are announced.
    pub attributes: Option<Attributes>,
    /// Family of an End-of-RIB marker, which is an otherwise empty message (RFC 4724 §2); `None` for other
    /// messages.
    pub end_of_rib: Option<Family>,
    /// Number of routes of unsupported families, by (AFI, SAFI).
    pub foreign: BTreeMap<(u16, u8), usize>,
}

/// ROUTE-REFRESH message (RFC 2918, RFC 7313).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refresh {
    /// Family whose routes are refreshed; `None` if the AFI and SAFI are unsupported.
    pub family: Option<Family>,
    /// Request for routes, or beginning or end of the response (RFC 7313).
    pub kind: RefreshKind,
}

/// Message Subtype of ROUTE-REFRESH (RFC 7313 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshKind {
    /// Request for all routes of the family: 0.
    Request,
    /// Beginning of Route Refresh, `BoRR`: 1. All routes of the family follow.
    Begin,
    /// End of Route Refresh, `EoRR`: 2. Routes not sent since `BoRR` are stale.
    End,
    /// Subtype that no RFC defines; the message is ignored.
    Unknown(u8),
}
