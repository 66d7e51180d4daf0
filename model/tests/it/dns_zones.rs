//! Answers of the zones of DnsZones (F146) as a table in `tests/dns_zones`, the validation of DnsZones, the owners of
//! host names and their conditions.

use std::{collections::BTreeSet, fs, net::IpAddr, path::Path, sync::Arc};

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    cluster::change::ObjectChange,
    discovery::{
        dns::{
            Answer, ClientView, DnsQuestion, RecordData, RecordType, Resolution, ResponseCode,
            TransferDecision, Zone, ZoneNotification, answer, answer_in, judge_transfer, notifications,
            transfer_records,
        },
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
    let serial = u32::try_from(cluster.snapshot.revision().0).unwrap();
    Zone::new(settings(), cluster.snapshot.clone()).with_announced(announced()).with_external_serial(serial)
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
    let put = |object: &Arc<Object>| ObjectChange::Put(Arc::clone(object));
    let forwards = empty.update(revision, all.iter().map(put));
    let backwards = empty.update(revision, all.iter().rev().map(put));
    let removed = forwards.update(revision, all.iter().map(|object| ObjectChange::Removed(object.key())));
    assert_eq!(ask(&removed, "mail.example.org", "A"), Resolution::Foreign);
    let again = removed.update(revision, all.iter().map(put));
    for zone in [forwards, backwards, again] {
        let zone = zone.with_announced(announced()).with_external_serial(whole.external_serial());
        assert_eq!(zone, whole);
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

/// F146: external clients get answers from the zones of DnsZones that are visible to them, and from no other zone. An
/// alias that leads elsewhere is answered alone.
#[test]
fn f146_external_clients_see_the_zones_of_dns_zones_only() {
    let mut cluster = cluster();
    let of = |cluster: &Cluster, name: &str| {
        answer_in(&zone(cluster), &DnsQuestion::new(name, RecordType::A), ClientView::External)
    };
    let whole = zone(&cluster);
    for name in [
        "mail.example.org",
        "www.example.org",
        "missing.example.org",
        "a.dev.example.org",
        "gone.example.org",
    ] {
        assert_eq!(of(&cluster, name), ask(&whole, name, "A"), "{name}");
    }
    for name in ["web.shop.svc.cluster.local", "cluster.local", "www.example.com", "10.0.96.10.in-addr.arpa"]
    {
        assert_eq!(of(&cluster, name), Resolution::Refused, "{name}");
    }
    for name in ["inside.example.org", "away.example.org"] {
        let Resolution::Own(Answer { answers, chase, .. }) = of(&cluster, name) else { panic!("{name}") };
        assert!(matches!(&answers[..], [alias] if matches!(alias.data, RecordData::Cname(_))), "{answers:?}");
        assert_eq!(chase, None, "{name}");
    }
    let mut inner = cluster.get("dnszones//inner").to_json();
    inner["spec"]["visibility"] = json!("Cluster");
    apply(&mut cluster, inner);
    assert_eq!(of(&cluster, "a.dev.example.org"), Resolution::Refused);
    assert_eq!(address(&zone(&cluster), "a.dev.example.org"), ["192.0.2.10", "192.0.2.11"]);
}

/// The serial number of external zones must change with each change of an answer: of announced addresses, usable
/// endpoints, records and host names. Other changes leave it.
#[test]
fn changes_of_answers_in_external_zones_are_noted() {
    let mut cluster = cluster();
    let mut known = zone(&cluster);
    let mut changes = |cluster: &mut Cluster, object: Value| {
        let before = cluster.snapshot.clone();
        apply(cluster, object);
        let put = Kind::ALL.into_iter().flat_map(|kind| cluster.snapshot.list(kind, None, None).cloned());
        let put = put.filter(|object| before.get(&object.key()) != Some(object)).map(ObjectChange::Put);
        let next = known.update(cluster.snapshot.revision(), put.collect::<Vec<_>>());
        let has_changes = next.has_external_changes();
        known = next.with_external_serial(1);
        has_changes
    };
    let set = |name: &str, ready: bool| {
        json!({ "kind": "EndpointSet", "metadata": { "name": format!("{name}-1"), "namespace": "blog" },
                "spec": { "service": name, "endpoints": [{ "address": "10.1.0.4", "conditions": { "ready": ready } }] } })
    };
    let other = |ports: Value| json!({ "kind": "Service", "metadata": { "name": "other", "namespace": "blog" }, "spec": { "clusterIP": "None", "ports": ports } });
    assert!(!changes(&mut cluster, other(json!([{ "port": 80 }]))), "a Service without host names");
    assert!(!changes(&mut cluster, set("other", false)), "an endpoint of such a Service");
    assert!(!changes(&mut cluster, set("blog", true)), "an endpoint that was usable before");
    assert!(changes(&mut cluster, set("blog", false)), "the last endpoint of a Service with a host name");
    assert!(changes(&mut cluster, set("blog", true)), "its return");
    let mut blog = cluster.get("services/blog/blog").to_json();
    blog["spec"]["hostnames"] = json!(["blog.example.org"]);
    assert!(changes(&mut cluster, blog), "fewer host names");
    let mut blog = cluster.get("services/blog/blog").to_json();
    blog["metadata"]["labels"] = json!({ "app": "blog" });
    assert!(!changes(&mut cluster, blog), "a label");
    let mut inner = cluster.get("dnszones//inner").to_json();
    inner["spec"]["ttl"] = json!(77);
    assert!(changes(&mut cluster, inner), "a DnsZone");
    assert!(!known.with_announced(announced()).has_external_changes());
    assert!(known.with_announced(Some(Arc::default())).has_external_changes());
    let removed = known
        .update(cluster.snapshot.revision(), [ObjectChange::Removed(cluster.get("dnszones//inner").key())]);
    assert!(removed.has_external_changes());
}

/// A transferred zone has exactly the records of the answers, and delegates to the DnsZones below.
#[test]
fn a_transferred_zone_has_the_records_of_the_answers() {
    let mut cluster = cluster();
    let mut example = cluster.get("dnszones//example").to_json();
    example["spec"]["transfer"] =
        json!({ "allow": ["192.0.2.53/32", "2001:db8::/64"], "notify": ["192.0.2.53", "[2001:db8::5]:54"] });
    apply(&mut cluster, example);
    let zone = zone(&cluster);
    let judge = |name: &str, client: &str| {
        judge_transfer(&zone, &DnsQuestion::new(name, RecordType::Other), client.parse().unwrap(), None)
    };
    for (name, client) in [("dev.example.org", "192.0.2.53"), ("example.org", "192.0.2.54")] {
        assert_eq!(judge(name, client), TransferDecision::Refused, "{name} {client}");
    }
    for name in ["www.example.org", "cluster.local", "org", ""] {
        assert_eq!(judge(name, "192.0.2.53"), TransferDecision::NotAuthoritative, "{name}");
    }
    let TransferDecision::Allowed(spec, start) = judge("example.org", "2001:db8::7") else { panic!() };
    let records = transfer_records(&zone, spec).unwrap();
    let is_delegation = |record: &&model::discovery::dns::Record| record.owner.ends_with("dev.example.org");
    let delegation: Vec<_> =
        records.iter().filter(is_delegation).map(|record| record.data.to_presentation()).collect();
    assert_eq!(delegation, [("NS", "ns.dev.example.org".to_owned()), ("A", "192.0.2.53".to_owned())]);
    let mut asked = BTreeSet::new();
    for (name, word) in questions().into_iter().filter(|(name, _)| name.ends_with("example.org")) {
        let Resolution::Own(answer) = ask(&zone, name, word) else { continue };
        let own = answer.answers.into_iter().filter(|record| {
            record.owner.ends_with("example.org")
                && !record.owner.ends_with("dev.example.org")
                && !matches!(record.data, RecordData::Soa { .. } | RecordData::AnyRefused)
        });
        asked.extend(own);
    }
    assert!(asked.len() > 15, "{asked:?}");
    assert!(asked.iter().all(|record| records.contains(record)), "{asked:?} {records:?}");
    for record in records.iter().filter(|record| !is_delegation(record)) {
        let (word, _) = record.data.to_presentation();
        let Resolution::Own(answer) = ask(&zone, &record.owner, word) else { panic!("{record:?}") };
        assert!(answer.answers.contains(record), "{record:?}");
    }
    let notification =
        |server: &str| ZoneNotification { server: server.parse().unwrap(), start: start.clone(), key: None };
    assert_eq!(notifications(&zone), [notification("192.0.2.53:53"), notification("[2001:db8::5]:54")]);
    assert_eq!(transfer_records(&zone.with_announced(None), spec), None);
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
