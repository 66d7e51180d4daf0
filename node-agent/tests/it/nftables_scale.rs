//! Test that one change in nftables mode costs as many messages with 5,000 Services as with 100. Times are
//! only printed.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::time::{Duration, Instant};

use model::{kinds::service::Protocol, program::Masquerade};
use node_agent::dataplane::{
    Dataplane, DesiredState, KernelCounters, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{Namespace, programs::*};

/// Builds `services` Services `s0`, `s1`, … at 10.96.x.y with `endpoints` endpoints each.
fn many(services: u32, endpoints: u32) -> DesiredState {
    let mut desired = DesiredState::default();
    for number in 0..services {
        set(&mut desired, &format!("s{number}"), numbered(number, endpoints, 0));
    }
    desired
}

fn numbered(service: u32, endpoints: u32, changed: u32) -> model::program::Program {
    let virtual_address = std::net::Ipv4Addr::from(0x0a60_0000 + service + 1).to_string();
    let list: Vec<_> = (0..endpoints)
        .map(|number| {
            let number = service * endpoints + number + 1 + if number == 0 { changed } else { 0 };
            (std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string(), 8080, 1)
        })
        .collect();
    let list: Vec<_> = list.iter().map(|(ip, port, weight)| (ip.as_str(), *port, *weight)).collect();
    // One endpoint in ten is on this node.
    let hairpins: Vec<_> = list.iter().map(|(ip, ..)| *ip).step_by(10).collect();
    let verdict = forward(Masquerade::OffCluster, &list);
    program(&[&virtual_address], &hairpins, &[(at(&virtual_address, Protocol::Tcp, 80), verdict)])
}

/// Builds a Service with policy Local, source ranges and affinity at a load balancer address and a node port.
/// A different `changed` results in a different endpoint.
fn special(changed: u32) -> model::program::Program {
    let first = std::net::Ipv4Addr::from(0x0c00_0000 + changed).to_string();
    let all = [(first.as_str(), 8080, 1), ("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
    let frontends = [
        at("203.0.113.7", Protocol::Tcp, 80),
        node_port(model::primitives::net::IpFamily::V4, Protocol::Tcp, 30080),
    ];
    routed(Vec::from(frontends.map(|frontend| {
        let verdicts = [
            forward(Masquerade::Never, &all),
            forward(Masquerade::Always, &all),
            forward(Masquerade::Never, &all[1..2]),
        ];
        let mut route = by_source(&frontend, verdicts);
        route.allowed_sources = Some(nets(&["192.0.2.0/24"]));
        route.affinity_seconds = Some(10_800);
        (frontend, route)
    })))
}

fn loaded(services: u32, endpoints: u32) -> (NftablesBackend, DesiredState, Duration) {
    let desired = many(services, endpoints);
    let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
    let start = Instant::now();
    verified(&backend.apply(&desired, &Scope::Everything));
    (backend, desired, start.elapsed())
}

/// Makes a change [`TIMES`] times and programs it each time. Returns the total numbers of transactions and
/// messages, and the median duration of an update.
fn cost(
    backend: &mut NftablesBackend,
    desired: &mut DesiredState,
    mut change: impl FnMut(&mut DesiredState, u32),
) -> (KernelCounters, Duration) {
    let mut times = Vec::new();
    let before = backend.counters();
    for number in 0..TIMES {
        change(desired, number);
        let start = Instant::now();
        verified(&backend.apply(desired, &only(&["s7", "new"])));
        times.push(start.elapsed());
    }
    times.sort();
    let after = backend.counters();
    let counters = KernelCounters {
        transactions: after.transactions - before.transactions,
        messages: after.messages - before.messages,
        bytes: after.bytes - before.bytes,
        conntrack_deletions: after.conntrack_deletions,
    };
    (counters, times[times.len() / 2])
}

const TIMES: u32 = 20;

#[test]
fn f062_one_change_costs_the_same_among_5000_services_as_among_100() {
    let mut costs = Vec::new();
    for services in [100, 5000] {
        let namespace = Namespace::new(&format!("cost{services}"));
        costs.push(namespace.run(|| {
            let (mut backend, mut desired, _) = loaded(services, 2);
            let (endpoint, endpoint_time) = cost(&mut backend, &mut desired, |desired, number| {
                set(desired, "s7", numbered(7, 2, 100_000 + number));
            });
            let (service, service_time) = cost(&mut backend, &mut desired, |desired, number| {
                if number % 2 == 0 {
                    set(desired, "new", numbered(60_000, 2, 0));
                } else {
                    desired.programs.remove(&key("new"));
                }
            });
            set(&mut desired, "s7", special(0));
            verified(&backend.apply(&desired, &only(&["s7"])));
            let (kinds, kinds_time) = cost(&mut backend, &mut desired, |desired, number| {
                set(desired, "s7", special(number + 1));
            });
            println!("{services} Services: the same with policy Local, allowed sources and affinity {kinds_time:?}, {kinds:?}");
            println!("{services} Services: endpoint change {endpoint_time:?}, {endpoint:?}; Service added or removed {service_time:?}, {service:?} (of {TIMES})");
            let idle = backend.counters();
            verified(&backend.apply(&desired, &only(&["s7"])));
            assert_eq!(backend.counters(), idle, "nothing to do is nothing done");
            (endpoint, service, kinds)
        }));
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].0.transactions, u64::from(TIMES), "one transaction for one change");
}

#[test]
fn a_cold_start_with_5000_services_of_10_endpoints_is_whole_and_a_restart_writes_nothing() {
    let namespace = Namespace::new("cold");
    namespace.run(|| {
        let (backend, desired, cold) = loaded(5000, 10);
        let counters = backend.counters();
        let start = Instant::now();
        let mut fresh = NftablesBackend::open(NftablesOptions::default()).unwrap();
        fresh.observe().unwrap();
        let observed = start.elapsed();
        assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        println!("both backends and the desired state: {peak}");
        println!("5000 x 10: cold load and verification {cold:?}, {counters:?}; restart: read {observed:?}, compared {:?}", start.elapsed() - observed);
    });
}

/// While the number of endpoints of a Service grows to 200, each number of endpoints needs a different chain.
/// Unused chains are removed before there are many, and chains in use stay. A removed chain is created again
/// when a Service has the same number of endpoints again.
#[test]
fn chains_that_nothing_leads_to_go_when_there_are_many() {
    let namespace = Namespace::new("sweep");
    namespace.run(|| {
        let (mut backend, mut desired, _) = loaded(3, 2);
        let chains = || namespace.list_table("tidegate").matches("chain cluster-").count();
        for endpoints in 3..=200 {
            set(&mut desired, "s7", numbered(7, endpoints, 0));
            verified(&backend.apply(&desired, &only(&["s7"])));
            backend.upkeep().unwrap();
            assert!(chains() < 64 + 2, "{}", chains());
        }
        let mut fresh = NftablesBackend::open(NftablesOptions::default()).unwrap();
        assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0, "what is known is what is there");
        set(&mut desired, "s7", numbered(7, 5, 0));
        verified(&backend.apply(&desired, &only(&["s7"])));
        assert!(!backend.is_disturbed().unwrap());
        let idle = backend.counters();
        backend.upkeep().unwrap();
        assert_eq!(backend.counters(), idle, "nothing to remove is nothing done");
        let listing = namespace.list_table("tidegate");
        assert!(listing.contains("chain cluster-2 {") && listing.contains("chain cluster-5 {"), "{listing}");
    });
}
