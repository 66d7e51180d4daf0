//! Simulated link with nodes and a control server, in virtual time. All times are in milliseconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    kinds::{
        address::{Announcement, Candidate},
        advertisement::{InterfaceName, WhenIsolated},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Revision},
    wire::feed::AddressState,
};
use node_agent::announce::{
    machine::{Gate, Input, Liveness, ObservedStation, Output, Party, Phase},
    owners::{Ordering, Owners, Pair},
};

/// Time until a failed node counts as down, in milliseconds.
pub(crate) const DETECTION_MS: u64 = 750;
/// Time until two nodes that reach each other have a session, in milliseconds.
const SESSION_MS: u64 = 1500;
/// Number of requests that a probe sends.
const PROBE_ROUNDS: u64 = 3;
/// Time between two requests of a probe, and between the last one and the end of the probe, in milliseconds.
const PROBE_INTERVAL_MS: u64 = 100;
/// Delay of frames on the link, in milliseconds.
const LINK_MS: u64 = 1;
/// Time from a candidate order until a node from which no packet was received yet counts as down, in
/// milliseconds.
const PATIENCE_MS: u64 = DETECTION_MS + 3000;
/// Number of repeated announcements that a new owner sends in a burst.
const BURST_ROUNDS: u64 = 5;
const BURST_MS: u64 = 1100;
const REFRESH_MS: u64 = 60_000;
/// Time without a report after which the control server considers a node silent, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// Bit in the number of a burst that ended early.
const QUIET: u64 = 1 << 63;

mod control;
mod events;
mod sessions;

type Orders = BTreeMap<IpAddr, (u64, Vec<usize>)>;

/// Rule that the simulation breaks, so that a test can show that the failure is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BrokenRule {
    /// Nodes receive neither the announcements of others nor replies to their probes.
    NothingIsHeard,
    /// Sessions between nodes never fail.
    SessionsNeverFail,
}

pub(crate) struct World {
    begin: Instant,
    now: u64,
    random: u64,
    nodes: Vec<Node>,
    /// Side of the network partition on which each node is, by node index. Nodes with equal values reach each
    /// other; the control server is on the side `false`.
    sides: Vec<bool>,
    /// True if the control server reaches the nodes over a separate network, also during a partition.
    has_management_network: bool,
    /// Maximum additional delay of an order on the way to a node, in milliseconds.
    order_jitter_ms: u64,
    control: Control,
    queue: BTreeMap<(u64, u64), Arrival>,
    sequence: u64,
    bursts: u64,
    gap_since: Option<u64>,
    longest_gap: u64,
    /// Time since which two nodes of one part announce the first address.
    overlap_since: Option<u64>,
    longest_overlap: u64,
    broken: Option<BrokenRule>,
    /// Node to which a client on side `false` sends packets for each address: the last one from which it
    /// received an announcement.
    client: BTreeMap<IpAddr, usize>,
    /// Number of times that the client of the first address was moved to another node.
    client_moves: u64,
}

struct Node {
    owners: Option<Owners>,
    /// Candidate orders saved in the journal of the node.
    journal: Orders,
    life: u64,
    is_open: bool,
    /// Arrivals since the process of the node was paused; `None` while it runs.
    paused: Option<Vec<Arrival>>,
    paused_at: u64,
    /// Simulated BFD session with each other node, by node index. A missing session is down.
    sessions: BTreeMap<usize, Session>,
    leaving: BTreeSet<IpAddr>,
    bursts: BTreeMap<IpAddr, u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Session {
    Up { lost_at: Option<u64> },
    Down { reached_at: Option<u64> },
}

struct Control {
    runs: bool,
    orders: Orders,
    drained: BTreeSet<usize>,
    /// Time since which each node does not report.
    silent_since: BTreeMap<usize, u64>,
}

enum Arrival {
    Order { node: usize, life: u64, address: IpAddr, epoch: u64, candidates: Vec<usize> },
    Heard { to: usize, from: usize, address: IpAddr },
    Round { node: usize, life: u64, address: IpAddr, burst: u64, round: u64 },
    ProbeRound { node: usize, life: u64, address: IpAddr, round: u64 },
    Probed { node: usize, life: u64, address: IpAddr, by: Option<usize> },
    Report { from: usize, address: IpAddr },
    LeaseEnd,
    Ended { node: usize, life: u64 },
}

fn name(node: usize) -> Name {
    Name::parse(&format!("n{node}")).unwrap()
}

fn node_of(name: &Name) -> usize {
    name.as_str()[1..].parse().unwrap()
}

fn node_address(node: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, u8::try_from(node).unwrap() + 1])
}

fn service() -> ServiceKey {
    ServiceKey { namespace: "default".parse().unwrap(), name: "web".parse().unwrap() }
}

fn addresses() -> [IpAddr; 2] {
    [IpAddr::from([192, 0, 2, 100]), IpAddr::from([192, 0, 2, 101])]
}

impl World {
    pub(crate) fn new(nodes: usize, seed: u64) -> Self {
        let orders = addresses().into_iter().enumerate().map(|(index, address)| {
            let mut candidates: Vec<_> = (0..nodes).collect();
            candidates.rotate_left((usize::try_from(seed % 7).unwrap() + index) % nodes);
            (address, (1, candidates))
        });
        let control = Control {
            runs: true,
            orders: orders.collect(),
            drained: BTreeSet::new(),
            silent_since: BTreeMap::new(),
        };
        let mut world = Self {
            begin: Instant::now(),
            now: 0,
            random: seed | 1,
            nodes: Vec::new(),
            sides: vec![false; nodes],
            has_management_network: false,
            order_jitter_ms: 0,
            control,
            queue: BTreeMap::new(),
            sequence: 0,
            bursts: 0,
            gap_since: None,
            longest_gap: 0,
            overlap_since: None,
            longest_overlap: 0,
            broken: None,
            client: BTreeMap::new(),
            client_moves: 0,
        };
        for node in 0..nodes {
            world.nodes.push(Node {
                owners: None,
                journal: Orders::new(),
                life: 0,
                is_open: true,
                paused: None,
                paused_at: 0,
                sessions: BTreeMap::new(),
                leaving: BTreeSet::new(),
                bursts: BTreeMap::new(),
            });
            world.start(node);
        }
        world
    }

    pub(crate) fn bursts(&self) -> u64 {
        self.bursts
    }

    pub(crate) fn owners(&self) -> Vec<BTreeSet<IpAddr>> {
        self.nodes.iter().map(|node| node.owners.as_ref().map(owned).unwrap_or_default()).collect()
    }

    pub(crate) fn owner_of_first(&self) -> usize {
        self.owners().iter().position(|owned| owned.contains(&addresses()[0])).unwrap()
    }

    pub(crate) fn forget_gaps(&mut self) {
        self.longest_gap = 0;
    }

    pub(crate) fn longest_gap(&self) -> u64 {
        self.longest_gap
    }

    /// Breaks a rule from now on.
    pub(crate) fn break_rule(&mut self, broken: Option<BrokenRule>) {
        self.broken = broken;
    }

    /// Returns the longest time in which two running nodes of one part of the network announced the first
    /// address, in milliseconds.
    pub(crate) fn longest_overlap(&self) -> u64 {
        self.longest_overlap
    }

    /// Asserts that each connected part of the network has at most one owner of the address, and exactly one
    /// if a node in it is eligible.
    pub(crate) fn assert_settled(&self) {
        if let Some(conflict) = self.unsettled() {
            panic!("{conflict}");
        }
    }

    /// Returns a description of an address that has several owners in a part of the network, or none although a
    /// node is eligible.
    pub(crate) fn unsettled(&self) -> Option<String> {
        for address in addresses() {
            for side in [false, true] {
                let members = (0..self.nodes.len()).filter(|node| self.sides[*node] == side);
                let live: Vec<_> = members.filter(|node| self.nodes[*node].owners.is_some()).collect();
                let entry = |node: usize| self.nodes[node].owners.as_ref().unwrap().get(address);
                let is_owner = |node: &&usize| {
                    entry(**node).is_some_and(|entry| matches!(entry.ownership.phase(), Phase::Owner(_)))
                };
                let may_be = |node: &usize| {
                    self.nodes[*node].is_open
                        && entry(*node).is_some_and(|entry| entry.ownership.rank().is_some())
                };
                let owners: Vec<_> = live.iter().filter(is_owner).collect();
                let expected = usize::from(live.iter().any(may_be));
                if owners.len() != expected {
                    let state = |node: &usize| {
                        let entry = entry(*node)?;
                        Some((*node, entry.ownership.order().clone(), entry.ownership.phase().clone()))
                    };
                    let states: Vec<_> = live.iter().filter_map(state).collect();
                    return Some(format!("{address}, side {side}, owners {owners:?}: {states:#?}"));
                }
            }
        }
        None
    }

    /// Advances the virtual time by `ms` milliseconds, and handles all events in this period.
    pub(crate) fn run(&mut self, ms: u64) {
        let until = self.now + ms;
        // A change since the last call took effect at this time.
        self.note_gap();
        for step in 0.. {
            assert!(step < 100_000, "time does not pass at {} ms", self.now);
            let arrival = self.queue.first_key_value().map(|((at, _), _)| *at);
            let session = self.next_session_change();
            let timeout = (0..self.nodes.len()).filter_map(|node| self.timeout_of(node)).min();
            let next = [arrival, session, timeout].into_iter().flatten().min().unwrap_or(until + 1);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            self.change_sessions();
            for node in 0..self.nodes.len() {
                if self.timeout_of(node).is_some_and(|at| at <= self.now) {
                    let (now, random) = (self.instant(), self.next_random());
                    self.nodes[node].owners.as_mut().unwrap().tick(now, random);
                    self.carry_out(node);
                }
            }
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let arrival = entry.remove();
                self.arrive(arrival);
            }
            self.note_gap();
        }
        self.now = until;
        self.note_gap();
    }

    fn note_gap(&mut self) {
        let now = self.now;
        let note = |is_so: bool, since: &mut Option<u64>, longest: &mut u64| {
            if is_so {
                since.get_or_insert(now);
            }
            // An interval that ends now counts too.
            if let Some(since) = *since {
                *longest = (*longest).max(now - since);
            }
            if !is_so {
                *since = None;
            }
        };
        let owners = self.owners();
        let announces = |node: &usize| owners[*node].contains(&addresses()[0]);
        let has_owner = (0..owners.len()).any(|node| announces(&node));
        let runs = |node: &usize| announces(node) && self.nodes[*node].paused.is_none();
        let in_part =
            |side: bool| (0..owners.len()).filter(|node| self.sides[*node] == side).filter(runs).count();
        let overlaps = [false, true].into_iter().any(|side| in_part(side) > 1);
        note(!has_owner, &mut self.gap_since, &mut self.longest_gap);
        note(overlaps, &mut self.overlap_since, &mut self.longest_overlap);
    }

    fn arrive(&mut self, arrival: Arrival) {
        let is_alive = |world: &Self, node: usize, life: u64| world.nodes[node].life == life;
        let receiver = match &arrival {
            Arrival::Order { node, .. }
            | Arrival::Round { node, .. }
            | Arrival::ProbeRound { node, .. }
            | Arrival::Probed { node, .. }
            | Arrival::Heard { to: node, .. } => Some(*node),
            Arrival::Report { .. } | Arrival::Ended { .. } | Arrival::LeaseEnd => None,
        };
        if let Some(waiting) = receiver.and_then(|node| self.nodes[node].paused.as_mut()) {
            // Announcements that were due are postponed, others wait in sockets.
            if !matches!(arrival, Arrival::Round { .. }) {
                waiting.push(arrival);
            }
            return;
        }
        match arrival {
            Arrival::Order { node, life, address, epoch, candidates } => {
                let newest = self.nodes[node].journal.get(&address).map(|(epoch, _)| *epoch);
                if is_alive(self, node, life) && newest.is_none_or(|newest| epoch > newest) {
                    self.order(node, address, epoch, &candidates, false);
                }
            }
            Arrival::Heard { .. } if self.broken == Some(BrokenRule::NothingIsHeard) => {}
            Arrival::Heard { to, from, address } => {
                let heard = Input::Heard(heard(from));
                self.hear(to, address, heard);
            }
            Arrival::Round { node, life, address, burst, round } => {
                let announces =
                    self.nodes[node].owners.as_ref().is_some_and(|owners| owned(owners).contains(&address));
                let current = self.nodes[node].bursts.get(&address).copied();
                let is_current = current == Some(burst) || (current == Some(burst | QUIET) && round == 1);
                if is_alive(self, node, life) && announces && is_current {
                    self.broadcast(node, address);
                    let wait = if round < BURST_ROUNDS { BURST_MS } else { REFRESH_MS };
                    self.push(wait, Arrival::Round { node, life, address, burst, round: round + 1 });
                }
            }
            Arrival::ProbeRound { node, life, address, round } => {
                if is_alive(self, node, life) {
                    self.probe(node, address, round);
                }
            }
            Arrival::Probed { node, life, address, by } => {
                if is_alive(self, node, life) {
                    self.hear(node, address, Input::Probed(by.map(heard)));
                }
            }
            Arrival::Report { from, address } => self.take_report(from, address),
            Arrival::LeaseEnd => self.report_all(),
            Arrival::Ended { node, life } => {
                if is_alive(self, node, life) {
                    self.kill(node);
                }
            }
        }
    }

    fn hear(&mut self, node: usize, address: IpAddr, input: Input) {
        if matches!(input, Input::Heard(_))
            && self.nodes[node].leaving.remove(&address)
            && let Some(owners) = &mut self.nodes[node].owners
        {
            owners.remove(address);
        }
        let (now, random) = (self.instant(), self.next_random());
        if let Some(owners) = &mut self.nodes[node].owners {
            owners.hear(address, input, now, random);
        }
        self.carry_out(node);
    }

    fn carry_out(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let Some(owners) = &mut self.nodes[node].owners else { return };
        let actions = owners.take_actions();
        let owned = owned(owners);
        for (address, output) in actions {
            match output {
                Output::Announce | Output::Reannounce => {
                    if !owned.contains(&address) {
                        continue;
                    }
                    self.bursts += 1;
                    let burst = self.bursts;
                    self.nodes[node].bursts.insert(address, burst);
                    self.push(0, Arrival::Round { node, life, address, burst, round: 1 });
                    if output == Output::Announce {
                        self.report(node);
                    }
                }
                Output::Withdraw => self.report_all(),
                Output::Quiet => {
                    if let Some(burst) = self.nodes[node].bursts.get_mut(&address) {
                        // The first announcement has been queued already.
                        *burst |= QUIET;
                    }
                }
                Output::Probe => self.push(0, Arrival::ProbeRound { node, life, address, round: 1 }),
            }
        }
    }

    /// Sends one of the requests of a probe, and ends the probe if another node replies or this was the last
    /// request.
    fn probe(&mut self, node: usize, address: IpAddr, round: u64) {
        let life = self.nodes[node].life;
        let answers = (0..self.nodes.len()).find(|other| {
            let announces = self.nodes[*other].owners.as_ref();
            *other != node
                && self.broken != Some(BrokenRule::NothingIsHeard)
                && self.nodes[*other].paused.is_none()
                && self.sides[*other] == self.sides[node]
                && announces.is_some_and(|owners| self::owned(owners).contains(&address))
        });
        if answers.is_some() {
            self.push(2 * LINK_MS, Arrival::Probed { node, life, address, by: answers });
        } else if round < PROBE_ROUNDS {
            self.push(PROBE_INTERVAL_MS, Arrival::ProbeRound { node, life, address, round: round + 1 });
        } else {
            self.push(PROBE_INTERVAL_MS, Arrival::Probed { node, life, address, by: None });
        }
    }

    fn broadcast(&mut self, from: usize, address: IpAddr) {
        if !self.sides[from] {
            let previous = self.client.insert(address, from);
            let has_moved = previous.is_some_and(|previous| previous != from);
            self.client_moves += u64::from(has_moved && address == addresses()[0]);
        }
        for to in 0..self.nodes.len() {
            if to != from && self.sides[to] == self.sides[from] && self.nodes[to].owners.is_some() {
                self.push(LINK_MS, Arrival::Heard { to, from, address });
            }
        }
    }

    fn order(&mut self, node: usize, address: IpAddr, epoch: u64, candidates: &[usize], is_old: bool) {
        self.nodes[node].journal.insert(address, (epoch, candidates.to_vec()));
        let interfaces = BTreeSet::from([InterfaceName::try_from("eth0".to_owned()).unwrap()]);
        let candidate = |node: &usize| Candidate {
            node: name(*node),
            address: node_address(*node),
            interfaces: interfaces.clone(),
            peer_public_key: None,
        };
        let state = AddressState {
            address,
            revision: Revision(epoch),
            services: BTreeSet::from([service()]),
            announcement: Announcement {
                epoch,
                candidates: candidates.iter().map(candidate).collect(),
                answer_ping: false,
                when_isolated: WhenIsolated::Keep,
                probe_first: false,
                advertisements: BTreeSet::new(),
            },
            peer_public_keys: BTreeMap::new(),
        };
        let (now, random) = (self.instant(), self.next_random());
        let Some(owners) = &mut self.nodes[node].owners else { return };
        let unheard_until = now + Duration::from_millis(PATIENCE_MS);
        let changing = BTreeSet::new();
        owners.set(
            Ordering { state: Arc::new(state), is_old, changing: &changing, unheard_until },
            now,
            random,
        );
        for other in 0..self.nodes.len() {
            if let Some(Session::Up { .. }) = self.nodes[node].sessions.get(&other) {
                self.set_liveness(node, other, Liveness::Up);
            }
        }
        self.carry_out(node);
    }

    fn set_gate(&mut self, node: usize) {
        let gate = if self.nodes[node].is_open { Gate::Open } else { Gate::Closed("refused".to_owned()) };
        let (now, random) = (self.instant(), self.next_random());
        if let Some(owners) = &mut self.nodes[node].owners {
            owners.set_gates([(service(), Some(gate))], now, random);
        }
        self.carry_out(node);
        if self.control_hears(node) {
            self.rerank_without(node);
        }
    }

    /// Updates the candidate orders after a change of the node's ability to serve the Service: removes a node
    /// that cannot serve it, and appends one that can again.
    fn rerank_without(&mut self, node: usize) {
        for address in addresses() {
            let (epoch, mut candidates) = self.control.orders[&address].clone();
            let is_in = candidates.contains(&node);
            let may_be = self.nodes[node].is_open && !self.control.drained.contains(&node);
            if is_in && !may_be {
                candidates.retain(|candidate| *candidate != node);
            } else if !is_in && may_be {
                candidates.push(node);
            } else {
                continue;
            }
            self.reorder(address, epoch + 1, candidates);
        }
    }

    fn set_liveness(&mut self, node: usize, other: usize, liveness: Liveness) {
        if liveness == Liveness::Down && self.broken == Some(BrokenRule::SessionsNeverFail) {
            return;
        }
        let (now, random) = (self.instant(), self.next_random());
        if let Some(owners) = &mut self.nodes[node].owners {
            let pair = Pair { local: node_address(node), peer: node_address(other) };
            owners.set_liveness(pair, liveness, now, random);
        }
        self.carry_out(node);
    }

    fn timeout_of(&self, node: usize) -> Option<u64> {
        if self.nodes[node].paused.is_some() {
            return None;
        }
        let at = self.nodes[node].owners.as_ref()?.poll_timeout()?;
        // Rounded up, so that the timeout has passed at this time.
        Some(u64::try_from((at - self.begin).as_micros().div_ceil(1000)).unwrap())
    }

    fn instant(&self) -> Instant {
        self.begin + Duration::from_millis(self.now)
    }

    fn push(&mut self, after: u64, arrival: Arrival) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), arrival);
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 13
    }
}

fn owned(owners: &Owners) -> BTreeSet<IpAddr> {
    let entries = owners.entries().iter();
    let owned = entries.filter(|(_, entry)| matches!(entry.ownership.phase(), Phase::Owner(_)));
    owned.map(|(address, _)| *address).collect()
}

fn heard(from: usize) -> ObservedStation {
    let party = Party::Candidate(name(from));
    assert_eq!(node_of(&name(from)), from);
    ObservedStation { party, mac: format!("02:00:00:00:00:{from:02x}"), interface: "eth0".to_owned() }
}
