//! Planner of the nftables backend: computes the changes that lead from the mirror (the table as last read or
//! written) to the desired state, grouped by Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use model::{
    kinds::resource::ServiceKey,
    primitives::net::{self, IpFamily},
    program::{Frontend, oracle::Networks},
};

use super::{
    desired::{spans, wanted},
    element::{Edge, Key, SetElement},
    group::Groups,
    mirror::{FrontendElements, NftablesMirror, Structure},
    schema::{Chain, NetworkSet, SetId},
};
use crate::claims::{Claims, TouchedObjects};

/// Planned changes to the table, in order of execution.
#[derive(Debug, Default)]
pub struct Plan {
    /// Changes to the part of the table that does not depend on Services, committed first, in the same
    /// transaction as the first groups.
    pub structure: Vec<Structural>,
    /// Changes by Service; `None` for objects that belong to no Service. The changes of one Service are
    /// committed in one transaction.
    pub groups: BTreeMap<Option<Arc<ServiceKey>>, Vec<Change>>,
}

impl Plan {
    /// Returns the number of kernel objects to change.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.structure.len() + self.groups.values().map(Vec::len).sum::<usize>()
    }

    /// Returns true if the table is rebuilt. A rebuild must be one transaction, so that no packet meets an
    /// empty table.
    #[must_use]
    pub fn is_rebuild(&self) -> bool {
        self.structure.contains(&Structural::DeleteTable)
    }
}

/// Change to the part of the table that does not depend on Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Structural {
    /// Removes the table with its chains, sets and elements.
    DeleteTable,
    /// Creates the empty table.
    AddTable,
    /// Creates a set or map.
    AddSet(SetId),
    /// Creates a chain without rules.
    AddChain(Chain),
    /// Removes all rules of a chain.
    FlushChain(Chain),
    /// Adds the rules that a chain must have.
    AddRules(Chain),
    /// Removes an element that this program would not have written, by its key.
    RemoveStray(SetId, Key),
}

/// Addition or removal of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Addition of an element.
    Add(SetElement),
    /// Removal of an element.
    Remove(SetElement),
}

/// Plans the changes of the objects in `touched` and of the networks. With `everything`, also plans the part
/// of the table that does not depend on Services, and the removal of objects without an owner.
#[must_use]
pub fn plan(
    mirror: &NftablesMirror,
    claims: &Claims,
    touched: &TouchedObjects,
    networks: &Networks,
    everything: bool,
) -> Plan {
    let nothing = NftablesMirror::default();
    let rebuild = everything && mirror.structure.foreign;
    let mirror = if rebuild { &nothing } else { mirror };
    let mut plan = Plan::default();
    if everything {
        plan.structure.extend(rebuild.then_some(Structural::DeleteTable));
        plan.structure.extend(plan_structure(&mirror.structure));
        let strays = mirror.strays.iter().cloned();
        plan.structure.extend(strays.map(|(set, key)| Structural::RemoveStray(set, key)));
    }
    let mut groups = Groups::new(mirror, claims);
    for (frontend, service) in &touched.frontends {
        let owner = claims.owner(frontend);
        let service = owner.or(service.as_ref());
        let nothing = FrontendElements::default();
        let held = mirror.frontends.get(frontend).map_or(&nothing, Box::as_ref);
        let wanted = owner.zip(claims.route(frontend)).map(|(owner, route)| {
            let group = groups.id(owner, frontend, route);
            wanted(frontend, route, held, group)
        });
        let wanted = wanted.unwrap_or_default();
        plan.add(service, missing_chains(mirror, frontend, &wanted));
        plan.add(service, difference(&held.elements(frontend), &wanted.elements(frontend)));
    }
    for (address, service) in &touched.virtual_addresses {
        let (is, should) =
            (mirror.virtual_addresses.contains(address), claims.wants_virtual_address(address));
        plan.add(service.as_ref(), plan_presence(SetElement::VirtualAddress(address), is, should));
    }
    for (address, service) in &touched.hairpins {
        let (is, should) = (mirror.hairpins.contains(address), claims.wants_hairpin(address));
        plan.add(service.as_ref(), plan_presence(SetElement::Hairpin(address), is, should));
    }
    for set in NetworkSet::ALL {
        for family in IpFamily::ALL {
            plan.add(None, plan_networks(&mirror.networks, networks, set, family));
        }
    }
    plan
}

impl Plan {
    fn add(&mut self, service: Option<&Arc<ServiceKey>>, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.groups.entry(service.cloned()).or_default().extend(changes);
        }
    }
}

fn plan_structure(structure: &Structure) -> Vec<Structural> {
    let mut changes = Vec::new();
    if !structure.table {
        changes.push(Structural::AddTable);
    }
    changes.extend(SetId::all().filter(|set| !structure.sets.contains(set)).map(Structural::AddSet));
    let missing = || Chain::FIXED.into_iter().filter(|chain| !structure.chains.contains_key(chain));
    changes.extend(missing().map(Structural::AddChain));
    changes.extend(missing().map(Structural::AddRules));
    let wrong = structure.chains.iter().filter(|(_, is_right)| !**is_right).map(|(&chain, _)| chain);
    changes.extend(wrong.flat_map(|chain| [Structural::FlushChain(chain), Structural::AddRules(chain)]));
    changes
}

/// Returns the additions of the dispatch numbers (integers that identify chains) that a frontend needs and
/// the kernel lacks. Several Services may add the same number, each in its own transaction. Unused numbers
/// and chains are removed later (see [`super::sweep`]).
fn missing_chains(mirror: &NftablesMirror, frontend: &Frontend, wanted: &FrontendElements) -> Vec<Change> {
    let missing = wanted.chains(frontend).filter(|chain| !mirror.chains.contains(chain));
    missing.map(|(numbers, dispatch)| Change::Add(SetElement::Chain(numbers, dispatch))).collect()
}

/// Returns the changes between two sets of elements. Removals precede additions, because an added element may have
/// the key of a removed one.
fn difference(is: &BTreeSet<SetElement>, should: &BTreeSet<SetElement>) -> Vec<Change> {
    let removed = is.difference(should).map(|element| Change::Remove(*element));
    removed.chain(should.difference(is).map(|element| Change::Add(*element))).collect()
}

fn plan_presence(element: SetElement, is: bool, should: bool) -> Vec<Change> {
    match (is, should) {
        (false, true) => vec![Change::Add(element)],
        (true, false) => vec![Change::Remove(element)],
        (true, true) | (false, false) => Vec::new(),
    }
}

/// Plans the network boundaries. An interval set with any difference is replaced as a whole, because the
/// kernel checks overlaps for each single element.
fn plan_networks(
    mirror: &BTreeSet<(NetworkSet, Edge)>,
    networks: &Networks,
    set: NetworkSet,
    family: IpFamily,
) -> Vec<Change> {
    let is_of = |(of, edge): &&(NetworkSet, Edge)| *of == set && IpFamily::of(edge.address) == family;
    let is: BTreeSet<_> = mirror.iter().filter(is_of).map(|(_, edge)| *edge).collect();
    let should = edges(
        match set {
            NetworkSet::Workloads => &networks.workloads,
            NetworkSet::MasqueradeSources => &networks.masquerade_sources,
            NetworkSet::NodePortAddresses => &networks.node_ports,
            NetworkSet::ServiceRanges => &networks.services,
        },
        family,
    );
    if is == should {
        return Vec::new();
    }
    let removed = is.iter().map(|edge| Change::Remove(SetElement::Network(set, *edge)));
    removed.chain(should.iter().map(|edge| Change::Add(SetElement::Network(set, *edge)))).collect()
}

/// Returns the boundaries of the union of networks. An interval that extends to the last address has no end
/// boundary.
#[must_use]
pub fn edges(networks: &BTreeSet<IpNet>, family: IpFamily) -> BTreeSet<Edge> {
    let ends = |last: IpAddr| {
        let next = net::to_number(last).checked_add(1)?;
        net::from_number(family, next).map(|address| Edge { address, is_end: true })
    };
    let spans = spans(networks, family).into_iter();
    spans
        .flat_map(|span| [Some(Edge { address: span.first, is_end: false }), ends(span.last)])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(networks: &[&str], family: IpFamily) -> Vec<String> {
        let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
        let edges = edges(&networks, family).into_iter();
        edges.map(|edge| SetElement::Network(NetworkSet::Workloads, edge).to_string()).collect()
    }

    #[test]
    fn adjoining_sources_become_one_interval_and_the_last_address_has_no_end() {
        let networks = ["10.0.0.0/9", "10.128.0.0/9", "192.0.2.0/24", "::/0"];
        assert_eq!(
            edges_of(&networks, IpFamily::V4),
            ["from 10.0.0.0", "until 11.0.0.0", "from 192.0.2.0", "until 192.0.3.0"]
        );
        assert_eq!(edges_of(&networks, IpFamily::V6), ["from ::"]);
        assert_eq!(edges_of(&["128.0.0.0/1", "0.0.0.0/1"], IpFamily::V4), ["from 0.0.0.0"]);
    }
}
