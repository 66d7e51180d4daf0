//! Tests of session affinity in nftables mode, by stored client addresses and by hashing.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use model::{
    kinds::service::{Protocol, Scheduler, SchedulerFlag},
    primitives::{name::Label, net::IpFamily},
    program::{Frontend, Masquerade, Program, Route, Target},
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    nftables::{NftablesBackend, NftablesOptions, element::TargetId},
};

use crate::support::{
    Namespace,
    net::{Server, Topology},
    programs::*,
};

const FRONTENDS: [(&str, u16); 6] = [
    ("10.96.0.1", 80),
    ("fd96::1", 80),
    ("192.0.2.1", 30080),
    ("2001:db8::1", 30080),
    ("10.96.0.2", 8080),
    ("fd96::2", 8080),
];

/// Builds a Service with two endpoints, on the workloads a and b, at a virtual address, a node port and a
/// port range, in both address families. `a` and `b` are the weights; an endpoint with weight 0 is omitted.
/// `change` modifies each route.
fn web(a: u16, b: u16, change: &dyn Fn(&mut Route)) -> Program {
    let list = |a_ip, b_ip| -> Vec<(&'static str, u16, u16)> {
        let all: [(&str, u16, u16); 2] = [(a_ip, 8080, a), (b_ip, 8080, b)];
        all.into_iter().filter(|(.., weight)| *weight > 0).collect()
    };
    let lists = [list("10.1.1.2", "10.1.2.2"), list("fd01:1::2", "fd01:2::2")];
    let mut routes: Vec<(Frontend, Route)> = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (is_v6, list) in lists.iter().enumerate() {
            let family = IpFamily::ALL[is_v6];
            let (one, many) = [("10.96.0.1", "10.96.0.2"), ("fd96::1", "fd96::2")][is_v6];
            let ips: Vec<_> = list.iter().map(|(ip, ..)| *ip).collect();
            let verdict = forward(Masquerade::Always, list);
            for frontend in [at(one, protocol, 80), node_port(family, protocol, 30080)] {
                routes.push((frontend, route(&frontend, verdict.clone())));
            }
            let frontend = range(many, protocol, 8000, 9000);
            routes.push((frontend, route(&frontend, forward_ports(Masquerade::Always, &ips))));
        }
    }
    for (_, route) in &mut routes {
        change(route);
    }
    routed(routes)
}

fn sticky(seconds: u32) -> impl Fn(&mut Route) {
    move |route| route.affinity_seconds = Some(seconds)
}

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

/// Connects from each client to each frontend several times, and asserts that all connections of a client to
/// the same frontend reach the same endpoint. Returns the names of these endpoints.
fn homes(clients: &[&Namespace]) -> Vec<String> {
    let mut homes = Vec::new();
    for client in clients {
        for (ip, port) in FRONTENDS {
            let names: BTreeSet<_> =
                client.ask_tcp_often(ip, port, 10).into_iter().map(|answer| answer.name).collect();
            assert_eq!(names.len(), 1, "{} is torn between endpoints of {ip} {port}", client.name());
            homes.extend(names);
        }
    }
    homes
}

/// F047: each client keeps its endpoint while the agent restarts and weights change. If the endpoint is
/// removed, its clients move to another at their next connection, and stay there when the endpoint is added
/// again.
#[test]
fn f047_a_client_stays_on_its_endpoint_until_that_goes() {
    let topology = Topology::new("affinity");
    let clients = [&topology.client, &topology.b, &topology.node];
    topology.node.run(|| {
        let mut desired = desired(vec![("web", web(1, 1, &sticky(10_800)))]);
        let mut first = backend();
        verified(&first.apply(&desired, &Scope::Everything));
        let before = homes(&clients);
        assert_eq!(verified(&backend().apply(&desired, &Scope::Everything)), 0, "a restarted agent");
        assert_eq!(homes(&clients), before);
        let mut change = |a, b| {
            set(&mut desired, "web", web(a, b, &sticky(10_800)));
            verified(&first.apply(&desired, &only(&["web"])));
            assert_eq!(verified(&backend().apply(&desired, &Scope::Everything)), 0);
        };
        for (a, b) in [(3, 1), (1, 5), (1, 1)] {
            change(a, b);
            assert_eq!(homes(&clients), before, "weights {a} and {b}");
        }
        change(0, 1);
        assert_eq!(homes(&clients), vec!["b"; before.len()]);
        change(1, 1);
        assert_eq!(homes(&clients), vec!["b"; before.len()], "nobody goes back");
        change(1, 0);
        assert_eq!(homes(&clients), vec!["a"; before.len()]);
        // All affinity entries are created by the kernel, and are removed with the table.
        assert!(namespace_listing(&topology.node).contains("timeout 3h"));
        verified(&first.apply(&DesiredState::default(), &Scope::Everything));
        assert!(first.cleanup().unwrap() > 0);
        assert!(!topology.node.has_table("tidegate"));
    });
}

fn namespace_listing(namespace: &Namespace) -> String {
    namespace.exec(&["nft", "list", "ruleset"])
}

/// F047, F048: with policy Local, an outside client moves to an endpoint on this node when its own endpoint
/// is now on another node. The node itself may keep its endpoint.
#[test]
fn f047_f048_a_client_leaves_an_endpoint_that_went_to_another_node() {
    let topology = Topology::new("afflocal");
    topology.node.run(|| {
        let mut backend = backend();
        let all = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
        let frontend = at("203.0.113.7", Protocol::Tcp, 80);
        let service = |here: usize| {
            let verdicts = [
                forward(Masquerade::Never, &all),
                forward(Masquerade::Always, &all),
                forward(Masquerade::Never, &all[here..=here]),
            ];
            let mut route = by_source(&frontend, verdicts);
            route.affinity_seconds = Some(600);
            desired(vec![("web", routed(vec![(frontend, route)]))])
        };
        let home = |namespace: &Namespace| namespace.ask_tcp("203.0.113.7", 80).unwrap().name;
        verified(&backend.apply(&service(0), &Scope::Everything));
        let of_node = home(&topology.node);
        for (here, name) in [(0, "a"), (1, "b"), (0, "a")] {
            verified(&backend.apply(&service(here), &only(&["web"])));
            for _ in 0..6 {
                assert_eq!(home(&topology.client), name);
                assert_eq!(home(&topology.node), of_node);
            }
        }
    });
}

/// F047: with an affinity timeout of two seconds, a client that connects again at once stays on its endpoint, and one
/// that pauses longer than the timeout reaches both endpoints in the end.
#[test]
fn f047_affinity_ends_with_its_timeout() {
    let topology = Topology::new("timeout");
    topology.node.run(|| {
        let mut backend = backend();
        verified(&backend.apply(&desired(vec![("web", web(1, 1, &sticky(2)))]), &Scope::Everything));
        let mut met = BTreeSet::new();
        // Without affinity, five groups of four connections would meet one endpoint each once in 30,000 runs. After
        // its time a client has an even chance to move.
        for round in 0..30 {
            let begun = Instant::now();
            let answers = topology.client.ask_tcp_often("10.96.0.1", 80, 4);
            let names: BTreeSet<_> = answers.into_iter().map(|answer| answer.name).collect();
            assert!(
                begun.elapsed() > Duration::from_secs(2) || names.len() == 1,
                "within its time: {names:?}"
            );
            met.extend(names);
            if round >= 4 && met.len() == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(2300));
        }
        assert_eq!(met.len(), 2, "after its time a client never moved: {met:?}");
    });
}

/// F047: UDP clients with new source ports keep their endpoint, and get another one when it is removed.
#[test]
fn f047_udp_clients_stay_on_their_endpoint_too() {
    let topology = Topology::new("affudp");
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = desired(vec![("web", web(1, 1, &sticky(600)))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let home = |ip: &str, port| {
            let names: BTreeSet<_> =
                (0..8).map(|_| topology.client.ask_udp(ip, port).unwrap().name).collect();
            assert_eq!(names.len(), 1, "{ip}: {names:?}");
            names
        };
        for (ip, port) in FRONTENDS {
            home(ip, port);
        }
        set(&mut desired, "web", web(0, 1, &sticky(600)));
        verified(&backend.apply(&desired, &only(&["web"])));
        for (ip, port) in FRONTENDS {
            assert_eq!(home(ip, port), BTreeSet::from(["b".to_owned()]));
        }
    });
}

/// If the kernel's affinity map is full, clients without an entry are served as well.
#[test]
fn clients_that_cannot_be_remembered_are_served_all_the_same() {
    let topology = Topology::new("afffull");
    topology.node.run(|| {
        let mut backend = backend();
        let desired = desired(vec![("web", web(1, 1, &sticky(600)))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let elements: Vec<_> = (0..131_072u32)
            .map(|number| {
                let client = std::net::Ipv4Addr::from(0x0a80_0000 + number);
                format!("0x1 . {client} timeout 1h : 0x1")
            })
            .collect();
        for chunk in elements.chunks(16_384) {
            let chunk = chunk.join(", ");
            topology.node.nft(&format!("add element inet tidegate affinity4 {{ {chunk} }}\n"));
        }
        let names: BTreeSet<_> = topology
            .client
            .ask_tcp_often("10.96.0.1", 80, 40)
            .into_iter()
            .map(|answer| answer.name)
            .collect();
        assert_eq!(names.len(), 2, "placed anew at every connection");
    });
}

/// Schedulers `sh` and `mh` select the endpoint by a hash of the client address, without stored state. If the hash
/// includes the client port, connections are spread.
#[test]
fn schedulers_sh_and_mh_choose_by_the_source() {
    chooses_by_the_source("sh");
    chooses_by_the_source("mh");
}

fn chooses_by_the_source(scheduler: &'static str) {
    let topology = Topology::new(scheduler);
    let by_hash = |flags: &[SchedulerFlag]| {
        let flags: BTreeSet<_> = flags.iter().copied().collect();
        move |route: &mut Route| {
            route.scheduler = Some(Scheduler(Label::parse(scheduler).unwrap()));
            route.scheduler_flags.clone_from(&flags);
        }
    };
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = desired(vec![("web", web(1, 1, &by_hash(&[])))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let clients = [&topology.client, &topology.b];
        let before = homes(&clients);
        let mut met: BTreeSet<_> = before.iter().cloned().collect();
        verified(&backend.apply(&DesiredState::default(), &Scope::Everything));
        verified(&backend.apply(&desired, &Scope::Everything));
        assert_eq!(homes(&clients), before, "no state, the same choice");
        for number in 10..60 {
            let ip = format!("192.0.2.{number}");
            topology.client.ip(&["addr", "add", &format!("{ip}/24"), "dev", "eth0"]);
            topology.client.ip(&["route", "replace", "default", "via", "192.0.2.1", "src", &ip]);
            met.insert(topology.client.ask_tcp("10.96.0.1", 80).unwrap().name);
        }
        assert_eq!(met.len(), 2, "clients spread");
        set(&mut desired, "web", web(1, 1, &by_hash(&[SchedulerFlag::Port])));
        verified(&backend.apply(&desired, &only(&["web"])));
        for (ip, port) in FRONTENDS {
            let names: BTreeSet<_> =
                topology.client.ask_tcp_often(ip, port, 40).into_iter().map(|answer| answer.name).collect();
            assert_eq!(names.len(), 2, "connections spread at {ip}");
        }
        assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0);
    });
}

/// If two targets have the same ID in the affinity map, both still get connections, and each client keeps its
/// target.
#[test]
fn targets_with_the_same_id_are_told_apart() {
    // The multiplication spreads numbers over all addresses; usable ones are selected.
    let numbers = (0..4_000_000u32).map(|number| number.wrapping_mul(0x9e37_79b1));
    let usable = numbers.filter(|number| (11..100).contains(&(number >> 24)));
    let target =
        |number: u32| Target { address: std::net::IpAddr::V4(number.into()), port: Some(port(8080)) };
    let mut seen = BTreeMap::new();
    let (one, other) = usable
        .map(target)
        .find_map(|target| seen.insert(TargetId::of(&target), target).map(|earlier| (earlier, target)))
        .expect("two of so many targets have the same id");
    let topology = Topology::new("sameid");
    topology.a.ip(&["addr", "add", &format!("{}/32", one.address), "dev", "eth0"]);
    topology.b.ip(&["addr", "add", &format!("{}/32", other.address), "dev", "eth0"]);
    topology.node.ip(&["route", "add", &one.address.to_string(), "via", "10.1.1.2"]);
    topology.node.ip(&["route", "add", &other.address.to_string(), "via", "10.1.2.2"]);
    topology.node.run(|| {
        let (one, other) = (one.address.to_string(), other.address.to_string());
        let frontend = at("10.96.0.1", Protocol::Tcp, 80);
        let verdict = forward(Masquerade::Always, &[(one.as_str(), 8080, 1), (other.as_str(), 8080, 1)]);
        let mut route = route(&frontend, verdict);
        route.affinity_seconds = Some(600);
        let desired = desired(vec![("web", routed(vec![(frontend, route)]))]);
        verified(&backend().apply(&desired, &Scope::Everything));
        assert_eq!(verified(&backend().apply(&desired, &Scope::Everything)), 0);
        let mut met = BTreeSet::new();
        for number in 10..60 {
            let ip = format!("192.0.2.{number}");
            topology.client.ip(&["addr", "add", &format!("{ip}/24"), "dev", "eth0"]);
            topology.client.ip(&["route", "replace", "default", "via", "192.0.2.1", "src", &ip]);
            let names: BTreeSet<_> = topology
                .client
                .ask_tcp_often("10.96.0.1", 80, 4)
                .into_iter()
                .map(|answer| answer.name)
                .collect();
            assert_eq!(names.len(), 1);
            met.extend(names);
        }
        assert_eq!(met.len(), 2);
    });
}

/// With the verdict `Relay`, as used in userspace mode, connections to every kind of frontend reach a
/// listening socket on the node.
#[test]
fn connections_are_handed_to_a_listener_of_the_node() {
    let topology = Topology::new("relay");
    let _listener = Server::start(&topology.node, "relay", 15_000);
    topology.node.run(|| {
        let relay = |route: &mut Route| {
            let verdict = model::program::Verdict::Relay { port: port(15_000) };
            *route = Route { affinity_seconds: Some(60), ..Route::new(route.role, verdict) };
        };
        let options = NftablesOptions { table: "tidegate-userspace", ..NftablesOptions::default() };
        let mut backend = NftablesBackend::open(options).unwrap();
        let desired = desired(vec![("web", web(1, 1, &relay))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        for namespace in [&topology.client, &topology.b, &topology.node] {
            for (ip, port) in FRONTENDS {
                let what = format!("{ip} {port} from {}", namespace.name());
                assert_eq!(namespace.ask_tcp(ip, port).unwrap().name, "relay", "TCP {what}");
                // The listener of the test replies to the node itself from another address than the requested
                // one.
                if namespace.name() != topology.node.name() {
                    let answer =
                        namespace.ask_udp(ip, port).unwrap_or_else(|error| panic!("UDP {what}: {error}"));
                    assert_eq!(answer.name, "relay");
                }
            }
        }
        let mut fresh = NftablesBackend::open(options).unwrap();
        assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0);
        assert!(topology.node.has_table("tidegate-userspace") && !topology.node.has_table("tidegate"));
        assert!(fresh.traffic().unwrap().is_empty(), "a listener is no target");
        assert!(fresh.cleanup().unwrap() > 0);
        assert!(!topology.node.has_table("tidegate-userspace"));
    });
}

/// Returns the elements of the map `name` in the IP family of an address, as JSON.
fn elements(node: &Namespace, name: &str, address: &str) -> Vec<serde_json::Value> {
    let name = format!("{name}{}", if address.contains(':') { 6 } else { 4 });
    let listing = node.exec(&["nft", "-j", "list", "map", "inet", "tidegate", &name]);
    let all: serde_json::Value = serde_json::from_str(&listing).unwrap();
    let maps = all["nftables"].as_array().unwrap().iter();
    maps.filter_map(|object| object["map"]["elem"].as_array()).flatten().cloned().collect()
}

/// Returns the number of the group of the TCP frontend at an address.
fn group(node: &Namespace, address: &str) -> u64 {
    let of_frontend = |element: &serde_json::Value| {
        let key = element[0].to_string();
        let is_tcp = key.contains("\"tcp\"") || key.contains(",6,");
        (is_tcp && key.contains(&format!("\"{address}\""))).then(|| element[1].as_u64().unwrap())
    };
    elements(node, "affinity-groups", address).iter().find_map(of_frontend).unwrap()
}

/// Returns the number of affinity entries of a group, in the IP family of an address.
fn remembered(node: &Namespace, address: &str, group: u64) -> usize {
    let is_of_group = |element: &serde_json::Value| element[0]["elem"]["val"]["concat"][0] == group;
    elements(node, "affinity", address).into_iter().filter(is_of_group).count()
}

/// F047: the affinity entries of a frontend are removed when the frontend is removed or loses its affinity,
/// but not when its endpoints are removed. Entries of other Services are kept. A new agent removes the
/// entries that an earlier one has left.
#[test]
fn f047_what_is_remembered_of_clients_goes_with_the_frontend() {
    let topology = Topology::new("affgone");
    topology.node.run(|| {
        let frontend = at("10.96.0.7", Protocol::Tcp, 80);
        let other = |endpoints: &[(&str, u16, u16)], seconds| {
            let verdict = match endpoints {
                [] => model::program::Verdict::Reject,
                endpoints => forward(Masquerade::Always, endpoints),
            };
            let affinity = Route { affinity_seconds: seconds, ..route(&frontend, verdict) };
            routed(vec![(frontend, affinity)])
        };
        let here = [("10.1.1.2", 8080, 1)];
        let both = || vec![("web", web(1, 1, &sticky(10_800))), ("other", other(&here, Some(10_800)))];
        let meet = || {
            let meet = |(ip, port): &(&str, u16)| topology.client.ask_tcp(ip, *port).map(drop).unwrap();
            FRONTENDS.iter().chain(&[("10.96.0.7", 80)]).for_each(meet);
        };
        let turns = |backend: &mut NftablesBackend, count| (0..count).for_each(|_| backend.upkeep().unwrap());
        let mut backend = backend();
        let mut desired = desired(both());
        verified(&backend.apply(&desired, &Scope::Everything));
        let groups = ["10.96.0.1", "fd96::1", "10.96.0.7"].map(|at| (at, group(&topology.node, at)));
        let seen = || groups.map(|(at, group)| remembered(&topology.node, at, group));
        meet();
        turns(&mut backend, 10);
        assert_eq!(seen(), [1, 1, 1], "nothing went");
        desired.programs.remove(&key("web"));
        verified(&backend.apply(&desired, &only(&["web"])));
        turns(&mut backend, 10);
        assert_eq!(seen(), [0, 0, 1]);
        assert!(!backend.is_disturbed().unwrap(), "it was nobody else");
        set(&mut desired, "other", other(&[], Some(10_800)));
        verified(&backend.apply(&desired, &only(&["other"])));
        turns(&mut backend, 10);
        assert_eq!(seen(), [0, 0, 1], "endpoints may come back");
        desired.programs.remove(&key("other"));
        verified(&backend.apply(&desired, &only(&["other"])));
        turns(&mut backend, 100);
        assert_eq!(seen(), [0, 0, 0], "they did not, and nothing but the frontend was removed");
        set(&mut desired, "other", other(&here, Some(10_800)));
        verified(&backend.apply(&desired, &only(&["other"])));
        topology.client.ask_tcp("10.96.0.7", 80).unwrap();
        set(&mut desired, "other", other(&here, None));
        verified(&backend.apply(&desired, &only(&["other"])));
        assert_eq!(seen(), [0, 0, 1], "it was the last thing that this process did");
        let mut fresh = self::backend();
        assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0);
        turns(&mut fresh, 1);
        assert_eq!(seen(), [0, 0, 0]);
    });
}
