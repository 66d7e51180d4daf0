//! The Node: a machine with an agent.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::name::Label;

/// Addresses of one Node.
pub const NODE_ADDRESSES_MAX: usize = 64;
/// Workload networks of one Node.
pub const NODE_WORKLOAD_CIDRS_MAX: usize = 64;

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
    /// Give this Node no announcements.
    #[serde(default)]
    pub unschedulable: bool,
}

/// How the agent programs the kernel.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
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
    pub const ALL: [Self; 4] = [Self::Nftables, Self::Iptables, Self::Ipvs, Self::Userspace];

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyOptions {
    /// Masquerade all traffic to virtual addresses, whatever its source.
    #[serde(default)]
    pub masquerade_all: bool,
}

impl ProxyOptions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
