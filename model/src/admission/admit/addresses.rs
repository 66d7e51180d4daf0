//! Load balancer addresses of a write: taken from the Services it touches, kept, claimed by value, given out, freed.
//!
//! A Service that the write touches gives up its addresses first, into quarantine, and then has the first claim on them.
//! So whatever the write does to pools, Services and their neighbours is judged on one state, and what nobody claims
//! again is freed. The order among Services: all keep, then all get what they name, then each gets what is free; those
//! that waited before come last, so that a write is never refused for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::candidate::Candidate;
use crate::{
    cluster::{
        allocate::{Denial, choose, place, room},
        config::ClusterConfig,
        snapshot::{PendingService, Snapshot},
    },
    kinds::{
        address::{AddressSpec, Quarantine, name_of},
        load_balancer::Wanted,
        metadata::Metadata,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{name::Name, net::IpFamily, quantity::Timestamp, violation::Violation},
};

/// Waiting Services that one write tries to serve, so that its cost does not grow with how many wait. The next turn
/// begins where this one ended (`Operation::RetryPending`), so each of them has its turn.
pub const RETRIES_MAX: usize = 256;
/// Ended quarantines that one write clears away; the next takes the rest.
const QUARANTINES_CLEARED_MAX: usize = 1024;

/// The addresses of one write on their way.
pub(super) struct Ledger<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) config: &'a ClusterConfig,
    now: Timestamp,
    /// What each Service had that this write touches.
    had: BTreeMap<ServiceKey, Vec<IpAddr>>,
    /// What the records were that a rollback brings back.
    former: BTreeMap<IpAddr, AddressSpec>,
    touched: BTreeSet<IpAddr>,
    /// Whether addresses became free or open to others, so that Services that wait may have them.
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

    /// Clears away quarantines that have ended.
    pub(super) fn clear_ended(&mut self, working: &mut Snapshot, candidates: &[Candidate]) {
        let is_candidate = |address: &IpAddr| {
            let name = name_of(*address);
            candidates
                .iter()
                .any(|candidate| candidate.key.kind == Kind::Address && candidate.key.name == name)
        };
        let ended = working.quarantines_ended(self.now).filter(|address| !is_candidate(address));
        for address in ended.take(QUARANTINES_CLEARED_MAX).collect::<Vec<_>>() {
            self.remove(working, address);
            self.has_room = true;
        }
    }

    /// Takes its addresses from a Service, for the time being.
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

    /// Gives Services the first claim on what they had in former records, before what they have.
    pub(super) fn recall(&mut self, former: &[AddressSpec]) {
        for record in former {
            for service in &record.services {
                self.had.entry(service.clone()).or_default().insert(0, record.address);
            }
            self.former.insert(record.address, record.clone());
        }
    }

    /// Gives the Services of the write, and then those that wait, what they are to have.
    pub(super) fn settle(
        &mut self,
        working: &mut Snapshot,
        candidates: &[Candidate],
        has_pruned: bool,
        displaced: &BTreeSet<ServiceKey>,
        retry: Option<Option<&PendingService>>,
        found: &mut Vec<Violation>,
    ) {
        let services: Vec<usize> = (0..candidates.len())
            .filter(|index| candidates[*index].key.kind == Kind::Service && candidates[*index].new.is_some())
            .collect();
        for key in displaced {
            self.keep(working, key, &mut Vec::new());
        }
        for index in &services {
            let candidate = &candidates[*index];
            let Some(key) = candidate.service_key().filter(|key| !displaced.contains(key)) else { continue };
            let mut own = Vec::new();
            self.keep(working, &key, &mut own);
            found.extend(own.into_iter().map(|violation| candidate.place(violation)));
        }
        for index in &services {
            let candidate = &candidates[*index];
            let Some(key) = candidate.service_key() else { continue };
            let mut own = Vec::new();
            self.claim(working, &key, &mut own);
            found.extend(own.into_iter().map(|violation| candidate.place(violation)));
        }
        for index in &services {
            if let Some(key) = candidates[*index].service_key() {
                self.serve(working, &key, true);
            }
        }
        for key in displaced {
            self.serve(working, key, false);
        }
        self.drop_useless(working);
        // What is new takes, and frees nothing; a new pool does.
        let makes_room = |candidate: &Candidate| match candidate.key.kind {
            Kind::AddressPool => true,
            Kind::Service | Kind::Node => candidate.is_known(),
            Kind::BfdProfile
            | Kind::BgpPeer
            | Kind::Advertisement
            | Kind::Address
            | Kind::Workload
            | Kind::EndpointSet
            | Kind::EndpointHealth => false,
        };
        if retry.is_some() || self.has_room || has_pruned || candidates.iter().any(makes_room) {
            self.retry(working, retry.flatten());
        }
        self.restore_orders(working);
    }

    /// The records that the write changes.
    pub(super) fn into_candidates(self, working: &Snapshot) -> Vec<Candidate> {
        let changed = self.touched.iter().filter_map(|address| {
            let (old, new) = (self.before.address(*address), working.address(*address));
            if old.is_none() && new.is_none() || old.zip(new).is_some_and(|(old, new)| old.spec == new.spec) {
                return None;
            }
            Some(Candidate::of_record(record_key(*address), old.cloned(), new.map(|new| Object::clone(new))))
        });
        changed.collect()
    }

    /// Gives a Service what it had, as far as it still wants it and may have it.
    fn keep(&mut self, working: &mut Snapshot, key: &ServiceKey, found: &mut Vec<Violation>) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = Wanted::of(&object) else { return };
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
                // It loses this one and gets another.
                Err(_) => {}
            }
        }
    }

    /// Gives a Service the addresses that it names. A request that stands since an earlier write waits when it cannot be
    /// met; a new one is refused.
    fn claim(&mut self, working: &mut Snapshot, key: &ServiceKey, found: &mut Vec<Violation>) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = Wanted::of(&object) else { return };
        let old = self.before.service(key).and_then(|old| Wanted::of(old));
        let stands = |address: IpAddr| old.as_ref().is_some_and(|old| old.addresses.contains(&address));
        let lacking = wanted.lacking(working.addresses_of(key));
        for address in lacking.iter().filter_map(|family| wanted.named(*family)) {
            match self.allowed(working, &wanted, address, true) {
                // One that takes all or none is served when everything is known.
                Ok(pool) if !wanted.takes_all_or_none() => self.attach(working, &wanted, address, pool),
                Ok(_) => {}
                Err(_) if stands(address) => {}
                Err(denial) => found.push(denied(wanted.pointer_to(address), address, &denial)),
            }
        }
    }

    /// Gives a Service what it still lacks, as far as it can be had.
    fn serve(&mut self, working: &mut Snapshot, key: &ServiceKey, may_take_freed: bool) {
        let Some(object) = working.service(key).cloned() else { return };
        let Some(wanted) = Wanted::of(&object) else { return };
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

    /// Tries to serve Services that wait, the oldest first.
    fn retry(&mut self, working: &mut Snapshot, after: Option<&PendingService>) {
        let turn: Vec<_> =
            working.pending(after).take(RETRIES_MAX).map(|pending| pending.service.clone()).collect();
        // Who is served may open an address to those before it that name the same sharing key: once more for them.
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
        wanted: &Wanted<'_>,
        address: IpAddr,
        may_take_freed: bool,
    ) -> Result<Option<Name>, Denial> {
        let was_held = || self.before.load_balancer_ip_holder(address).is_some();
        let pool = place(working, Some(self.config), wanted, address, false)?;
        room(working, wanted, address, may_take_freed && was_held())?;
        Ok(pool)
    }

    fn attach(&mut self, working: &mut Snapshot, wanted: &Wanted<'_>, address: IpAddr, pool: Option<Name>) {
        let known = record_of(working, address);
        let mut record = known.unwrap_or_else(|| AddressSpec::new(address, pool.clone()));
        record.pool = pool;
        record.services.insert(wanted.key.clone());
        record.sharing_key.clone_from(&wanted.sharing_key);
        record.quarantine = None;
        self.has_room |= wanted.sharing_key.is_some();
        self.put(working, record);
    }

    /// Moves a held address to the pool that has it.
    pub(super) fn set_pool(&mut self, working: &mut Snapshot, address: IpAddr, pool: Option<Name>) {
        if let Some(mut record) = record_of(working, address).filter(|record| record.pool != pool) {
            record.pool = pool;
            self.put(working, record);
        }
    }

    /// Nothing is held back that could not be given again, or for no time.
    fn drop_useless(&mut self, working: &mut Snapshot) {
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

    /// Who answered for an address that is held again answers first, as far as those nodes are there.
    fn restore_orders(&mut self, working: &mut Snapshot) {
        for (address, former) in std::mem::take(&mut self.former) {
            let Some(mut record) = record_of(working, address) else { continue };
            let is_there = |node: &Name| {
                let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
                working.get(&key).is_some() && !working.is_lost(node)
            };
            let mut order = former.announcement;
            order.candidates.retain(|candidate| is_there(&candidate.node));
            let is_so = record.announcement.candidates == order.candidates;
            if record.services.is_empty() || order.candidates.is_empty() || is_so {
                continue;
            }
            // Of two orders the higher epoch counts, and the one that is undone may still be on its way.
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
        working.put(Arc::new(Object { metadata, spec: Spec::Address(record) }));
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
    Violation::new(pointer, denial.code(), message).hint(denial.hint())
}
