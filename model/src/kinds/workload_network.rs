//! WorkloadNetwork: addresses for workloads, divided into blocks that the server gives to nodes, and the way of
//! packets between the nodes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{address_pool::AddressRange, selector::Selector},
    primitives::{name::Namespace, net::IpFamily},
};

/// Maximum number of networks in `cidrs`.
pub const NETWORK_CIDRS_MAX: usize = 16;
/// Maximum number of entries in each of `natExcept` and `reserved`.
pub const NETWORK_RANGES_MAX: usize = 64;
/// Maximum number of entries in `nodeSelectors`.
pub const NETWORK_SELECTORS_MAX: usize = 64;
/// Maximum number of entries in each of `namespaces.names`, `reservedLabels` and the lists in `interfaces`.
pub const NETWORK_NAMES_MAX: usize = 64;
/// Prefix of the keys of labels that agents never give to Workloads.
pub const RESERVED_LABEL_PREFIX: &str = "tidegate.io/";
/// Maximum number of blocks of a WorkloadNetwork, because every node has a route to each of them: the IPv4 blocks of a `/8`
/// by default. Nodes get the first ones of a larger IPv6 network.
pub const BLOCKS_MAX: usize = 262_144;
/// Maximum number of WorkloadNetworks. Each of them is examined at every change of a Node.
pub const NETWORKS_MAX: usize = 32;
/// Default prefix length of IPv4 blocks: 64 addresses.
pub const BLOCK_SIZE_V4_DEFAULT: u8 = 26;
/// Default prefix length of IPv6 blocks: 64 addresses.
pub const BLOCK_SIZE_V6_DEFAULT: u8 = 122;
/// Minimum prefix length of IPv4 blocks: 65,536 addresses.
pub const BLOCK_SIZE_V4_MIN: u8 = 16;
/// Maximum prefix length of IPv4 blocks: 4 addresses.
pub const BLOCK_SIZE_V4_MAX: u8 = 30;
/// Minimum prefix length of IPv6 blocks: 65,536 addresses.
pub const BLOCK_SIZE_V6_MIN: u8 = 112;
/// Maximum prefix length of IPv6 blocks: 4 addresses.
pub const BLOCK_SIZE_V6_MAX: u8 = 126;
/// Default time in seconds for which a released block or address is not given away again.
pub const COOLDOWN_SECONDS_DEFAULT: u32 = 60;
/// Maximum time in seconds for which a released block or address is not given away again: one day.
pub const COOLDOWN_SECONDS_MAX: u32 = 86_400;
/// Minimum MTU of workload interfaces: that of IPv6 (RFC 8200 §5).
pub const NETWORK_MTU_MIN: u16 = 1280;
/// Maximum MTU of workload interfaces: that of jumbo frames.
pub const NETWORK_MTU_MAX: u16 = 9216;

/// Desired state of a WorkloadNetwork: addresses for workloads, and the way of packets between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadNetworkSpec {
    /// Networks of the addresses, IPv4 and IPv6, from 1 to 16 entries, such as `10.64.0.0/16`. They must not overlap
    /// other WorkloadNetworks, address pools, Service ranges, addresses and `workloadCIDRs` of Nodes.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 16, example = json!(["10.64.0.0/16", "fd00:64::/112"]))]
    pub cidrs: Vec<IpNet>,
    /// Prefix lengths of the blocks that Nodes get. A change applies to blocks that are given afterwards.
    #[serde(default, skip_serializing_if = "BlockSizes::is_default")]
    pub block_size: BlockSizes,
    /// Encapsulation of packets between nodes: `Vxlan` (VXLAN-GPE), `Ipip` (IPv4 only) or `None`. Default: `Vxlan`.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// Nodes to which packets are encapsulated: `CrossSubnet` (those in other subnets) or `Always` (all). Without
    /// effect if `encapsulation` is `None`. Default: `CrossSubnet`.
    #[serde(default)]
    pub when: EncapsulateWhen,
    /// True if nodes masquerade packets from workloads of this network to destinations outside of all workload
    /// networks. Default: false.
    #[serde(default)]
    pub nat_outgoing: bool,
    /// Destinations that `natOutgoing` leaves out, at most 64 networks, such as `192.168.0.0/16`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub nat_except: Vec<IpNet>,
    /// Selectors of Nodes, at most 64. Nodes whose labels match at least one of them get blocks. Default: all Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub node_selectors: Vec<Selector>,
    /// Namespaces in which agents may create Workloads. A Workload that exists and has the Node of the agent in its
    /// `spec.node` can be attached in every namespace. Default: the namespace `default`.
    #[serde(default, skip_serializing_if = "WorkloadNamespaces::is_default")]
    pub namespaces: WorkloadNamespaces,
    /// Keys of labels that agents must not give to the Workloads that they create, at most 64 entries, such as `tier`.
    /// Keys that begin with `tidegate.io/` are always reserved. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub reserved_labels: BTreeSet<String>,
    /// Networks, ranges and addresses that workloads never get, at most 64 entries. Blocks of reserved addresses alone
    /// are not given to Nodes. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub reserved: Vec<AddressRange>,
    /// Time in seconds for which a released block is given to no other Node and a released address to no other
    /// workload, from 0 to 86,400. Default: 60.
    #[serde(default = "WorkloadNetworkSpec::cooldown_default")]
    #[schema(minimum = 0, maximum = 86400, default = 60)]
    pub cooldown_seconds: u32,
    /// MTU of the interfaces of workloads, from 1280 to 9216. Default: nodes derive it from their interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1280, maximum = 9216)]
    pub mtu: Option<u16>,
    /// Interfaces of Nodes that Workloads may declare in `spec.interface`. Default: none.
    #[serde(default, skip_serializing_if = "DeclarableInterfaces::is_default")]
    pub interfaces: DeclarableInterfaces,
}

/// Interfaces of Nodes that Workloads may declare. In each entry, `*` at the end stands for any further characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclarableInterfaces {
    /// Names of interfaces of kinds `Tap` and `Host`, at most 64 entries, such as `tap*`. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64, example = json!(["tap*"]))]
    pub names: BTreeSet<String>,
    /// Names of network namespaces below `/run/netns` in which agents create interfaces of kind `Veth`, at most 64
    /// entries, such as `vm-*`. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64, example = json!(["vm-*"]))]
    pub network_namespaces: BTreeSet<String>,
}

impl DeclarableInterfaces {
    /// True if Workloads may declare the interface with this name.
    #[must_use]
    pub fn permits_name(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| matches_pattern(pattern, name))
    }

    /// True if Workloads may declare an interface in the network namespace with this name.
    #[must_use]
    pub fn permits_namespace(&self, namespace: &str) -> bool {
        self.network_namespaces.iter().any(|pattern| matches_pattern(pattern, namespace))
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or_else(|| pattern == text, |prefix| text.starts_with(prefix))
}

/// Namespaces in which agents may create Workloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadNamespaces {
    /// Selection of the namespaces: `Listed` (those in `names`) or `All`. Default: `Listed`.
    #[serde(default)]
    pub from: WorkloadNamespacesFrom,
    /// Namespaces for `Listed`, at most 64 entries. Without entries, agents create no Workloads. Default: `default`.
    #[serde(default = "WorkloadNamespaces::names_default")]
    #[schema(value_type = Vec<String>, max_items = 64, example = json!(["default", "shop"]))]
    pub names: BTreeSet<Namespace>,
}

/// Selection of namespaces for Workloads: `Listed` or `All`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum WorkloadNamespacesFrom {
    /// The namespaces in `names`.
    #[default]
    Listed,
    /// Every namespace.
    All,
}

impl Default for WorkloadNamespaces {
    fn default() -> Self {
        Self { from: WorkloadNamespacesFrom::Listed, names: Self::names_default() }
    }
}

impl WorkloadNamespaces {
    fn names_default() -> BTreeSet<Namespace> {
        Namespace::parse("default").into_iter().collect()
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// True if agents may create Workloads in a namespace.
    #[must_use]
    pub fn permit(&self, namespace: &Namespace) -> bool {
        match self.from {
            WorkloadNamespacesFrom::Listed => self.names.contains(namespace),
            WorkloadNamespacesFrom::All => true,
        }
    }
}

/// Prefix lengths of the blocks of a WorkloadNetwork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockSizes {
    /// Prefix length of IPv4 blocks, from 16 to 30. Default: 26 (64 addresses).
    #[serde(default = "BlockSizes::v4_default")]
    #[schema(minimum = 16, maximum = 30, default = 26)]
    pub ipv4: u8,
    /// Prefix length of IPv6 blocks, from 112 to 126. Default: 122 (64 addresses).
    #[serde(default = "BlockSizes::v6_default")]
    #[schema(minimum = 112, maximum = 126, default = 122)]
    pub ipv6: u8,
}

/// Encapsulation of packets between nodes: `Vxlan` (VXLAN-GPE), `Ipip` (IPv4 in IPv4) or `None` (routed without a tunnel).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Encapsulation {
    /// Packets are routed to the other node without a tunnel.
    None,
    /// Packets are encapsulated with VXLAN-GPE (UDP port 4790).
    #[default]
    Vxlan,
    /// Packets are encapsulated with IPIP (RFC 2003, protocol number 4), which carries IPv4 over IPv4 only.
    Ipip,
}

/// Nodes to which packets are encapsulated: `CrossSubnet` (those in other subnets) or `Always` (all).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum EncapsulateWhen {
    /// Packets to all other nodes are encapsulated.
    Always,
    /// Packets to nodes in another subnet are encapsulated.
    #[default]
    CrossSubnet,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { ipv4: BLOCK_SIZE_V4_DEFAULT, ipv6: BLOCK_SIZE_V6_DEFAULT }
    }
}

impl BlockSizes {
    const fn v4_default() -> u8 {
        BLOCK_SIZE_V4_DEFAULT
    }

    const fn v6_default() -> u8 {
        BLOCK_SIZE_V6_DEFAULT
    }

    /// Returns the prefix length of blocks of an IP family.
    #[must_use]
    pub const fn of(self, family: IpFamily) -> u8 {
        match family {
            IpFamily::V4 => self.ipv4,
            IpFamily::V6 => self.ipv6,
        }
    }

    // serde requires this signature.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl WorkloadNetworkSpec {
    const fn cooldown_default() -> u32 {
        COOLDOWN_SECONDS_DEFAULT
    }

    /// Returns the IP families of the networks, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> + '_ {
        IpFamily::ALL
            .into_iter()
            .filter(|family| self.cidrs.iter().any(|cidr| IpFamily::of_net(cidr) == *family))
    }

    /// True if agents must not give a label with this key to Workloads.
    #[must_use]
    pub fn reserves_label(&self, key: &str) -> bool {
        key.starts_with(RESERVED_LABEL_PREFIX) || self.reserved_labels.contains(key)
    }

    /// True if workloads never get an address of the network `inner`, because all of them are reserved.
    #[must_use]
    pub fn reserves_all_of(&self, inner: &IpNet) -> bool {
        let (first, last) = (inner.network(), inner.broadcast());
        self.reserved.iter().any(|range| range.contains(first) && range.contains(last))
    }
}
