//! Gateways whose listeners have several protocols (F143): a listener or route that cannot be served affects no other one.

use serde_json::{Value, json};
use translate::kubernetes::{
    Mode, Settings, TranslationResult,
    gateway_api::{ReferenceGrants, RouteKind, RouteTranslation, gateway, route, unaccepted},
};

fn settings() -> Settings {
    Settings { cluster: None, mode: Mode::Proxy, class: None }
}

fn listener(name: &str, port: u16, protocol: &str, hostname: &str) -> Value {
    let mut listener = json!({ "name": name, "port": port, "protocol": protocol });
    if !hostname.is_empty() {
        listener["hostname"] = hostname.into();
    }
    match protocol {
        "HTTPS" => listener["tls"] = json!({ "certificateRefs": [{ "name": "cert" }] }),
        "TLS" => listener["tls"] = json!({ "mode": "Passthrough" }),
        _ => {}
    }
    listener
}

fn with(listeners: &[Value]) -> Value {
    json!({ "metadata": { "name": "edge", "namespace": "shop" }, "spec": { "gatewayClassName": "tidegate", "listeners": listeners } })
}

/// Returns the names of the listeners that are translated, and the reasons of the Gateway API for the others.
fn served(listeners: &[Value]) -> (Vec<String>, Vec<&'static str>) {
    let theirs = with(listeners);
    let TranslationResult { documents, .. } = gateway(&settings(), &ReferenceGrants::default(), &theirs);
    let names = documents.iter().flat_map(|one| one["spec"]["listeners"].as_array().unwrap());
    let names = names.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    let reasons = listeners.iter().filter_map(|one| unaccepted(&theirs, one)).map(|problem| problem.reason);
    (names, reasons.collect())
}

/// A listener with TLS that conflicts with another one, or is incomplete, is left out alone.
#[test]
fn f143_a_listener_in_conflict_is_left_out_alone() {
    let web = listener("web", 80, "HTTP", "");
    let secure = listener("secure", 443, "HTTPS", "a.example.org");
    let same = listener("same", 443, "TLS", "a.example.org");
    let plain = listener("plain", 80, "TLS", "b.example.org");
    let other = listener("other", 443, "TLS", "b.example.org");
    let mut bare = listener("bare", 443, "TLS", "c.example.org");
    bare.as_object_mut().unwrap().remove("tls");
    let all = [same, web, secure, plain, other, bare];
    let (names, reasons) = served(&all);
    assert_eq!(names, ["web", "secure", "other"]);
    assert_eq!(reasons, ["HostnameConflict", "ProtocolConflict", "UnsupportedValue"]);
}

/// A listener whose clients must have certificates is left out, because gateways would serve clients without one. An entry for
/// its port replaces the default of the Gateway.
#[test]
fn f144_a_listener_that_asks_for_client_certificates_is_left_out() {
    let validation =
        |mode: &str| json!({ "validation": { "mode": mode, "caCertificateRefs": [{ "name": "ca" }] } });
    let served = |frontend: Value| {
        let mut theirs = with(&[
            listener("web", 80, "HTTP", ""),
            listener("secure", 443, "HTTPS", ""),
            listener("other", 8443, "HTTPS", ""),
            listener("pass", 9443, "TLS", ""),
        ]);
        theirs["spec"]["tls"] = json!({ "frontend": frontend });
        let TranslationResult { documents, .. } = gateway(&settings(), &ReferenceGrants::default(), &theirs);
        let names = documents.iter().flat_map(|one| one["spec"]["listeners"].as_array().unwrap());
        let names: Vec<_> = names.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        for one in theirs["spec"]["listeners"].as_array().unwrap() {
            let is_served = names.iter().any(|name| one["name"] == **name);
            assert_eq!(unaccepted(&theirs, one).is_none(), is_served, "{one}");
        }
        names
    };
    for mode in ["AllowValidOnly", "AllowInsecureFallback"] {
        assert_eq!(served(json!({ "default": validation(mode) })), ["web", "pass"]);
        let per_port = json!([{ "port": 443, "tls": validation(mode) }]);
        assert_eq!(served(json!({ "default": {}, "perPort": per_port })), ["web", "other", "pass"]);
    }
    let without = json!([{ "port": 443, "tls": {} }]);
    let frontend = json!({ "default": validation("AllowValidOnly"), "perPort": without });
    assert_eq!(served(frontend), ["web", "secure", "pass"]);
    assert_eq!(served(json!({ "default": {} })), ["web", "secure", "other", "pass"]);
}

fn routed(kind: RouteKind, spec: Value, gateway: &Value) -> RouteTranslation {
    let mut spec = spec;
    spec["parentRefs"] = json!([{ "name": "edge" }]);
    let theirs = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec });
    route(&settings(), kind, &ReferenceGrants::default(), &theirs, |_| Some(gateway))
}

/// A route for requests without a section has one parent, although the Gateway has listeners for connections too.
#[test]
fn f143_a_route_names_no_listener_of_another_protocol() {
    let mut listeners: Vec<_> =
        (0..40).map(|n| listener(&format!("h{n}"), 80, "HTTP", &format!("h{n}.example.org"))).collect();
    listeners.push(listener("tls", 443, "TLS", "tls.example.org"));
    let gateway = with(&listeners);
    let backends = json!([{ "name": "web", "port": 80 }]);
    let spec = json!({ "hostnames": ["h1.example.org"], "rules": [{ "backendRefs": backends }] });
    let made = routed(RouteKind::Http, spec, &gateway);
    assert_eq!(made.result.documents.len(), 1, "{:?}", made.result.findings);
    let parents = made.result.documents[0]["spec"]["parentRefs"].as_array().unwrap();
    assert!(parents.len() == 1 && parents[0].get("sectionName").is_none(), "{parents:?}");
}

/// The connections of an invalid TLSRoute are closed, so that no route with a wildcard name receives them.
#[test]
fn f143_an_invalid_tls_route_closes_its_connections() {
    let gateway = with(&[listener("tls", 443, "TLS", "")]);
    let backends = json!([{ "name": "web", "port": 443 }]);
    let closing = |rule_name: &str, hostnames: Value| {
        let spec =
            json!({ "hostnames": hostnames, "rules": [{ "name": rule_name, "backendRefs": backends }] });
        let made = routed(RouteKind::Tls, spec, &gateway);
        assert!(made.rejected.is_some());
        made.result.documents
    };
    let long = format!("{}.example.org", "a".repeat(64));
    for documents in
        [closing("a.b", json!(["pay.example.org"])), closing("ok", json!(["pay.example.org", long]))]
    {
        let spec = &documents[0]["spec"];
        assert_eq!(spec["hostnames"], json!(["pay.example.org"]));
        assert_eq!(spec["rules"], json!([{ "backendRefs": [{ "name": "0.invalid", "port": 1 }] }]));
    }
    assert!(closing("ok", json!([long])).is_empty());
}
