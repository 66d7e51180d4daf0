//! Answers of the cluster zone (F164), as a table: the objects, the questions and the expected answers are files in
//! `tests/dns`. The end-to-end tests ask a server the same questions.

use std::{fmt::Write as _, fs, path::Path};

use model::{
    cluster::change::ObjectChange,
    discovery::dns::{
        Answer, DnsQuestion, Record, RecordData, RecordType, Resolution, ResponseCode, Zone, ZoneSettings,
        answer, answer_on_search_path,
    },
    kinds::resource::Object,
    primitives::{name::Name, quantity::Revision},
};
use serde_json::{Value, json};

use crate::support::{Cluster, of_kind};

const OBJECTS: &str = include_str!("../dns/objects.json");
const QUESTIONS: &str = include_str!("../dns/questions.txt");

fn objects() -> Vec<Value> {
    serde_json::from_str(OBJECTS).unwrap()
}

pub(crate) fn settings() -> ZoneSettings {
    let servers = vec!["10.96.0.53".parse().unwrap(), "fd00:96::53".parse().unwrap()];
    let reverse = vec!["10.96.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()];
    ZoneSettings { servers, reverse, ..ZoneSettings::new(Name::parse("cluster.local").unwrap()) }
}

pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for mut object in objects() {
        object["apiVersion"] = "tidegate/v1".into();
        cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
    }
    cluster
}

fn zone(cluster: &Cluster) -> Zone {
    Zone::new(settings(), cluster.snapshot.clone())
}

pub(crate) fn record_type(word: &str) -> RecordType {
    match word {
        "A" => RecordType::A,
        "AAAA" => RecordType::Aaaa,
        "CNAME" => RecordType::Cname,
        "NS" => RecordType::Ns,
        "PTR" => RecordType::Ptr,
        "SOA" => RecordType::Soa,
        "SRV" => RecordType::Srv,
        "TXT" => RecordType::Txt,
        "ANY" => RecordType::Any,
        "MX" => RecordType::Mx,
        other => panic!("{other} is not a record type"),
    }
}

/// Returns all questions of the table: names and types.
fn questions() -> Vec<(&'static str, &'static str)> {
    let lines = QUESTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let questions = lines.flat_map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        words.map(move |record_type| (name, record_type))
    });
    questions.collect()
}

fn show_record(section: &str, Record { owner, ttl, data }: &Record) -> String {
    let data = match data {
        RecordData::A(address) => format!("A {address}"),
        RecordData::Aaaa(address) => format!("AAAA {address}"),
        RecordData::Cname(name) => format!("CNAME {name}"),
        RecordData::Ns(name) => format!("NS {name}"),
        RecordData::Ptr(name) => format!("PTR {name}"),
        RecordData::Srv { priority, weight, port, target } => {
            format!("SRV {priority} {weight} {port} {target}")
        }
        // The serial number depends on the number of writes.
        RecordData::Soa { primary, mailbox, serial: _, minimum } => {
            format!("SOA {primary} {mailbox} {minimum}")
        }
        RecordData::Mx { preference, exchange } => format!("MX {preference} {exchange}"),
        RecordData::Txt(text) => format!("TXT \"{text}\""),
        RecordData::AnyRefused => "HINFO \"RFC8482\"".to_owned(),
    };
    format!("  {section} {owner} {ttl} {data}\n")
}

pub(crate) fn show(name: &str, record_type: &str, resolution: &Resolution) -> String {
    let mut text = format!("{name} {record_type}\n");
    let Answer { code, answers, authority, additional, chase } = match resolution {
        Resolution::Own(answer) => answer,
        Resolution::Foreign => return text + "  FOREIGN\n",
        Resolution::Refused => return text + "  REFUSED\n",
        Resolution::Unknown => return text + "  UNKNOWN\n",
    };
    let code = match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::NxDomain => "NXDOMAIN",
    };
    let _ = writeln!(text, "  {code}");
    for (section, records) in [("answer", answers), ("authority", authority), ("additional", additional)] {
        text.extend(records.iter().map(|record| show_record(section, record)));
    }
    if let Some(name) = chase {
        let _ = writeln!(text, "  chase {name}");
    }
    text
}

/// F033, F164: names of Services have the cluster IP, and those of headless Services the addresses of the endpoints.
#[test]
fn f164_the_zone_answers_the_questions_of_the_table() {
    let zone = zone(&cluster());
    let questions = questions();
    assert!(questions.len() >= 180, "{}", questions.len());
    let found: String = questions
        .iter()
        .map(|(name, word)| show(name, word, &answer(&zone, &DnsQuestion::new(name, record_type(word)))))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dns/answers.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&path).unwrap_or_default());
}

/// F164: SRV records of a port with more than 100 endpoints have weight 1, and an address has at most eight names.
#[test]
fn f164_weights_and_names_of_addresses_are_bounded() {
    let mut cluster = Cluster::new();
    let headless = |name: &str| {
        let ports = json!([{ "name": "http", "port": 80 }]);
        of_kind("Service", name, json!({}), json!({ "clusterIP": "None", "ports": ports }))
    };
    let set = |service: &str, endpoints: Vec<Value>| {
        of_kind("EndpointSet", service, json!({}), json!({ "service": service, "endpoints": endpoints }))
    };
    let many = (1..=101).map(|host| json!({ "address": format!("10.1.8.{host}") })).collect();
    cluster.apply_many(&[headless("many"), set("many", many)], None).unwrap();
    for number in 0..9 {
        let (name, endpoint) = (format!("s{number}"), json!({ "address": "10.1.9.1", "hostname": "one" }));
        cluster.apply_many(&[headless(&name), set(&name, vec![endpoint])], None).unwrap();
    }
    let zone = zone(&cluster);
    let answers = |name: &str, word: &str| {
        let text = show(name, word, &answer(&zone, &DnsQuestion::new(name, record_type(word))));
        text.lines().filter(|line| line.trim().starts_with("answer")).map(str::to_owned).collect::<Vec<_>>()
    };
    let ports = answers("_http._tcp.many.default.svc.cluster.local", "SRV");
    assert!(ports.len() == 101 && ports.iter().all(|line| line.contains(" SRV 0 1 80 ")), "{ports:?}");
    assert_eq!(answers("1.9.1.10.in-addr.arpa", "PTR").len(), 8);
}

/// A zone that received the objects one after another, in any order, and other objects that were deleted again, gives
/// the same answers as a zone that was built at once.
#[test]
fn f165_a_zone_follows_changes_in_any_order() {
    let cluster = cluster();
    let all: Vec<std::sync::Arc<Object>> = model::kinds::resource::Kind::ALL
        .into_iter()
        .flat_map(|kind| cluster.snapshot.list(kind, None, None).cloned().collect::<Vec<_>>())
        .collect();
    let whole = zone(&cluster);
    let empty = Zone::new(settings(), model::cluster::snapshot::Snapshot::default());
    let put = |objects: Vec<&std::sync::Arc<Object>>| {
        objects.into_iter().map(|object| ObjectChange::Put(std::sync::Arc::clone(object))).collect::<Vec<_>>()
    };
    let revision = cluster.snapshot.revision();
    let forwards = empty.update(revision, put(all.iter().collect()));
    let backwards = empty.update(revision, put(all.iter().rev().collect()));
    let removed = all.iter().map(|object| ObjectChange::Removed(object.key()));
    let again = forwards.update(Revision(1), removed).update(revision, put(all.iter().collect()));
    for (name, word) in questions() {
        let question = DnsQuestion::new(name, record_type(word));
        let expected = answer(&whole, &question);
        for zone in [&forwards, &backwards, &again] {
            assert_eq!(answer(zone, &question), expected, "{name} {word}");
        }
    }
    let gone = forwards.update(Revision(1), all.iter().map(|object| ObjectChange::Removed(object.key())));
    assert_eq!(gone, empty.update(Revision(1), []));
}

/// F164: the first question of a client's search path gets the answer of the first name of the path that exists, in the
/// namespace of the client's Workload. A client without a Workload, and other questions, get none.
#[test]
fn f164_the_search_path_of_a_client_is_followed() {
    let zone = zone(&cluster());
    let found = |client: &str, name: &str, can_forward: bool| {
        let question = DnsQuestion::new(name, RecordType::A);
        let answer = answer_on_search_path(&zone, &question, client.parse().unwrap(), can_forward)?;
        let text = show(name, "A", &Resolution::Own(answer));
        Some(text.lines().skip(2).map(str::trim).collect::<Vec<_>>().join("; "))
    };
    let (shop, first) = ("10.1.1.10", |name: &str| format!("{name}.shop.svc.cluster.local"));
    let alias = |name: &str, target: &str| format!("answer {} 5 CNAME {target}", first(name));
    let expect = |name: &str, target: &str, more: &str| Some(format!("{}; {more}", alias(name, target)));
    let other = "web.other.svc.cluster.local";
    let address = format!("answer {other} 5 A 10.96.0.20");
    assert_eq!(found(shop, &first("web.other"), true), expect("web.other", other, &address));
    assert_eq!(found(shop, &first("web.other.svc"), false), expect("web.other.svc", other, &address));
    assert_eq!(found(shop, &first(other), false), expect(other, other, &address));
    let external = "www.example.com";
    assert_eq!(found(shop, &first(external), true), expect(external, external, "chase www.example.com"));
    assert_eq!(found(shop, &first(external), false), None);
    for (client, name) in [
        (shop, first("bogus")),
        (shop, first("bogus.other.svc.cluster.local")),
        (shop, "www.example.com.other.svc.cluster.local".to_owned()),
        (shop, "shop.svc.cluster.local".to_owned()),
        ("10.1.6.1", first("web.other")),
        ("192.0.2.1", first("web.other")),
    ] {
        assert_eq!(found(client, &name, true), None, "{client} {name}");
    }
    let text = DnsQuestion::new(&first("web.other"), RecordType::Txt);
    assert_eq!(answer_on_search_path(&zone, &text, shop.parse().unwrap(), true), None);
}
