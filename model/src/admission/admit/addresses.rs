//! Allocation of load balancer addresses in one write.
//!
//! A Service that the write changes first releases its addresses into quarantine, in which they are reserved
//! for the Service, and may then claim them again before other Services. The order of changes within a write
//! therefore does not matter, and addresses that are not claimed again stay released. Allocation has three
//! steps: all Services keep their addresses, then all receive the addresses that they request explicitly,
//! then each receives free ones. Pending Services of earlier writes come last, so that a write is never
//! refused because of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::staged_object::StagedObject;
use crate::{
    cluster::{
        allocate::{Denial, choose, place, room},
        config::ClusterConfig,
        snapshot::{PendingService, Snapshot},
    },
    kinds::{
        address::{AddressSpec, Quarantine, name_of},
        load_balancer::LoadBalancerRequest,
        metadata::Metadata,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{name::Name, net::IpFamily, quantity::Timestamp, violation::Violation},
};

/// Maximum number of pending Services that one write retries, which limits the cost of a write. The next
/// `Operation::RetryPending` continues after the last of them, so every pending Service is retried eventually.
pub const RETRIES_MAX: usize = 256;
/// Maximum number of expired quarantines that one write removes.
const QUARANTINES_CLEARED_MAX: usize = 1024;

/// State of the load balancer addresses during one write: their holders before the write, the address records
/// to restore, and whether addresses have become free.
pub(super) struct Ledger<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) config: &'a ClusterConfig,
    pub(super) now: Timestamp,
    /// Addresses that each changed Service held before the write.
    had: BTreeMap<ServiceKey, Vec<IpAddr>>,
    /// Address records that a rollback restores, by address.
    former: BTreeMap<IpAddr, AddressSpec>,
    touched: BTreeSet<IpAddr>,
    /// True if the write has made addresses free or shareable, so that pending Services may now receive an
    /// address.
    has_room: bool,
}

impl<'a> Ledger<'a> {
    pub(super) const fn new(before: &'a Snapshot, config: &'a ClusterConfig, now: Timestamp) -> Self {
        Self {
            before,
            config,
            now,
            had: BTreeMap::new(),
            former: BTreeMap::new(),
            touched: BTreeSet::new(),
            has_room: false,
        }
    }

    /// Removes the records of addresses whose quarantine has expired, except those that the request itself
    /// contains.
    pub(super) fn clear_ended(&mut self, working: &mut Snapshot, staged: &[StagedObject]) {
        let is_staged = |address: &IpAddr| {
            let name = name_of(*address);
            staged.iter().any(|staged_object| {
                staged_object.key.kind == Kind::Address && staged_object.key.name == name
            })
        };
        let ended = working.quarantines_ended(self.now).filter(|address| !is_staged(address));
        for address in ended.take(QUARANTINES_CLEARED_MAX).collect::<Vec<_>>() {
            self.remove(working, address);
            self.has_room = true;
        }
    }

    /// Releases the addresses of a Service. Addresses that no other Service shares are quarantined: for some
    /// time, no other Service gets them.
    pub(super) fn detach(&mut self, working: &mut Snapshot, key: &ServiceKey) {
        let had: Vec<_> = working.addresses_of(key).collect();
        for address in &had {
            let Some(mut record) = record_of(working, *address) else { continue };
            record.services.remove(key);
            if record.services.is_empty() {
                record.sharing_key = None;
                let pool = record.pool.as_ref().and_then(|pool| self.before.pool(pool));
                let seconds = pool.map_or(0, crate::kinds::address_pool::AddressPoolSpec::quarantine);
                let until = Timestamp::from_unix_seconds(self.now.unix_seconds() + i64::from(seconds));
                record.quarantine = Some(Quarantine { until, former: key.clone() });
            }
            self.put(working, record);
        }
        if !had.is_empty() {
            self.had.insert(key.clone(), had);
        }
    }

    /// Sets the address records that a rollback restores to `former`. A Service in such a record may claim
    /// its former address first, even before the addresses that it has now.
    pub(super) fn recall(&mut self, former: &[AddressSpec]) {
        for record in former {
            for service in &record.services {
                self.had.entry(service.clone()).or_default().insert(0, record.address);
            }
            self.former.insert(record.address, record.clone());
        }
    }

    /// Allocates addresses to the Services of the write first, then to pending Services.
    pub(super) fn settle(
        &mut self,
        working: &mut Snapshot,
        staged: &[StagedObject],
        has_pruned: bool,
        displaced: &BTreeSet<ServiceKey>,
        retry: Option<Option<&PendingService>>,
        found: &mut Vec<Violation>,
    ) {
        let services: Vec<usize> = (0..staged.len())
            .filter(|index| staged[*index].key.kind == Kind::Service && staged[*index].new.is_some())
            .collect();
        for key in displaced {
            self.keep(working, key, &mut Vec::new());
        }
        for index in &services {
            let staged_object = &staged[*index];
            let Some(key) = staged_object.service_key().filter(|key| !displaced.contains(key)) else {
                continue;
            };
            let mut own = Vec::new();
            self.keep(working, &key, &mut own);
            found.extend(own.into_iter().map(|violation| staged_object.place(violation)));
        }
        for index in &services {
            let staged_object = &staged[*index];
            let Some(key) = staged_object.service_key() else { continue };
            let mut own = Vec::new();
            self.claim(working, &key, &mut own);
            found.extend(own.into_iter().map(|violation| staged_object.place(violation)));
        }
        for index in &services {
            if let Some(key) = staged[*index].service_key() {
                self.serve(working, &key, true);
            }
        }
        for key in displaced {
            self.serve(working, key, false);
        }
        self.drop_useless_quarantines(working);
        // A new Service or Node only occupies addresses and frees none; a new pool adds some.
        let makes_room = |staged_object: &StagedObject| match staged_object.key.kind {
            Kind::AddressPool => true,
            Kind::Service | Kind::Node => staged_object.is_known(),
            Kind::BfdProfile
            | Kind::BgpPeer
            | Kind::Advertisement
            | Kind::DnsZone
            | Kind::Certificate
            | Kind::Gateway
            | Kind::HttpRoute
            | Kind::TlsRoute
            | Kind::WorkloadNetwork
            | Kind::NetworkPolicy
            | Kind::Address
            | Kind::Workload
            | Kind::EndpointSet
            | Kind::EndpointHealth
            | Kind::Block
            | Kind::Attachment => false,
        };
        if retry.is_some() || self.has_room || has_pruned || staged.iter().any(makes_room) {
            self.retry(working, retry.flatten());
        }
        self.restore_orders(working);
    }

    /// Returns the address records that the write has changed, as staged objects.
    pub(super) fn into_staged(self, working: &Snapshot) -> Vec<StagedObject> {
        let changed = self.touched.iter().filter_map(|address| {
            let (old, new) = (self.before.address(*address), working.address(*address));
            if old.is_none() && new.is_none() || old.zip(new).is_some_and(|(old, new)| old.spec == new.spec) {
                return None;
            }
            Some(StagedObject::of_record(
                record_key(*address),
                old.cloned(),
                new.map(|new| Object::clone(new)),
            ))
        });
        changed.collect()
    }

    /// Reassigns to a Service the addresses that it held before the write, if it still requests them and the
    /// rules permit it. A denial is a violation if the Service requests the address explicitly or the reason
    /// is sharing; otherwise the Service receives a different address later.
    fn keep(&mut self, working: &mut Snapshot, key: &ServiceKey, found: &mut Vec<Violation>) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = LoadBalancerRequest::of(&object) else { return };
        for address in self.had.get(key).cloned().unwrap_or_default() {
            if !wanted.wants(address)
                || !wanted.lacking(working.addresses_of(key)).contains(&IpFamily::of(address))
            {
                continue;
            }
            let pool = place(working, Some(self.config), &wanted, address, true);
            let allowed = pool.and_then(|pool| room(working, &wanted, address, true).map(|()| pool));
            match allowed {
                Ok(pool) => self.attach(working, &wanted, address, pool),
                Err(denial) if wanted.named(IpFamily::of(address)).is_some() => {
                    found.push(denied(wanted.pointer_to(address), address, &denial));
                }
                Err(denial) if denial.is_about_sharing() => {
                    found.push(denied("/spec/loadBalancer/sharingKey".to_owned(), address, &denial));
                }
                // The Service loses this address and gets another one.
                Err(_) => {}
            }
        }
    }

    /// Assigns to a Service the addresses that it requests explicitly. If one is not available, a new request is a
    /// violation; a request from an earlier write leaves the Service pending.
    fn claim(&mut self, working: &mut Snapshot, key: &ServiceKey, found: &mut Vec<Violation>) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = LoadBalancerRequest::of(&object) else { return };
        let old = self.before.service(key).and_then(|old| LoadBalancerRequest::of(old));
        let stands = |address: IpAddr| old.as_ref().is_some_and(|old| old.addresses.contains(&address));
        let lacking = wanted.lacking(working.addresses_of(key));
        for address in lacking.iter().filter_map(|family| wanted.named(*family)) {
            match self.allowed(working, &wanted, address, true) {
                // An all-or-nothing request is fulfilled by `serve`, when all its addresses are known.
                Ok(pool) if !wanted.takes_all_or_none() => self.attach(working, &wanted, address, pool),
                Ok(_) => {}
                Err(_) if stands(address) => {}
                Err(denial) => found.push(denied(wanted.pointer_to(address), address, &denial)),
            }
        }
    }

    /// Allocates the missing addresses of a Service, as far as addresses are available. If `may_take_freed`
    /// is true, an address that another Service released in this write may be allocated in spite of its
    /// quarantine.
    fn serve(&mut self, working: &mut Snapshot, key: &ServiceKey, may_take_freed: bool) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = LoadBalancerRequest::of(&object) else { return };
        let lacking = wanted.lacking(working.addresses_of(key));
        let picks: Vec<_> = lacking
            .iter()
            .map(|family| match wanted.named(*family) {
                Some(address) => {
                    let pool = self.allowed(working, &wanted, address, may_take_freed).ok()?;
                    Some((address, pool))
                }
                None => choose(working, &wanted, *family),
            })
            .collect();
        if wanted.takes_all_or_none() && picks.contains(&None) {
            return;
        }
        for (address, pool) in picks.into_iter().flatten() {
            self.attach(working, &wanted, address, pool);
        }
    }

    /// Allocates addresses to a limited number of pending Services, oldest first, starting with the one that
    /// follows `after`.
    fn retry(&mut self, working: &mut Snapshot, after: Option<&PendingService>) {
        let turn: Vec<_> =
            working.pending(after).take(RETRIES_MAX).map(|pending| pending.service.clone()).collect();
        // A served Service may make its address shareable for earlier ones with the same sharing key; hence the
        // second pass.
        for _ in 0..2 {
            self.has_room = false;
            for key in &turn {
                self.serve(working, key, false);
            }
            if !self.has_room {
                return;
            }
        }
    }

    fn allowed(
        &self,
        working: &Snapshot,
        wanted: &LoadBalancerRequest<'_>,
        address: IpAddr,
        may_take_freed: bool,
    ) -> Result<Option<Name>, Denial> {
        let was_held = || self.before.load_balancer_ip_holder(address).is_some();
        let pool = place(working, Some(self.config), wanted, address, false)?;
        room(working, wanted, address, may_take_freed && was_held())?;
        Ok(pool)
    }

    fn attach(
        &mut self,
        working: &mut Snapshot,
        wanted: &LoadBalancerRequest<'_>,
        address: IpAddr,
        pool: Option<Name>,
    ) {
        let known = record_of(working, address);
        let mut record = known.unwrap_or_else(|| AddressSpec::new(address, pool.clone()));
        record.pool = pool;
        record.services.insert(wanted.key.clone());
        record.sharing_key.clone_from(&wanted.sharing_key);
        record.quarantine = None;
        self.has_room |= wanted.sharing_key.is_some();
        self.put(working, record);
    }

    /// Sets the pool in the record of an address in use; `None` if no pool contains the address.
    pub(super) fn set_pool(&mut self, working: &mut Snapshot, address: IpAddr, pool: Option<Name>) {
        if let Some(mut record) = record_of(working, address).filter(|record| record.pool != pool) {
            record.pool = pool;
            self.put(working, record);
        }
    }

    /// Removes quarantines that have expired, or whose address is no longer assignable from its pool.
    fn drop_useless_quarantines(&mut self, working: &mut Snapshot) {
        for address in self.touched.clone() {
            let Some(record) = record_of(working, address) else { continue };
            let Some(quarantine) = record.quarantine.filter(|_| record.services.is_empty()) else { continue };
            let pool = working.pool_of(address).filter(|pool| Some(*pool) == record.pool.as_ref());
            let is_usable =
                pool.and_then(|pool| working.pool(pool)).is_some_and(|pool| pool.is_usable(address));
            if !is_usable || quarantine.until <= self.now {
                self.remove(working, address);
            }
        }
    }

    /// Restores the former order of announcing nodes for each address that a rollback restores and that is in
    /// use. Nodes that no longer exist or count as lost are omitted.
    fn restore_orders(&mut self, working: &mut Snapshot) {
        for (address, former) in std::mem::take(&mut self.former) {
            let Some(mut record) = record_of(working, address) else { continue };
            let is_there = |node: &Name| {
                let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
                working.get(&key).is_some() && !working.is_lost(node)
            };
            let mut order = former.announcement;
            order.candidates.retain(|candidate| is_there(&candidate.node));
            // Keys are no part of the order: with a former key, the nodes would lose their sessions.
            for candidate in &mut order.candidates {
                let mut now = record.announcement.candidates.iter();
                if let Some(now) = now.find(|now| now.node == candidate.node) {
                    candidate.peer_public_key = now.peer_public_key;
                }
            }
            let is_so = record.announcement.candidates == order.candidates;
            if record.services.is_empty() || order.candidates.is_empty() || is_so {
                continue;
            }
            // Agents follow the order with the higher epoch, and the order being undone may still be in
            // transit.
            order.epoch = order.epoch.max(record.announcement.epoch).saturating_add(1);
            record.announcement = order;
            self.put(working, record);
        }
    }

    fn put(&mut self, working: &mut Snapshot, record: AddressSpec) {
        let address = record.address;
        let metadata = working.address(address).or_else(|| self.before.address(address));
        let metadata =
            metadata.map_or_else(|| Metadata::named(name_of(address), None), |known| known.metadata.clone());
        working.put(Arc::new(Object { metadata, spec: Spec::Address(Box::new(record)) }));
        self.touched.insert(address);
    }

    fn remove(&mut self, working: &mut Snapshot, address: IpAddr) {
        working.remove(&record_key(address));
        self.touched.insert(address);
    }
}

fn record_key(address: IpAddr) -> ObjectKey {
    ObjectKey { kind: Kind::Address, namespace: None, name: name_of(address) }
}

fn record_of(working: &Snapshot, address: IpAddr) -> Option<AddressSpec> {
    working.address(address)?.as_address().cloned()
}

fn denied(pointer: String, address: IpAddr, denial: &Denial) -> Violation {
    let message = format!("must be an address that the Service may have; {address} {denial}");
    let violation = Violation::new(pointer, denial.code(), message).hint(denial.hint());
    match denial.holder() {
        Some(holder) => violation.naming(&holder.namespace, &holder.name),
        None => violation,
    }
}
