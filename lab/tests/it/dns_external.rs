//! Webhook provider of `tidegate-dns` for ExternalDNS, with the requests that ExternalDNS sends.

use lab::cluster::{control::Http, deployment::Cluster};
use serde_json::{Value, json};

use crate::discovery::Dns;

/// Argument with which ExternalDNS may change the zone of the test.
pub(crate) const ARGUMENT: &str = "--external-dns-zone=example.org";
/// Media type of the protocol.
const MEDIA_TYPE: &str = "application/external.dns.webhook+json;version=1";

/// ExternalDNS lists the zones and their records, and its changes are writes of the DnsZone with its name as the author.
/// Changes outside of the zones, or of names of Services, are rejected.
pub(crate) fn external_dns_changes_are_writes(cluster: &Cluster, dns: &Dns) {
    let provider = Http::new(&dns.namespace, "127.0.0.1:8888".parse().unwrap());
    let get = |path: &str| provider.get(path).unwrap().expect(200).unwrap();
    let post = |path: &str, body: Value| {
        provider.send("POST", path, &[("content-type", MEDIA_TYPE)], body.to_string()).unwrap()
    };
    assert_eq!(get("/"), json!({ "include": ["example.org"] }));
    let web = |target: &str| json!({ "dnsName": "app.example.org", "recordType": "A", "targets": [target], "recordTTL": 60 });
    let owner = json!({ "dnsName": "a-app.example.org", "recordType": "TXT", "targets": ["\"heritage=external-dns\""], "recordTTL": 60 });
    let adjusted = post("/adjustendpoints", json!([web("192.0.2.50"), &owner]));
    assert_eq!(adjusted.json(), json!([web("192.0.2.50"), &owner]));
    let created = post("/records", json!({ "create": [web("192.0.2.50"), &owner] }));
    assert_eq!(created.status, 204, "{}", created.text);
    let address = |address: &str| format!("  NOERROR\n  answer app.example.org 60 A {address}");
    assert_eq!(dns.one("app.example.org", "A"), address("192.0.2.50"));
    let listed = get("/records");
    for endpoint in [web("192.0.2.50"), owner.clone()] {
        assert!(listed.as_array().unwrap().contains(&endpoint), "{endpoint} in {listed}");
    }
    let write = &cluster.api.get_json("/v1/history?limit=1").unwrap()["items"][0];
    assert_eq!(write["author"], "external-dns", "{write}");
    let changes =
        json!({ "updateOld": [web("192.0.2.50")], "updateNew": [web("192.0.2.51")], "delete": [&owner] });
    assert_eq!(post("/records", changes).status, 204);
    assert_eq!(dns.one("app.example.org", "A"), address("192.0.2.51"));
    for name in ["app.example.com", "shop.example.org"] {
        let mut outside = web("192.0.2.50");
        outside["dnsName"] = name.into();
        assert_eq!(post("/records", json!({ "create": [outside] })).status, 400, "{name}");
    }
    assert_eq!(post("/records", json!({ "delete": [web("192.0.2.51")] })).status, 204);
    assert!(dns.one("app.example.org", "A").starts_with("  NXDOMAIN"));
}
