//! TLS connections that TlsRoutes forward: the rows of the conformance tests of the Gateway API, precedence, weights, changes of
//! the state, validation, conditions and explanations. `gateway/src/proxy/tests/passthrough.rs` opens the same connections.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use model::{
    admission::decode::{Expect, decode},
    cluster::{change::ObjectChange, snapshot::Snapshot},
    http::{
        HttpOutcome, HttpState, RequestHead, RuleOutcome, TlsDecision, TlsProblem, explain_http, route_tls,
    },
    kinds::resource::{Kind, Object, ServiceKey},
    observed::rollup::{gateway_status, tls_route_status},
    primitives::{
        quantity::{Port, Revision},
        violation::ViolationCode,
    },
    views::overview::{Impact, http},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::Cluster;

const CASES: &str = include_str!("../http/tls_cases.json");

/// Creates the objects that all cases have, and a Certificate.
fn infrastructure() -> (Cluster, Value) {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let mut cluster = Cluster::new();
    let key = KeyPair::generate().unwrap();
    let names = ["tls.example.com", "www.example.com"].map(str::to_owned);
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let spec = json!({ "certificate": certificate.pem(), "privateKey": key.serialize_pem() });
    cluster.apply(&json!({ "kind": "Certificate", "metadata": { "name": "tls" }, "spec": spec })).unwrap();
    for object in cases["objects"].as_array().unwrap() {
        cluster.apply(object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
    }
    (cluster, cases)
}

/// Returns the TlsRoute of a case, whose backends have the form `SERVICE:PORT[=WEIGHT]`.
fn tls_route(name: &str, case: &Value) -> Value {
    let mut parent = json!({ "name": case["parent"] });
    if let Some(section) = case.get("section") {
        parent["sectionName"] = section.clone();
    }
    let backends = case["backends"].as_array().unwrap().iter().map(|text| {
        let (backend, weight) = text.as_str().unwrap().split_once('=').unwrap_or((text.as_str().unwrap(), "1"));
        let (name, port) = backend.split_once(':').unwrap();
        json!({ "name": name, "port": port.parse::<u16>().unwrap(), "weight": weight.parse::<u32>().unwrap() })
    });
    let backends: Vec<_> = backends.collect();
    let hostnames = case.get("hostnames").cloned().unwrap_or_else(|| json!([]));
    json!({
        "kind": "TlsRoute", "metadata": { "name": name },
        "spec": { "parentRefs": [parent], "hostnames": hostnames, "rules": [{ "backendRefs": backends }] },
    })
}

fn state(cluster: &Cluster) -> HttpState {
    HttpState::new(Arc::default(), cluster.snapshot.clone())
}

/// Returns the name of the backend of a connection, or the alert with which it is closed.
fn decide(state: &HttpState, port: u16, name: &str, pick: u64) -> String {
    match route_tls(state.table(), Port::new(port).unwrap(), name, pick) {
        Ok(TlsDecision::Serve { .. }) => "requests".to_owned(),
        Ok(TlsDecision::Forward { backend, .. }) => backend.service.name.to_string(),
        Err(TlsProblem::NoListener | TlsProblem::NoCertificate | TlsProblem::NoRoute) => {
            "unrecognized_name".to_owned()
        }
        Err(TlsProblem::NoBackend | TlsProblem::InvalidBackend | TlsProblem::NoEndpoints) => {
            "internal_error".to_owned()
        }
    }
}

/// F141: each row `PORT NAME` gets its backend or alert, and each route of the cases its conditions.
#[test]
fn f141_connections_get_the_decisions_of_the_table() {
    let (cluster, cases) = infrastructure();
    let mut failures = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let mut cluster =
            Cluster { snapshot: cluster.snapshot.clone(), config: cluster.config.clone(), ..cluster };
        for (number, one) in case["routes"].as_array().unwrap().iter().enumerate() {
            cluster.now += 1;
            cluster.apply(&tls_route(&format!("route-{number}"), one)).unwrap();
        }
        let state = state(&cluster);
        for row in case["rows"].as_array().unwrap() {
            let (text, expected) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
            let (port, name) = text.split_once(' ').unwrap_or((text, ""));
            let found = decide(&state, port.parse().unwrap(), name, 0);
            if found != expected {
                failures.push(format!("{}: {text}: {found}, not {expected}", case["name"]));
            }
        }
        for (name, expected) in case["status"].as_object().unwrap() {
            let route = cluster.get(&format!("tlsroutes/default/{name}"));
            let namespace = route.metadata.namespace.as_ref().unwrap();
            let status = tls_route_status(&cluster.snapshot, namespace, route.as_tls_route().unwrap());
            for word in expected.as_str().unwrap().split(' ') {
                let found = status
                    .conditions
                    .iter()
                    .any(|one| format!("{:?}={:?}", one.condition_type, one.reason) == word);
                if !found {
                    failures.push(format!("{}: {name}: {:?}, not {word}", case["name"], status.conditions));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Connections are shared by weight; of two routes with one host name the older one applies, whatever the names are.
#[test]
fn connections_are_shared_by_weight_and_the_oldest_route_applies() {
    let (mut cluster, _) = infrastructure();
    let backends = json!({ "parent": "any", "hostnames": ["a.example.com"],
        "backends": ["tls-backend:443=3", "tls-backend-2:443=1", "empty:443=0"] });
    cluster.apply(&tls_route("z", &backends)).unwrap();
    cluster.now += 1;
    let later = json!({ "parent": "any", "hostnames": ["a.example.com"], "backends": ["tcp-backend:8080"] });
    cluster.apply(&tls_route("a", &later)).unwrap();
    let state = state(&cluster);
    let found: Vec<_> = (0..4).map(|pick| decide(&state, 9004, "a.example.com", pick)).collect();
    assert_eq!(found, ["tls-backend", "tls-backend", "tls-backend", "tls-backend-2"]);
    let none = json!({ "parent": "any", "hostnames": ["b.example.com"], "backends": ["tls-backend:443=0"] });
    cluster.apply(&tls_route("none", &none)).unwrap();
    let state = self::state(&cluster);
    let problem = route_tls(state.table(), Port::new(9004).unwrap(), "b.example.com", 7).unwrap_err();
    assert_eq!(problem, TlsProblem::NoBackend);
}

/// A changed state has the table of its objects: after routes, endpoints and Gateways come, change and go.
#[test]
fn a_changed_state_has_the_table_of_its_objects() {
    let (mut cluster, _) = infrastructure();
    let mut state = state(&cluster);
    let route = |backend: &str, host: &str| {
        tls_route("r", &json!({ "parent": "any", "hostnames": [host], "backends": [backend] }))
    };
    let listener = json!({ "name": "tls", "port": 9004, "protocol": "TLS", "hostname": "*.com", "tls": { "mode": "Passthrough" } });
    let set = json!({ "service": "empty", "endpoints": [{ "address": "10.1.2.9" }] });
    let steps = [
        route("tls-backend:443", "abc.example.com"),
        route("empty:443", "abc.example.com"),
        json!({ "kind": "EndpointSet", "metadata": { "name": "empty" }, "spec": set }),
        route("tls-backend-2:443", "*.example.com"),
        json!({ "kind": "Gateway", "metadata": { "name": "any" }, "spec": { "listeners": [listener] } }),
    ];
    let expected = ["tls-backend", "internal_error", "empty", "tls-backend-2", "tls-backend-2"];
    for (step, expected) in steps.iter().zip(expected) {
        cluster.now += 1;
        cluster.apply(step).unwrap_or_else(|refusal| panic!("{step}: {refusal:?}"));
        let object = |snapshot: &Snapshot| {
            let kind = Kind::parse(step["kind"].as_str().unwrap()).unwrap();
            let is_named = |one: &&Arc<Object>| one.metadata.name.as_str() == step["metadata"]["name"];
            snapshot.list(kind, None, None).find(is_named).cloned().unwrap()
        };
        let revision = Revision(cluster.snapshot.revision().0);
        state = state.update(revision, [ObjectChange::Put(object(&cluster.snapshot))]);
        assert_eq!(decide(&state, 9004, "abc.example.com", 0), expected, "{step}");
        assert_eq!(state.table(), self::state(&cluster).table(), "{step}");
    }
    let gone = cluster.delete("tlsroutes/default/r").unwrap();
    let key = gone.outcomes[0].object.key();
    state = state.update(cluster.snapshot.revision(), [ObjectChange::Removed(key)]);
    assert_eq!(decide(&state, 9004, "abc.example.com", 0), "unrecognized_name");
    assert_eq!(state.table().tls_backends, self::state(&cluster).table().tls_backends);
}

/// Listeners and routes with contradictions are refused with the field and the remedy.
#[test]
fn contradictions_are_refused() {
    let refused = |kind: &str, spec: Value| {
        let object = json!({ "kind": kind, "metadata": { "name": "x" }, "spec": spec });
        let found = decode(&object, &Expect::default()).unwrap_err();
        found.into_iter().map(|one| (one.pointer, one.code)).collect::<Vec<_>>()
    };
    let listener = |protocol: &str, tls: Value| {
        let listener = json!({ "name": "a", "port": 443, "protocol": protocol, "tls": tls });
        refused("Gateway", json!({ "listeners": [listener] }))
    };
    let at = |field: &str, code| vec![(format!("/spec/listeners/0/tls{field}"), code)];
    assert_eq!(listener("TLS", Value::Null), at("", ViolationCode::Required));
    assert_eq!(listener("TLS", json!({})), at("/certificateRefs", ViolationCode::Required));
    let refs = json!([{ "name": "www" }]);
    let both = json!({ "mode": "Passthrough", "certificateRefs": refs });
    assert_eq!(listener("TLS", both), at("/certificateRefs", ViolationCode::Conflict));
    assert_eq!(listener("HTTPS", json!({ "mode": "Passthrough" })), at("/mode", ViolationCode::Conflict));
    let http = json!({ "name": "a", "port": 443, "protocol": "HTTP" });
    let tls = json!({ "name": "b", "port": 443, "protocol": "TLS", "hostname": "a.example.org", "tls": { "mode": "Passthrough" } });
    let found = refused("Gateway", json!({ "listeners": [http, tls] }));
    assert_eq!(found, [("/spec/listeners/1/protocol".to_owned(), ViolationCode::Conflict)]);

    let parents = json!([{ "name": "edge" }]);
    let backend = json!({ "name": "web", "port": 443 });
    let route = |rules: Value| refused("TlsRoute", json!({ "parentRefs": parents, "rules": rules }));
    let at = |field: &str, code| vec![(format!("/spec/rules{field}"), code)];
    assert_eq!(route(json!([])), at("", ViolationCode::Required));
    assert_eq!(route(json!([{ "backendRefs": [] }])), at("/0/backendRefs", ViolationCode::Required));
    let two = json!([{ "backendRefs": [backend] }, { "backendRefs": [backend] }]);
    assert_eq!(route(two), at("", ViolationCode::TooLong));
    let heavy = json!([{ "backendRefs": [{ "name": "web", "port": 443, "weight": 1_000_001 }] }]);
    assert_eq!(route(heavy), at("/0/backendRefs/0/weight", ViolationCode::Invalid));
    let found = refused("TlsRoute", json!({ "parentRefs": [], "rules": [{ "backendRefs": [backend] }] }));
    assert_eq!(found, [("/spec/parentRefs".to_owned(), ViolationCode::Required)]);
}

/// A listener of a later Gateway that uses the port or host name in another way is not served, and says so. Connections and
/// requests for the host name of a listener with TLS routes are separate.
#[test]
fn listeners_with_another_use_of_a_host_name_are_not_served() {
    let (mut cluster, _) = infrastructure();
    let tls = json!({ "certificateRefs": [{ "name": "tls" }] });
    let listener = json!({ "name": "tls", "port": 9004, "protocol": "HTTPS", "tls": tls });
    let other = json!({ "name": "www", "port": 9004, "protocol": "HTTPS", "hostname": "www.example.com", "tls": tls });
    let plain = json!({ "name": "plain", "port": 9001, "protocol": "HTTP" });
    let spec = json!({ "listeners": [listener, other, plain] });
    cluster.apply(&json!({ "kind": "Gateway", "metadata": { "name": "late" }, "spec": spec })).unwrap();
    let late = cluster.get("gateways/default/late");
    let status = gateway_status(&cluster.snapshot, &late.metadata, late.as_gateway().unwrap());
    let reasons = status.listeners.iter().map(|(name, status)| {
        let reason = status.conditions.iter().find(|one| format!("{:?}", one.condition_type) == "Programmed");
        format!("{name}={:?}", reason.unwrap().reason)
    });
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons, ["plain=ProtocolConflict", "tls=ProtocolConflict", "www=Programmed"]);
    let state = state(&cluster);
    assert_eq!(decide(&state, 9004, "www.example.com", 0), "requests");
    assert_eq!(decide(&state, 9004, "other.example.com", 0), "unrecognized_name");
}

/// The explanation of a request at a listener with passthrough names the route, its backends and the reason of a refusal.
#[test]
fn an_explanation_names_the_route_of_the_connection() {
    let (mut cluster, _) = infrastructure();
    let case = json!({ "parent": "any", "hostnames": ["abc.example.com"], "backends": ["tls-backend:443=3", "gone:443=1"] });
    cluster.apply(&tls_route("mail", &case)).unwrap();
    let case =
        json!({ "parent": "terminate", "hostnames": ["tls.example.com"], "backends": ["tcp-backend:8080"] });
    cluster.apply(&tls_route("ended", &case)).unwrap();
    let state = state(&cluster);
    let explain = |port: u16, host: &'static str| {
        let header = |_: &str| None::<Cow<'static, str>>;
        let head = RequestHead {
            port: Port::new(port).unwrap(),
            server_name: Some(host),
            method: "GET",
            host,
            path: "/",
            query: None,
            header: &header,
        };
        explain_http(&state, &head, None)
    };
    let found = explain(9004, "abc.example.com");
    assert_eq!(
        (found.decision, found.tls_route.as_deref()),
        (HttpOutcome::ForwardConnection, Some("default/mail"))
    );
    assert_eq!(
        found.reason,
        "TlsRoute default/mail forwards the connection unchanged; 1 of 2 backends cannot answer"
    );
    let shares: Vec<_> = found.backends.iter().map(|one| (one.weight, one.problem.is_some())).collect();
    assert_eq!((shares, found.certificate), (vec![(3, false), (1, true)], None));
    let found = explain(9007, "tls.example.com");
    assert_eq!(found.reason, "TlsRoute default/ended forwards the connection decrypted");
    assert_eq!(found.certificate.as_deref(), Some("default/tls"));
    let found = explain(9004, "other.example.com");
    assert_eq!(found.decision, HttpOutcome::Refuse);
    assert_eq!(found.reason, "no TlsRoute of the listener has the server name other.example.com");
    assert!(found.candidates.iter().all(|one| one.outcome != RuleOutcome::Applies));
}

/// A Service that a TlsRoute names is known as routed, a route without an endpoint is a finding, and the Gateway counts it.
#[test]
fn routes_are_counted_and_found_wanting() {
    let (mut cluster, _) = infrastructure();
    let case = json!({ "parent": "any", "hostnames": ["abc.example.com"], "backends": ["empty:443"] });
    cluster.apply(&tls_route("mail", &case)).unwrap();
    assert!(cluster.snapshot.is_routed(&ServiceKey::try_from("default/empty".to_owned()).unwrap()));
    let any = cluster.get("gateways/default/any");
    let status = gateway_status(&cluster.snapshot, &any.metadata, any.as_gateway().unwrap());
    assert_eq!(status.attached_routes.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1]));
    let object = cluster.get("tlsroutes/default/mail");
    let spec = object.as_tls_route().unwrap();
    let status = tls_route_status(&cluster.snapshot, object.metadata.namespace.as_ref().unwrap(), spec);
    let findings = http::route(&cluster.snapshot, object, spec.into(), &status.conditions);
    let found: Vec<_> = findings.iter().map(|one| (one.impact, one.message.as_str())).collect();
    let message = "Service default/empty has no endpoint for new requests at port 443; the connections of the route are closed";
    assert_eq!(found, [(Impact::Unreachable, message)]);
}
