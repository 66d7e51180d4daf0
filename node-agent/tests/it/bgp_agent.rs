//! Tests of an agent with an in-memory kernel and a simulated router: messages to the router, BGP status in
//! reports to the control server, and BGP status on the agent's own status server.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
};

use bgp::{
    Capability, Family, GracefulRestart as PeerRestart, Message, Open, Update,
    notification::{cease, code},
    wire::{self, Context},
};
use ipnet::IpNet;
use model::{
    bgp::{
        report::BgpSessionState,
        settings::{BgpAdvertisement, BgpNeighbour, BgpState},
    },
    cluster::compiled::CompiledService,
    kinds::{
        address::Announcement,
        bgp_peer::{BgpFamily, GracefulRestart},
        event::EventReason,
    },
    primitives::quantity::Revision,
    wire::{
        feed::{AddressState, Frame, NodeState},
        report::Report,
    },
};
use node_agent::{
    config::{
        Config,
        options::{AnnounceSettings, Options},
    },
    control,
    dataplane::memory::MemoryKernel,
    run,
};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Namespace,
    agents::Kernels,
    bgp::{Puppet, listen, name, neighbour, state},
    control::{Control, PATIENCE},
    dir::StateDir,
    states::{full_frames, service, service_key, set, synced},
};

const OURS: u32 = 64_512;
const THEIRS: u32 = 64_513;
const ROUTER: &str = "127.0.0.2";

/// Agent that runs with a simulated router and a simulated control server.
struct Running {
    listen: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(dir: &StateDir, kernel: &MemoryKernel, control: SocketAddr, on_exit: &str) -> Self {
        let options = Options {
            api: Some(vec![format!("http://{control}")]),
            node: Some("n1".to_owned()),
            state_dir: Some(dir.path().to_owned()),
            listen: Some("127.0.0.1:0".to_owned()),
            announcing: AnnounceSettings { on_exit: Some(on_exit.to_owned()), ..AnnounceSettings::default() },
            ..Options::default()
        };
        let config = Config::from_options(options, "host").unwrap();
        let stop = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let task = tokio::spawn(run::run(config, Kernels::only(kernel).ways(), stop.clone(), ready));
        let run::Ready { listen, .. } = timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        Self { listen, stop, task }
    }

    async fn get(&self, path: &str) -> String {
        let client = control::client(rustls::RootCertStore::empty()).unwrap();
        let response = client.get(format!("http://{}{path}", self.listen)).send().await.unwrap();
        response.text().await.unwrap()
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(2 * PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

fn vip() -> IpAddr {
    [203, 0, 113, 10].into()
}

fn prefix() -> IpNet {
    "203.0.113.10/32".parse().unwrap()
}

fn web(endpoints: u8, revision: u64) -> CompiledService {
    CompiledService { load_balancer_ips: vec![vip()], ..service(1, endpoints, revision) }
}

fn bgp(graceful_restart: Option<GracefulRestart>) -> BgpState {
    let peer = BgpNeighbour {
        hold_time: 90,
        source_address: Some([127, 0, 0, 1].into()),
        families: [BgpFamily::IPv4].into(),
        graceful_restart,
        ..neighbour(OURS, ROUTER, THEIRS)
    };
    let advertisement = BgpAdvertisement {
        peers: BTreeSet::new(),
        aggregation_length: 32,
        aggregation_length_v6: 128,
        local_pref: None,
        med: Some(7),
        prepend: 0,
        communities: ["no-export".parse().unwrap()].into(),
    };
    BgpState { advertisements: [(name("all"), advertisement)].into(), ..state(OURS, [("tor", peer)]) }
}

/// Builds the feed frames (messages from the control server) of a full state: a Service, its announced
/// address, and `bgp` as the BGP settings of the node.
fn frames(bgp: BgpState) -> Vec<Frame> {
    let mut frames = full_frames("7-10", vec![web(1, 9)]);
    let node = NodeState { bgp: Some(Box::new(bgp)), ..NodeState::default() };
    let address = AddressState {
        address: vip(),
        revision: Revision(9),
        services: [service_key(1)].into(),
        announcement: Announcement { advertisements: [name("all")].into(), ..Announcement::default() },
        peer_public_keys: BTreeMap::new(),
    };
    let last = frames.len() - 1;
    frames.insert(last, Frame::Address { address: Arc::new(address) });
    frames.insert(last, Frame::Node(node));
    frames
}

/// Accepts the agent's BGP connection and answers its OPEN with an OPEN that contains `capabilities` as well.
/// Returns the connection and the agent's OPEN.
fn accept(listener: &TcpListener, capabilities: Vec<Capability>) -> (Puppet, Open) {
    tokio::task::block_in_place(|| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        let usual = [Capability::MultiProtocol(Family::Ipv4Unicast), Capability::FourOctetAs(THEIRS)];
        let capabilities = usual.into_iter().chain(capabilities).collect();
        let open = Open { asn: THEIRS, hold_time: 90, router_id: [9, 9, 9, 9].into(), capabilities };
        let context = Context { four_octet_as: true, is_external: true, ..Context::default() };
        for message in [Message::Open(open), Message::Keepalive] {
            stream.write_all(&wire::encode(&message, &Context::default()).unwrap()).unwrap();
        }
        let mut puppet = Puppet { stream, context };
        let Some(Message::Open(open)) = puppet.receive() else { panic!("OPEN comes first") };
        (puppet, open)
    })
}

/// Returns the next message from the agent to the router that is not a KEEPALIVE; `None` at the end of the
/// connection.
fn hear(puppet: &mut Puppet) -> Option<Message> {
    tokio::task::block_in_place(|| {
        loop {
            match puppet.receive() {
                Some(Message::Keepalive) => {}
                other => return other,
            }
        }
    })
}

fn hear_update(puppet: &mut Puppet) -> Update {
    match hear(puppet) {
        Some(Message::Update(update)) => *update,
        other => panic!("no UPDATE: {other:?}"),
    }
}

/// Returns the state of the session in a report, and its reason.
fn last_session(report: &Report) -> (BgpSessionState, String) {
    let [session] = &*report.bgp.as_ref().unwrap().sessions else { panic!("{:?}", report.bgp) };
    (session.state, session.reason.clone())
}

/// Runs a test in a namespace with a router that listens for the agent's connection.
fn with_router<F: Future<Output = ()>>(test: &str, work: impl FnOnce(TcpListener) -> F + Send) {
    let namespace = Namespace::new(test);
    let listener = listen(&namespace, ROUTER);
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(work(listener));
    });
}

/// A prefix is announced once with the attributes of its Advertisement, followed by End-of-RIB. The prefix is
/// withdrawn when the last endpoint is removed and when the agent ends. Session, route and event are reported
/// to the control server, and the agent's status server returns them.
#[test]
fn a_router_hears_what_the_kernel_holds_and_control_hears_what_the_router_was_told() {
    with_router("bgp-agent", |listener| async move {
        let (dir, kernel) = (StateDir::new("bgp-agent"), MemoryKernel::default());
        let mut control = Control::start().await;
        let agent = Running::start(&dir, &kernel, control.address, "handover").await;
        let stream = control.accept().await;
        stream.send(&frames(bgp(None)));

        let (mut router, open) = accept(&listener, vec![]);
        assert_eq!(open.asn, OURS);
        let update = hear_update(&mut router);
        assert_eq!(update.announced, [prefix()], "{update:?}");
        let attributes = update.attributes.unwrap();
        assert_eq!((attributes.med, attributes.communities), (Some(7), [bgp::Community::NO_EXPORT].into()));
        assert_eq!(hear_update(&mut router).end_of_rib, Some(Family::Ipv4Unicast));

        let is_told = |report: &Report| {
            let told = report.bgp_routes.get(&prefix()).and_then(|route| route.peers.get("tor"));
            told.is_some_and(|told| told.since.is_some() && told.text.contains("AS path 64512, MED 7"))
        };
        let is_up = |report: &Report| {
            let sessions = report.bgp.iter().flat_map(|bgp| &bgp.sessions);
            let mut states = sessions.map(|session| session.state);
            let has_event = report.events.iter().any(|event| event.reason == EventReason::BgpSessionUp);
            has_event && states.any(|state| state == BgpSessionState::Established)
        };
        control.until("the route is told", |said| said.reports.iter().any(is_told)).await;
        control.until("the session is up", |said| said.reports.iter().any(is_up)).await;
        let shown: serde_json::Value = serde_json::from_str(&agent.get("/v1/state").await).unwrap();
        assert_eq!(shown["bgp"]["sessions"][0]["state"], "Established", "{shown}");
        assert!(shown["events"].to_string().contains("BgpSessionUp"), "{shown}");
        assert!(agent.get("/v1/routes").await.contains("203.0.113.10/32"));
        assert!(agent.get("/metrics").await.contains("tidegate_agent_bgp_sessions_established 1"));

        stream.send(&[set(web(0, 11)), synced("7-11")]);
        assert_eq!(hear_update(&mut router).withdrawn, [prefix()]);
        let is_withheld = |report: &Report| {
            let route = report.bgp_routes.get(&prefix());
            let withheld = route.and_then(|route| route.withheld.as_deref());
            withheld.is_some_and(|why| why.contains("default/s1") && why.contains("endpoints"))
        };
        control.until("the reason is told", |said| said.reports.iter().any(is_withheld)).await;

        stream.send(&[set(web(2, 12)), synced("7-12")]);
        assert_eq!(hear_update(&mut router).announced, [prefix()]);
        agent.stop().await;
        assert_eq!(hear_update(&mut router).withdrawn, [prefix()]);
        let Some(Message::Notification(last)) = hear(&mut router) else { panic!("no NOTIFICATION") };
        assert_eq!((last.code, last.subcode), (code::CEASE, cease::SHUTDOWN));
        assert_eq!(hear(&mut router), None);
        let last = control.said().reports.last().cloned().unwrap();
        assert_eq!(last_session(&last), (BgpSessionState::Idle, "the agent has stopped".to_owned()));
        assert!(last.bgp_routes_complete && last.bgp_routes[&prefix()].peers["tor"].since.is_none());
        assert!(kernel.contents().programs.contains_key(&service_key(1)), "the kernel stays as it is");
    });
}

/// With `--on-exit keep` the BGP connection closes without a NOTIFICATION, so that the router keeps the
/// routes. The next agent process signals the restart and announces the routes in its journal, with
/// End-of-RIB, without a control server.
#[test]
fn a_planned_restart_says_nothing_and_the_next_life_announces_without_control() {
    with_router("bgp-again", |listener| async move {
        let (dir, kernel) = (StateDir::new("bgp-again"), MemoryKernel::default());
        let mut control = Control::start().await;
        let agent = Running::start(&dir, &kernel, control.address, "keep").await;
        let stream = control.accept().await;
        stream.send(&frames(bgp(Some(GracefulRestart { restart_time: 120 }))));
        let helps = || {
            let families = [(Family::Ipv4Unicast, false)].into();
            vec![Capability::GracefulRestart(PeerRestart {
                is_restarted: false,
                notification: true,
                restart_time: 60,
                families,
            })]
        };
        let (mut router, _) = accept(&listener, helps());
        assert_eq!(hear_update(&mut router).announced, [prefix()]);
        assert_eq!(hear_update(&mut router).end_of_rib, Some(Family::Ipv4Unicast));
        agent.stop().await;
        assert_eq!(hear(&mut router), None, "neither a withdrawal nor a NOTIFICATION");
        let last = control.said().reports.last().cloned().unwrap();
        assert_eq!(last_session(&last).0, BgpSessionState::Idle);
        assert!(!last.bgp_routes_complete && last.bgp_routes.is_empty(), "the router keeps the route");
        let address = control.address;
        drop((stream, control));

        let agent = Running::start(&dir, &kernel, address, "handover").await;
        let (mut router, open) = accept(&listener, helps());
        let restart = open.capabilities.iter().find_map(|capability| {
            let Capability::GracefulRestart(restart) = capability else { return None };
            Some(restart.clone())
        });
        let restart = restart.unwrap();
        assert!(
            restart.is_restarted && restart.families == [(Family::Ipv4Unicast, true)].into(),
            "{restart:?}"
        );
        assert_eq!(hear_update(&mut router).announced, [prefix()]);
        assert_eq!(hear_update(&mut router).end_of_rib, Some(Family::Ipv4Unicast));
        agent.stop().await;
        assert_eq!(hear_update(&mut router).withdrawn, [prefix()]);
        // With a plain Cease the router would keep the routes (RFC 8538 §3).
        let Some(Message::Notification(last)) = hear(&mut router) else { panic!("no NOTIFICATION") };
        assert_eq!((last.code, last.subcode), (code::CEASE, cease::HARD_RESET));
    });
}
