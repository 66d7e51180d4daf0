//! Tests of signatures with requests that `dig` of BIND 9.18 signed.

use model::discovery::dns::{
    Prerequisite, Record, RecordChange, RecordData, RecordType as ZoneRecordType, ZoneUpdate,
};

use super::*;
use crate::message::{ParseResult, Transport, parse};

/// Secret of the key `Secondary.example.org` that signed the requests.
const SECRET: &[u8] = b"0123456789abcdef";
/// Time of the signature with SHA-256 in seconds since 1970.
const SIGNED_AT: u64 = 0x6b0c_6d7f;
/// Questions for the start of authority of `example.org`, without EDNS, signed with SHA-256 and SHA-512.
const REQUESTS: [&str; 2] = [
    "d08801000001000000000001076578616d706c65036f72670000060001097365636f6e64617279076578616d706c65036f72670000fa00ff\
     00000000003d0b686d61632d7368613235360000006b0c6d7f012c0020a5a707fb3a6ca998fb6d80286f5bb2000e98511f0d65f44282ec54\
     f256891e09d08800000000",
    "355a01000001000000000001076578616d706c65036f72670000060001097365636f6e64617279076578616d706c65036f72670000fa00ff\
     00000000005d0b686d61632d7368613531320000006b0c6d80012c0040768f3bb3d0956f6e8a9c407644614be1bd0b7f56709fdff727818b\
     601ebfd5dfa87d06d2311a6a56d8f766793e254d64a7b873a23c0cebeb8e90fa03877fd4c1355a00000000",
];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn request(packet: &[u8]) -> Option<Request> {
    match parse(packet, Transport::Tcp, false) {
        ParseResult::Question(request) => Some(request),
        ParseResult::Update(..) | ParseResult::Error(_) | ParseResult::Ignored => None,
    }
}

/// Returns the result code, the error of the signature, the size of its hash and its other data.
fn rejection(packet: &[u8], secret: Option<&[u8]>, now: u64) -> (ResponseCode, u16, usize, Vec<u8>) {
    let response = request(packet).unwrap().verify(secret, now).unwrap_err();
    let message = Message::from_vec(&response).unwrap();
    let place = places(&response).last().unwrap();
    let (_, fields, mac) = read_fields(&response[place.data]).unwrap();
    assert_eq!(fields.id, message.metadata.id);
    (message.metadata.response_code, fields.error, mac.len(), fields.other)
}

#[test]
fn a_request_that_dig_signed_is_valid_within_300_seconds() {
    for hex in REQUESTS {
        let packet = bytes(hex);
        let claimed = request(&packet).unwrap();
        assert_eq!(claimed.claimed_key().as_deref(), Some("secondary.example.org"));
        assert_eq!(claimed.verified_key(), None);
        for now in [SIGNED_AT - 298, SIGNED_AT, SIGNED_AT + 300] {
            let valid = request(&packet).unwrap().verify(Some(SECRET), now).unwrap();
            assert_eq!(valid.verified_key(), Some("secondary.example.org"));
        }
    }
}

#[test]
fn invalid_signatures_have_the_errors_of_the_rfc() {
    let packet = bytes(REQUESTS[0]);
    let not_auth = ResponseCode::NotAuth;
    assert_eq!(rejection(&packet, None, SIGNED_AT), (not_auth, 17, 0, vec![]));
    assert_eq!(rejection(&packet, Some(b"another secret 1"), SIGNED_AT), (not_auth, 16, 0, vec![]));
    let late = SIGNED_AT + 301;
    assert_eq!(rejection(&packet, Some(SECRET), late), (not_auth, 18, 32, late.to_be_bytes()[2..].to_vec()));
}

/// Returns the request with the first `size` bytes of its hash.
fn with_truncated_hash(size: u8) -> Vec<u8> {
    let packet = bytes(REQUESTS[0]);
    let hash = packet.len() - 6 - 32;
    let mut short = [&packet[..hash + usize::from(size)], &packet[hash + 32..]].concat();
    short[hash - 1] = size;
    let data_size = hash - 10 - 13 - 2;
    assert_eq!(short[data_size..data_size + 2], [0, 61]);
    short[data_size + 1] -= 32 - size;
    short
}

/// A hash of at least half of its size is valid, and the responses have a hash of the same size. A shorter one is malformed.
#[test]
fn a_truncated_hash_is_valid_from_half_of_its_size() {
    for size in [16, 20, 31] {
        let packet = with_truncated_hash(size);
        let valid = request(&packet).unwrap().verify(Some(SECRET), SIGNED_AT).unwrap();
        let response = valid.fail(ResponseCode::Refused);
        let place = places(&response).last().unwrap();
        let (_, _, mac) = read_fields(&response[place.data.clone()]).unwrap();
        assert_eq!(mac.len(), usize::from(size));
        let signed = [&response[..10], &[0, 0], &response[12..place.owner.start]].concat();
        let mut name = b"\x09secondary\x07example\x03org\0".to_vec();
        name.extend(CLASS_AND_TTL);
        name.extend(b"\x0bhmac-sha256\0");
        let request_mac = &packet[packet.len() - 6 - usize::from(size)..packet.len() - 6];
        let timers = [&SIGNED_AT.to_be_bytes()[2..], &300_u16.to_be_bytes(), &[0; 4]].concat();
        let covered = [&[0, size][..], request_mac, &signed, &name, &timers].concat();
        let whole = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), &covered);
        assert_eq!(mac, whole.as_ref()[..usize::from(size)]);
        let mut changed = packet.clone();
        let last = changed.len() - 7;
        changed[last] ^= 1;
        assert_eq!(rejection(&changed, Some(SECRET), SIGNED_AT).1, 16);
    }
    for size in [0, 10, 15] {
        let response =
            request(&with_truncated_hash(size)).unwrap().verify(Some(SECRET), SIGNED_AT).unwrap_err();
        let message = Message::from_vec(&response).unwrap();
        assert_eq!((message.metadata.response_code, message.additionals.len()), (ResponseCode::FormErr, 0));
    }
}

/// A signed request is valid for a server, whose signed response is valid for the client. Other responses are not.
#[test]
fn a_signed_request_and_its_response_are_valid() {
    let mut message =
        Message::new(7, hickory_proto::op::MessageType::Query, hickory_proto::op::OpCode::Query);
    message.add_query(hickory_proto::op::Query::query(
        Name::from_ascii("example.org.").unwrap(),
        RecordType::SOA,
    ));
    let mut signer = Signer::of_request("secondary.example.org", SECRET, 7, SIGNED_AT).unwrap();
    let packet = signer.sign(message.to_vec().unwrap());
    assert!(request(&packet).unwrap().verify(Some(b"another secret 1"), SIGNED_AT).is_err());
    let received = request(&packet).unwrap().verify(Some(SECRET), SIGNED_AT).unwrap();
    let response = received.fail(ResponseCode::NoError);
    let verifies = |signer: &Signer, response: &[u8], now: u64| {
        signer.verifies(response, &Message::from_vec(response).unwrap(), now)
    };
    assert!(verifies(&signer, &response, SIGNED_AT + 300));
    assert!(!verifies(&signer, &response, SIGNED_AT + 301));
    // Without a signature, with an error, to another request and with another key.
    let unsigned = request(&message.to_vec().unwrap()).unwrap().fail(ResponseCode::NoError);
    assert!(!verifies(&signer, &unsigned, SIGNED_AT));
    let late = request(&packet).unwrap().verify(Some(SECRET), SIGNED_AT + 301).unwrap_err();
    assert!(!verifies(&signer, &late, SIGNED_AT));
    let mut other = Signer::of_request("secondary.example.org", SECRET, 7, SIGNED_AT + 1).unwrap();
    other.sign(message.to_vec().unwrap());
    assert!(!verifies(&other, &response, SIGNED_AT));
    let other = Signer { key_name: "other.example.org".to_owned(), ..signer };
    assert!(!verifies(&other, &response, SIGNED_AT));
}

/// No single changed byte leaves a request valid, other than the id, which a forwarder may change.
#[test]
fn a_changed_request_is_not_valid() {
    let packet = bytes(REQUESTS[0]);
    for at in 2..packet.len() {
        let mut changed = packet.clone();
        changed[at] ^= 0x01;
        let accepted = request(&changed).and_then(|request| {
            let is_signed = request.is_signed();
            request.verify(Some(SECRET), SIGNED_AT).ok().filter(|_| is_signed)
        });
        assert!(accepted.is_none(), "byte {at}");
    }
}

/// The signature of each further message of a response covers the one before.
#[test]
fn the_messages_of_a_transfer_are_chained() {
    let request = request(&bytes(REQUESTS[0])).unwrap().verify(Some(SECRET), SIGNED_AT).unwrap();
    let mut signer = request.signer.unwrap();
    let (first, second) = (signer.sign(vec![0; 12]), signer.sign(vec![0; 12]));
    assert_ne!(first, second);
    let start = second.len() - first.len();
    assert_eq!(start, 0, "both have a whole signature");
    let mac = |message: &[u8]| read_fields(&message[12 + 23 + 10..]).unwrap().2;
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let timers = [&SIGNED_AT.to_be_bytes()[2..], &300_u16.to_be_bytes()].concat();
    let covered = [&[0, 32][..], &mac(&first), &[0; 12], &timers].concat();
    assert!(hmac::verify(&key, &covered, &mac(&second)).is_ok());
}

/// Prerequisites and changes of an update that `nsupdate` of BIND 9.18 signed.
#[test]
fn an_update_that_nsupdate_signed_is_read() {
    let packet = bytes(
        "177a28000001000200030001076578616d706c65036f72670000060001036e6577c00c00ff00fe00000000000003777777c00c0001000100\
         0000000004c0000201c01d000100010000003c0004c0000207036f6c64c00c001000ff000000000000c02d000100fe000000000004c00002\
         090464646e73076578616d706c65036f72670000fa00ff00000000003d0b686d61632d7368613235360000006b0c6d81012c0020d29a6236\
         f3eee413b4c9df25544594f617fdb5ca378d1f4047254c0a32f08407177a00000000",
    );
    let parsed = parse(&packet, Transport::Udp, false);
    let ParseResult::Update(request, update) = parsed else { panic!("{parsed:?}") };
    let request = request.verify(Some(SECRET), SIGNED_AT + 2).unwrap();
    assert_eq!(request.verified_key(), Some("ddns.example.org"));
    assert_eq!(request.question().labels, ["example", "org"]);
    let name = |label: &str| format!("{label}.example.org");
    let a = |last| RecordData::A([192, 0, 2, last].into());
    assert_eq!(
        update,
        ZoneUpdate {
            prerequisites: vec![
                Prerequisite::NameUnused(name("new")),
                Prerequisite::SetEquals(name("www"), ZoneRecordType::A, [a(1)].into()),
            ],
            changes: vec![
                RecordChange::Add(Record { owner: name("new"), ttl: 60, data: a(7) }),
                RecordChange::RemoveSet(name("old"), ZoneRecordType::Txt),
                RecordChange::Remove(name("www"), a(9)),
            ],
        }
    );
    // A prerequisite with a time to live is malformed (RFC 2136 §3.2.4).
    let mut malformed = packet.clone();
    malformed[12 + 17 + 6 + 7] = 1;
    assert!(matches!(parse(&malformed, Transport::Udp, false), ParseResult::Error(_)));
}

#[test]
fn a_record_after_the_signature_is_malformed() {
    let mut packet = bytes(REQUESTS[0]);
    packet[11] = 2;
    packet.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    assert!(request(&packet).is_none());
}
