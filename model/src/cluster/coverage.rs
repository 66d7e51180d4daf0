//! Union of the addresses of several pools, with a test that all prefixes of a given length are either inside
//! or outside of the union.

use ipnet::IpNet;

use crate::{
    kinds::address_pool::AddressPoolSpec,
    primitives::net::{IpFamily, from_number},
};

/// Addresses of several pools, as sorted intervals that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Coverage {
    /// Returns the union of the addresses of pools. Reserved addresses are included, because they belong to the
    /// cluster too.
    pub(crate) fn of<'a>(pools: impl Iterator<Item = &'a AddressPoolSpec>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in pools.flat_map(|pool| &pool.addresses) {
            match range.family() {
                IpFamily::V4 => v4.push(range.numbers()),
                IpFamily::V6 => v6.push(range.numbers()),
            }
        }
        Self { v4: merged(v4), v6: merged(v6) }
    }

    /// Returns a prefix of the given length that contains both an address of the pools and an address outside
    /// of them, or `None` if no such prefix exists.
    pub(crate) fn reaching_outside(&self, family: IpFamily, length: u8) -> Option<IpNet> {
        let intervals = match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        };
        let below = u32::from(family.bits().saturating_sub(length));
        // Mask of the host bits.
        let tail = if below >= 128 { u128::MAX } else { (1_u128 << below) - 1 };
        let outlier = intervals.iter().find_map(|(first, last)| {
            let starts_before = first & tail != 0;
            let ends_behind = last | tail != *last;
            if starts_before {
                Some(*first)
            } else if ends_behind {
                Some(*last)
            } else {
                None
            }
        });
        let address = from_number(family, outlier? & !tail)?;
        IpNet::new(address, length).ok()
    }
}

fn merged(mut intervals: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    intervals.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
    for (first, last) in intervals {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            Some(_) | None => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(ranges: &[&str], length: u8) -> Option<String> {
        let spec = serde_json::json!({ "addresses": ranges });
        let pool: AddressPoolSpec = serde_json::from_value(spec).unwrap();
        let family = pool.addresses[0].family();
        Coverage::of(std::iter::once(&pool)).reaching_outside(family, length).map(|net| net.to_string())
    }

    #[test]
    fn prefixes_stay_inside_when_the_pools_hold_all_of_them() {
        for (ranges, length) in [
            (&["192.0.2.0/24"][..], 24),
            (&["192.0.2.0/24"], 30),
            (&["192.0.2.128/25", "192.0.2.0/25"], 24),
            (&["192.0.2.0-192.0.2.99", "192.0.2.100-192.0.2.255"], 24),
            (&["192.0.2.7"], 32),
            (&["2001:db8::/64"], 64),
            (&["::/1", "8000::/1"], 1),
        ] {
            assert_eq!(outside(ranges, length), None, "{ranges:?} /{length}");
        }
        for (ranges, length, prefix) in [
            (&["192.0.2.0/24"][..], 23, "192.0.2.0/23"),
            (&["192.0.2.4-192.0.2.255"], 24, "192.0.2.0/24"),
            (&["192.0.2.0-192.0.2.254"], 24, "192.0.2.0/24"),
            (&["192.0.2.0/25", "192.0.3.0/24"], 24, "192.0.2.0/24"),
            (&["192.0.2.7"], 31, "192.0.2.6/31"),
            (&["2001:db8::/64"], 48, "2001:db8::/48"),
            (&["2001:db8::1"], 1, "::/1"),
        ] {
            assert_eq!(outside(ranges, length).as_deref(), Some(prefix), "{ranges:?} /{length}");
        }
    }
}
