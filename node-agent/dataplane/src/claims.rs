//! Index of the frontends (address, protocol and port) and addresses that each Service claims, shared by all
//! backends. The index resolves conflicts between Services. A change of one Service needs no scan of the others
//! and returns the affected objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::Port,
    program::{Destination, Frontend, Program, Route},
    wire::report::FailureReason,
};
use smallvec::SmallVec;

use super::{Outcome, addresses::AddressMap};

const PORT_MIN: Port = Port::new(1).expect("1 is not 0");

/// Frontends and addresses that each Service claims.
///
/// If several Services claim a frontend, the first by key owns it. The same rule applies to overlapping port
/// ranges. A single port inside another Service's range belongs to the Service that claims the single port; the
/// range keeps the other ports.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    programs: BTreeMap<Arc<ServiceKey>, Arc<Program>>,
    /// Claimants of each frontend, in key order.
    frontends: BTreeMap<Frontend, SmallVec<[Arc<ServiceKey>; 1]>>,
    virtual_addresses: AddressMap<u32>,
    hairpins: AddressMap<u32>,
}

/// Objects that a backend must plan again after a change of claims, each with the Service that caused the
/// change; `None` if no Service did.
#[derive(Debug, Default)]
pub struct TouchedObjects {
    /// Frontends whose owner or route may have changed.
    pub frontends: BTreeMap<Frontend, Option<Arc<ServiceKey>>>,
    /// Virtual addresses that a Service gained or lost.
    pub virtual_addresses: AddressMap<Option<Arc<ServiceKey>>>,
    /// Hairpin endpoints: local endpoints that may connect to themselves through a Service.
    pub hairpins: AddressMap<Option<Arc<ServiceKey>>>,
}

impl Claims {
    /// Replaces the claims of a Service, and records the objects of its old and new claims in `touched`, so that
    /// they are planned again.
    pub fn replace(
        &mut self,
        service: &ServiceKey,
        program: Option<Arc<Program>>,
        touched: &mut TouchedObjects,
    ) {
        let service = Arc::new(service.clone());
        if let Some(old) = self.programs.remove(&service) {
            for frontend in old.frontends.keys() {
                touched.frontends.entry(*frontend).or_insert_with(|| Some(Arc::clone(&service)));
                self.touch_rivals(frontend, touched);
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
            self.touch_rivals(frontend, touched);
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

    /// Returns every Service that claims the frontend, in key order. The first one owns the frontend unless
    /// an overlapping port range belongs to another Service.
    #[must_use]
    pub fn claimants(&self, frontend: &Frontend) -> &[Arc<ServiceKey>] {
        self.frontends.get(frontend).map_or(&[], SmallVec::as_slice)
    }

    /// Returns the owner of a frontend; `None` if there is no claimant, or if another Service owns an
    /// overlapping port range.
    #[must_use]
    pub fn owner(&self, frontend: &Frontend) -> Option<&Arc<ServiceKey>> {
        let first = self.claimants(frontend).first()?;
        let is_first =
            |(_, rivals): (_, &[Arc<ServiceKey>])| rivals.first().is_none_or(|rival| first <= rival);
        self.rivals(frontend).all(is_first).then_some(first)
    }

    /// Returns the route (verdicts and targets) of a frontend for its owning Service, or `None` if the
    /// frontend has no owner.
    #[must_use]
    pub fn route(&self, frontend: &Frontend) -> Option<&Route> {
        self.programs.get(self.owner(frontend)?)?.frontends.get(frontend)
    }

    /// Returns the failure to report for a Service that claims a frontend owned by another Service, or `None`
    /// without such a conflict.
    #[must_use]
    pub fn conflict(&self, service: &ServiceKey) -> Option<Outcome> {
        let message = self.program(service)?.frontends.keys().find_map(|frontend| {
            let others = [(*frontend, self.claimants(frontend))].into_iter().chain(self.rivals(frontend));
            let (place, owner) = others
                .filter_map(|(place, claimants)| claimants.first().map(|first| (place, first)))
                .find(|(_, first)| ***first < *service)?;
            let at = match place.destination {
                Destination::Address(address) => address.to_string(),
                Destination::AnyLocal(family) => format!("every {} address of the node", family.as_str()),
            };
            Some(format!("port {} of {at} is already taken by Service {owner}", place.ports))
        })?;
        Some(Outcome::Failed { reason: FailureReason::Unsupported, message })
    }

    /// Iterates over port ranges that overlap with the given frontend's range at the same address and
    /// protocol, each with the Services that claim it.
    fn rivals(&self, frontend: &Frontend) -> impl Iterator<Item = (Frontend, &[Arc<ServiceKey>])> {
        let frontend = *frontend;
        let is_range = |frontend: &Frontend| frontend.ports.single().is_none();
        let first = Frontend { ports: PORT_MIN.into(), ..frontend };
        let range = is_range(&frontend).then(|| self.frontends.range(first..));
        let at_same_place = move |other: &Frontend| {
            other.destination == frontend.destination
                && other.protocol == frontend.protocol
                && other.ports.first() <= frontend.ports.last()
        };
        let others = range.into_iter().flatten().take_while(move |(other, _)| at_same_place(other));
        others
            .filter(move |(other, _)| {
                **other != frontend && is_range(other) && other.ports.overlaps(frontend.ports)
            })
            .map(|(other, claimants)| (*other, claimants.as_slice()))
    }

    fn touch_rivals(&self, frontend: &Frontend, touched: &mut TouchedObjects) {
        for (rival, claimants) in self.rivals(frontend) {
            touched.frontends.entry(rival).or_insert_with(|| claimants.first().cloned());
        }
    }

    /// Returns the packet program of a Service (its frontends with their verdicts), or `None` if the Service
    /// has no claims.
    #[must_use]
    pub fn program(&self, service: &ServiceKey) -> Option<&Arc<Program>> {
        self.programs.get(service)
    }

    /// Returns true if the packet program of any Service contains this virtual address.
    #[must_use]
    pub fn wants_virtual_address(&self, address: IpAddr) -> bool {
        self.virtual_addresses.contains(address)
    }

    /// Returns true if the packet program of any Service contains this address as a local endpoint that may
    /// connect to itself (hairpin).
    #[must_use]
    pub fn wants_hairpin(&self, address: IpAddr) -> bool {
        self.hairpins.contains(address)
    }
}

fn take(counts: &mut AddressMap<u32>, addresses: &BTreeSet<IpAddr>) {
    for address in addresses {
        *counts.or_default(*address) += 1;
    }
}

fn release(counts: &mut AddressMap<u32>, addresses: &BTreeSet<IpAddr>) {
    for address in addresses {
        if let Some(count) = counts.get_mut(*address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(*address);
            }
        }
    }
}

fn note(
    touched: &mut AddressMap<Option<Arc<ServiceKey>>>,
    addresses: &BTreeSet<IpAddr>,
    service: &Arc<ServiceKey>,
) {
    for address in addresses {
        touched.insert(*address, Some(Arc::clone(service)));
    }
}

impl TouchedObjects {
    /// Adds objects found in the kernel to the objects to plan, so that the planner removes those that no Service
    /// claims.
    pub fn add(
        &mut self,
        frontends: impl IntoIterator<Item = Frontend>,
        virtual_addresses: impl IntoIterator<Item = IpAddr>,
        hairpins: impl IntoIterator<Item = IpAddr>,
    ) {
        for frontend in frontends {
            self.frontends.entry(frontend).or_default();
        }
        for address in virtual_addresses {
            self.virtual_addresses.or_default(address);
        }
        for address in hairpins {
            self.hairpins.or_default(address);
        }
    }
}
