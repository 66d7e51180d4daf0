//! Dynamic updates of DnsZones (RFC 2136): prerequisites, changes, and the records that cannot be changed.

use std::{collections::BTreeSet, sync::Arc};

use model::discovery::dns::{
    Prerequisite, Record, RecordChange, RecordData, RecordType, UpdateError, Zone, ZoneUpdate, apply_update,
};
use serde_json::{Value, json};

use crate::{dns::settings, support::Cluster};

/// Returns the zone `example.org` with static records, a Service with the name `shop.example.org`, and a DnsZone below.
fn zone() -> Zone {
    let mut cluster = Cluster::new();
    let records = json!([
        { "name": "www.example.org", "type": "A", "ttl": 60, "values": ["192.0.2.1", "192.0.2.2"] },
        { "name": "www.example.org", "type": "TXT", "values": ["one"] },
        { "name": "alias.example.org", "type": "CNAME", "values": ["www.example.org"] },
        { "name": "six.example.org", "type": "AAAA", "values": ["2001:db8:0::1"] },
    ]);
    for mut object in [
        json!({ "kind": "DnsZone", "metadata": { "name": "example" },
                "spec": { "zone": "example.org", "allowedNamespaces": ["shop"], "records": records } }),
        json!({ "kind": "DnsZone", "metadata": { "name": "inner" }, "spec": { "zone": "inner.example.org" } }),
        json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
                "spec": { "type": "LoadBalancer", "hostnames": ["shop.example.org"], "ports": [{ "port": 80 }] } }),
    ] {
        object["apiVersion"] = "tidegate/v1".into();
        cluster.apply(&object).unwrap();
    }
    Zone::new(settings(), cluster.snapshot).with_announced(Some(Arc::default()))
}

/// Makes an update and returns the static records with their times to live.
fn update(prerequisites: Vec<Prerequisite>, changes: Vec<RecordChange>) -> Result<Vec<String>, UpdateError> {
    let zone = zone();
    let (_, spec) = zone.snapshot().dns_zone_of("example.org").unwrap();
    let records = apply_update(&zone, spec, &ZoneUpdate { prerequisites, changes })?;
    let show = |record: &model::kinds::dns_zone::DnsRecord| {
        let ttl = record.ttl.map_or("-".to_owned(), |ttl| ttl.to_string());
        format!("{} {ttl} {} {}", record.name, record.record_type, record.values.join(","))
    };
    Ok(records.iter().map(show).collect())
}

/// Returns the lines of `after` that are not in `before`, with `+`, and the other way round, with `-`.
fn difference(changes: Vec<RecordChange>) -> Vec<String> {
    let (before, after) = (update(vec![], vec![]).unwrap(), update(vec![], changes).unwrap());
    let missing = before.iter().filter(|line| !after.contains(line)).map(|line| format!("-{line}"));
    missing.chain(after.iter().filter(|line| !before.contains(line)).map(|line| format!("+{line}"))).collect()
}

fn name(text: &str) -> String {
    format!("{text}.example.org")
}

fn a(last: u8) -> RecordData {
    RecordData::A([192, 0, 2, last].into())
}

fn add(at: &str, ttl: u32, data: RecordData) -> RecordChange {
    RecordChange::Add(Record { owner: name(at), ttl, data })
}

#[test]
fn records_are_added_and_removed() {
    let text = |text: &str| RecordData::Txt(text.to_owned());
    let six = RecordData::Aaaa("2001:db8::1".parse().unwrap());
    let cases: [(Vec<RecordChange>, Value); 9] = [
        (vec![add("new", 300, a(7))], json!(["+new.example.org 300 A 192.0.2.7"])),
        (
            vec![add("www", 5, a(3))],
            json!([
                "-www.example.org 60 A 192.0.2.1,192.0.2.2",
                "+www.example.org 5 A 192.0.2.1,192.0.2.2,192.0.2.3"
            ]),
        ),
        (
            vec![RecordChange::Remove(name("www"), a(1))],
            json!(["-www.example.org 60 A 192.0.2.1,192.0.2.2", "+www.example.org 60 A 192.0.2.2"]),
        ),
        (vec![RecordChange::Remove(name("www"), a(9)), RecordChange::RemoveName(name("none"))], json!([])),
        // The address is stored in another form.
        (vec![RecordChange::Remove(name("six"), six)], json!(["-six.example.org - AAAA 2001:db8:0::1"])),
        (
            vec![RecordChange::RemoveSet(name("www"), RecordType::Txt), add("www", 90_000, text("two"))],
            json!(["-www.example.org - TXT one", "+www.example.org 86400 TXT two"]),
        ),
        (
            vec![RecordChange::RemoveName(name("www"))],
            json!(["-www.example.org 60 A 192.0.2.1,192.0.2.2", "-www.example.org - TXT one"]),
        ),
        (
            vec![add("alias", 7, RecordData::Cname("other.example.org".into()))],
            json!([
                "-alias.example.org - CNAME www.example.org",
                "+alias.example.org 7 CNAME other.example.org"
            ]),
        ),
        // Texts may have the name of a Service, as registries of other programs do.
        (vec![add("shop", 7, text("owner"))], json!(["+shop.example.org 7 TXT owner"])),
    ];
    for (changes, expected) in cases {
        assert_eq!(json!(difference(changes.clone())), expected, "{changes:?}");
    }
}

/// An alias beside other records, and other records beside an alias, are ignored (RFC 2136 §3.4.2.2).
#[test]
fn an_alias_is_never_beside_other_records() {
    let alias = || RecordData::Cname("other.example.org".to_owned());
    let apex = RecordChange::Add(Record { owner: "example.org".to_owned(), ttl: 1, data: alias() });
    assert!(difference(vec![add("www", 1, alias()), add("alias", 1, a(1)), apex]).is_empty());
    let replaced = difference(vec![RecordChange::RemoveName(name("alias")), add("alias", 1, a(1))]);
    assert_eq!(replaced.last().unwrap(), "+alias.example.org 1 A 192.0.2.1");
}

#[test]
fn prerequisites_are_those_of_the_answers() {
    let set = |values: &[u8]| {
        let values = values.iter().map(|last| a(*last)).collect::<BTreeSet<_>>();
        Prerequisite::SetEquals(name("www"), RecordType::A, values)
    };
    for (prerequisite, expected) in [
        (Prerequisite::NameInUse(name("www")), Ok(())),
        (Prerequisite::NameInUse(name("none")), Err(UpdateError::NameUnused)),
        (Prerequisite::NameInUse(name("alias")), Ok(())),
        (Prerequisite::NameUnused(name("none")), Ok(())),
        (Prerequisite::NameUnused(name("www")), Err(UpdateError::NameInUse)),
        (Prerequisite::NameUnused("example.org".to_owned()), Err(UpdateError::NameInUse)),
        (Prerequisite::SetExists(name("www"), RecordType::Txt), Ok(())),
        (Prerequisite::SetExists(name("www"), RecordType::Mx), Err(UpdateError::SetMissing)),
        // The alias of a name is not a record of another type.
        (Prerequisite::SetExists(name("alias"), RecordType::A), Err(UpdateError::SetMissing)),
        (Prerequisite::SetExists("example.org".to_owned(), RecordType::Soa), Ok(())),
        (Prerequisite::SetMissing(name("www"), RecordType::Aaaa), Ok(())),
        (Prerequisite::SetMissing(name("www"), RecordType::A), Err(UpdateError::SetExists)),
        (set(&[2, 1]), Ok(())),
        (set(&[1]), Err(UpdateError::SetMissing)),
        (set(&[1, 2, 3]), Err(UpdateError::SetMissing)),
        (
            Prerequisite::NameInUse("www.example.com".into()),
            Err(UpdateError::NotInZone("www.example.com".into())),
        ),
    ] {
        let found = update(vec![prerequisite.clone()], vec![add("new", 1, a(1))]).map(drop);
        assert_eq!(found, expected, "{prerequisite:?}");
    }
}

#[test]
fn records_of_services_and_other_zones_are_not_changed() {
    let refused = |change: RecordChange| match update(vec![], vec![add("new", 1, a(1)), change]) {
        Err(UpdateError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let service = "Service shop/web has the name shop.example.org";
    for change in [
        add("shop", 1, a(1)),
        add("shop", 1, RecordData::Cname("www.example.org".to_owned())),
        RecordChange::Remove(name("shop"), a(1)),
        RecordChange::RemoveSet(name("shop"), RecordType::Aaaa),
        RecordChange::RemoveName(name("shop")),
    ] {
        assert_eq!(refused(change.clone()), service, "{change:?}");
    }
    for (change, reason) in [
        (add("new", 1, RecordData::Ns("ns.example.net".to_owned())), "only A, AAAA"),
        (add("*", 1, a(1)), "wildcard"),
    ] {
        assert!(refused(change.clone()).contains(reason), "{change:?}");
    }
    for outside in ["www.example.com", "a.inner.example.org", "inner.example.org"] {
        let change = RecordChange::Add(Record { owner: outside.to_owned(), ttl: 1, data: a(1) });
        assert_eq!(update(vec![], vec![change]), Err(UpdateError::NotInZone(outside.to_owned())));
    }
}
