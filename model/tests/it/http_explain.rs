//! Explanations of HTTP requests (F141, F142, F144): a golden file with the reasons of all rules, and their agreement with
//! the decisions of gateways for all requests of the table of conformance. `UPDATE_GOLDEN=1 cargo test -p model` rewrites the
//! golden file.

use std::{borrow::Cow, fmt::Write as _, fs, net::IpAddr, path::Path, sync::Arc};

use model::{
    http::{
        Decision, HttpExplanation, HttpOutcome, HttpState, RequestHead, RuleOutcome, explain_http,
        normalize_host, route,
    },
    primitives::quantity::Port,
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::Cluster;

/// Request of a test: `METHOD URL`, and a header as `name:value`.
struct ExplainedRequest<'a> {
    method: &'a str,
    is_tls: bool,
    host: String,
    port: u16,
    path: &'a str,
    query: Option<&'a str>,
    header: Option<(&'a str, &'a str)>,
}

impl<'a> ExplainedRequest<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split(' ');
        let method = words.next().unwrap();
        let (scheme, rest) = words.next().unwrap().split_once("://").unwrap();
        let (authority, rest) = rest.split_at(rest.find('/').unwrap());
        let is_tls = scheme == "https";
        let port = authority.split_once(':').map(|(_, port)| port.parse().unwrap());
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        Self {
            method,
            is_tls,
            host: if authority.is_empty() { String::new() } else { normalize_host(authority).unwrap() },
            port: port.unwrap_or(if is_tls { 443 } else { 80 }),
            path,
            query,
            header: words.next().map(|header| header.split_once(':').unwrap()),
        }
    }

    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.header.filter(|(found, _)| *found == name).map(|(_, value)| Cow::Borrowed(value))
    }

    fn head<'b>(&'b self, header: &'b dyn Fn(&str) -> Option<Cow<'b, str>>) -> RequestHead<'b> {
        RequestHead {
            port: Port::new(self.port).unwrap(),
            server_name: self.is_tls.then_some(&*self.host),
            method: self.method,
            host: &self.host,
            path: self.path,
            query: self.query,
            header,
        }
    }

    fn explain(&self, state: &HttpState, client: Option<IpAddr>) -> HttpExplanation {
        let header = |name: &str| self.header(name);
        explain_http(state, &self.head(&header), client)
    }

    /// Returns the decision of gateways, and the rule that applies.
    fn decide(&self, state: &HttpState) -> (HttpOutcome, Option<String>) {
        let header = |name: &str| self.header(name);
        let (outcome, rule) = match route(state.table(), &self.head(&header), 0) {
            Decision::Fail { rule, .. } => (HttpOutcome::Fail, rule),
            Decision::Redirect { rule, .. } => (HttpOutcome::Redirect, Some(rule)),
            Decision::Preflight { rule, .. } => (HttpOutcome::Preflight, Some(rule)),
            Decision::Forward { rule, .. } => (HttpOutcome::Forward, Some(rule)),
        };
        (outcome, rule.map(|rule| rule.id.to_string()))
    }
}

fn route_object(name: &str, parent: &Value, hostnames: &[&str], rules: &Value) -> Value {
    let mut spec = json!({ "parentRefs": [parent], "rules": rules });
    if !hostnames.is_empty() {
        spec["hostnames"] = json!(hostnames);
    }
    json!({ "kind": "HttpRoute", "metadata": { "name": name, "namespace": "shop" }, "spec": spec })
}

fn cluster() -> Cluster {
    let key = KeyPair::generate().unwrap();
    let names = vec!["www.example.org".to_owned()];
    let pem = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem();
    let service = |name: &str| json!({ "kind": "Service", "metadata": { "name": name, "namespace": "shop" }, "spec": { "ports": [{ "port": 80 }] } });
    let endpoints = json!([{ "address": "10.1.0.1" }, { "address": "10.1.0.2", "weight": 3 }]);
    let tls = |name: &str| json!({ "certificateRefs": [{ "name": name }] });
    let edge = json!({ "listeners": [
        { "name": "http", "port": 80, "protocol": "HTTP" },
        { "name": "wild", "port": 80, "protocol": "HTTP", "hostname": "*.example.net" },
        { "name": "https", "port": 443, "protocol": "HTTPS", "hostname": "www.example.org", "tls": tls("www") },
        { "name": "bad", "port": 443, "protocol": "HTTPS", "hostname": "bad.example.org", "tls": tls("absent") },
    ] });
    let web = json!([{ "name": "web", "port": 80 }]);
    let api = json!([{ "name": "web", "port": 80, "weight": 3 }, { "name": "empty", "port": 80 }, { "name": "web", "port": 81, "weight": 0 }]);
    let strip = json!([{ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } }]);
    let to_https =
        json!([{ "type": "RequestRedirect", "requestRedirect": { "scheme": "https", "statusCode": 301 } }]);
    let prefix = |path: &str| json!({ "type": "PathPrefix", "value": path });
    let canary = json!({ "path": prefix("/api"), "method": "GET", "headers": [{ "name": "X-Canary", "value": "always" }] });
    let https = json!({ "name": "edge", "sectionName": "https" });
    let (http, wild) =
        (json!({ "name": "edge", "sectionName": "http" }), json!({ "name": "edge", "sectionName": "wild" }));
    let objects = [
        json!({ "kind": "Certificate", "metadata": { "name": "www", "namespace": "shop" }, "spec": { "certificate": pem, "privateKey": key.serialize_pem() } }),
        service("web"),
        service("empty"),
        json!({ "kind": "EndpointSet", "metadata": { "name": "web", "namespace": "shop" }, "spec": { "service": "web", "endpoints": endpoints } }),
        json!({ "kind": "Gateway", "metadata": { "name": "edge", "namespace": "shop" }, "spec": edge }),
        route_object("to-https", &http, &[], &json!([{ "filters": to_https }])),
        route_object(
            "www",
            &https,
            &["www.example.org"],
            &json!([
                { "matches": [{ "path": prefix("/api") }], "filters": strip, "backendRefs": api },
                { "name": "canary", "matches": [canary], "backendRefs": web },
                { "matches": [{ "path": prefix("/"), "queryParams": [{ "name": "a", "value": "b" }] }], "backendRefs": web },
                { "matches": [{ "path": { "type": "Exact", "value": "/exact" } }] },
            ]),
        ),
        route_object("net", &wild, &["a.example.net"], &json!([{ "backendRefs": web }])),
        route_object(
            "lost",
            &json!({ "name": "edge", "sectionName": "none" }),
            &["www.example.org"],
            &json!([{ "backendRefs": web }]),
        ),
        // A refusal at the listener for plain HTTP applies at the one with TLS too.
        route_object(
            "zz-refused",
            &http,
            &["www.example.org"],
            &json!([{ "matches": [{ "path": prefix("/Private") }], "refuse": { "reason": "Ingress shop/private: auth-url", "ignoreCase": true, "allListeners": true } }]),
        ),
    ];
    let mut cluster = Cluster::new();
    for object in objects {
        cluster.now += 1;
        cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
    }
    cluster
}

fn text(found: &HttpExplanation) -> String {
    let mut out = String::new();
    let status = found.status.map(|status| format!(" {status}")).unwrap_or_default();
    writeln!(out, "{}\n  {}{status}: {}", found.request, found.decision, found.reason).unwrap();
    let filters: Vec<_> = found.filters.iter().map(|filter| filter.filter_type.to_string()).collect();
    let matched = found.matched.as_ref().map(|one| serde_json::to_string(one).unwrap());
    for (name, value) in [
        ("listeners", Some(found.listeners.join(" "))),
        ("certificate", found.certificate.clone()),
        ("rule", found.rule.clone()),
        ("matched", matched),
        ("filters", Some(filters.join(" "))),
        ("location", found.location.clone()),
        ("new path", found.new_path.clone()),
        ("forwarded for", found.forwarded_for.map(|address| address.to_string())),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            writeln!(out, "  {name}: {value}").unwrap();
        }
    }
    for one in &found.backends {
        let endpoints: Vec<_> = one
            .endpoints
            .iter()
            .map(|endpoint| format!("{}*{}", endpoint.address, endpoint.weight))
            .collect();
        let problem = one.problem.clone().unwrap_or_default();
        let line =
            format!("{} *{} {:?} {}{problem}", one.backend, one.weight, one.status, endpoints.join(" "));
        writeln!(out, "  backend {}", line.trim_end()).unwrap();
    }
    for one in &found.candidates {
        let (rule, place) = (one.rule.clone().unwrap_or_default(), one.place.clone().unwrap_or_default());
        writeln!(out, "  {}/{rule} [{place}] {}: {}", one.route, one.outcome, one.message).unwrap();
    }
    for one in found.parents.iter().filter(|one| !one.accepted) {
        writeln!(out, "  {} -> {}: {}", one.route, one.parent, one.reason).unwrap();
    }
    out
}

/// The golden file has, for each request, the decision with its listener, certificate, rule and backends, and the reason for
/// which each other rule does not apply.
#[test]
fn f142_each_rule_has_the_reason_for_which_it_does_not_apply() {
    let state = HttpState::new(Arc::default(), cluster().snapshot);
    let mut out = String::new();
    for request in [
        "GET http://www.example.org/api",
        "GET https://www.example.org/api/v1",
        "GET https://www.example.org/api/v1 x-canary:always",
        "POST https://www.example.org/api/v1 x-canary:always",
        "GET https://www.example.org/exact?a=b",
        "GET https://www.example.org/exactly",
        "GET https://www.example.org//private?a=b",
        "GET http://a.example.net/",
        "GET http://b.example.net/",
        "GET https://bad.example.org/",
        "GET https://other.example.org/",
        "GET http://www.example.org:443/",
        "GET https://www.example.org:80/",
        "GET http://www.example.org:8080/",
    ] {
        let client = Some("198.51.100.7".parse().unwrap()).filter(|_| request.ends_with("/v1"));
        let found = ExplainedRequest::parse(request).explain(&state, client);
        writeln!(out, "{}", text(&found)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/http_explain.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &out).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), out, "{}", path.display());
}

/// For each request of the table of conformance, the explanation has the decision of gateways, and exactly the deciding rule
/// is the one that applies.
#[test]
fn f141_an_explanation_is_the_decision_of_gateways() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../http/cases.json")).unwrap();
    let infrastructure: Vec<Value> = serde_json::from_str(include_str!("../http/objects.json")).unwrap();
    let mut requests = 0;
    for case in &cases {
        let mut cluster = Cluster::new();
        let parent = case["parent"].as_str().unwrap_or("same-namespace");
        let routes = case["routes"].as_array().unwrap().iter().enumerate().map(|(index, spec)| {
            let mut reference = json!({ "name": parent });
            if let Some(section) = spec.get("section") {
                reference["sectionName"] = section.clone();
            }
            let mut object = json!({
                "kind": "HttpRoute", "metadata": { "name": format!("route-{index}"), "namespace": "infra" },
                "spec": { "parentRefs": [reference], "rules": spec["rules"] },
            });
            if let Some(hostnames) = spec.get("hostnames") {
                object["spec"]["hostnames"] = hostnames.clone();
            }
            object
        });
        for mut object in infrastructure.iter().cloned().chain(routes) {
            cluster.now += 1;
            object["apiVersion"] = "tidegate/v1".into();
            cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
        }
        let state = HttpState::new(Arc::default(), cluster.snapshot.clone());
        // Rows of listeners with TLS and of other ports are compared elsewhere.
        let is_plain = |row: &&Value| {
            let text = row[0].as_str().unwrap();
            !text.contains("https://") && !text.contains(" port=")
        };
        for row in case["rows"].as_array().unwrap().iter().filter(is_plain) {
            let words: Vec<_> = row[0].as_str().unwrap().split(' ').collect();
            let is_method = words[0].bytes().all(|c| c.is_ascii_uppercase());
            let (method, rest) = if is_method { (words[0], &words[1..]) } else { ("GET", &words[..]) };
            // The explanation is the same for further headers of the row.
            let url = format!("{method} http://{} {}", rest[0], rest[1..].join(" "));
            let url = url.trim_end();
            let request = ExplainedRequest {
                port: case["port"].as_u64().unwrap_or(80) as u16,
                ..ExplainedRequest::parse(url)
            };
            let (found, (outcome, rule)) = (request.explain(&state, None), request.decide(&state));
            assert_eq!(found.rule, rule, "{}: {url}", case["name"]);
            assert!(found.decision == outcome || outcome == HttpOutcome::Fail, "{}: {url}", case["name"]);
            let applying = found.candidates.iter().filter(|one| one.outcome == RuleOutcome::Applies);
            let applying: Vec<_> =
                applying.map(|one| format!("{}/{}", one.route, one.rule.as_deref().unwrap())).collect();
            assert_eq!(applying, rule.into_iter().collect::<Vec<_>>(), "{}: {url}", case["name"]);
            requests += 1;
        }
    }
    assert!(requests > 50, "{requests}");
}
