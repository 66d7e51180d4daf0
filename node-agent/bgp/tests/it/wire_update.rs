//! Tests that UPDATE messages are encoded and decoded byte by byte as in the RFCs.

use std::net::Ipv4Addr;

use bgp::{
    AsPath, Attributes, Community, ExtendedCommunity, Family, LargeCommunity, Message, Notification, Origin,
    Segment, Update,
    attributes::NextHop,
    wire::{Context, DecodedMessage, EncodeError, decode, encode},
};

use crate::messages::{EXTERNAL, INTERNAL, OLD, UPDATE, as_update, attribute, frame, mandatory, update};

fn read(bytes: &[u8], context: &Context) -> Message {
    let DecodedMessage { message, faults } = decode(bytes, context).unwrap();
    assert_eq!(faults, []);
    message
}

fn read_update(bytes: &[u8], context: &Context) -> Update {
    as_update(read(bytes, context))
}

fn prefixes(texts: &[&str]) -> Vec<ipnet::IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn attributes(next_hop: NextHop) -> Attributes {
    Attributes {
        origin: Origin::Igp,
        as_path: AsPath(vec![Segment::Sequence(vec![65_001])]),
        next_hop,
        med: None,
        local_pref: None,
        is_atomic_aggregate: false,
        aggregator: None,
        communities: [].into(),
        originator_id: None,
        cluster_list: vec![],
        extended_communities: [].into(),
        large_communities: [].into(),
        only_to_customer: None,
    }
}

fn announce(announced: &[&str], attributes: Attributes) -> Message {
    Message::Update(Box::new(Update {
        announced: prefixes(announced),
        attributes: Some(attributes),
        ..Update::default()
    }))
}

#[test]
fn ipv4_routes_are_in_the_body() {
    let attributes = Attributes {
        med: Some(50),
        local_pref: Some(100),
        is_atomic_aggregate: true,
        aggregator: Some((65_001, Ipv4Addr::new(192, 0, 2, 9))),
        communities: [Community::NO_EXPORT, Community(0xfde9_0001)].into(),
        originator_id: Some(Ipv4Addr::new(192, 0, 2, 7)),
        cluster_list: vec![Ipv4Addr::new(192, 0, 2, 8), Ipv4Addr::new(192, 0, 2, 9)],
        extended_communities: [ExtendedCommunity([0x40, 4, 0xfd, 0xe9, 0, 0, 0, 1])].into(),
        large_communities: [LargeCommunity([1, 2, 3])].into(),
        only_to_customer: Some(65_001),
        ..attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)))
    };
    let middle = [
        attribute(0x40, 6, &[]),
        attribute(0xc0, 7, &[0, 0, 0xfd, 0xe9, 192, 0, 2, 9]),
        attribute(0xc0, 8, &[0xfd, 0xe9, 0, 1, 0xff, 0xff, 0xff, 0x01]),
    ];
    let reflection =
        [attribute(0x80, 9, &[192, 0, 2, 7]), attribute(0x80, 10, &[192, 0, 2, 8, 192, 0, 2, 9])];
    let last = [
        attribute(0xc0, 16, &[0x40, 4, 0xfd, 0xe9, 0, 0, 0, 1]),
        attribute(0xc0, 32, &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]),
        attribute(0xc0, 35, &[0, 0, 0xfd, 0xe9]),
    ];
    let list = |preference: &[Vec<u8>], reflection: &[Vec<u8>]| {
        let med = [attribute(0x80, 4, &[0, 0, 0, 50])];
        [mandatory(&INTERNAL).as_slice(), &med, preference, &middle, reflection, &last].concat()
    };
    let announced = [32, 198, 51, 100, 1, 9, 10, 128, 0];
    let message = announce(&["198.51.100.1/32", "10.128.0.0/9", "0.0.0.0/0"], attributes.clone());
    let internal = update(&[], &list(&[attribute(0x40, 5, &[0, 0, 0, 100])], &reflection), &announced);
    assert_eq!(encode(&message, &INTERNAL), Ok(internal.clone()));
    assert_eq!(read(&internal, &INTERNAL), message);
    // RFC 4271 §5.1.5: `LOCAL_PREF` is not sent to external peers. RFC 4456 §8: the attributes of reflection are
    // non-transitive and have no meaning outside of the AS.
    assert_eq!(encode(&message, &EXTERNAL), Ok(update(&[], &list(&[], &[]), &announced)));
}

#[test]
fn ipv6_routes_are_in_the_first_attribute() {
    let global = "2001:db8::1".parse().unwrap();
    let link_local = "fe80::1".parse().unwrap();
    let reach = |next_hop: &[u8]| {
        let length = u8::try_from(next_hop.len()).unwrap();
        let value = [&[0, 2, 1, length], next_hop, &[0, 32, 0x20, 0x01, 0x0d, 0xb8]].concat();
        let rest = mandatory(&EXTERNAL)[..2].to_vec();
        update(&[], &[vec![attribute(0x90, 14, &value)], rest].concat(), &[])
    };
    let both = [
        [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ];
    for (link_local, bytes) in [(None, both[..1].concat()), (Some(link_local), both.concat())] {
        let message = announce(&["2001:db8::/32"], attributes(NextHop::V6 { global, link_local }));
        assert_eq!(encode(&message, &EXTERNAL), Ok(reach(&bytes)));
        assert_eq!(read(&reach(&bytes), &EXTERNAL), message);
    }
    // An IPv4 next hop is sent as an IPv4-mapped IPv6 address.
    let mapped = announce(&["2001:db8::/32"], attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1))));
    let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    assert_eq!(encode(&mapped, &EXTERNAL), Ok(reach(&bytes)));
}

#[test]
fn ipv4_routes_have_ipv6_next_hops_where_that_was_agreed_on() {
    let agreed = Context { extended_next_hop: true, ..EXTERNAL };
    let global = "2001:db8::1".parse().unwrap();
    let message = announce(&["10.0.0.0/8"], attributes(NextHop::V6 { global, link_local: None }));
    let bytes = encode(&message, &agreed).unwrap();
    // After header and lengths: flags, type, length, family, next hop.
    assert_eq!(bytes[23..32], [0x90, 14, 0, 23, 0, 1, 1, 16, 0x20]);
    assert_eq!(read(&bytes, &agreed), message);
    assert_eq!(encode(&message, &EXTERNAL), Err(EncodeError::NextHop));
    assert_eq!(
        decode(&bytes, &EXTERNAL),
        Err(Notification { code: 3, subcode: 9, data: bytes[23..50].into() })
    );
}

#[test]
fn routes_are_withdrawn_in_the_field_of_their_family() {
    let withdraw = |texts: &[&str]| {
        Message::Update(Box::new(Update { withdrawn: prefixes(texts), ..Update::default() }))
    };
    let ipv4 = update(&[32, 198, 51, 100, 1, 0], &[], &[]);
    assert_eq!(encode(&withdraw(&["198.51.100.1/32", "0.0.0.0/0"]), &EXTERNAL), Ok(ipv4.clone()));
    assert_eq!(read(&ipv4, &EXTERNAL), withdraw(&["198.51.100.1/32", "0.0.0.0/0"]));
    let ipv6 = update(&[], &[attribute(0x90, 15, &[0, 2, 1, 16, 0x20, 0x01])], &[]);
    assert_eq!(encode(&withdraw(&["2001::/16"]), &EXTERNAL), Ok(ipv6.clone()));
    assert_eq!(read(&ipv6, &EXTERNAL), withdraw(&["2001::/16"]));
}

#[test]
fn end_of_rib_markers_are_told_from_messages_that_say_nothing() {
    let marker = |family| Update { end_of_rib: family, ..Update::default() };
    let of = |family| Message::Update(Box::new(marker(Some(family))));
    let ipv6 = update(&[], &[attribute(0x80, 15, &[0, 2, 1])], &[]);
    assert_eq!(encode(&of(Family::Ipv4Unicast), &EXTERNAL), Ok(frame(UPDATE, &[0; 4])));
    assert_eq!(encode(&of(Family::Ipv6Unicast), &EXTERNAL), Ok(ipv6.clone()));
    for (bytes, family) in [
        (frame(UPDATE, &[0; 4]), Some(Family::Ipv4Unicast)),
        (ipv6, Some(Family::Ipv6Unicast)),
        (update(&[], &[attribute(0x90, 15, &[0, 2, 1])], &[]), Some(Family::Ipv6Unicast)),
        (update(&[], &[attribute(0x90, 15, &[0, 1, 1])], &[]), Some(Family::Ipv4Unicast)),
        (update(&[], &[attribute(0x90, 15, &[0, 25, 70])], &[]), None),
        (update(&[], &mandatory(&EXTERNAL), &[]), None),
    ] {
        assert_eq!(read_update(&bytes, &EXTERNAL), marker(family), "{bytes:02x?}");
    }
    // With a withdrawn default route, the message is no End-of-RIB marker despite its length.
    let withdrawn = read_update(&update(&[0], &[attribute(0x80, 15, &[0, 2, 1])], &[]), &EXTERNAL);
    assert_eq!((withdrawn.end_of_rib, withdrawn.withdrawn), (None, prefixes(&["0.0.0.0/0"])));
    assert_eq!(encode(&Message::Update(Box::default()), &EXTERNAL), Err(EncodeError::Empty));
}

#[test]
fn what_takes_more_than_one_message_has_no_bytes() {
    let refuse = |update: Update| encode(&Message::Update(Box::new(update)), &EXTERNAL);
    let both = prefixes(&["10.0.0.0/8", "2001::/16"]);
    let attributes = attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let one = both[..1].to_vec();
    let announced = Update { announced: one.clone(), attributes: Some(attributes), ..Update::default() };
    assert!(refuse(announced.clone()).is_ok());
    assert_eq!(refuse(Update { announced: both.clone(), ..announced.clone() }), Err(EncodeError::Mixed));
    assert_eq!(refuse(Update { withdrawn: both, ..Update::default() }), Err(EncodeError::Mixed));
    assert_eq!(refuse(Update { withdrawn: one, ..announced.clone() }), Err(EncodeError::Mixed));
    let end_of_rib = Some(Family::Ipv4Unicast);
    assert_eq!(refuse(Update { end_of_rib, ..announced.clone() }), Err(EncodeError::Mixed));
    assert_eq!(refuse(Update { attributes: None, ..announced }), Err(EncodeError::NoAttributes));
}

#[test]
fn received_updates_may_mix_everything_and_hold_families_that_are_only_counted() {
    let reach = attribute(0x80, 14, &[&[0, 2, 1, 16], [0x20; 16].as_slice(), &[0, 16, 0x20, 0x01]].concat());
    let unreach = attribute(0x80, 15, &[0, 1, 1, 8, 11]);
    let list = [mandatory(&EXTERNAL), vec![reach, unreach]].concat();
    let mixed = read_update(&update(&[8, 12], &list, &[8, 10]), &EXTERNAL);
    assert_eq!(mixed.withdrawn, prefixes(&["12.0.0.0/8", "11.0.0.0/8"]));
    assert_eq!(mixed.announced, prefixes(&["10.0.0.0/8", "2001::/16"]));
    assert_eq!(mixed.attributes, Some(attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)))));
    // IPv4 multicast: two prefixes. BGP-LS: an unknown format.
    let reach = attribute(0x80, 14, &[0, 1, 2, 4, 192, 0, 2, 1, 0, 8, 10, 16, 10, 1]);
    let unreach = attribute(0x80, 15, &[0x40, 0x04, 71, 200, 1]);
    let list = [mandatory(&EXTERNAL), vec![reach, unreach]].concat();
    let foreign = read_update(&update(&[], &list, &[]), &EXTERNAL);
    let counted = Update { foreign: [((1, 2), 2), ((0x4004, 71), 1)].into(), ..Update::default() };
    assert_eq!(foreign, counted);
}

/// For a peer with 2-octet AS numbers, both `AS_PATH` and `AS4_PATH` are sent and received (RFC 6793 §4.2).
#[test]
fn as_numbers_of_four_octets_pass_by_speakers_of_two() {
    let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 1));
    let path = AsPath(vec![Segment::Sequence(vec![65_001, 4_200_000_001])]);
    let aggregator = Some((4_200_000_001, Ipv4Addr::new(192, 0, 2, 9)));
    let large = Attributes { as_path: path, aggregator, ..attributes(next_hop) };
    let message = announce(&["10.0.0.0/8"], large);
    let old = [0x5b, 0xa0];
    let new = [0xfa, 0x56, 0xea, 0x01];
    let address = [192, 0, 2, 9];
    let list = [
        attribute(0x40, 1, &[0]),
        attribute(0x40, 2, &[&[2, 2, 0xfd, 0xe9], old.as_slice()].concat()),
        attribute(0x40, 3, &[192, 0, 2, 1]),
        attribute(0xc0, 7, &[old.as_slice(), &address].concat()),
        attribute(0xc0, 17, &[&[2, 2, 0, 0, 0xfd, 0xe9], new.as_slice()].concat()),
        attribute(0xc0, 18, &[new.as_slice(), &address].concat()),
    ];
    let bytes = update(&[], &list, &[8, 10]);
    assert_eq!(encode(&message, &OLD), Ok(bytes.clone()));
    assert_eq!(read(&bytes, &OLD), message);
    // Numbers that fit need no `AS4_PATH`.
    let small = announce(&["10.0.0.0/8"], attributes(next_hop));
    assert_eq!(encode(&small, &OLD), Ok(update(&[], &mandatory(&OLD), &[8, 10])));
}

/// A 2-octet `AS_PATH` and an `AS4_PATH` are merged into one path (RFC 6793 §4.2.3).
#[test]
fn paths_of_two_widths_are_merged() {
    let segment = |kind: u8, numbers: &[u16]| {
        let count = u8::try_from(numbers.len()).unwrap();
        [vec![kind, count], numbers.iter().flat_map(|asn| asn.to_be_bytes()).collect()].concat()
    };
    let wide = |kind: u8, numbers: &[u32]| {
        let count = u8::try_from(numbers.len()).unwrap();
        [vec![kind, count], numbers.iter().flat_map(|asn| asn.to_be_bytes()).collect()].concat()
    };
    let confederation = Context { is_confederation: true, ..OLD };
    let merge = |two: Vec<u8>, four: Vec<u8>| {
        let mut list = mandatory(&OLD);
        list[1] = attribute(0x50, 2, &two);
        list.push(attribute(0xd0, 17, &four));
        read_update(&update(&[], &list, &[8, 10]), &confederation).attributes.unwrap().as_path.0
    };
    let sequence = |numbers: &[u32]| Segment::Sequence(numbers.into());
    // A path that passed two 2-octet speakers.
    assert_eq!(merge(segment(2, &[1, 2, 3]), wide(2, &[70_003])), [sequence(&[1, 2, 70_003])]);
    assert_eq!(merge(segment(2, &[1, 2]), wide(2, &[70_001, 70_002])), [sequence(&[70_001, 70_002])]);
    // An `AS4_PATH` longer than the `AS_PATH` is ignored, because the path was shortened on the way.
    assert_eq!(merge(segment(2, &[1]), wide(2, &[70_001, 70_002])), [sequence(&[1])]);
    // Confederation segments have no length and stay at the beginning.
    let front = [segment(3, &[64_512]), segment(2, &[1, 2])].concat();
    let kept = Segment::ConfederationSequence(vec![64_512]);
    assert_eq!(merge(front, wide(2, &[70_002])), [kept, sequence(&[1, 70_002])]);
    // Confederation segments in AS4_PATH are discarded (RFC 6793 §6).
    let four = [wide(3, &[64_512]), wide(2, &[70_001])].concat();
    assert_eq!(merge(segment(2, &[1]), four), [sequence(&[70_001])]);
    // More than one segment can hold.
    let long: Vec<u32> = (70_000..70_254).collect();
    let two: Vec<u16> = (1..=255).collect();
    assert_eq!(
        merge([segment(2, &[9]), segment(2, &two)].concat(), wide(2, &long)),
        [sequence(&[9]), sequence(&[&[1], long.as_slice()].concat())]
    );
}

/// If a 2-octet speaker has aggregated a route, the older 4-octet attributes are ignored (RFC 6793 §4.2.3).
#[test]
fn an_aggregator_of_two_octets_makes_what_four_octets_say_void() {
    let mut list = mandatory(&OLD);
    list.push(attribute(0xc0, 7, &[0, 9, 192, 0, 2, 9]));
    list.push(attribute(0xc0, 17, &[2, 1, 0, 1, 0x11, 0x70]));
    list.push(attribute(0xc0, 18, &[0, 1, 0x11, 0x70, 192, 0, 2, 8]));
    let read = read_update(&update(&[], &list, &[8, 10]), &OLD).attributes.unwrap();
    assert_eq!(read.aggregator, Some((9, Ipv4Addr::new(192, 0, 2, 9))));
    assert_eq!(read.as_path, AsPath(vec![Segment::Sequence(vec![65_001])]));
    // Without AGGREGATOR the AS4_AGGREGATOR is ignored.
    list.remove(3);
    let read = read_update(&update(&[], &list, &[8, 10]), &OLD).attributes.unwrap();
    assert_eq!(read.aggregator, None);
    assert_eq!(read.as_path, AsPath(vec![Segment::Sequence(vec![70_000])]));
}

#[test]
fn long_attributes_have_lengths_of_two_octets() {
    let communities: std::collections::BTreeSet<_> = (0..64).map(Community).collect();
    let attributes = Attributes { communities, ..attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1))) };
    let message = announce(&["10.0.0.0/8"], attributes);
    let bytes = encode(&message, &EXTERNAL).unwrap();
    let at = 23 + mandatory(&EXTERNAL).concat().len();
    assert_eq!(bytes[at..at + 4], [0xd0, 8, 1, 0]);
    assert_eq!(read(&bytes, &EXTERNAL), message);
}

/// A path with more AS numbers than fit into one segment is split into several segments.
#[test]
fn long_segments_are_split() {
    let path = AsPath(vec![Segment::Sequence((1..=300).collect())]);
    let attributes = Attributes { as_path: path, ..attributes(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1))) };
    let bytes = encode(&announce(&["10.0.0.0/8"], attributes), &EXTERNAL).unwrap();
    let read = read_update(&bytes, &EXTERNAL).attributes.unwrap();
    let halves = vec![Segment::Sequence((1..=255).collect()), Segment::Sequence((256..=300).collect())];
    assert_eq!(read.as_path, AsPath(halves));
}

#[test]
fn bits_behind_a_prefix_are_irrelevant() {
    let bytes = update(&[9, 10, 0xff], &[], &[]);
    assert_eq!(read_update(&bytes, &EXTERNAL).withdrawn, prefixes(&["10.128.0.0/9"]));
    let message =
        Message::Update(Box::new(Update { withdrawn: prefixes(&["10.255.1.1/9"]), ..Update::default() }));
    assert_eq!(encode(&message, &EXTERNAL), Ok(update(&[9, 10, 0x80], &[], &[])));
}
