//! Tests of the decision on each question.

use std::{collections::BTreeSet, time::Duration};

use hickory_proto::op::Message;
use model::{
    admission::decode::decode_received, cluster::snapshot::Snapshot, discovery::dns::ZoneSettings,
    primitives::quantity::Revision,
};
use serde_json::json;

use super::*;
use crate::{
    args::UpstreamServer, forward::CacheOptions, keys::KeyRing, message::TtlLimits, update::UpdateQueue,
};

fn forwarder(metrics: &Arc<Metrics>) -> Option<Forwarder> {
    let options = CacheOptions {
        entries_max: 10,
        negative_entries_max: 10,
        ttl_limits: TtlLimits { positive: 60, negative: 60 },
        stale_max: Duration::from_secs(60),
    };
    let tls = tls_trust::Trust::authorities([]).unwrap().client().unwrap().with_no_client_auth();
    let upstream = UpstreamServer::parse("192.0.2.53").unwrap();
    Forwarder::new(vec![upstream], &Arc::new(tls), options, Arc::clone(metrics))
}

/// Creates a responder whose clients of the cluster are in 10.0.0.0/8.
fn responder(zone: Option<Zone>) -> Responder {
    let metrics = Arc::new(Metrics::default());
    let options = ResponderOptions {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        follows_search_path: true,
        control_names: BTreeSet::from(["control.example.net".to_owned()]),
    };
    // The last state stays in use without the sender.
    let (_, zones) = watch::channel(zone.map(Arc::new));
    let (_, keys) = watch::channel(Arc::new(KeyRing::default()));
    let (updates, _) = UpdateQueue::new();
    Responder::new(options, (zones, keys, updates), forwarder(&metrics), metrics)
}

fn zone() -> Zone {
    let objects = [
        json!({ "kind": "DnsZone", "metadata": { "name": "example" },
                "spec": { "zone": "example.org", "transfer": { "allow": ["192.0.2.0/24"] },
                          "records": [{ "name": "www.example.org", "type": "A", "values": ["192.0.2.1"] }] } }),
        json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
                "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } }),
        json!({ "kind": "Workload", "metadata": { "name": "a", "namespace": "other" }, "spec": { "addresses": ["10.1.2.3"] } }),
    ];
    let objects = objects.map(|mut object| {
        object["apiVersion"] = "tidegate/v1".into();
        Arc::new(decode_received(&object).unwrap())
    });
    let settings = ZoneSettings::new("cluster.local".parse().unwrap());
    Zone::new(settings, Snapshot::from_objects(Revision(7), objects)).with_external_serial(9)
}

/// Encodes a question for records of a type.
fn question(name: &str, record_type: u16) -> Vec<u8> {
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
