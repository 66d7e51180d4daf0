//! The AddressPool: load balancer addresses that may be given out, and to whom.

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

/// Ranges of one pool, and reserved ranges of one.
pub const POOL_RANGES_MAX: usize = 256;
/// Namespaces and selectors of one pool.
pub const POOL_SELECTORS_MAX: usize = 64;
/// How long a freed address is held back for the Service that had it, when the pool does not say.
pub const QUARANTINE_SECONDS_DEFAULT: u32 = 60;
/// The longest quarantine: a week.
pub const QUARANTINE_SECONDS_MAX: u32 = 604_800;

/// What an AddressPool should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressPoolSpec {
    /// The addresses: networks (`192.0.2.0/28`) and ranges (`192.0.2.10-192.0.2.20`), IPv4 and IPv6. Every address of
    /// them may be given out, but for the reserved ones. No two pools overlap.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 256, example = json!(["192.0.2.0/28", "2001:db8::10-2001:db8::20"]))]
    pub addresses: Vec<AddressRange>,
    /// Addresses of the pool that are never given out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub reserved: Vec<AddressRange>,
    /// Whether a Service that names neither pool nor address may get one of these.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub auto_assign: bool,
    /// Leave out IPv4 addresses that end in `.0` or `.255`, which some old devices drop.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Pools with a lower number are tried first; pools without one last, in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub priority: Option<u32>,
    /// Only Services of these namespaces get an address; of all when left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub namespaces: BTreeSet<Namespace>,
    /// Only Services whose labels match one of these get an address; all when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub service_selectors: Vec<Selector>,
    /// Keep what is given out, and give nothing more.
    #[serde(default)]
    pub disabled: bool,
    /// How long a freed address is held back for the Service that had it, in seconds; 60 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub quarantine_seconds: Option<u32>,
}

const fn yes() -> bool {
    true
}

impl AddressPoolSpec {
    /// How long a freed address is held back, in seconds.
    #[must_use]
    pub fn quarantine(&self) -> u32 {
        self.quarantine_seconds.unwrap_or(QUARANTINE_SECONDS_DEFAULT)
    }

    /// Whether an address lies in the pool, reserved or not.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }
}

/// Addresses from the first to the last of one family, both included: a network, or two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressRange {
    /// Every address of a network, its first and last included.
    Net(IpNet),
    /// From an address to another that is not smaller.
    Between(IpAddr, IpAddr),
}

impl AddressRange {
    /// The first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        match self {
            Self::Net(net) => net.network(),
            Self::Between(first, _) => *first,
        }
    }

    /// The last address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        match self {
            Self::Net(net) => net.broadcast(),
            Self::Between(_, last) => *last,
        }
    }

    /// The family of both ends.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.first())
    }

    /// Both ends as numbers of the family.
    #[must_use]
    pub fn numbers(&self) -> (u128, u128) {
        (to_number(self.first()), to_number(self.last()))
    }

    /// Whether an address is one of these.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (first, last) = self.numbers();
        IpFamily::of(address) == self.family() && (first..=last).contains(&to_number(address))
    }

    /// Whether a range and a network have an address in common.
    #[must_use]
    pub fn overlaps_net(&self, net: &IpNet) -> bool {
        self.overlaps(&Self::Net(*net))
    }

    /// Whether two ranges have an address in common.
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

    /// Reads `192.0.2.0/28`, `192.0.2.10-192.0.2.20` (spaces around the dash are allowed) or one address.
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
                return Err(format!("must have both ends in one IP family; `{text}` has not"));
            }
            if to_number(first) > to_number(last) {
                return Err(format!("must not end before it begins; write {last}-{first}"));
            }
            return Ok(Self::Between(first, last));
        }
        if text.contains('/') {
            let net: IpNet = text.trim().parse().map_err(|_| form())?;
            if net.trunc() != net {
                return Err(format!(
                    "must be a network; {net} has bits set behind its prefix; write {}",
                    net.trunc()
                ));
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
            ("192.0.2.9-192.0.2.1", "must not end before it begins; write 192.0.2.1-192.0.2.9"),
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
