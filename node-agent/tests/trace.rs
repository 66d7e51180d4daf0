//! What a backend says would become of a packet, by reading the kernel anew, is what the oracle says; and where somebody
//! has broken the kernel's part, it is not, and the place is named.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test's helpers are tests"
)]

#[path = "bench/mod.rs"]
mod bench;
#[allow(dead_code, reason = "nothing is sent here")]
#[path = "differential/draw.rs"]
mod draw;
mod support;

use std::{cell::RefCell, env, process::Command};

use bench::{Ask, Bench, Build, Lane, Spot, judge};
use draw::Drawn;
use model::{
    net::IpFamily,
    service::Protocol,
    trace::{Packet, Traced, ends, words},
};
use node_agent::dataplane::Scope;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use support::programs::port;

/// States drawn for each family and mode.
const STATES: u32 = 6;
/// States drawn on the second kernel, which is slow.
const GUEST_STATES: u32 = 2;
/// Packets followed in each of them.
const GUEST_PACKETS: usize = 10;
/// Packets followed in each state.
const PACKETS: usize = 40;

const IN_GUEST: &str = "f166_traces_of_modes_that_need_another_kernel_agree_with_the_oracle";

#[test]
fn f166_a_trace_of_nftables_ends_as_the_oracle_says() {
    agrees(Lane::Nftables);
}

#[test]
fn f166_a_trace_of_iptables_ends_as_the_oracle_says() {
    agrees(Lane::Iptables);
}

#[test]
fn f166_a_trace_of_userspace_ends_as_the_oracle_says() {
    agrees(Lane::Userspace);
}

#[test]
fn f166_traces_of_modes_that_need_another_kernel_agree_with_the_oracle() {
    if env::var_os("TIDEGATE_GUEST").is_some() {
        agrees_on(broken_ipvs(), GUEST_STATES, GUEST_PACKETS);
        return;
    }
    let guest = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/guest.sh");
    let status = Command::new(guest)
        .arg(env::current_exe().unwrap())
        .args([IN_GUEST, "--exact", "--nocapture"])
        .status()
        .expect("lab/guest.sh starts");
    assert!(status.success(), "the guest ended with {status}");
}

fn agrees(lane: Lane) {
    for family in IpFamily::ALL {
        agrees_on(Bench::open("tr", lane, family).unwrap(), STATES, PACKETS);
    }
}

/// Draws states for a bench and follows their packets.
fn agrees_on(bench: Bench, states: u32, packets: usize) {
    let (lane, family) = (bench.lane, bench.family);
    let config = Config { cases: states, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let bench = RefCell::new(bench);
    let outcome = TestRunner::new_with_rng(config, rng).run(&draw::state(family, packets), |drawn| {
        follow_all(&mut bench.borrow_mut(), &drawn).map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("{} {family:?}: {error}", lane.name());
    }
}

/// Programs a state and follows its packets.
fn follow_all(bench: &mut Bench, drawn: &Drawn) -> Result<(), String> {
    if bench.lane == Lane::Ipvs {
        bench.begin_anew();
    }
    bench.networks(&drawn.node, &drawn.workloads);
    bench.desired.programs.clear();
    for build in &drawn.services {
        bench.want(build);
    }
    let pass = bench.apply(&Scope::Everything);
    if let Some(error) = pass.failed {
        return Err(format!("the pass failed: {error:?}"));
    }
    for ask in &drawn.asks {
        let traced = follow(bench, *ask);
        let wanted = wanted(bench, *ask);
        if traced.ends != wanted {
            return Err(format!(
                "{ask:?}\n  must be {}\n  but is {}\n{:#?}",
                words(&wanted),
                traced.fate,
                traced.steps
            ));
        }
        if let Some(odd) = traced.steps.iter().find(|step| step.odd) {
            return Err(format!("{ask:?}: nothing is odd, but {odd:?}"));
        }
    }
    Ok(())
}

fn wanted(bench: &Bench, ask: Ask) -> std::collections::BTreeSet<model::trace::End> {
    ends(&bench.lowered(ask), judge::connection(ask).is_from_node)
}

fn follow(bench: &mut Bench, ask: Ask) -> Traced {
    let packet = Packet {
        source: judge::connection(ask).source,
        destination: ask.to,
        protocol: ask.protocol,
        port: port(ask.port),
    };
    let (node, backend) = (bench.hosts.at(Spot::Node), &mut bench.backend);
    node.run(|| backend.trace(&packet)).unwrap().expect("every mode can be traced")
}

/// A node with one Service of two endpoints.
fn simple(lane: Lane) -> (Bench, Ask) {
    let mut bench = Bench::open("tb", lane, IpFamily::V4).unwrap();
    let service = Build::new("web", IpFamily::V4).cluster_ip("10.96.0.10".parse().unwrap());
    let service = service.port_to(Protocol::Tcp, 80, 8080, &[Spot::A, Spot::B]);
    bench.want(&service);
    bench::node::verified(&bench.apply(&Scope::Everything));
    let source = Some(Spot::C.address(IpFamily::V4));
    let to = "10.96.0.10".parse().unwrap();
    let ask = Ask { from: Spot::C, source, to, protocol: Protocol::Tcp, port: 80 };
    assert_eq!(follow(&mut bench, ask).ends, wanted(&bench, ask), "before anything is broken");
    (bench, ask)
}

fn break_by(bench: &Bench, command: &[&str]) {
    let mut run = Command::new(command[0]);
    run.args(&command[1..]);
    let output = bench.hosts.at(Spot::Node).run(|| run.output()).unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn f166_an_element_that_somebody_deleted_is_where_the_trace_differs() {
    let (mut bench, ask) = simple(Lane::Nftables);
    let element = "{ 10.96.0.10 . tcp . 80 . 1 }";
    break_by(&bench, &["nft", "delete", "element", "inet", "tidegate", "endpoints4", element]);
    let traced = follow(&mut bench, ask);
    assert!(traced.fate.contains("10.1.1.2:8080") && traced.fate.contains("dropped"), "{traced:#?}");
    let odd = traced.steps.iter().find(|step| step.odd).expect("a step is odd");
    assert_eq!(odd.place, "map inet tidegate endpoints4", "{odd:?}");
    break_by(
        &bench,
        &["nft", "delete", "element", "inet", "tidegate", "services4", "{ 10.96.0.10 . tcp . 80 }"],
    );
    let traced = follow(&mut bench, ask);
    assert_eq!(traced.fate, "is refused", "the address is still a virtual one");
    let odd = traced.steps.iter().find(|step| step.odd).expect("a step is odd");
    assert_eq!(odd.place, "map inet tidegate services4", "{odd:?}");
    break_by(&bench, &["nft", "flush", "chain", "inet", "tidegate", "services"]);
    let traced = follow(&mut bench, ask);
    assert!(traced.fate.starts_with("cannot be followed: chain inet tidegate services"), "{}", traced.fate);
}

#[test]
fn f166_a_rule_that_somebody_deleted_is_where_the_trace_differs() {
    let (mut bench, ask) = simple(Lane::Iptables);
    let traced = follow(&mut bench, ask);
    let translated = traced.steps.iter().find(|step| step.rule.contains("DNAT")).expect("a rule translates");
    let (_, chain) = translated.place.split_once(' ').unwrap();
    break_by(&bench, &["iptables", "-t", "nat", "-F", chain]);
    let broken = follow(&mut bench, ask);
    assert_ne!(broken.ends, wanted(&bench, ask), "{broken:#?}");
    break_by(&bench, &["iptables", "-t", "nat", "-D", "PREROUTING", "1"]);
    let broken = follow(&mut bench, ask);
    let odd = broken.steps.iter().find(|step| step.odd).expect("a step is odd");
    assert_eq!((odd.place.as_str(), odd.result.as_str()), ("nat PREROUTING", "no rule leads to our chains"));
    // Somebody else's rule that would meet the packet is named.
    break_by(&bench, &["iptables", "-t", "filter", "-I", "FORWARD", "-i", "foreign0", "-j", "DROP"]);
    let broken = follow(&mut bench, ask);
    assert!(broken.steps.iter().any(|step| step.rule.contains("foreign0") && !step.odd), "{broken:#?}");
}

fn broken_ipvs() -> Bench {
    let (mut bench, ask) = simple(Lane::Ipvs);
    break_by(&bench, &["ipvsadm", "-d", "-t", "10.96.0.10:80", "-r", "10.1.1.2:8080"]);
    let traced = follow(&mut bench, ask);
    assert!(!traced.fate.contains("10.1.1.2") && traced.fate.contains("10.1.2.2"), "{traced:#?}");
    break_by(&bench, &["ipvsadm", "-D", "-t", "10.96.0.10:80"]);
    let traced = follow(&mut bench, ask);
    let odd = traced.steps.iter().find(|step| step.odd).expect("a step is odd");
    assert_eq!(odd.result, "there is no such virtual server", "{traced:#?}");
    bench
}
