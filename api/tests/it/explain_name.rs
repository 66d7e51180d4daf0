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
