//! Advertisement: selects the nodes that announce the addresses of pools, the protocol (L2 or BGP), and the route
//! attributes.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::selector::Selector,
    primitives::{community::Community, name::Name, net::IpFamily},
};

/// Maximum number of entries in each list of selectors, pools, interfaces, peers and communities.
pub const ADVERTISEMENT_ENTRIES_MAX: usize = 64;
/// Maximum length of an interface name in bytes: `IFNAMSIZ` without the final zero.
pub const INTERFACE_LENGTH_MAX: usize = 15;
/// Maximum value of the weight of a node preference.
pub const PREFERENCE_WEIGHT_MAX: u8 = 100;

/// Maximum number of additional repetitions of the local AS number in the AS path.
pub const PREPEND_MAX: u8 = 16;

/// Desired state of an Advertisement: selection of addresses and announcing nodes, protocol and route
/// attributes.
///
/// An address is announced if at least one Advertisement covers its pool and its Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdvertisementSpec {
    /// Protocol: `L2` (ARP and NDP; one node answers) or `BGP` (all nodes that serve the address announce
    /// it). Default: `L2`.
    #[serde(rename = "type", default)]
    pub advertisement_type: AdvertisementType,
    /// Names of the AddressPools whose addresses are announced, at most 64. Default: all pools, and addresses that
    /// are in no pool; with `workloadNetworks`, no pool.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub address_pools: BTreeSet<Name>,
    /// Names of the WorkloadNetworks whose blocks are announced, at most 64. Each selected Node announces its own
    /// blocks, also while it is drained, because no other Node reaches their workloads. With this field, addresses
    /// of load balancers are announced only if `addressPools` lists their pools. Type `BGP` only. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub workload_networks: BTreeSet<Name>,
    /// Selectors of Services, at most 64. An address is announced if the labels of one of its Services match at
    /// least one selector. Default: all Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub service_selectors: Vec<Selector>,
    /// Selectors of Nodes, at most 64. Nodes may announce the addresses if their labels match at least one
    /// selector. Default: all Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub node_selectors: Vec<Selector>,
    /// Preferred Nodes for type `L2`, at most 64 entries. The Node with the highest sum of matching weights
    /// becomes the owner of an address. Addresses are distributed evenly over Nodes with the same sum.
    /// Default: no preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub preferred_node_selectors: Vec<PreferredNodes>,
    /// Names of the interfaces that announce for type `L2`, at most 64, such as `["eth0"]`. Default: all
    /// interfaces with a network that contains the address.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub interfaces: BTreeSet<InterfaceName>,
    /// True if the owner answers ICMP echo requests for the addresses. Type `L2` only. Default: true.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub answer_ping: bool,
    /// Behavior of an owner that reaches neither the control servers nor another candidate: `Keep` (continue
    /// to announce) or `Withdraw` (stop). Type `L2` only. Default: `Keep`.
    #[serde(default)]
    pub when_isolated: WhenIsolated,
    /// Names of the BgpPeers that receive the routes, at most 64. Type `BGP` only. Default: all BgpPeers of
    /// the node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 64)]
    pub peers: BTreeSet<Name>,
    /// Prefix length of the announced IPv4 routes, from 1 to 32. Below 32, addresses are aggregated into larger
    /// prefixes. Type `BGP` only. Default: 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 32, default = 32)]
    pub aggregation_length: Option<u8>,
    /// Prefix length of the announced IPv6 routes, from 1 to 128. Below 128, addresses are aggregated into larger
    /// prefixes. Type `BGP` only. Default: 128.
    #[serde(default, rename = "aggregationLengthV6", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 128, default = 128)]
    pub aggregation_length_v6: Option<u8>,
    /// Value of `LOCAL_PREF` for internal peers (RFC 4271), from 0 to 4,294,967,295. Type `BGP` only.
    /// Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// Value of `MULTI_EXIT_DISC` (RFC 4271), from 0 to 4,294,967,295. Type `BGP` only. Default: the attribute is
    /// not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Number of additional repetitions of the local AS number in the path for external peers, from 0 to 16.
    /// Type `BGP` only. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 16)]
    pub prepend: Option<u8>,
    /// Standard, extended and large communities, at most 64, such as `65000:100`, `no-export`,
    /// `large:65000:1:2` and `rt:65000:100`. Type `BGP` only. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub communities: BTreeSet<Community>,
}

const fn yes() -> bool {
    true
}

impl AdvertisementSpec {
    /// Returns the length of the announced IPv4 prefixes.
    #[must_use]
    pub fn length_v4(&self) -> u8 {
        self.aggregation_length.unwrap_or(32)
    }

    /// Returns the length of the announced IPv6 prefixes.
    #[must_use]
    pub fn length_v6(&self) -> u8 {
        self.aggregation_length_v6.unwrap_or(128)
    }

    /// Returns the length of the announced prefixes of a family.
    #[must_use]
    pub fn length(&self, family: IpFamily) -> u8 {
        match family {
            IpFamily::V4 => self.length_v4(),
            IpFamily::V6 => self.length_v6(),
        }
    }

    /// True if the announced prefixes of an IP family contain more than one address, because the aggregation
    /// length is shorter than a full address.
    #[must_use]
    pub fn aggregates(&self, family: IpFamily) -> bool {
        self.length(family) < family.bits()
    }

    /// True if the Advertisement announces addresses of load balancers at all.
    #[must_use]
    pub fn announces_addresses(&self) -> bool {
        self.workload_networks.is_empty() || !self.address_pools.is_empty()
    }

    /// True if the Advertisement covers a pool; for `None`, true if it covers addresses that are in no pool.
    #[must_use]
    pub fn covers_pool(&self, pool: Option<&Name>) -> bool {
        let is_default = self.address_pools.is_empty() && self.workload_networks.is_empty();
        is_default || pool.is_some_and(|pool| self.address_pools.contains(pool))
    }
}

/// Protocol of an announcement: `L2` (ARP, RFC 826, and NDP, RFC 4861) or `BGP` (RFC 4271).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum AdvertisementType {
    /// ARP (RFC 826) and NDP (RFC 4861) on the local network; one node answers.
    #[default]
    L2,
    /// BGP (RFC 4271); all nodes that serve the address announce it.
    #[serde(rename = "BGP")]
    Bgp,
}

/// Preference for Nodes with certain labels as owners of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreferredNodes {
    /// Weight of the preference, from 1 to 100. Weights of all matching preferences are added.
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u8,
    /// Selector of the preferred Nodes by their labels.
    pub preference: Selector,
}

/// Behavior of an owner that reaches neither the control servers nor another candidate: `Keep` or `Withdraw`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum WhenIsolated {
    /// The owner continues to announce, so that clients on its side of the network partition are still served.
    #[default]
    Keep,
    /// The owner stops announcing, so that an address has at most one owner even in a partitioned network.
    Withdraw,
}

/// Name of a network interface, from 1 to 15 characters without `/`, `:` and spaces, such as `eth0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 15, example = "eth0")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Returns the name of the interface, such as `eth0`.
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
