//! Tests that a route is announced to routers only while its Service is programmed in the kernel. A simulated
//! BGP speaker records every call together with the state of the kernel at that time.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::{
    bgp::settings::{BgpAdvertisement, BgpNeighbour, BgpRemote, BgpState},
    cluster::compiled::CompiledService,
    kinds::{
        address::Announcement,
        bgp_peer::{BgpFamily, PeerAsn},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Revision},
    wire::feed::{AddressState, NodeState, StartMode},
};
use node_agent::{
    agent::Agent,
    announce::bgp::{Routers, Routing, plan::Change},
    dataplane::memory::MemoryKernel,
    feed::machine::{Batch, NetworkChanges, PolicyUpdates, ServiceChange},
    tally::Tally,
};

/// Call that the simulated BGP speaker received. The boolean of a route change is true if the Service of the
/// prefix was programmed in the kernel at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Announced(u16, bool),
    Withdrawn(u16, bool),
    /// Call by which the agent loop waits until this number of withdrawals has been sent.
    Awaited(usize),
    EndHeld(bool),
    Configured(usize),
}

use Said::{Announced, Awaited, Configured, EndHeld, Withdrawn};

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::{position, service, service_key},
};

type Log = Arc<Mutex<Vec<Said>>>;

struct Recorder {
    kernel: MemoryKernel,
    log: Log,
}

impl Recorder {
    fn say(&self, said: Said) {
        self.log.lock().unwrap().push(said);
    }
}

impl Routers for Recorder {
    fn configure(&mut self, bgp: Option<&BgpState>) {
        self.say(Said::Configured(bgp.map_or(0, |bgp| bgp.peers.len())));
    }

    fn change(&mut self, changes: Vec<Change>) {
        for (_, prefix, route) in changes {
            let IpAddr::V4(v4) = prefix.addr() else { panic!("only IPv4 here") };
            let number = u16::from_be_bytes([v4.octets()[2], v4.octets()[3]]);
            let is_held = self.kernel.contents().programs.contains_key(&service_key(number));
            let said = if route.is_some() { Said::Announced } else { Said::Withdrawn };
            self.say(said(number, is_held));
        }
    }

    fn hold_end_of_rib(&mut self, is_held: bool) {
        self.say(Said::EndHeld(is_held));
    }

    fn wait_withdrawn(&mut self, withdrawn: &BTreeMap<Name, BTreeSet<IpNet>>, _: Duration) -> bool {
        self.say(Said::Awaited(withdrawn.values().map(BTreeSet::len).sum()));
        true
    }
}

struct Stage {
    agent: Agent,
    kernel: MemoryKernel,
    log: Log,
    revision: u64,
    dir: StateDir,
}

fn vip(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(192, 0, high, low))
}

fn with_endpoints(number: u16, endpoints: u8, revision: u64) -> CompiledService {
    CompiledService { load_balancer_ips: vec![vip(number)], ..service(number, endpoints, revision) }
}

fn address(number: u16) -> AddressState {
    let advertisements = BTreeSet::from([Name::parse("all").unwrap()]);
    AddressState {
        address: vip(number),
        revision: Revision(1),
        services: BTreeSet::from([service_key(number)]),
        announcement: Announcement { advertisements, ..Announcement::default() },
        peer_public_keys: BTreeMap::new(),
    }
}

fn bgp(is_draining: bool) -> BgpState {
    let peer = BgpNeighbour {
        remote: BgpRemote::Address([198, 51, 100, 1].into()),
        peer_asn: PeerAsn::External,
        local_asn: 64512,
        port: 179,
        source_address: None,
        device: None,
        hold_time: 90,
        keepalive_time: None,
        connect_time: 5,
        password: None,
        ttl: 1,
        ttl_security: None,
        passive: false,
        families: [BgpFamily::IPv4].into(),
        graceful_restart: None,
        role: None,
        bfd: None,
        max_prefixes: 1000,
        route_reflector_client: false,
    };
    let advertisement = BgpAdvertisement {
        peers: BTreeSet::new(),
        aggregation_length: 32,
        aggregation_length_v6: 128,
        local_pref: None,
        med: None,
        prepend: 0,
        communities: BTreeSet::new(),
    };
    BgpState {
        asn: 64512,
        router_id: [192, 0, 2, 1].into(),
        is_draining,
        peers: [(Name::parse("tor").unwrap(), peer)].into(),
        advertisements: [(Name::parse("all").unwrap(), advertisement)].into(),
        blocks: BTreeMap::new(),
    }
}

impl Stage {
    fn new(test: &str) -> Self {
        Self::again(StateDir::new(&format!("bgp-order-{test}")), MemoryKernel::default())
    }

    /// Starts an agent with the state directory and the in-memory kernel that an earlier agent has left.
    fn again(dir: StateDir, kernel: MemoryKernel) -> Self {
        let mut agent = agent(&dir, &Kernels::only(&kernel), &Tally::default(), Instant::now());
        let log = Log::default();
        let recorder = Recorder { kernel: kernel.clone(), log: Arc::clone(&log) };
        agent.route_by(Routing::new(Box::new(recorder)));
        let revision = agent.state().position().map_or(0, |position| position.revision.0);
        Self { agent, kernel, log, revision, dir }
    }

    /// Delivers changes of the BGP settings, Services and addresses to the agent, and runs the agent until it
    /// has no more work to do at the current time. Returns the calls that the BGP speaker received.
    fn bring(
        &mut self,
        node: Option<BgpState>,
        services: Vec<(u16, Option<u8>)>,
        addresses: Vec<(u16, bool)>,
    ) -> Vec<Said> {
        self.revision += 1;
        let revision = self.revision;
        let service = |(number, endpoints): (u16, Option<u8>)| -> (ServiceKey, ServiceChange) {
            let change = match endpoints {
                Some(count) => ServiceChange::Set(Arc::new(with_endpoints(number, count, revision))),
                None => ServiceChange::Removed(Revision(revision)),
            };
            (service_key(number), change)
        };
        let address =
            |(number, is_there): (u16, bool)| (vip(number), is_there.then(|| Arc::new(address(number))));
        let batch = Batch {
            mode: if revision == 1 { StartMode::Full } else { StartMode::Delta },
            network: None,
            node: node.map(|bgp| NodeState { bgp: Some(Box::new(bgp)), ..NodeState::default() }),
            services: services.into_iter().map(service).collect(),
            addresses: addresses.into_iter().map(address).collect(),
            networks: NetworkChanges::default(),
            policy: PolicyUpdates::default(),
            position: position(&format!("1-{revision}")),
            traces: Vec::new(),
        };
        let now = Instant::now();
        self.agent.receive(batch, now);
        self.agent.turn(now, 0);
        self.said()
    }

    fn said(&self) -> Vec<Said> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

/// A route is announced only after its Service has been programmed in the kernel. If the Service, with or
/// without its address, or its last endpoint is removed, the agent withdraws the route first, waits until the
/// withdrawal has been sent, and then changes the kernel.
#[test]
fn announced_after_it_is_programmed_and_withdrawn_before_it_is_not() {
    let mut stage = Stage::new("gone");
    assert_eq!(stage.said(), [EndHeld(true)]);
    let said = stage.bring(
        Some(bgp(false)),
        (1..=3).map(|n| (n, Some(1))).collect(),
        (1..=3).map(|n| (n, true)).collect(),
    );
    assert_eq!(
        said,
        [Configured(1), Announced(1, true), Announced(2, true), Announced(3, true), EndHeld(false)],
    );
    assert_eq!(stage.bring(None, vec![(1, None)], vec![(1, false)]), [Withdrawn(1, true), Awaited(1)]);
    assert!(!stage.kernel.contents().programs.contains_key(&service_key(1)));
    assert_eq!(stage.bring(None, vec![(2, None)], vec![]), [Withdrawn(2, true), Awaited(1)]);
    assert_eq!(stage.bring(None, vec![(3, Some(0))], vec![]), [Withdrawn(3, true), Awaited(1)]);
    assert_eq!(stage.bring(None, vec![(3, Some(2))], vec![]), [Announced(3, true)]);
    assert_eq!(stage.bring(None, vec![(3, Some(3))], vec![]), []);
}

#[test]
fn what_the_kernel_refuses_is_not_announced_and_a_drained_node_withdraws() {
    let mut stage = Stage::new("refused");
    stage.kernel.refuse(&service_key(1), Some("no room"));
    let said = stage.bring(Some(bgp(false)), vec![(1, Some(1)), (2, Some(1))], vec![(1, true), (2, true)]);
    assert_eq!(said, [EndHeld(true), Configured(1), Announced(2, true), EndHeld(false)]);
    stage.kernel.refuse(&service_key(1), None);
    stage.agent.turn(Instant::now() + Duration::from_secs(120), 0);
    assert_eq!(stage.said(), [Announced(1, true)]);
    let said = stage.bring(Some(bgp(true)), vec![], vec![]);
    assert_eq!(said, [Configured(1), Withdrawn(1, true), Withdrawn(2, true), Awaited(2)]);
    let said = stage.bring(Some(bgp(false)), vec![], vec![]);
    assert_eq!(said, [Configured(1), Announced(1, true), Announced(2, true)]);
}

/// A restarted agent configures its peers from the journal (file with its last state) and announces only
/// Services that it has read back from the kernel. End-of-RIB is sent only after these announcements, even if
/// the last change concerned only the BGP settings of the node.
#[test]
fn a_restart_announces_from_the_journal_before_control_is_reached() {
    let mut stage = Stage::new("restart");
    stage.bring(Some(bgp(true)), vec![(1, Some(1))], vec![(1, true)]);
    stage.bring(Some(bgp(false)), vec![], vec![]);
    let Stage { agent, kernel, dir, .. } = stage;
    agent.stop().unwrap();
    let mut stage = Stage::again(dir, kernel);
    assert_eq!(stage.said(), [EndHeld(true), Configured(1)]);
    stage.agent.turn(Instant::now(), 0);
    assert_eq!(stage.said(), [Announced(1, true), EndHeld(false)]);
}

/// If one of 1,000 announced addresses changes, the BGP speaker receives one route change.
#[test]
fn the_cost_of_a_change_follows_the_change() {
    let mut stage = Stage::new("cost");
    let all = || 1..=1000;
    stage.bring(Some(bgp(false)), all().map(|n| (n, Some(1))).collect(), all().map(|n| (n, true)).collect());
    assert_eq!(stage.bring(None, vec![(7, Some(2))], vec![]), []);
    assert_eq!(stage.bring(None, vec![], vec![(500, false)]), [Withdrawn(500, true), Awaited(1)]);
}
