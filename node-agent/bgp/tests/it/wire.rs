//! Tests that messages are encoded and decoded byte by byte as in the RFCs, and that invalid messages are
//! rejected with the errors that the RFCs define.

use std::{collections::BTreeMap, net::Ipv4Addr};

use bgp::{
    Capability, Family, GracefulRestart, Message, Notification, Open, Refresh, RefreshKind, Role,
    wire::{Context, DecodedMessage, decode, decode_capabilities, encode, frame_length},
};

use crate::messages::{EXTERNAL, KEEPALIVE, NOTIFICATION, OPEN, REFRESH, UPDATE, as_open, frame};

fn refused(code: u8, subcode: u8, data: &[u8]) -> Notification {
    Notification { code, subcode, data: data.into() }
}

fn read(bytes: &[u8], context: &Context) -> Message {
    let DecodedMessage { message, faults } = decode(bytes, context).unwrap();
    assert_eq!(faults, []);
    message
}

/// RFC 4271 §6.1: a header with an invalid marker, length or type is rejected with the error for that field.
#[test]
fn headers_are_judged_by_marker_length_and_type() {
    let header = |length: u16, kind: u8| {
        let mut header = [0xff; 19];
        header[16..18].copy_from_slice(&length.to_be_bytes());
        header[18] = kind;
        header
    };
    let judge = |length, kind| frame_length(&header(length, kind), &Context::default());
    for (kind, shortest) in [(OPEN, 29), (UPDATE, 23), (NOTIFICATION, 21), (KEEPALIVE, 19), (REFRESH, 19)] {
        assert_eq!(judge(shortest, kind), Ok(shortest.into()));
        assert_eq!(
            judge(shortest - 1, kind),
            Err(refused(1, 2, &(shortest - 1).to_be_bytes())),
            "type {kind}"
        );
    }
    assert_eq!(judge(20, KEEPALIVE), Err(refused(1, 2, &[0, 20])));
    assert_eq!(judge(4096, UPDATE), Ok(4096));
    assert_eq!(judge(4097, UPDATE), Err(refused(1, 2, &[0x10, 0x01])));
    assert_eq!(judge(19, 0), Err(refused(1, 3, &[0])));
    assert_eq!(judge(19, 6), Err(refused(1, 3, &[6])));
    // RFC 8654 §4: not for OPEN and KEEPALIVE.
    let extended = Context { extended_messages: true, ..Context::default() };
    for (kind, taken) in
        [(OPEN, false), (UPDATE, true), (NOTIFICATION, true), (KEEPALIVE, false), (REFRESH, true)]
    {
        assert_eq!(frame_length(&header(u16::MAX, kind), &extended).is_ok(), taken, "type {kind}");
    }
    let mut unmarked = header(19, KEEPALIVE);
    unmarked[15] = 0xfe;
    assert_eq!(frame_length(&unmarked, &Context::default()), Err(refused(1, 1, &[])));
    // A frame longer than its Length field.
    let mut long = frame(KEEPALIVE, &[]);
    long.push(0);
    assert_eq!(decode(&long, &EXTERNAL), Err(refused(1, 2, &[0, 19])));
    assert_eq!(decode(&long[..18], &EXTERNAL), Err(refused(1, 2, &[])));
}

#[test]
fn a_keepalive_is_a_header() {
    assert_eq!(encode(&Message::Keepalive, &EXTERNAL), Ok(frame(KEEPALIVE, &[])));
    assert_eq!(read(&frame(KEEPALIVE, &[]), &EXTERNAL), Message::Keepalive);
}

fn all_capabilities() -> Vec<(Capability, Vec<u8>)> {
    let restart = GracefulRestart {
        is_restarted: true,
        notification: true,
        restart_time: 120,
        families: BTreeMap::from([(Family::Ipv4Unicast, true), (Family::Ipv6Unicast, false)]),
    };
    let host = Capability::HostName { host: "ab".into(), domain: "c".into() };
    vec![
        (Capability::MultiProtocol(Family::Ipv6Unicast), vec![1, 4, 0, 2, 0, 1]),
        (Capability::RouteRefresh, vec![2, 0]),
        (Capability::ExtendedNextHop(vec![Family::Ipv4Unicast]), vec![5, 6, 0, 1, 0, 1, 0, 2]),
        (Capability::ExtendedMessage, vec![6, 0]),
        (Capability::Role(Role::Provider), vec![9, 1, 0]),
        (Capability::Role(Role::RouteServer), vec![9, 1, 1]),
        (Capability::Role(Role::RouteServerClient), vec![9, 1, 2]),
        (Capability::Role(Role::Customer), vec![9, 1, 3]),
        (Capability::Role(Role::Peer), vec![9, 1, 4]),
        (Capability::GracefulRestart(restart), vec![64, 10, 0xc0, 120, 0, 1, 1, 0x80, 0, 2, 1, 0]),
        (Capability::FourOctetAs(4_200_000_001), vec![65, 4, 0xfa, 0x56, 0xea, 0x01]),
        (Capability::EnhancedRouteRefresh, vec![70, 0]),
        (host, vec![73, 5, 2, b'a', b'b', 1, b'c']),
        (Capability::Unknown { code: 128, value: vec![] }, vec![128, 0]),
        (Capability::Unknown { code: 71, value: vec![1, 2] }, vec![71, 2, 1, 2]),
    ]
}

#[test]
fn an_open_has_all_capabilities_in_one_parameter() {
    let capabilities = all_capabilities();
    let open = Open {
        asn: 4_200_000_001,
        hold_time: 90,
        router_id: Ipv4Addr::new(192, 0, 2, 1),
        capabilities: capabilities.iter().map(|(capability, _)| capability.clone()).collect(),
    };
    let value: Vec<u8> = capabilities.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let length = u8::try_from(value.len()).unwrap();
    // AS_TRANS replaces an AS number that does not fit.
    let fixed = [4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, length + 2, 2, length];
    let bytes = frame(OPEN, &[&fixed, value.as_slice()].concat());
    assert_eq!(encode(&Message::Open(open.clone()), &EXTERNAL), Ok(bytes.clone()));
    assert_eq!(read(&bytes, &EXTERNAL), Message::Open(open));
}

fn open_with(parameters: &[u8]) -> Vec<u8> {
    frame(OPEN, &[&[4, 0xfd, 0xe9, 0, 90, 192, 0, 2, 1], parameters].concat())
}

fn capabilities_of(parameters: &[u8]) -> Result<Vec<Capability>, Notification> {
    decode(&open_with(parameters), &EXTERNAL).map(|decoded| as_open(decoded.message).capabilities)
}

#[test]
fn an_open_may_have_many_parameters_and_extended_ones() {
    let refresh_and_message = Ok(vec![Capability::RouteRefresh, Capability::ExtendedMessage]);
    assert_eq!(capabilities_of(&[0]), Ok(vec![]));
    assert_eq!(capabilities_of(&[8, 2, 2, 2, 0, 2, 2, 6, 0]), refresh_and_message);
    assert_eq!(capabilities_of(&[6, 2, 4, 2, 0, 6, 0]), refresh_and_message);
    // RFC 9072 §2: any first length except 0.
    for length in [255, 1, 9] {
        assert_eq!(capabilities_of(&[length, 255, 0, 7, 2, 0, 4, 2, 0, 6, 0]), refresh_and_message);
    }
    assert_eq!(capabilities_of(&[0, 255, 0, 7, 2, 0, 4, 2, 0, 6, 0]), Err(refused(2, 0, &[])));
    // Exceeds the regular format.
    let many = vec![Capability::Unknown { code: 200, value: vec![7; 250] }; 3];
    let open = Open { asn: 1, hold_time: 0, router_id: Ipv4Addr::LOCALHOST, capabilities: many };
    let bytes = encode(&Message::Open(open.clone()), &EXTERNAL).unwrap();
    assert_eq!(bytes[28..36], [255, 255, 0x02, 0xf7, 2, 0x02, 0xf4, 200]);
    assert_eq!(read(&bytes, &EXTERNAL), Message::Open(open));
}

/// RFC 4271 §6.2: an OPEN with an invalid field is rejected with the NOTIFICATION for that field.
#[test]
fn a_bad_open_is_answered_with_what_is_wrong() {
    let with = |at: usize, value: &[u8]| {
        let mut bytes = open_with(&[0]);
        bytes[19 + at..19 + at + value.len()].copy_from_slice(value);
        decode(&bytes, &EXTERNAL)
    };
    assert_eq!(with(0, &[3]), Err(refused(2, 1, &[0, 4])), "version");
    assert_eq!(with(0, &[5]), Err(refused(2, 1, &[0, 4])), "version");
    assert_eq!(with(1, &[0, 0]), Err(refused(2, 2, &[])), "AS 0");
    assert_eq!(with(3, &[0, 1]), Err(refused(2, 6, &[])), "hold time");
    assert_eq!(with(3, &[0, 2]), Err(refused(2, 6, &[])), "hold time");
    assert!(with(3, &[0, 0]).is_ok() && with(3, &[0, 3]).is_ok());
    assert_eq!(with(5, &[0, 0, 0, 0]), Err(refused(2, 3, &[])), "identifier");
    for (parameters, subcode, why) in [
        (&[1][..], 0, "fewer bytes than the length says"),
        (&[0, 1][..], 0, "more bytes than the length says"),
        (&[1, 2][..], 0, "a parameter without a length"),
        (&[2, 2, 1][..], 0, "a parameter that is too long"),
        (&[3, 2, 1, 2][..], 0, "a capability without a length"),
        (&[4, 2, 2, 2, 1][..], 0, "a capability that is too long"),
        (&[2, 1, 0][..], 4, "authentication, which RFC 4271 does not know"),
        (&[255, 255, 0, 3, 2, 0][..], 0, "an extended parameter that is too long"),
        (&[255, 255, 0][..], 0, "extended parameters without a length"),
        (&[255, 255, 0, 3, 255, 0, 0][..], 4, "a parameter with the reserved type"),
        (&[8, 2, 6, 65, 4, 0, 0, 0, 0][..], 2, "AS 0 as a capability"),
    ] {
        assert_eq!(capabilities_of(parameters), Err(refused(2, subcode, &[])), "{why}");
    }
}

#[test]
fn a_capability_that_is_not_understood_is_kept_as_it_came() {
    for value in [
        &[1, 3, 0, 1, 0][..],
        &[1, 5, 0, 1, 0, 1, 0][..],
        &[1, 4, 0, 25, 0, 70][..],
        &[2, 1, 0][..],
        &[5, 5, 0, 1, 0, 1, 0][..],
        &[5, 6, 0, 1, 0, 128, 0, 2][..],
        &[5, 6, 0, 1, 0, 1, 0, 1][..],
        &[6, 1, 0][..],
        &[9, 0][..],
        &[9, 1, 5][..],
        &[9, 2, 0, 0][..],
        &[64, 1, 0][..],
        &[64, 5, 0, 0, 0, 1, 1][..],
        &[65, 3, 0, 0, 0][..],
        &[70, 1, 0][..],
        &[73, 2, 3, b'a'][..],
        &[73, 3, 1, 0xff, 0][..],
        &[73, 3, 0, 0, 0][..],
        &[255, 3, 1, 2, 3][..],
    ] {
        let unknown = Capability::Unknown { code: value[0], value: value[2..].into() };
        assert_eq!(decode_capabilities(value), Some(vec![unknown]));
    }
    // Only the supported entries are decoded.
    let next_hops = [5, 12, 0, 1, 0, 128, 0, 2, 0, 1, 0, 1, 0, 2];
    assert_eq!(
        decode_capabilities(&next_hops),
        Some(vec![Capability::ExtendedNextHop(vec![Family::Ipv4Unicast])])
    );
    let restart =
        GracefulRestart { families: [(Family::Ipv4Unicast, true)].into(), ..GracefulRestart::default() };
    let families = [64, 10, 0, 0, 0, 25, 70, 0, 0, 1, 1, 0x80];
    assert_eq!(decode_capabilities(&families), Some(vec![Capability::GracefulRestart(restart)]));
    // Terminal control characters are replaced.
    let host = Capability::HostName { host: "a\u{fffd}[31m".into(), domain: String::new() };
    assert_eq!(decode_capabilities(b"\x49\x08\x06a\x1b[31m\x00"), Some(vec![host]));
}

#[test]
fn an_open_without_the_capability_has_the_as_number_of_its_field() {
    let asn = |parameters: &[u8]| as_open(read(&open_with(parameters), &EXTERNAL)).asn;
    assert_eq!(asn(&[0]), 65_001);
    assert_eq!(asn(&[8, 2, 6, 65, 4, 0, 1, 0, 0]), 65_536);
}

#[test]
fn notifications_are_read_whatever_their_codes_and_cut_to_what_fits() {
    let bfd_down = Notification { code: 6, subcode: 10, data: vec![] };
    assert_eq!(
        encode(&Message::Notification(bfd_down.clone()), &EXTERNAL),
        Ok(frame(NOTIFICATION, &[6, 10]))
    );
    for body in [&[6, 10][..], &[6, 0][..], &[0, 0][..], &[255, 255, 1, 2, 3][..]] {
        let expected = Notification { code: body[0], subcode: body[1], data: body[2..].into() };
        assert_eq!(read(&frame(NOTIFICATION, body), &EXTERNAL), Message::Notification(expected));
    }
    let long = Message::Notification(Notification { code: 3, subcode: 4, data: vec![1; 70_000] });
    assert_eq!(encode(&long, &EXTERNAL).unwrap().len(), 4096);
    let extended = Context { extended_messages: true, ..EXTERNAL };
    assert_eq!(encode(&long, &extended).unwrap().len(), 65_535);
}

#[test]
fn refreshes_have_subtypes_and_families() {
    for (bytes, family, kind) in [
        ([0, 1, 0, 1], Some(Family::Ipv4Unicast), RefreshKind::Request),
        ([0, 2, 1, 1], Some(Family::Ipv6Unicast), RefreshKind::Begin),
        ([0, 2, 2, 1], Some(Family::Ipv6Unicast), RefreshKind::End),
        ([0, 2, 3, 1], Some(Family::Ipv6Unicast), RefreshKind::Unknown(3)),
        ([0, 0, 0, 0], None, RefreshKind::Request),
    ] {
        let message = Message::Refresh(Refresh { family, kind });
        assert_eq!(encode(&message, &EXTERNAL), Ok(frame(REFRESH, &bytes)));
        assert_eq!(read(&frame(REFRESH, &bytes), &EXTERNAL), message);
    }
    let foreign = Refresh { family: None, kind: RefreshKind::Request };
    assert_eq!(read(&frame(REFRESH, &[0, 25, 0, 70]), &EXTERNAL), Message::Refresh(foreign));
    // RFC 7313 §5: a length other than 4 is an error with the message as data; but a request may have filters
    // appended (RFC 5291).
    for body in [&[][..], &[0, 1, 0][..], &[0, 1, 1, 1, 0][..], &[0, 1, 2, 1, 0][..]] {
        let bytes = frame(REFRESH, body);
        assert_eq!(decode(&bytes, &EXTERNAL), Err(refused(7, 1, &bytes)));
    }
    let filtered = Refresh { family: Some(Family::Ipv4Unicast), kind: RefreshKind::Request };
    assert_eq!(read(&frame(REFRESH, &[0, 1, 0, 1, 1, 64, 0, 0]), &EXTERNAL), Message::Refresh(filtered));
}
