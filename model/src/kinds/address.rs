//! Address: the server's record of one load balancer address, with the Services that have it and the nodes that
//! announce it.
//!
//! The name of the record is the address, so each address has at most one record. Admission creates and releases
//! records together with the Services that request the addresses. `Operation::SetAnnouncer` sets the announcing
//! nodes.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        advertisement::{InterfaceName, WhenIsolated},
        resource::ServiceKey,
    },
    primitives::{name::Name, public_key::PublicKey, quantity::Timestamp},
};

/// Maximum number of candidates (nodes that may announce the address). More candidates would only add monitoring
/// traffic between them.
pub const CANDIDATES_MAX: usize = 8;

/// Record of a load balancer address. Maintained by the server; clients cannot write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressSpec {
    /// Load balancer address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Name of the AddressPool that contains the address. Absent for an address outside of all pools, in a range
    /// of `tidegate-api --allow-external-ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// Services with this address, as `namespace/name`. Several Services can share it on different ports. Empty
    /// while the address is in quarantine.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Sharing key of all Services with this address. Absent if the address is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_key: Option<Name>,
    /// Reservation of the released address for its former Service. Absent if the address is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Nodes that announce the address, and how they announce it.
    #[serde(default)]
    pub announcement: Announcement,
}

/// Reservation of a released address for its former Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quarantine {
    /// End of the reservation (RFC 3339, UTC); afterwards the address is free for all Services.
    pub until: Timestamp,
    /// Service that had the address, as `namespace/name`. This Service receives the address again if it requests
    /// one before `until`.
    #[schema(value_type = String)]
    pub former: ServiceKey,
}

/// Nodes that announce an address. The owner, which answers ARP and NDP requests, is the first candidate that is
/// alive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announcement {
    /// Version of the announcement, increased by every change of the candidates. Nodes ignore an announcement
    /// with a lower epoch than their current one.
    pub epoch: u64,
    /// Nodes that may announce the address by ARP and NDP, in the order of their rank, at most 8. The first one
    /// that is alive is the owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// True if the owner answers ICMP echo requests for the address.
    #[serde(default)]
    pub answer_ping: bool,
    /// Behavior of an owner that reaches neither the control servers nor another candidate: `Keep` (continue
    /// to announce) or `Withdraw` (stop). Default: `Keep`.
    #[serde(default)]
    pub when_isolated: WhenIsolated,
    /// True until a node has announced the address. The first owner then probes whether another machine uses
    /// the address, before it announces it (RFC 5227 §2.1.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probe_first: bool,
    /// Names of the Advertisements of type BGP that cover the address. Nodes that one of them selects announce the
    /// address by BGP.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub advertisements: BTreeSet<Name>,
}

/// Node that may announce an address by ARP and NDP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    /// Name of the Node.
    pub node: Name,
    /// Address of the node in the network of the load balancer address. The other candidates monitor the node at
    /// this address by BFD.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Interfaces of the node in that network. The node announces the load balancer address on these interfaces.
    #[schema(value_type = Vec<String>)]
    pub interfaces: BTreeSet<InterfaceName>,
    /// Public key that the agent of the node has reported (X25519, RFC 7748), as base64 of 32 bytes. The node and
    /// each other candidate derive from it the keys of BFD between them. Absent if the agent has reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer_public_key: Option<PublicKey>,
}

impl AddressSpec {
    /// Creates the record of an address that no Service has yet.
    #[must_use]
    pub fn new(address: IpAddr, pool: Option<Name>) -> Self {
        Self {
            address,
            pool,
            services: BTreeSet::new(),
            sharing_key: None,
            quarantine: None,
            announcement: Announcement::default(),
        }
    }
}

/// Returns the name of the record of an address. For IPv4, the name is the address. For IPv6, it consists of all
/// eight groups in full, joined by dashes, because names cannot contain colons.
#[must_use]
pub fn name_of(address: IpAddr) -> Name {
    let text = match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:04x}")).join("-"),
    };
    Name::parse(&text).expect("digits, dots and dashes between digits are a name")
}

/// Returns the address that `name` contains: the name of an Address object (see [`name_of`]) or a usual notation,
/// such as `2001:db8::7`. Returns `None` if it is neither.
#[must_use]
pub fn address_of(name: &str) -> Option<IpAddr> {
    if let Ok(address) = name.parse() {
        return Some(address);
    }
    let groups: Vec<u16> =
        name.split('-').map(|group| u16::from_str_radix(group, 16)).collect::<Result<_, _>>().ok()?;
    let groups: [u16; 8] = groups.try_into().ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(groups)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_name_each_other() {
        for text in ["192.0.2.7", "2001:db8::7", "::1", "fe80::", "255.255.255.255"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(name_of(address).as_str()), Some(address), "{text}");
        }
        for bad in ["", "web", "1-2-3", "12345-0-0-0-0-0-0-0", "0-0-0-0-0-0-0-0-0"] {
            assert_eq!(address_of(bad), None, "{bad}");
        }
    }
}
