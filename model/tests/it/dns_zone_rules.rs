//! Validation of DnsZones and of the host names of Services.

use model::admission::{
    admit::Refusal,
    decode::{Expect, decode},
};
use serde_json::{Value, json};

use crate::{
    dns_zones::{apply, cluster},
    support::of_kind,
};

/// Returns the pointers and messages of the violations of a DnsZone.
fn violations(spec: Value) -> Vec<String> {
    let object = of_kind("DnsZone", "example", json!({}), spec);
    let found = decode(&object, &Expect::default()).err().unwrap_or_default();
    found.into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect()
}

/// Returns specs of DnsZones with one violation each, and the beginnings of its pointer and message.
fn invalid_zones() -> Vec<(Value, &'static str)> {
    let record =
        |name: &str, kind: &str, values: Value| json!({ "name": name, "type": kind, "values": values });
    let zone = |records: Value| json!({ "zone": "example.org", "records": records });
    let many: Vec<_> = (0..1001)
        .map(|number| record(&format!("n{number}.example.org"), "A", json!(["192.0.2.1"])))
        .collect();
    let values: Vec<_> = (0..33).map(|number| format!("192.0.2.{number}")).collect();
    vec![
        (json!({ "zone": "10.in-addr.arpa" }), "/spec/zone must not be in in-addr.arpa"),
        (
            json!({ "zone": "*.example.org" }),
            "/spec/zone must not contain `*`: wildcard names are not supported",
        ),
        (json!({ "zone": "example.org." }), "/spec/zone must consist of labels"),
        (json!({ "zone": "example.org", "ttl": 86_401 }), "/spec/ttl must be between 0 and 86400"),
        (json!({ "zone": "example.org", "negativeTtl": 86_401 }), "/spec/negativeTtl must be between"),
        (zone(json!(many)), "/spec/records must have at most 1000 entries"),
        (
            zone(json!([record("www.example.com", "A", json!(["192.0.2.1"]))])),
            "/spec/records/0/name must be example.org or end in",
        ),
        (
            zone(json!([record("*.example.org", "A", json!(["192.0.2.1"]))])),
            "/spec/records/0/name must not contain `*`",
        ),
        (
            zone(json!([record("a.example.org", "A", json!([]))])),
            "/spec/records/0/values must have at least one",
        ),
        (
            zone(json!([record("a.example.org", "A", json!(values))])),
            "/spec/records/0/values must have at most 32",
        ),
        (
            zone(json!([record("a.example.org", "A", json!(["2001:db8::1"]))])),
            "/spec/records/0/values/0 must be an IPv4",
        ),
        (
            zone(json!([record("a.example.org", "AAAA", json!(["192.0.2.1"]))])),
            "/spec/records/0/values/0 must be an IPv6",
        ),
        (
            zone(json!([record("a.example.org", "A", json!(["192.0.2.1", "192.0.2.1"]))])),
            "/spec/records/0/values/1 must not repeat",
        ),
        (
            zone(json!([record("a.example.org", "SRV", json!(["1 2 www.example.org"]))])),
            "/spec/records/0/values/0 must be `PRIORITY",
        ),
        (
            zone(json!([record("a.example.org", "SRV", json!(["1 2 70000 www.example.org"]))])),
            "/spec/records/0/values/0 must begin with three",
        ),
        (
            zone(json!([record("a.example.org", "MX", json!(["mail.example.org"]))])),
            "/spec/records/0/values/0 must be `PREFERENCE",
        ),
        (
            zone(json!([record("a.example.org", "TXT", json!(["é"]))])),
            "/spec/records/0/values/0 must have 1 to 1024",
        ),
        (
            zone(json!([record("a.example.org", "TXT", json!(["x".repeat(1025)]))])),
            "/spec/records/0/values/0 must have 1 to 1024",
        ),
        (
            zone(json!([record("a.example.org", "CNAME", json!(["b.example.org", "c.example.org"]))])),
            "/spec/records/0/values must have exactly one",
        ),
        (
            zone(json!([record("example.org", "CNAME", json!(["b.example.org"]))])),
            "/spec/records/0/type must not be CNAME at example.org",
        ),
        (
            zone(json!([record("ns.example.org", "CNAME", json!(["b.example.org"]))])),
            "/spec/records/0/type must not be CNAME at ns.example.org",
        ),
        (
            zone(json!([
                record("a.example.org", "A", json!(["192.0.2.1"])),
                record("a.example.org", "CNAME", json!(["b.example.org"]))
            ])),
            "/spec/records/1/type must be the only record of a.example.org, which also has A",
        ),
        (
            zone(json!([
                record("a.example.org", "A", json!(["192.0.2.1"])),
                record("a.example.org", "A", json!(["192.0.2.2"]))
            ])),
            "/spec/records/1/name must not repeat a.example.org A",
        ),
        (zone(json!([record("a.example.org", "NS", json!(["b.example.org"]))])), "/spec/records/0/type"),
        (
            zone(json!([{ "name": "a.example.org", "type": "A", "values": ["192.0.2.1"], "ttl": 86_401 }])),
            "/spec/records/0/ttl must be",
        ),
    ]
}

/// Returns specs with invalid transfers, as [`invalid_zones`].
fn invalid_transfers() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({ "zone": "example.org", "transfer": { "allow": [] } }),
            "/spec/transfer/allow must have at least one network",
        ),
        (
            json!({ "zone": "example.org", "transfer": { "allow": ["::/0"], "notify": ["ns.example.org"] } }),
            "/spec/transfer/notify/0 must be an address",
        ),
        (
            json!({ "zone": "example.org", "transfer": { "allow": ["::/0"], "notify": ["192.0.2.1", "192.0.2.1:53"] } }),
            "/spec/transfer/notify/1 must not repeat",
        ),
    ]
}

#[test]
fn a_dns_zone_is_validated() {
    assert_eq!(violations(json!({ "zone": "example.org", "ttl": 0, "negativeTtl": 86_400 })), [""; 0]);
    for (spec, expected) in [invalid_zones(), invalid_transfers()].concat() {
        let found = violations(spec.clone());
        assert_eq!(found.len(), 1, "{expected}: {found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {found:?}");
    }
}

#[test]
fn two_dns_zones_cannot_have_one_zone_and_the_error_names_the_other() {
    let mut cluster = cluster();
    let second = of_kind("DnsZone", "second", json!({}), json!({ "zone": "example.org" }));
    let Err(Refusal::Invalid(found)) = cluster.apply(&second) else { panic!("admitted") };
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("DnsZone example has example.org"), "{found:?}");
    // The zone is free again when its DnsZone has another one.
    let mut first = cluster.get("dnszones//example").to_json();
    first["spec"] = json!({ "zone": "example.net" });
    apply(&mut cluster, first);
    cluster.apply(&second).unwrap();
}

#[test]
fn host_names_are_validated() {
    let violations = |spec: Value| {
        let object = of_kind("Service", "web", json!({}), spec);
        let found = decode(&object, &Expect::default()).err().unwrap_or_default();
        found.into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect::<Vec<_>>()
    };
    let names: Vec<_> = (0..65).map(|number| format!("n{number}.example.org")).collect();
    let ports = json!([{ "port": 80 }]);
    for (kind, names, expected) in [
        (
            "ClusterIP",
            json!(["a.example.org"]),
            "/spec/hostnames must be left out unless type is LoadBalancer",
        ),
        ("LoadBalancer", json!(names), "/spec/hostnames must have at most 64"),
        ("LoadBalancer", json!(["a.example.org", "a.example.org"]), "/spec/hostnames/1 must not repeat"),
        ("LoadBalancer", json!(["*.example.org"]), "/spec/hostnames/0 must not contain `*`"),
        ("LoadBalancer", json!(["A.example.org"]), "/spec/hostnames/0 must consist of lower-case"),
    ] {
        let found = violations(json!({ "type": kind, "hostnames": names, "ports": ports }));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {found:?}");
    }
}
