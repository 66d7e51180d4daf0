//! Ownership of all load balancer addresses on one node. Each event is processed only for the affected
//! addresses. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use base::Gate;
use model::{
    kinds::{address::Candidate, advertisement::InterfaceName, resource::ServiceKey},
    primitives::{name::Name, public_key::PublicKey},
    wire::feed::AddressState,
};

use super::machine::{CandidateOrder, Input, Liveness, Output, Ownership};

/// Pair of addresses over which one node monitors another by BFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Local address, which belongs to this node.
    pub local: IpAddr,
    /// Remote address, which belongs to the monitored node.
    pub peer: IpAddr,
}

/// Ownership state machines of all load balancer addresses on one node, with indexes by Service, monitored
/// node and deadline.
#[derive(Debug)]
pub struct Owners {
    me: Name,
    entries: BTreeMap<IpAddr, Entry>,
    by_service: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    pairs: BTreeMap<Pair, MonitoredNode>,
    gates: BTreeMap<ServiceKey, Gate>,
    /// Names of the interfaces with a link (`IFF_LOWER_UP`); `None` before the first report.
    carriers: Option<BTreeSet<String>>,
    has_control: bool,
    due: BTreeSet<(Instant, IpAddr)>,
    actions: Vec<(IpAddr, Output)>,
    touched: BTreeSet<IpAddr>,
    looked_at: u64,
}

/// Ownership of one address, with the address state from the control server.
#[derive(Debug)]
pub struct Entry {
    /// Address state received from the control server: candidates, Services and interfaces.
    pub state: Arc<AddressState>,
    /// State machine that decides if this node announces the address.
    pub ownership: Ownership,
    /// Services that the kernel serves, but not yet at this address. The address is not announced until the
    /// next kernel update.
    awaited: BTreeSet<ServiceKey>,
    due: Option<Instant>,
}

/// Address state passed to [`Owners::set`], with the circumstances in which it was received.
#[derive(Debug)]
pub struct Ordering<'a> {
    /// Address state received from the control server, or read from the agent's journal on disk after a
    /// restart.
    pub state: Arc<AddressState>,
    /// True if the state comes from the agent's journal on disk (stored before its restart), so that another
    /// node may have taken the address since it was written.
    pub is_old: bool,
    /// Services that the next kernel update will change. If one of them is new for the address, the address
    /// is announced only after that update.
    pub changing: &'a BTreeSet<ServiceKey>,
    /// Time until which a newly monitored node counts as alive although no packet has been received from it.
    pub unheard_until: Instant,
}

/// Other node that this node monitors, with the data that authenticates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoredPeer {
    /// Name of the other node.
    pub node: Name,
    /// Public key of the other node. `None` if it has none or this node has none: sessions then use the key of
    /// all nodes. Both nodes receive the same address state, so both come to the same result.
    pub public_key: Option<PublicKey>,
}

#[derive(Debug)]
struct MonitoredNode {
    peer: MonitoredPeer,
    liveness: Liveness,
    addresses: BTreeSet<IpAddr>,
}

impl Entry {
    /// Returns the entry of node `me` in the candidate list, or `None` if the node is not a candidate.
    #[must_use]
    pub fn own_candidate(&self, me: &Name) -> Option<&Candidate> {
        self.state.announcement.candidates.iter().find(|candidate| candidate.node == *me)
    }
}

impl Owners {
    /// Creates the ownership state of the node `me`, without addresses.
    #[must_use]
    pub fn new(me: Name) -> Self {
        Self {
            me,
            entries: BTreeMap::new(),
            by_service: BTreeMap::new(),
            pairs: BTreeMap::new(),
            gates: BTreeMap::new(),
            carriers: None,
            has_control: false,
            due: BTreeSet::new(),
            actions: Vec::new(),
            touched: BTreeSet::new(),
            looked_at: 0,
        }
    }

    /// Returns the ownership of an address, or `None` if the control server has not sent the address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&Entry> {
        self.entries.get(&address)
    }

    /// Returns the ownership of all addresses.
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<IpAddr, Entry> {
        &self.entries
    }

    /// Returns and clears the actions that the state machines have requested, in order of the requests.
    pub fn take_actions(&mut self) -> Vec<(IpAddr, Output)> {
        std::mem::take(&mut self.actions)
    }

    /// Returns and clears the set of addresses whose status may have changed.
    pub fn take_touched(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.touched)
    }

    /// Returns the number of events processed for single addresses. Tests use it to measure the cost of a
    /// change.
    #[must_use]
    pub const fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Returns the nodes to monitor, by address pair: the other candidates of every address for which this
    /// node is a candidate.
    #[must_use]
    pub fn pairs(&self) -> BTreeMap<Pair, MonitoredPeer> {
        self.pairs.iter().map(|(pair, watched)| (*pair, watched.peer.clone())).collect()
    }

    /// Returns the liveness of the node at this address pair, or `None` if the pair is not monitored.
    #[must_use]
    pub fn liveness(&self, pair: Pair) -> Option<Liveness> {
        self.pairs.get(&pair).map(|watched| watched.liveness)
    }

    /// Returns the time at which [`Self::tick`] must be called, or `None` if no timer runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Adds or updates an address from the state sent by the control server.
    pub fn set(&mut self, ordering: Ordering<'_>, now: Instant, random: u64) {
        let Ordering { state, is_old, changing, unheard_until } = ordering;
        let address = state.address;
        let previous = self.entries.get(&address).map(|entry| Arc::clone(&entry.state));
        if let Some(previous) = &previous {
            self.unlink(previous, &state);
        }
        let has_before = |service: &&ServiceKey| {
            previous.as_ref().is_some_and(|previous| previous.services.contains(*service))
        };
        let added = state.services.iter().filter(|service| !has_before(service));
        let awaited: Vec<_> = added.filter(|service| changing.contains(*service)).cloned().collect();
        for service in &state.services {
            self.by_service.entry(service.clone()).or_default().insert(address);
        }
        let announcement = &state.announcement;
        let order = CandidateOrder {
            epoch: announcement.epoch,
            candidates: announcement.candidates.iter().map(|candidate| candidate.node.clone()).collect(),
            when_isolated: announcement.when_isolated,
            is_old,
            probe_first: announcement.probe_first,
        };
        let mut inputs = vec![Input::Control(self.has_control), Input::Ordered(order)];
        for (pair, node) in self.pairs_of(&state) {
            let unknown = Liveness::Unknown { until: unheard_until };
            let public_key = self.public_key_of(&node, &state);
            let peer = MonitoredPeer { node: node.clone(), public_key };
            let fresh = || MonitoredNode { peer, liveness: unknown, addresses: BTreeSet::new() };
            let watched = self.pairs.entry(pair).or_insert_with(fresh);
            // The records of all addresses have the same key, except while a changed key reaches them one by one.
            watched.peer.public_key = public_key;
            // The state machine of a known address has followed the liveness since then, and may know better: a node whose
            // session failed has answered for the address.
            if watched.addresses.insert(address) {
                inputs.push(Input::Peer(node, watched.liveness));
            }
        }
        let me = self.me.clone();
        let entry = self.entries.entry(address).or_insert_with(|| Entry {
            state: Arc::clone(&state),
            ownership: Ownership::new(me),
            awaited: BTreeSet::new(),
            due: None,
        });
        entry.awaited.retain(|service| state.services.contains(service));
        entry.awaited.extend(awaited);
        entry.state = state;
        inputs.insert(0, Input::Gate(self.gate(address)));
        self.feed(address, inputs, now, random);
    }

    /// Removes an address, and withdraws it if this node announces it.
    pub fn remove(&mut self, address: IpAddr) {
        let Some(entry) = self.entries.remove(&address) else { return };
        let nothing = AddressState {
            services: BTreeSet::new(),
            announcement: model::kinds::address::Announcement::default(),
            peer_public_keys: BTreeMap::new(),
            ..(*entry.state).clone()
        };
        self.unlink(&entry.state, &nothing);
        if let Some(at) = entry.due {
            self.due.remove(&(at, address));
        }
        if matches!(entry.ownership.phase(), super::machine::Phase::Owner(_)) {
            self.actions.push((address, Output::Withdraw));
        }
        self.touched.insert(address);
    }

    /// Sets the [`Gate`] of each given Service: open if the kernel now serves the Service, otherwise closed
    /// with the reason. `None` removes this information (the gate), before an update that removes the Service
    /// from the kernel.
    pub fn set_gates(
        &mut self,
        gates: impl IntoIterator<Item = (ServiceKey, Option<Gate>)>,
        now: Instant,
        random: u64,
    ) {
        let mut addresses = BTreeSet::new();
        for (service, gate) in gates {
            let differs = match gate {
                Some(gate) => self.gates.insert(service.clone(), gate.clone()) != Some(gate),
                None => self.gates.remove(&service).is_some(),
            };
            for address in self.by_service.get(&service).into_iter().flatten() {
                let entry = self.entries.get_mut(address);
                let was_awaited = entry.is_some_and(|entry| entry.awaited.remove(&service));
                if differs || was_awaited {
                    addresses.insert(*address);
                }
            }
        }
        for address in addresses {
            let gate = self.gate(address);
            self.feed(address, [Input::Gate(gate)], now, random);
        }
    }

    /// Applies the changed liveness of a node to all addresses for which it is a candidate.
    pub fn set_liveness(&mut self, pair: Pair, liveness: Liveness, now: Instant, random: u64) {
        let Some(watched) = self.pairs.get_mut(&pair) else { return };
        if watched.liveness == liveness {
            return;
        }
        watched.liveness = liveness;
        let (node, addresses) = (watched.peer.node.clone(), watched.addresses.clone());
        for address in addresses {
            self.feed(address, [Input::Peer(node.clone(), liveness)], now, random);
        }
    }

    /// Passes the changed reachability of the control server to the state machines of all addresses.
    pub fn set_control(&mut self, has_control: bool, now: Instant, random: u64) {
        if std::mem::replace(&mut self.has_control, has_control) != has_control {
            for address in self.entries.keys().copied().collect::<Vec<_>>() {
                self.feed(address, [Input::Control(has_control)], now, random);
            }
        }
    }

    /// Notifies the state machines of all addresses that the process was paused for longer than the detection
    /// time of the other nodes.
    pub fn resume(&mut self, now: Instant, random: u64) {
        for address in self.entries.keys().copied().collect::<Vec<_>>() {
            self.feed(address, [Input::Resumed], now, random);
        }
    }

    /// Replaces the set of interfaces with a link. An address is only announced if one of its interfaces has
    /// a link.
    pub fn set_carriers(&mut self, carriers: BTreeSet<String>, now: Instant, random: u64) {
        let differs: Option<BTreeSet<_>> =
            self.carriers.as_ref().map(|before| before.symmetric_difference(&carriers).cloned().collect());
        self.carriers = Some(carriers);
        let concerned = |entry: &Entry| {
            let own = entry.own_candidate(&self.me).map(|own| &own.interfaces);
            own.into_iter()
                .flatten()
                .any(|name| differs.as_ref().is_none_or(|differs| differs.contains(name.as_str())))
        };
        let addresses: Vec<_> =
            self.entries.iter().filter(|(_, entry)| concerned(entry)).map(|(address, _)| *address).collect();
        for address in addresses {
            let gate = self.gate(address);
            self.feed(address, [Input::Gate(gate)], now, random);
        }
    }

    /// Passes an observation or a probe result for an address to its state machine.
    pub fn hear(&mut self, address: IpAddr, input: Input, now: Instant, random: u64) {
        self.feed(address, [input], now, random);
    }

    /// Passes [`Input::Timeout`] to the state machines whose timer has expired.
    pub fn tick(&mut self, now: Instant, random: u64) {
        while let Some((at, address)) = self.due.first().copied().filter(|(at, _)| now >= *at) {
            self.due.remove(&(at, address));
            if let Some(entry) = self.entries.get_mut(&address) {
                entry.due = None;
            }
            // Each address gets a different random value.
            let random = random.rotate_left(u32::try_from(self.looked_at % 64).unwrap_or_default());
            self.feed(address, [Input::Timeout], now, random);
        }
    }

    fn feed(&mut self, address: IpAddr, inputs: impl IntoIterator<Item = Input>, now: Instant, random: u64) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        self.looked_at += 1;
        self.touched.insert(address);
        for input in inputs {
            let outputs = entry.ownership.handle(input, now, random);
            self.actions.extend(outputs.into_iter().map(|output| (address, output)));
        }
        let due = entry.ownership.poll_timeout();
        if due != entry.due {
            if let Some(at) = std::mem::replace(&mut entry.due, due) {
                self.due.remove(&(at, address));
            }
            self.due.extend(due.map(|at| (at, address)));
        }
    }

    /// Returns the [`Gate`] of an address: open if this node can serve the address, otherwise closed with the
    /// first obstacle (a Service not programmed, or no link).
    fn gate(&self, address: IpAddr) -> Gate {
        let Some(entry) = self.entries.get(&address) else { return Gate::Open };
        if entry.state.services.is_empty() {
            return Gate::Closed("no Service has it".to_owned());
        }
        for service in &entry.state.services {
            match self.gates.get(service) {
                Some(Gate::Open) if !entry.awaited.contains(service) => {}
                Some(Gate::Closed(why)) => {
                    return Gate::Closed(format!("Service {service} is not programmed here: {why}"));
                }
                Some(Gate::Open) | None => {
                    return Gate::Closed(format!("Service {service} has not been programmed here yet"));
                }
            }
        }
        let (Some(carriers), Some(own)) = (&self.carriers, entry.own_candidate(&self.me)) else {
            return Gate::Open;
        };
        if own.interfaces.iter().any(|name| carriers.contains(name.as_str())) {
            return Gate::Open;
        }
        let names: Vec<_> = own.interfaces.iter().map(InterfaceName::as_str).collect();
        Gate::Closed(format!("no link on {}", names.join(", ")))
    }

    /// Returns the pairs over which this node monitors the other candidates of an address; empty if this node
    /// is not a candidate.
    fn pairs_of(&self, state: &AddressState) -> Vec<(Pair, Name)> {
        let candidates = &state.announcement.candidates;
        let Some(own) = candidates.iter().find(|candidate| candidate.node == self.me) else {
            return Vec::new();
        };
        let others = candidates.iter().filter(|candidate| candidate.node != self.me);
        let local = own.address;
        others.map(|other| (Pair { local, peer: other.address }, other.node.clone())).collect()
    }

    /// Returns the public key of another candidate, or `None` if one of the two nodes has none.
    fn public_key_of(&self, node: &Name, state: &AddressState) -> Option<PublicKey> {
        let keys = &state.peer_public_keys;
        keys.get(node).copied().filter(|_| keys.contains_key(&self.me))
    }

    /// Removes an address from the indexes by Service and by pair, except for the Services and pairs that
    /// `next` still has.
    fn unlink(&mut self, previous: &AddressState, next: &AddressState) {
        let address = previous.address;
        for service in previous.services.difference(&next.services) {
            if let Some(addresses) = self.by_service.get_mut(service) {
                addresses.remove(&address);
                if addresses.is_empty() {
                    self.by_service.remove(service);
                }
            }
        }
        let kept: BTreeMap<Pair, Name> = self.pairs_of(next).into_iter().collect();
        for (pair, node) in self.pairs_of(previous) {
            if kept.get(&pair) == Some(&node) {
                continue;
            }
            if let Some(watched) = self.pairs.get_mut(&pair) {
                watched.addresses.remove(&address);
                if watched.addresses.is_empty() {
                    self.pairs.remove(&pair);
                }
            }
        }
    }
}
