//! Mirror of the backend's nf_tables table in the kernel, as last read or written.

use std::collections::{BTreeMap, BTreeSet};

use litemap::LiteMap;
use model::{
    primitives::net::IpFamily,
    program::{Frontend, Target},
};

use super::{
    element::{Edge, FrontendChain, GroupId, Key, Numbers, SetElement, Slot, Span, TargetId},
    schema::{Chain, NetworkSet, Pool, SetId, VerdictClass},
};
use crate::addresses::AddressSet;

/// Mirror (copy in memory) of the backend's table: chains, sets, and elements by frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NftablesMirror {
    /// Part of the table that does not depend on Services.
    pub structure: Structure,
    /// Chains that have a dispatch number, by scope of the number.
    pub chains: BTreeSet<(Numbers, FrontendChain)>,
    /// Elements of the sets and maps that belong to each frontend.
    pub frontends: BTreeMap<Frontend, Box<FrontendElements>>,
    /// Frontends of each group with session affinity, by IP family and id.
    pub affinity_groups: BTreeMap<(IpFamily, GroupId), BTreeSet<Frontend>>,
    /// Addresses in the set of virtual addresses.
    pub virtual_addresses: AddressSet,
    /// Local endpoints that may connect to themselves.
    pub hairpins: AddressSet,
    /// Boundaries of the networks in the interval sets.
    pub networks: BTreeSet<(NetworkSet, Edge)>,
    /// Keys of elements that this program would not have written. A pass (update of the kernel) for all
    /// Services removes them.
    pub strays: BTreeSet<(SetId, Key)>,
}

/// Part of the table that does not depend on Services: the table itself, its chains and its sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Structure {
    /// True if the table exists.
    pub table: bool,
    /// True if the table holds chains or sets that the backend does not define, or that have a different
    /// definition. The table must then be rebuilt.
    pub foreign: bool,
    /// Chains, each with a flag that is true if its rules are as wanted.
    pub chains: BTreeMap<Chain, bool>,
    /// Existing sets and maps of the table.
    pub sets: BTreeSet<SetId>,
}

/// Elements of one frontend in the sets and maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontendElements {
    /// Chain that handles the frontend's connections; `None` if the frontend is not in the dispatch map.
    pub dispatch: Option<FrontendChain>,
    /// Chains for single classes of sources (workloads, the node, all others), if these have different
    /// verdicts or sources are restricted.
    pub by_source: LiteMap<VerdictClass, FrontendChain>,
    /// Targets by pool and slot index; `None` for a slot without an element.
    pub pools: LiteMap<Pool, Vec<Option<Target>>>,
    /// Group of the frontend, with session affinity.
    pub affinity_group: Option<GroupId>,
    /// Target ids by pool and slot index, with session affinity.
    pub affinity_pools: LiteMap<Pool, Vec<Option<TargetId>>>,
    /// Targets of the affinity pools, by id. A target has the same id in all pools.
    pub affinity_targets: BTreeMap<(Pool, TargetId), Target>,
    /// Source ranges that may connect, if the frontend restricts them.
    pub allowed: BTreeSet<Span>,
    /// True if the port range is in the range map; never for a single port.
    pub is_range: bool,
    /// True if the frontend is in the set of those that fail over.
    pub fails_over: bool,
}

impl FrontendElements {
    /// Returns the target in every slot of a pool (list of targets), with or without session affinity.
    #[must_use]
    pub fn slots(&self, pool: Pool) -> Vec<Option<Target>> {
        let target =
            |id: &Option<TargetId>| id.and_then(|id| self.affinity_targets.get(&(pool, id))).copied();
        match self.affinity_pools.get(&pool) {
            Some(ids) => ids.iter().map(target).collect(),
            None => self.pools.get(&pool).cloned().unwrap_or_default(),
        }
    }

    /// Iterates over the chains to which the dispatch maps send connections to `frontend`. Each chain is
    /// returned with the scope of the dispatch number (integer) that must identify it in these maps.
    pub fn chains(&self, frontend: &Frontend) -> impl Iterator<Item = (Numbers, FrontendChain)> {
        let numbers = |is_by_source| Numbers::of(frontend, is_by_source);
        let (all, by_source) = (numbers(false), numbers(true));
        let dispatch = self.dispatch.iter().map(move |dispatch| (all, *dispatch));
        dispatch.chain(self.by_source.values().map(move |dispatch| (by_source, *dispatch)))
    }

    /// Returns all elements of the frontend.
    #[must_use]
    pub fn elements(&self, frontend: &Frontend) -> BTreeSet<SetElement> {
        let Self { dispatch, by_source, pools, affinity_pools, affinity_targets, allowed, .. } = self;
        let frontend = *frontend;
        let dispatch = dispatch.iter().map(|dispatch| SetElement::Dispatch(frontend, *dispatch));
        let by_source =
            by_source.iter().map(|(source, dispatch)| SetElement::DispatchFrom(frontend, *source, *dispatch));
        let slots = slots_of(pools).map(|(slot, target)| SetElement::Slot(frontend, slot, target));
        let ids = slots_of(affinity_pools).map(|(slot, id)| SetElement::AffinitySlot(frontend, slot, id));
        let targets = affinity_targets
            .iter()
            .map(|((pool, id), target)| SetElement::AffinityTarget(frontend, *pool, *id, *target));
        let allowed = allowed.iter().map(|span| SetElement::Allowed(frontend, *span));
        let range = self.is_range.then_some(SetElement::Range(frontend));
        let failover = self.fails_over.then_some(SetElement::Failover(frontend));
        let group = self.affinity_group.map(|group| SetElement::AffinityGroup(frontend, group));
        let with_affinity = ids.chain(targets).chain(group);
        let elements = dispatch.chain(by_source).chain(slots).chain(with_affinity);
        elements.chain(allowed).chain(range).chain(failover).collect()
    }

    fn insert(&mut self, element: &SetElement) {
        match *element {
            SetElement::Dispatch(_, dispatch) => self.dispatch = Some(dispatch),
            SetElement::DispatchFrom(_, source, dispatch) => {
                self.by_source.insert(source, dispatch);
            }
            SetElement::Slot(_, slot, target) => put(&mut self.pools, slot, Some(target)),
            SetElement::AffinityGroup(_, group) => self.affinity_group = Some(group),
            SetElement::AffinitySlot(_, slot, id) => put(&mut self.affinity_pools, slot, Some(id)),
            SetElement::AffinityTarget(_, pool, id, target) => {
                self.affinity_targets.insert((pool, id), target);
            }
            SetElement::Allowed(_, span) => {
                self.allowed.insert(span);
            }
            SetElement::Range(_) => self.is_range = true,
            SetElement::Failover(_) => self.fails_over = true,
            SetElement::Chain(..)
            | SetElement::VirtualAddress(_)
            | SetElement::Hairpin(_)
            | SetElement::Network(..) => {}
        }
    }

    fn remove(&mut self, element: &SetElement) {
        match *element {
            SetElement::Dispatch(..) => self.dispatch = None,
            SetElement::DispatchFrom(_, source, _) => {
                self.by_source.remove(&source);
            }
            SetElement::Slot(_, slot, _) => put(&mut self.pools, slot, None),
            SetElement::AffinityGroup(..) => self.affinity_group = None,
            SetElement::AffinitySlot(_, slot, _) => put(&mut self.affinity_pools, slot, None),
            SetElement::AffinityTarget(_, pool, id, _) => {
                self.affinity_targets.remove(&(pool, id));
            }
            SetElement::Allowed(_, span) => {
                self.allowed.remove(&span);
            }
            SetElement::Range(_) => self.is_range = false,
            SetElement::Failover(_) => self.fails_over = false,
            SetElement::Chain(..)
            | SetElement::VirtualAddress(_)
            | SetElement::Hairpin(_)
            | SetElement::Network(..) => {}
        }
    }
}

/// Iterates over the target slots that have a value, in all pools.
fn slots_of<T: Copy>(pools: &LiteMap<Pool, Vec<Option<T>>>) -> impl Iterator<Item = (Slot, T)> {
    pools.iter().flat_map(|(&pool, slots)| {
        let slots = (0..).zip(slots).filter_map(|(index, cell)| Some((index, (*cell)?)));
        slots.map(move |(index, cell)| (Slot { pool, index }, cell))
    })
}

/// Sets the value of a target slot to `cell`, or clears the slot if `cell` is `None`.
fn put<T: Copy>(pools: &mut LiteMap<Pool, Vec<Option<T>>>, slot: Slot, cell: Option<T>) {
    let Ok(index) = usize::try_from(slot.index) else { return };
    if pools.is_empty() {
        // Most frontends have a single pool.
        *pools = LiteMap::with_capacity(1);
    }
    let slots = pools.entry(slot.pool).or_default();
    if slots.len() <= index {
        // Lists live long and rarely grow, so no spare capacity is kept.
        slots.reserve_exact(index + 1 - slots.len());
        slots.resize(index + 1, None);
    }
    slots[index] = cell;
    slots.truncate(slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
    if slots.is_empty() {
        pools.remove(&slot.pool);
    }
}

impl NftablesMirror {
    /// Records an element that was read or written.
    pub fn insert(&mut self, element: &SetElement) {
        if let SetElement::AffinityGroup(frontend, group) = element {
            let group = (frontend.destination.family(), *group);
            self.affinity_groups.entry(group).or_default().insert(*frontend);
        }
        match *element {
            SetElement::Chain(numbers, dispatch) => {
                self.chains.insert((numbers, dispatch));
            }
            SetElement::Dispatch(frontend, _)
            | SetElement::DispatchFrom(frontend, ..)
            | SetElement::Slot(frontend, ..)
            | SetElement::AffinityGroup(frontend, _)
            | SetElement::AffinitySlot(frontend, ..)
            | SetElement::AffinityTarget(frontend, ..)
            | SetElement::Allowed(frontend, _)
            | SetElement::Range(frontend)
            | SetElement::Failover(frontend) => self.frontends.entry(frontend).or_default().insert(element),
            SetElement::VirtualAddress(address) => {
                self.virtual_addresses.insert(address, ());
            }
            SetElement::Hairpin(address) => {
                self.hairpins.insert(address, ());
            }
            SetElement::Network(set, edge) => {
                self.networks.insert((set, edge));
            }
        }
    }

    /// Records that an element was removed.
    pub fn remove(&mut self, element: &SetElement) {
        if let SetElement::AffinityGroup(frontend, group) = element {
            let group = (frontend.destination.family(), *group);
            if let Some(frontends) = self.affinity_groups.get_mut(&group) {
                frontends.remove(frontend);
                if frontends.is_empty() {
                    self.affinity_groups.remove(&group);
                }
            }
        }
        match *element {
            SetElement::Chain(numbers, dispatch) => {
                self.chains.remove(&(numbers, dispatch));
            }
            SetElement::Dispatch(frontend, _)
            | SetElement::DispatchFrom(frontend, ..)
            | SetElement::Slot(frontend, ..)
            | SetElement::AffinityGroup(frontend, _)
            | SetElement::AffinitySlot(frontend, ..)
            | SetElement::AffinityTarget(frontend, ..)
            | SetElement::Allowed(frontend, _)
            | SetElement::Range(frontend)
            | SetElement::Failover(frontend) => {
                if let Some(held) = self.frontends.get_mut(&frontend) {
                    held.remove(element);
                    if **held == FrontendElements::default() {
                        self.frontends.remove(&frontend);
                    }
                }
            }
            SetElement::VirtualAddress(address) => {
                self.virtual_addresses.remove(address);
            }
            SetElement::Hairpin(address) => {
                self.hairpins.remove(address);
            }
            SetElement::Network(set, edge) => {
                self.networks.remove(&(set, edge));
            }
        }
    }

    /// Returns the number of kernel objects, the table included. Affinity entries, which packets add, are not
    /// counted.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let Self { structure, chains, frontends, virtual_addresses, hairpins, networks, strays, .. } = self;
        let of_frontends: usize =
            frontends.iter().map(|(frontend, held)| held.elements(frontend).len()).sum();
        let fixed = usize::from(structure.table) + structure.chains.len() + structure.sets.len();
        let others = chains.len() + virtual_addresses.len() + hairpins.len() + networks.len() + strays.len();
        u64::try_from(fixed + of_frontends + others).unwrap_or(u64::MAX)
    }
}
