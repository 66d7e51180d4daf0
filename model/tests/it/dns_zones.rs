//! Answers of the zones of DnsZones (F146) as a table in `tests/dns_zones`, the owners of
//! host names and their conditions.

use std::{collections::BTreeSet, fs, net::IpAddr, path::Path, sync::Arc};

use model::{
    cluster::change::ObjectChange,
    discovery::{
        dns::{
            Answer, ClientView, DnsQuestion, NameQuestion, NameResult, RecordData, RecordType, Resolution,
            ResponseCode, TransferDecision, Zone, ZoneNotification, answer, answer_in, explain_name,
            judge_transfer, notifications, transfer_records,
        },
        hostnames::{ClaimDecision, judge_claim},
    },
    kinds::resource::{Kind, Object, ObjectKey},
    observed::rollup::dns_zone_status,
    primitives::name::{Name, Namespace},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    dns::{record_type, settings, show},
    support::Cluster,
};

const OBJECTS: &str = include_str!("../dns_zones/objects.json");
const QUESTIONS: &str = include_str!("../dns_zones/questions.txt");
/// Announced addresses: all of the table except 203.0.113.6.
const ANNOUNCED: [&str; 9] = [
    "203.0.113.1",
    "2001:db8:1::1",
    "203.0.113.2",
    "203.0.113.3",
    "203.0.113.4",
    "203.0.113.5",
    "203.0.113.7",
    "2001:db8:1::7",
    "203.0.113.8",
];

pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for object in serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap() {
        apply(&mut cluster, object);
    }
    cluster
}

pub(crate) fn apply(cluster: &mut Cluster, mut object: Value) {
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

/// F164: no DnsZone takes the names of Services and pods, nor a shorter one the cluster zone. Other names below the cluster zone may have
/// a DnsZone.
#[test]
fn f164_names_of_services_belong_to_the_cluster() {
    let mut cluster = cluster();
    let ask = |cluster: &Cluster, name: &str| show(name, "A", &ask(&zone(cluster), name, "A"));
    let web = "web.shop.svc.cluster.local";
    let before = ask(&cluster, web);
    assert!(before.contains(" A 10."), "{before}");
    for (number, below) in
        ["svc.cluster.local", "shop.svc.cluster.local", "pod.cluster.local", "local", "db.cluster.local"]
            .iter()
            .enumerate()
    {
        let records = json!([{ "name": format!("x.{below}"), "type": "A", "values": ["192.0.2.1"] }]);
        let spec = json!({ "zone": below, "records": records });
        apply(
            &mut cluster,
            json!({ "kind": "DnsZone", "metadata": { "name": format!("z{number}") }, "spec": spec }),
        );
    }
    assert_eq!(ask(&cluster, web), before);
    assert!(!ask(&cluster, "x.svc.cluster.local").contains("192.0.2.1"));
    assert!(ask(&cluster, "x.db.cluster.local").contains("192.0.2.1"));
    assert!(ask(&cluster, "x.local").contains("192.0.2.1"));
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

/// F146: the host name of an HttpRoute has the announced addresses of the Service with the namespace and name of its Gateway,
/// while an endpoint of the family is usable and the route is attached. The reason names the route.
#[test]
fn f146_the_host_name_of_a_route_follows_its_gateway() {
    let mut cluster = cluster();
    let of = |cluster: &Cluster| address(&zone(cluster), "route.example.org");
    let why = |cluster: &Cluster, name: &str| {
        let question = NameQuestion {
            name: format!("{name}."),
            record_type: RecordType::A,
            client: None,
            namespace: None,
        };
        let attempt = explain_name(&zone(cluster), &question).attempts.remove(0);
        let is_answered = attempt.result == NameResult::Records;
        if is_answered { attempt.records[0].reason.clone() } else { attempt.reason }
    };
    assert_eq!(of(&cluster), ["203.0.113.7"]);
    assert_eq!(
        why(&cluster, "route.example.org"),
        "host name of HttpRoute `shop/www`; Gateway `shop/edge` is published by Service `shop/edge`"
    );
    assert_eq!(
        why(&cluster, "listener.example.org"),
        "host name of Gateway `shop/edge`; Gateway `shop/edge` is published by Service `shop/edge`"
    );
    assert_eq!(
        why(&cluster, "a.b.wild.example.org"),
        "host name `*.wild.example.org` of HttpRoute `shop/www`; Gateway `shop/edge` is published by Service `shop/edge`"
    );
    assert_eq!(
        why(&cluster, "lent.example.org"),
        "host name of Gateway `shop/lent`; Gateway `shop/lent` is published by Service `blog/blog`"
    );
    assert_eq!(
        why(&cluster, "unpublished.example.org"),
        "HttpRoute `shop/unpublished` has the host name, and no load balancer address of the IP family is announced while a \
         usable endpoint has the family; Gateway `shop/bare` is published by Service `shop/bare`"
    );
    for (name, end) in [
        ("detached", "HttpRoute `shop/detached` has it and is attached to no listener with the name"),
        ("stolen", "HttpRoute `aaa/thief` has it and is in a namespace that the DnsZone does not allow"),
    ] {
        let reason = why(&cluster, &format!("{name}.example.org"));
        assert!(reason.ends_with(end), "{reason}");
    }
    let whole = zone(&cluster);
    assert_eq!(address(&whole.with_announced(Some(Arc::default())), "route.example.org"), [""; 0]);
    assert_eq!(ask(&whole.with_announced(None), "route.example.org", "A"), Resolution::Unknown);
    let set = |endpoints: Value| json!({ "kind": "EndpointSet", "metadata": { "name": "edge-1", "namespace": "shop" }, "spec": { "service": "edge", "endpoints": endpoints } });
    apply(&mut cluster, set(json!([{ "address": "10.1.0.7", "conditions": { "ready": false } }])));
    assert_eq!(of(&cluster), [""; 0]);
    apply(&mut cluster, set(json!([{ "address": "10.1.0.7" }])));
    assert_eq!(of(&cluster), ["203.0.113.7"]);
    // Without its Gateway, the older route is without effect, and the name passes to the next one.
    cluster.delete("gateways/shop/edge").unwrap();
    assert_eq!(of(&cluster), ["203.0.113.8"]);
    assert!(why(&cluster, "route.example.org").contains("HttpRoute `shop/later`"));
    assert_eq!(address(&zone(&cluster), "both.example.org"), ["203.0.113.8"]);
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
    let mut www = cluster.get("httproutes/shop/www").to_json();
    www["spec"]["rules"][0]["backendRefs"][0]["port"] = json!(81);
    assert!(!changes(&mut cluster, www), "a rule of a route");
    let mut www = cluster.get("httproutes/shop/www").to_json();
    www["spec"]["hostnames"] = json!(["route.example.org"]);
    assert!(changes(&mut cluster, www), "fewer host names of a route");
    let edge = |address: &str| json!({ "kind": "EndpointSet", "metadata": { "name": "edge-1", "namespace": "shop" }, "spec": { "service": "edge", "endpoints": [{ "address": address }] } });
    assert!(changes(&mut cluster, edge("10.1.0.7")), "the IPv6 endpoint of a Service in front of gateways");
    assert!(!changes(&mut cluster, edge("10.1.0.8")), "another endpoint of the same family");
    let mut gateway = cluster.get("gateways/shop/edge").to_json();
    gateway["spec"]["listeners"][1]["hostname"] = json!("other.example.org");
    assert!(changes(&mut cluster, gateway), "a listener of a Gateway");
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
    let is_transferred = |record: &model::discovery::dns::Record| {
        let above = record.owner.split_once('.').map_or("", |(_, above)| above);
        let aboves = std::iter::successors(Some(above), |name| name.split_once('.').map(|(_, above)| above));
        let wildcards = aboves.map(|above| format!("*.{above}"));
        let mut owners = std::iter::once(record.owner.clone()).chain(wildcards);
        owners.any(|owner| records.contains(&model::discovery::dns::Record { owner, ..record.clone() }))
    };
    assert!(asked.iter().all(is_transferred), "{asked:?} {records:?}");
    let wildcards = records.iter().filter(|record| record.owner.starts_with("*."));
    let wildcards: Vec<_> = wildcards.map(|record| &*record.owner).collect();
    assert_eq!(
        wildcards,
        ["*.alone.example.org", "*.wide.example.org", "*.wild.example.org", "*.wild.example.org"]
    );
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
    let key = |text: &str| {
        if let Some(route) = text.strip_prefix("HttpRoute ") {
            let (namespace, name) = route.split_once('/').unwrap();
            let namespace = Some(Namespace::parse(namespace).unwrap());
            return ObjectKey { kind: Kind::HttpRoute, namespace, name: Name::parse(name).unwrap() };
        }
        model::kinds::resource::ServiceKey::try_from(text.to_owned()).unwrap().object_key()
    };
    let decide = |cluster: &Cluster, claimant: &str, name: &str| match judge_claim(
        &cluster.snapshot,
        &key(claimant),
        name,
    ) {
        ClaimDecision::Owner => "owner".to_owned(),
        ClaimDecision::NoZone => "no zone".to_owned(),
        ClaimDecision::NotAllowed(zone) => format!("not allowed in {zone}"),
        ClaimDecision::Reserved(zone) => format!("reserved in {zone}"),
        ClaimDecision::Taken(owner) => format!("taken by {owner}"),
        ClaimDecision::NotAttached => "not attached".to_owned(),
    };
    let decisions = [
        ("shop/web", "www.example.org", "owner"),
        ("shop/copy", "www.example.org", "taken by Service shop/web"),
        ("shop/web", "shop.example.com", "no zone"),
        ("shop/web", "fixed.example.org", "reserved in example"),
        ("shop/web", "ns.example.org", "reserved in example"),
        ("shop/web", "x.dev.example.org", "not allowed in inner"),
        ("aaa/thief", "blog.example.org", "not allowed in example"),
        ("blog/blog", "blog.example.org", "owner"),
        ("HttpRoute shop/www", "route.example.org", "owner"),
        ("HttpRoute shop/www", "*.wild.example.org", "owner"),
        ("HttpRoute shop/www", "www.example.org", "taken by Service shop/web"),
        ("HttpRoute shop/later", "route.example.org", "taken by HttpRoute shop/www"),
        ("HttpRoute aaa/thief", "route.example.org", "not allowed in example"),
        ("HttpRoute shop/detached", "detached.example.org", "not attached"),
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
        json!({ "*.alone.example.org": "Gateway shop/alone", "*.wide.example.org": "Gateway shop/second",
                "*.wild.example.org": "HttpRoute shop/www", "lent.example.org": "Gateway shop/lent",
                "a.b.example.org": "shop/web", "blog.example.org": "blog/blog",
                "both.example.org": "HttpRoute shop/both", "empty.example.org": "blog/empty", "example.org": "shop/web",
                "guest.example.org": "HttpRoute blog/guest", "late.example.org": "HttpRoute blog/guest",
                "listener.example.org": "Gateway shop/edge", "route.example.org": "HttpRoute shop/www",
                "silent.example.org": "blog/silent", "unpublished.example.org": "HttpRoute shop/unpublished",
                "www.example.org": "shop/web" })
    );
    assert_eq!(
        status(&cluster)["refused"],
        json!({ "copy.example.org": "shop/copy", "detached.example.org": "HttpRoute shop/detached",
                "fixed.example.org": "shop/web", "ns.example.org": "shop/web", "stolen.example.org": "HttpRoute aaa/thief",
                "thief.example.org": "aaa/thief", "x.y.example.org": "aaa/thief" })
    );
    // The name passes to the next Service when the owner gives it up.
    let mut web = cluster.get("services/shop/web").to_json();
    web["spec"]["hostnames"] = json!([]);
    apply(&mut cluster, web);
    assert_eq!(decide(&cluster, "shop/copy", "www.example.org"), "owner");
    assert_eq!(address(&zone(&cluster), "www.example.org"), ["203.0.113.2"]);
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
