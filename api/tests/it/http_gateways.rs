//! Reports of gateways over HTTP, and the problems of HTTP routing in the status.

use model::primitives::quantity::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::{self, Server, secured};

fn report(sockets: &[(&str, Option<&str>)]) -> Value {
    let socket = |(address, error): &(&str, Option<&str>)| match error {
        None => json!({ "address": address }),
        Some(error) => json!({ "address": address, "error": error }),
    };
    json!({ "version": "0.2.0", "startedAt": "2026-02-13T16:26:40Z", "connected": true, "revision": 7,
            "sockets": sockets.iter().map(socket).collect::<Vec<_>>() })
}

/// A report is listed with its problems. Other roles cannot report, another token cannot report for the gateway, and a report
/// beyond the limits is rejected with the field.
#[tokio::test]
async fn gateways_report_only_about_themselves() {
    let secured = secured::start().await;
    let path = "/v1/http/gateways/edge-1/report";
    let one = secured.token("gateway-1", json!({ "role": "gateway" })).await;
    let other = secured.token("gateway-2", json!({ "role": "gateway" })).await;
    let viewer = secured.token("viewer", json!({ "role": "viewer" })).await;
    let bad = report(&[("0.0.0.0:80", Some("Address already in use"))]);
    assert_eq!(secured.call(&one, "PUT", path, Some(bad.clone())).await.0, 204);
    let (status, list) = secured.call(&viewer, "GET", "/v1/http/gateways", None).await;
    assert_eq!((status, list["gateways"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
    let gateway = &list["gateways"][0];
    assert_eq!((&gateway["name"], &gateway["report"]["revision"]), (&json!("edge-1"), &json!(7)));
    assert_eq!(gateway["problems"], json!(["cannot listen on 0.0.0.0:80: Address already in use"]));

    let (status, problem) = secured.call(&other, "PUT", path, Some(bad.clone())).await;
    assert_eq!(status, 403, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("--name"), "{problem}");
    assert_eq!(secured.call(&viewer, "PUT", path, Some(bad)).await.0, 403);
    let sockets: Vec<_> = (0..1001).map(|_| ("0.0.0.0:80", None)).collect();
    let (status, problem) = secured.call(&one, "PUT", path, Some(report(&sockets))).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/sockets")), "{problem}");
    let mut long = report(&[]);
    long["serves"] = json!(["no-namespace"]);
    assert_eq!(secured.call(&one, "PUT", path, Some(long)).await.0, 422);
}

async fn apply(server: &Server, objects: Value) {
    let (status, answer) = server.call("POST", "/v1/apply", Some(objects)).await;
    assert_eq!(status, 200, "{answer}");
}

async fn tell(server: &Server, report: &Value) {
    let path = "/v1/http/gateways/edge-1/report";
    assert_eq!(server.call("PUT", path, Some(report.clone())).await.0, 204);
}

/// Returns the problems of the status as `impact object reason`.
async fn problems(server: &Server) -> Vec<String> {
    let (_, status) = server.call("GET", "/v1/status", None).await;
    let text = |problem: &Value| {
        let part = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", part("impact"), part("object"), part("reason"))
    };
    status["problems"].as_array().unwrap().iter().map(text).collect()
}

async fn programmed(server: &Server) -> String {
    let (_, gateway) = server.call("GET", "/v1/namespaces/default/gateways/edge", None).await;
    let all = gateway["status"]["conditions"].as_array().unwrap();
    let one = all.iter().find(|one| one["type"] == "Programmed").unwrap();
    format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
}

fn objects() -> Value {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["www.example.org".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2036, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    json!([
        { "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } },
        { "kind": "EndpointSet", "metadata": { "name": "web" },
          "spec": { "service": "web", "endpoints": [{ "address": "10.1.1.1" }] } },
        { "kind": "Certificate", "metadata": { "name": "www" },
          "spec": { "certificate": certificate, "privateKey": key.serialize_pem() } },
        { "kind": "Gateway", "metadata": { "name": "edge" }, "spec": { "listeners": [
            { "name": "http", "port": 80, "protocol": "HTTP" },
            { "name": "https", "port": 443, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "www" }] } }
        ] } },
        { "kind": "HttpRoute", "metadata": { "name": "www" }, "spec": { "parentRefs": [{ "name": "edge" }],
            "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] } }
    ])
}

async fn delete(server: &Server, path: &str) {
    assert_eq!(server.call("DELETE", path, None).await.0, 200, "{path}");
}

/// A Gateway is programmed if a gateway reports that its sockets are open. Gateways need no nodes. A silent gateway, a port in
/// use, a route without endpoints, Service or listener, and a missing Certificate are problems.
#[tokio::test]
async fn problems_of_http_are_in_the_status() {
    let server = support::start().await;
    let all_open = report(&[("0.0.0.0:80", None), ("0.0.0.0:443", None)]);
    apply(&server, objects()).await;
    assert_eq!(programmed(&server).await, "Unknown NoReport");
    assert_eq!(problems(&server).await, [""; 0]);
    tell(&server, &all_open).await;
    assert_eq!(programmed(&server).await, "True Programmed");
    server.source.advance(16);
    assert_eq!(programmed(&server).await, "False NoGateway");
    problems(&server).await;
    // A problem that may pass is listed after some seconds.
    server.source.advance(4);
    assert_eq!(problems(&server).await, ["unreachable Gateway default/edge NoGateway"]);

    tell(&server, &report(&[("0.0.0.0:80", Some("Address already in use")), ("0.0.0.0:443", None)])).await;
    assert_eq!(programmed(&server).await, "False NotListening");
    problems(&server).await;
    server.source.advance(4);
    tell(&server, &report(&[("0.0.0.0:80", Some("Address already in use")), ("0.0.0.0:443", None)])).await;
    assert_eq!(problems(&server).await, ["degraded Gateway default/edge NotListening"]);
    tell(&server, &all_open).await;
    assert_eq!(problems(&server).await, [""; 0]);

    let none = json!({ "kind": "EndpointSet", "metadata": { "name": "web" },
                       "spec": { "service": "web", "endpoints": [] } });
    apply(&server, json!([none])).await;
    let found = problems(&server).await;
    assert!(found.contains(&"unreachable HttpRoute default/www NoEndpoints".to_owned()), "{found:?}");
    delete(&server, "/v1/namespaces/default/services/web").await;
    assert_eq!(problems(&server).await, ["unreachable HttpRoute default/www BackendNotFound"]);
    delete(&server, "/v1/namespaces/default/certificates/www").await;
    let found = problems(&server).await;
    assert!(found.contains(&"degraded Gateway default/edge InvalidCertificateRef".to_owned()), "{found:?}");
    delete(&server, "/v1/namespaces/default/gateways/edge").await;
    assert_eq!(problems(&server).await, ["unreachable HttpRoute default/www NoMatchingParent"]);
}

/// A certificate in use is a problem 14 days before it expires, although nothing else changes. The gateway reports all the time.
#[tokio::test]
async fn the_end_of_a_certificate_is_a_problem() {
    let server = support::start().await;
    let all_open = report(&[("0.0.0.0:80", None), ("0.0.0.0:443", None)]);
    apply(&server, objects()).await;
    tell(&server, &all_open).await;
    assert_eq!(problems(&server).await, [""; 0]);
    let (_, certificate) = server.call("GET", "/v1/namespaces/default/certificates/www", None).await;
    let end: Timestamp = serde_json::from_value(certificate["status"]["notAfter"].clone()).unwrap();
    let now = {
        let (_, overview) = server.call("GET", "/v1/overview", None).await;
        serde_json::from_value::<Timestamp>(overview["at"].clone()).unwrap()
    };
    let left = end.unix_seconds() - now.unix_seconds();
    server.source.advance(left - 14 * 24 * 3600 + 1);
    tell(&server, &all_open).await;
    assert_eq!(problems(&server).await, ["risk Certificate default/www ExpiresSoon"]);
    let path = "/v1/explain/http?url=https%3A%2F%2Fwww.example.org%2F";
    let reason = |explanation: &Value| explanation["reason"].as_str().unwrap().to_owned();
    let (_, explanation) = server.call("GET", path, None).await;
    assert_eq!(reason(&explanation), "rule default/www/0 applies");
    let (_, explanation) =
        server.call("GET", "/v1/explain/http?url=https%3A%2F%2Fa.example.net%2F", None).await;
    let wanted = "; clients reject the connection: certificate default/www is valid for www.example.org, not for a.example.net";
    assert!(reason(&explanation).ends_with(wanted), "{explanation}");
    server.source.advance(14 * 24 * 3600);
    let (_, explanation) = server.call("GET", path, None).await;
    assert!(reason(&explanation).contains("certificate default/www expired at 2036-01-01"), "{explanation}");
    tell(&server, &all_open).await;
    assert_eq!(problems(&server).await, ["unreachable Certificate default/www Expired"]);
    let (_, status) = server.call("GET", "/v1/status", None).await;
    assert!(status["problems"][0]["hint"].as_str().unwrap().contains("new certificate"), "{status}");
}
