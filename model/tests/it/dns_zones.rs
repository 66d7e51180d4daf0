//! Answers of the zones of DnsZones (F146) as a table in `tests/dns_zones`, the validation of DnsZones, the owners of
//! host names and their conditions.

use std::{collections::BTreeSet, fs, net::IpAddr, path::Path, sync::Arc};

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    discovery::{
        dns::{DnsQuestion, RecordData, Resolution, ResponseCode, Zone, ZoneChange, answer},
        hostnames::{ClaimDecision, judge_claim},
    },
    kinds::resource::{Kind, Object},
    observed::rollup::dns_zone_status,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    dns::{record_type, settings, show},
    support::{Cluster, of_kind},
};

const OBJECTS: &str = include_str!("../dns_zones/objects.json");
const QUESTIONS: &str = include_str!("../dns_zones/questions.txt");
/// Announced addresses: all of the table except 203.0.113.6.
const ANNOUNCED: [&str; 6] =
    ["203.0.113.1", "2001:db8:1::1", "203.0.113.2", "203.0.113.3", "203.0.113.4", "203.0.113.5"];

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for object in serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap() {
        apply(&mut cluster, object);
    }
    cluster
}

fn apply(cluster: &mut Cluster, mut object: Value) {
    object["apiVersion"] = "tidegate/v1".into();
    cluster.now += 1;
    cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
}

fn announced() -> Option<Arc<BTreeSet<IpAddr>>> {
    Some(Arc::new(ANNOUNCED.iter().map(|text| text.parse().unwrap()).collect()))
}

fn zone(cluster: &Cluster) -> Zone {
    Zone::new(settings(), cluster.snapshot.clone()).with_announced(announced())
}

fn questions() -> Vec<(&'static str, &'static str)> {
    let lines = QUESTIONS.lines().filter(|line| !line.starts_with('#'));
    let split = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        words.map(move |record_type| (name, record_type))
    };
    lines.flat_map(split).collect()
}

fn ask(zone: &Zone, name: &str, word: &str) -> Resolution {
    answer(zone, &DnsQuestion::new(name, record_type(word)))
}

/// F146: the zones of DnsZones are answered with static records and the addresses of Services.
#[test]
fn f146_the_zones_answer_the_questions_of_the_table() {
    let zone = zone(&cluster());
    let found: String =
        questions().iter().map(|(name, word)| show(name, word, &ask(&zone, name, word))).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dns_zones/answers.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&path).unwrap_or_default());
}

/// A zone that received the objects one after another, in any order and with others that were deleted again, gives the
/// same answers as one that was built at once.
#[test]
fn zones_follow_changes_in_any_order() {
    let cluster = cluster();
    let all: Vec<Arc<Object>> = Kind::ALL
        .into_iter()
        .flat_map(|kind| cluster.snapshot.list(kind, None, None).cloned().collect::<Vec<_>>())
        .collect();
    let whole = zone(&cluster);
    let revision = cluster.snapshot.revision();
    let empty = Zone::new(settings(), model::cluster::snapshot::Snapshot::default());
    let put = |object: &Arc<Object>| ZoneChange::Put(Arc::clone(object));
    let forwards = empty.update(revision, all.iter().map(put));
    let backwards = empty.update(revision, all.iter().rev().map(put));
    let removed = forwards.update(revision, all.iter().map(|object| ZoneChange::Removed(object.key())));
    assert_eq!(ask(&removed, "mail.example.org", "A"), Resolution::Foreign);
    let again = removed.update(revision, all.iter().map(put));
    for zone in [forwards, backwards, again] {
        assert_eq!(zone.with_announced(announced()), whole);
    }
}

fn address(zone: &Zone, name: &str) -> Vec<String> {
    let Resolution::Own(answer) = ask(zone, name, "A") else { panic!("{name} is not in a zone") };
    assert_eq!(answer.code, ResponseCode::NoError, "{name}");
    assert_eq!(answer.answers.is_empty(), !answer.authority.is_empty(), "{name}");
    let addresses = answer.answers.iter().map(|record| {
        let RecordData::A(address) = &record.data else { panic!("{record:?}") };
        address.to_string()
    });
    addresses.collect()
}

/// F146: a host name has the announced addresses of its Service, while an endpoint of the family is usable. Before the
/// announced addresses are known, the answer is unknown.
#[test]
fn f146_a_host_name_has_an_address_only_while_it_is_announced_and_has_an_endpoint() {
    let mut cluster = cluster();
    let of = |cluster: &Cluster| address(&zone(cluster), "blog.example.org");
    assert_eq!(of(&cluster), ["203.0.113.4"]);
    let set = |endpoints: Value| json!({ "kind": "EndpointSet", "metadata": { "name": "blog-1", "namespace": "blog" }, "spec": { "service": "blog", "endpoints": endpoints } });
    for unusable in [
        json!([]),
        json!([{ "address": "10.1.0.4", "conditions": { "ready": false } }]),
        json!([{ "address": "10.1.0.4", "weight": 0 }]),
        json!([{ "address": "fd00:1::4" }]),
    ] {
        apply(&mut cluster, set(unusable.clone()));
        assert_eq!(of(&cluster), [""; 0], "{unusable}");
    }
    apply(&mut cluster, set(json!([{ "address": "10.1.0.4" }])));
    assert_eq!(of(&cluster), ["203.0.113.4"]);
    let zone = zone(&cluster);
    assert_eq!(
        address(&zone.with_announced(Some(Arc::default())), "blog.example.org"),
        [""; 0],
        "not announced"
    );
    assert_eq!(ask(&zone.with_announced(None), "blog.example.org", "A"), Resolution::Unknown);
    assert_eq!(address(&zone.with_announced(None), "mail.example.org"), ["192.0.2.25"]);
}

/// The oldest Service in an allowed namespace has a name, whatever others claim it.
#[test]
fn the_owner_of_a_host_name_is_the_oldest_allowed_service() {
    let mut cluster = cluster();
    let key = |text: &str| model::kinds::resource::ServiceKey::try_from(text.to_owned()).unwrap();
    let decide = |cluster: &Cluster, service: &str, name: &str| match judge_claim(
        &cluster.snapshot,
        &key(service),
        name,
    ) {
        ClaimDecision::Owner => "owner".to_owned(),
        ClaimDecision::NoZone => "no zone".to_owned(),
        ClaimDecision::NotAllowed(zone) => format!("not allowed in {zone}"),
        ClaimDecision::Reserved(zone) => format!("reserved in {zone}"),
        ClaimDecision::Taken(owner) => format!("taken by {owner}"),
    };
    let decisions = [
        ("shop/web", "www.example.org", "owner"),
        ("shop/copy", "www.example.org", "taken by shop/web"),
        ("shop/web", "shop.example.com", "no zone"),
        ("shop/web", "fixed.example.org", "reserved in example"),
        ("shop/web", "ns.example.org", "reserved in example"),
        ("shop/web", "x.dev.example.org", "not allowed in inner"),
        ("aaa/thief", "blog.example.org", "not allowed in example"),
        ("blog/blog", "blog.example.org", "owner"),
    ];
    for (service, name, expected) in decisions {
        assert_eq!(decide(&cluster, service, name), expected, "{service} {name}");
    }
    let status = |cluster: &Cluster| {
        let object = cluster.get("dnszones//example");
        serde_json::to_value(dns_zone_status(&cluster.snapshot, object.as_dns_zone().unwrap())).unwrap()
    };
    assert_eq!(
        status(&cluster)["hostnames"],
        json!({ "a.b.example.org": "shop/web", "blog.example.org": "blog/blog",
                "empty.example.org": "blog/empty", "example.org": "shop/web", "silent.example.org": "blog/silent",
                "www.example.org": "shop/web" })
    );
    assert_eq!(
        status(&cluster)["refused"],
        json!({ "copy.example.org": "shop/copy", "fixed.example.org": "shop/web", "ns.example.org": "shop/web", "thief.example.org": "aaa/thief",
                "x.y.example.org": "aaa/thief" })
    );
    // The name passes to the next Service when the owner gives it up.
    let mut web = cluster.get("services/shop/web").to_json();
    web["spec"]["hostnames"] = json!([]);
    apply(&mut cluster, web);
    assert_eq!(decide(&cluster, "shop/copy", "www.example.org"), "owner");
    assert_eq!(address(&zone(&cluster), "www.example.org"), ["203.0.113.2"]);
}

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

#[test]
fn a_dns_zone_is_validated() {
    assert_eq!(violations(json!({ "zone": "example.org", "ttl": 0, "negativeTtl": 86_400 })), [""; 0]);
    for (spec, expected) in invalid_zones() {
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

proptest! {
    /// Every static record of a random zone is found at its name, and no name outside of the zone is answered.
    #[test]
    fn every_static_record_is_found(
        names in proptest::collection::btree_set("[a-z0-9_]{1,8}(\\.[a-z_]{1,5}){0,3}", 1..20),
        asked in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}",
    ) {
        let records: Vec<_> = names.iter().enumerate().map(|(number, name)| {
            json!({ "name": format!("{name}.example.org"), "type": "A", "values": [format!("192.0.2.{number}")] })
        }).collect();
        let mut cluster = Cluster::new();
        apply(&mut cluster, json!({ "kind": "DnsZone", "metadata": { "name": "z" }, "spec": { "zone": "example.org", "records": records } }));
        let zone = zone(&cluster);
        for (number, name) in names.iter().enumerate() {
            prop_assert_eq!(address(&zone, &format!("{name}.example.org")), [format!("192.0.2.{number}")]);
        }
        let Resolution::Own(found) = ask(&zone, &format!("{asked}.example.org"), "TXT") else { panic!() };
        let exists = names.iter().any(|name| name == &asked || name.ends_with(&format!(".{asked}"))) || asked == "ns";
        prop_assert_eq!(found.code == ResponseCode::NoError, exists, "{}", asked);
        prop_assert_eq!(ask(&zone, &format!("{asked}.example.com"), "A"), Resolution::Foreign);
    }
}
