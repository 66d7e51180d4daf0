//! Reports of DNS servers over HTTP: a server reports only about itself, and reports have limits.

use serde_json::{Value, json};

use crate::support::secured;

fn report(zones: usize) -> Value {
    let zones: Vec<_> = (0..zones).map(|number| format!("zone{number}.example")).collect();
    json!({ "version": "0.2.0", "connected": true, "revision": 7, "zones": zones,
            "upstreams": [{ "server": "192.0.2.1:53", "state": "failing" }] })
}

/// A report is listed with its problems. Other roles cannot report, another token cannot report for the server, and a report
/// beyond the limits is rejected with the field.
#[tokio::test]
async fn dns_servers_report_only_about_themselves() {
    let secured = secured::start().await;
    let path = "/v1/dns/servers/node-1/report";
    let one = secured.token("dns-1", json!({ "role": "dns-server" })).await;
    let other = secured.token("dns-2", json!({ "role": "dns-server" })).await;
    let viewer = secured.token("viewer", json!({ "role": "viewer" })).await;
    assert_eq!(secured.call(&one, "PUT", path, Some(report(2))).await.0, 204);
    let (status, list) = secured.call(&viewer, "GET", "/v1/dns/servers", None).await;
    assert_eq!((status, list["servers"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
    let server = &list["servers"][0];
    assert_eq!((&server["name"], &server["report"]["revision"]), (&json!("node-1"), &json!(7)));
    assert_eq!(server["problems"], json!(["upstream server 192.0.2.1:53 does not respond"]));

    let (status, problem) = secured.call(&other, "PUT", path, Some(report(1))).await;
    assert_eq!(status, 403, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("--name"), "{problem}");
    assert_eq!(secured.call(&viewer, "PUT", path, Some(report(1))).await.0, 403);
    assert_eq!(secured.call(&other, "PUT", "/v1/dns/servers/node-2/report", Some(report(1))).await.0, 204);

    // The problem is one of the cluster, for users who may see objects without a namespace.
    let (_, status) = secured.call(&viewer, "GET", "/v1/status", None).await;
    let found = status["problems"].as_array().unwrap().iter().find(|one| one["object"] == "DnsServer node-1");
    let found = found.unwrap_or_else(|| panic!("{status}"));
    assert_eq!((&found["reason"], &found["impact"]), (&json!("DnsUpstreamFailing"), &json!("risk")));
    let (_, overview) = secured.call(&viewer, "GET", "/v1/overview", None).await;
    let ids: Vec<_> = overview["problems"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&json!("DnsServer/node-1/Answers")), "{overview}");
    // A second process with the name and the token takes over; the first one is rejected.
    let from = |instance: &str| {
        let mut report = report(1);
        report["instance"] = json!(instance);
        Some(report)
    };
    for (instance, expected) in [("first", 204), ("second", 204), ("first", 403), ("second", 204)] {
        let (status, problem) = secured.call(&one, "PUT", path, from(instance)).await;
        assert_eq!(status, expected, "{instance}: {problem}");
    }
    let (_, list) = secured.call(&viewer, "GET", "/v1/dns/servers", None).await;
    assert_eq!(list["servers"][0]["problems"][0], "another DNS server reports with this name too");
    let (status, problem) = secured.call(&one, "PUT", path, Some(report(101))).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/zones")), "{problem}");
    let mut long = report(1);
    long["version"] = json!("x".repeat(65));
    let (status, problem) = secured.call(&one, "PUT", path, Some(long)).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/version")), "{problem}");
    // Reports are no changes, so the audit log has the rejected ones only.
    let audit = secured.admin("GET", "/v1/audit", None).await.to_string();
    assert!(!audit.contains("\"status\":204,\"path\":\"/v1/dns"), "{audit}");
}
