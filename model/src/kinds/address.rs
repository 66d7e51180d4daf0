//! The Address: the record of one load balancer address, kept by the server: who holds it, and who answers for it.
//!
//! The record is what makes an address unique: its name is the address, and the store has one object of a name. Admission
//! makes and frees records together with the Services that ask for them; `Operation::SetAnnouncer` sets who answers.

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
    primitives::{name::Name, quantity::Timestamp},
};

/// Candidates ranked for one address; more would watch each other without being of use.
pub const CANDIDATES_MAX: usize = 8;

/// What is recorded of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressSpec {
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The pool that it is of; none for an address by hand in a range of `--allow-external-ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// The Services that have it; several share it on different ports, none while it is in quarantine.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// The key that all of them name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_key: Option<Name>,
    /// Held back after it was freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Who answers for it.
    #[serde(default)]
    pub announcement: Announcement,
}

/// Why nobody else gets a freed address yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quarantine {
    /// Until when.
    pub until: Timestamp,
    /// The Service that had it, and gets it back before that time.
    #[schema(value_type = String)]
    pub former: ServiceKey,
}

/// Who answers for an address: the first live candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announcement {
    /// Rises with every change of the candidates; of two orders, the higher epoch counts.
    pub epoch: u64,
    /// Ranked; the first is the owner while it lives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Whether the owner lets the address be pinged.
    #[serde(default)]
    pub answer_ping: bool,
    /// What an owner does that is cut off.
    #[serde(default)]
    pub when_isolated: WhenIsolated,
    /// The Advertisements of type BGP by which the address is announced: by every node that carries them out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub advertisements: BTreeSet<Name>,
}

/// A node that may answer for an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// Its own address in the network that the address is in; where the other candidates watch it.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Its interfaces in that network, on which it announces.
    #[schema(value_type = Vec<String>)]
    pub interfaces: BTreeSet<InterfaceName>,
}

impl AddressSpec {
    /// The record of an address that nobody has.
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

/// The name of an address's record: the address itself; of IPv6 all eight groups in full, joined by dashes, because a
/// name has no colons.
#[must_use]
pub fn name_of(address: IpAddr) -> Name {
    let text = match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:04x}")).join("-"),
    };
    Name::parse(&text).expect("digits, dots and dashes between digits are a name")
}

/// The address whose record has this name; also understands the address as people write it.
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
