//! Changes of the relay's listeners during an update of the kernel. Listeners are opened before the rules
//! that redirect to them, and closed after these rules are removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, mpsc},
    time::Instant,
};

use base::clock::moment_of;
use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    program::{Program, Route, Target},
    wire::report::FailureReason,
};

use super::{
    AffinityPort, UserspaceBackend,
    desired::{self, Policy, RelayId},
    listen, origin,
    relay::{ListenerOrders, Relay},
};
use crate::Outcome;

impl UserspaceBackend {
    /// Creates and configures the listeners of a Service, and returns the packet program from which the rules
    /// that redirect connections to the listeners are built. The rules reject connections to frontends that a
    /// relay does not support ([`desired::limitation`]).
    pub(super) fn prepare(&mut self, service: &ServiceKey, program: &Program) -> Result<Program, Outcome> {
        let failed = |reason, message| Outcome::Failed { reason, message };
        self.share_affinity(service, program);
        for (id, targets) in desired::relays(program) {
            let known = self.services.get(service).and_then(|relays| relays.get(&id));
            let relay = match known {
                Some(relay) => Arc::clone(relay),
                None => self.listen(service, id).map_err(|error| {
                    let message = format!("cannot listen for port {}: {error}", id.frontend.ports);
                    failed(FailureReason::KernelRefused, message)
                })?,
            };
            let Some(route) = program.frontends.get(&id.frontend) else { continue };
            let orders = ListenerOrders {
                targets: &targets,
                tolerated: route.all_targets(),
                policy: Policy::of(route).unwrap_or(Policy::RoundRobin),
                affinity: self
                    .affinities
                    .get(service)
                    .and_then(|ports| ports.get(&AffinityPort::of(&id.frontend, route)))
                    .cloned(),
                proxy_protocol: route.proxy_protocol,
                removal: route.removal,
                leaving: leaving(route, Instant::now()),
            };
            let accounts = &mut self.accounts;
            let is_lingering = relay.follow(&orders, Instant::now(), |target| {
                let key = (service.clone(), id.frontend.protocol, *target);
                Arc::clone(accounts.entry(key).or_default())
            });
            self.linger(&relay, is_lingering);
        }
        let relays = self.services.get(service);
        let listening_at = |id| relays.and_then(|relays| relays.get(&id)).map(|relay| relay.port);
        Ok(desired::lower(program, listening_at))
    }

    /// Prepares the session affinity that the listeners of each Service port share. Ports that remain keep theirs.
    fn share_affinity(&mut self, service: &ServiceKey, program: &Program) {
        let mut old = self.affinities.remove(service).unwrap_or_default();
        let mut affinities = BTreeMap::new();
        for (frontend, route) in &program.frontends {
            let Some(seconds) = route.affinity_seconds else { continue };
            let port = AffinityPort::of(frontend, route);
            let affinity =
                affinities.entry(port).or_insert_with_key(|port| old.remove(port).unwrap_or_default());
            affinity.lock().expect("the lock is not poisoned").set_timeout(seconds);
        }
        if !affinities.is_empty() {
            self.affinities.insert(service.clone(), affinities);
        }
    }

    fn listen(&mut self, service: &ServiceKey, id: RelayId) -> io::Result<Arc<Relay>> {
        let (sender, opened) = mpsc::sync_channel(1);
        let shared = Arc::clone(&self.shared);
        // Runs on a thread of the runtime, which is certain to be in the right network namespace.
        self.runtime().spawn(async move {
            let _waiting = sender.send(listen::open(id.frontend, shared));
        });
        let relay = opened.recv().map_err(|_| io::Error::other("the relay's threads are gone"))??;
        self.services.entry(service.clone()).or_default().insert(id, Arc::clone(&relay));
        self.note_misled(&relay);
        Ok(relay)
    }

    /// Closes the listeners that a Service no longer needs.
    pub(super) fn conclude(&mut self, service: &ServiceKey, program: Option<&Program>) {
        let wanted: BTreeSet<RelayId> =
            program.map(|it| desired::relays(it).into_keys().collect()).unwrap_or_default();
        if program.is_none() {
            self.affinities.remove(service);
        }
        let Some(relays) = self.services.get_mut(service) else { return };
        let unwanted: Vec<_> =
            relays.extract_if(.., |id, _| !wanted.contains(id)).map(|(_, relay)| relay).collect();
        if relays.is_empty() {
            self.services.remove(service);
        }
        for relay in unwanted {
            let is_lingering = relay.dissolve(Instant::now());
            self.linger(&relay, is_lingering);
            self.note_misled(&relay);
        }
    }

    pub(super) fn linger(&mut self, relay: &Arc<Relay>, is_lingering: bool) {
        if is_lingering && !self.lingering.iter().any(|other| Arc::ptr_eq(other, relay)) {
            self.lingering.push(Arc::clone(relay));
        }
    }

    /// Records a UDP frontend whose flows the kernel may still send to the port of a former listener, so
    /// that `forget_misled` deletes these flows.
    fn note_misled(&mut self, relay: &Relay) {
        match relay.frontend.protocol {
            Protocol::Udp => {
                self.misled.entry(relay.frontend).or_default();
            }
            Protocol::Tcp | Protocol::Sctp => {}
        }
    }

    /// Deletes the UDP flows of the recorded frontends that the kernel sends to a port other than that of a
    /// current listener. A failure is logged and retried in the next update of the kernel; the rules do not
    /// depend on it.
    pub(super) fn forget_misled(&mut self) {
        if self.misled.is_empty() {
            return;
        }
        let mut listeners = std::mem::take(&mut self.misled);
        for (id, relay) in self.services.values().flatten() {
            if !relay.closing.is_cancelled()
                && let Some(ports) = listeners.get_mut(&id.frontend)
            {
                ports.insert(relay.port);
            }
        }
        let (sender, done) = mpsc::sync_channel(1);
        let (shared, asked) = (Arc::clone(&self.shared), listeners.clone());
        self.runtime().spawn(async move {
            let mut netlink = shared.netlink.lock().expect("the lock is not poisoned");
            let _waiting = sender.send(origin::forget_misled(&mut netlink, &asked));
        });
        match done.recv().unwrap_or_else(|_| Err(io::Error::other("the relay's threads are gone"))) {
            Ok(count) => self.conntrack_deletions += count,
            Err(error) => {
                tracing::warn!(%error, frontends = listeners.len(), "UDP flows of changed frontends not recaptured");
                self.misled = listeners;
            }
        }
    }

    /// Stops accepting connections on all listeners; established ones continue.
    pub(super) fn close_listeners(&mut self) {
        let relays: Vec<_> = self.services.values().flat_map(BTreeMap::values).cloned().collect();
        for relay in relays {
            relay.closing.cancel();
            self.note_misled(&relay);
        }
        self.forget_misled();
    }
}

/// Returns the draining targets of a route, each with the deadline of its connections; `None` for no
/// deadline.
fn leaving(route: &Route, now: Instant) -> BTreeMap<Target, Option<Instant>> {
    let moment = |(target, until): (&Target, &Option<_>)| (*target, until.map(|it| moment_of(it, now)));
    route.leaving.iter().map(moment).collect()
}
