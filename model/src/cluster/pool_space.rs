//! Assignable addresses of a pool, and the search for the first free one in O(log n).
//!
//! The addresses in use or in quarantine (released recently) are stored as intervals of their numbers in a
//! [`Numbering`]. A pool with `avoidBuggyIPs` uses a numbering without the IPv4 addresses ending in `.0` and
//! `.255`, so the search never stops at one of them. Reserved addresses split the ranges of a pool into a few
//! pieces, and the search needs one look-up per piece.

use std::net::IpAddr;

use crate::{
    kinds::address_pool::AddressPoolSpec,
    primitives::net::{IpFamily, from_number, to_number},
};

/// Mapping of the addresses of a family to numbers without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Numbering {
    /// All IPv4 addresses, each numbered by its 32-bit value.
    V4,
    /// IPv4 without the addresses that end in `.0` and `.255`: 254 numbers for each 256 addresses.
    V4Inner,
    /// All IPv6 addresses, each numbered by its 128-bit value.
    V6,
}

impl Numbering {
    pub(crate) const ALL: [Self; 3] = [Self::V4, Self::V4Inner, Self::V6];

    fn of(family: IpFamily, avoid_buggy_ips: bool) -> Self {
        match (family, avoid_buggy_ips) {
            (IpFamily::V4, false) => Self::V4,
            (IpFamily::V4, true) => Self::V4Inner,
            (IpFamily::V6, _) => Self::V6,
        }
    }

    const fn family(self) -> IpFamily {
        match self {
            Self::V4 | Self::V4Inner => IpFamily::V4,
            Self::V6 => IpFamily::V6,
        }
    }

    /// Returns the number of an address, or `None` if this numbering omits it.
    pub(crate) fn number(self, address: IpAddr) -> Option<u128> {
        let plain = to_number(address);
        let is_numbered = self.family() == IpFamily::of(address) && self.up(plain) == plain;
        is_numbered.then(|| self.compress(plain))
    }

    /// Returns the address with the given number in this numbering, or `None` if the number is too large.
    fn address(self, number: u128) -> Option<IpAddr> {
        let plain = match self {
            Self::V4 | Self::V6 => number,
            Self::V4Inner => (number / 254) * 256 + number % 254 + 1,
        };
        from_number(self.family(), plain)
    }

    /// Returns the numbers of the first and the last address in a range that have a number in this numbering;
    /// `None` if no address in the range has one.
    fn between(self, (first, last): (u128, u128)) -> Option<(u128, u128)> {
        let (first, last) = (self.up(first), self.down(last)?);
        (first <= last).then(|| (self.compress(first), self.compress(last)))
    }

    fn compress(self, plain: u128) -> u128 {
        match self {
            Self::V4 | Self::V6 => plain,
            Self::V4Inner => (plain / 256) * 254 + plain % 256 - 1,
        }
    }

    /// Returns the first address at or after `plain` that has a number in this numbering. Addresses are integers.
    fn up(self, plain: u128) -> u128 {
        match (self, plain % 256) {
            (Self::V4Inner, 0) => plain + 1,
            (Self::V4Inner, 255) => plain + 2,
            _ => plain,
        }
    }

    /// Returns the last address at or before `plain` that has a number in this numbering, or `None` if no address
    /// has one. Addresses are integers.
    fn down(self, plain: u128) -> Option<u128> {
        match (self, plain % 256) {
            (Self::V4Inner, 0) => plain.checked_sub(2),
            (Self::V4Inner, 255) => plain.checked_sub(1),
            _ => Some(plain),
        }
    }
}

impl AddressPoolSpec {
    /// Returns true if an address of the pool may be assigned to a Service.
    pub(crate) fn is_usable(&self, address: IpAddr) -> bool {
        self.contains(address) && !self.is_reserved(address) && !self.is_avoided(address)
    }

    /// Returns true if an address is in `spec.reserved`.
    pub(crate) fn is_reserved(&self, address: IpAddr) -> bool {
        self.reserved.iter().any(|range| range.contains(address))
    }

    /// Returns true if `avoidBuggyIPs` excludes an address: old devices drop packets to addresses that end in
    /// .0 or .255.
    pub(crate) fn is_avoided(&self, address: IpAddr) -> bool {
        Numbering::of(IpFamily::of(address), self.avoid_buggy_ips).number(address).is_none()
    }

    /// Returns the number of assignable addresses of a family, assigned ones included.
    pub(crate) fn capacity(&self, family: IpFamily) -> u128 {
        let numbering = Numbering::of(family, self.avoid_buggy_ips);
        let sizes = self.pieces(family).filter_map(|piece| numbering.between(piece));
        sizes.fold(0, |sum: u128, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// Returns the first assignable address of a family that is free, or `None`. The argument `first_free`
    /// must return the first free number of a numbering between two numbers; it is called at most once for
    /// each piece of the pool (part of a range without reserved addresses).
    pub(crate) fn first_free(
        &self,
        family: IpFamily,
        first_free: impl Fn(Numbering, u128, u128) -> Option<u128>,
    ) -> Option<IpAddr> {
        let numbering = Numbering::of(family, self.avoid_buggy_ips);
        let mut pieces = self.pieces(family).filter_map(|piece| numbering.between(piece));
        pieces
            .find_map(|(first, last)| first_free(numbering, first, last))
            .and_then(|number| numbering.address(number))
    }

    /// Returns the address ranges of a family as integers, in the order of the spec, without the reserved
    /// addresses.
    fn pieces(&self, family: IpFamily) -> impl Iterator<Item = (u128, u128)> + '_ {
        let of_family = move |range: &&crate::kinds::address_pool::AddressRange| range.family() == family;
        let mut reserved: Vec<_> =
            self.reserved.iter().filter(of_family).map(|range| range.numbers()).collect();
        reserved.sort_unstable();
        self.addresses.iter().filter(of_family).flat_map(move |range| cut(range.numbers(), &reserved))
    }
}

/// Returns the parts of a range that remain without the reserved ranges. `reserved` must be sorted and
/// without overlaps.
fn cut((first, last): (u128, u128), reserved: &[(u128, u128)]) -> Vec<(u128, u128)> {
    let mut pieces = Vec::new();
    let mut rest = Some(first);
    for (from, to) in reserved.iter().filter(|(from, to)| *from <= last && first <= *to) {
        let Some(start) = rest else { break };
        if start < *from {
            pieces.push((start, from - 1));
        }
        rest = to.checked_add(1);
    }
    pieces.extend(rest.filter(|start| *start <= last).map(|start| (start, last)));
    pieces
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::primitives::interval_set::IntervalSet;

    fn pool(addresses: &[&str], reserved: &[&str], avoid: bool) -> AddressPoolSpec {
        let json =
            serde_json::json!({ "addresses": addresses, "reserved": reserved, "avoidBuggyIPs": avoid });
        serde_json::from_value(json).unwrap()
    }

    /// In a /8 in which all but two addresses are in use, with and without `avoidBuggyIPs`, the search finds
    /// the last assignable address with one look-up for each piece of the pool (part of its ranges between
    /// reserved addresses).
    #[test]
    fn f118_a_nearly_full_pool_of_16_million_takes_one_look_up_per_piece() {
        let all = (to_number("10.0.0.0".parse().unwrap()), to_number("10.255.255.253".parse().unwrap()));
        for (avoid, reserved, free, pieces) in [
            (false, &[][..], "10.255.255.254", 1),
            (true, &[], "10.255.255.254", 1),
            (true, &["10.0.0.0/24", "10.7.0.0-10.9.0.9"], "10.255.255.254", 2),
            (false, &["10.255.255.254"], "10.255.255.255", 2),
        ] {
            let pool = pool(&["10.0.0.0/8"], reserved, avoid);
            let lookups = Cell::new(0);
            let found = pool.first_free(IpFamily::V4, |numbering, first, last| {
                lookups.set(lookups.get() + 1);
                let taken = numbering.between(all).unwrap();
                IntervalSet::of_range(taken.0, taken.1).first_free(first, last)
            });
            assert_eq!(found, Some(free.parse().unwrap()), "{avoid} {reserved:?}");
            assert_eq!(lookups.get(), pieces, "{avoid} {reserved:?}");
        }
    }

    #[test]
    fn the_ends_of_a_family_are_safe() {
        let whole = pool(&["::/0"], &["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"], false);
        assert_eq!(whole.capacity(IpFamily::V6), 1);
        assert_eq!(pool(&["::/0"], &[], false).capacity(IpFamily::V6), u128::MAX, "one less than there are");
        assert_eq!(pool(&["0.0.0.0/32", "255.255.255.255"], &[], true).capacity(IpFamily::V4), 0);
    }

    proptest! {
        /// For four /26 networks around the boundary of a /24, the search, the capacity and the check of a single
        /// address agree with an enumeration of all addresses.
        #[test]
        fn the_search_agrees_with_an_enumeration(
            ranges in prop::collection::vec((0_u8..=255, 0_u8..40), 1..4),
            reserved in prop::collection::vec((0_u8..=255, 0_u8..10), 0..4),
            avoid: bool,
            taken in prop::collection::btree_set(0_u8..=255, 0..200),
        ) {
            let address = |offset: u8| -> IpAddr {
                from_number(IpFamily::V4, to_number("10.0.0.128".parse().unwrap()) + u128::from(offset)).unwrap()
            };
            let disjoint = |ranges: &[(u8, u8)]| -> Vec<String> {
                let mut seen = [false; 256];
                let ends = ranges.iter().map(|(first, len)| (*first, first.saturating_add(*len)));
                let fresh = ends.filter(|(first, last)| {
                    let range = usize::from(*first)..=usize::from(*last);
                    let is_fresh = !seen[range.clone()].contains(&true);
                    seen[range].iter_mut().for_each(|one| *one |= is_fresh);
                    is_fresh
                });
                fresh.map(|(first, last)| format!("{}-{}", address(first), address(last))).collect()
            };
            let (ranges, reserved) = (disjoint(&ranges), disjoint(&reserved));
            let texts = |list: &[String]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
            let pool = AddressPoolSpec { addresses: texts(&ranges), reserved: texts(&reserved), ..pool(&[], &[], avoid) };
            let usable: Vec<IpAddr> = pool
                .addresses
                .iter()
                .flat_map(|range| {
                    let (first, last) = range.numbers();
                    (first..=last).filter_map(|number| from_number(IpFamily::V4, number))
                })
                .filter(|one| {
                    let low = to_number(*one) % 256;
                    !(pool.reserved.iter().any(|range| range.contains(*one)) || avoid && (low == 0 || low == 255))
                })
                .collect();
            prop_assert_eq!(pool.capacity(IpFamily::V4), u128::try_from(usable.len()).unwrap());
            for offset in 0..=255 {
                prop_assert_eq!(pool.is_usable(address(offset)), usable.contains(&address(offset)));
            }
            let free = pool.first_free(IpFamily::V4, |numbering, first, last| {
                let mut set = IntervalSet::default();
                taken.iter().filter_map(|one| numbering.number(address(*one))).for_each(|number| { set.insert(number); });
                set.first_free(first, last)
            });
            let wanted = usable.into_iter().find(|one| !taken.iter().any(|offset| address(*offset) == *one));
            prop_assert_eq!(free, wanted);
        }
    }
}
