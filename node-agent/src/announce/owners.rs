//! The ownership of all addresses: what happens is brought to the addresses that it concerns, and to no other. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use model::{
    kinds::{address::Candidate, advertisement::InterfaceName, resource::ServiceKey},
    primitives::name::Name,
    wire::feed::AddressState,
};

use super::machine::{Gate, Input, Liveness, Order, Output, Ownership};

/// Two addresses between which one node watches another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The address of this node.
    pub local: IpAddr,
    /// The address of the other one.
    pub peer: IpAddr,
}

/// The ownership of all addresses, as one node sees it.
#[derive(Debug)]
pub struct Owners {
    me: Name,
    entries: BTreeMap<IpAddr, Entry>,
    by_service: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    pairs: BTreeMap<Pair, Watched>,
    gates: BTreeMap<ServiceKey, Gate>,
    /// The interfaces that carry frames; `None` while that is not known.
    carriers: Option<BTreeSet<String>>,
    has_control: bool,
    due: BTreeSet<(Instant, IpAddr)>,
    actions: Vec<(IpAddr, Output)>,
    touched: BTreeSet<IpAddr>,
    looked_at: u64,
}

/// One address.
#[derive(Debug)]
pub struct Entry {
    /// Its state.
    pub state: Arc<AddressState>,
    /// Who owns it.
    pub ownership: Ownership,
    /// The Services that are programmed, but not with this address yet.
    awaited: BTreeSet<ServiceKey>,
    due: Option<Instant>,
}

/// The state of an address, and what has to be known of it.
#[derive(Debug)]
pub struct Ordering<'a> {
    /// The state.
    pub state: Arc<AddressState>,
    /// Whether it was read from the disk.
    pub is_old: bool,
    /// The Services that the next pass will change.
    pub changing: &'a BTreeSet<ServiceKey>,
    /// How long a node that is watched from now on counts as alive.
    pub unheard_until: Instant,
}

#[derive(Debug)]
struct Watched {
    node: Name,
    liveness: Liveness,
    addresses: BTreeSet<IpAddr>,
}

impl Entry {
    /// This node among the candidates.
    #[must_use]
    pub fn own_candidate(&self, me: &Name) -> Option<&Candidate> {
        self.state.announcement.candidates.iter().find(|candidate| candidate.node == *me)
    }
}

impl Owners {
    /// Without any address.
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

    /// An address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&Entry> {
        self.entries.get(&address)
    }

    /// All addresses that are known.
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<IpAddr, Entry> {
        &self.entries
    }

    /// What is to be done, in order.
    pub fn take_actions(&mut self) -> Vec<(IpAddr, Output)> {
        std::mem::take(&mut self.actions)
    }

    /// The addresses of which something may be said that was not said before.
    pub fn take_touched(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.touched)
    }

    /// How often an address was looked at, for tests of the cost of a change.
    #[must_use]
    pub const fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Whom to watch, with the node's name: the other candidates of every address for which this node is one.
    #[must_use]
    pub fn pairs(&self) -> BTreeMap<Pair, Name> {
        self.pairs.iter().map(|(pair, watched)| (*pair, watched.node.clone())).collect()
    }

    /// How a node is seen.
    #[must_use]
    pub fn liveness(&self, pair: Pair) -> Option<Liveness> {
        self.pairs.get(&pair).map(|watched| watched.liveness)
    }

    /// When [`Self::tick`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the state of an address.
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
        let order = Order {
            epoch: announcement.epoch,
            candidates: announcement.candidates.iter().map(|candidate| candidate.node.clone()).collect(),
            when_isolated: announcement.when_isolated,
            is_old,
        };
        let mut inputs = vec![Input::Control(self.has_control), Input::Ordered(order)];
        for (pair, node) in self.pairs_of(&state) {
            let unknown = Liveness::Unknown { until: unheard_until };
            let fresh = || Watched { node: node.clone(), liveness: unknown, addresses: BTreeSet::new() };
            let watched = self.pairs.entry(pair).or_insert_with(fresh);
            watched.addresses.insert(address);
            inputs.push(Input::Peer(node, watched.liveness));
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

    /// Forgets an address; it is withdrawn if it was announced.
    pub fn remove(&mut self, address: IpAddr) {
        let Some(entry) = self.entries.remove(&address) else { return };
        let nothing = AddressState {
            services: BTreeSet::new(),
            announcement: model::kinds::address::Announcement::default(),
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

    /// Takes whether Services are programmed.
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

    /// Takes how a node is seen.
    pub fn set_liveness(&mut self, pair: Pair, liveness: Liveness, now: Instant, random: u64) {
        let Some(watched) = self.pairs.get_mut(&pair) else { return };
        if watched.liveness == liveness {
            return;
        }
        watched.liveness = liveness;
        let (node, addresses) = (watched.node.clone(), watched.addresses.clone());
        for address in addresses {
            self.feed(address, [Input::Peer(node.clone(), liveness)], now, random);
        }
    }

    /// Takes whether control is reached.
    pub fn set_control(&mut self, has_control: bool, now: Instant, random: u64) {
        if std::mem::replace(&mut self.has_control, has_control) != has_control {
            for address in self.entries.keys().copied().collect::<Vec<_>>() {
                self.feed(address, [Input::Control(has_control)], now, random);
            }
        }
    }

    /// Takes which interfaces carry frames.
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

    /// Takes what was heard of one address, or what came of a question.
    pub fn hear(&mut self, address: IpAddr, input: Input, now: Instant, random: u64) {
        self.feed(address, [input], now, random);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant, random: u64) {
        while let Some((at, address)) = self.due.first().copied().filter(|(at, _)| now >= *at) {
            self.due.remove(&(at, address));
            if let Some(entry) = self.entries.get_mut(&address) {
                entry.due = None;
            }
            // Every address has a share of its own in what is random.
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

    /// Whether this node can serve an address: its first obstacle, if there is one.
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

    /// The pairs between this node and the other candidates of an address; none when it is no candidate.
    fn pairs_of(&self, state: &AddressState) -> Vec<(Pair, Name)> {
        let candidates = &state.announcement.candidates;
        let Some(own) = candidates.iter().find(|candidate| candidate.node == self.me) else {
            return Vec::new();
        };
        let others = candidates.iter().filter(|candidate| candidate.node != self.me);
        let local = own.address;
        others.map(|other| (Pair { local, peer: other.address }, other.node.clone())).collect()
    }

    /// Takes an address out of what led to it and will no longer.
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
