//! Certificates and listeners with TLS: validation, the private key that responses never contain, the choice by server
//! name, misdirected requests, and conditions.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    cluster::{
        change::{Action, ObjectChange},
        history::differences,
    },
    http::{Decision, HttpState, RequestHead, TlsProblem, route},
    kinds::condition_reason::ConditionReason,
    observed::{
        rollup::{certificate_status, gateway_status},
        status::{Condition, ConditionStatus, ConditionType},
    },
    primitives::quantity::{Port, Revision, Timestamp},
    wire::certificate_keys::CertificateKeyList,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::support::Cluster;

/// Certificate in PEM with its private key.
struct Identity {
    certificate: String,
    key: String,
}

fn identity(names: &[&str]) -> Identity {
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 12, 31));
    Identity { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn certificate(name: &str, certificate: &str, key: Option<&str>) -> Value {
    let mut spec = json!({ "certificate": certificate });
    if let Some(key) = key {
        spec["privateKey"] = key.into();
    }
    json!({ "kind": "Certificate", "metadata": { "name": name }, "spec": spec })
}

/// Returns a Gateway with a listener for each host name (empty: all) and Certificate.
fn gateway(name: &str, port: u16, listeners: &[(&str, &[&str])]) -> Value {
    let listener = |(index, (hostname, names)): (usize, &(&str, &[&str]))| {
        let refs: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        let mut listener = json!({
            "name": format!("tls-{index}"), "port": port, "protocol": "HTTPS", "tls": { "certificateRefs": refs },
        });
        if !hostname.is_empty() {
            listener["hostname"] = (*hostname).into();
        }
        listener
    };
    let listeners: Vec<_> = listeners.iter().enumerate().map(listener).collect();
    json!({ "kind": "Gateway", "metadata": { "name": name }, "spec": { "listeners": listeners } })
}

fn pointers(object: &Value) -> Vec<(String, String)> {
    let found = decode(object, &Expect::default()).err().unwrap_or_default();
    found.into_iter().map(|one| (one.pointer, one.message)).collect()
}

fn condition(conditions: &[Condition], wanted: ConditionType) -> (ConditionStatus, ConditionReason) {
    let found = conditions.iter().find(|condition| condition.condition_type == wanted).unwrap();
    (found.status, found.reason)
}

#[test]
fn a_certificate_needs_a_chain_in_order_and_its_own_key() {
    let (one, other) = (identity(&["www.example.org"]), identity(&["www.example.org"]));
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "Example CA");
    let root = params.self_signed(&authority).unwrap().pem();
    let issuer = Issuer::new(params, authority);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["a.example.org".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap().pem();
    let key = key.serialize_pem();
    for (pem, key) in [(&one.certificate, &one.key), (&format!("{leaf}{root}"), &key)] {
        assert_eq!(pointers(&certificate("www", pem, Some(key))), []);
    }
    let text = "x".repeat(70_000);
    let (chain, key_at) = ("/spec/certificate", "/spec/privateKey");
    for (pem, key, pointer, words) in [
        (&one.certificate, &other.key, key_at, "must belong to the first certificate"),
        (&one.certificate, &one.certificate, key_at, "must be a private key"),
        (&one.certificate, &"hunter2".to_owned(), key_at, "must be a private key"),
        (&format!("{root}{leaf}"), &key, chain, "certificate 2 must be the issuer of certificate 1"),
        (&one.key, &one.key, chain, "must contain at least one certificate"),
        (&String::new(), &one.key, chain, "must contain at least one certificate"),
        (&one.certificate.replace("MII", "MIX"), &one.key, chain, "must be X.509"),
        (&text, &one.key, chain, "must have at most 65536 bytes"),
        (&one.certificate, &text, key_at, "must have at most 16384 bytes"),
        (&one.certificate.repeat(11), &one.key, chain, "must contain at most 10 certificates"),
    ] {
        let found = pointers(&certificate("www", pem, Some(key)));
        assert!(
            matches!(&found[..], [(at, message)] if at == pointer && message.contains(words)),
            "{found:?}"
        );
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
}

#[test]
fn tls_settings_belong_to_https_listeners() {
    let listener = |protocol: &str, tls: Value| {
        let listener = json!({ "name": "a", "port": 443, "protocol": protocol, "tls": tls });
        json!({ "kind": "Gateway", "metadata": { "name": "edge" }, "spec": { "listeners": [listener] } })
    };
    let refs = |names: &[&str]| {
        let refs: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "certificateRefs": refs })
    };
    assert_eq!(pointers(&listener("HTTPS", refs(&["www"]))), []);
    for (object, pointer) in [
        (listener("HTTPS", Value::Null), "/spec/listeners/0/tls"),
        (listener("HTTP", refs(&["www"])), "/spec/listeners/0/tls"),
        (listener("HTTPS", refs(&[])), "/spec/listeners/0/tls/certificateRefs"),
        (listener("HTTPS", refs(&["www", "www"])), "/spec/listeners/0/tls/certificateRefs/1"),
    ] {
        let found = pointers(&object);
        assert!(matches!(&found[..], [(at, _)] if at == pointer), "{found:?}");
    }
    let mut both = gateway("edge", 443, &[("a.example.org", &["www"])]);
    let plain = json!({ "name": "plain", "port": 443, "protocol": "HTTP" });
    both["spec"]["listeners"].as_array_mut().unwrap().push(plain);
    assert_eq!(pointers(&both)[0].0, "/spec/listeners/1/protocol");
}

/// A write without the private key keeps the present one, which must belong to the certificate. No response contains
/// it.
#[test]
fn private_keys_are_kept_with_their_certificates_and_never_shown() {
    let mut cluster = Cluster::new();
    let (one, other) = (identity(&["www.example.org"]), identity(&["www.example.org"]));
    let Err(Refusal::Invalid(found)) = cluster.apply(&certificate("www", &one.certificate, None)) else {
        panic!("a private key is missing")
    };
    assert_eq!(found[0].pointer, "/items/0/spec/privateKey");
    cluster.apply(&certificate("www", &one.certificate, Some(&one.key))).unwrap();
    let before = cluster.get("certificates/default/www").clone();
    let shown = before.to_json();
    assert!(!shown.to_string().contains("PRIVATE") && shown["spec"]["certificate"] == *one.certificate);
    assert!(!format!("{before:?}").contains(one.key.lines().nth(1).unwrap()));
    assert_eq!(cluster.apply(&shown).unwrap(), Action::Unchanged);
    let Err(Refusal::Invalid(found)) = cluster.apply(&certificate("www", &other.certificate, None)) else {
        panic!("the private key of another certificate was kept")
    };
    assert_eq!(found[0].pointer, "/items/0/spec/privateKey");
    cluster.apply(&certificate("www", &other.certificate, Some(&other.key))).unwrap();
    let (changes, _) = differences(Some(&before), Some(cluster.get("certificates/default/www")));
    let key = changes.iter().find(|change| change.pointer == "/spec/privateKey").unwrap();
    assert_eq!((&key.before, &key.after), (&Some(json!("(hidden)")), &Some(json!("(hidden)"))));
    // Gateways receive the certificates of their listeners.
    cluster.apply(&gateway("edge", 443, &[("", &["www", "none"])])).unwrap();
    let list = |is_served: bool| CertificateKeyList::of(&cluster.snapshot, |_, _| is_served);
    assert_eq!(list(true).keys[0].private_key.reveal(), other.key);
    assert_eq!((list(true).keys.len(), list(false).keys.len()), (1, 0));
}

fn state(cluster: &Cluster) -> HttpState {
    HttpState::new(Arc::new(BTreeSet::new()), cluster.snapshot.clone())
}

fn choose(state: &HttpState, port: u16, name: &str) -> Result<String, TlsProblem> {
    let port = Port::new(port).unwrap();
    state.table().tls.choose(port, name).map(|key| key.name.to_string())
}

/// F144: the listener with the most specific host name presents the first of its certificates that is valid for the
/// server name. A listener without a usable certificate does not affect the others.
#[test]
fn f144_the_server_name_selects_the_certificate() {
    let mut cluster = Cluster::new();
    for (name, names) in [
        ("www", &["www.example.org"][..]),
        ("wild", &["*.example.org", "example.org"]),
        ("deep", &["*.deep.example.org"]),
    ] {
        let one = identity(names);
        cluster.apply(&certificate(name, &one.certificate, Some(&one.key))).unwrap();
    }
    let listeners: [(&str, &[&str]); 3] = [
        ("www.example.org", &["www"]),
        ("*.example.org", &["none", "wild", "deep"]),
        ("bad.example.net", &["none"]),
    ];
    cluster.apply(&gateway("edge", 443, &listeners)).unwrap();
    cluster.apply(&gateway("other", 8443, &[("", &["deep", "wild"])])).unwrap();
    let first = state(&cluster);
    for (port, name, expected) in [
        (443, "www.example.org", Ok("www")),
        (443, "a.example.org", Ok("wild")),
        (443, "a.deep.example.org", Ok("deep")),
        // No certificate is valid for the name: the client learns it from the first one.
        (443, "a.b.example.org", Ok("wild")),
        (443, "bad.example.net", Err(TlsProblem::NoCertificate)),
        (443, "example.net", Err(TlsProblem::NoListener)),
        (443, "", Err(TlsProblem::NoListener)),
        (8443, "", Ok("deep")),
        (8443, "example.org", Ok("wild")),
        (80, "www.example.org", Err(TlsProblem::NoListener)),
    ] {
        assert_eq!(choose(&first, port, name), expected.map(str::to_owned), "{port} {name}");
    }
    let is_tls = |port| first.table().tls.is_tls(Port::new(port).unwrap());
    assert!(is_tls(443) && !is_tls(80));
    // A change of Certificates alone keeps the routes, and has the table of a new state.
    let one = identity(&["bad.example.net"]);
    cluster.apply(&certificate("none", &one.certificate, Some(&one.key))).unwrap();
    let put = Arc::new(cluster.get("certificates/default/none").clone());
    let next = first.update(Revision(9), [ObjectChange::Put(put)]);
    assert!(Arc::ptr_eq(&next.table().routes, &first.table().routes));
    assert_eq!(next.table(), state(&cluster).table());
    assert_eq!(choose(&next, 443, "bad.example.net").as_deref(), Ok("none"));
}

/// GatewayInvalidTLSConfiguration: the listener without a usable Certificate has the reasons of the Gateway API, and the
/// others are programmed. Of two Gateways with different protocols at one port, the first one is served.
#[test]
fn a_bad_certificate_fails_its_listener_alone() {
    let mut cluster = Cluster::new();
    let one = identity(&["www.example.org"]);
    cluster.apply(&certificate("www", &one.certificate, Some(&one.key))).unwrap();
    cluster.apply(&gateway("edge", 443, &[("a.example.org", &["www"]), ("", &["none"])])).unwrap();
    let plain = json!({ "name": "plain", "port": 443, "protocol": "HTTP", "hostname": "b.example.org" });
    let spec = json!({ "listeners": [plain] });
    cluster.apply(&json!({ "kind": "Gateway", "metadata": { "name": "plain" }, "spec": spec })).unwrap();
    let status = |name: &str| {
        let object = cluster.get(&format!("gateways/default/{name}"));
        gateway_status(&cluster.snapshot, &object.metadata, object.as_gateway().unwrap())
    };
    let edge = status("edge");
    let of = |index: usize| &edge.listeners.values().nth(index).unwrap().conditions[..];
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let (resolved, programmed) = (ConditionType::ResolvedRefs, ConditionType::Programmed);
    assert_eq!(condition(of(0), resolved), (yes, ConditionReason::CertificatesFound));
    assert_eq!(condition(of(0), programmed), (yes, ConditionReason::Programmed));
    for conditions in [of(1), &edge.conditions] {
        assert_eq!(condition(conditions, resolved), (no, ConditionReason::InvalidCertificateRef));
        assert_eq!(condition(conditions, programmed), (no, ConditionReason::Invalid));
    }
    let plain = status("plain").conditions;
    assert_eq!(condition(&plain, programmed), (no, ConditionReason::ProtocolConflict));
    assert_eq!(choose(&state(&cluster), 443, "a.example.org").as_deref(), Ok("www"));
}

#[test]
fn the_validity_of_a_certificate_is_a_condition() {
    let mut cluster = Cluster::new();
    let one = identity(&["www.example.org"]);
    cluster.apply(&certificate("www", &one.certificate, Some(&one.key))).unwrap();
    let status = |cluster: &Cluster, time: &str| {
        let object = cluster.get("certificates/default/www");
        let now = Timestamp::try_from(time.to_owned()).unwrap();
        certificate_status(&cluster.snapshot, &object.metadata, object.as_certificate().unwrap(), now)
    };
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    for (time, expected) in [
        ("2025-12-31T23:00:00Z", (no, ConditionReason::NotYetValid)),
        ("2026-06-01T00:00:00Z", (yes, ConditionReason::InValidity)),
        ("2026-12-20T00:00:00Z", (yes, ConditionReason::ExpiresSoon)),
        ("2027-01-01T00:00:00Z", (no, ConditionReason::Expired)),
    ] {
        let status = status(&cluster, time);
        assert_eq!(condition(&status.conditions, ConditionType::Ready), expected, "{time}");
        assert_eq!(status.dns_names, ["www.example.org"]);
        assert_eq!(condition(&status.conditions, ConditionType::Used), (no, ConditionReason::NotReferenced));
    }
    cluster.apply(&gateway("edge", 443, &[("", &["www"])])).unwrap();
    let status = status(&cluster, "2026-06-01T00:00:00Z");
    assert_eq!(condition(&status.conditions, ConditionType::Used), (yes, ConditionReason::Referenced));
}

/// HTTPRouteHTTPSListenerDetectMisdirectedRequests: a connection serves the host names of its listener only. Redirections
/// keep the scheme.
#[test]
fn requests_for_other_listeners_are_misdirected() {
    let mut cluster = Cluster::new();
    let one = identity(&["*.example.org"]);
    cluster.apply(&certificate("www", &one.certificate, Some(&one.key))).unwrap();
    let listeners: [(&str, &[&str]); 2] = [("a.example.org", &["www"]), ("*.example.org", &["www"])];
    cluster.apply(&gateway("edge", 443, &listeners)).unwrap();
    let filter = json!({ "type": "RequestRedirect", "requestRedirect": { "hostname": "c.example.org" } });
    let spec = json!({ "parentRefs": [{ "name": "edge" }], "rules": [{ "filters": [filter] }] });
    cluster.apply(&json!({ "kind": "HttpRoute", "metadata": { "name": "all" }, "spec": spec })).unwrap();
    let state = state(&cluster);
    let decide = |server_name: Option<&str>, host: &str| {
        let header = |_: &str| None::<Cow<'_, str>>;
        let port = Port::new(443).unwrap();
        let head =
            RequestHead { port, server_name, method: "GET", host, path: "/x", query: None, header: &header };
        match route(state.table(), &head, 0) {
            Decision::Fail { failure, .. } => failure.status().to_string(),
            Decision::Redirect { location, .. } => location,
            Decision::Preflight { .. } => "204".to_owned(),
            Decision::Forward { backend, .. } => backend.key.to_string(),
        }
    };
    let target = "https://c.example.org/x";
    for (server_name, host, expected) in [
        (Some("a.example.org"), "a.example.org", target),
        (Some("b.example.org"), "d.example.org", target),
        (Some("a.example.org"), "b.example.org", "421"),
        (Some("b.example.org"), "a.example.org", "421"),
        (Some(""), "a.example.org", "421"),
        (Some("a.example.org"), "example.net", "404"),
        (None, "a.example.org", "http://c.example.org:443/x"),
    ] {
        assert_eq!(decide(server_name, host), expected, "{server_name:?} {host}");
    }
}
