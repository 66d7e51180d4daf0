//! Tests that an address is announced only while its Service is programmed in the kernel. A simulated
//! announcer records every command together with the state of the kernel at that time.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::CompiledService,
    kinds::{
        address::{Announcement, Candidate},
        advertisement::{InterfaceName, WhenIsolated},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Revision, secret::Secret},
    wire::{
        feed::{AddressState, StartMode},
        report::{AnnouncementRole, PeerState},
    },
};
use node_agent::{
    agent::Agent,
    announce::{
        self, Announcing, Running,
        io_traits::{Neighbours, OnExit, Presence, SentFrames, Session, Station, Watch, Wire, WireEvent},
        owners::{MonitoredPeer, Pair},
        status::Announcements,
        thread::{Message, Parts},
    },
    dataplane::memory::MemoryKernel,
    feed::machine::{Batch, NetworkChanges, PolicyUpdates, ServiceChange},
    tally::Tally,
};

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::{node_name, position, service, service_key},
};

/// Commands that the announcer received, as tuples: the address; true to announce it, false to withdraw it;
/// true if the Service of the address was programmed in the kernel at that time.
type Log = Arc<Mutex<Vec<(IpAddr, bool, bool)>>>;

struct Recorder {
    kernel: MemoryKernel,
    log: Log,
}

impl Wire for Recorder {
    fn set(&mut self, changes: BTreeMap<IpAddr, Option<Presence>>) {
        for (address, presence) in changes {
            let IpAddr::V4(v4) = address else { panic!("only IPv4 here") };
            let number = u16::from_be_bytes([v4.octets()[2], v4.octets()[3]]);
            let is_held = self.kernel.contents().programs.contains_key(&service_key(number));
            let is_announced = presence.is_some_and(|presence| presence.is_announced);
            self.log.lock().unwrap().push((address, is_announced, is_held));
        }
    }
    fn announce_again(&mut self, _: IpAddr) {}
    fn quiet(&mut self, _: IpAddr) {}
    fn probe(&mut self, _: IpAddr, _: &BTreeSet<InterfaceName>) {}
    fn sent(&self) -> BTreeMap<IpAddr, SentFrames> {
        BTreeMap::new()
    }
}

struct Nobody;

impl Watch for Nobody {
    fn set_peers(&mut self, _: &BTreeMap<Pair, MonitoredPeer>, _: Option<&Secret>) {}
    fn sessions(&self) -> BTreeMap<Pair, Session> {
        BTreeMap::new()
    }
    fn leave(&mut self, _: OnExit) {}
}

impl Neighbours for Nobody {
    fn macs(&mut self) -> BTreeMap<IpAddr, String> {
        BTreeMap::new()
    }
}

/// Another node with the address [`OTHER`], whose session is up until a test or this node ends it.
#[derive(Clone)]
struct OneSession {
    announcing: Announcing,
    is_down: Arc<AtomicBool>,
}

impl OneSession {
    fn end(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.announcing.tell(Message::Sessions);
    }
}

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// Link-layer address of the other node.
const MAC: &str = "02:00:00:00:00:09";
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

impl Watch for OneSession {
    fn set_peers(&mut self, _: &BTreeMap<Pair, MonitoredPeer>, _: Option<&Secret>) {
        self.announcing.tell(Message::Sessions);
    }
    fn sessions(&self) -> BTreeMap<Pair, Session> {
        let session = if self.is_down.load(Ordering::SeqCst) { Session::Down } else { Session::Up };
        BTreeMap::from([(Pair { local: OWN, peer: OTHER }, session)])
    }
    fn leave(&mut self, _: OnExit) {
        self.end();
    }
}

fn one_session(announcing: Announcing) -> Box<dyn Watch> {
    Box::new(OneSession { announcing, is_down: Arc::default() })
}

/// Neighbor table of the kernel.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<IpAddr, String>>>);

impl Neighbours for Table {
    fn macs(&mut self) -> BTreeMap<IpAddr, String> {
        self.0.lock().unwrap().clone()
    }
}

struct Stage {
    agent: Agent,
    kernel: MemoryKernel,
    log: Log,
    running: Running,
    announcing: Announcing,
    revision: u64,
    _dir: StateDir,
}

fn vip(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(192, 0, high, low))
}

fn with_address(number: u16, revision: u64) -> CompiledService {
    CompiledService { load_balancer_ips: vec![vip(number)], ..service(number, 1, revision) }
}

fn candidate(node: Name, address: IpAddr) -> Candidate {
    let interfaces = BTreeSet::from([InterfaceName::try_from("eth0".to_owned()).unwrap()]);
    Candidate { node, address, interfaces, peer_public_key: None }
}

fn address(number: u16, epoch: u64) -> AddressState {
    let candidate = candidate(node_name(), OWN);
    AddressState {
        address: vip(number),
        revision: Revision(epoch),
        services: BTreeSet::from([service_key(number)]),
        announcement: Announcement {
            epoch,
            candidates: vec![candidate],
            answer_ping: false,
            when_isolated: WhenIsolated::Keep,
            probe_first: false,
            advertisements: BTreeSet::new(),
        },
        peer_public_keys: BTreeMap::new(),
    }
}

/// Returns an address with this node as the first candidate, and the other node as the second.
fn with_other(number: u16, epoch: u64, probe_first: bool) -> (IpAddr, Option<Arc<AddressState>>) {
    let mut state = address(number, epoch);
    state.announcement.probe_first = probe_first;
    state.announcement.candidates.push(candidate(Name::parse("other").unwrap(), OTHER));
    (vip(number), Some(Arc::new(state)))
}

impl Stage {
    fn new(test: &str) -> Self {
        Self::with(test, |_| Box::new(Nobody), Nobody)
    }

    fn with(
        test: &str,
        watch: impl FnOnce(Announcing) -> Box<dyn Watch>,
        neighbours: impl Neighbours + 'static,
    ) -> Self {
        let (dir, kernel) = (StateDir::new(&format!("order-{test}")), MemoryKernel::default());
        let mut agent = agent(&dir, &Kernels::only(&kernel), &Tally::default(), Instant::now());
        let (announcing, messages) = announce::channel();
        let log = Log::default();
        let parts = Parts {
            node: node_name(),
            wire: Box::new(Recorder { kernel: kernel.clone(), log: Arc::clone(&log) }),
            watch: watch(announcing.clone()),
            neighbours: Box::new(neighbours),
            detection_time: Duration::from_millis(750),
        };
        let running = announce::spawn(parts, messages).unwrap();
        agent.announce_by(announcing.clone());
        Self { agent, kernel, log, running, announcing, revision: 0, _dir: dir }
    }

    /// Delivers changes of Services and addresses to the agent, and runs the agent until it has no more work
    /// to do at the current time.
    fn bring(
        &mut self,
        services: BTreeMap<ServiceKey, ServiceChange>,
        addresses: BTreeMap<IpAddr, Option<Arc<AddressState>>>,
    ) {
        self.revision += 1;
        let batch = Batch {
            mode: if self.revision == 1 { StartMode::Full } else { StartMode::Delta },
            network: None,
            node: None,
            services,
            addresses,
            networks: NetworkChanges::default(),
            policy: PolicyUpdates::default(),
            position: position(&format!("1-{}", self.revision)),
            traces: Vec::new(),
        };
        let now = Instant::now();
        self.agent.receive(batch, now);
        self.agent.turn(now, 0);
    }

    fn add(&mut self, numbers: impl Iterator<Item = u16> + Clone) {
        let revision = self.revision + 1;
        let set = |number| ServiceChange::Set(Arc::new(with_address(number, revision)));
        let services = numbers.clone().map(|number| (service_key(number), set(number))).collect();
        let addresses = numbers.map(|number| (vip(number), Some(Arc::new(address(number, 1)))));
        self.bring(services, addresses.collect());
    }

    /// Waits until the number of addresses that the announcer announces is `owned`.
    fn settle(&self, owned: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.running.shown.borrow().counts().owner != owned {
            assert!(Instant::now() < deadline, "{:?}", self.running.shown.borrow().counts());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the status meets the condition.
    fn wait(&self, met: impl Fn(&Announcements) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !met(&self.running.shown.borrow()) {
            assert!(Instant::now() < deadline, "{:?}", self.running.shown.borrow());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn take_log(&self) -> Vec<(IpAddr, bool, bool)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn end(self) {
        drop(self.agent);
        self.announcing.leave(OnExit::Handover);
        self.running.thread.join().unwrap();
    }
}

/// F117: an address is announced only after its Service has been programmed in the kernel. If the Service is
/// removed, with or without its address, the address is withdrawn while the Service is still programmed.
#[test]
fn f117_announced_after_it_is_programmed_and_withdrawn_before_it_is_not() {
    let mut stage = Stage::new("gone");
    stage.add(1..=2);
    stage.settle(2);
    assert!(stage.take_log().iter().all(|(_, is_announced, is_held)| !is_announced || *is_held));

    let removed = |number, revision| (service_key(number), ServiceChange::Removed(Revision(revision)));
    stage.bring([removed(1, 2)].into(), [(vip(1), None)].into());
    assert_eq!(stage.take_log(), [(vip(1), false, true)]);
    assert!(!stage.kernel.contents().programs.contains_key(&service_key(1)));

    // The address record arrives later: the removal of the Service suffices.
    stage.bring([removed(2, 3)].into(), BTreeMap::new());
    assert_eq!(stage.take_log(), [(vip(2), false, true)]);
    stage.settle(0);
    let shown = stage.running.shown.borrow().addresses[&vip(2)].clone();
    assert!(shown.role == AnnouncementRole::Held && shown.reason.contains("default/s2"), "{shown:?}");
    stage.end();
}

/// F117: a Service that the kernel rejects is not announced, and the status gives the reason; it is announced
/// once the kernel accepts it.
#[test]
fn f117_what_the_kernel_refuses_is_not_announced() {
    let mut stage = Stage::new("refused");
    stage.kernel.refuse(&service_key(1), Some("no room"));
    stage.add(1..=1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !stage.running.shown.borrow().addresses.get(&vip(1)).is_some_and(|it| it.reason.contains("no room"))
    {
        assert!(Instant::now() < deadline, "{:?}", stage.running.shown.borrow());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(stage.take_log().iter().all(|(_, is_announced, _)| !is_announced));
    stage.kernel.refuse(&service_key(1), None);
    stage.agent.turn(Instant::now() + Duration::from_secs(120), 0);
    stage.settle(1);
    stage.end();
}

/// F117: if one of 1,000 announced addresses changes, the announcer receives one change.
#[test]
fn f117_the_cost_of_a_change_follows_the_change() {
    let mut stage = Stage::new("cost");
    stage.add(1..=1000);
    stage.settle(1000);
    stage.take_log();
    stage.add(7..=7);
    stage.bring(BTreeMap::new(), [(vip(500), None)].into());
    stage.settle(999);
    assert_eq!(stage.take_log(), [(vip(500), false, true)]);
    stage.end();
}

/// A stopping agent ends its BFD sessions, which does not mean that the other nodes are down: while it hands over its own
/// address, it announces none of theirs.
#[test]
fn a_stopping_agent_does_not_take_over_addresses_of_other_nodes() {
    let mut stage = Stage::with("leaving", one_session, Nobody);
    stage.add(1..=2);
    stage.settle(2);
    let other = candidate(Name::parse("other").unwrap(), OTHER);
    let mut standby = address(1, 2);
    standby.announcement.candidates.insert(0, other.clone());
    let mut owned = address(2, 2);
    owned.announcement.candidates.push(other);
    stage.bring(BTreeMap::new(), [standby, owned].map(|state| (state.address, Some(Arc::new(state)))).into());
    stage.settle(1);
    stage.take_log();
    let log = Arc::clone(&stage.log);
    stage.end();
    let log = log.lock().unwrap();
    assert!(log.iter().all(|(_, is_announced, _)| !is_announced), "{log:?}");
    assert!(log.iter().any(|(address, ..)| *address == vip(2)), "{log:?}");
}

/// The kernel forgets its neighbors with a link. A candidate that answers the probe of a node whose link has just returned
/// is still known, and no stranger.
#[test]
fn a_candidate_is_known_after_the_neighbor_table_was_emptied() {
    let table = Table::default();
    table.0.lock().unwrap().insert(OTHER, MAC.to_owned());
    let mut stage = Stage::with("forgotten", one_session, table.clone());
    stage.add(1..=1);
    stage.settle(1);
    stage.bring(BTreeMap::new(), [with_other(1, 2, false)].into());
    stage.wait(|shown| shown.peers.iter().any(|peer| peer.state == PeerState::Up));
    table.0.lock().unwrap().clear();
    let programmed = ServiceChange::Set(Arc::new(with_address(2, 9)));
    stage.bring([(service_key(2), programmed)].into(), [with_other(2, 2, true)].into());
    let reason = |shown: &Announcements| shown.addresses.get(&vip(2)).map(|it| it.reason.clone());
    stage.wait(|shown| reason(shown).is_some_and(|reason| reason.contains("asks whether somebody")));
    let by = Station { mac: MAC.to_owned(), interface: "eth0".to_owned() };
    stage.announcing.tell(Message::Wire(WireEvent::Probed { address: vip(2), by: Some(by) }));
    stage.wait(|shown| reason(shown).is_some_and(|reason| reason.contains("answers for it")));
    let reason = reason(&stage.running.shown.borrow()).unwrap();
    assert!(reason.starts_with("other ("), "{reason}");
    stage.end();
}

/// After its link returned, a node probes, and the present owner answers. An order that arrives before the BFD session is up
/// again does not bring back the earlier failure of this session: the owner keeps the address.
#[test]
fn an_order_does_not_repeat_the_failure_of_a_node_that_has_answered() {
    let table = Table::default();
    table.0.lock().unwrap().insert(OTHER, MAC.to_owned());
    let (sender, session) = std::sync::mpsc::channel();
    let watch = move |announcing| {
        let one = OneSession { announcing, is_down: Arc::default() };
        sender.send(one.clone()).unwrap();
        Box::new(one) as Box<dyn Watch>
    };
    let mut stage = Stage::with("answered", watch, table);
    let session = session.recv().unwrap();
    stage.add(1..=1);
    stage.bring(BTreeMap::new(), [with_other(1, 2, false)].into());
    stage.settle(1);
    stage.wait(|shown| shown.peers.iter().any(|peer| peer.state == PeerState::Up));
    stage.announcing.tell(Message::Carriers(BTreeSet::new()));
    stage.settle(0);
    session.end();
    stage.wait(|shown| shown.peers.iter().any(|peer| peer.state == PeerState::Down));
    let reason_has = |shown: &Announcements, words: &str| {
        shown.addresses.get(&vip(1)).is_some_and(|it| it.reason.contains(words))
    };
    stage.announcing.tell(Message::Carriers(BTreeSet::from(["eth0".to_owned()])));
    stage.wait(|shown| reason_has(shown, "asks whether somebody"));
    let by = Station { mac: MAC.to_owned(), interface: "eth0".to_owned() };
    stage.announcing.tell(Message::Wire(WireEvent::Probed { address: vip(1), by: Some(by) }));
    stage.wait(|shown| reason_has(shown, "answers for it"));
    stage.take_log();
    let mut again = address(1, 2);
    again.revision = Revision(3);
    again.announcement.candidates.push(candidate(Name::parse("other").unwrap(), OTHER));
    stage.bring(BTreeMap::new(), [(vip(1), Some(Arc::new(again)))].into());
    // Another address shows that the order has been carried out.
    stage.add(2..=2);
    stage.settle(1);
    let log = stage.take_log();
    assert!(log.iter().all(|(address, is_announced, _)| *address == vip(2) || !is_announced), "{log:?}");
    assert!(reason_has(&stage.running.shown.borrow(), "answers for it"));
    // The changes keep the causes that they had, whatever the reason of the present role is.
    let changes = stage.running.shown.borrow().changes.clone();
    let of_first = changes.iter().filter(|change| change.address == vip(1));
    let of_first: Vec<_> = of_first.map(|change| (change.announces, change.reason.as_str())).collect();
    let begin = (true, "this node is the first of the candidates");
    assert_eq!(of_first, [begin, (false, "no link on eth0")]);
    assert!(changes.iter().map(|change| change.number).eq(1..=3), "{changes:?}");
    stage.end();
}
