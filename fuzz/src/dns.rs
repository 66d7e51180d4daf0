//! Properties of DNS messages. The tests of the DNS server check them too, with few inputs.

use std::sync::{Arc, LazyLock};

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{Name, RecordType},
};
use model::{
    admission::decode::{Expect, decode},
    cluster::snapshot::Snapshot,
    discovery::dns::{Resolution, Zone, ZoneSettings, answer},
    primitives::{name, quantity::Revision},
};

use crate::message;

/// Objects of the table with which the cluster zone is tested.
const DNS_OBJECTS: &str = include_str!("../../model/tests/dns/objects.json");
/// Maximum size of a response over UDP in bytes.
const DNS_UDP_BYTES_MAX: usize = 1232;
/// Limits on the times of forwarded responses.
const DNS_TTL_LIMITS: message::TtlLimits = message::TtlLimits { positive: 3600, negative: 300 };

/// Secret of the key that signed the request of the corpus.
const DNS_SECRET: &[u8] = b"0123456789abcdef";
/// Time of this signature in seconds since 1970.
const DNS_SIGNED_AT: u64 = 0x6b0c_6d7f;

/// Cluster zone with the objects of the table, and a DnsZone with records of all types.
static DNS_ZONE: LazyLock<Zone> = LazyLock::new(|| {
    let objects: Vec<serde_json::Value> = serde_json::from_str(DNS_OBJECTS).expect("the file is valid");
    let record = |name: &str, kind: &str, value: &str| serde_json::json!({ "name": name, "type": kind, "values": [value] });
    let zone = serde_json::json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": { "zone": "example.org", "records": [
        record("www.example.org", "A", "192.0.2.1"), record("www.example.org", "AAAA", "2001:db8::1"),
        record("example.org", "MX", "10 www.example.org"), record("a.example.org", "CNAME", "www.example.org"),
        record("_sip._tcp.example.org", "SRV", "0 1 5060 www.example.org"), record("t.example.org", "TXT", "text"),
    ] } });
    let objects = objects.into_iter().chain([zone]).filter_map(|mut object| {
        object["apiVersion"] = "tidegate/v1".into();
        decode(&object, &Expect::default()).ok().map(Arc::new)
    });
    let snapshot = Snapshot::from_objects(Revision(7), objects.collect::<Vec<_>>());
    Zone::new(ZoneSettings::new(name::Name::parse("cluster.local").expect("the name is valid")), snapshot)
});

/// Parses bytes as a DNS request, answers it, and parses them as the response of an upstream server to it.
pub fn dns_message(bytes: &[u8]) {
    let Some((bits, packet)) = bytes.split_first() else { return };
    let (transport, limit) = if bits & 1 == 0 {
        (message::Transport::Udp, DNS_UDP_BYTES_MAX)
    } else {
        (message::Transport::Tcp, usize::from(u16::MAX))
    };
    let check = |response: &[u8]| {
        assert!(response.len() <= limit && response.len() >= 12);
        assert!(response[..2] == packet[..2] && response[2] & 0x80 != 0, "not the response to the request");
        assert!(Message::from_vec(response).is_ok());
    };
    match message::parse(packet, transport, bits & 2 == 0) {
        message::ParseResult::Question(request) => {
            if let Resolution::Own(found) = answer(&DNS_ZONE, &request.question()) {
                check(&request.answer(&found, Vec::new(), usize::from(*bits)));
            }
            direct(packet, transport, &request, check);
            check(&request.any());
            check(&request.fail(ResponseCode::ServFail));
            verify(&request, check);
            let key = request.key();
            let question = key.encode(7).expect("the name was in a message before");
            assert!(Message::from_vec(&question).is_ok());
            // The request as a response, with its records.
            let mut response = packet.to_vec();
            response[2] |= 0x80;
            relay(&request, &key, &response, check);
            relay_direct(packet, transport, &request, &response);
        }
        message::ParseResult::Update(request, _) => {
            check(&request.fail(ResponseCode::Refused));
            verify(&request, check);
        }
        message::ParseResult::Error(response) => check(&response),
        message::ParseResult::Ignored => assert!(packet.len() < 12 || packet[2] & 0x80 != 0),
    }
    let name = Name::from_ascii("www.example.org.").expect("the name is valid");
    let key = message::QuestionKey::plain(&name, RecordType::A);
    let request =
        [packet.get(..2).unwrap_or(&[0, 0]), &key.encode(0).expect("the name is valid")[2..]].concat();
    if let message::ParseResult::Question(request) = message::parse(&request, transport, true) {
        relay(&request, &key, packet, |_| ());
    }
}

/// Answers a request on the direct way, if that is possible: only if the general search has the same records.
fn direct(packet: &[u8], transport: message::Transport, request: &message::Request, check: impl Fn(&[u8])) {
    let mut buffer = [0; message::NAME_BYTES_MAX];
    let Some(plain) = message::PlainRequest::read(packet, transport) else { return };
    let Some(name) = plain.host_name(&mut buffer) else { return };
    assert_eq!(name, request.question().labels.join("."));
    let Some(addresses) = DNS_ZONE.service_addresses(name) else { return };
    let mut response = Vec::new();
    if plain.answer(false, addresses, 0, &mut response) {
        check(&response);
        let Resolution::Own(found) = answer(&DNS_ZONE, &request.question()) else {
            panic!("not in the zone")
        };
        let expected = request.answer(&found, Vec::new(), 0);
        // The flag that the server forwards depends on the input.
        assert!(response[..3] == expected[..3] && response[4..] == expected[4..]);
    } else {
        assert!(response.is_empty());
    }
}

/// Passes a cached response on, on the direct way: the same bytes as on the general way.
fn relay_direct(packet: &[u8], transport: message::Transport, request: &message::Request, response: &[u8]) {
    let Some(plain) = message::PlainRequest::read(packet, transport) else { return };
    let Some(reply) = message::Reply::parse(&request.key(), response, DNS_TTL_LIMITS) else { return };
    for age in [0, 1, u32::MAX] {
        let mut bytes = Vec::new();
        if plain.relay(&reply, age, 1, &mut bytes) {
            let served = message::ServedReply { bytes: reply.aged(age), is_stale: false };
            assert!(bytes == request.relay(served, 1));
        } else {
            assert!(bytes.is_empty());
        }
    }
}

/// Verifies the signature of a request with a secret, with an unknown key, and at another time.
fn verify(request: &message::Request, check: impl Fn(&[u8])) {
    for (secret, now) in [(Some(DNS_SECRET), DNS_SIGNED_AT), (Some(DNS_SECRET), 0), (None, 0)] {
        let is_signed = request.is_signed();
        match request.clone().verify(secret, now) {
            Ok(verified) => {
                assert_eq!(verified.verified_key().is_some(), is_signed);
                check(&verified.fail(ResponseCode::ServFail));
            }
            Err(response) => {
                assert!(is_signed);
                check(&response);
            }
        }
    }
}

/// Passes bytes on as the response of an upstream server: fresh, later, stale, and to a question for a name below.
fn relay(request: &message::Request, key: &message::QuestionKey, response: &[u8], check: impl Fn(&[u8])) {
    let Some(reply) = message::Reply::parse(key, response, DNS_TTL_LIMITS) else { return };
    assert!(reply.lifetime <= DNS_TTL_LIMITS.positive);
    for (bytes, is_stale) in [(reply.aged(0), false), (reply.aged(u32::MAX), false), (reply.expired(), true)]
    {
        let message = Message::from_vec(&bytes).expect("the server has encoded it");
        assert!(message.answers.iter().all(|record| record.ttl <= DNS_TTL_LIMITS.positive));
        assert_eq!(bytes.len(), reply.size());
        let relayed = request.relay(message::ServedReply { bytes, is_stale }, 1);
        assert!(Message::from_vec(&relayed).is_ok());
        check(&relayed);
    }
    if let Ok(name) = key.name.prepend_label("a") {
        let below = message::QuestionKey { name, ..key.clone() };
        if let Some(bytes) = message::denial_below(&reply.aged(0), &below) {
            assert!(Message::from_vec(&bytes).is_ok());
        }
    }
}
