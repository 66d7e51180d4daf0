//! Routes and tunnel devices of the workload network in the kernel.

pub mod diff;
pub(crate) mod forwarding;
pub mod handover;
pub mod keeper;
pub mod parse;
pub mod render;
pub mod tunnel;

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{desired::TunnelKind, plan::Hop};

/// Protocol number of the routes of the workload network (`rtm_protocol`). Felix uses 3 by default, which other
/// programs use too.
pub const PROTOCOL: u8 = 116;
/// Routing table of the routes: `main`, because the packets of workloads have no mark.
pub const TABLE: u32 = 254;
/// Metric of the routes. A route of another program with the same destination has a lower one and takes precedence.
pub const METRIC: u32 = 7440;
/// Number of the virtual network in encapsulated packets (VNI).
pub const VNI: u64 = 116;
/// UDP port of VXLAN-GPE, as assigned by IANA. Classic VXLAN of other programs uses 4789 or 8472.
pub const PORT: u16 = 4790;

/// Indexes of the tunnel devices in the kernel.
pub type TunnelIndexes = BTreeMap<TunnelKind, u32>;

impl TunnelKind {
    /// Returns the name of the tunnel device. A link with this name belongs to the agent.
    #[must_use]
    pub const fn device(self) -> &'static str {
        match self {
            Self::Vxlan => "tg-vx",
            Self::Ipip => "tg-ipip",
        }
    }

    /// Returns the identifier in the encapsulation of a route: the VNI; 0 for IPIP, whose packets have none.
    #[must_use]
    pub const fn id(self) -> u64 {
        match self {
            Self::Vxlan => VNI,
            Self::Ipip => 0,
        }
    }
}

/// Position of a route in the kernel. The kernel has at most one route of the agent at each position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// Destination of the route.
    pub destination: IpNet,
    /// Number of the routing table.
    pub table: u32,
    /// Metric of the route (`RTA_PRIORITY`).
    pub metric: u32,
}

impl RouteKey {
    /// Returns the position at which the agent places the route to a destination.
    #[must_use]
    pub const fn of(destination: IpNet) -> Self {
        Self { destination, table: TABLE, metric: METRIC }
    }
}

/// Next hop of a route that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldHop {
    /// Next hop that a plan can contain.
    Known(Hop),
    /// Any other next hop, such as that of another version of the agent.
    Unknown,
}
