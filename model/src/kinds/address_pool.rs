//! AddressPool: load balancer addresses and the Services that may use them.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::selector::Selector,
    primitives::{
        name::Namespace,
        net::{IpFamily, to_number},
    },
};

/// Maximum number of entries in each of `addresses` and `reserved` of a pool.
pub const POOL_RANGES_MAX: usize = 256;
/// Maximum number of entries in each of `namespaces` and `serviceSelectors` of a pool.
pub const POOL_SELECTORS_MAX: usize = 64;
/// Default time in seconds for which a released address is not assigned to another Service (quarantine).
pub const QUARANTINE_SECONDS_DEFAULT: u32 = 60;
/// Maximum duration of the quarantine of a released address, in seconds: one week.
pub const QUARANTINE_SECONDS_MAX: u32 = 604_800;

/// Desired state of an AddressPool: addresses for Services of type LoadBalancer, and the Services that may
/// use them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressPoolSpec {
    /// Addresses of the pool: networks such as `192.0.2.0/28`, ranges such as `192.0.2.10-192.0.2.20`, and single
    /// addresses, IPv4 and IPv6, from 1 to 256 entries. All addresses of a network can be assigned, including the
    /// first and the last, except reserved ones. Pools must not overlap.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 256, example = json!(["192.0.2.0/28", "2001:db8::10-2001:db8::20"]))]
    pub addresses: Vec<AddressRange>,
    /// Networks, ranges and addresses of the pool that are never assigned, at most 256 entries. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub reserved: Vec<AddressRange>,
    /// True if Services that request neither a pool nor an address may receive an address of the pool.
    /// Default: true.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub auto_assign: bool,
    /// True if IPv4 addresses that end in `.0` or `.255` are not assigned, because some old devices drop
    /// them. Default: false.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Rank among the pools that accept a Service, at least 1. Pools with a lower number are used first;
    /// pools without a number are used last, in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub priority: Option<u32>,
    /// Namespaces whose Services may use the pool, at most 64 entries. Default: all namespaces.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub namespaces: BTreeSet<Namespace>,
    /// Selectors of Services, at most 64. The pool can be used by Services whose labels match at least one
    /// selector. Default: all Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub service_selectors: Vec<Selector>,
    /// True if no further addresses of the pool are assigned. Assigned addresses remain with their Services.
    /// Default: false.
    #[serde(default)]
    pub disabled: bool,
    /// True if another system, such as a static route of a router, leads the addresses of the pool to the nodes.
    /// The condition Announced of addresses that no Advertisement covers is then true, with reason
    /// RoutedExternally. Addresses that an Advertisement covers are announced as in any pool. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub routed_externally: bool,
    /// Time in seconds for which a released address is reserved for its former Service, from 0 to 604,800.
    /// Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub quarantine_seconds: Option<u32>,
}

const fn yes() -> bool {
    true
}

impl AddressPoolSpec {
    /// Returns the duration of the quarantine of a released address, in seconds.
    #[must_use]
    pub fn quarantine(&self) -> u32 {
        self.quarantine_seconds.unwrap_or(QUARANTINE_SECONDS_DEFAULT)
    }

    /// True if the pool contains an address, reserved or not.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }
}

/// Range of addresses of one IP family, including its first and last address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressRange {
    /// All addresses of a network, including the first and the last.
    Net(IpNet),
    /// Range from the first to the second address, which is equal or higher.
    Between(IpAddr, IpAddr),
}

impl AddressRange {
    /// Returns the first address of the range.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        match self {
            Self::Net(net) => net.network(),
            Self::Between(first, _) => *first,
        }
    }

    /// Returns the last address of the range.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        match self {
            Self::Net(net) => net.broadcast(),
            Self::Between(_, last) => *last,
        }
    }

    /// Returns the IP family of the range.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.first())
    }

    /// Returns the first and the last address as integers.
    #[must_use]
    pub fn numbers(&self) -> (u128, u128) {
        (to_number(self.first()), to_number(self.last()))
    }

    /// True if the range contains the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (first, last) = self.numbers();
        IpFamily::of(address) == self.family() && (first..=last).contains(&to_number(address))
    }

    /// True if the range and a network share an address.
    #[must_use]
    pub fn overlaps_net(&self, net: &IpNet) -> bool {
        self.overlaps(&Self::Net(*net))
    }

    /// True if two ranges have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let ((a, b), (c, d)) = (self.numbers(), other.numbers());
        self.family() == other.family() && a <= d && c <= b
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Between(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    /// Parses a network, a range with a dash (and optional spaces around it) or a single address.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "must be a network such as 192.0.2.0/28, or a range such as 192.0.2.10-192.0.2.20, not `{text}`"
            )
        };
        let address = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| form());
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first)?, address(last)?);
            if IpFamily::of(first) != IpFamily::of(last) {
                return Err(format!("must have both ends in one IP family, not `{text}`"));
            }
            if to_number(first) > to_number(last) {
                return Err(format!("must start with the lower address; write {last}-{first}"));
            }
            return Ok(Self::Between(first, last));
        }
        if text.contains('/') {
            let net: IpNet = text.trim().parse().map_err(|_| form())?;
            if net.trunc() != net {
                return Err(format!("must be a network: {net} has host bits set; write {}", net.trunc()));
            }
            return Ok(Self::Net(net));
        }
        address(text).map(|address| Self::Net(address.into()))
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip_and_refuse_what_is_none() {
        for text in [
            "192.0.2.0/28",
            "192.0.2.10-192.0.2.20",
            "2001:db8::/64",
            "2001:db8::1-2001:db8::f",
            "192.0.2.1/32",
        ] {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<AddressRange>().unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(
            "192.0.2.1 - 192.0.2.3".parse::<AddressRange>().unwrap().to_string(),
            "192.0.2.1-192.0.2.3"
        );
        for (bad, said) in [
            ("192.0.2.9-192.0.2.1", "must start with the lower address; write 192.0.2.1-192.0.2.9"),
            ("192.0.2.9-2001:db8::1", "one IP family"),
            ("192.0.2.1/28", "write 192.0.2.0/28"),
            ("", "must be a network"),
            ("192.0.2.1-", "must be a network"),
            ("192.0.2.0/33", "must be a network"),
        ] {
            let error = bad.parse::<AddressRange>().unwrap_err();
            assert!(error.contains(said), "{bad}: {error}");
        }
    }
}
