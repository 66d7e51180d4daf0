//! Tests of traces through a damaged kernel state: after a command has deleted kernel objects, the trace must
//! contain the place of the damage and the actual result for packets.

use std::process::Command;

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    views::explain::{About, Explanation, Path},
    wire::trace::{End, PacketTrace, TraceStep, words},
};
use node_agent::dataplane::Scope;

use super::follow;
use crate::testbed::{
    self, Ask, Bench, Build, Heard, Lane, Spot,
    ask::{PATIENCE, SILENCE},
};

/// Number of connections per case, so that a random choice between two endpoints selects both.
const CONNECTIONS: usize = 8;

const FRONTEND: &str = "{ 10.96.0.10 . tcp . 80 }";

/// Creates a node with one Service that has two endpoints. Returns the node and a connection to this Service
/// that still works.
fn simple(lane: Lane) -> (Bench, Ask) {
    let mut bench = Bench::open("tb", lane, IpFamily::V4).unwrap();
    let service = Build::new("web", IpFamily::V4).cluster_ip("10.96.0.10".parse().unwrap());
    let service = service.port_to(Protocol::Tcp, 80, 8080, &[Spot::A, Spot::B]);
    bench.want(&service);
    testbed::node::verified(&bench.apply(&Scope::Everything));
    let source = Some(Spot::C.address(IpFamily::V4));
    let to = "10.96.0.10".parse().unwrap();
    let ask = Ask { from: Spot::C, source, to, protocol: Protocol::Tcp, port: 80 };
    follow::all(&mut bench, &[ask]).expect("before anything is broken");
    (bench, ask)
}

/// Runs a command that damages the kernel state, and traces a connection. Asserts that the result of the
/// trace differs from the desired one. Returns the trace and its first step that is marked as a deviation
/// from the desired kernel state (`odd`).
fn broken(bench: &mut Bench, ask: Ask, command: &str) -> (PacketTrace, TraceStep) {
    let output =
        bench.hosts.at(Spot::Node).run(|| Command::new("sh").args(["-c", command]).output()).unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let traced = follow::traces(bench, &[ask]).remove(0);
    assert_ne!(traced.ends, follow::desired(bench, ask), "{traced:#?}");
    let odd =
        traced.steps.iter().find(|step| step.odd).unwrap_or_else(|| panic!("nothing is odd: {traced:#?}"));
    let odd = odd.clone();
    assert_eq!(first_broken(bench, ask, &traced), odd.place);
    (traced, odd)
}

/// Builds the explanation of a connection from a trace, and returns the place in the kernel state at which
/// the trace first differs from the desired state.
fn first_broken(bench: &Bench, ask: Ask, traced: &PacketTrace) -> String {
    let desired = follow::desired(bench, ask);
    let node = bench.place.node.clone();
    let mut path = Path {
        node: node.clone(),
        chosen: String::new(),
        mode: Some(bench.lane.mode()),
        packet: follow::packet(ask),
        service: None,
        steps: Vec::new(),
        candidates: Vec::new(),
        candidates_omitted: 0,
        fate: words(&desired),
        ends: desired,
        kernel: None,
    };
    path.compare(Ok(traced.clone()));
    let explanation = Explanation { paths: vec![path], ..Explanation::default() }.concluded();
    let broken = explanation.broken.expect("something is broken");
    assert_eq!((broken.node, broken.step.about), (Some(node), About::Kernel));
    let kernel = explanation.paths[0].kernel.as_ref().expect("the kernel was read");
    let difference = kernel.difference.as_ref().expect("it differs");
    assert!(explanation.summary.contains(&difference.place), "{}", explanation.summary);
    difference.place.clone()
}

/// Opens real connections and asserts that the result of each matches the trace.
fn hears(bench: &Bench, ask: Ask, traced: &PacketTrace) {
    let is_silent = |end: &End| matches!(end, End::Dropped | End::Untouched);
    let patience = if traced.ends.iter().any(is_silent) { SILENCE } else { PATIENCE };
    for heard in bench.hosts.ask(&[(ask, patience); CONNECTIONS]) {
        follow::compare(ask, traced, &heard).unwrap();
    }
}

#[test]
fn f166_an_element_that_somebody_deleted_is_where_the_trace_of_nftables_differs() {
    let (mut bench, ask) = simple(Lane::Nftables);
    let delete = |set: &str, key: &str| format!("nft delete element inet tidegate {set} '{key}'");
    let (traced, odd) = broken(&mut bench, ask, &delete("endpoints4", "{ 10.96.0.10 . tcp . 80 . 1 }"));
    assert!(traced.fate.contains("10.1.1.2:8080") && traced.fate.contains("dropped"), "{traced:#?}");
    assert_eq!(odd.place, "map inet tidegate endpoints4", "{odd:?}");
    hears(&bench, ask, &traced);
    let (traced, odd) = broken(&mut bench, ask, &delete("chains4", "{ 2 }"));
    assert_eq!(odd.place, "map inet tidegate chains4", "{odd:?}");
    assert_eq!(
        traced.fate, "is refused",
        "the frontend leads nowhere, and the address is still a virtual one"
    );
    hears(&bench, ask, &traced);
    let (traced, odd) = broken(&mut bench, ask, &delete("services4", FRONTEND));
    assert_eq!(traced.fate, "is refused", "the address is still a virtual one");
    assert_eq!(odd.place, "map inet tidegate services4", "{odd:?}");
    hears(&bench, ask, &traced);
    let (traced, odd) = broken(&mut bench, ask, "nft flush chain inet tidegate services");
    assert_eq!(odd.place, "chain inet tidegate services", "{odd:?}");
    assert!(traced.fate.starts_with("cannot be followed: chain inet tidegate services"), "{}", traced.fate);
}

#[test]
fn f166_a_rule_that_somebody_deleted_is_where_the_trace_of_iptables_differs() {
    let (mut bench, ask) = simple(Lane::Iptables);
    let traced = follow::traces(&mut bench, &[ask]).remove(0);
    let translated = traced.steps.iter().find(|step| step.rule.contains("DNAT")).expect("a rule translates");
    let (_, chain) = translated.place.split_once(' ').unwrap();
    let (traced, odd) = broken(&mut bench, ask, &format!("iptables -t nat -F {chain}"));
    assert_eq!(
        (&odd.place, odd.result.as_str()),
        (&translated.place, "its 0 rules are not those that were made")
    );
    assert_eq!(
        traced.fate, "goes to 10.1.2.2:8080, seen as the client",
        "what comes back meets the next rule"
    );
    hears(&bench, ask, &traced);
    let is_dispatch = |step: &&TraceStep| step.rule.contains("-d 10.96.0.10/32");
    let dispatch = traced.steps.iter().find(is_dispatch).expect("a rule meets the address").clone();
    let (_, chain) = dispatch.place.split_once(' ').unwrap();
    let (traced, odd) = broken(&mut bench, ask, &format!("iptables -t nat -D {chain} {}", dispatch.rule));
    assert_eq!((&odd.place, &odd.rule), (&dispatch.place, &dispatch.rule), "{traced:#?}");
    assert_eq!(odd.result, "this rule is missing");
    hears(&bench, ask, &traced);
    let (traced, odd) = broken(&mut bench, ask, "iptables -t nat -D PREROUTING 1");
    assert_eq!((odd.place.as_str(), odd.result.as_str()), ("nat PREROUTING", "no rule leads to our chains"));
    hears(&bench, ask, &traced);
    // A foreign rule that would match the packet is listed.
    let (traced, _) = broken(&mut bench, ask, "iptables -I FORWARD -i foreign0 -j DROP");
    assert!(traced.steps.iter().any(|step| step.rule.contains("foreign0") && !step.odd), "{traced:#?}");
}

#[test]
fn f166_an_element_that_somebody_deleted_is_where_the_trace_of_userspace_differs() {
    let (mut bench, ask) = simple(Lane::Userspace);
    let delete = format!("nft delete element inet tidegate-userspace services4 '{FRONTEND}'");
    let (traced, odd) = broken(&mut bench, ask, &delete);
    assert_eq!(odd.place, "map inet tidegate-userspace services4", "{odd:?}");
    hears(&bench, ask, &traced);
}

#[test]
fn f166_a_virtual_server_or_destination_that_somebody_deleted_is_where_the_trace_differs() {
    if std::env::var_os("TIDEGATE_GUEST").is_none() {
        super::in_guest_ipvs();
        return;
    }
    let (mut bench, ask) = simple(Lane::Ipvs);
    let (traced, odd) = broken(&mut bench, ask, "ipvsadm -d -t 10.96.0.10:80 -r 10.1.1.2:8080");
    assert!(!traced.fate.contains("10.1.1.2") && traced.fate.contains("10.1.2.2"), "{traced:#?}");
    assert_eq!(
        (odd.place.as_str(), odd.rule.as_str()),
        ("virtual server TCP 10.96.0.10:80", "10.1.1.2:8080")
    );
    assert_eq!(odd.result, "this destination is missing");
    hears(&bench, ask, &traced);
    let (traced, odd) = broken(&mut bench, ask, "ipvsadm -D -t 10.96.0.10:80");
    assert_eq!(odd.result, "there is no such virtual server", "{traced:#?}");
    assert_eq!(odd.place, "virtual server TCP 10.96.0.10:80");
    // The packet is delivered locally: the node has the address on its interface, without a listener.
    assert_eq!(traced.ends, [End::Untouched].into(), "{traced:#?}");
    for heard in bench.hosts.ask(&[(ask, PATIENCE); CONNECTIONS]) {
        assert_eq!(heard, Heard::Refused);
    }
}
