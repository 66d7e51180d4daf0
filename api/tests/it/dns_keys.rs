//! Keys of DnsZones over HTTP: DNS servers receive the secrets, and nobody else.

use serde_json::json;

use crate::support::secured;

const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

/// The secrets are in the list for DNS servers, and neither in other responses nor in the list for other roles.
#[tokio::test]
async fn only_dns_servers_and_administrators_read_the_secrets_of_keys() {
    let secured = secured::start().await;
    let key = json!({ "name": "secondary.example.org", "operations": ["Transfer"], "secret": SECRET });
    let zone = json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": { "zone": "example.org", "keys": [key] } });
    let written = secured.admin("POST", "/v1/apply", Some(json!([zone]))).await;
    let read = secured.admin("GET", "/v1/dnszones/example", None).await;
    assert_eq!(
        read["spec"]["keys"],
        json!([{ "name": "secondary.example.org", "operations": ["Transfer"] }])
    );
    let history = secured.admin("GET", "/v1/history", None).await;
    for answer in [&written, &read, &history] {
        assert!(!answer.to_string().contains(SECRET), "{answer}");
    }
    let dns = secured.token("dns", json!({ "role": "dns-server" })).await;
    let (status, list) = secured.call(&dns, "GET", "/v1/dns/keys", None).await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(
        list["keys"],
        json!([{ "zone": "example.org", "name": "secondary.example.org", "secret": SECRET }])
    );
    assert!(list["revision"].as_u64().is_some_and(|revision| revision > 0), "{list}");
    for role in ["viewer", "operator"] {
        let who = secured.token(role, json!({ "role": role })).await;
        let (status, answer) = secured.call(&who, "GET", "/v1/dns/keys", None).await;
        assert_eq!(status, 403, "{role}: {answer}");
    }
    // The role of DNS servers may watch the state, and change DnsZones only.
    let records = json!({ "spec": { "records": [{ "name": "www.example.org", "type": "A", "values": ["192.0.2.1"] }] } });
    let (status, zone) = secured.call(&dns, "PATCH", "/v1/dnszones/example", Some(records.clone())).await;
    assert_eq!((status, zone["spec"]["keys"].as_array().map(Vec::len)), (200, Some(1)), "{zone}");
    assert_eq!(secured.admin("GET", "/v1/dns/keys", None).await["keys"], list["keys"]);
    assert_eq!(secured.call(&dns, "PATCH", "/v1/namespaces/shop/services/web", Some(records)).await.0, 403);
    assert_eq!(secured.call(&dns, "GET", "/v1/services", None).await.0, 200);
    assert_eq!(secured.call(&dns, "DELETE", "/v1/dnszones/example", None).await.0, 403);
    assert_eq!(secured.call(&dns, "GET", "/v1/tokens", None).await.0, 403);
}
