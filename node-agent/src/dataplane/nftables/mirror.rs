//! What we last saw in the kernel or wrote there.

use std::collections::{BTreeMap, BTreeSet};

use litemap::LiteMap;
use model::program::{Frontend, Target};

use super::{
    element::{Dispatch, Edge, Element, Key, Slot, Span, TargetId},
    schema::{Chain, NetworkSet, Pool, SetId, Source},
};
use crate::dataplane::addresses::AddressSet;

/// Our table as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    /// The fixed part.
    pub structure: Structure,
    /// The elements of the maps, by frontend.
    pub frontends: BTreeMap<Frontend, Box<Held>>,
    /// The virtual addresses.
    pub virtual_addresses: AddressSet,
    /// The endpoints that may connect to themselves.
    pub hairpins: AddressSet,
    /// The edges of networks.
    pub networks: BTreeSet<(NetworkSet, Edge)>,
    /// Keys of elements that we would not have written.
    pub strays: BTreeSet<(SetId, Key)>,
}

/// The fixed part of our table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Structure {
    /// Whether the table exists.
    pub table: bool,
    /// Whether it holds chains or sets that are not ours, or ours in another shape: only a new table helps.
    pub foreign: bool,
    /// The chains, and whether their rules are right.
    pub chains: BTreeMap<Chain, bool>,
    /// The sets and maps.
    pub sets: BTreeSet<SetId>,
}

/// What the sets and maps hold about one frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Which chain takes its connections.
    pub dispatch: Option<Dispatch>,
    /// Which chain takes those of a kind of source.
    pub by_source: LiteMap<Source, Dispatch>,
    /// The targets by slot.
    pub pools: LiteMap<Pool, Vec<Option<Target>>>,
    /// The ids of targets by slot, where sources stay on targets.
    pub affinity_pools: LiteMap<Pool, Vec<Option<TargetId>>>,
    /// The targets that the sources of a pool may stay on. A target has the same id in all pools.
    pub affinity_targets: BTreeMap<(Pool, TargetId), Target>,
    /// The sources that may connect.
    pub allowed: BTreeSet<Span>,
    /// Whether the range of ports is known; never of a single port.
    pub is_range: bool,
}

impl Held {
    /// The slots of a pool.
    #[must_use]
    pub fn slots(&self, pool: Pool) -> Vec<Option<Target>> {
        let target =
            |id: &Option<TargetId>| id.and_then(|id| self.affinity_targets.get(&(pool, id))).copied();
        match self.affinity_pools.get(&pool) {
            Some(ids) => ids.iter().map(target).collect(),
            None => self.pools.get(&pool).cloned().unwrap_or_default(),
        }
    }

    /// All of it, as elements.
    #[must_use]
    pub fn elements(&self, frontend: &Frontend) -> BTreeSet<Element> {
        let Self { dispatch, by_source, pools, affinity_pools, affinity_targets, allowed, is_range } = self;
        let frontend = *frontend;
        let dispatch = dispatch.iter().map(|dispatch| Element::Dispatch(frontend, *dispatch));
        let by_source =
            by_source.iter().map(|(source, dispatch)| Element::DispatchFrom(frontend, *source, *dispatch));
        let slots = slots_of(pools).map(|(slot, target)| Element::Slot(frontend, slot, target));
        let ids = slots_of(affinity_pools).map(|(slot, id)| Element::AffinitySlot(frontend, slot, id));
        let targets = affinity_targets
            .iter()
            .map(|((pool, id), target)| Element::AffinityTarget(frontend, *pool, *id, *target));
        let allowed = allowed.iter().map(|span| Element::Allowed(frontend, *span));
        let range = is_range.then_some(Element::Range(frontend));
        dispatch.chain(by_source).chain(slots).chain(ids).chain(targets).chain(allowed).chain(range).collect()
    }

    fn insert(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(_, dispatch) => self.dispatch = Some(dispatch),
            Element::DispatchFrom(_, source, dispatch) => {
                self.by_source.insert(source, dispatch);
            }
            Element::Slot(_, slot, target) => put(&mut self.pools, slot, Some(target)),
            Element::AffinitySlot(_, slot, id) => put(&mut self.affinity_pools, slot, Some(id)),
            Element::AffinityTarget(_, pool, id, target) => {
                self.affinity_targets.insert((pool, id), target);
            }
            Element::Allowed(_, span) => {
                self.allowed.insert(span);
            }
            Element::Range(_) => self.is_range = true,
            Element::VirtualAddress(_) | Element::Hairpin(_) | Element::Network(..) => {}
        }
    }

    fn remove(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(..) => self.dispatch = None,
            Element::DispatchFrom(_, source, _) => {
                self.by_source.remove(&source);
            }
            Element::Slot(_, slot, _) => put(&mut self.pools, slot, None),
            Element::AffinitySlot(_, slot, _) => put(&mut self.affinity_pools, slot, None),
            Element::AffinityTarget(_, pool, id, _) => {
                self.affinity_targets.remove(&(pool, id));
            }
            Element::Allowed(_, span) => {
                self.allowed.remove(&span);
            }
            Element::Range(_) => self.is_range = false,
            Element::VirtualAddress(_) | Element::Hairpin(_) | Element::Network(..) => {}
        }
    }
}

/// The used slots.
fn slots_of<T: Copy>(pools: &LiteMap<Pool, Vec<Option<T>>>) -> impl Iterator<Item = (Slot, T)> {
    pools.iter().flat_map(|(&pool, slots)| {
        let slots = (0..).zip(slots).filter_map(|(index, cell)| Some((index, (*cell)?)));
        slots.map(move |(index, cell)| (Slot { pool, index }, cell))
    })
}

/// Uses or frees a slot.
fn put<T: Copy>(pools: &mut LiteMap<Pool, Vec<Option<T>>>, slot: Slot, cell: Option<T>) {
    let Ok(index) = usize::try_from(slot.index) else { return };
    if pools.is_empty() {
        // Most frontends have one.
        *pools = LiteMap::with_capacity(1);
    }
    let slots = pools.entry(slot.pool).or_default();
    if slots.len() <= index {
        // Lists are held for long and grow seldom: no room is kept for more.
        slots.reserve_exact(index + 1 - slots.len());
        slots.resize(index + 1, None);
    }
    slots[index] = cell;
    slots.truncate(slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
    if slots.is_empty() {
        pools.remove(&slot.pool);
    }
}

impl Mirror {
    /// Takes over an element that the kernel has.
    pub fn insert(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(frontend, _)
            | Element::DispatchFrom(frontend, ..)
            | Element::Slot(frontend, ..)
            | Element::AffinitySlot(frontend, ..)
            | Element::AffinityTarget(frontend, ..)
            | Element::Allowed(frontend, _)
            | Element::Range(frontend) => self.frontends.entry(frontend).or_default().insert(element),
            Element::VirtualAddress(address) => {
                self.virtual_addresses.insert(address, ());
            }
            Element::Hairpin(address) => {
                self.hairpins.insert(address, ());
            }
            Element::Network(set, edge) => {
                self.networks.insert((set, edge));
            }
        }
    }

    /// Takes over that the kernel has an element no more.
    pub fn remove(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(frontend, _)
            | Element::DispatchFrom(frontend, ..)
            | Element::Slot(frontend, ..)
            | Element::AffinitySlot(frontend, ..)
            | Element::AffinityTarget(frontend, ..)
            | Element::Allowed(frontend, _)
            | Element::Range(frontend) => {
                if let Some(held) = self.frontends.get_mut(&frontend) {
                    held.remove(element);
                    if **held == Held::default() {
                        self.frontends.remove(&frontend);
                    }
                }
            }
            Element::VirtualAddress(address) => {
                self.virtual_addresses.remove(address);
            }
            Element::Hairpin(address) => {
                self.hairpins.remove(address);
            }
            Element::Network(set, edge) => {
                self.networks.remove(&(set, edge));
            }
        }
    }

    /// How many kernel objects the table consists of, itself included, and what packets made left out.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let Self { structure, frontends, virtual_addresses, hairpins, networks, strays } = self;
        let of_frontends: usize =
            frontends.iter().map(|(frontend, held)| held.elements(frontend).len()).sum();
        let fixed = usize::from(structure.table) + structure.chains.len() + structure.sets.len();
        let others = virtual_addresses.len() + hairpins.len() + networks.len() + strays.len();
        u64::try_from(fixed + of_frontends + others).unwrap_or(u64::MAX)
    }
}
