//! Export of Tidegate objects, and reimport. Inputs and results are text files next to this test;
//! `UPDATE_GOLDEN=1 cargo test -p translate --test it export::` rewrites the results.

use std::{collections::BTreeSet, fs, path::PathBuf};

use model::{
    admission::decode::{Expect, decode},
    kinds::resource::Object,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use translate::{
    Fidelity, Source,
    export::{ExportResult, Target, export},
    import,
    parse::{Language, objects},
};

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn check(target: Target) -> ExportResult {
    let bytes = fs::read(directory("export/everything.yaml")).unwrap();
    let exported = export(target, &objects(Language::Yaml, &bytes).unwrap());
    let documents: Vec<String> =
        exported.documents.iter().map(|document| serde_saphyr::to_string(document).unwrap()).collect();
    let actual = format!("{}\n# Report\n{}", documents.join("---\n"), exported.report.text());
    let path = directory("golden").join(format!("export_{target}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{} differs; UPDATE_GOLDEN=1 rewrites it", path.display());
    exported
}

/// Every setting of a Service and an EndpointSet is exported to Kubernetes, or has a report line that names
/// it as unsupported.
#[test]
fn services_are_said_in_the_words_of_kubernetes_and_what_cannot_be_said_is_named() {
    let text = check(Target::Kubernetes).report.text();
    for lost in ["spec.scheduler", "spec.healthCheck", "spec.disabled: left out", "spec.ports[1]: left out"] {
        assert!(text.contains(lost), "{lost}: {text}");
    }
}

/// Exported MetalLB resources do not announce more addresses or connect to more peers than the exported
/// pools, advertisements, peers and profiles.
#[test]
fn pools_and_routers_are_said_in_the_words_of_metallb_and_no_restriction_is_lost() {
    let exported = check(Target::Metallb);
    let names: BTreeSet<&str> =
        exported.documents.iter().map(|document| document["metadata"]["name"].as_str().unwrap()).collect();
    for left_out in ["extended", "off", "crowd", "no-as"] {
        assert!(!names.contains(left_out), "{left_out} would be announced, or tried, where it was not");
    }
}

/// Decodes an object like the API does.
fn read(value: &Value) -> Object {
    decode(value, &Expect::default()).unwrap_or_else(|violations| panic!("{value:#}: {violations:?}"))
}

/// Exports objects to the format `target`, imports the result, and returns the imported objects.
fn there_and_back(target: Target, objects: &[Value]) -> Vec<Object> {
    let exported = export(target, objects);
    assert_eq!(exported.report.count(Fidelity::Ignored), 0, "{}", exported.report.text());
    let yaml: Vec<String> =
        exported.documents.iter().map(|document| serde_saphyr::to_string(document).unwrap()).collect();
    let source = Source { name: "exported".to_owned(), bytes: yaml.join("---\n").into_bytes() };
    let imported = import(&[source], None).unwrap();
    assert_eq!(imported.report.count(Fidelity::Ignored), 0, "{}", imported.report.text());
    imported.objects.iter().map(read).collect()
}

fn same(target: Target, objects: &[Value]) {
    let mut before: Vec<Object> = objects.iter().map(read).collect();
    let mut behind = there_and_back(target, objects);
    before.sort_by_key(Object::key);
    behind.sort_by_key(Object::key);
    assert_eq!(behind, before);
}

fn object(kind: &str, name: &str, spec: Map<String, Value>) -> Value {
    let namespace = matches!(kind, "Service" | "EndpointSet").then_some("shop");
    let mut metadata = json!({ "name": name, "labels": { "tier": "front" } });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({ "apiVersion": "tidegate/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// Returns a strategy that generates every subset of these fields.
fn some_of(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(key, value)| {
            proptest::option::of(value).prop_map(move |value| value.map(|value| (key.to_owned(), value)))
        })
        .collect();
    fields.prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn one_of(values: &[Value]) -> BoxedStrategy<Value> {
    proptest::sample::select(values.to_vec()).boxed()
}

fn service() -> impl Strategy<Value = Value> {
    let address = (1_u8..=250).prop_map(
        |last| json!({ "addresses": [format!("192.0.2.{last}")], "pool": "lan", "sharingKey": "k" }),
    );
    let ports = proptest::collection::btree_map(
        1_u16..=65_535,
        one_of(&[json!(8080), json!("http"), Value::Null]),
        1..5,
    );
    let ports = ports.prop_map(|ports| {
        let port = |(port, target): (u16, Value)| {
            let mut made = json!({ "name": format!("p{port}"), "port": port, "protocol": "UDP" });
            if !target.is_null() {
                made["targetPort"] = target;
            }
            made
        };
        json!(ports.into_iter().map(port).collect::<Vec<_>>())
    });
    let optional = some_of(vec![
        ("loadBalancer", address.boxed()),
        ("ipFamilyPolicy", one_of(&[json!("SingleStack"), json!("PreferDualStack")])),
        (
            "loadBalancerSourceRanges",
            one_of(&[json!(["198.51.100.0/24"]), json!(["10.0.0.0/8", "2001:db8::/32"])]),
        ),
        ("externalIPs", one_of(&[json!(["203.0.113.7"])])),
        ("allocateLoadBalancerNodePorts", one_of(&[json!(false), json!(true)])),
        ("trafficDistribution", one_of(&[json!("PreferClose"), json!("PreferSameNode")])),
        ("publishNotReadyAddresses", one_of(&[json!(true)])),
        ("internalTrafficPolicy", one_of(&[json!("Local")])),
        ("externalTrafficPolicy", one_of(&[json!("Local")])),
        ("selector", one_of(&[json!({ "app": "nginx" })])),
    ]);
    (optional, ports, any::<bool>()).prop_map(|(mut spec, ports, sticky)| {
        spec.insert("type".to_owned(), json!("LoadBalancer"));
        spec.insert("ports".to_owned(), ports);
        // Other scopes are approximated.
        if spec.contains_key("loadBalancerSourceRanges") {
            spec.insert("sourceRangesScope".to_owned(), json!("LoadBalancerOnly"));
        }
        if sticky {
            spec.insert("sessionAffinity".to_owned(), json!("ClientIP"));
            spec.insert("sessionAffinityConfig".to_owned(), json!({ "clientIP": { "timeoutSeconds": 77 } }));
        }
        object("Service", "web", spec)
    })
}

fn endpoint_set() -> impl Strategy<Value = Value> {
    let endpoint = (any::<[bool; 3]>(), proptest::option::of(1_u8..=3)).prop_map(
        |([ready, serving, terminating], node)| {
            let conditions = json!({ "ready": ready, "serving": serving, "terminating": terminating });
            let mut endpoint = json!({ "conditions": conditions });
            if let Some(node) = node {
                endpoint["node"] = json!(format!("node-{node}"));
                endpoint["zone"] = json!(format!("rack-{node}"));
            }
            endpoint
        },
    );
    proptest::collection::vec(endpoint, 0..20).prop_map(|mut endpoints| {
        for (number, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint["address"] = json!(format!("10.1.13.{}", number + 1));
        }
        let ports = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
        let spec = json!({ "service": "web", "ports": ports, "endpoints": endpoints });
        object("EndpointSet", "web-1", spec.as_object().cloned().unwrap())
    })
}

fn selectors() -> BoxedStrategy<Value> {
    one_of(&[
        json!([{ "matchLabels": { "rack": "a" } }]),
        json!([{ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["front", "back"] }] }, {}]),
    ])
}

fn pool() -> impl Strategy<Value = Value> {
    let ranges = one_of(&[
        json!(["192.0.2.0/28"]),
        json!(["198.51.100.10-198.51.100.20", "2001:db8::/120"]),
        json!(["203.0.113.9/32"]),
    ]);
    let optional = some_of(vec![
        ("autoAssign", one_of(&[json!(false), json!(true)])),
        ("avoidBuggyIPs", one_of(&[json!(false), json!(true)])),
        ("priority", (1_u32..100).prop_map(|priority| json!(priority)).boxed()),
        ("namespaces", one_of(&[json!(["shop"]), json!(["back", "front"])])),
        ("serviceSelectors", selectors()),
    ]);
    (optional, ranges).prop_map(|(mut spec, ranges)| {
        spec.insert("addresses".to_owned(), ranges);
        object("AddressPool", "lan", spec)
    })
}

fn advertisements() -> impl Strategy<Value = Vec<Value>> {
    let both = || {
        vec![
            ("addressPools", one_of(&[json!(["lan"])])),
            ("serviceSelectors", selectors()),
            ("nodeSelectors", selectors()),
        ]
    };
    let (mut of_l2, mut of_bgp) = (both(), both());
    of_l2.push(("interfaces", one_of(&[json!(["eth0"]), json!(["bond0", "eth1"])])));
    of_l2.push((
        "preferredNodeSelectors",
        one_of(&[json!([{ "weight": 5, "preference": { "matchLabels": { "rack": "b" } } }])]),
    ));
    of_bgp.push(("peers", one_of(&[json!(["tor"])])));
    of_bgp.push(("aggregationLength", (8_u8..=32).prop_map(|length| json!(length)).boxed()));
    of_bgp.push(("aggregationLengthV6", (64_u8..=128).prop_map(|length| json!(length)).boxed()));
    of_bgp.push(("communities", one_of(&[json!(["65000:100", "no-export"]), json!(["large:65000:1:2"])])));
    let named = |kind: &'static str, name: &'static str| {
        move |mut spec: Map<String, Value>| {
            spec.insert("type".to_owned(), json!(kind));
            let mut object = object("Advertisement", name, spec);
            // MetalLB advertisements have labels without a meaning, which are dropped.
            object["metadata"].as_object_mut().unwrap().remove("labels");
            object
        }
    };
    (some_of(of_l2).prop_map(named("L2", "near")), some_of(of_bgp).prop_map(named("BGP", "far")))
        .prop_map(|(near, far)| vec![near, far])
}

fn peer() -> impl Strategy<Value = Vec<Value>> {
    let optional = some_of(vec![
        ("peerPort", one_of(&[json!(1179)])),
        ("sourceAddress", one_of(&[json!("10.0.0.2")])),
        ("holdTime", (3_u16..600).prop_map(|seconds| json!(seconds)).boxed()),
        ("connectTime", (1_u16..600).prop_map(|seconds| json!(seconds)).boxed()),
        ("password", one_of(&[json!("not told")])),
        ("ebgpMultiHop", one_of(&[json!(true), json!(false)])),
        ("bfdProfile", one_of(&[json!("fast")])),
        ("gracefulRestart", one_of(&[json!({}), json!({ "restartTime": 120 })])),
        ("families", one_of(&[json!(["IPv4"])])),
        ("nodeSelectors", selectors()),
    ]);
    let profile = (10_u32..1000, 10_u32..1000, 2_u8..50, any::<bool>(), 1_u8..=254).prop_map(|(receive, transmit, multiplier, passive, ttl)| {
        json!({ "apiVersion": "tidegate/v1", "kind": "BfdProfile", "metadata": { "name": "fast" }, "spec": {
            "receiveInterval": receive, "transmitInterval": transmit, "detectMultiplier": multiplier, "passiveMode": passive,
            "minimumTtl": ttl } })
    });
    (optional, one_of(&[json!(65001), json!("external")]), profile).prop_map(|(mut spec, asn, profile)| {
        spec.extend([
            ("peerAddress".to_owned(), json!("10.0.0.1")),
            ("localASN".to_owned(), json!(65000)),
            ("peerASN".to_owned(), asn),
        ]);
        let mut peer = object("BgpPeer", "tor", spec);
        peer["metadata"].as_object_mut().unwrap().remove("labels");
        vec![profile, peer]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn services_come_back_the_same_from_kubernetes(service in service()) {
        same(Target::Kubernetes, &[service]);
    }

    #[test]
    fn endpoints_come_back_the_same_from_kubernetes(set in endpoint_set()) {
        same(Target::Kubernetes, &[set]);
    }

    #[test]
    fn pools_advertisements_and_peers_come_back_the_same_from_metallb(
        pool in pool(), advertisements in advertisements(), peer in peer()
    ) {
        same(Target::Metallb, &[vec![pool], advertisements, peer].concat());
    }
}
