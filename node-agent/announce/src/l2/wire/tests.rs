use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn six(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn request() -> Frame {
    let packet = Packet::Arp(Arp {
        operation: Operation::Request,
        sender_mac: THEIRS,
        sender: Ipv4Addr::new(192, 0, 2, 2),
        target_mac: Mac::ZERO,
        target: Ipv4Addr::new(192, 0, 2, 100),
    });
    Frame { destination: Mac::BROADCAST, source: THEIRS, packet }
}

fn solicitation(source: &str, source_mac: Option<Mac>) -> Frame {
    let target = six("2001:db8::100");
    let destination = solicited_node_group(target);
    let packet = Packet::Solicitation(Solicitation { source: six(source), destination, target, source_mac });
    Frame { destination: group_mac(destination), source: THEIRS, packet }
}

fn advertisement() -> Frame {
    let packet = Packet::Advertisement(Advertisement {
        source: six("2001:db8::100"),
        destination: six("ff02::1"),
        is_router: false,
        is_solicited: false,
        is_override: true,
        target: six("2001:db8::100"),
        target_mac: Some(OURS),
    });
    Frame { destination: group_mac(six("ff02::1")), source: OURS, packet }
}

/// An ARP request is encoded with the bytes that RFC 826 defines, and padded with zeros to the minimum frame
/// length.
#[test]
fn arp_frames_have_the_bytes_that_the_standard_says() {
    let bytes = request().render();
    assert_eq!(bytes.len(), FRAME_BYTES_MIN, "filled up to the shortest frame");
    let expected = "ffffffffffff0200000000020806000108000604000102000000000\
                    2c0000202000000000000c0000264";
    assert_eq!(hex(&bytes[..42]), expected);
    assert!(bytes[42..].iter().all(|byte| *byte == 0));
}

/// A Neighbor Solicitation of a Linux kernel, captured by `tcpdump -xx`, is parsed and encoded again with the
/// same bytes and checksum.
#[test]
fn a_solicitation_of_the_linux_kernel_is_read_and_rendered_alike() {
    let captured = include_str!("testdata/solicitation.hex");
    let bytes = unhex(captured);
    let frame = parse(&bytes).unwrap();
    assert!(matches!(&frame.packet, Packet::Solicitation(solicitation) if solicitation.source_mac.is_some()));
    assert_eq!(frame.render(), bytes);
}

#[test]
fn rules_of_neighbour_discovery_are_demanded() {
    let good = solicitation("2001:db8::2", Some(THEIRS)).render();
    assert!(parse(&good).is_ok());
    let broken = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes).unwrap_err()
    };
    assert_eq!(broken(14 + 7, 254), Unreadable::HopLimit);
    assert_eq!(broken(14 + 40 + 2, good[56] ^ 1), Unreadable::Checksum);
    assert_eq!(broken(14 + 6, 44), Unreadable::Foreign, "a fragment");
    assert_eq!(broken(14 + 40, 133), Unreadable::Foreign, "a router solicitation");
    assert_eq!(broken(14, 0x45), Unreadable::Malformed, "another version");
    let check = solicitation("::", None);
    assert_eq!(parse(&check.render()), Ok(check), "duplicate address detection");
    assert_eq!(parse(&solicitation("::", Some(THEIRS)).render()), Err(Unreadable::Malformed));
    assert_eq!(
        parse(&solicitation("2001:db8::2", Some(Mac::BROADCAST)).render()),
        Err(Unreadable::Malformed)
    );
    let mut told = advertisement();
    if let Packet::Advertisement(advertisement) = &mut told.packet {
        advertisement.is_solicited = true;
    }
    assert_eq!(parse(&told.render()), Err(Unreadable::Malformed), "solicited, and yet to all nodes");
}

#[test]
fn an_option_without_length_or_beyond_the_end_is_refused() {
    let target = six("2001:db8::100");
    for (units, expected) in [(0, Unreadable::Malformed), (2, Unreadable::Truncated)] {
        let mut bytes = solicitation("2001:db8::2", Some(THEIRS)).render();
        let at = 14 + 40 + 24 + 1;
        // The checksum stays correct, so that the option is the reason for the rejection.
        let sum = u16::from_be_bytes([bytes[56], bytes[57]]);
        let sum = !sum;
        let old = u16::from(bytes[at]);
        let mut new = u32::from(sum) + 0xffff - u32::from(old) + units;
        while new > 0xffff {
            new = (new & 0xffff) + (new >> 16);
        }
        let [high, low] = (!u16::try_from(new).unwrap()).to_be_bytes();
        (bytes[56], bytes[57], bytes[at]) = (high, low, u8::try_from(units).unwrap());
        assert_eq!(parse(&bytes), Err(expected), "{target} {units}");
    }
}

#[test]
fn frames_of_a_vlan_and_of_other_protocols_are_not_ours() {
    let mut tagged = request().render();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    assert_eq!(parse(&tagged), Err(Unreadable::Tagged));
    let broken = |at: usize, value: u8| {
        let mut bytes = request().render();
        bytes[at] = value;
        parse(&bytes).unwrap_err()
    };
    assert_eq!(broken(12, 0x88), Unreadable::Foreign);
    assert_eq!(broken(15, 6), Unreadable::Foreign, "another kind of network");
    assert_eq!(broken(17, 8), Unreadable::Foreign, "another protocol");
    assert_eq!(broken(19, 16), Unreadable::Foreign, "longer addresses");
    assert_eq!(broken(21, 3), Unreadable::Foreign, "a reverse request");
    assert_eq!(broken(22, 3), Unreadable::Malformed, "a group as the sender");
    assert_eq!(broken(28, 224), Unreadable::Malformed, "a group as the sender");
    assert_eq!(broken(6, 0xff), Unreadable::Malformed, "sent by everybody");
}

#[test]
fn every_cut_of_a_frame_is_refused_without_panic() {
    for (frame, bytes) in
        [(request(), 42), (solicitation("2001:db8::2", Some(THEIRS)), 86), (advertisement(), 86)]
    {
        let whole = frame.render();
        for length in 0..bytes {
            assert_eq!(parse(&whole[..length]), Err(Unreadable::Truncated), "{length}");
        }
        assert_eq!(parse(&whole), Ok(frame));
    }
}

#[test]
fn groups_follow_the_address() {
    let group = solicited_node_group(six("2001:db8::12:3456:789a"));
    assert_eq!(group, six("ff02::1:ff56:789a"));
    assert_eq!(group_mac(group).to_string(), "33:33:ff:56:78:9a");
}

fn any_mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(|mut bytes| {
        bytes[0] = bytes[0] & 0xfe | 2;
        Mac(bytes)
    })
}

fn unicast() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(|bits| Ipv6Addr::from(bits >> 4 | 1 << 120))
}

fn packet() -> impl Strategy<Value = Packet> {
    let arp = (any::<bool>(), any_mac(), any::<[u8; 4]>(), any::<[u8; 6]>(), any::<[u8; 4]>());
    let arp = arp.prop_map(|(asks, sender_mac, sender, target_mac, target)| {
        Packet::Arp(Arp {
            operation: if asks { Operation::Request } else { Operation::Reply },
            sender_mac,
            sender: Ipv4Addr::from(u32::from_be_bytes(sender) >> 1),
            target_mac: Mac(target_mac),
            target: target.into(),
        })
    });
    let solicitation = (unicast(), unicast(), unicast(), prop::option::of(any_mac()));
    let solicitation = solicitation.prop_map(|(source, destination, target, source_mac)| {
        Packet::Solicitation(Solicitation { source, destination, target, source_mac })
    });
    let told = (unicast(), unicast(), any::<[bool; 3]>(), unicast(), prop::option::of(any_mac()));
    let told = told.prop_map(|(source, destination, flags, target, target_mac)| {
        let [is_router, is_solicited, is_override] = flags;
        Packet::Advertisement(Advertisement {
            source,
            destination,
            is_router,
            is_solicited,
            is_override,
            target,
            target_mac,
        })
    });
    prop_oneof![arp, solicitation, told]
}

proptest! {
    #[test]
    fn what_is_rendered_is_read_back(packet in packet(), destination: [u8; 6], source in any_mac()) {
        let frame = Frame { destination: Mac(destination), source, packet };
        let bytes = frame.render();
        prop_assert!(bytes.len() >= FRAME_BYTES_MIN);
        prop_assert_eq!(parse(&bytes), Ok(frame));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn damaged_frames_are_read_without_panic(packet in packet(), damage in prop::collection::vec((0usize..90, any::<u8>()), 1..8), length in 0usize..100) {
        let mut bytes = Frame { destination: Mac::BROADCAST, source: THEIRS, packet }.render();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length);
        let _ = parse(&bytes);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
