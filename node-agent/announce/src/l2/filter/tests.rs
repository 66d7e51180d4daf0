use std::net::Ipv4Addr;

use kernel::links::Mac;
use proptest::prelude::*;

use super::*;
use crate::l2::wire::{Advertisement, Arp, Frame, Operation, Packet};

/// Interprets a BPF program as the kernel does, and returns the number of accepted bytes. Supports only the
/// instructions that the compiler emits, and panics at others.
fn interpret(program: &[Instruction], frame: &[u8], packet_type: u32, is_tagged: bool) -> u32 {
    assert!(program.len() <= INSTRUCTIONS_MAX);
    let (mut accumulator, mut index, mut at) = (0_u32, 0_u32, 0);
    loop {
        let Instruction { code, jump_true, jump_false, operand } = program[at];
        at += 1;
        let word = |bytes: usize| -> Option<u32> {
            match operand {
                PACKET_TYPE => Some(packet_type),
                VLAN_TAG_PRESENT => Some(u32::from(is_tagged)),
                _ => {
                    let start = operand as usize;
                    let bytes = frame.get(start..start + bytes)?;
                    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
                }
            }
        };
        let skip = |holds: bool| usize::from(if holds { jump_true } else { jump_false });
        match code {
            LOAD_WORD | LOAD_HALF | LOAD_BYTE => {
                let bytes = match code {
                    LOAD_WORD => 4,
                    LOAD_HALF => 2,
                    _ => 1,
                };
                let Some(loaded) = word(bytes) else { return 0 };
                accumulator = loaded;
            }
            INDEX_FROM_ACCUMULATOR => index = accumulator,
            ADD_INDEX => accumulator = accumulator.wrapping_add(index),
            JUMP => at += operand as usize,
            JUMP_EQUAL => at += skip(accumulator == operand),
            JUMP_GREATER => at += skip(accumulator > operand),
            JUMP_GREATER_OR_EQUAL => at += skip(accumulator >= operand),
            RETURN => return operand,
            _ => panic!("an instruction {code:#x}"),
        }
    }
}

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn arp(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let packet = Packet::Arp(Arp {
        operation: Operation::Request,
        sender_mac: MAC,
        sender,
        target_mac: Mac::ZERO,
        target,
    });
    Frame { destination: Mac::BROADCAST, source: MAC, packet }.render()
}

fn told(source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let packet = Packet::Advertisement(Advertisement {
        source,
        destination: "ff02::1".parse().unwrap(),
        is_router: false,
        is_solicited: false,
        is_override: true,
        target,
        target_mac: Some(MAC),
    });
    Frame { destination: MAC, source: MAC, packet }.render()
}

fn passes(filter: &Filter, frame: &[u8]) -> bool {
    interpret(&filter.program(), frame, 1, false) > 0
}

#[test]
fn only_frames_for_us_about_our_addresses_pass() {
    let ours: Ipv4Addr = "192.0.2.100".parse().unwrap();
    let other = "192.0.2.1".parse().unwrap();
    let filter = Filter::new(IpFamily::V4, [IpAddr::V4(ours), "2001:db8::1".parse().unwrap()]);
    assert!(passes(&filter, &arp(other, ours)) && passes(&filter, &arp(ours, other)));
    assert!(!passes(&filter, &arp(other, other)));
    let program = filter.program();
    for (packet_type, is_tagged) in [(3, false), (4, false), (1, true)] {
        assert_eq!(interpret(&program, &arp(other, ours), packet_type, is_tagged), 0, "{packet_type}");
    }
    assert_eq!(interpret(&program, &arp(other, ours)[..30], 1, false), 0, "cut off");
    let nothing = Filter::new(IpFamily::V4, []);
    assert_eq!(nothing.program(), [answer(false)]);

    let ours: Ipv6Addr = "2001:db8::100".parse().unwrap();
    let other = "2001:db8::1".parse().unwrap();
    let filter = Filter::new(IpFamily::V6, [IpAddr::V6(ours)]);
    assert!(passes(&filter, &told(other, ours)) && passes(&filter, &told(ours, other)));
    assert!(!passes(&filter, &told(other, other)));
    let mut router = told(other, ours);
    router[54] = 134;
    assert!(!passes(&filter, &router));
    let mut udp = told(other, ours);
    udp[20] = 17;
    assert!(!passes(&filter, &udp));
}

#[test]
fn addresses_in_a_row_are_one_range_and_many_are_covered() {
    let pool = (0..50_000_u32).map(|n| IpAddr::V4((0x0a00_0000 + n).into()));
    assert_eq!(Filter::new(IpFamily::V4, pool).ranges.len(), 1);
    let base: u128 = 0x2001_0db8_0000_0000_0000_0000_ffff_fff0;
    let pool = (0..1000).map(|n| IpAddr::V6((base + n).into()));
    assert!(Filter::new(IpFamily::V6, pool).ranges.len() <= 2, "also across the end of a word");
    let scattered = || (0..20_000_u32).map(|n| IpAddr::V4((n.wrapping_mul(0x9e37_79b9)).into()));
    let filter = Filter::new(IpFamily::V4, scattered());
    assert_eq!(filter.ranges.len(), RANGES_MAX);
    assert!(filter.program().len() <= INSTRUCTIONS_MAX, "{}", filter.program().len());
    assert!(scattered().all(|address| filter.covers(address)));
}

proptest! {
    #[test]
    fn a_few_scattered_addresses_pass_and_no_other_does(ours in prop::collection::btree_set(any::<u32>(), 0..RANGES_MAX), other: [u32; 2]) {
        let filter = Filter::new(IpFamily::V4, ours.iter().map(|bits| IpAddr::V4((*bits).into())));
        let program = filter.program();
        prop_assert!(program.len() <= INSTRUCTIONS_MAX);
        let [sender, target] = other;
        for (sender, target) in ours.iter().map(|ours| (sender, *ours)).chain([(sender, target)]) {
            let expected = ours.contains(&sender) || ours.contains(&target);
            prop_assert_eq!(interpret(&program, &arp(sender.into(), target.into()), 0, false) > 0, expected);
            prop_assert_eq!(filter.covers(IpAddr::V4(target.into())), ours.contains(&target));
        }
    }

    #[test]
    fn every_one_of_many_ipv6_addresses_passes(ours in prop::collection::btree_set(any::<u128>(), 1..600), at: prop::sample::Index) {
        let filter = Filter::new(IpFamily::V6, ours.iter().map(|bits| IpAddr::V6((*bits).into())));
        let program = filter.program();
        prop_assert!(program.len() <= INSTRUCTIONS_MAX);
        let one = at.get(&ours.iter().copied().collect::<Vec<_>>()).to_owned();
        let other = "fe80::1".parse().unwrap();
        prop_assert!(interpret(&program, &told(other, one.into()), 2, false) > 0);
        prop_assert!(interpret(&program, &told(one.into(), other), 2, false) > 0);
    }
}
