//! Health checks by default in the agent: which Services it checks, and how many connections this takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::{CompiledService, DefaultCheck},
    kinds::service::Protocol,
    wire::feed::NetworkState,
};
use node_agent::{
    agent::Agent,
    dataplane::memory::MemoryKernel,
    feed::machine::Batch,
    health::{self, Running, plan::Changes},
    tally::Tally,
};

use crate::support::{
    Namespace,
    agents::{Kernels, agent},
    dir::StateDir,
    states::{delta, full, node_name, service, service_key},
};

/// Maximum time to wait for an expected change.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of endpoints whose checks are counted.
const ENDPOINTS: u16 = 1000;
/// Time over which checks are counted: two intervals of the check.
const COUNTED: Duration = Duration::from_secs(20);

/// Agent with a health checker in a namespace.
struct Node {
    agent: Agent,
    shown: tokio::sync::watch::Receiver<health::CheckedEndpoints>,
    now: Instant,
}

impl Node {
    fn start(dir: &StateDir, namespace: &Namespace) -> Self {
        let (tally, now) = (Tally::default(), Instant::now());
        let mut agent = agent(dir, &Kernels::only(&MemoryKernel::default()), &tally, now);
        let running = namespace.run(|| health::start(node_name(), tally.health.clone()).unwrap());
        let Running { checking, shown } = running;
        agent.check_by(checking);
        Self { agent, shown, now }
    }

    fn take(&mut self, batch: Batch) {
        self.agent.receive(batch, self.now);
        self.agent.turn(self.now, 0);
    }

    /// Waits until exactly the Services with these numbers are checked.
    fn until_checked(&self, numbers: &[u16]) {
        let expected: BTreeSet<_> = numbers.iter().map(|number| service_key(*number)).collect();
        let end = Instant::now() + PATIENCE;
        loop {
            let checked: BTreeSet<_> = self.shown.borrow().services.keys().cloned().collect();
            if checked == expected {
                return;
            }
            assert!(Instant::now() < end, "{checked:?} are checked, not {expected:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn network(default_check: bool) -> Option<NetworkState> {
    let checkers = BTreeSet::from([node_name()]);
    Some(NetworkState { default_check, checkers, ..NetworkState::default() })
}

/// The agent follows the setting in the network state. It does not need the Services again when the setting changes, and
/// knows the setting after a restart without a control server.
#[test]
fn f148_checks_by_default_follow_the_setting_although_no_service_is_sent_again() {
    let (dir, namespace) = (StateDir::new("default-checks"), Namespace::new("default-checks"));
    let exempt = CompiledService { default_check: DefaultCheck::Exempt, ..service(2, 1, 1) };
    let mut by_source = service(3, 1, 1);
    by_source.ports[0].endpoints[0].checked_by_source = true;
    let mut datagrams = service(4, 1, 1);
    datagrams.ports[0].protocol = Protocol::Udp;
    let services = vec![service(1, 1, 1), exempt, by_source, datagrams];
    let mut node = Node::start(&dir, &namespace);
    node.take(Batch { network: network(true), ..full("7-10", services) });
    node.until_checked(&[1]);
    node.take(Batch { network: network(false), ..delta("7-11", Vec::new()) });
    node.until_checked(&[]);
    node.take(Batch { network: network(true), ..delta("7-12", vec![service(5, 1, 12)]) });
    node.until_checked(&[1, 5]);
    drop(node);
    Node::start(&dir, &namespace).until_checked(&[1, 5]);
}

/// Each endpoint gets one connection every 9 s to 10 s, and the checks of many endpoints spread out: no second has more
/// than a quarter of them after the first interval. Prints the processor time of the checks.
#[test]
fn f148_checks_by_default_of_many_endpoints_spread_out_at_one_connection_in_nine_to_ten_seconds() {
    let namespace = Namespace::new("default-rate");
    namespace.ip(&["addr", "add", "10.244.0.1/16", "dev", "lo"]);
    let connections = Arc::new(AtomicUsize::new(0));
    let (counted, listener) =
        (Arc::clone(&connections), namespace.run(|| TcpListener::bind("0.0.0.0:8080").unwrap()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let running = namespace.run(|| health::start(node_name(), Tally::default().health).unwrap());
    let checked = |number: u16| {
        let mut compiled = service(number, 1, 1);
        let [high, low] = number.to_be_bytes();
        compiled.ports[0].endpoints[0].address = IpAddr::V4(Ipv4Addr::new(10, 244, high + 1, low));
        compiled.default_check = DefaultCheck::On;
        (service_key(number), Some(Arc::new(compiled)))
    };
    let services: BTreeMap<_, _> = (0..ENDPOINTS).map(checked).collect();
    running.checking.follow(Changes { services, checkers: Some(BTreeSet::from([node_name()])) });
    let count = || connections.load(Ordering::SeqCst);
    let end = Instant::now() + PATIENCE;
    while count() < usize::from(ENDPOINTS) {
        assert!(Instant::now() < end, "{} endpoints were checked", count());
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_secs(10));
    let (first, processor, begun) = (count(), processor_seconds(), Instant::now());
    let mut busiest = 0;
    while begun.elapsed() < COUNTED {
        let before = count();
        thread::sleep(Duration::from_secs(1));
        busiest = busiest.max(count() - before);
    }
    let (took, checks) = (begun.elapsed().as_secs_f64(), count() - first);
    println!(
        "{ENDPOINTS} endpoints: {:.0} connections/s, at most {busiest} in one second, {:.2} % of a processor",
        checks as f64 / took,
        (processor_seconds() - processor) / took * 100.0
    );
    let of_interval = |seconds: f64| took / seconds * f64::from(ENDPOINTS);
    // A busy machine delays checks, and one more check of each endpoint may fall into the time.
    assert!((checks as f64) < of_interval(9.0) + f64::from(ENDPOINTS), "{checks} checks in {took} s");
    assert!(checks as f64 > of_interval(20.0), "{checks} checks in {took} s");
    assert!(busiest < usize::from(ENDPOINTS) / 4, "{busiest} checks in one second");
}

/// Returns the processor time of the threads of this process that run health checks.
fn processor_seconds() -> f64 {
    let mut ticks = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let text = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        let Some((head, rest)) = text.rsplit_once(") ") else { continue };
        if head.ends_with("(checks") {
            let fields: Vec<_> = rest.split(' ').collect();
            ticks += fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
        }
    }
    // Linux reports 100 ticks per second to programs on all supported architectures.
    f64::from(ticks) / 100.0
}
