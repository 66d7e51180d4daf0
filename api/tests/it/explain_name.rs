//! Tests of the explanation of names over HTTP (F164).

use serde_json::json;

use crate::support;

/// The answer to a name comes with the search path of the client and the reason of each record.
#[tokio::test]
async fn f164_a_name_is_explained_with_its_records() {
    let server = support::start().await;
    let items = json!([
        { "kind": "Service", "metadata": { "name": "web", "namespace": "shop" }, "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } },
        { "kind": "Workload", "metadata": { "name": "client-1", "namespace": "shop" }, "spec": { "addresses": ["10.1.1.10"] } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    let (status, found) = server.call("GET", "/v1/dns/explain?name=web&from=10.1.1.10", None).await;
    assert_eq!(status, 200, "{found}");
    assert_eq!((&found["namespace"], &found["type"]), (&json!("shop"), &json!("A")));
    let record = json!({
        "section": "answer", "name": "web.shop.svc.cluster.local", "ttl": 5, "type": "A", "data": "10.96.0.10",
        "reason": "cluster IP of Service `shop/web`",
    });
    assert_eq!(
        found["attempts"],
        json!([{ "name": "web.shop.svc.cluster.local", "result": "records", "reason": "the name exists", "records": [record] }])
    );
    let path = "/v1/dns/explain?name=web.shop.svc.example.net&domain=example.net&type=aaaa";
    let (_, other) = server.call("GET", path, None).await;
    assert_eq!((&other["attempts"][0]["result"], &other["type"]), (&json!("noRecords"), &json!("AAAA")));
    // The range of cluster IPs is known: an unused address does not exist instead of being forwarded.
    let (_, reverse) =
        server.call("GET", "/v1/dns/explain?name=99.0.96.10.in-addr.arpa.&type=PTR", None).await;
    assert_eq!(reverse["attempts"][0]["result"], json!("noName"), "{reverse}");
    for query in ["name=", "name=web&type=WKS", "type=A", "name=web&from=client-1"] {
        let (status, problem) = server.call("GET", &format!("/v1/dns/explain?{query}"), None).await;
        assert_eq!(status, 400, "{query}: {problem}");
    }
}

/// F146: names of DnsZones are explained: static records with their DnsZone, host names with their Service, and the
/// reason why a host name has no address.
#[tokio::test]
async fn f146_names_of_dns_zones_are_explained() {
    let server = support::start().await;
    let items = json!([
        { "kind": "DnsZone", "metadata": { "name": "example" }, "spec": { "zone": "example.org", "allowedNamespaces": ["shop"],
          "records": [{ "name": "example.org", "type": "MX", "values": ["10 mail.example.org"] }] } },
        { "kind": "AddressPool", "metadata": { "name": "lan" }, "spec": { "addresses": ["192.0.2.0/24"] } },
        { "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
          "spec": { "type": "LoadBalancer", "hostnames": ["www.example.org"], "ports": [{ "port": 80 }] } },
    ]);
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
    let explain = async |query: &str| {
        let (status, found) = server.call("GET", &format!("/v1/dns/explain?name={query}"), None).await;
        assert_eq!(status, 200, "{found}");
        found["attempts"][0].clone()
    };
    let mail = explain("example.org&type=MX").await;
    let record = json!({
        "section": "answer", "name": "example.org", "ttl": 30, "type": "MX", "data": "10 mail.example.org",
        "reason": "record of DnsZone `example`",
    });
    assert_eq!((&mail["result"], &mail["records"]), (&json!("records"), &json!([record])));
    let name = explain("www.example.org").await;
    assert_eq!(name["result"], "noRecords");
    let reason = name["reason"].as_str().unwrap();
    assert!(reason.starts_with("Service `shop/web` has the host name"), "{reason}");
    let missing = explain("other.example.org").await;
    assert_eq!(missing["result"], "noName");
    assert!(missing["reason"].as_str().unwrap().starts_with("DnsZone `example` has no record"), "{missing}");
    assert_eq!(explain("www.example.net").await["result"], "forwarded");
}
