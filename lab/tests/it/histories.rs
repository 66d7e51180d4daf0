//! Consistency tests: while control servers and their store are killed, suspended and disconnected, also in one
//! direction, and the clocks of the servers differ and jump, the observations of clients, watchers and an agent
//! satisfy all guarantees of `lab::chaos::histories`.
//!
//! Each round prints its seed. `TIDEGATE_SEED` repeats the round of one seed, and `TIDEGATE_SOAK` runs
//! thousands of rounds.

#![allow(clippy::print_stdout, reason = "seeds and counts are printed, so that a round can be repeated")]

use std::{collections::BTreeMap, env, fmt::Write, time::Instant};

use lab::{
    chaos::servers::{
        faults::{CLIENTS_HOST, Targets},
        round::Round,
    },
    cluster::{
        control::Http,
        etcd,
        machines::{self, Fabric, Program},
    },
    host::random,
    processes::{binaries, wall_clock::WallClock},
};
use serde_json::json;

/// Number of rounds of the server with a file store.
const ROUNDS_SQLITE: u64 = 10;
/// Number of rounds of three servers on three etcd members.
const ROUNDS_ETCD: u64 = 25;
/// Number of rounds in a soak run.
const ROUNDS_SOAK: u64 = 2000;
/// Seconds by which the system clock of each control server is ahead of the machine at first.
const CLOCKS_SECS: [i64; 3] = [0, 600, -600];
/// Number of clients that write and read.
const WRITERS: usize = 8;
/// Number of watchers that switch between servers.
const WATCHERS: usize = 2;
/// Name of the Node for which a test client reads the feed (stream of state to an agent). The client sends no
/// reports, so the Node counts as lost, but its feed is like that of any other node.
const NODE: &str = "follower";
/// Maximum number of violations printed per round.
const SHOWN_MAX: usize = 8;

/// Returns the arguments of a control server that listens at `address` and uses the store `store`.
fn arguments(address: std::net::SocketAddr, store: &str) -> Vec<String> {
    vec![
        format!("--listen={address}"),
        format!("--store={store}"),
        "--insecure".to_owned(),
        "--service-cidr=10.96.0.0/16".to_owned(),
        // Clients delete everything repeatedly.
        "--guard-vips-percent=100".to_owned(),
        "--guard-endpoints-percent=100".to_owned(),
    ]
}

/// Runs `rounds` rounds of the consistency test, each with its own seed and `faults` faults. Panics with all
/// violations found.
fn weather(targets: &mut Targets, rounds: u64, faults: usize) {
    let clients = targets.fabric.place("clients", CLIENTS_HOST).unwrap();
    let first = &targets.servers[0];
    let node = json!({"apiVersion": "tidegate/v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"addresses": ["172.17.8.101"]}});
    let api = Http::new(&first.namespace, first.address);
    api.send_json("POST", "/v1/nodes", &node).unwrap().success().unwrap();
    let (base, is_named) = random::seed().unwrap();
    let rounds = if is_named {
        1
    } else if env::var_os("TIDEGATE_SOAK").is_some() {
        ROUNDS_SOAK
    } else {
        rounds
    };
    let mut faulty = String::new();
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in base..base + rounds {
        let began = Instant::now();
        let round = Round { seed, writers: WRITERS, watchers: WATCHERS, faults, node: Some(NODE.to_owned()) };
        let outcome =
            round.run(&clients, targets).unwrap_or_else(|error| panic!("TIDEGATE_SEED={seed}: {error:#}"));
        println!("TIDEGATE_SEED={seed}: {outcome}; {:.1} s", began.elapsed().as_secs_f64());
        assert!(!outcome.history.log.is_empty(), "TIDEGATE_SEED={seed}: nothing was written");
        for fault in &outcome.faults {
            *kinds.entry(fault.kind.words()).or_default() += 1;
        }
        if !outcome.violations.is_empty() {
            let (count, faults) = (outcome.violations.len(), &outcome.faults);
            writeln!(faulty, "TIDEGATE_SEED={seed}, {faults:?}: {count} violations").unwrap();
            for violation in outcome.violations.iter().take(SHOWN_MAX) {
                writeln!(faulty, "  {violation}").unwrap();
            }
        }
    }
    println!("faults: {kinds:?}");
    assert!(faulty.is_empty(), "{faulty}");
}

/// While one server with a file store is killed, suspended and unplugged, the observations of all clients
/// satisfy all guarantees.
#[test]
fn what_is_seen_of_one_server_with_a_file_is_one_history() {
    let directory = machines::directory().unwrap();
    let fabric = Fabric::new().unwrap();
    let address = std::net::SocketAddr::new(Fabric::address(11), 7440);
    let store = format!("sqlite:{}", directory.path().join("control.sqlite").display());
    let clock = WallClock::new(directory.path(), "control1").unwrap();
    let program = Program {
        label: "control1".to_owned(),
        path: binaries::find("tidegate-api").unwrap(),
        arguments: arguments(address, &store),
        address,
        environment: clock.environment(),
    };
    let server = fabric.start(11, program, directory.path()).unwrap();
    let mut targets = Targets { fabric, servers: vec![server], clocks: vec![clock], members: Vec::new() };
    targets.wait_calm().unwrap();
    weather(&mut targets, ROUNDS_SQLITE, 3);
}

/// F002, F016: while three servers on three etcd members run, and any of these is killed, suspended,
/// unplugged or cut off from the others or from the clients, the observations of all clients satisfy all guarantees.
#[test]
fn f002_f016_what_is_seen_of_three_servers_on_three_members_of_etcd_is_one_history() {
    let directory = machines::directory().unwrap();
    let fabric = Fabric::new().unwrap();
    let members = etcd::start(&fabric, 3, directory.path()).unwrap();
    let store = etcd::url(&members);
    let mut targets = Targets { fabric, servers: Vec::new(), clocks: Vec::new(), members };
    targets.wait_calm().unwrap();
    for index in 1..=3 {
        let host = 10 + index;
        let address = std::net::SocketAddr::new(Fabric::address(host), 7440);
        let label = format!("control{index}");
        let mut arguments = arguments(address, &store);
        arguments.push(format!("--replica-name={label}"));
        let path = binaries::find("tidegate-api").unwrap();
        let clock = WallClock::new(directory.path(), &label).unwrap();
        clock.set(CLOCKS_SECS[usize::from(index) - 1]).unwrap();
        let environment = clock.environment();
        targets.clocks.push(clock);
        let program = Program { label, path, arguments, address, environment };
        targets.servers.push(targets.fabric.start(host, program, directory.path()).unwrap());
    }
    targets.wait_calm().unwrap();
    weather(&mut targets, ROUNDS_ETCD, 3);
}
