//! Tests of the decision on each question.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hickory_proto::{
    op::Message,
    rr::{RData, Record, rdata::A},
};
use model::{
    admission::decode::{Expect, decode, decode_received},
    cluster::snapshot::Snapshot,
    discovery::dns::{RecordType, ZoneSettings, answer},
    primitives::quantity::Revision,
};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use super::*;
use crate::{
    args::{UpstreamPolicy, UpstreamSetting},
    forward::CacheOptions,
    keys::KeyRing,
    message::TtlLimits,
    update::UpdateQueue,
};

fn forwarder(metrics: &Arc<Metrics>, upstream: &str) -> Option<Forwarder> {
    let options = CacheOptions {
        entries_max: 10,
        negative_entries_max: 10,
        ttl_limits: TtlLimits { positive: 60, negative: 60 },
        stale_max: Duration::from_secs(60),
    };
    let tls = tls_trust::Trust::authorities([]).unwrap().client().unwrap().with_no_client_auth();
    let upstream = vec![UpstreamSetting::parse(upstream).unwrap()];
    Forwarder::new((upstream, UpstreamPolicy::Sequential), &Arc::new(tls), options, Arc::clone(metrics))
}

/// Creates a responder whose clients of the cluster are in 10.0.0.0/8.
pub(crate) fn responder(zone: Option<Zone>) -> Responder {
    responder_with(zone, "192.0.2.53")
}

/// Creates a responder as [`responder`], with an upstream server.
fn responder_with(zone: Option<Zone>, upstream: &str) -> Responder {
    let metrics = Arc::new(Metrics::default());
    let options = ResponderOptions {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        follows_search_path: true,
        prefers_near: true,
        control_names: BTreeSet::from(["control.example.net".to_owned()]),
    };
    // The last state stays in use without the sender.
    let (_, zones) = watch::channel(zone.map(Arc::new));
    let (_, keys) = watch::channel(Arc::new(KeyRing::default()));
    let (updates, _) = UpdateQueue::new();
    Responder::new(options, (zones, keys, updates), forwarder(&metrics, upstream), metrics)
}

pub(crate) fn zone() -> Zone {
    let objects = [
        json!({ "kind": "DnsZone", "metadata": { "name": "example" },
                "spec": { "zone": "example.org", "transfer": { "allow": ["192.0.2.0/24"] },
                          "records": [{ "name": "www.example.org", "type": "A", "values": ["192.0.2.1"] }] } }),
        json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
                "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } }),
        json!({ "kind": "Workload", "metadata": { "name": "a", "namespace": "other" }, "spec": { "addresses": ["10.1.2.3"] } }),
    ];
    zone_of(objects)
}

fn zone_of(objects: impl IntoIterator<Item = Value>) -> Zone {
    let objects = objects.into_iter().map(|mut object| {
        object["apiVersion"] = "tidegate/v1".into();
        Arc::new(decode_received(&object).unwrap())
    });
    let settings = ZoneSettings::new("cluster.local".parse().unwrap());
    Zone::new(settings, Snapshot::from_objects(Revision(7), objects)).with_external_serial(9)
}

/// Encodes a question for records of a type.
pub(crate) fn question(name: &str, record_type: u16) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(record_type.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// Returns the step for a question for addresses: the result code, with `RA` if recursion is available, or `FORWARD`.
fn step(responder: &Responder, name: &str, client: &str) -> String {
    match responder.begin(&question(name, 1), client.parse().unwrap(), Transport::Udp) {
        Step::Respond(response) => {
            let message = Message::from_vec(&response).unwrap();
            let recursion = if message.metadata.recursion_available { " RA" } else { "" };
            format!("{:?}{recursion}", message.metadata.response_code)
        }
        Step::Forward(_) => "FORWARD".to_owned(),
        step @ (Step::Transfer(_) | Step::Update(_) | Step::Discard) => format!("{step:?}"),
    }
}

/// F164: before the first state nothing is forwarded, because any name may be in the zone of a DnsZone. Only the names of
/// the control servers are.
#[test]
fn f164_before_the_first_state_nothing_is_forwarded() {
    let responder = responder(None);
    for name in ["web.shop.svc.cluster.local", "www.example.org", "www.example.com", "example.net"] {
        assert_eq!(step(&responder, name, "10.1.1.1"), "ServFail RA", "{name}");
    }
    assert_eq!(step(&responder, "Control.Example.net", "10.1.1.1"), "FORWARD");
    assert_eq!(step(&responder, "control.example.net", "192.0.2.1"), "ServFail");
}

/// F146: external clients get answers from the zones of DnsZones, and nothing is forwarded for them.
#[test]
fn f146_external_clients_get_answers_from_external_zones_only() {
    let responder = responder(Some(zone()));
    let names = ["www.example.org", "web.shop.svc.cluster.local", "www.example.com"];
    let of = |client: &str| names.map(|name| step(&responder, name, client));
    assert_eq!(of("10.1.1.1"), ["NoError RA", "NoError RA", "FORWARD"]);
    assert_eq!(of("198.51.100.1"), ["NoError", "Refused", "Refused"]);
}

/// A zone is transferred over TCP to allowed clients: the start of authority, the records, the start of authority.
#[tokio::test]
async fn a_zone_is_transferred_to_allowed_clients_over_tcp() {
    let responder = responder(Some(zone()));
    let begin = |name: &str, record_type: u16, client: &str, transport: Transport| {
        responder.begin(&question(name, record_type), client.parse().unwrap(), transport)
    };
    let code = |step: Step| {
        let Step::Respond(response) = step else { panic!("{step:?}") };
        let message = Message::from_vec(&response).unwrap();
        (message.metadata.response_code, message.answers.len())
    };
    let (full, incremental) = (252, 251);
    let (allowed, other) = ("192.0.2.9", "10.1.1.1");
    assert_eq!(code(begin("example.org", full, other, Transport::Tcp)), (ResponseCode::Refused, 0));
    assert_eq!(code(begin("example.com", full, allowed, Transport::Tcp)), (ResponseCode::NotAuth, 0));
    assert_eq!(code(begin("example.org", full, allowed, Transport::Udp)), (ResponseCode::FormErr, 0));
    assert_eq!(code(begin("example.org", incremental, allowed, Transport::Udp)), (ResponseCode::NoError, 1));
    for record_type in [full, incremental] {
        let step = begin("example.org", record_type, allowed, Transport::Tcp);
        let Step::Transfer(job) = step else { panic!("{step:?}") };
        let messages = responder.transfer(*job).await.messages;
        let [message] = &messages[..] else { panic!("{messages:?}") };
        let message = Message::from_vec(message).unwrap();
        assert!(message.metadata.authoritative);
        let types: Vec<_> = message.answers.iter().map(|record| record.record_type().to_string()).collect();
        assert_eq!(types, ["SOA", "NS", "A", "SOA"]);
    }
    // A client that has the newest content gets the start of authority alone.
    let mut current = question("example.org", incremental);
    current[9] = 1;
    current.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0, 0, 0, 0, 9]);
    current.extend([0; 16]);
    let step = responder.begin(&current, allowed.parse().unwrap(), Transport::Tcp);
    assert_eq!(code(step), (ResponseCode::NoError, 1));
}

/// An update without a signature, or of an unknown zone, is rejected before it reaches a control server.
#[test]
fn updates_need_a_key_that_permits_them() {
    let responder = responder(Some(zone()));
    let code = |zone: &str| {
        let mut packet = question(zone, 6);
        // Operation UPDATE.
        packet[2] = 5 << 3;
        let step = responder.begin(&packet, "192.0.2.9".parse().unwrap(), Transport::Tcp);
        let Step::Respond(response) = step else { panic!("{step:?}") };
        assert_eq!(response[2] >> 3 & 0xf, 5);
        Message::from_vec(&response).unwrap().metadata.response_code
    };
    assert_eq!(code("example.org"), ResponseCode::Refused);
    assert_eq!(code("www.example.org"), ResponseCode::NotAuth);
    assert_eq!(code("cluster.local"), ResponseCode::NotAuth);
}

/// With autopath, a client with a Workload is answered or forwarded at the first question of its search path.
#[test]
fn f164_the_search_path_of_a_workload_is_followed() {
    let responder = responder(Some(zone()));
    let names = ["web.shop.other.svc.cluster.local", "www.example.com.other.svc.cluster.local"];
    let of = |client: &str| names.map(|name| step(&responder, name, client));
    assert_eq!(of("10.1.2.3"), ["NoError RA", "FORWARD"]);
    assert_eq!(of("10.1.1.1"), ["NXDomain RA", "NXDomain RA"]);
}

/// F146: with `--nearest`, a client gets those of several load balancer addresses that a node in its failure zone announces, and
/// those announced by BGP. Without such addresses, it gets all.
#[test]
fn f146_clients_get_near_addresses() {
    let node = |name: &str, zone: &str, address: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": { "addresses": [address], "zone": zone } });
    let workload = |name: &str, address: &str, place: (&str, &str)| json!({ "kind": "Workload", "metadata": { "name": name, "namespace": "shop" }, "spec": { "addresses": [address], place.0: place.1 } });
    let address = |address: &str, announcement: Value| json!({ "kind": "Address", "metadata": { "name": address }, "spec": { "address": address, "announcement": announcement } });
    let candidate = |node: &str| json!({ "epoch": 1, "candidates": [{ "node": node, "address": "172.17.8.9", "interfaces": ["eth0"] }] });
    let record = |name: &str, values: &[&str]| json!({ "name": name, "type": "A", "values": values });
    let records = [
        record("two.example.org", &["192.0.2.1", "192.0.2.2"]),
        record("three.example.org", &["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
    ];
    let zone = zone_of([
        json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": { "zone": "example.org", "records": records } }),
        node("node-a", "a", "172.17.8.101"),
        node("node-b", "b", "172.17.8.102"),
        workload("on-a", "10.1.2.10", ("node", "node-a")),
        workload("in-b", "10.1.2.11", ("zone", "b")),
        workload("in-c", "10.1.2.12", ("zone", "c")),
        address("192.0.2.1", candidate("node-a")),
        address("192.0.2.2", candidate("node-b")),
        address("192.0.2.3", json!({ "epoch": 1, "advertisements": ["routers"] })),
    ]);
    let responder = responder(Some(zone));
    let last_bytes = |name: &str, client: &str| {
        let step = responder.begin(&question(name, 1), client.parse().unwrap(), Transport::Udp);
        let Step::Respond(response) = step else { panic!("{step:?}") };
        let answers = Message::from_vec(&response).unwrap().answers;
        let mut last: Vec<_> = answers
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .map(|ip| ip.to_string().pop().unwrap())
            .collect();
        last.sort_unstable();
        last.into_iter().collect::<String>()
    };
    for (client, two, three) in [
        ("10.1.2.10", "1", "13"),
        ("10.1.2.11", "2", "23"),
        ("172.17.8.102", "2", "23"),
        ("10.1.2.12", "12", "3"),
        ("10.9.9.9", "12", "123"),
    ] {
        let found = [last_bytes("two.example.org", client), last_bytes("three.example.org", client)];
        assert_eq!(found, [two, three], "{client}");
    }
}

/// F146: a name with the load balancer addresses of several Services is answered with those of one, in proportion to their weights; without
/// weights, or if all are zero, with all. Services without usable addresses take no part.
#[test]
fn f146_answers_are_divided_by_weight() {
    let service = |name: &str, weight: Option<u16>| {
        let balancer = weight.map(|weight| json!({ "dnsWeight": weight })).unwrap_or(json!({}));
        let ports = json!([{ "port": 80 }]);
        json!({ "kind": "Service", "metadata": { "name": name, "namespace": "shop" }, "spec": { "type": "LoadBalancer", "ports": ports, "loadBalancer": balancer } })
    };
    let address = |last: u8, services: &[&str]| {
        let address = format!("192.0.2.{last}");
        json!({ "kind": "Address", "metadata": { "name": address }, "spec": { "address": address, "services": services, "announcement": { "epoch": 1 } } })
    };
    let record = |name: &str, last: &[u8]| {
        let values: Vec<_> = last.iter().map(|last| format!("192.0.2.{last}")).collect();
        json!({ "name": name, "type": "A", "values": values })
    };
    let records = [
        record("split.example.org", &[1, 2, 3]),
        record("one.example.org", &[2, 4]),
        record("plain.example.org", &[4, 5]),
        record("standby.example.org", &[1, 6]),
        record("off.example.org", &[6, 7]),
        record("mixed.example.org", &[1, 2, 9]),
    ];
    let zone = zone_of([
        json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": { "zone": "example.org", "records": records } }),
        service("few", Some(10)),
        service("many", Some(90)),
        service("default", None),
        service("other", None),
        service("none", Some(0)),
        service("no", Some(0)),
        address(1, &["shop/few"]),
        address(2, &["shop/many"]),
        // The larger weight of those that share an address applies.
        address(3, &["shop/default", "shop/many"]),
        address(4, &["shop/default"]),
        address(5, &["shop/other"]),
        address(6, &["shop/none"]),
        address(7, &["shop/no"]),
    ]);
    let count = |name: &str| {
        let Resolution::Own(found) = answer(&zone, &DnsQuestion::new(name, RecordType::A)) else {
            panic!("{name}")
        };
        let mut counts = BTreeMap::new();
        let mut draws = 0..;
        loop {
            let mut total = 0;
            let draw = draws.next().unwrap();
            let chosen = weighted(&zone, found.clone(), |all| {
                total = all;
                draw
            });
            let mut last: Vec<_> = chosen
                .answers
                .iter()
                .map(|record| record.data.address().unwrap().to_string().pop().unwrap())
                .collect();
            last.sort_unstable();
            *counts.entry(last.into_iter().collect::<String>()).or_insert(0_u32) += 1;
            if draw + 1 >= total {
                return counts
                    .into_iter()
                    .map(|(last, count)| format!("{last}:{count}"))
                    .collect::<Vec<_>>()
                    .join(" ");
            }
        }
    };
    assert_eq!(count("split.example.org"), "1:10 2:90 3:90");
    assert_eq!(count("one.example.org"), "2:90 4:1", "a Service without a weight");
    assert_eq!(count("plain.example.org"), "45:1", "no weights");
    assert_eq!(count("standby.example.org"), "1:10", "a weight of zero");
    assert_eq!(count("off.example.org"), "67:1", "only weights of zero");
    assert_eq!(count("mixed.example.org"), "129:1", "an address of no Service");
    // The responder draws.
    let responder = responder(Some(zone));
    let mut asked = BTreeSet::new();
    while asked.len() < 3 {
        let step =
            responder.begin(&question("split.example.org", 1), "10.9.9.9".parse().unwrap(), Transport::Udp);
        let Step::Respond(response) = step else { panic!("{step:?}") };
        let answers = Message::from_vec(&response).unwrap().answers;
        assert_eq!(answers.len(), 1);
        asked.insert(answers[0].data.ip_addr().unwrap());
    }
}

/// Returns the zone of the table of questions.
fn table_zone() -> Zone {
    let objects: Vec<Value> =
        serde_json::from_str(include_str!("../../../model/tests/dns/objects.json")).unwrap();
    let objects = objects.into_iter().filter_map(|mut object| {
        object["apiVersion"] = "tidegate/v1".into();
        decode(&object, &Expect::default()).ok().map(Arc::new)
    });
    let snapshot = Snapshot::from_objects(Revision(7), objects.collect::<Vec<_>>());
    Zone::new(ZoneSettings::new("cluster.local".parse().unwrap()), snapshot)
}

/// Returns a response without the order of its answers.
fn unordered(response: &[u8]) -> String {
    let mut message = Message::from_vec(response).unwrap();
    message.answers.sort_by_key(ToString::to_string);
    format!("{message:?}")
}

/// Asks on the direct way. Returns the response, or `None` if the question is left to the general way.
fn direct(responder: &Responder, packet: &[u8], client: &str) -> Option<Vec<u8>> {
    let mut response = vec![0xff];
    let is_done = responder.direct().answer(packet, client.parse().unwrap(), &mut response);
    assert_eq!(is_done, response.len() > 1);
    is_done.then(|| response.split_off(1))
}

/// F164: direct answers are those of the general search, for all questions of the table, with and without EDNS and in other
/// spellings.
#[test]
fn f164_direct_answers_are_those_of_the_general_search() {
    let mut responder = responder(Some(table_zone()));
    // With several addresses, the choice of near ones is left to the general way.
    responder.options.prefers_near = false;
    let questions = include_str!("../../../model/tests/dns/questions.txt");
    let names = questions.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).collect();
    let mut answered = 0;
    for (name, record_type) in names.iter().flat_map(|name| [1, 28, 5, 33, 255].map(|kind| (*name, kind))) {
        for payload in [None, Some(100_u16), Some(1232)] {
            for name in [name.to_owned(), name.to_uppercase()] {
                let mut packet = question(&name, record_type);
                if let Some(payload) = payload {
                    packet[11] = 1;
                    packet.extend([0, 0, 41]);
                    packet.extend(payload.to_be_bytes());
                    packet.extend([0; 6]);
                }
                let Some(found) = direct(&responder, &packet, "10.1.1.1") else { continue };
                answered += 1;
                let step = responder.begin(&packet, "10.1.1.1".parse().unwrap(), Transport::Udp);
                let Step::Respond(expected) = step else { panic!("{name}: {step:?}") };
                assert_eq!(unordered(&found), unordered(&expected), "{name}");
                // The view of external clients is another one.
                assert_eq!(direct(&responder, &packet, "192.0.2.1"), None);
            }
        }
    }
    assert!(answered >= 60, "{answered}");
    let counted = responder.metrics.text();
    assert!(counted.contains(&format!("outcome=\"Own\"}} {}", 2 * answered)), "{counted}");
    assert_eq!(responder.names.report().total.questions, 2 * answered);
}

/// A cached response is the same on the direct way: the client's spelling and options, and the time that remains. Other
/// questions are left to the general way.
#[tokio::test]
async fn cached_responses_are_the_same_on_the_direct_way() {
    let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let responder = responder_with(Some(zone()), &upstream.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((size, client)) = upstream.recv_from(&mut buffer).await {
            let mut message = Message::from_vec(&buffer[..size]).unwrap().into_response();
            let owner = message.queries[0].name().clone();
            for last in 1..=2 {
                let data = RData::A(A([192, 0, 2, last].into()));
                message.add_answer(Record::from_rdata(owner.clone(), 60, data));
            }
            upstream.send_to(&message.to_vec().unwrap(), client).await.unwrap();
        }
    });
    let client: IpAddr = "10.1.1.1".parse().unwrap();
    let packet = question("www.Example.com", 1);
    assert_eq!(direct(&responder, &packet, "10.1.1.1"), None);
    let Step::Forward(job) = responder.begin(&packet, client, Transport::Udp) else {
        panic!("not forwarded")
    };
    responder.finish(job).await;
    let mut with_option = [&packet[..], &[0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]].concat();
    with_option[11] = 1;
    let flags = |high: u8, low: u8| {
        let mut packet = question("WWW.example.COM", 1);
        (packet[2], packet[3]) = (high, low);
        packet
    };
    for (packet, is_direct) in [
        (packet, true),
        (flags(1, 0x20), true),
        // Without recursion, with other flags, and with other names and types.
        (flags(0, 0), false),
        (flags(1, 0x10), false),
        (with_option, false),
        (question("example.com", 1), false),
        (question("www.example.com", 255), false),
        (question("www.example.com", 28), false),
    ] {
        let found = direct(&responder, &packet, "10.1.1.1");
        assert_eq!(found.is_some(), is_direct, "{packet:?}");
        if let Some(found) = found {
            let step = responder.begin(&packet, client, Transport::Udp);
            let Step::Respond(expected) = step else { panic!("{step:?}") };
            assert_eq!(found[..32], expected[..32]);
            assert_eq!(unordered(&found), unordered(&expected));
        }
    }
    assert!(responder.metrics.text().contains("outcome=\"Cached\"} 4"), "{}", responder.metrics.text());
}
