//! Random NetworkPolicies of a cluster: the decisions of Tidegate on the translated objects are those of an evaluator that was
//! written from the specification of Kubernetes and works on the objects of the cluster.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use model::{
    cluster::snapshot::Snapshot,
    policy::{
        explain::{ConnectionEnd, PolicyQuestion, explain_policy},
        index::PolicyIndex,
    },
    primitives::quantity::{Port, Revision},
};
use serde_json::{Value, json};
use sync::kubernetes::{
    resource::Resource,
    state::{Change, ClusterState},
    translate::{Mode, Settings},
};

use crate::kubernetes_translate::resource;

/// Number of random clusters.
const CLUSTERS: u64 = 60;
const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["web", "api", "db"];
/// Destination ports of the connections; the pods have names for the first three.
const PORTS: [(&str, u16); 5] = [("TCP", 8080), ("TCP", 8081), ("UDP", 53), ("UDP", 8080), ("TCP", 9005)];

/// Pseudo-random numbers (an LCG with the multiplier of MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns true in one of `in_all` cases.
    fn one(&mut self, in_all: usize) -> bool {
        self.below(in_all) == 0
    }

    fn list(&mut self, max: usize, mut entry: impl FnMut(&mut Self) -> Value) -> Value {
        (0..self.below(max + 1)).map(|_| entry(self)).collect::<Vec<_>>().into()
    }
}

fn namespace(random: &mut Random, name: &str) -> Value {
    let mut labels = json!({ "kubernetes.io/metadata.name": name });
    if !random.one(3) {
        labels["team"] = json!(random.of(&["x", "y"]));
    }
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

fn pod(random: &mut Random, namespace: &str, app: &str, number: usize) -> Value {
    let mut labels = json!({ "app": app });
    if random.one(2) {
        labels["tier"] = json!(random.of(&["front", "back"]));
    }
    let (http, other) = if random.one(3) { (8081, 8080) } else { (8080, 8081) };
    let ports = json!([
        { "name": "http", "containerPort": http }, { "name": "other", "containerPort": other },
        { "name": "dns", "containerPort": 53, "protocol": "UDP" },
    ]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": app, "namespace": namespace, "labels": labels },
        "spec": { "nodeName": "n1", "containers": [{ "name": "x", "ports": ports }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": format!("10.0.{}.{}", number / 2, number) }] },
    })
}

fn selector(random: &mut Random, keys: &[(&str, &[&str])]) -> Value {
    let mut selector = json!({});
    if random.one(2) {
        let (key, values) = random.of(keys);
        selector["matchLabels"] = json!({ key: random.of(values) });
    }
    if random.one(3) {
        let (key, values) = random.of(keys);
        let operator = random.of(&["In", "NotIn", "Exists", "DoesNotExist"]);
        let mut expression = json!({ "key": key, "operator": operator });
        if operator.ends_with("In") {
            expression["values"] = json!([random.of(values)]);
        }
        selector["matchExpressions"] = json!([expression]);
    }
    selector
}

fn pods(random: &mut Random) -> Value {
    selector(random, &[("app", &APPS), ("tier", &["front", "back"])])
}

fn peer(random: &mut Random) -> Value {
    if random.one(4) {
        let (cidr, except) = random.of(&[
            ("10.0.0.0/8", "10.0.2.0/24"),
            ("0.0.0.0/0", "10.0.0.0/16"),
            ("203.0.113.9/24", "203.0.113.0/25"),
        ]);
        let except = if random.one(2) { json!([except]) } else { json!([]) };
        return json!({ "ipBlock": { "cidr": cidr, "except": except } });
    }
    let mut peer = json!({});
    let kind = random.below(3);
    if kind != 0 {
        let labels: [(&str, &[&str]); 2] =
            [("team", &["x", "y"]), ("kubernetes.io/metadata.name", &["a", "b", "d"])];
        peer["namespaceSelector"] = selector(random, &labels);
    }
    if kind != 1 {
        peer["podSelector"] = pods(random);
    }
    peer
}

fn port(random: &mut Random) -> Value {
    match random.below(5) {
        0 => json!({ "port": "http" }),
        1 => json!({ "port": "dns", "protocol": random.of(&["UDP", "TCP"]) }),
        2 => json!({ "port": 8080, "protocol": random.of(&["UDP", "TCP"]) }),
        3 => json!({ "port": 9000, "endPort": 9010 }),
        _ => json!({ "protocol": random.of(&["UDP", "TCP"]) }),
    }
}

fn policy(random: &mut Random, number: usize) -> Value {
    let mut spec = json!({ "podSelector": pods(random) });
    for (field, peers) in [("ingress", "from"), ("egress", "to")] {
        if random.one(2) {
            spec[field] = random
                .list(2, |random| json!({ (peers): random.list(2, peer), "ports": random.list(2, port) }));
        }
    }
    if random.one(2) {
        spec["policyTypes"] =
            random.of(&[&["Ingress"][..], &["Egress"], &["Ingress", "Egress"]]).iter().copied().collect();
    }
    let namespace = random.of(&NAMESPACES);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": format!("p{number}"), "namespace": namespace }, "spec": spec,
    })
}

/// Objects of a cluster, and the decisions of Kubernetes on connections between its pods and other addresses.
struct Cluster {
    namespaces: Vec<Value>,
    pods: Vec<Value>,
    policies: Vec<Value>,
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = list(selector, "matchExpressions").iter();
    equal.into_iter().all(|(key, value)| labels[key] == *value)
        && expressions.all(|one| {
            let label = &labels[one["key"].as_str().unwrap()];
            match one["operator"].as_str().unwrap() {
                "In" => list(one, "values").contains(label),
                "NotIn" => !list(one, "values").contains(label),
                "Exists" => !label.is_null(),
                _ => label.is_null(),
            }
        })
}

impl Cluster {
    fn pod(&self, address: IpAddr) -> Option<&Value> {
        self.pods.iter().find(|pod| pod["status"]["podIPs"][0]["ip"] == address.to_string())
    }

    fn accepts(&self, from: IpAddr, to: IpAddr, port: (&str, u16)) -> bool {
        from == to
            || self.direction("Egress", from, to, to, port) && self.direction("Ingress", to, from, to, port)
    }

    /// Decides on one direction of a connection of the pod with address `own`, if there is one, with another address.
    fn direction(&self, word: &str, own: IpAddr, other: IpAddr, to: IpAddr, port: (&str, u16)) -> bool {
        let Some(pod) = self.pod(own) else { return true };
        let (field, peers) = if word == "Ingress" { ("ingress", "from") } else { ("egress", "to") };
        let selecting: Vec<_> = self
            .policies
            .iter()
            .filter(|policy| {
                let spec = &policy["spec"];
                let default = word == "Ingress" || !list(spec, "egress").is_empty();
                let applies =
                    spec["policyTypes"].as_array().map_or(default, |types| types.contains(&json!(word)));
                applies
                    && policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
                    && matches(&spec["podSelector"], &pod["metadata"]["labels"])
            })
            .collect();
        let accepts = |policy: &&Value| {
            list(&policy["spec"], field).iter().any(|rule| {
                let (peers, ports) = (list(rule, peers), list(rule, "ports"));
                let is_peer = |peer: &Value| self.is_peer(&policy["metadata"]["namespace"], peer, other);
                // A named port is one of the destination, which an ipBlock of egress does not name.
                let is_port = |one: &Value, by_block: bool| {
                    !(by_block && word == "Egress" && one["port"].is_string()) && self.is_port(one, to, port)
                };
                let by = |by_block: bool| ports.is_empty() || ports.iter().any(|one| is_port(one, by_block));
                if peers.is_empty() {
                    return by(false);
                }
                peers.iter().any(|peer| is_peer(peer) && by(!peer["ipBlock"].is_null()))
            })
        };
        selecting.is_empty() || selecting.iter().any(accepts)
    }

    fn is_peer(&self, own: &Value, peer: &Value, address: IpAddr) -> bool {
        let contains =
            |network: &Value| network.as_str().unwrap().parse::<IpNet>().unwrap().contains(&address);
        if let Some(block) = peer.get("ipBlock") {
            return contains(&block["cidr"]) && !list(block, "except").iter().any(contains);
        }
        let Some(pod) = self.pod(address) else { return false };
        let of = &pod["metadata"]["namespace"];
        let is_there = match peer.get("namespaceSelector") {
            None => of == own,
            Some(selector) => self.namespaces.iter().any(|namespace| {
                namespace["metadata"]["name"] == *of && matches(selector, &namespace["metadata"]["labels"])
            }),
        };
        let selector = peer.get("podSelector");
        is_there && selector.is_none_or(|selector| matches(selector, &pod["metadata"]["labels"]))
    }

    fn is_port(&self, one: &Value, to: IpAddr, (protocol, number): (&str, u16)) -> bool {
        let number = u64::from(number);
        let is_name = |name: &str| {
            let ports = self.pod(to).map_or(&[][..], |pod| list(&pod["spec"]["containers"][0], "ports"));
            ports.iter().any(|served| {
                let of = served["protocol"].as_str().unwrap_or("TCP");
                served["name"] == name && of == protocol && served["containerPort"] == number
            })
        };
        let is_range = match (one["port"].as_str(), one["port"].as_u64()) {
            (Some(name), _) => is_name(name),
            (None, Some(first)) => (first..=one["endPort"].as_u64().unwrap_or(first)).contains(&number),
            (None, None) => true,
        };
        one["protocol"].as_str().unwrap_or("TCP") == protocol && is_range
    }

    /// Compares the decisions on all connections. Returns the numbers of accepted and dropped ones; with an isolated pod, only those of
    /// this pod, which may be dropped although the cluster accepts them.
    fn check(&self, state: &ClusterState, isolated: Option<IpAddr>) -> (usize, usize) {
        let objects = state.wanted().objects.into_iter().map(|(_, object)| Arc::new(object));
        let snapshot = Snapshot::from_objects(Revision(1), objects);
        let index = PolicyIndex::of(&snapshot);
        let pods = self.pods.iter().map(|pod| pod["status"]["podIPs"][0]["ip"].as_str().unwrap());
        let ends = pods.chain(["203.0.113.1", "203.0.113.200"]).map(|text| text.parse().unwrap());
        let ends: Vec<IpAddr> = ends.collect();
        let (mut accepted, mut dropped) = (0, 0);
        for (from, to) in ends.iter().flat_map(|from| ends.iter().map(move |to| (*from, *to))) {
            for port in PORTS {
                let protocol = serde_json::from_value(json!(port.0)).unwrap();
                let question = PolicyQuestion {
                    source: ConnectionEnd::Address(from),
                    destination: ConnectionEnd::Address(to),
                    port: Some((protocol, Port::new(port.1).unwrap())),
                };
                let found = explain_policy(&index, &snapshot, &question).unwrap();
                let expected = self.accepts(from, to, port);
                let is_exact = isolated.is_none_or(|isolated| ![from, to].contains(&isolated));
                assert!(
                    found.accepted == expected || (!is_exact && expected),
                    "{from} to {to} {port:?}\n{found:?}\npolicies: {:#?}\npods: {:#?}\nnamespaces: {:#?}",
                    self.policies,
                    self.pods,
                    self.namespaces
                );
                let is_counted = isolated.is_none() || (!is_exact && from != to);
                match found.accepted {
                    true => accepted += usize::from(is_counted),
                    false => dropped += usize::from(is_counted),
                }
            }
        }
        (accepted, dropped)
    }
}

fn random_cluster(random: &mut Random) -> Cluster {
    let namespaces = NAMESPACES.iter().map(|name| namespace(random, name)).collect();
    let mut pods = Vec::new();
    for (number, (namespace, app)) in
        NAMESPACES.iter().flat_map(|namespace| APPS.map(|app| (namespace, app))).enumerate()
    {
        pods.push(pod(random, namespace, app, number + 1));
    }
    let policies = (0..=random.below(4)).map(|number| policy(random, number)).collect();
    Cluster { namespaces, pods, policies }
}

fn state_of(cluster: &Cluster) -> ClusterState {
    let settings = Settings { cluster: None, mode: Mode::LoadBalancer, class: None };
    let mut state = ClusterState::new(settings, Resource::POLICY);
    for object in [&cluster.policies, &cluster.namespaces, &cluster.pods].into_iter().flatten() {
        state.apply(resource(object), Change::Put(object.clone()));
    }
    state
}

/// A pod whose labels cannot be translated accepts and makes no connection that the cluster drops. The decisions on connections of
/// other pods stay exact.
#[test]
fn a_pod_with_too_many_labels_is_never_less_restricted_than_in_kubernetes() {
    let (mut accepted, mut dropped) = (0, 0);
    for seed in 0..CLUSTERS {
        let mut random = Random(seed);
        let mut cluster = random_cluster(&mut random);
        let number = random.below(cluster.pods.len());
        let pod = &mut cluster.pods[number];
        for number in 0..100 {
            pod["metadata"]["labels"][format!("more-{number}")] = json!("x");
        }
        let isolated = pod["status"]["podIPs"][0]["ip"].as_str().unwrap().parse().unwrap();
        let (accepts, drops) = cluster.check(&state_of(&cluster), Some(isolated));
        accepted += accepts;
        dropped += drops;
    }
    assert!(accepted > 50 && dropped > 1_000, "{accepted} accepted, {dropped} dropped");
}

/// Policies and peers that exclude a label also exclude the pods whose labels could not be translated.
#[test]
fn selectors_that_exclude_a_label_do_not_match_a_pod_with_too_many_labels() {
    let policy = |name: &str, spec: Value| json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": name, "namespace": "a" }, "spec": spec });
    let others =
        json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web", "api"] }] });
    let no_more = json!({ "matchExpressions": [{ "key": "more-0", "operator": "DoesNotExist" }] });
    let api = json!({ "matchLabels": { "app": "api" } });
    let mut cluster = random_cluster(&mut Random(1));
    cluster.policies = vec![
        policy("deny", json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] })),
        policy("others-accept", json!({ "podSelector": others, "ingress": [{}] })),
        policy("all-connect", json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{}] })),
        policy("api", json!({ "podSelector": api, "ingress": [{ "from": [{ "podSelector": no_more }] }] })),
    ];
    let web = &mut cluster.pods[0];
    assert_eq!(
        (&web["metadata"]["namespace"], &web["metadata"]["labels"]["app"]),
        (&json!("a"), &json!("web"))
    );
    for number in 0..100 {
        web["metadata"]["labels"][format!("more-{number}")] = json!("x");
    }
    let isolated = web["status"]["podIPs"][0]["ip"].as_str().unwrap().parse().unwrap();
    let (accepted, dropped) = cluster.check(&state_of(&cluster), Some(isolated));
    // To all pods but itself and `api`, which has peers, and to the two other addresses. None to the pod.
    assert_eq!((accepted, dropped), (9 * PORTS.len(), 11 * PORTS.len()));
}

/// Also after labels of namespaces change.
#[test]
fn decisions_are_those_of_an_independent_evaluator_of_kubernetes() {
    let (mut accepted, mut dropped) = (0, 0);
    for seed in 0..CLUSTERS {
        let mut random = Random(seed);
        let mut cluster = random_cluster(&mut random);
        let mut state = state_of(&cluster);
        let mut count = |cluster: &Cluster, state: &ClusterState| {
            let (accepts, drops) = cluster.check(state, None);
            accepted += accepts;
            dropped += drops;
        };
        count(&cluster, &state);
        let number = random.below(NAMESPACES.len());
        cluster.namespaces[number] = namespace(&mut random, NAMESPACES[number]);
        state.apply(Resource::Namespace, Change::Put(cluster.namespaces[number].clone()));
        count(&cluster, &state);
    }
    // Neither answer is rare.
    assert!(accepted > 10_000 && dropped > 10_000, "{accepted} accepted, {dropped} dropped");
}
