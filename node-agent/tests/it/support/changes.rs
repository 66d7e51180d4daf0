//! Kinds of change to Services and networks for the preview tests of all proxy modes, and the comparison of
//! previews with kernel listings.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        resource::ServiceKey,
        service::{Protocol, TrafficDistribution, TrafficPolicy},
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Revision, Weight},
    },
    wire::{
        feed::{NetworkState, NodeState},
        plan::{LineChange, LineFate},
    },
};
use node_agent::{
    dataplane::{Dataplane, DesiredState, Scope},
    defaults::ProxyDefaults,
    desired::DesiredBuilder,
    feed::machine::{Batch, ServiceChange},
    state::{ChangedObjects, State},
};

use super::{
    programs::{address, key, nets, port, verified},
    states::{full, network, node_name, position},
};

/// Simulated state, as a control server would send it to an agent on one node.
#[derive(Debug, Clone)]
pub struct World {
    pub services: BTreeMap<ServiceKey, CompiledService>,
    pub network: NetworkState,
    pub node: NodeState,
}

/// Kind of change: its name, and the function that changes the simulated state.
pub struct Kind {
    pub name: &'static str,
    pub change: fn(&mut World),
}

/// Kernel listing: number of occurrences of each line, by place (such as a chain) and text.
pub type Listing = BTreeMap<(String, String), usize>;

/// Builds an endpoint at the address `at` and port 8080 on a node.
pub fn endpoint(at: &str, node: &str) -> CompiledEndpoint {
    CompiledEndpoint {
        address: address(at),
        port: port(8080),
        node: Some(Name::parse(node).unwrap()),
        zone: Some(Label::parse(if node == "n1" { "a" } else { "b" }).unwrap()),
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    }
}

fn tcp(number: u16, endpoints: Vec<CompiledEndpoint>) -> CompiledPort {
    CompiledPort {
        name: None,
        protocol: Protocol::Tcp,
        port: port(number),
        end_port: None,
        node_port: None,
        endpoints,
    }
}

fn service(name: &str, cluster_ip: &str, ports: Vec<CompiledPort>) -> CompiledService {
    CompiledService {
        revision: Revision(1),
        cluster_ips: vec![address(cluster_ip)],
        ip_families: vec![IpFamily::of(address(cluster_ip))],
        ports,
        ..CompiledService::new(key(name))
    }
}

impl World {
    /// Builds the base state of the preview tests, with a few typical Services.
    pub fn base() -> Self {
        let web = || vec![endpoint("10.1.1.2", "n1"), endpoint("10.1.2.2", "n2"), endpoint("10.1.3.2", "n3")];
        let dns = CompiledPort { protocol: Protocol::Udp, ..tcp(53, vec![endpoint("10.1.2.3", "n2")]) };
        let exposed = CompiledPort { node_port: Some(port(30080)), ..tcp(80, web()) };
        let services = [
            service("web", "10.96.0.1", vec![tcp(80, web())]),
            service("dns", "10.96.0.10", vec![dns, tcp(53, vec![endpoint("10.1.2.3", "n2")])]),
            service(
                "six",
                "fd96::1",
                vec![tcp(443, vec![endpoint("fd01:1::2", "n1"), endpoint("fd01:2::2", "n2")])],
            ),
            CompiledService {
                load_balancer_ips: vec![address("203.0.113.10")],
                ..service("exposed", "10.96.0.20", vec![exposed])
            },
            service("idle", "10.96.0.30", vec![tcp(80, Vec::new())]),
        ];
        Self {
            services: services.into_iter().map(|service| (service.service.clone(), service)).collect(),
            network: network(&["10.1.0.0/16", "fd01::/16"]),
            node: NodeState::default(),
        }
    }

    pub fn changed(&self, change: fn(&mut World)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    pub fn service(&mut self, name: &str) -> &mut CompiledService {
        self.services.get_mut(&key(name)).expect("one of the base")
    }

    fn endpoints(&mut self, name: &str) -> &mut Vec<CompiledEndpoint> {
        &mut self.service(name).ports[0].endpoints
    }

    pub fn put(&mut self, service: CompiledService) {
        self.services.insert(service.service.clone(), service);
    }

    /// Returns the desired kernel state that the agent on node `n1` derives from this state.
    pub fn desired(&self) -> DesiredState {
        let mut state = State::default();
        let change = |service: &CompiledService| ServiceChange::Set(Arc::new(service.clone()));
        let services = self.services.iter().map(|(key, service)| (key.clone(), change(service))).collect();
        let batch = Batch {
            services,
            network: Some(self.network.clone()),
            node: Some(self.node.clone()),
            ..full("1-1", Vec::new())
        };
        assert_eq!(batch.position, position("1-1"));
        let touched = state.apply(batch).unwrap();
        let mut derived = DesiredBuilder::new(node_name(), ProxyDefaults::default());
        derived.update(&state, ChangedObjects { network: true, node: true, ..touched });
        assert!(derived.unsupported().is_empty(), "{:?}", derived.unsupported());
        derived.desired().clone()
    }

    /// Returns the Services that an update of the kernel from this state to `other` must program.
    pub fn scope_to(&self, other: &Self) -> Scope {
        let names: BTreeSet<_> = self.services.keys().chain(other.services.keys()).collect();
        let differs = |name: &&ServiceKey| self.services.get(name) != other.services.get(name);
        Scope::Services(names.into_iter().filter(differs).cloned().collect())
    }
}

/// Kinds of change that every mode supports.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "a new Service",
        change: |world| {
            world.put(service("new", "10.96.0.40", vec![tcp(80, vec![endpoint("10.1.2.9", "n2")])]))
        },
    },
    Kind {
        name: "a new Service with more endpoints than any other",
        change: |world| {
            let endpoints = (1..=7).map(|last| endpoint(&format!("10.1.4.{last}"), "n4")).collect();
            world.put(service("large", "10.96.0.41", vec![tcp(80, endpoints)]));
        },
    },
    Kind {
        name: "a Service is removed",
        change: |world| {
            world.services.remove(&key("web"));
        },
    },
    Kind {
        name: "a Service is replaced by another",
        change: |world| {
            world.services.remove(&key("web"));
            world.put(service("other", "10.96.0.1", vec![tcp(80, vec![endpoint("10.1.2.9", "n2")])]));
        },
    },
    Kind {
        name: "one more endpoint",
        change: |world| world.endpoints("web").push(endpoint("10.1.3.9", "n3")),
    },
    Kind {
        name: "one endpoint fewer",
        change: |world| {
            world.endpoints("web").remove(1);
        },
    },
    Kind {
        name: "an endpoint moves",
        change: |world| world.endpoints("web")[1] = endpoint("10.1.2.77", "n2"),
    },
    Kind {
        name: "an endpoint on this node goes",
        change: |world| {
            world.endpoints("web").remove(0);
        },
    },
    Kind { name: "an endpoint is not ready", change: |world| world.endpoints("web")[2].ready = false },
    Kind { name: "all endpoints go", change: |world| world.endpoints("web").clear() },
    Kind {
        name: "the first endpoint comes",
        change: |world| world.endpoints("idle").push(endpoint("10.1.1.5", "n1")),
    },
    Kind {
        name: "an endpoint terminates",
        change: |world| {
            let endpoint = &mut world.endpoints("web")[1];
            (endpoint.ready, endpoint.terminating) = (false, true);
        },
    },
    Kind {
        name: "an endpoint is on this node now",
        change: |world| world.endpoints("web")[1].node = Some(node_name()),
    },
    Kind {
        name: "a Service of a range of ports",
        change: |world| {
            let range =
                CompiledPort { end_port: Some(port(8010)), ..tcp(8001, vec![endpoint("10.1.2.9", "n2")]) };
            world.put(service("range", "10.96.0.42", vec![range]));
        },
    },
    Kind {
        name: "a Service of SCTP",
        change: |world| {
            let port =
                CompiledPort { protocol: Protocol::Sctp, ..tcp(132, vec![endpoint("10.1.2.9", "n2")]) };
            world.put(service("sctp", "10.96.0.43", vec![port]));
        },
    },
    Kind { name: "every source is masqueraded", change: |world| world.node.proxy.masquerade_all = true },
    Kind { name: "a weight rises", change: |world| world.endpoints("web")[0].weight = Weight(3) },
    Kind { name: "an endpoint drains", change: |world| world.endpoints("web")[1].weight = Weight(0) },
    Kind {
        name: "the endpoints listen elsewhere",
        change: |world| {
            for endpoint in world.endpoints("web") {
                endpoint.port = port(9090);
            }
        },
    },
    Kind {
        name: "one more port",
        change: |world| {
            world.service("web").ports.push(tcp(443, vec![endpoint("10.1.1.2", "n1")]));
            name_ports(world.service("web"));
        },
    },
    Kind {
        name: "one port fewer",
        change: |world| {
            world.service("dns").ports.remove(1);
        },
    },
    Kind { name: "another port", change: |world| world.service("web").ports[0].port = port(8443) },
    Kind { name: "another protocol", change: |world| world.service("web").ports[0].protocol = Protocol::Udp },
    Kind { name: "a node port", change: |world| world.service("web").ports[0].node_port = Some(port(31000)) },
    Kind {
        name: "another node port",
        change: |world| world.service("exposed").ports[0].node_port = Some(port(31001)),
    },
    Kind {
        name: "an external address",
        change: |world| world.service("web").external_ips.push(address("192.0.2.80")),
    },
    Kind {
        name: "a load balancer address",
        change: |world| world.service("web").load_balancer_ips.push(address("203.0.113.11")),
    },
    Kind {
        name: "a load balancer address goes",
        change: |world| world.service("exposed").load_balancer_ips.clear(),
    },
    Kind {
        name: "another cluster IP",
        change: |world| world.service("web").cluster_ips = vec![address("10.96.0.99")],
    },
    Kind {
        name: "both families",
        change: |world| {
            let web = world.service("web");
            web.cluster_ips.push(address("fd96::99"));
            web.ip_families.push(IpFamily::V6);
            web.ports[0].endpoints.push(endpoint("fd01:1::9", "n1"));
        },
    },
    Kind {
        name: "source ranges",
        change: |world| {
            world.service("exposed").source_ranges =
                nets(&["192.0.2.0/24", "198.51.100.7/32", "10.2.0.0/15"]);
        },
    },
    Kind { name: "affinity", change: |world| world.service("web").affinity_seconds = Some(600) },
    Kind {
        name: "external traffic stays on the node",
        change: |world| world.service("exposed").external_traffic_policy = TrafficPolicy::Local,
    },
    Kind {
        name: "internal traffic stays on the node",
        change: |world| world.service("web").internal_traffic_policy = TrafficPolicy::Local,
    },
    Kind {
        name: "near endpoints are preferred",
        change: |world| {
            world.service("web").traffic_distribution = Some(TrafficDistribution::PreferSameNode);
        },
    },
    Kind {
        name: "another workload network",
        change: |world| {
            world.network = network(&["10.1.0.0/16", "10.8.0.0/14", "10.12.0.0/16", "fd01::/16"]);
        },
    },
];

/// Gives a name to each port of a Service, which is required if it has several ports.
fn name_ports(service: &mut CompiledService) {
    for (number, port) in (1..).zip(&mut service.ports) {
        port.name = Some(Label::parse(&format!("p{number}")).unwrap());
    }
}

/// Makes and undoes each kind of change, and compares each preview with the change of the kernel listing
/// `list`. The backend is in the namespace of the calling thread. `refused` contains the names of the kinds
/// that its proxy mode does not support. Returns the names of the kinds that had no effect on the listing.
pub fn check_previews(
    backend: &mut dyn Dataplane,
    list: impl Fn() -> Listing,
    refused: &[&str],
) -> BTreeSet<&'static str> {
    let base = World::base();
    let mut unseen = BTreeSet::new();
    for Kind { name, change } in KINDS.iter().filter(|kind| !refused.contains(&kind.name)) {
        let changed = base.changed(*change);
        verified(&backend.apply(&base.desired(), &Scope::Everything));
        let there = check_preview(name, backend, &list, (&base, &changed));
        let back = check_preview(&format!("{name}, undone"), backend, &list, (&changed, &base));
        if there + back == 0 {
            unseen.insert(*name);
        }
    }
    unseen
}

fn check_preview(
    name: &str,
    backend: &mut dyn Dataplane,
    list: &impl Fn() -> Listing,
    (from, to): (&World, &World),
) -> usize {
    let (desired, scope) = (to.desired(), from.scope_to(to));
    let before = list();
    let planned = backend.preview(&desired, &scope).unwrap().expect("this backend can say");
    assert_eq!(list(), before, "{name}: a preview writes nothing");
    verified(&backend.apply(&desired, &scope));
    let after = list();
    assert_same(name, &planned, &difference(&before, &after));
    assert_eq!(backend.preview(&desired, &scope).unwrap(), Some(Vec::new()), "{name}: nothing is left to do");
    planned.len()
}

/// Returns the lines that were removed and added between two kernel listings.
pub fn difference(before: &Listing, after: &Listing) -> Vec<LineChange> {
    let lines: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let count = |listing: &Listing, line| listing.get(line).copied().unwrap_or_default();
    let changes = lines.into_iter().flat_map(|line| {
        let (was, is) = (count(before, line), count(after, line));
        let (place, text) = line.clone();
        let change = if is > was { LineFate::Added } else { LineFate::Removed };
        vec![LineChange { change, place, line: text }; was.abs_diff(is)]
    });
    changes.collect()
}

/// Asserts that the previewed changes `planned` equal the actual changes `happened`, regardless of their
/// order.
pub fn assert_same(name: &str, planned: &[LineChange], happened: &[LineChange]) {
    let (planned, happened) = (shown(planned), shown(happened));
    let without = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).cloned().collect()
    };
    assert_eq!(without(&planned, &happened), without(&happened, &planned), "{name}: planned, and happened");
    assert_eq!(planned, happened, "{name}: some line is there more than once");
}

/// Formats line changes as users see them, sorted.
fn shown(changes: &[LineChange]) -> Vec<String> {
    let sign = |change| match change {
        LineFate::Removed => '-',
        LineFate::Added => '+',
    };
    let line = |LineChange { change, place, line }: &LineChange| format!("{place}: {}{line}", sign(*change));
    let mut lines: Vec<_> = changes.iter().map(line).collect();
    lines.sort();
    lines
}
