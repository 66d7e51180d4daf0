//! Tests of the packet codec: encoded packets can be decoded, invalid packets are rejected with a reason, and
//! arbitrary bytes cause no panic.

use std::num::NonZeroU32;

use bfd::{
    Diagnostic, State,
    wire::{Packet, PacketError, Section, Sha1Section, parse, render},
};
use proptest::{collection::vec, prelude::*};

use crate::support::{discriminator, multiplier, packet};

const SECTION: Sha1Section =
    Sha1Section { meticulous: true, key_id: 7, sequence: 0x0102_0304, digest: [0xab; 20] };

#[test]
fn the_bytes_are_those_of_rfc_5880() {
    let packet = Packet { diagnostic: Diagnostic::AdministrativelyDown, poll: true, ..packet(State::Up) };
    let bytes = render(&packet, None);
    let expected = [
        [0x27, 0xe0, 3, 24],
        [0, 0, 0, 9],
        [0, 0, 0, 1],
        50_000u32.to_be_bytes(),
        50_000u32.to_be_bytes(),
        [0; 4],
    ];
    assert_eq!(bytes, expected.concat());
    let authenticated = render(&packet, Some(&SECTION));
    assert_eq!(authenticated[..4], [0x27, 0xe4, 3, 52]);
    assert_eq!(authenticated[24..32], [5, 28, 7, 0, 1, 2, 3, 4]);
    assert_eq!(authenticated[32..], [0xab; 20]);
}

/// A packet with one invalid field is rejected for the reason that corresponds to this field (RFC 5880
/// §6.8.6).
#[test]
fn each_bad_field_is_refused_for_its_own_reason() {
    let good = render(&packet(State::Up), None);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes).map(|received| received.packet)
    };
    assert_eq!(with(0, 0x27).unwrap().diagnostic, Diagnostic::AdministrativelyDown);
    assert_eq!(with(0, 0x00), Err(PacketError::Version));
    assert_eq!(with(0, 0x40), Err(PacketError::Version));
    assert_eq!(with(1, 0xc1), Err(PacketError::Multipoint));
    assert_eq!(with(2, 0), Err(PacketError::Multiplier));
    assert_eq!(with(3, 23), Err(PacketError::Length));
    assert_eq!(with(3, 25), Err(PacketError::Length), "longer than the payload");
    assert_eq!(with(7, 0), Err(PacketError::MyDiscriminator));
    assert_eq!(with(11, 0), Err(PacketError::YourDiscriminator), "Up");
    assert_eq!(parse(&good[..23]), Err(PacketError::Short));
    assert_eq!(parse(&[]), Err(PacketError::Short));
    for (state, accepted) in
        [(State::AdminDown, true), (State::Down, true), (State::Init, false), (State::Up, false)]
    {
        let bytes = render(&Packet { your_discriminator: None, ..packet(state) }, None);
        assert_eq!(parse(&bytes).is_ok(), accepted, "{state}");
    }
    // Bytes after the packet are ignored.
    let padded = [good.clone(), vec![0xff; 10]].concat();
    assert_eq!(parse(&padded), parse(&good));
}

#[test]
fn authentication_sections_have_to_fit() {
    let good = render(&packet(State::Up), Some(&SECTION));
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        parse(&bytes).map(|received| received.section)
    };
    assert_eq!(with(&[]), Ok(Some(Section::Sha1(SECTION))));
    assert_eq!(with(&[(27, 0xff)]), Ok(Some(Section::Sha1(SECTION))), "the reserved byte is ignored");
    assert_eq!(with(&[(25, 27)]), Err(PacketError::AuthenticationLength));
    assert_eq!(with(&[(25, 29)]), Err(PacketError::AuthenticationLength));
    assert_eq!(with(&[(25, 1)]), Err(PacketError::AuthenticationLength));
    assert_eq!(with(&[(3, 51)]), Err(PacketError::AuthenticationLength), "it ends behind the packet");
    assert_eq!(with(&[(3, 25)]), Err(PacketError::Length));
    assert_eq!(with(&[(3, 26)]), Err(PacketError::AuthenticationLength));
    for unsupported in [0, 1, 2, 3, 6, 255] {
        assert_eq!(with(&[(24, unsupported)]), Ok(Some(Section::Unsupported(unsupported))));
    }
    for too_short in [0, 1] {
        assert_eq!(with(&[(24, 1), (25, too_short)]), Err(PacketError::AuthenticationLength));
    }
    assert_eq!(with(&[(24, 1), (25, 2)]), Ok(Some(Section::Unsupported(1))), "no more than type and length");
    // Without the Authentication Present bit there is no section, regardless of the following bytes.
    assert_eq!(with(&[(1, 0xc0)]), Ok(None));
}

fn packets() -> impl Strategy<Value = Packet> {
    let words = (1u32.., any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0u8..32, 0u8..4, 1u8.., flags, words).prop_map(|(diagnostic, state, times, flags, words)| {
        let state = State::from_bits(state);
        let needs_your = matches!(state, State::Init | State::Up);
        Packet {
            diagnostic: Diagnostic::from_bits(diagnostic),
            state,
            poll: flags.0,
            is_final: flags.1,
            control_plane_independent: flags.2,
            demand: flags.3,
            multiplier: multiplier(times),
            my_discriminator: discriminator(words.0),
            your_discriminator: NonZeroU32::new(words.1.max(u32::from(needs_your))),
            desired_min_tx_micros: words.2,
            required_min_rx_micros: words.3,
            required_min_echo_rx_micros: words.4,
        }
    })
}

fn sections() -> impl Strategy<Value = Option<Sha1Section>> {
    let section = (any::<bool>(), any::<u8>(), any::<u32>(), any::<[u8; 20]>());
    proptest::option::of(section.prop_map(|(meticulous, key_id, sequence, digest)| Sha1Section {
        meticulous,
        key_id,
        sequence,
        digest,
    }))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(packet in packets(), section in sections()) {
        let bytes = render(&packet, section.as_ref());
        let received = parse(&bytes).unwrap();
        prop_assert_eq!(received.packet, packet);
        prop_assert_eq!(received.section, section.map(Section::Sha1));
    }

    #[test]
    fn no_bytes_do_harm(bytes in vec(any::<u8>(), 0..80)) {
        let _ = parse(&bytes);
    }

    /// A valid packet whose bytes were changed or cut off is decoded or rejected without a panic. Such packets
    /// reach more code than random bytes.
    #[test]
    fn no_change_of_good_bytes_does_harm(
        packet in packets(),
        section in sections(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = render(&packet, section.as_ref());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        if let Ok(received) = parse(&bytes) {
            // An accepted packet survives re-encoding.
            let section = match received.section {
                Some(Section::Sha1(section)) => Some(section),
                None => None,
                Some(Section::Unsupported(_)) => return Ok(()),
            };
            let again = render(&received.packet, section.as_ref());
            let again = parse(&again).unwrap();
            prop_assert_eq!(again.packet, received.packet);
            prop_assert_eq!(again.section, received.section);
        }
    }
}
