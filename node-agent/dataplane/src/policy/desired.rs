//! Desired elements of the maps, derived from the numbers of a policy. Does no I/O.

use std::{collections::BTreeMap, net::IpAddr};

use kernel::nftables::nfproto;
use model::{
    policy::identity::{PolicyAction, PolicyNumbers, PortSpan},
    primitives::net::IpFamily,
};

use super::schema::{PolicyChain, PolicyMap};

/// Elements of all maps, with their values.
pub type PolicyElements = BTreeMap<PolicyElement, PolicyValue>;

/// Key of an element, with its map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyElement {
    /// Map that contains the element.
    pub map: PolicyMap,
    /// Bytes of the key, or of the low end of its interval.
    pub low: Vec<u8>,
    /// Bytes of the high end of the interval; `None` in maps without intervals.
    pub high: Option<Vec<u8>>,
}

/// Value of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyValue {
    /// Absence of a value, as in sets.
    Absent,
    /// Number, as bytes.
    Bytes(Vec<u8>),
    /// Continuation in a chain.
    Goto(PolicyChain),
}

/// Bytes of the values of [`PolicyMap::Decisions`] and [`PolicyMap::Defaults`].
const ACCEPT: [u8; 4] = 1u32.to_be_bytes();
const DROP: [u8; 4] = 2u32.to_be_bytes();

impl PolicyElement {
    /// Returns the number of the cell of a decision; `None` for elements of other maps.
    #[must_use]
    pub fn cell(&self) -> Option<u32> {
        let bytes = self.low.first_chunk().filter(|_| self.map.is_counted())?;
        Some(u32::from_be_bytes(*bytes))
    }
}

impl PolicyValue {
    /// Returns true for the value of a decision that drops packets.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        *self == Self::Bytes(DROP.to_vec())
    }
}

/// Returns all elements; none if no local workload has a set.
#[must_use]
pub fn elements(numbers: &PolicyNumbers) -> PolicyElements {
    let mut all = PolicyElements::new();
    if numbers.is_empty() {
        return all;
    }
    let PolicyNumbers {
        subjects,
        identities,
        networks,
        ports,
        defaults,
        decisions,
        locals,
        cells: _,
        excessive: _,
    } = numbers;
    let number = |number: u32| PolicyValue::Bytes(number.to_be_bytes().to_vec());
    for ((direction, address), set) in subjects {
        let map = PolicyMap::Subjects(*direction, IpFamily::of(*address));
        all.insert(single(map, bytes(*address)), number(*set));
        let map = PolicyMap::Hairpins(IpFamily::of(*address));
        all.insert(single(map, [bytes(*address), bytes(*address)].concat()), PolicyValue::Absent);
    }
    for address in locals {
        let map = PolicyMap::Locals(IpFamily::of(*address));
        all.insert(single(map, bytes(*address)), PolicyValue::Absent);
    }
    for (address, identity) in identities {
        let map = PolicyMap::Identities(IpFamily::of(*address));
        all.insert(single(map, bytes(*address)), number(*identity));
    }
    for (first, range) in networks {
        let family = IpFamily::of(*first);
        let key = |address| [bytes(address), vec![nfproto(family), 0, 0, 0]].concat();
        let map = PolicyMap::Networks(family);
        let element = PolicyElement { map, low: key(*first), high: Some(key(range.last)) };
        all.insert(element, number(range.identity));
    }
    for (range, cell) in ports {
        all.insert(port_range(range), number(*cell));
    }
    let action = |action: &PolicyAction| match action {
        PolicyAction::Accept => PolicyValue::Bytes(ACCEPT.to_vec()),
        PolicyAction::Drop => PolicyValue::Bytes(DROP.to_vec()),
    };
    for (cell, decision) in defaults {
        all.insert(single(PolicyMap::Defaults, cell.to_be_bytes().to_vec()), action(decision));
    }
    for ((cell, identity), decision) in decisions {
        let key = [cell.to_be_bytes(), identity.to_be_bytes()].concat();
        all.insert(single(PolicyMap::Decisions, key), action(decision));
    }
    for (action, chain) in [(ACCEPT, PolicyChain::Accepted), (DROP, PolicyChain::Dropped)] {
        all.insert(single(PolicyMap::Actions, action.to_vec()), PolicyValue::Goto(chain));
    }
    all
}

const fn single(map: PolicyMap, low: Vec<u8>) -> PolicyElement {
    PolicyElement { map, low, high: None }
}

fn port_range(range: &PortSpan) -> PolicyElement {
    let PortSpan { set, protocols, ports } = range;
    let key = |protocol: u8, port: u16| {
        [&set.to_be_bytes()[..], &[protocol, 0, 0, 0], &port.to_be_bytes(), &[0, 0]].concat()
    };
    let (low, high) = (key(protocols.0, ports.0), key(protocols.1, ports.1));
    PolicyElement { map: PolicyMap::Ports, low, high: Some(high) }
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
