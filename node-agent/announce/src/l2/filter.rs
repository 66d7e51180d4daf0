//! Compiler of the classic BPF socket filter: only ARP and NDP frames about announced or watched addresses
//! (observed for other announcers) wake the announcer.
//!
//! An address is looked up by a 32-bit key: the address itself for IPv4, the sum of the four words for IPv6,
//! so that consecutive addresses have consecutive keys. The keys are covered by at most [`RANGES_MAX`]
//! ranges, which the program searches by bisection. False positives (a gap within a range, another IPv6
//! address with the same sum) are discarded in user space.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use model::primitives::net::IpFamily;

use super::wire::{ETHERTYPE_ARP, ETHERTYPE_IPV6};

/// Maximum number of instructions of a socket filter in the kernel (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Maximum number of key ranges in a filter program; each range takes at most 12 instructions.
pub const RANGES_MAX: usize = 256;
/// Maximum number of bytes of a frame passed to user space. No relevant frame is longer.
pub const FRAME_BYTES_MAX: u32 = 512;

/// Instruction of classic BPF (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Number of instructions to skip if the comparison holds.
    pub jump_true: u8,
    /// Number of instructions to skip if the comparison fails.
    pub jump_false: u8,
    /// Operand `k`: a constant, a packet offset or a jump distance, depending on the operation code.
    pub operand: u32,
}

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const ADD_INDEX: u16 = 0x0c;
const INDEX_FROM_ACCUMULATOR: u16 = 0x07;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Offset of the packet type (`SKF_AD_OFF` + `SKF_AD_PKTTYPE`), by which a BPF program loads this metadata of
/// a frame.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const VLAN_TAG_PRESENT: u32 = 0xffff_f000 + 48;
/// Highest packet type of frames addressed to this machine: `PACKET_MULTICAST`.
const PACKET_TYPE_FOR_US_MAX: u32 = 2;
/// Byte offset of the EtherType in an Ethernet frame.
const ETHERTYPE_AT: u32 = 12;
const ARP_SENDER_AT: u32 = 28;
const ARP_TARGET_AT: u32 = 38;
const IPV6_NEXT_HEADER_AT: u32 = 20;
const IPV6_SOURCE_AT: u32 = 22;
const ICMPV6_TYPE_AT: u32 = 54;
const ICMPV6_TARGET_AT: u32 = 62;
const NEXT_HEADER_ICMPV6: u32 = 58;
const SOLICITATION: u32 = 135;
const ADVERTISEMENT: u32 = 136;

/// Set of address keys that a filter accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    family: IpFamily,
    /// First and last key of each range; disjoint and sorted.
    ranges: Vec<(u32, u32)>,
}

/// Returns the lookup key of an address.
#[must_use]
pub fn key(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => words(v6).into_iter().fold(0, u32::wrapping_add),
    }
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| u32::try_from(bits >> shift & 0xffff_ffff).unwrap_or_default())
}

impl Filter {
    /// Creates a filter for the addresses of `family`; others are ignored.
    #[must_use]
    pub fn new(family: IpFamily, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let of_family = addresses.into_iter().filter(|address| IpFamily::of(*address) == family);
        let keys: BTreeSet<u32> = of_family.map(key).collect();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for key in keys {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(key) => *last = key,
                _ => ranges.push((key, key)),
            }
        }
        Self { family, ranges: close_gaps(ranges) }
    }

    /// Returns true if the filter accepts frames about `address`, which must be of the address family of the
    /// filter.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        let key = key(address);
        let after = self.ranges.partition_point(|(first, _)| *first <= key);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| key <= *last)
    }

    /// Compiles the filter into a program for `SO_ATTACH_FILTER`.
    #[must_use]
    pub fn program(&self) -> Vec<Instruction> {
        let mut program = Vec::new();
        if !self.ranges.is_empty() {
            demand_for_us(&mut program);
            match self.family {
                IpFamily::V4 => {
                    demand(&mut program, LOAD_HALF, ETHERTYPE_AT, u32::from(ETHERTYPE_ARP));
                    for at in [ARP_TARGET_AT, ARP_SENDER_AT] {
                        program.push(load(LOAD_WORD, at));
                        self.look_up(&mut program);
                    }
                }
                IpFamily::V6 => {
                    demand(&mut program, LOAD_HALF, ETHERTYPE_AT, u32::from(ETHERTYPE_IPV6));
                    demand(&mut program, LOAD_BYTE, IPV6_NEXT_HEADER_AT, NEXT_HEADER_ICMPV6);
                    program.push(load(LOAD_BYTE, ICMPV6_TYPE_AT));
                    program.push(jump(JUMP_EQUAL, SOLICITATION, 2, 0));
                    program.push(jump(JUMP_EQUAL, ADVERTISEMENT, 1, 0));
                    program.push(answer(false));
                    for at in [ICMPV6_TARGET_AT, IPV6_SOURCE_AT] {
                        load_sum(&mut program, at);
                        self.look_up(&mut program);
                    }
                }
            }
        }
        program.push(answer(false));
        program
    }

    /// Emits the lookup of the key in the accumulator: the frame is accepted if the key is in a range;
    /// otherwise execution continues after the emitted code.
    fn look_up(&self, program: &mut Vec<Instruction>) {
        let mut misses = Vec::new();
        bisect(&self.ranges, program, &mut misses);
        let end = program.len();
        for miss in misses {
            program[miss].operand = distance(miss, end);
        }
    }
}

/// Merges the ranges with the smallest gaps until at most [`RANGES_MAX`] are left.
fn close_gaps(ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let Some(surplus) = ranges.len().checked_sub(RANGES_MAX).filter(|surplus| *surplus > 0) else {
        return ranges;
    };
    let gaps = ranges.windows(2).enumerate();
    let mut gaps: Vec<(u32, usize)> =
        gaps.map(|(at, pair)| (pair[1].0.wrapping_sub(pair[0].1), at)).collect();
    gaps.sort_unstable();
    let closed: BTreeSet<usize> = gaps.into_iter().take(surplus).map(|(_, at)| at).collect();
    let mut joined: Vec<(u32, u32)> = Vec::with_capacity(RANGES_MAX);
    for (at, range) in ranges.into_iter().enumerate() {
        match joined.last_mut() {
            Some(last) if at.checked_sub(1).is_some_and(|before| closed.contains(&before)) => {
                last.1 = range.1
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Emits instructions that reject three kinds of frames: those with a VLAN tag (they belong to a VLAN
/// interface), those for other machines, and those sent by this machine.
fn demand_for_us(program: &mut Vec<Instruction>) {
    program.push(load(LOAD_BYTE, PACKET_TYPE));
    program.push(jump(JUMP_GREATER, PACKET_TYPE_FOR_US_MAX, 0, 1));
    program.push(answer(false));
    demand(program, LOAD_BYTE, VLAN_TAG_PRESENT, 0);
}

fn demand(program: &mut Vec<Instruction>, load_code: u16, at: u32, value: u32) {
    program.push(load(load_code, at));
    program.push(jump(JUMP_EQUAL, value, 1, 0));
    program.push(answer(false));
}

fn load_sum(program: &mut Vec<Instruction>, at: u32) {
    program.push(load(LOAD_WORD, at));
    for offset in [4, 8, 12] {
        program.push(load(INDEX_FROM_ACCUMULATOR, 0));
        program.push(load(LOAD_WORD, at + offset));
        program.push(load(ADD_INDEX, 0));
    }
}

fn bisect(ranges: &[(u32, u32)], program: &mut Vec<Instruction>, misses: &mut Vec<usize>) {
    match *ranges {
        [] => {}
        [(first, last)] => {
            if first == last {
                program.push(jump(JUMP_EQUAL, first, 0, 1));
            } else {
                program.push(jump(JUMP_GREATER_OR_EQUAL, first, 0, 2));
                program.push(jump(JUMP_GREATER, last, 1, 0));
            }
            program.push(answer(true));
            misses.push(program.len());
            program.push(jump(JUMP, 0, 0, 0));
        }
        _ => {
            let (left, right) = ranges.split_at(ranges.len() / 2);
            program.push(jump(JUMP_GREATER_OR_EQUAL, right[0].0, 0, 1));
            // Conditional jumps reach 255 instructions, unconditional ones any distance.
            let turn = program.len();
            program.push(jump(JUMP, 0, 0, 0));
            bisect(left, program, misses);
            program[turn].operand = distance(turn, program.len());
            bisect(right, program, misses);
        }
    }
}

fn distance(from: usize, to: usize) -> u32 {
    u32::try_from(to - from - 1).expect("a program has at most 4096 instructions")
}

const fn load(code: u16, operand: u32) -> Instruction {
    jump(code, operand, 0, 0)
}

const fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

const fn answer(passes: bool) -> Instruction {
    jump(RETURN, if passes { FRAME_BYTES_MAX } else { 0 }, 0, 0)
}

#[cfg(test)]
mod tests;
