//! Test that one change in iptables mode writes as many lines with 10,000 Services as with 100. Times are
//! only printed.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::time::{Duration, Instant};

use model::{
    kinds::service::Protocol,
    program::{Masquerade, Program},
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    iptables::{Flavour, IptablesBackend},
};

use crate::support::{
    Namespace,
    iptables::{backend, flavours},
    programs::*,
};

/// Builds `services` Services `s0`, `s1`, … at 10.96.x.y with two endpoints each.
fn many(services: u32) -> DesiredState {
    let mut desired = DesiredState::default();
    desired.networks.masquerade_sources = ["0.0.0.0/1".parse().unwrap()].into();
    for number in 0..services {
        set(&mut desired, &format!("s{number}"), numbered(number, 0));
    }
    desired
}

fn numbered(service: u32, changed: u32) -> Program {
    let virtual_address = std::net::Ipv4Addr::from(0x0a60_0000 + service + 1).to_string();
    let endpoint = |number: u32| std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string();
    let list = [endpoint(2 * service + 1), endpoint(2 * service + 2 + changed)];
    let list: Vec<_> = list.iter().map(|ip| (ip.as_str(), 8080, 1)).collect();
    let verdict = forward(Masquerade::OffCluster, &list);
    program(&[&virtual_address], &[], &[(at(&virtual_address, Protocol::Tcp, 80), verdict)])
}

/// Makes a change several times. Returns the number of lines that each change writes, and the median
/// duration. `name` is the Service that `change` modifies.
fn cost(
    backend: &mut IptablesBackend,
    desired: &mut DesiredState,
    name: &str,
    mut change: impl FnMut(&mut DesiredState, u32),
) -> (Vec<u64>, Duration) {
    let (mut lines, mut times) = (Vec::new(), Vec::new());
    for number in 0..TIMES {
        change(desired, number);
        let (before, start) = (backend.counters(), Instant::now());
        verified(&backend.apply(desired, &only(&[name])));
        times.push(start.elapsed());
        lines.push(backend.counters().messages - before.messages);
        assert_eq!(backend.counters().transactions - before.transactions, 1);
    }
    times.sort();
    (lines, times[times.len() / 2])
}

const TIMES: u32 = 4;

#[test]
fn f062_one_change_writes_the_same_lines_among_10000_services_as_among_100() {
    for flavour in flavours() {
        let mut costs = Vec::new();
        let most = match flavour {
            Flavour::Nft => 10_000,
            Flavour::Legacy => 5000,
        };
        for services in [100, most] {
            let namespace = Namespace::new(&format!("ipt-cost{services}{}", flavour.as_str()));
            costs.push(namespace.run(|| measure(flavour, services)));
        }
        assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
    }
}

fn measure(flavour: Flavour, services: u32) -> (Vec<u64>, Vec<u64>) {
    let mut desired = many(services);
    let mut backend = backend(flavour);
    let start = Instant::now();
    verified(&backend.apply(&desired, &Scope::Everything));
    let (cold, written) = (start.elapsed(), backend.counters());
    let (endpoint, endpoint_time) = cost(&mut backend, &mut desired, "s7", |desired, number| {
        set(desired, "s7", numbered(7, 100_000 + number));
    });
    let (service, service_time) = cost(&mut backend, &mut desired, "new", |desired, number| {
        if number % 2 == 0 {
            set(desired, "new", numbered(60_000, 0));
        } else {
            desired.programs.remove(&key("new"));
        }
    });
    let start = Instant::now();
    assert!(!backend.is_disturbed().unwrap());
    let probe = start.elapsed();
    let idle = backend.counters();
    verified(&backend.apply(&desired, &only(&["s7"])));
    assert_eq!(backend.counters(), idle, "nothing to do is nothing done");
    let start = Instant::now();
    let mut fresh = self::backend(flavour);
    fresh.observe().unwrap();
    let observed = start.elapsed();
    assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0);
    println!(
        "{} {services} Services: cold {cold:?} with {} lines; endpoint change {} lines {endpoint_time:?}; \
         Service added or removed {service:?} lines {service_time:?}; look for changes {probe:?}; \
         restart: read {observed:?}, compared {:?}",
        flavour.as_str(),
        written.messages,
        endpoint[0],
        start.elapsed() - observed
    );
    (endpoint, service)
}
