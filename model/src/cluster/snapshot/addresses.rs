//! Index of load balancer addresses: pools, address records, quarantines (reservations of released
//! addresses), and Services that lack an address.
//!
//! An address record names the Services that have the address, and each Service lists its ports. The Service
//! behind each port of an address, and the Services that lack an address, are derived from both, and updated
//! when a record or a Service changes. The entries depend only on the current objects, so snapshots built
//! from the same objects in any order are equal.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::{Entry, RoutedFrontend, Snapshot};
use crate::{
    cluster::pool_space::Numbering,
    kinds::{
        address::{AddressSpec, name_of},
        address_pool::{AddressPoolSpec, AddressRange},
        advertisement::AdvertisementSpec,
        load_balancer::LoadBalancerRequest,
        resource::{Kind, Object, ObjectKey, ServiceKey},
        service::ServiceSpec,
    },
    primitives::{
        interval_set::IntervalSet, name::Name, net::IpFamily, non_empty_set::NonEmptySet, quantity::Timestamp,
    },
};

/// Indices of pools, load balancer addresses and pending Services in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressIndex {
    /// Address ranges of all pools by their first address. Ranges do not overlap, so the last entry at or
    /// below an address is the only one that can contain it.
    pool_ranges: OrdMap<(IpFamily, u128), PoolRange>,
    /// Pools that may be used for Services that name no pool, in the order of allocation.
    pool_order: OrdSet<PoolRank>,
    advertisements_by_pool: OrdMap<Name, NonEmptySet<Name>>,
    /// Addresses that have a record, because they are in use or in quarantine (released recently), as
    /// intervals of their numbers in each numbering.
    recorded: OrdMap<Numbering, IntervalSet>,
    by_service: OrdMap<ServiceKey, NonEmptySet<IpAddr>>,
    by_sharing_key: OrdMap<Name, NonEmptySet<IpAddr>>,
    /// Addresses that Services have, by pool and IP family. Addresses outside of every pool are at pool `None`.
    held: OrdMap<(Option<Name>, IpFamily), NonEmptySet<IpAddr>>,
    /// Number of addresses that Services hold, inside and outside of pools.
    held_count: usize,
    quarantined: OrdMap<(Option<Name>, IpFamily), NonEmptySet<IpAddr>>,
    quarantine_ends: OrdSet<(Timestamp, IpAddr)>,
    by_former: OrdMap<ServiceKey, NonEmptySet<IpAddr>>,
    external_ips: OrdMap<IpAddr, NonEmptySet<ServiceKey>>,
    /// Services of type LoadBalancer that lack an address in at least one of their IP families, oldest first.
    pending: OrdSet<PendingService>,
}

/// Service that lacks a load balancer address, ordered by its creation time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingService {
    created: Option<Timestamp>,
    /// Key of the pending Service.
    pub service: ServiceKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PoolRange {
    last: u128,
    pool: Name,
}

/// Position of a pool in the order of allocation. Pools that are limited to some namespaces or Services come
/// first. Among equals, the lower `spec.priority` comes first (absent is last), then the name decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PoolRank {
    is_for_all: bool,
    priority: u32,
    pool: Name,
}

impl Snapshot {
    /// Returns the spec of an AddressPool, or `None` if it does not exist.
    #[must_use]
    pub fn pool(&self, name: &Name) -> Option<&AddressPoolSpec> {
        let key = ObjectKey { kind: Kind::AddressPool, namespace: None, name: name.clone() };
        self.objects.get(&key)?.as_address_pool()
    }

    /// Returns the record of a load balancer address, or `None` if the address is free.
    #[must_use]
    pub fn address(&self, address: IpAddr) -> Option<&Arc<Object>> {
        self.objects.get(&ObjectKey { kind: Kind::Address, namespace: None, name: name_of(address) })
    }

    /// Returns the load balancer addresses whose records name a Service.
    pub fn addresses_of(&self, service: &ServiceKey) -> impl Iterator<Item = IpAddr> + '_ {
        self.load_balancing.by_service.get(service).into_iter().flatten().copied()
    }

    /// Returns a Service that holds a load balancer address, or `None` if no Service holds it.
    #[must_use]
    pub fn load_balancer_ip_holder(&self, address: IpAddr) -> Option<&ServiceKey> {
        self.address(address)?.as_address()?.services.first()
    }

    /// Returns the pool that contains an address, even if the pool reserves the address; `None` if no pool
    /// contains it.
    #[must_use]
    pub fn pool_of(&self, address: IpAddr) -> Option<&Name> {
        self.pool_overlapping(&AddressRange::Between(address, address))
    }

    /// Returns the name of a pool that overlaps a range of addresses, or `None` if no pool does.
    #[must_use]
    pub fn pool_overlapping(&self, range: &AddressRange) -> Option<&Name> {
        let (first, last) = range.numbers();
        let ranges = &self.load_balancing.pool_ranges;
        let ((family, _), nearest) = ranges.get_prev(&(range.family(), last))?;
        (*family == range.family() && nearest.last >= first).then_some(&nearest.pool)
    }

    /// Returns the pools that are used for Services that name no pool, in the order of allocation.
    pub(crate) fn pools_in_order(&self) -> impl Iterator<Item = (&Name, &AddressPoolSpec)> {
        let ranks = self.load_balancing.pool_order.iter();
        ranks.filter_map(|rank| Some((&rank.pool, self.pool(&rank.pool)?)))
    }

    /// Returns the name of an Advertisement that refers to a pool by name, or `None` if there is none.
    #[must_use]
    pub fn advertisement_of_pool(&self, pool: &Name) -> Option<&Name> {
        self.load_balancing.advertisements_by_pool.get(pool).and_then(NonEmptySet::first)
    }

    /// Returns the first assignable address of a pool that is neither in use nor in quarantine (released
    /// recently); `None` if there is none.
    #[must_use]
    pub fn first_free_of_pool(&self, pool: &AddressPoolSpec, family: IpFamily) -> Option<IpAddr> {
        pool.first_free(family, |numbering, first, last| {
            let recorded = self.load_balancing.recorded.get(&numbering);
            recorded.map_or(Some(first), |recorded| recorded.first_free(first, last))
        })
    }

    /// Returns the number of load balancer addresses that Services hold.
    pub(super) const fn held_addresses(&self) -> usize {
        self.load_balancing.held_count
    }

    /// Returns the addresses of a pool that Services hold; for `None`, the held addresses outside of every
    /// pool.
    pub fn held_of_pool<'a>(&'a self, pool: Option<&'a Name>) -> impl Iterator<Item = IpAddr> + 'a {
        let held = &self.load_balancing.held;
        IpFamily::ALL
            .into_iter()
            .filter_map(move |family| held.get(&(pool.cloned(), family)))
            .flatten()
            .copied()
    }

    /// Returns the addresses in a range that Services have and that no pool contains.
    pub(crate) fn held_of_no_pool_in<'a>(
        &'a self,
        range: &AddressRange,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        let held = self.load_balancing.held.get(&(None, range.family()));
        let ends = range.first()..=range.last();
        held.into_iter().flat_map(move |held| held.range(ends.clone())).copied()
    }

    /// Returns the numbers of assigned and of quarantined (recently released) addresses of a pool, in one IP
    /// family.
    #[must_use]
    pub fn counts_of_pool(&self, pool: &Name, family: IpFamily) -> (usize, usize) {
        let count = |index: &OrdMap<_, NonEmptySet<_>>| {
            index.get(&(Some(pool.clone()), family)).map_or(0, NonEmptySet::len)
        };
        (count(&self.load_balancing.held), count(&self.load_balancing.quarantined))
    }

    /// Returns the addresses in quarantine (released recently) that are reserved for a Service, because the
    /// Service had them before.
    pub(crate) fn held_back_for(&self, service: &ServiceKey) -> impl Iterator<Item = IpAddr> + '_ {
        self.load_balancing.by_former.get(service).into_iter().flatten().copied()
    }

    /// Returns the addresses that Services with the given sharing key have.
    pub(crate) fn shared_by(&self, key: &Name) -> impl Iterator<Item = IpAddr> + '_ {
        self.load_balancing.by_sharing_key.get(key).into_iter().flatten().copied()
    }

    /// Returns the time at which the next quarantine expires, if any.
    #[must_use]
    pub fn next_quarantine_end(&self) -> Option<Timestamp> {
        self.load_balancing.quarantine_ends.get_min().map(|(until, _)| *until)
    }

    /// Returns the addresses whose quarantine has expired at `now`, the earliest first.
    pub(crate) fn quarantines_ended(&self, now: Timestamp) -> impl Iterator<Item = IpAddr> + '_ {
        let ends = self.load_balancing.quarantine_ends.iter();
        ends.take_while(move |(until, _)| *until <= now).map(|(_, address)| *address)
    }

    /// Returns a Service that has an address as external IP, or `None` if no Service has it.
    #[must_use]
    pub fn external_ip_holder(&self, address: IpAddr) -> Option<&ServiceKey> {
        self.load_balancing.external_ips.get(&address).and_then(NonEmptySet::first)
    }

    /// Returns the first external IP in a range, with a Service that has it; `None` if the range contains no
    /// external IP.
    pub(crate) fn external_ip_in(&self, range: &AddressRange) -> Option<(IpAddr, &ServiceKey)> {
        let (address, holders) =
            self.load_balancing.external_ips.range(range.first()..=range.last()).next()?;
        Some((*address, holders.first()?))
    }

    /// Returns the Services that lack a load balancer address, oldest first, starting after `after` if it is
    /// given.
    pub fn pending<'a>(
        &'a self,
        after: Option<&PendingService>,
    ) -> impl Iterator<Item = &'a PendingService> + 'a {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, |after| Excluded(after.clone()));
        self.load_balancing.pending.range((start, Unbounded))
    }

    /// Returns the number of Services that lack a load balancer address.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.load_balancing.pending.len()
    }

    pub(super) fn index_pool(&mut self, name: &Name, spec: &AddressPoolSpec, entry: Entry) {
        let index = &mut self.load_balancing;
        for range in &spec.addresses {
            let (first, last) = range.numbers();
            let value = PoolRange { last, pool: name.clone() };
            entry.map(&mut index.pool_ranges, (range.family(), first), &value);
        }
        if spec.auto_assign {
            let rank = PoolRank {
                is_for_all: spec.namespaces.is_empty() && spec.service_selectors.is_empty(),
                priority: spec.priority.unwrap_or(u32::MAX),
                pool: name.clone(),
            };
            entry.member(&mut index.pool_order, rank);
        }
    }

    pub(super) fn index_advertisement(&mut self, name: &Name, spec: &AdvertisementSpec, entry: Entry) {
        for pool in &spec.address_pools {
            entry.set(&mut self.load_balancing.advertisements_by_pool, pool.clone(), name.clone());
        }
    }

    pub(super) fn index_address(&mut self, spec: &AddressSpec, entry: Entry) {
        let address = spec.address;
        let index = &mut self.load_balancing;
        for numbering in Numbering::ALL {
            if let Some(number) = numbering.number(address) {
                entry.number(&mut index.recorded, numbering, number);
            }
        }
        let of_pool = (spec.pool.clone(), IpFamily::of(address));
        if !spec.services.is_empty() {
            entry.set(&mut index.held, of_pool.clone(), address);
            entry.count(&mut index.held_count, 1);
        }
        if let Some(key) = spec.sharing_key.as_ref().filter(|_| !spec.services.is_empty()) {
            entry.set(&mut index.by_sharing_key, key.clone(), address);
        }
        if let Some(quarantine) = &spec.quarantine {
            entry.set(&mut index.quarantined, of_pool, address);
            entry.member(&mut index.quarantine_ends, (quarantine.until, address));
            entry.set(&mut index.by_former, quarantine.former.clone(), address);
        }
        for service in &spec.services {
            entry.set(&mut self.load_balancing.by_service, service.clone(), address);
            if let Some(object) = self.service(service).cloned() {
                if let Some(spec) = object.as_service() {
                    self.index_frontends(spec, service, &BTreeSet::from([address]), entry);
                }
                self.index_pending(&object, Entry::Add);
            }
        }
    }

    /// Adds or removes the index entries for the ports of a Service at its external and load balancer addresses.
    /// `object` is the Service itself.
    pub(super) fn index_routed(&mut self, object: &Object, service: &ServiceKey, entry: Entry) {
        let Some(spec) = object.as_service() else { return };
        for address in &spec.external_ips {
            entry.set(&mut self.load_balancing.external_ips, *address, service.clone());
        }
        let addresses = spec.external_ips.iter().copied().chain(self.addresses_of(service)).collect();
        self.index_frontends(spec, service, &addresses, entry);
        self.index_pending(object, entry);
    }

    fn index_frontends(
        &mut self,
        spec: &ServiceSpec,
        service: &ServiceKey,
        addresses: &BTreeSet<IpAddr>,
        entry: Entry,
    ) {
        for port in &spec.ports {
            for address in addresses {
                let frontend = RoutedFrontend { last: port.range().last(), holder: service.clone() };
                let at = (*address, port.protocol, port.range().first());
                entry.map(&mut self.routed_frontends, at, &frontend);
            }
        }
    }

    /// Adds a Service to the pending Services if it exists and lacks an address; removes it otherwise.
    fn index_pending(&mut self, object: &Object, entry: Entry) {
        let Some(wanted) = LoadBalancerRequest::of(object) else { return };
        let lacks = || !wanted.lacking(self.addresses_of(&wanted.key)).is_empty();
        let waits = matches!(entry, Entry::Add) && lacks();
        let one = PendingService { created: object.metadata.creation_timestamp, service: wanted.key.clone() };
        let entry = if waits { Entry::Add } else { Entry::Remove };
        entry.member(&mut self.load_balancing.pending, one);
    }
}
