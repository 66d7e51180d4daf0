//! The Node: a machine with an agent.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

use crate::{
    kinds::{bgp_peer::NodeBgp, maintenance::Maintenance},
    primitives::{name::Label, quantity::Timestamp},
};

/// Addresses of one Node.
pub const NODE_ADDRESSES_MAX: usize = 64;
/// Workload networks of one Node.
pub const NODE_WORKLOAD_CIDRS_MAX: usize = 64;
/// Entries of `clusterCIDRs` and of `nodePortAddresses`.
pub const NODE_NETWORKS_MAX: usize = 64;

/// The highest bit of a packet mark.
pub const MARK_BIT_MAX: u8 = 31;
/// The bit that kube-proxy marks packets with for masquerading.
pub const MASQUERADE_BIT_DEFAULT: u8 = 14;
/// The bit that kube-proxy marked packets with for dropping.
pub const DROP_BIT_DEFAULT: u8 = 15;

/// What a Node should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// The Node's own addresses, primary first.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 64, example = json!(["172.17.8.101"]))]
    pub addresses: Vec<IpAddr>,
    /// Its failure zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// The networks of the Workloads on this Node. Traffic from any Node's workload networks to a virtual address
    /// keeps its source address; all other traffic to it is masqueraded, if any Node states workload networks.
    #[serde(default, rename = "workloadCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub workload_cidrs: Vec<IpNet>,
    /// How the agent programs the kernel; the agent's own `--mode` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Options of the proxy.
    #[serde(default, skip_serializing_if = "ProxyOptions::is_default")]
    pub proxy: ProxyOptions,
    /// Its BGP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeBgp>,
    /// Give this Node no announcements; those that it has go to other Nodes.
    #[serde(default)]
    pub unschedulable: bool,
    /// Takes all endpoints on this Node out of service, and gives it no announcements, as `unschedulable` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    /// Since when the Node counts as gone, because its agent is silent: its Workloads are no endpoints. The server sets
    /// this and takes it back when the agent reports again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, read_only)]
    pub lost_since: Option<Timestamp>,
}

impl NodeSpec {
    /// Whether the Node is given announcements.
    #[must_use]
    pub const fn takes_announcements(&self) -> bool {
        !self.unschedulable && self.maintenance.is_none()
    }
}

/// How the agent programs the kernel.
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
    /// nf_tables by netlink.
    #[default]
    Nftables,
    /// iptables-restore.
    Iptables,
    /// IP virtual server.
    Ipvs,
    /// A relay in the agent.
    Userspace,
}

impl ProxyMode {
    /// Every mode, in the order in which they are shown.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The word of the flag and the field.
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
    /// Masquerade all traffic to virtual addresses, whatever its source.
    #[serde(default)]
    pub masquerade_all: bool,
    /// Networks whose sources count as workloads on this Node, instead of the workload networks of all Nodes.
    #[serde(default, rename = "clusterCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub cluster_cidrs: Vec<IpNet>,
    /// Node ports answer only at the Node's addresses in these networks; at all of them when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub node_port_addresses: Vec<IpNet>,
    /// The bit of the packet mark, 0–31, that asks for masquerading; 14 (0x4000) when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31)]
    pub masquerade_bit: Option<u8>,
    /// The bit of the packet mark, 0–31, that asks for dropping where a backend needs one; 15 (0x8000) when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31)]
    pub drop_bit: Option<u8>,
    /// How chains and sets are named in iptables and ipvs mode.
    #[serde(default)]
    pub naming: Naming,
    /// In ipvs mode, answer ARP only for addresses of the interface asked (`arp_ignore` 1, `arp_announce` 2), so that
    /// virtual addresses on the node are not claimed by it.
    #[serde(default = "ProxyOptions::strict_arp_default", rename = "strictARP")]
    pub strict_arp: bool,
}

/// How chains and sets are named.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// By a prefix of our own, so that they can stand beside kube-proxy's.
    #[default]
    Tidegate,
    /// As kube-proxy names them, in its place.
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
        }
    }
}

impl ProxyOptions {
    const fn strict_arp_default() -> bool {
        true
    }

    /// The mark that asks for masquerading: exactly one bit.
    #[must_use]
    pub fn masquerade_mark(&self) -> u32 {
        1 << self.masquerade_bit.unwrap_or(MASQUERADE_BIT_DEFAULT).min(MARK_BIT_MAX)
    }

    /// The mark that asks for dropping: exactly one bit.
    #[must_use]
    pub fn drop_mark(&self) -> u32 {
        1 << self.drop_bit.unwrap_or(DROP_BIT_DEFAULT).min(MARK_BIT_MAX)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
