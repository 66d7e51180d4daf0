//! What we last saw in the kernel or wrote there, and what each Service asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{
    program::{Frontend, Program, Target, Verdict},
    resource::ServiceKey,
};

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

/// What each Service asks for, indexed so that one Service can change without a look at the others.
#[derive(Debug, Default)]
pub struct Claims {
    programs: BTreeMap<Arc<ServiceKey>, Arc<Program>>,
    /// The claimants of each frontend, in order; the first has it.
    frontends: BTreeMap<Frontend, Vec<Arc<ServiceKey>>>,
    virtual_addresses: BTreeMap<IpAddr, u32>,
    hairpins: BTreeMap<IpAddr, u32>,
}

/// What has to be looked at, and for the sake of which Service.
#[derive(Debug, Default)]
pub struct Touched {
    /// Frontends.
    pub frontends: BTreeMap<Frontend, Option<Arc<ServiceKey>>>,
    /// Virtual addresses.
    pub virtual_addresses: BTreeMap<IpAddr, Option<Arc<ServiceKey>>>,
    /// Endpoints that may connect to themselves.
    pub hairpins: BTreeMap<IpAddr, Option<Arc<ServiceKey>>>,
}

impl Claims {
    /// Replaces what a Service asks for; notes everything that it asked for or asks for.
    pub fn replace(&mut self, service: &ServiceKey, program: Option<Arc<Program>>, touched: &mut Touched) {
        let service = Arc::new(service.clone());
        if let Some(old) = self.programs.remove(&service) {
            for frontend in old.frontends.keys() {
                touched.frontends.entry(*frontend).or_insert_with(|| Some(Arc::clone(&service)));
                if let Some(claimants) = self.frontends.get_mut(frontend) {
                    claimants.retain(|claimant| *claimant != service);
                    if claimants.is_empty() {
                        self.frontends.remove(frontend);
                    }
                }
            }
            release(&mut self.virtual_addresses, &old.virtual_addresses);
            release(&mut self.hairpins, &old.hairpins);
            note(&mut touched.virtual_addresses, &old.virtual_addresses, &service);
            note(&mut touched.hairpins, &old.hairpins, &service);
        }
        let Some(new) = program else { return };
        for frontend in new.frontends.keys() {
            touched.frontends.insert(*frontend, Some(Arc::clone(&service)));
            let claimants = self.frontends.entry(*frontend).or_default();
            if let Err(position) = claimants.binary_search(&service) {
                claimants.insert(position, Arc::clone(&service));
            }
        }
        take(&mut self.virtual_addresses, &new.virtual_addresses);
        take(&mut self.hairpins, &new.hairpins);
        note(&mut touched.virtual_addresses, &new.virtual_addresses, &service);
        note(&mut touched.hairpins, &new.hairpins, &service);
        self.programs.insert(service, new);
    }

    /// The Services that ask for a frontend; the first one has it.
    #[must_use]
    pub fn claimants(&self, frontend: &Frontend) -> &[Arc<ServiceKey>] {
        self.frontends.get(frontend).map_or(&[], Vec::as_slice)
    }

    /// What should happen at a frontend.
    #[must_use]
    pub fn verdict(&self, frontend: &Frontend) -> Option<&Verdict> {
        let owner = self.claimants(frontend).first()?;
        self.programs.get(owner)?.frontends.get(frontend)?.uniform()
    }

    /// What a Service asks for.
    #[must_use]
    pub fn program(&self, service: &ServiceKey) -> Option<&Arc<Program>> {
        self.programs.get(service)
    }

    /// Whether any Service has this virtual address.
    #[must_use]
    pub fn wants_virtual_address(&self, address: IpAddr) -> bool {
        self.virtual_addresses.contains_key(&address)
    }

    /// Whether any Service has this endpoint on this node.
    #[must_use]
    pub fn wants_hairpin(&self, address: IpAddr) -> bool {
        self.hairpins.contains_key(&address)
    }
}

fn take(counts: &mut BTreeMap<IpAddr, u32>, addresses: &BTreeSet<IpAddr>) {
    for address in addresses {
        *counts.entry(*address).or_default() += 1;
    }
}

fn release(counts: &mut BTreeMap<IpAddr, u32>, addresses: &BTreeSet<IpAddr>) {
    for address in addresses {
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

fn note(
    touched: &mut BTreeMap<IpAddr, Option<Arc<ServiceKey>>>,
    addresses: &BTreeSet<IpAddr>,
    service: &Arc<ServiceKey>,
) {
    for address in addresses {
        touched.insert(*address, Some(Arc::clone(service)));
    }
}

impl Touched {
    /// Adds all that the kernel has, so that what nobody asks for is seen.
    pub fn add_all_of(&mut self, mirror: &Mirror) {
        for frontend in mirror.frontends.keys() {
            self.frontends.entry(*frontend).or_default();
        }
        for address in &mirror.virtual_addresses {
            self.virtual_addresses.entry(*address).or_default();
        }
        for address in &mirror.hairpins {
            self.hairpins.entry(*address).or_default();
        }
    }
}
