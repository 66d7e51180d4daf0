//! The difference between what the kernel has and what it should have, grouped by Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use model::{
    net::{self, IpFamily},
    program::{Destination, Frontend, Masquerade, Program, Route, Verdict},
    resource::ServiceKey,
};

use super::{
    element::{Dispatch, Edge, Element},
    mirror::{Held, Mirror, Structure},
    schema::{Chain, Pick, PickKind, SetId, TARGETS_MAX},
    slots,
};
use crate::dataplane::claims::{Claims, Touched};

/// What has to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// First of all, at once with the first groups.
    pub structure: Vec<Structural>,
    /// By Service, or nobody's: each group belongs into one transaction.
    pub groups: BTreeMap<Option<Arc<ServiceKey>>, Vec<Change>>,
}

impl Plan {
    /// Kernel objects that have to be changed.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.structure.len() + self.groups.values().map(Vec::len).sum::<usize>()
    }

    /// Whether the table is made anew, which must be one transaction so that no packet meets an empty one.
    #[must_use]
    pub fn is_rebuild(&self) -> bool {
        self.structure.contains(&Structural::DeleteTable)
    }
}

/// A change of the fixed part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Structural {
    /// Removes the table with all that is in it.
    DeleteTable,
    /// Makes the table.
    AddTable,
    /// Makes a set or map.
    AddSet(SetId),
    /// Makes a chain without rules.
    AddChain(Chain),
    /// Removes the rules of a chain.
    FlushChain(Chain),
    /// Gives a chain its rules.
    AddRules(Chain),
    /// Removes an element that we would not have written, by its key.
    RemoveStray(SetId, Vec<u8>),
}

/// A change of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds it.
    Add(Element),
    /// Removes it.
    Remove(Element),
}

/// Plans what is touched, and the masquerade sources. With `everything`, also the fixed part and what nobody asks for.
#[must_use]
pub fn plan(
    mirror: &Mirror,
    claims: &Claims,
    touched: &Touched,
    sources: &BTreeSet<IpNet>,
    everything: bool,
) -> Plan {
    let nothing = Mirror::default();
    let rebuild = everything && mirror.structure.foreign;
    let mirror = if rebuild { &nothing } else { mirror };
    let mut plan = Plan::default();
    if everything {
        plan.structure.extend(rebuild.then_some(Structural::DeleteTable));
        plan.structure.extend(plan_structure(&mirror.structure));
        let strays = mirror.strays.iter().cloned();
        plan.structure.extend(strays.map(|(set, key)| Structural::RemoveStray(set, key)));
    }
    for (frontend, service) in &touched.frontends {
        let service = claims.claimants(frontend).first().or(service.as_ref());
        plan.add(
            service,
            plan_frontend(
                mirror.frontends.get(frontend),
                frontend,
                claims.route(frontend).and_then(Route::uniform),
            ),
        );
    }
    for (&address, service) in &touched.virtual_addresses {
        let (is, should) =
            (mirror.virtual_addresses.contains(&address), claims.wants_virtual_address(address));
        plan.add(service.as_ref(), plan_presence(Element::VirtualAddress(address), is, should));
    }
    for (&address, service) in &touched.hairpins {
        let (is, should) = (mirror.hairpins.contains(&address), claims.wants_hairpin(address));
        plan.add(service.as_ref(), plan_presence(Element::Hairpin(address), is, should));
    }
    for family in IpFamily::ALL {
        plan.add(None, plan_sources(&mirror.sources, &edges(sources, family), family));
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

/// Why a program cannot be carried out by this backend, in words.
///
/// # Errors
/// The first thing that cannot be expressed.
pub fn check(program: &Program) -> Result<(), String> {
    for (frontend, route) in &program.frontends {
        let Some(verdict) = route.uniform().filter(|_| is_plain(frontend, route)) else {
            return Err(format!("the settings of port {} are not built yet", frontend.ports));
        };
        let Verdict::Forward { masquerade, targets } = verdict else { continue };
        let family = frontend.destination.family();
        if let Some(target) = targets.keys().find(|target| IpFamily::of(target.address) != family) {
            return Err(format!(
                "target {} is not of the frontend's family {}",
                target.address,
                family.as_str()
            ));
        }
        if targets.len() > usize::try_from(TARGETS_MAX).unwrap_or(usize::MAX) {
            return Err(format!(
                "a port has {} endpoints; at most {TARGETS_MAX} are possible",
                targets.len()
            ));
        }
        if !targets.values().any(|weight| weight.0 > 0) {
            return Err(format!("port {} forwards, but no target has a weight above 0", frontend.ports));
        }
        let is_virtual = match frontend.destination {
            Destination::Address(address) => program.virtual_addresses.contains(&address),
            Destination::AnyLocal(_) => false,
        };
        if *masquerade == Masquerade::OffCluster && !is_virtual {
            return Err("masquerading by source is possible at virtual addresses only".to_owned());
        }
    }
    Ok(())
}

fn is_plain(frontend: &Frontend, route: &Route) -> bool {
    frontend.ports.single().is_some()
        && route.allowed_sources.is_none()
        && route.affinity_seconds.is_none()
        && route.scheduler.is_none()
        && route.proxy_protocol.is_none()
        && !matches!(route.from_elsewhere, Verdict::Drop | Verdict::Relay { .. })
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

fn plan_frontend(held: Option<&Held>, frontend: &Frontend, verdict: Option<&Verdict>) -> Vec<Change> {
    let nothing = Held::default();
    let held = held.unwrap_or(&nothing);
    let (dispatch, targets) = match verdict {
        None | Some(Verdict::Drop | Verdict::Relay { .. }) => (None, Vec::new()),
        Some(Verdict::Reject) => (Some(Dispatch::Refuse), Vec::new()),
        Some(Verdict::Forward { masquerade, targets }) => {
            let slots = slots::layout(&held.slots, &slots::counts(targets));
            let kind = match (frontend.destination, masquerade) {
                (Destination::AnyLocal(_), _) => PickKind::NodePort,
                (Destination::Address(_), Masquerade::Always) => PickKind::External,
                (Destination::Address(_), Masquerade::OffCluster | Masquerade::Never) => PickKind::Cluster,
            };
            let pick = Pick { kind, slots: u32::try_from(slots.len()).unwrap_or(TARGETS_MAX) };
            (Some(Dispatch::Forward(pick)), slots)
        }
    };
    let mut changes = Vec::new();
    if held.dispatch != dispatch {
        changes.extend(held.dispatch.map(|old| Change::Remove(Element::Dispatch(*frontend, old))));
        changes.extend(dispatch.map(|new| Change::Add(Element::Dispatch(*frontend, new))));
    }
    for (slot, index) in (0u32..).zip(0..held.slots.len().max(targets.len())) {
        let old = held.slots.get(index).copied().flatten();
        let new = targets.get(index).copied();
        if old != new {
            changes.extend(old.map(|target| Change::Remove(Element::Slot(*frontend, slot, target))));
            changes.extend(new.map(|target| Change::Add(Element::Slot(*frontend, slot, target))));
        }
    }
    changes
}

fn plan_presence(element: Element, is: bool, should: bool) -> Vec<Change> {
    match (is, should) {
        (false, true) => vec![Change::Add(element)],
        (true, false) => vec![Change::Remove(element)],
        (true, true) | (false, false) => Vec::new(),
    }
}

/// An interval set is replaced as a whole: the kernel judges overlaps while elements come and go one by one, and there
/// are few of them.
fn plan_sources(is: &BTreeSet<Edge>, should: &BTreeSet<Edge>, family: IpFamily) -> Vec<Change> {
    let is: BTreeSet<_> = is.iter().filter(|edge| IpFamily::of(edge.address) == family).copied().collect();
    if is == *should {
        return Vec::new();
    }
    let removed = is.iter().map(|edge| Change::Remove(Element::Source(*edge)));
    removed.chain(should.iter().map(|edge| Change::Add(Element::Source(*edge)))).collect()
}

/// The edges of the union of networks: adjoining ones become one interval; one that reaches the last address has no end.
#[must_use]
pub fn edges(networks: &BTreeSet<IpNet>, family: IpFamily) -> BTreeSet<Edge> {
    let of_family = networks.iter().filter(|network| IpFamily::of_net(network) == family);
    let number = |address: IpAddr| net::to_number(address);
    let mut ranges: Vec<_> =
        of_family.map(|network| (number(network.network()), number(network.broadcast()))).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(previous) if previous.1.checked_add(1).is_none_or(|next| first <= next) => {
                previous.1 = previous.1.max(last);
            }
            Some(_) | None => merged.push((first, last)),
        }
    }
    let edge = |number, is_end| net::from_number(family, number).map(|address| Edge { address, is_end });
    let ends = |last: u128| last.checked_add(1).and_then(|next| edge(next, true));
    merged.into_iter().flat_map(|(first, last)| [edge(first, false), ends(last)]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(networks: &[&str], family: IpFamily) -> Vec<String> {
        let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
        edges(&networks, family).into_iter().map(|edge| Element::Source(edge).to_string()).collect()
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
