//! Decoders of input from outside never panic: they return for any input, and accepted values can be encoded
//! again.

use model::{
    admission::decode::{Expect, decode},
    kinds::{
        resource::{Kind, Object, ObjectKey, ServiceKey},
        selector::LabelSelector,
    },
    primitives::{
        name::{Label, Name},
        quantity::Position,
    },
    wire::{feed::Frame, report::Report},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Generates JSON with field names and values close to valid ones, so that random input passes the first checks.
fn near_json() -> impl Strategy<Value = Value> {
    let words = vec![
        "80",
        "http",
        "TCP",
        "UDP",
        "None",
        "ClusterIP",
        "NodePort",
        "10.96.0.1",
        "10.0.0.0/8",
        "fd00::1",
        "IPv4",
        "web",
        "Local",
        "ClientIP",
        "ExternalName",
        "Http",
        "BGP",
        "internal",
        "65000:100",
        "eth0",
        "",
        "\u{0}",
        "a/b",
        "~1",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(0_i64), Just(80), Just(-1), Just(65536), any::<i64>()].prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words).prop_map(Value::from),
    ];
    let keys = vec![
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "labels",
        "uid",
        "resourceVersion",
        "type",
        "ports",
        "port",
        "targetPort",
        "nodePort",
        "protocol",
        "selector",
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "externalIPs",
        "sessionAffinityConfig",
        "clientIP",
        "healthCheck",
        "http",
        "addresses",
        "endpoints",
        "address",
        "service",
        "workloadCIDRs",
        "conditions",
        "loadBalancer",
        "peerAddress",
        "peerASN",
        "interface",
        "families",
        "communities",
        "med",
        "peers",
        "bgp",
        "holdTime",
        "gracefulRestart",
        "detectMultiplier",
        "bogus",
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let object = prop::collection::btree_map(prop::sample::select(keys.clone()), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

fn near_object() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec![
        "Service",
        "EndpointSet",
        "Workload",
        "Node",
        "AddressPool",
        "Advertisement",
        "BgpPeer",
        "BfdProfile",
        "DnsZone",
        "Certificate",
        "Gateway",
        "HttpRoute",
        "TlsRoute",
    ]);
    (kinds, near_json(), near_json()).prop_map(|(kind, spec, metadata)| {
        let mut object = json!({ "kind": kind, "metadata": { "name": "web" }, "spec": spec });
        if let (Value::Object(extra), Some(metadata)) = (metadata, object["metadata"].as_object_mut()) {
            metadata.extend(extra);
        }
        object
    })
}

fn shown_again(object: &Object) -> Result<Object, Vec<model::primitives::violation::Violation>> {
    decode(&object.to_json(), &Expect::default())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_decoded_or_refused_with_violations(value in prop_oneof![near_json(), near_object()], kind in prop::option::of(0_usize..9)) {
        let expect = Expect { kind: kind.map(|index| Kind::ALL[index]), ..Expect::default() };
        match decode(&value, &expect) {
            Ok(object) => prop_assert_eq!(shown_again(&object), Ok(object)),
            Err(violations) => {
                prop_assert!(!violations.is_empty());
                for violation in violations {
                    prop_assert!(violation.pointer.is_empty() || violation.pointer.starts_with('/'));
                    prop_assert!(!violation.message.is_empty());
                }
            }
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        let _ = (Name::parse(&text), Label::parse(&text), text.parse::<Position>(), ServiceKey::try_from(text.clone()));
        let _ = (ObjectKey::parse_store_key(&text), serde_json::from_str::<Frame>(&text), serde_json::from_str::<Report>(&text));
        if let Ok(selector) = text.parse::<LabelSelector>() {
            let shown = selector.to_string();
            prop_assert_eq!(shown.parse::<LabelSelector>().unwrap(), selector);
        }
    }
}
