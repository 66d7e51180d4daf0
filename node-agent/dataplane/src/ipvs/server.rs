//! Virtual servers and destinations as held by the kernel.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

/// Address, protocol and port: the key of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket {
    /// The address.
    pub address: IpAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Port.
    pub port: Port,
}

impl Socket {
    /// Returns the address family.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        IpFamily::of(self.address)
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = std::net::SocketAddr::new(self.address, self.port.get());
        write!(formatter, "{} {at}", self.protocol.as_str())
    }
}

/// Scheduling parameters of a virtual server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingParameters {
    /// Name of the scheduler.
    pub scheduler: String,
    /// `IP_VS_SVC_F_…` flags, without those internal to the kernel.
    pub flags: u32,
    /// Persistence timeout in seconds; meaningless without the persistent flag.
    pub timeout_secs: u32,
}

/// Forwarding method of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// Masquerading: the destination address is translated.
    Masquerade,
    /// The destination is the node itself.
    Local,
    /// IP tunnel; not used by our virtual servers.
    Tunnel,
    /// Direct routing: only the link-layer destination changes; not used by our virtual servers.
    Direct,
    /// Bypasses IPVS; not used by our virtual servers.
    Bypass,
}

/// Key of a destination within a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The address.
    pub address: IpAddr,
    /// Port.
    pub port: Port,
}

/// Attributes of a destination in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelDestination {
    /// Forwarding method.
    pub forwarding: Forwarding,
    /// Weight for new connections; 0 means none.
    pub weight: u32,
}

/// A virtual server with its destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Scheduling parameters.
    pub service: SchedulingParameters,
    /// Destinations with their attributes.
    pub destinations: BTreeMap<Destination, KernelDestination>,
}

/// Connection and traffic counters of a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Established connections.
    pub active: u32,
    /// Connections in another state.
    pub inactive: u32,
    /// Persistence entries.
    pub persistent: u32,
    /// Connections since the destination was created.
    pub connections: u64,
    /// Packets in both directions.
    pub packets: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

impl Load {
    /// Returns true if no connection would be lost with the destination.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}
