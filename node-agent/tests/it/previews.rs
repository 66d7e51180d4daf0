//! Tests of previews: each backend previews the lines that a change will add to and remove from its kernel
//! listings. After the change, the listings of the kernel's own tools differ by exactly these lines. A second
//! backend makes the same changes without previews, and its kernel must get the same state.
//!
//! Lines are compared without order. Packet counters, interface indices, random choices of the kernel and
//! built-in chains are omitted.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{collections::BTreeSet, sync::Mutex};

use model::{
    kinds::service::{ProxyProtocol, RemovalPolicy, Scheduler, TrafficPolicy},
    primitives::name::Label,
    wire::plan::{LineChange, LineFate},
};
use node_agent::dataplane::{
    BackendOptions, Dataplane, DesiredState, Scope,
    iptables::Flavour,
    ipvs::IpvsBackend,
    userspace::{Limits, TABLE, UserspaceBackend, process::RelayClient},
};

use crate::support::{
    Namespace,
    changes::{KINDS, Kind, Listing, World, assert_same, difference, endpoint},
    guest,
    iptables::{backend, flavours},
    listings::{add, around_ipvs, beneath_ipvs, nft_table, rules},
    net::Topology,
    process::Home,
    programs::*,
    relay::{TcpServer, connect, echo, echoes},
};

/// Two consecutive changes: the first prepares the state in which the second one is previewed.
struct Pair {
    name: &'static str,
    before: fn(&mut World),
    after: fn(&mut World),
}

/// Changes that the base state of the tests does not permit directly: of settings that are unset there, and
/// of features that only some modes support.
const PAIRS: &[Pair] = &[
    Pair {
        name: "another affinity",
        before: |world| world.service("web").affinity_seconds = Some(600),
        after: |world| world.service("web").affinity_seconds = Some(1200),
    },
    Pair {
        name: "other source ranges",
        before: |world| world.service("exposed").source_ranges = nets(&["192.0.2.0/24", "198.51.100.7/32"]),
        after: |world| world.service("exposed").source_ranges = nets(&["192.0.2.0/25"]),
    },
    Pair {
        name: "external traffic stays on the node, where no endpoint is left",
        before: |world| world.service("exposed").external_traffic_policy = TrafficPolicy::Local,
        after: |world| world.service("exposed").ports[0].endpoints = vec![endpoint("10.1.2.2", "n2")],
    },
    Pair {
        name: "a health check node port",
        before: |world| world.service("exposed").external_traffic_policy = TrafficPolicy::Local,
        after: |world| world.service("exposed").health_check_node_port = Some(port(32_000)),
    },
    Pair {
        name: "an external address goes to another Service",
        before: |world| world.service("web").external_ips = vec![address("192.0.2.80")],
        after: |world| {
            world.service("web").external_ips = Vec::new();
            world.service("idle").external_ips = vec![address("192.0.2.80")];
        },
    },
    Pair {
        name: "two Services want one external address, and the first gives it up",
        before: |world| {
            world.service("exposed").external_ips = vec![address("192.0.2.80")];
            world.service("web").external_ips = vec![address("192.0.2.80")];
        },
        after: |world| world.service("exposed").external_ips = Vec::new(),
    },
    Pair {
        name: "a Service is disabled",
        before: |world| world.service("web").external_ips = vec![address("192.0.2.80")],
        after: |world| {
            world.service("web").cluster_ips = Vec::new();
            world.service("web").external_ips = Vec::new();
        },
    },
    Pair {
        name: "node ports answer at fewer addresses",
        before: |world| world.service("web").ports[0].node_port = Some(port(31_000)),
        after: |world| world.node.proxy.node_port_addresses = vec!["192.0.2.0/24".parse().unwrap()],
    },
    Pair {
        name: "workload networks are unknown",
        before: |world| world.service("exposed").external_traffic_policy = TrafficPolicy::Local,
        after: |world| world.network.workload_cidrs = nets(&[]),
    },
    Pair {
        name: "a scheduler by source",
        before: |world| schedule(world, "sh"),
        after: |world| world.service("web").scheduler = None,
    },
    Pair {
        name: "a scheduler by load",
        before: |world| schedule(world, "wlc"),
        after: |world| schedule(world, "lc"),
    },
    Pair {
        name: "the PROXY protocol",
        before: |world| world.service("web").proxy_protocol = Some(ProxyProtocol::V1),
        after: |world| world.service("web").proxy_protocol = Some(ProxyProtocol::V2),
    },
    Pair {
        name: "connections of removed endpoints are cut",
        before: |world| world.service("web").removal_policy = RemovalPolicy::Reset,
        after: |world| world.service("web").ports[0].endpoints.truncate(1),
    },
];

/// Names of changes that are equivalent to a different change or to its reverse. They are skipped for modes
/// whose tools are slow.
const ALIKE: [&str; 17] = [
    "a new Service with more endpoints than any other",
    "a Service is replaced by another",
    "one endpoint fewer",
    "all endpoints go",
    "an endpoint on this node goes",
    "an endpoint terminates",
    "an endpoint drains",
    "one port fewer",
    "another cluster IP",
    "a load balancer address goes",
    "internal traffic stays on the node",
    "near endpoints are preferred",
    "other source ranges",
    "an external address goes to another Service",
    "workload networks are unknown",
    "a scheduler by source",
    "the PROXY protocol",
];

/// Names of the changes that change nothing in the kernel in iptables mode.
const SILENT_IPTABLES: &[&str] = &["a health check node port", "a scheduler by load", "the PROXY protocol"];
/// Names of the changes that change nothing in the kernel in ipvs mode.
const SILENT_IPVS: &[&str] = &[
    "two Services want one external address, and the first gives it up",
    "node ports answer at fewer addresses",
];
/// Names of the changes that change neither rules nor listeners in userspace mode.
const SILENT_USERSPACE: &[&str] =
    &["a health check node port", "an endpoint is on this node now", "every source is masqueraded"];

fn schedule(world: &mut World, name: &str) {
    world.service("web").scheduler = Some(Scheduler(Label::parse(name).unwrap()));
}

/// Two backends of one proxy mode, each in its own namespace. The first backend previews and then makes each
/// change; the second one (twin) only makes it.
struct Lane<B, L> {
    node: Namespace,
    backend: B,
    twin_node: Namespace,
    twin: B,
    list: L,
    /// True if the kernel listing of the base state is restored after a change is undone.
    comes_back: bool,
    held: Listing,
    /// Names of the changes so far whose preview was empty.
    silent: BTreeSet<&'static str>,
}

impl<B: Dataplane, L: Fn(&mut B) -> Listing + Sync> Lane<B, L> {
    fn new(nodes: [Namespace; 2], open: impl Fn() -> B + Sync, list: L) -> Self {
        let [node, twin_node] = nodes;
        let (mut backend, twin) = (node.run(&open), twin_node.run(&open));
        let held = node.run(|| list(&mut backend));
        Self { node, backend, twin_node, twin, list, comes_back: true, held, silent: BTreeSet::new() }
    }

    /// Makes and undoes every change whose name is not in `skipped`, and checks the preview of each. Exactly the
    /// previews of the changes in `silent` must be empty.
    fn walk(&mut self, skipped: &[&str], silent: &[&str]) {
        let base = World::base();
        self.step("everything", None, &base);
        let listing = self.held.clone();
        for Kind { name, change } in KINDS.iter().filter(|kind| !skipped.contains(&kind.name)) {
            let changed = base.changed(*change);
            self.change(name, &base, &changed);
            self.undo(name, &changed, (&base, &listing));
        }
        for Pair { name, before, after } in PAIRS.iter().filter(|pair| !skipped.contains(&pair.name)) {
            let first = base.changed(*before);
            let second = first.changed(*after);
            self.step(&format!("before {name}"), Some(&base), &first);
            self.change(name, &first, &second);
            self.undo(name, &second, (&base, &listing));
        }
        let silent = silent.iter().copied().filter(|name| !skipped.contains(name));
        assert_eq!(self.silent, silent.collect(), "the changes without an effect on the kernel");
        self.step("everything again", None, &base);
        let mut nothing = base.clone();
        nothing.services.clear();
        self.step("nothing", None, &nothing);
        self.step("everything anew", None, &base);
        let lasting = |listing: Listing| {
            let line = |(place, line): (String, String)| format!("{place}: {}", portless(&line));
            listing.into_keys().map(line).collect::<Vec<_>>()
        };
        let twin = lasting(self.twin_node.run(|| (self.list)(&mut self.twin)));
        assert_eq!(lasting(self.held.clone()), twin, "the twin has the same");
    }

    fn change(&mut self, name: &'static str, from: &World, to: &World) {
        let before = self.held.clone();
        self.step(name, Some(from), to);
        if self.held == before {
            self.silent.insert(name);
        }
    }

    fn step(&mut self, name: &str, from: Option<&World>, to: &World) {
        let scope = from.map_or(Scope::Everything, |from| from.scope_to(to));
        let planned = self.pass(name, &scope, &to.desired());
        let after = self.node.run(|| (self.list)(&mut self.backend));
        if let Some(planned) = planned {
            assert_same(name, &planned, &unnumbered(&planned, difference(&self.held, &after)));
        } else {
            assert!(from.is_none(), "{name}: only what is not there yet is not listed");
        }
        self.held = after;
        let planned = self.node.run(|| self.backend.preview(&to.desired(), &scope)).unwrap();
        assert_eq!(planned, Some(Vec::new()), "{name}: nothing is left to do");
    }

    /// Undoes a change by returning from the state `from` to the base state, and checks the preview.
    /// `listing` is the kernel listing of the base state, which must be restored if [`Self::comes_back`] is
    /// true.
    fn undo(&mut self, name: &str, from: &World, (base, listing): (&World, &Listing)) {
        let name = format!("{name}, undone");
        if !self.comes_back {
            return self.step(&name, Some(from), base);
        }
        let planned = self.pass(&name, &from.scope_to(base), &base.desired()).expect("it can say");
        assert_same(&name, &planned, &difference(&self.held, listing));
        self.held.clone_from(listing);
    }

    /// Previews an update of the kernel (pass), then makes the update with both backends, and asserts that
    /// both have the same outcome. Returns the preview.
    fn pass(&mut self, name: &str, scope: &Scope, desired: &DesiredState) -> Option<Vec<LineChange>> {
        let Self { node, backend, twin_node, twin, .. } = self;
        let counters = backend.counters();
        let planned = node.run(|| backend.preview(desired, scope)).unwrap();
        assert_eq!(backend.counters(), counters, "{name}: a preview writes nothing");
        let pass = node.run(|| backend.apply(desired, scope));
        let other = twin_node.run(|| twin.apply(desired, scope));
        assert!(pass.failed.is_none(), "{name}: {:?}", pass.failed);
        assert_eq!(
            (pass.outcomes, pass.writes),
            (other.outcomes, other.writes),
            "{name}: as without a preview"
        );
        planned
    }
}

/// Replaces the port of the listening socket by `?` in each added line that the preview does not contain: the
/// kernel chooses this port, so that no preview can contain it.
fn unnumbered(planned: &[LineChange], mut happened: Vec<LineChange>) -> Vec<LineChange> {
    let is_unknown = |change: &&mut LineChange| !planned.contains(change);
    for change in happened.iter_mut().filter(is_unknown).filter(|change| change.change == LineFate::Added) {
        change.line = portless(&change.line);
    }
    happened
}

/// Returns the port in a line that describes a listening socket, or `None` for other lines.
fn listener(line: &str) -> Option<&str> {
    [": 0.0.0.0 . ", ": :: . "].into_iter().find_map(|to| line.split_once(to)).map(|(_, port)| port)
}

fn portless(line: &str) -> String {
    match listener(line) {
        Some(port) => format!("{}?", line.strip_suffix(port).unwrap()),
        None => line.to_owned(),
    }
}

fn nodes(test: &str) -> [Namespace; 2] {
    ["a", "b"].map(|which| {
        let node = Namespace::new(&format!("{test}-{which}"));
        node.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
        node.ip(&["addr", "add", "192.0.2.1/24", "dev", "eth0"]);
        node.ip(&["addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad"]);
        node.ip(&["link", "set", "eth0", "up"]);
        node.ip(&["link", "set", "eth1", "up"]);
        node
    })
}

#[test]
fn a_preview_of_iptables_is_the_difference_of_its_listings() {
    for flavour in flavours() {
        let nodes = nodes(&format!("pre-ipt-{}", flavour.as_str()));
        let skipped = match flavour {
            Flavour::Nft => &[][..],
            Flavour::Legacy => &ALIKE,
        };
        Lane::new(nodes, || backend(flavour), |_| rules(flavour)).walk(skipped, SILENT_IPTABLES);
    }
}

fn ipvs() {
    let open = || IpvsBackend::open(&BackendOptions::default()).unwrap();
    // Rules and settings are independent of the Services: they are read without any, with some, and in the
    // end.
    let beneath = Mutex::new(Vec::new());
    let list = |_: &mut IpvsBackend| {
        let mut beneath = beneath.lock().unwrap();
        if beneath.len() < 2 {
            beneath.push(beneath_ipvs());
        }
        let mut listing = around_ipvs();
        listing.extend(beneath.last().unwrap().clone());
        listing
    };
    let mut lane = Lane::new(nodes("pre-ipvs"), open, list);
    lane.walk(&ALIKE, SILENT_IPVS);
    let rules = lane.node.run(beneath_ipvs);
    assert_eq!(beneath.lock().unwrap().last(), Some(&rules));
}

/// Checks that in ipvs mode, draining targets with connections keep their real server with weight 0, and the
/// last one also keeps its virtual server.
fn draining() {
    let topology = Topology::silent("pre-drain");
    let _servers = [&topology.a, &topology.b].map(|node| TcpServer::start(node, 9000, echo));
    let mut backend = topology.node.run(|| IpvsBackend::open(&BackendOptions::default()).unwrap());
    let both = [("10.1.1.2", 9000, 1), ("10.1.2.2", 9000, 1)];
    let mut desired = desired(vec![("web", simple("10.96.0.1", &both))]);
    verified(&topology.node.run(|| backend.apply(&desired, &Scope::Everything)));
    let mut streams = [(); 2].map(|()| connect(&topology.client, "10.96.0.1", 80).unwrap());
    assert!(streams.iter_mut().all(|stream| echoes(stream, "one")));
    let mut held = topology.node.run(around_ipvs);
    let mut check = |desired: &DesiredState, wanted: &[&str]| {
        let planned = topology.node.run(|| backend.preview(desired, &only(&["web"]))).unwrap().unwrap();
        verified(&topology.node.run(|| backend.apply(desired, &only(&["web"]))));
        let after = topology.node.run(around_ipvs);
        assert_same("a Service with connections", &planned, &difference(&held, &after));
        let come: Vec<_> = planned.iter().filter(|line| line.change == LineFate::Added).collect();
        assert_eq!(come.iter().map(|line| line.line.as_str()).collect::<Vec<_>>(), wanted);
        held = after;
    };
    set(&mut desired, "web", simple("10.96.0.1", &both[..1]));
    check(&desired, &["-a -t 10.96.0.1:80 -r 10.1.2.2:9000 -m -w 0"]);
    desired.programs.clear();
    check(&desired, &["-a -t 10.96.0.1:80 -r 10.1.1.2:9000 -m -w 0"]);
    assert!(streams.iter_mut().all(|stream| echoes(stream, "two")));
}

#[test]
fn a_preview_of_ipvs_is_the_difference_of_its_listings() {
    guest::run(
        "previews::a_preview_of_ipvs_is_the_difference_of_its_listings",
        &[("every kind of change", ipvs), ("targets with connections", draining)],
    );
}

fn mark() -> u32 {
    BackendOptions::default().masquerade_mark
}

#[test]
fn a_preview_of_userspace_is_the_difference_of_its_rules_and_listeners() {
    let open = || UserspaceBackend::open(mark(), Limits::default()).unwrap();
    let list = |backend: &mut UserspaceBackend| {
        let mut listing = nft_table(TABLE);
        for (place, line) in backend.listing() {
            add(&mut listing, &place, &line);
        }
        listing
    };
    let mut lane = Lane::new(nodes("pre-usp"), open, list);
    // Recreated listeners have other ports.
    lane.comes_back = false;
    lane.walk(&[], SILENT_USERSPACE);
}

#[test]
fn a_relay_process_says_what_its_backend_would() {
    let [node, _] = nodes("pre-relay");
    let home = Home::new("pre-relay");
    let base = World::base();
    let mut client = node.run(|| RelayClient::open(home.relays(), mark()).unwrap());
    let asked = node.run(|| client.preview(&base.desired(), &Scope::Everything));
    assert!(asked.is_err() && home.processes().is_empty(), "none is started for a question");
    node.run(|| client.observe()).unwrap();
    let early = node.run(|| client.preview(&base.desired(), &Scope::Everything));
    assert!(early.is_err(), "one that was told nothing cannot say what differs");
    verified(&node.run(|| client.apply(&base.desired(), &Scope::Everything)));
    for Kind { name, change } in KINDS.iter().take(6) {
        let changed = base.changed(*change);
        let scope = base.scope_to(&changed);
        let before = node.run(|| nft_table(TABLE));
        let planned = node.run(|| client.preview(&changed.desired(), &scope)).unwrap().unwrap();
        verified(&node.run(|| client.apply(&changed.desired(), &scope)));
        let after = node.run(|| nft_table(TABLE));
        let (of_relay, of_rules): (Vec<_>, Vec<_>) =
            planned.into_iter().partition(|line| line.place.starts_with("relay "));
        assert!(!of_relay.is_empty(), "{name}");
        assert_same(name, &of_rules, &unnumbered(&of_rules, difference(&before, &after)));
        verified(&node.run(|| client.apply(&base.desired(), &scope)));
    }
}
