//! One virtual address for the DNS servers of all nodes: clients ask the server of their own node, and another one while
//! that is down. Two questions that a client sends at once both get an answer.

#![allow(clippy::print_stdout, reason = "durations are printed, never asserted")]

use std::{
    fs,
    io::ErrorKind,
    net::UdpSocket,
    path::{Path, PathBuf},
    sync::Barrier,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{
    cluster::{
        control::Http,
        deployment::{Cluster, Options},
    },
    host::{netns::Namespace, wait},
    network::topology::node_addresses,
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::json;

use crate::discovery::question;

/// Virtual address of the DNS servers.
const ADDRESS: &str = "10.96.0.53";
/// Name that clients ask for, and its address.
const NAME: (&str, &str) = ("web.shop.svc.cluster.local", "10.96.7.7");

/// Number of pairs of questions between two comparisons of the kernel's counters.
const PAIRS: usize = 500;
/// Maximum number of pairs of questions.
const PAIRS_MAX: usize = 20_000;
/// Minimum number of lookups during the loss of a server.
const LOOKUPS_MIN: u32 = 50;
/// Time after which resolvers repeat a question by default. The server of another node answers sooner.
const RETRY: Duration = Duration::from_secs(5);
/// Time in seconds after which the lookups of the test repeat a question, once.
const LOOKUP_RETRY_SECS: u64 = 2;
/// Time within which both answers arrive. A resolver repeats a question after 5 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

/// Starts `tidegate-dns` at port 53 of a node's address.
fn start_on(cluster: &Cluster, index: u8, directory: &std::path::Path) -> (Process, Http) {
    let namespace = cluster.place(&format!("node{index}")).unwrap().clone();
    let [address, _] = node_addresses(index);
    let mut process = Process::start(Plan {
        label: format!("tidegate-dns of node{index}"),
        namespace: namespace.clone(),
        program: binaries::find("tidegate-dns").unwrap(),
        arguments: vec![
            format!("--api={}", cluster.api.url()),
            format!("--listen={address}"),
            format!("--server-address={ADDRESS}"),
            "--status-listen=127.0.0.1:7443".to_owned(),
            format!("--name=node{index}"),
        ],
        environment: Vec::new(),
        log: directory.join(format!("log{index}")),
    })
    .unwrap();
    let status = Http::new(&namespace, "127.0.0.1:7443".parse().unwrap());
    process.wait_ready(|| status.get("/readyz")?.success()).unwrap();
    (process, status)
}

/// Returns the number of questions that a server has answered with records.
fn answered(status: &Http) -> u64 {
    let text = status.get("/metrics").unwrap().text;
    let of = "tidegate_dns_questions_total{outcome=\"Own\"} ";
    text.lines().find_map(|line| line.strip_prefix(of)).map_or(0, |count| count.parse().unwrap())
}

/// F164: `resolv.conf` of every client names one address. The server of the client's node answers; after it was killed, the
/// one of another node does, without a change at the client.
#[test]
fn f164_a_virtual_address_leads_to_the_server_of_the_node() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.topology.add_workload("workload", "node1", 9).unwrap();
    let endpoints = [1, 2].map(|index| {
        let [address, _] = node_addresses(index);
        json!({ "address": address, "node": format!("node{index}") })
    });
    let ports = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53 }]);
    cluster
        .apply_objects(&[
            json!({ "kind": "Service", "metadata": { "name": "dns" }, "spec": {
                "clusterIP": ADDRESS, "ports": ports, "trafficDistribution": "PreferSameNode",
                "healthCheck": { "type": "Tcp", "port": 53, "intervalMs": 500, "timeoutMs": 400, "fall": 1, "rise": 1 } } }),
            json!({ "kind": "EndpointSet", "metadata": { "name": "dns" }, "spec": {
                "service": "dns", "endpoints": endpoints } }),
            json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" }, "spec": {
                "clusterIP": NAME.1, "ports": [{ "port": 80 }] } }),
        ])
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (mut own, own_status) = start_on(&cluster, 1, directory.path());
    let (mut other, other_status) = start_on(&cluster, 2, directory.path());
    let client = cluster.place("workload").unwrap().clone();
    wait::until_true("the reports of both servers", || {
        let list = cluster.api.get_json("/v1/dns/servers").unwrap();
        let servers = list["servers"].as_array().unwrap();
        let reported = |name: &str| {
            servers.iter().any(|one| {
                one["name"] == name && one["problems"].is_null() && !one["report"]["revision"].is_null()
            })
        };
        reported("node1") && reported("node2")
    })
    .unwrap();
    let ask = |option: &str| {
        let server = format!("@{ADDRESS}");
        let answer = client.run("dig", &[&server, "+tries=1", "+time=1", "+short", option, NAME.0]);
        answer.is_ok_and(|answer| answer.trim() == NAME.1)
    };
    for option in ["+notcp", "+tcp"] {
        wait::until_true("the server of the node", || {
            let before = answered(&own_status);
            ask(option) && answered(&own_status) > before
        })
        .unwrap();
    }
    let others = answered(&other_status);
    assert!((0..10).all(|_| ask("+notcp")));
    assert_eq!(answered(&other_status), others, "only the server of the node is asked");
    parallel_questions(&cluster, &client);
    let lookups = Lookups::start(&client, directory.path());
    let node = cluster.place("node1").unwrap().clone();
    // Errors are dropped once the health checks have found both servers.
    wait::until_true("two usable servers", || {
        let set = node.run("nft", &["list", "set", "inet", "tidegate", "failover4"]);
        set.is_ok_and(|set| set.contains(ADDRESS))
    })
    .unwrap();
    own.kill();
    thread::scope(|scope| {
        for client in [&client, &node] {
            scope.spawn(move || one_retry(client));
        }
    });
    wait::until_true("the server of another node", || ask("+notcp") && ask("+tcp")).unwrap();
    println!("{}", lookups.end());
    assert!(answered(&other_status) > others);
    wait::until_true("the problem of the server", || {
        let status = cluster.api.get_json("/v1/status").unwrap();
        let mut problems = status["problems"].as_array().unwrap().iter();
        problems.any(|one| one["object"] == "DnsServer node1" && one["reason"] == "DnsServerSilent")
    })
    .unwrap();
    let metrics = cluster.api.get("/metrics").unwrap().text;
    assert!(metrics.contains("tidegate_dns_servers 2\n"), "{metrics}");
    assert!(metrics.contains("tidegate_dns_servers_with_problems 1\n"), "{metrics}");
    other.kill();
    refused(&client);
}

/// Asks until a question is refused, since the last server was killed: no other endpoint could answer a repeated one.
fn refused(client: &Namespace) {
    let socket = client.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((ADDRESS, 53)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    wait::until_true("a refused question", || {
        let sent = socket.send(&question(7, NAME.0)).map(|_| ());
        let received = sent.and_then(|()| socket.recv(&mut [0; 512]));
        received.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    })
    .unwrap();
}

/// Lookups of a client by the C library, one after another, with nothing but the virtual address in `resolv.conf`. Each lookup
/// repeats its question once, and must succeed.
struct Lookups {
    stop: PathBuf,
    loops: JoinHandle<String>,
}

impl Lookups {
    fn start(client: &Namespace, directory: &Path) -> Self {
        let [stop, begun, file] = ["stop", "begun", "resolv.conf"].map(|name| directory.join(name));
        let options = format!("options timeout:{LOOKUP_RETRY_SECS} attempts:2");
        fs::write(&file, format!("nameserver {ADDRESS}\n{options}\n")).unwrap();
        let script = format!(
            "mount --bind {} /etc/resolv.conf && count=0 repeated=0
             until [ -e {} ] && [ $count -ge {LOOKUPS_MIN} ]; do
               begin=$(date +%s%3N)
               getent ahostsv4 {} > /dev/null || echo lookup $count failed
               [ $(($(date +%s%3N) - begin)) -lt {LOOKUP_RETRY_SECS}000 ] || repeated=$((repeated + 1))
               count=$((count + 1)); echo > {}
             done; echo $count lookups, $repeated repeated",
            file.display(),
            stop.display(),
            NAME.0,
            begun.display(),
        );
        let client = client.clone();
        let loops = thread::spawn(move || client.run("unshare", &["--mount", "sh", "-c", &script]).unwrap());
        wait::until_true("the first lookup", || begun.exists()).unwrap();
        Self { stop, loops }
    }

    /// Ends the lookups and returns the number of all, and of those that were repeated.
    fn end(self) -> String {
        fs::write(&self.stop, "").unwrap();
        let output = self.loops.join().unwrap();
        assert!(!output.contains("failed"), "{output}");
        output.trim().to_owned()
    }
}

/// Asks again every 100 ms from one socket, after the server of the node was killed, until another server answers. No question is
/// refused. A resolver that repeats its question after [`RETRY`] gets an answer to the second one.
fn one_retry(client: &Namespace) {
    let socket = client.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((ADDRESS, 53)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let begun = Instant::now();
    let mut answer = [0; 512];
    loop {
        match socket.send(&question(7, NAME.0)).and_then(|_| socket.recv(&mut answer)) {
            Ok(size) => {
                assert!(size > 12);
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < RETRY, "no server has answered after {:?}", begun.elapsed());
    }
    println!("another server answered {} after {:?}", client.name(), begun.elapsed());
}

/// Counters of connection tracking in a namespace.
#[derive(Debug, Default)]
struct TrackingCounters {
    /// Packets whose entry another packet of the same connection had created in the meantime, and that were kept.
    clashes: u64,
    /// Packets that were dropped, or whose entry could not be created.
    failures: u64,
}

impl TrackingCounters {
    fn of(namespace: &Namespace) -> Self {
        let text = namespace.run("cat", &["/proc/net/stat/nf_conntrack"]).unwrap();
        let mut lines = text.lines().map(str::split_whitespace);
        let head: Vec<_> = lines.next().unwrap().collect();
        let mut counters = Self::default();
        // One line for each processor.
        for (name, value) in lines.flat_map(|line| head.iter().zip(line)) {
            let value = u64::from_str_radix(value, 16).unwrap();
            match *name {
                "clashres" | "clash_resolve" => counters.clashes += value,
                "insert_failed" | "drop" => counters.failures += value,
                _ => {}
            }
        }
        counters
    }
}

/// Resolvers send the questions for both IP families from one socket at once, as the first packets of a new connection. On
/// two processors, both packets create an entry in connection tracking; the one that comes second must not be dropped, or
/// the client waits for 5 s. Pairs are sent until such a clash has occurred, and every question gets its answer.
fn parallel_questions(cluster: &Cluster, client: &Namespace) {
    let node = cluster.place("node1").unwrap();
    let before = TrackingCounters::of(node);
    let mut asked = 0;
    let mut slowest = Duration::ZERO;
    let clashes = loop {
        for _ in 0..PAIRS {
            slowest = slowest.max(ask_both(client));
        }
        asked += PAIRS;
        let TrackingCounters { clashes, failures } = TrackingCounters::of(node);
        assert_eq!(failures, before.failures, "packets were dropped after {asked} pairs");
        if clashes > before.clashes || asked >= PAIRS_MAX {
            break clashes - before.clashes;
        }
    };
    println!("{asked} pairs of questions, {clashes} clashes, slowest answer after {slowest:?}");
    assert!(clashes > 0, "no two packets clashed in {asked} pairs: the test shows nothing");
}

/// Sends the questions for both IP families from one new socket at once, and returns the time until both are answered.
fn ask_both(client: &Namespace) -> Duration {
    let socket = client.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((ADDRESS, 53)).unwrap();
    socket.set_read_timeout(Some(ANSWERED_WITHIN)).unwrap();
    let mut questions = [question(1, NAME.0), question(2, NAME.0)];
    // Type AAAA instead of A, before the class.
    let end = questions[1].len();
    questions[1][end - 3] = 28;
    let start = Barrier::new(2);
    let begun = Instant::now();
    thread::scope(|scope| {
        for question in &questions {
            let (socket, start) = (&socket, &start);
            scope.spawn(move || {
                start.wait();
                socket.send(question).unwrap();
            });
        }
    });
    let mut answered: Vec<_> = (0..2)
        .map(|_| {
            let mut answer = [0; 512];
            let size = socket.recv(&mut answer).expect("both questions are answered");
            (answer[1], size > 12)
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [(1, true), (2, true)]);
    begun.elapsed()
}
