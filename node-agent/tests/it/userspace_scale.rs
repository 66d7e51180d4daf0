//! Test that one change in userspace mode costs as many messages with 5,000 Services as with 100. Times are
//! only printed.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{net::Ipv4Addr, time::Instant};

use node_agent::dataplane::{
    Dataplane as _, DesiredState, KernelCounters, Scope,
    userspace::{Limits, UserspaceBackend},
};

use crate::support::{
    Namespace,
    programs::{only, set, simple, verified},
    relay::open,
};

fn service(number: u32, endpoint: u32) -> model::program::Program {
    let at = |base: u32, number: u32| Ipv4Addr::from(base + number).to_string();
    let endpoints = [at(0x0b00_0000, endpoint), at(0x0b10_0000, number)];
    let list: Vec<_> = endpoints.iter().map(|ip| (ip.as_str(), 8080, 1)).collect();
    simple(&at(0x0a60_0001, number), &list)
}

/// Programs the Service `name` with an endpoint whose address is derived from `endpoint`. Returns the numbers
/// of kernel transactions and of messages in this update.
fn messages(
    backend: &mut UserspaceBackend,
    desired: &mut DesiredState,
    name: &str,
    endpoint: u32,
) -> (u64, u64) {
    let KernelCounters { transactions, messages, .. } = backend.counters();
    set(desired, name, service(7_000, endpoint));
    let start = Instant::now();
    verified(&backend.apply(desired, &only(&[name])));
    let after = backend.counters();
    println!("  {name}: {} messages, {:?}", after.messages - messages, start.elapsed());
    (after.transactions - transactions, after.messages - messages)
}

/// F062: a changed endpoint writes nothing to the kernel, because only the relay process uses endpoints. A
/// new Service takes as many messages with 5,000 Services as with 100.
#[test]
fn f062_a_changed_endpoint_writes_nothing_and_a_new_service_the_same_among_100_and_5_000() {
    let mut costs = Vec::new();
    for services in [100, 5_000] {
        let node = Namespace::new(&format!("us-scale{services}"));
        let mut backend = open(&node, Limits::default());
        let mut desired = DesiredState::default();
        for number in 0..services {
            set(&mut desired, &format!("s{number}"), service(number, number));
        }
        let start = Instant::now();
        verified(&backend.apply(&desired, &Scope::Everything));
        println!("{services} Services: {:?}", start.elapsed());
        let new = messages(&mut backend, &mut desired, "new", 7_000);
        let changed = messages(&mut backend, &mut desired, "new", 7_001);
        assert_eq!(changed, (0, 0));
        costs.push(new);
        backend.cleanup().unwrap();
    }
    assert_eq!(costs[0], costs[1]);
}
