//! Comparison of traces through the kernel state with the oracle (pure interpreter of packet programs) and
//! with the results that clients observe.

use std::collections::BTreeSet;

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    wire::trace::{End, Packet, PacketTrace, VisibleSource, ends, words},
};

use crate::{
    support::programs::port,
    testbed::{Ask, Bench, Heard, Lane, Spot, judge},
};

/// Traces connections through the kernel state and returns the traces.
///
/// # Errors
/// Returns a description of the first trace whose possible results differ from those of the desired state, or
/// that has a step marked as a deviation from the desired kernel state (`odd`).
pub fn all(bench: &mut Bench, asks: &[Ask]) -> Result<Vec<PacketTrace>, String> {
    let traced = traces(bench, asks);
    for (ask, traced) in asks.iter().zip(&traced) {
        let desired = desired(bench, *ask);
        if traced.ends != desired {
            let desired = words(&desired);
            return Err(format!("{ask:?}\n  desired: it {desired}\n{}", said(traced)));
        }
        if let Some(odd) = traced.steps.iter().find(|step| step.odd) {
            return Err(format!("{ask:?}: nothing is odd, but {odd:?}"));
        }
    }
    Ok(traced)
}

/// Compares a trace with the result that the client observed.
///
/// # Errors
/// Returns a description of the trace and the observed result if they do not match.
pub fn compare(ask: Ask, traced: &PacketTrace, heard: &Heard) -> Result<(), String> {
    if judge::bears_out(&traced.ends, ask, heard) {
        return Ok(());
    }
    Err(format!("{ask:?}\n{}\n  heard:   {heard:?}", said(traced)))
}

/// Returns the possible results of a connection according to the desired state. Deliberate deviations of the
/// proxy mode are applied.
pub fn desired(bench: &Bench, ask: Ask) -> BTreeSet<End> {
    // The relay of userspace mode opens a connection of its own, also to an endpoint at an address of the node.
    let is_relayed = bench.lane == Lane::Userspace;
    let is_own = |address| !is_relayed && judge::is_node_address(address);
    ends(&bench.lowered(ask), judge::connection(ask).is_from_node, is_own)
}

/// Traces connections through the kernel state and returns the traces in the same order.
pub fn traces(bench: &mut Bench, asks: &[Ask]) -> Vec<PacketTrace> {
    let packets: Vec<_> = asks.iter().copied().map(packet).collect();
    let (node, backend) = (bench.hosts.at(Spot::Node), &mut bench.backend);
    node.run(|| backend.trace(&packets)).unwrap().expect("every mode can be traced")
}

/// Returns the first packet of a connection, for use as input of a trace.
pub fn packet(ask: Ask) -> Packet {
    Packet {
        source: judge::connection(ask).source,
        destination: ask.to,
        protocol: ask.protocol,
        port: port(ask.port),
    }
}

fn said(traced: &PacketTrace) -> String {
    let steps = traced.steps.iter().map(|step| {
        let odd = if step.odd { " (odd)" } else { "" };
        format!("\n    {}  {}  => {}{odd}", step.place, step.rule, step.result)
    });
    format!("  kernel:  it {}{}", traced.fate, steps.collect::<String>())
}

#[test]
fn a_trace_that_says_something_else_than_what_is_heard_fails_with_both() {
    let [source, to] = ["10.1.3.2", "10.96.0.10"].map(|text| text.parse().unwrap());
    let ask = Ask { from: Spot::C, source: Some(source), to, protocol: Protocol::Tcp, port: 80 };
    let reaches = |sees| End::Reaches { address: Spot::A.address(IpFamily::V4), port: port(8080), sees };
    let answer =
        |source: &str| Heard::Answer { name: "a".to_owned(), source: source.parse().unwrap(), port: 8080 };
    let elsewhere = Heard::Answer { name: "b".to_owned(), source, port: 8080 };
    for (end, right, wrong) in [
        (
            reaches(VisibleSource::Client),
            answer("10.1.3.2"),
            [answer("10.1.3.1"), elsewhere.clone(), Heard::Refused],
        ),
        (reaches(VisibleSource::Node), answer("10.1.1.1"), [answer("10.1.3.2"), elsewhere, Heard::Silence]),
        (End::Refused, Heard::Refused, [Heard::Silence, Heard::Prohibited, answer("10.1.3.2")]),
        (End::Dropped, Heard::Silence, [Heard::Refused, Heard::Prohibited, answer("10.1.3.2")]),
    ] {
        let ends = [end].into();
        let traced = PacketTrace { fate: words(&ends), ends, ..PacketTrace::default() };
        assert_eq!(compare(ask, &traced, &right), Ok(()));
        for heard in wrong {
            let error = compare(ask, &traced, &heard).unwrap_err();
            assert!(error.contains(&traced.fate) && error.contains(&format!("{heard:?}")), "{error}");
        }
    }
}
