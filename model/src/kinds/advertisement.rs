//! The Advertisement: which nodes announce which pools' addresses, and how.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::selector::Selector,
    primitives::{community::Community, name::Name, net::IpFamily},
};

/// Selectors, pools and interfaces of one Advertisement.
pub const ADVERTISEMENT_ENTRIES_MAX: usize = 64;
/// Bytes of an interface's name (`IFNAMSIZ` without the final zero).
pub const INTERFACE_LENGTH_MAX: usize = 15;
/// The weight of a preference, 1–100.
pub const PREFERENCE_WEIGHT_MAX: u8 = 100;

/// How often an AS may be repeated in a path.
pub const PREPEND_MAX: u8 = 16;

/// What an Advertisement should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdvertisementSpec {
    /// How the addresses are announced.
    #[serde(rename = "type", default)]
    pub advertisement_type: AdvertisementType,
    /// The pools whose addresses are announced; all when left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub address_pools: BTreeSet<Name>,
    /// Only the addresses of Services whose labels match one of these; of all when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub service_selectors: Vec<Selector>,
    /// Only Nodes whose labels match one of these announce; all when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub node_selectors: Vec<Selector>,
    /// Nodes that are preferred as owners: the sum of the weights that match decides, before balance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub preferred_node_selectors: Vec<PreferredNodes>,
    /// Only on these interfaces; on every one whose network holds the address when left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub interfaces: BTreeSet<InterfaceName>,
    /// Whether the announced addresses answer to ICMP echo requests.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub answer_ping: bool,
    /// What an owner does that reaches neither control nor any other candidate.
    #[serde(default)]
    pub when_isolated: WhenIsolated,
    /// BGP: the `BgpPeer`s that are told; all of the node when left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub peers: BTreeSet<Name>,
    /// BGP: the length of the announced IPv4 prefixes, 1–32; 32 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 32, default = 32)]
    pub aggregation_length: Option<u8>,
    /// BGP: the length of the announced IPv6 prefixes, 1–128; 128 when left out.
    #[serde(default, rename = "aggregationLengthV6", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 128, default = 128)]
    pub aggregation_length_v6: Option<u8>,
    /// BGP: `LOCAL_PREF` towards peers of the own AS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// BGP: `MULTI_EXIT_DISC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// BGP: how often our AS is in the path beyond what is due, 0–16, towards peers of other AS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 16)]
    pub prepend: Option<u8>,
    /// BGP: communities of any kind, such as `65000:100`, `no-export`, `large:65000:1:2` and `rt:65000:100`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub communities: BTreeSet<Community>,
}

const fn yes() -> bool {
    true
}

impl AdvertisementSpec {
    /// The length of the announced IPv4 prefixes.
    #[must_use]
    pub fn length_v4(&self) -> u8 {
        self.aggregation_length.unwrap_or(32)
    }

    /// The length of the announced IPv6 prefixes.
    #[must_use]
    pub fn length_v6(&self) -> u8 {
        self.aggregation_length_v6.unwrap_or(128)
    }

    /// The length of the announced prefixes of a family.
    #[must_use]
    pub fn length(&self, family: IpFamily) -> u8 {
        match family {
            IpFamily::V4 => self.length_v4(),
            IpFamily::V6 => self.length_v6(),
        }
    }

    /// Whether prefixes hold more than one address.
    #[must_use]
    pub fn aggregates(&self, family: IpFamily) -> bool {
        self.length(family) < family.bits()
    }

    /// Whether addresses of a pool, or of none, are announced, as far as pools decide.
    #[must_use]
    pub fn covers_pool(&self, pool: Option<&Name>) -> bool {
        self.address_pools.is_empty() || pool.is_some_and(|pool| self.address_pools.contains(pool))
    }
}

/// How addresses are announced.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum AdvertisementType {
    /// By ARP (RFC 826) and NDP (RFC 4861) on the local network: one node answers.
    #[default]
    L2,
    /// By BGP (RFC 4271) to routers: every node that serves the address announces it.
    #[serde(rename = "BGP")]
    Bgp,
}

/// Nodes that are preferred, and how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredNodes {
    /// 1–100.
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u8,
    /// Which Nodes.
    pub preference: Selector,
}

/// What an owner does that reaches neither control nor any other candidate.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum WhenIsolated {
    /// It goes on announcing: the clients on its side of the partition are served.
    #[default]
    Keep,
    /// It stops announcing, so that there is one owner only even while the network is partitioned.
    Withdraw,
}

/// The name of a network interface, as the kernel takes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 15, example = "eth0")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_allowed = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
        let is_good = (1..=INTERFACE_LENGTH_MAX).contains(&text.len())
            && text.chars().all(is_allowed)
            && text != "."
            && text != "..";
        if is_good {
            Ok(Self(text))
        } else {
            Err(format!(
                "must be the name of an interface, 1 to {INTERFACE_LENGTH_MAX} characters without `/`, `:` and spaces, not `{text}`"
            ))
        }
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}
