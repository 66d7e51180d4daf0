//! Conformance scenarios of changes to Services and endpoints while clients send traffic.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use model::kinds::service::Protocol;

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Ask, Bench, Build, Heard, Spot,
    Spot::{A, B, C, Client, D, E, Node},
    ask::PATIENCE,
    flow::Transfer,
    node::{BOTH, Claim::Reach, TCP},
};

pub const SCENARIOS: &[Scenario] = &[
    scenario("New connections follow the endpoints over TCP and UDP", "F021", follow)
        .stands_for("N11 N12 D15 D16"),
    scenario("A long transfer survives an endpoint that is added", "F065", |b| {
        transfer(b, |b, web, _| {
            b.set(&[&web.tcp(80, &[A, B, C])]);
        });
    }),
    scenario("A long transfer survives the removal of other endpoints", "F065", |b| {
        transfer(b, |b, web, met| {
            b.set(&[&web.tcp(80, &[met])]);
        });
    }),
    scenario("A long transfer survives another weight", "F065", |b| {
        transfer(b, |b, web, _| {
            b.set(&[&web.tcp(80, &[A, B]).weight(A, 7).weight(B, 3)]);
        });
    }),
    scenario("A long transfer survives changes of other Services", "F065", |b| {
        transfer(b, |b, _, _| {
            let other = b.service("other", 9).both(80, &[C]).node_port(30099);
            b.set(&[&other]);
            b.remove(&other);
        });
    }),
    scenario("A long transfer survives the agent", "F059 F065", |b| {
        transfer(b, |b, _, _| {
            b.restart();
        })
    })
    .stands_for("S8"),
    scenario("A connection to an endpoint that goes may go on to its end", "F065", |b| {
        transfer(b, |b, web, met| {
            let left = if met == A { B } else { A };
            b.set(&[&web.tcp(80, &[left])]);
        });
    }),
    scenario("A connection to an endpoint that terminates may go on to its end", "F065", |b| {
        transfer(b, |b, web, _| {
            b.set(&[&web.tcp(80, &[A, B, C]).terminating(A).terminating(B)]);
        });
    })
    .stands_for("P1 P2"),
    scenario("After the agent restarts everything serves as before", "F059", restart).stands_for("S8"),
    scenario("Without the agent everything goes on", "F059", without_agent).stands_for("S9"),
    scenario("No connection fails in a rolling update with external policy Cluster", "F065", |b| {
        rolling(b, false)
    })
    .stands_for("L15 P3"),
    scenario("No connection fails in a rolling update with external policy Local", "F065", |b| {
        rolling(b, true)
    })
    .stands_for("L16"),
];

fn follow(b: &mut Bench) {
    for spots in [&[A][..], &[A, B, D], &[B, D], &[C], &[E, C]] {
        b.set(&[&b.service("web", 1).both(80, spots)]);
        b.expect(&[Client, Node, B], BOTH, b.vip(1), 80, Reach(spots));
    }
}

/// Makes two long transfers, one from outside and one from another node, and applies `change` in the middle
/// of each. `change` receives the Service and the host that the transfer has reached. Asserts that both
/// transfers complete.
fn transfer(b: &mut Bench, change: impl Fn(&mut Bench, Build, Spot)) {
    let web = b.service("web", 1);
    for from in [Client, D] {
        b.set(&[&web.clone().tcp(80, &[A, B])]);
        let transfer = Transfer::start(&b.hosts, from, b.vip(1), 80);
        let met = if transfer.server == "a" { A } else { B };
        thread::sleep(Duration::from_millis(20));
        change(b, web.clone(), met);
        thread::sleep(Duration::from_millis(50));
        transfer.finish();
    }
}

fn restart(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    b.begin_anew();
    b.set(&[&web]);
    assert_eq!(b.restart(), 0, "a process that takes over has nothing to write");
    b.expect(&[Client, Node, C], BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(&[Client, Node, C], BOTH, b.outer(1), 80, Reach(&[A, B]));
    // The new process has read the state well enough to change it.
    b.set(&[&b.service("web", 1).both(80, &[B, C])]);
    b.expect(&[Client, Node, D], BOTH, b.vip(1), 80, Reach(&[B, C]));
}

fn without_agent(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B]).node_port(30080);
    b.set(&[&web]);
    b.backend = Box::new(node_agent::dataplane::memory::MemoryKernel::default().open());
    b.expect(&[Client, Node, C], BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.restart();
}

/// Replaces endpoints one by one while clients connect continuously. A new endpoint is added before the old
/// one is removed. `is_local` selects external traffic policy Local.
fn rolling(b: &mut Bench, is_local: bool) {
    let build = |b: &Bench, spots: &[Spot]| {
        let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, spots);
        if is_local { web.external_local() } else { web }
    };
    b.set(&[&build(b, &[A])]);
    let (to, source) = (b.outer(1), Some(Client.address(b.family)));
    let ask = Ask { from: Client, source, to, protocol: Protocol::Tcp, port: 80 };
    let stop = AtomicBool::new(false);
    let (lane_hosts, mut steps) = (&b.hosts, Vec::new());
    for spots in [&[A, B][..], &[B], &[B, C], &[C], &[C, A], &[A]] {
        steps.push((build(b, spots), spots));
    }
    let (backend, desired, place) = (&mut b.backend, &mut b.desired, &b.place);
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut heard = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                heard.extend(lane_hosts.ask(&[(ask, PATIENCE); 8]));
            }
            heard
        });
        for _ in 0..2 {
            for (step, _) in &steps {
                thread::sleep(Duration::from_millis(40));
                let program = model::program::program(&step.service, place).unwrap();
                let program = node_agent::dataplane::DesiredProgram {
                    revision: model::primitives::quantity::Revision(1),
                    program: std::sync::Arc::new(program),
                };
                desired.programs.insert(step.key(), program);
                let scope = node_agent::dataplane::Scope::Services([step.key()].into());
                let pass = lane_hosts.at(Node).run(|| backend.apply(desired, &scope));
                assert!(pass.failed.is_none(), "{pass:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        let heard = clients.join().unwrap();
        let failed: Vec<_> = heard.iter().filter(|heard| !matches!(heard, Heard::Answer { .. })).collect();
        assert!(heard.len() > 8 && failed.is_empty(), "{} of {}: {failed:?}", failed.len(), heard.len());
    });
    b.expect(&[Client], TCP, to, 80, Reach(&[A]));
}
