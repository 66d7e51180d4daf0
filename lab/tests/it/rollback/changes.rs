//! Kinds of random change for the rollback test, with random parameters.

use std::fmt;

use serde_json::{Value, json};

use super::{
    dice::Dice,
    stage::{endpoints, object, workload},
};

/// Write request that performs a random change.
pub(crate) enum Step {
    Apply(Vec<Value>),
    Patch(String, Value),
    Delete(String),
}

/// Kind of random change: its name, the listings in which it must be visible, and the function that chooses
/// its parameters.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Fragments of location names. For each fragment, the change must alter at least one location whose name
    /// contains it.
    pub(crate) shows: &'static [&'static str],
    pub(crate) change: fn(&mut Dice) -> Step,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(objects) => write!(formatter, "apply {}", Value::from(objects.clone())),
            Self::Patch(path, patch) => write!(formatter, "patch {path} {patch}"),
            Self::Delete(path) => write!(formatter, "delete {path}"),
        }
    }
}

/// Fragments of the names of listings that contain rules, one per mode.
pub(crate) const RULES: &[&str] = &["node1 map inet tidegate ", "node2 iptables nat ", "node3 relay "];
/// Fragments of the names of listings that contain rules or ARP announcements.
const BY_ARP: &[&str] =
    &["node1 map inet tidegate ", "node2 iptables nat ", "node3 relay ", "announced", "records"];
/// Fragments of the names of listings that contain rules or routes learned by a router.
const BY_BGP: &[&str] =
    &["node1 map inet tidegate ", "node2 iptables nat ", "node3 relay ", "router routes", "told"];

/// Services backed by Workloads labeled `web`.
const WEB: [&str; 4] = ["plain", "near", "far", "sticky"];
const ALL_WEB: [&str; 4] = ["web-1", "web-2", "web-3", "web-4"];

pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "a new Service", shows: RULES, change: |dice| new(dice, json!({})) },
    Kind {
        name: "a new Service of both families",
        shows: RULES,
        change: |dice| new(dice, json!({"ipFamilyPolicy": "RequireDualStack"})),
    },
    Kind {
        name: "a new Service with a node port",
        shows: RULES,
        change: |dice| new(dice, json!({"type": "NodePort"})),
    },
    Kind {
        name: "a new Service with an address by ARP",
        shows: BY_ARP,
        change: |dice| new(dice, json!({"type": "LoadBalancer", "loadBalancer": {"pool": "lan"}})),
    },
    Kind {
        name: "a new Service with an address by BGP",
        shows: BY_BGP,
        change: |dice| new(dice, json!({"type": "LoadBalancer", "loadBalancer": {"pool": "routed"}})),
    },
    Kind {
        name: "a new Service with an external address",
        shows: RULES,
        change: |dice| new(dice, json!({"externalIPs": ["203.0.113.30"]})),
    },
    Kind {
        name: "a Service is removed",
        shows: RULES,
        change: |dice| Step::Delete(service(dice.one_of(&["plain", "dual", "sticky", "outside", "manual"]))),
    },
    Kind {
        name: "a Service with an address by ARP is removed",
        shows: BY_ARP,
        change: |dice| Step::Delete(service(dice.one_of(&["near", "near-local"]))),
    },
    Kind {
        name: "a Service with an address by BGP is removed",
        shows: BY_BGP,
        change: |dice| Step::Delete(service(dice.one_of(&["far", "far-local"]))),
    },
    Kind {
        name: "other ports",
        shows: RULES,
        change: |dice| {
            let port = 1000 + dice.roll(1000);
            let ports = json!([
                {"name": "web", "port": port, "targetPort": 8080}, {"name": "more", "port": port + 1, "targetPort": 8081},
            ]);
            patch(dice.one_of(&["dual", "sticky", "near", "far-local", "outside"]), json!({"ports": ports}))
        },
    },
    Kind {
        name: "the endpoints listen elsewhere",
        shows: RULES,
        change: |dice| {
            let target = 9000 + dice.roll(1000);
            let ports = json!([{"name": "web", "port": 80, "targetPort": target}]);
            patch(dice.one_of(&["dual", "sticky", "near-local", "far", "outside"]), json!({"ports": ports}))
        },
    },
    Kind {
        name: "another node port",
        shows: RULES,
        change: |dice| {
            let ports = json!([
                {"name": "web", "port": 80, "targetPort": 8080, "nodePort": 31_000 + dice.roll(1000)},
            ]);
            patch(dice.one_of(&["dual", "near", "far"]), json!({"ports": ports}))
        },
    },
    Kind {
        name: "external traffic stays on the node",
        shows: &["node1 map inet tidegate ", "node2 iptables nat "],
        change: |dice| {
            patch(dice.one_of(&["dual", "near", "far", "outside"]), json!({"externalTrafficPolicy": "Local"}))
        },
    },
    Kind {
        name: "internal traffic stays on the node",
        shows: RULES,
        change: |dice| patch(dice.one_of(&WEB), json!({"internalTrafficPolicy": "Local"})),
    },
    Kind {
        name: "source ranges",
        shows: &["node1 ", "node2 iptables ", "node3 "],
        change: |dice| {
            let ranges = json!([format!("198.51.{}.0/24", dice.roll(250)), "192.0.2.0/25"]);
            patch(dice.one_of(&["near", "far"]), json!({"loadBalancerSourceRanges": ranges}))
        },
    },
    Kind {
        name: "affinity",
        shows: RULES,
        change: |dice| {
            patch(dice.one_of(&["plain", "dual", "near", "far"]), json!({"sessionAffinity": "ClientIP"}))
        },
    },
    Kind {
        name: "an address by ARP is given up",
        shows: BY_ARP,
        change: |dice| {
            patch(
                dice.one_of(&["near", "near-local"]),
                json!({"type": "ClusterIP", "loadBalancer": null, "externalTrafficPolicy": null}),
            )
        },
    },
    Kind {
        name: "an address by ARP becomes one by BGP",
        shows: &[
            "node1 map inet tidegate ",
            "node2 iptables nat ",
            "node3 relay ",
            "announced",
            "router routes",
        ],
        change: |dice| {
            patch(dice.one_of(&["near", "near-local"]), json!({"loadBalancer": {"pool": "routed"}}))
        },
    },
    Kind {
        name: "a Service is disabled",
        shows: RULES,
        change: |dice| patch(dice.one_of(&["plain", "dual", "sticky"]), json!({"disabled": true})),
    },
    Kind {
        name: "a Workload is not ready",
        shows: RULES,
        change: |dice| Step::Patch(of_workload(dice.one_of(&ALL_WEB)), json!({"spec": {"ready": false}})),
    },
    Kind {
        name: "a Workload is removed",
        shows: RULES,
        change: |dice| Step::Delete(of_workload(dice.one_of(&ALL_WEB))),
    },
    Kind {
        name: "a Workload comes",
        shows: RULES,
        change: |dice| {
            let node = 1 + u8::try_from(dice.roll(3)).unwrap();
            Step::Apply(vec![workload("web-9", node, 90 + node, "web")])
        },
    },
    Kind {
        name: "a Workload moves",
        shows: RULES,
        change: |dice| {
            let name = dice.one_of(&ALL_WEB);
            Step::Apply(vec![workload(name, 3, 100, "web")])
        },
    },
    Kind {
        name: "the last endpoint of a node goes",
        shows: &["node1 map inet tidegate ", "announced", "router routes"],
        change: |_| Step::Delete(of_workload("api-2")),
    },
    Kind {
        name: "a Workload drains",
        shows: RULES,
        change: |dice| maintenance(&of_workload(dice.one_of(&ALL_WEB)), "Drain"),
    },
    Kind {
        name: "weights",
        shows: RULES,
        change: |dice| {
            let weight = 2 + dice.roll(5);
            Step::Apply(vec![endpoints(
                "manual",
                &[("10.1.1.31", weight), ("10.1.2.32", 1), ("10.1.3.33", 1)],
            )])
        },
    },
    Kind {
        name: "other endpoints",
        shows: RULES,
        change: |dice| {
            let address = format!("10.1.{}.77", 1 + dice.roll(3));
            Step::Apply(vec![endpoints("manual", &[("10.1.1.31", 1), (&address, 2)])])
        },
    },
    Kind {
        name: "all endpoints go",
        shows: RULES,
        change: |_| Step::Delete("namespaces/default/endpointsets/manual".to_owned()),
    },
    Kind {
        name: "a pool has other addresses",
        shows: BY_ARP,
        change: |dice| {
            let addresses = json!([format!("172.17.8.{}-172.17.8.249", 230 + dice.roll(10))]);
            let spec = json!({"addresses": addresses, "autoAssign": false, "quarantineSeconds": 0});
            Step::Apply(vec![object("AddressPool", "lan", spec)])
        },
    },
    Kind {
        name: "nobody announces by ARP",
        shows: &["announced", "records"],
        change: |_| Step::Delete("advertisements/lan".to_owned()),
    },
    Kind {
        name: "nobody announces by BGP",
        shows: &["router routes", "told"],
        change: |_| Step::Delete("advertisements/routed".to_owned()),
    },
    Kind {
        name: "routes have other attributes",
        shows: &["told"],
        change: |dice| {
            let communities = json!([format!("64512:{}", dice.roll(1000))]);
            let spec = json!({"communities": communities, "med": 1 + dice.roll(100)});
            Step::Patch("advertisements/routed".to_owned(), json!({ "spec": spec }))
        },
    },
    Kind {
        name: "a peer is removed",
        shows: &["router routes", "told"],
        change: |_| Step::Delete("bgppeers/router".to_owned()),
    },
    Kind {
        name: "a node announces nothing",
        shows: &["router routes", "announced", "records"],
        change: |dice| Step::Patch(node(dice), json!({"spec": {"unschedulable": true}})),
    },
    Kind {
        name: "a node drains",
        shows: &["node1 map inet tidegate ", "node2 iptables nat ", "node3 relay ", "router routes"],
        change: |dice| maintenance(&node(dice), "Drain"),
    },
    Kind {
        name: "every source is masqueraded",
        shows: &["node1 "],
        change: |_| {
            Step::Patch("nodes/node1".to_owned(), json!({"spec": {"proxy": {"masqueradeAll": true}}}))
        },
    },
    Kind {
        name: "several objects at once",
        shows: BY_ARP,
        change: |dice| {
            let port = 2000 + dice.roll(1000);
            let spec = json!({"selector": {"app": "api"}, "ports": [{"name": "web", "port": port}]});
            let near = json!({
                "type": "LoadBalancer", "selector": {"app": "api"}, "loadBalancer": {"pool": "lan"},
                "ports": [{"name": "web", "port": port, "targetPort": 8080}],
            });
            Step::Apply(vec![
                object("Service", "plain", spec),
                object("Service", "new", near),
                workload("api-1", 3, 101, "api"),
            ])
        },
    },
];

fn new(dice: &mut Dice, spec: Value) -> Step {
    let mut whole = json!({
        "selector": {"app": dice.one_of(&["web", "api"])},
        "ports": [{"name": "web", "port": 1 + dice.roll(1000), "targetPort": 8080}],
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    Step::Apply(vec![object("Service", "new", whole)])
}

fn patch(name: &str, spec: Value) -> Step {
    Step::Patch(service(name), json!({ "spec": spec }))
}

fn maintenance(path: &str, mode: &str) -> Step {
    Step::Patch(path.to_owned(), json!({"spec": {"maintenance": {"mode": mode, "reason": "a test"}}}))
}

fn service(name: &str) -> String {
    format!("namespaces/default/services/{name}")
}

fn of_workload(name: &str) -> String {
    format!("namespaces/default/workloads/{name}")
}

fn node(dice: &mut Dice) -> String {
    format!("nodes/{}", dice.one_of(&["node1", "node2", "node3"]))
}
