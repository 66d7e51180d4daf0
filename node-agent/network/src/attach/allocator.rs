//! Choice of addresses within the blocks of this node. Does no I/O and has no clock: the time is an argument.
//!
//! Addresses that were never used come first, in order. Released addresses follow in the order of their release, each
//! after its cooldown, so that connections to a removed workload do not reach its successor.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{
    kinds::address_pool::AddressRange,
    primitives::net::{IpFamily, from_number, to_number},
};

/// Maximum number of released addresses whose time of release is remembered; the oldest ones are forgotten.
const RELEASED_MAX: usize = 65_536;

/// Addresses in use, and released addresses with the time of their release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocator {
    /// Addresses in use, as numbers by family.
    used: BTreeMap<IpFamily, BTreeSet<u128>>,
    /// Released addresses with the time in seconds since 1970, oldest first.
    released: VecDeque<(IpAddr, u64)>,
    /// Offset in each block before which no address is unused.
    searched: BTreeMap<IpNet, u128>,
}

/// Source of an address: blocks of one family and network, and their limits.
#[derive(Debug, Clone, Copy)]
pub struct AllocationSource<'a> {
    /// Blocks from which addresses are assigned, in the order of their use.
    pub blocks: &'a [IpNet],
    /// Addresses that no workload receives.
    pub reserved: &'a [AddressRange],
    /// Time in seconds after which a released address is assigned again.
    pub cooldown_secs: u64,
}

/// Error: the blocks have no free address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFreeAddress {
    /// Number of released addresses that are in their cooldown.
    pub cooling: usize,
}

impl Allocator {
    /// Returns true if the address is in use.
    #[must_use]
    pub fn is_used(&self, address: IpAddr) -> bool {
        self.used.get(&IpFamily::of(address)).is_some_and(|used| used.contains(&to_number(address)))
    }

    /// Returns the released addresses with the time of their release, oldest first.
    pub fn released(&self) -> impl Iterator<Item = (IpAddr, u64)> {
        self.released.iter().copied()
    }

    /// Marks an address as used.
    pub fn hold(&mut self, address: IpAddr) {
        self.released.retain(|(other, _)| *other != address);
        self.used.entry(IpFamily::of(address)).or_default().insert(to_number(address));
    }

    /// Marks an address as released at a time, in seconds since 1970.
    pub fn release(&mut self, address: IpAddr, now: u64) {
        if let Some(used) = self.used.get_mut(&IpFamily::of(address)) {
            used.remove(&to_number(address));
        }
        self.released.retain(|(other, _)| *other != address);
        self.released.push_back((address, now));
        if self.released.len() > RELEASED_MAX {
            self.released.pop_front();
            // The address counts as unused again, below the searched offset.
            self.searched.clear();
        }
    }

    /// Chooses a free address and marks it as used.
    ///
    /// # Errors
    /// Returns [`NoFreeAddress`] if the blocks have none.
    pub fn allocate(&mut self, source: AllocationSource<'_>, now: u64) -> Result<IpAddr, NoFreeAddress> {
        let fresh = source.blocks.iter().find_map(|block| self.unused(block, source.reserved));
        let found = fresh.map_or_else(|| self.cooled(source, now), Ok)?;
        self.hold(found);
        Ok(found)
    }

    /// Returns the number of addresses in the blocks that can be assigned at the time `now`, up to `limit`.
    #[must_use]
    pub fn free(&self, source: AllocationSource<'_>, now: u64, limit: usize) -> usize {
        let is_cooling = |at: u64| at <= now && now - at < source.cooldown_secs;
        let released = self.released.iter().filter(|(_, at)| is_cooling(*at));
        let cooling: BTreeSet<_> = released.map(|(address, _)| *address).collect();
        let addresses =
            source.blocks.iter().flat_map(|block| addresses(block, 0).map(|(_, address)| address));
        let is_free = |address: &IpAddr| {
            !self.is_used(*address)
                && !cooling.contains(address)
                && !source.reserved.iter().any(|range| range.contains(*address))
        };
        addresses.filter(is_free).take(limit).count()
    }

    /// Returns the first address of a block that was never used.
    fn unused(&mut self, block: &IpNet, reserved: &[AddressRange]) -> Option<IpAddr> {
        let start = self.searched.get(block).copied().unwrap_or_default();
        for (offset, address) in addresses(block, start) {
            let is_reserved = reserved.iter().any(|range| range.contains(address));
            let is_known = self.is_used(address) || self.released.iter().any(|(other, _)| *other == address);
            if !is_known && !is_reserved {
                return Some(address);
            }
            if !is_reserved {
                // Reserved addresses may be given back by a change of the network.
                self.advance(block, offset);
            }
        }
        None
    }

    /// Moves the searched offset of a block past an address, if all before it are known.
    fn advance(&mut self, block: &IpNet, offset: u128) {
        let searched = self.searched.entry(*block).or_default();
        if *searched == offset {
            *searched = offset.saturating_add(1);
        }
    }

    /// Returns the address of the blocks that was released first, if its cooldown is over.
    fn cooled(&self, source: AllocationSource<'_>, now: u64) -> Result<IpAddr, NoFreeAddress> {
        let is_usable = |address: &IpAddr| {
            source.blocks.iter().any(|block| block.contains(address))
                && !source.reserved.iter().any(|range| range.contains(*address))
        };
        let mut cooling = 0;
        for (address, at) in self.released.iter().filter(|(address, _)| is_usable(address)) {
            // A time in the future shows that the clock was set back.
            if *at > now || now - *at >= source.cooldown_secs {
                return Ok(*address);
            }
            cooling += 1;
        }
        Err(NoFreeAddress { cooling })
    }
}

/// Returns the addresses of a block from an offset on, with their offsets.
fn addresses(block: &IpNet, start: u128) -> impl Iterator<Item = (u128, IpAddr)> + use<> {
    let family = IpFamily::of_net(block);
    let (first, last) = (to_number(block.network()), to_number(block.broadcast()));
    let offsets = start..=(last - first);
    offsets.filter_map(move |offset| Some((offset, from_number(family, first.checked_add(offset)?)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn source(blocks: &[IpNet]) -> AllocationSource<'_> {
        AllocationSource { blocks, reserved: &[], cooldown_secs: 60 }
    }

    #[test]
    fn unused_addresses_come_first_and_released_ones_in_order_after_their_cooldown() {
        let blocks = blocks(&["10.9.0.0/31", "10.9.1.0/31"]);
        let mut allocator = Allocator::default();
        let next = |allocator: &mut Allocator, now| {
            allocator.allocate(source(&blocks), now).map(|address| address.to_string())
        };
        let taken: Vec<_> = (0..4).map(|_| next(&mut allocator, 0).unwrap()).collect();
        assert_eq!(taken, ["10.9.0.0", "10.9.0.1", "10.9.1.0", "10.9.1.1"]);
        assert_eq!(next(&mut allocator, 0), Err(NoFreeAddress { cooling: 0 }));
        allocator.release("10.9.1.0".parse().unwrap(), 100);
        allocator.release("10.9.0.1".parse().unwrap(), 130);
        assert_eq!(next(&mut allocator, 159), Err(NoFreeAddress { cooling: 2 }));
        let free = |now| allocator.free(source(&blocks), now, 100);
        assert_eq!((free(159), free(160), free(190)), (0, 1, 2), "addresses in their cooldown are not free");
        assert_eq!(next(&mut allocator, 160).unwrap(), "10.9.1.0");
        assert_eq!(next(&mut allocator, 160), Err(NoFreeAddress { cooling: 1 }));
        assert_eq!(next(&mut allocator, 190).unwrap(), "10.9.0.1");
        allocator.release("10.9.0.0".parse().unwrap(), 500);
        assert_eq!(next(&mut allocator, 200).unwrap(), "10.9.0.0", "the clock was set back");
    }

    #[test]
    fn reserved_addresses_are_not_assigned_until_they_are_no_longer_reserved() {
        let blocks = blocks(&["10.9.0.0/30"]);
        let reserved = ["10.9.0.0-10.9.0.1".parse().unwrap()];
        let limited = AllocationSource { reserved: &reserved, ..source(&blocks) };
        let mut allocator = Allocator::default();
        assert_eq!(allocator.free(limited, 0, 100), 2);
        for expected in ["10.9.0.2", "10.9.0.3"] {
            assert_eq!(allocator.allocate(limited, 0).unwrap().to_string(), expected);
        }
        assert_eq!(allocator.allocate(limited, 0), Err(NoFreeAddress { cooling: 0 }));
        assert_eq!(allocator.allocate(source(&blocks), 0).unwrap().to_string(), "10.9.0.0");
    }

    #[test]
    fn a_large_block_is_not_searched_from_its_start() {
        let blocks = blocks(&["fd09::/64"]);
        let mut allocator = Allocator::default();
        for number in 0..5000_u128 {
            let address = allocator.allocate(source(&blocks), 0).unwrap();
            assert_eq!(to_number(address) & 0xffff, number);
        }
        assert_eq!(allocator.searched.get(&blocks[0]), Some(&4999));
    }

    proptest! {
        /// No address is assigned twice, outside of the blocks, or before its cooldown.
        #[test]
        fn addresses_are_unique_and_rest_after_use(
            steps in prop::collection::vec((prop::bool::weighted(0.6), 0_usize..8, 0_u64..40), 1..80),
        ) {
            let blocks = blocks(&["10.9.0.0/30", "10.9.4.0/31"]);
            let mut allocator = Allocator::default();
            let mut used = BTreeSet::new();
            let mut rest = BTreeMap::new();
            let mut now = 0;
            for (is_addition, index, passed) in steps {
                now += passed;
                if is_addition {
                    if let Ok(address) = allocator.allocate(source(&blocks), now) {
                        prop_assert!(used.insert(address));
                        prop_assert!(blocks.iter().any(|block| block.contains(&address)));
                        prop_assert!(rest.get(&address).is_none_or(|at| now - at >= 60));
                    } else {
                        let is_resting = |address: &IpAddr| rest.get(address).is_some_and(|at| now - at < 60);
                        let all = blocks.iter().flat_map(|block| addresses(block, 0).map(|(_, address)| address));
                        let free = all.filter(|address| !used.contains(address) && !is_resting(address)).count();
                        prop_assert_eq!(free, 0);
                    }
                } else if let Some(address) = used.iter().nth(index).copied() {
                    used.remove(&address);
                    rest.insert(address, now);
                    allocator.release(address, now);
                }
            }
        }
    }
}
