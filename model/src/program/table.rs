//! Maglev table: targets of the slots of a frontend, as a pure function of the targets and their weights.
//!
//! Nodes that hash a connection to the same slot select the same target, whatever endpoints they had before. A
//! target that leaves moves its own slots and few others.
//!
//! Each target has a permutation of all slots, which follows from its address and port. The targets take turns in
//! order of their addresses; in its turn, a target takes the first free slot of its permutation. The algorithm is
//! that of section 3.4 of the Maglev paper (Eisenbud et al., NSDI 2016), with weights.

use std::{collections::BTreeMap, net::IpAddr};

use super::Target;
use crate::primitives::quantity::Weight;

/// Numbers of slots of a table, each with the maximum number of targets for which it is used. The numbers are prime,
/// so that every step from 1 to the number of slots visits all slots. A larger table moves fewer slots between
/// remaining targets, but takes more memory in the kernel and more time to write.
pub const SIZES: [(u32, u32); 4] = [(251, 5), (1021, 25), (4093, 400), (SLOTS_MAX, SLOTS_MAX)];

/// Maximum number of slots of a table, and therefore of targets that all have a slot.
pub const SLOTS_MAX: u32 = 16_381;

/// Number of slots of a table for a frontend with session affinity, which limits the number of its slots to 512.
pub const AFFINITY_SIZE: u32 = 509;

/// Returns the number of slots for a number of targets, at most 16,381. Of more targets, some receive no slot.
#[must_use]
pub fn size(targets: usize) -> u32 {
    let fits = |most: u32| usize::try_from(most).is_ok_and(|most| targets <= most);
    let found = SIZES.iter().find(|(_, most)| fits(*most));
    found.map_or(SLOTS_MAX, |(slots, _)| *slots)
}

/// Returns the target of each slot of a table with a prime number of slots. Targets of weight 0 receive no slot; the
/// others receive shares in proportion to their weights, at least one slot each while there are no more targets than
/// slots. The result is empty if no target has a weight above 0.
#[must_use]
pub fn table(targets: &BTreeMap<Target, Weight>, slots: u32) -> Vec<Target> {
    let heaviest = targets.values().map(|weight| u64::from(weight.0)).max().unwrap_or(0);
    let mut seekers: Vec<_> = targets
        .iter()
        .filter(|(_, weight)| weight.0 > 0)
        .map(|(target, weight)| Seeker::new(*target, u64::from(weight.0), slots))
        .collect();
    let mut table = vec![None; usize::try_from(slots).unwrap_or(0)];
    let mut free = table.len();
    for round in 0.. {
        if free == 0 || seekers.is_empty() {
            break;
        }
        for seeker in &mut seekers {
            if free > 0 && seeker.has_turn(round, heaviest) {
                seeker.take(&mut table);
                free -= 1;
            }
        }
    }
    table.into_iter().flatten().collect()
}

/// Target that searches for free slots in the order of its permutation.
struct Seeker {
    target: Target,
    weight: u64,
    next: u64,
    step: u64,
}

impl Seeker {
    fn new(target: Target, weight: u64, slots: u32) -> Self {
        let slots = u64::from(slots);
        let next = hash(&target, 0) % slots;
        Self { target, weight, next, step: 1 + hash(&target, 1) % (slots - 1).max(1) }
    }

    /// Returns true if the target takes a slot in this round, counted from 0. The heaviest target has a turn in every
    /// round, and every target has one in the first round.
    fn has_turn(&self, round: u64, heaviest: u64) -> bool {
        let turns = |rounds: u64| (rounds * self.weight).div_ceil(heaviest);
        turns(round + 1) > turns(round)
    }

    /// Takes the first free slot of the permutation. The caller ensures that a slot is free.
    fn take(&mut self, table: &mut [Option<Target>]) {
        let slots = table.len() as u64;
        loop {
            let slot = usize::try_from(self.next).ok().and_then(|slot| table.get_mut(slot));
            self.next = (self.next + self.step) % slots;
            if let Some(slot @ None) = slot {
                *slot = Some(self.target);
                return;
            }
        }
    }
}

/// Returns a hash of a target that is the same on all nodes and in all versions: FNV-1a, whose bits are then mixed,
/// because addresses differ in few bits.
fn hash(target: &Target, seed: u8) -> u64 {
    let mut value = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| value = (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    add(seed);
    match target.address {
        IpAddr::V4(v4) => v4.octets().into_iter().for_each(&mut add),
        IpAddr::V6(v6) => v6.octets().into_iter().for_each(&mut add),
    }
    target.port.map_or(0, |port| port.get()).to_be_bytes().into_iter().for_each(&mut add);
    // Finalizer of splitmix64.
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
