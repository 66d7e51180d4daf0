//! What we last saw in the kernel or wrote there.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::program::{Frontend, Target};

use super::{
    element::{Dispatch, Edge, Element},
    schema::{Chain, SetId},
};

/// Our table as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    /// The fixed part.
    pub structure: Structure,
    /// The elements of the maps, by frontend.
    pub frontends: BTreeMap<Frontend, Held>,
    /// The virtual addresses.
    pub virtual_addresses: BTreeSet<IpAddr>,
    /// The endpoints that may connect to themselves.
    pub hairpins: BTreeSet<IpAddr>,
    /// The edges of the masqueraded sources.
    pub sources: BTreeSet<Edge>,
    /// Keys of elements that we would not have written.
    pub strays: BTreeSet<(SetId, Vec<u8>)>,
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

/// What the maps hold about one frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Which chain takes its connections.
    pub dispatch: Option<Dispatch>,
    /// The targets by slot.
    pub slots: Vec<Option<Target>>,
}

impl Held {
    /// The targets that a connection can be given.
    #[must_use]
    pub fn targets(&self) -> BTreeSet<Target> {
        match self.dispatch {
            Some(Dispatch::Forward(_)) => self.slots.iter().flatten().copied().collect(),
            Some(Dispatch::Refuse) | None => BTreeSet::new(),
        }
    }
}

impl Mirror {
    /// Takes over an element that the kernel has.
    pub fn insert(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(frontend, dispatch) => {
                self.frontends.entry(frontend).or_default().dispatch = Some(dispatch);
            }
            Element::Slot(frontend, slot, target) => {
                let slots = &mut self.frontends.entry(frontend).or_default().slots;
                let Ok(index) = usize::try_from(slot) else { return };
                if slots.len() <= index {
                    slots.resize(index + 1, None);
                }
                slots[index] = Some(target);
            }
            Element::VirtualAddress(address) => {
                self.virtual_addresses.insert(address);
            }
            Element::Hairpin(address) => {
                self.hairpins.insert(address);
            }
            Element::Source(edge) => {
                self.sources.insert(edge);
            }
        }
    }

    /// Takes over that the kernel has an element no more.
    pub fn remove(&mut self, element: &Element) {
        match *element {
            Element::Dispatch(frontend, _) => {
                if let Some(held) = self.frontends.get_mut(&frontend) {
                    held.dispatch = None;
                    self.drop_if_empty(&frontend);
                }
            }
            Element::Slot(frontend, slot, _) => {
                if let Some(held) = self.frontends.get_mut(&frontend) {
                    if let Some(cell) = usize::try_from(slot).ok().and_then(|index| held.slots.get_mut(index))
                    {
                        *cell = None;
                    }
                    let used = held.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                    held.slots.truncate(used);
                    self.drop_if_empty(&frontend);
                }
            }
            Element::VirtualAddress(address) => {
                self.virtual_addresses.remove(&address);
            }
            Element::Hairpin(address) => {
                self.hairpins.remove(&address);
            }
            Element::Source(edge) => {
                self.sources.remove(&edge);
            }
        }
    }

    fn drop_if_empty(&mut self, frontend: &Frontend) {
        if self.frontends.get(frontend).is_some_and(|held| *held == Held::default()) {
            self.frontends.remove(frontend);
        }
    }

    /// How many kernel objects the table consists of, itself included.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let Self { structure, frontends, virtual_addresses, hairpins, sources, strays } = self;
        let of_frontends: usize = frontends
            .values()
            .map(|held| usize::from(held.dispatch.is_some()) + held.slots.iter().flatten().count())
            .sum();
        let fixed = usize::from(structure.table) + structure.chains.len() + structure.sets.len();
        let elements = of_frontends + virtual_addresses.len() + hairpins.len() + sources.len() + strays.len();
        u64::try_from(fixed + elements).unwrap_or(u64::MAX)
    }
}
