//! Node: a machine on which an agent runs.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

use crate::{
    kinds::{bgp_peer::NodeBgp, maintenance::Maintenance, metadata::Labels},
    primitives::{name::Label, quantity::Timestamp},
};

/// Maximum number of addresses in the spec of a Node.
pub const NODE_ADDRESSES_MAX: usize = 64;
/// Maximum number of workload networks of a Node.
pub const NODE_WORKLOAD_CIDRS_MAX: usize = 64;
/// Maximum number of entries in `clusterCIDRs` and in `nodePortAddresses`.
pub const NODE_NETWORKS_MAX: usize = 64;

/// Number of the highest bit in a packet mark, which has 32 bits.
pub const MARK_BIT_MAX: u8 = 31;
/// Default number of the packet mark bit that requests masquerading, as in kube-proxy.
pub const MASQUERADE_BIT_DEFAULT: u8 = 14;
/// Default number of the packet mark bit that requests a drop, as in former kube-proxy versions.
pub const DROP_BIT_DEFAULT: u8 = 15;

/// Desired state of a Node: addresses, workload networks, proxy mode, BGP settings and maintenance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// Addresses of the Node, primary first, at most 64, such as `["172.17.8.101"]`. Loopback, link-local and
    /// multicast addresses are rejected.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 64, example = json!(["172.17.8.101"]))]
    pub addresses: Vec<IpAddr>,
    /// Failure zone of the Node, such as `zone-a`. Used by `trafficDistribution` of Services. Default: no
    /// zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Networks of the workloads on this Node, at most 64, such as `10.1.13.0/24`. Traffic from the workload
    /// networks of all Nodes to a virtual address keeps its source address. Other sources are masqueraded if
    /// at least one Node has workload networks of the IP family. With `externalTrafficPolicy` Local, workloads
    /// of this Node may use the endpoints of all Nodes; workloads of other Nodes count as external. Default:
    /// none.
    #[serde(default, rename = "workloadCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub workload_cidrs: Vec<IpNet>,
    /// Proxy mode of the agent: `nftables`, `iptables`, `ipvs` or `userspace`. The agent changes its mode without
    /// a restart. Default: option `--mode` of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Options of the proxy on this Node. Absent if no option differs from its default.
    #[serde(default, skip_serializing_if = "ProxyOptions::is_default")]
    pub proxy: ProxyOptions,
    /// BGP settings of the Node: its AS number and BGP Identifier. Default: AS number of
    /// `tidegate-api --asn`, and the first IPv4 address of the Node or an identifier derived from its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeBgp>,
    /// True if the Node must not announce load balancer addresses. Addresses that it announces move to other
    /// Nodes. Default: false.
    #[serde(default)]
    pub unschedulable: bool,
    /// Drain or maintenance of all endpoints on this Node. While it is set, the Node does not announce
    /// addresses, as with `unschedulable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
    /// Time since which the Node counts as lost, because its agent sends no reports (RFC 3339, UTC). Other nodes
    /// check the Workloads on a lost Node, which stay endpoints unless they fail. Set and removed by the server.
    /// Absent if the Node is not lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, read_only)]
    pub lost_since: Option<Timestamp>,
    /// Properties that the agent requested at its registration and that are not accepted. The server records
    /// them. A write that contains them in `metadata.labels`, `addresses` or `workloadCIDRs` accepts them; a
    /// write without this field declines the others. Absent if there are none.
    #[serde(default, skip_serializing_if = "NodeRequest::is_empty")]
    #[schema(read_only)]
    pub requested: NodeRequest,
}

/// Properties that an agent requested for its Node without being entitled to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRequest {
    /// Labels that the join token of the Node does not have.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub labels: Labels,
    /// Addresses that belong to another Node or lie in its workload networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Workload networks that are outside of `--workload-range` of the server, too large, or in use by another
    /// Node.
    #[serde(default, rename = "workloadCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub workload_cidrs: Vec<IpNet>,
}

impl NodeRequest {
    /// True if the agent requested nothing beyond its rights.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.addresses.is_empty() && self.workload_cidrs.is_empty()
    }

    /// Removes the properties that a Node with these labels and this spec has.
    pub(crate) fn remove_accepted(&mut self, labels: &Labels, spec: &NodeSpec) {
        self.labels.retain(|key, value| labels.get(key) != Some(value));
        self.addresses.retain(|address| !spec.addresses.contains(address));
        self.workload_cidrs.retain(|network| !spec.workload_cidrs.contains(network));
    }
}

impl NodeSpec {
    /// True if the Node may announce load balancer addresses: it is neither unschedulable nor in drain or
    /// maintenance.
    #[must_use]
    pub const fn takes_announcements(&self) -> bool {
        !self.unschedulable && self.maintenance.is_none()
    }
}

/// Proxy mode of an agent: `nftables` (nf_tables through netlink), `iptables` (iptables-restore),
/// `ipvs` (IP Virtual Server) or `userspace` (relay process).
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum ProxyMode {
    /// Rules in nf_tables, programmed through netlink.
    #[default]
    Nftables,
    /// Rules in iptables, programmed by `iptables-restore`.
    Iptables,
    /// IP Virtual Server (IPVS) in the kernel.
    Ipvs,
    /// Relay process in user space, through which all connections pass.
    Userspace,
}

impl ProxyMode {
    /// All modes, in display order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the mode as used in options and fields, such as `nftables`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Userspace => "userspace",
        }
    }
}

/// Options of the proxy on one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyOptions {
    /// True if all traffic to virtual addresses is masqueraded, regardless of its source. Default: false.
    #[serde(default)]
    pub masquerade_all: bool,
    /// Networks whose addresses this Node treats as workloads, at most 64, such as `10.1.0.0/16`. If none of
    /// the `workloadCIDRs` of the Node lies in these networks, all of them count as workloads of this Node.
    /// Default: `workloadCIDRs` of all Nodes.
    #[serde(default, rename = "clusterCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub cluster_cidrs: Vec<IpNet>,
    /// Networks that limit the addresses of the Node at which node ports are served, at most 64, such as
    /// `192.0.2.0/24`. Default: all addresses of the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub node_port_addresses: Vec<IpNet>,
    /// Bit of the packet mark by which rules request masquerading, from 0 to 31. Must differ from `dropBit`.
    /// Default: 14 (mark 0x4000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31)]
    pub masquerade_bit: Option<u8>,
    /// Bit of the packet mark by which rules request a drop in iptables and ipvs mode, from 0 to 31. Must
    /// differ from `masqueradeBit`. Default: 15 (mark 0x8000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31)]
    pub drop_bit: Option<u8>,
    /// Naming of chains and sets in iptables and ipvs mode: `tidegate` (names with a prefix of Tidegate,
    /// which coexist with kube-proxy) or `kube` (names of kube-proxy, for a Node on which Tidegate replaces
    /// it). Default: `tidegate`.
    #[serde(default)]
    pub naming: Naming,
    /// True if, in ipvs mode, the kernel answers ARP requests only for addresses of the receiving interface
    /// (`arp_ignore` 1, `arp_announce` 2), so that the node does not answer for virtual addresses. Default: true.
    #[serde(default = "ProxyOptions::strict_arp_default", rename = "strictARP")]
    pub strict_arp: bool,
    /// True if the Node drops packets that it would forward in the conntrack state INVALID, such as TCP segments
    /// outside of the window. Without translation, such a packet makes the client reset its connection. Set
    /// this to false on a Node that forwards only one direction of connections (asymmetric routing). Without
    /// effect in userspace mode. Agents without this field reject the setting false. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_invalid: Option<bool>,
}

/// Naming of chains and sets: `tidegate` (names with a prefix of Tidegate) or `kube` (names of kube-proxy).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// Names with a prefix of Tidegate, so that the chains and sets can coexist with those of kube-proxy.
    #[default]
    Tidegate,
    /// Names of kube-proxy, for a node on which Tidegate replaces it.
    Kube,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            masquerade_all: false,
            cluster_cidrs: Vec::new(),
            node_port_addresses: Vec::new(),
            masquerade_bit: None,
            drop_bit: None,
            naming: Naming::Tidegate,
            strict_arp: true,
            drop_invalid: None,
        }
    }
}

impl ProxyOptions {
    const fn strict_arp_default() -> bool {
        true
    }

    /// Returns the packet mark that requests masquerading; exactly one bit is set.
    #[must_use]
    pub fn masquerade_mark(&self) -> u32 {
        1 << self.masquerade_bit.unwrap_or(MASQUERADE_BIT_DEFAULT).min(MARK_BIT_MAX)
    }

    /// Returns the packet mark that requests a drop; exactly one bit is set.
    #[must_use]
    pub fn drop_mark(&self) -> u32 {
        1 << self.drop_bit.unwrap_or(DROP_BIT_DEFAULT).min(MARK_BIT_MAX)
    }

    /// True if forwarded packets in the conntrack state INVALID are dropped.
    #[must_use]
    pub fn drops_invalid(&self) -> bool {
        self.drop_invalid.unwrap_or(true)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
