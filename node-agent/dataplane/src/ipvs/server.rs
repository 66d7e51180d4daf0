//! Data model of virtual servers and destinations, as the kernel stores them.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

/// Address, protocol and port: the key of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket {
    /// Address to which clients connect.
    pub address: IpAddr,
    /// Transport protocol of the virtual server.
    pub protocol: Protocol,
    /// Port to which clients connect.
    pub port: Port,
}

impl Socket {
    /// Returns the address family of the virtual server.
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

/// Parameters by which a virtual server selects a destination for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingParameters {
    /// Name of the IPVS scheduler, such as `rr`.
    pub scheduler: String,
    /// Flags of the virtual server (`IP_VS_SVC_F_…`), without those internal to the kernel.
    pub flags: u32,
    /// Persistence timeout in seconds; meaningless without the persistent flag.
    pub timeout_secs: u32,
}

/// Forwarding method of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// Masquerading: the destination address is translated.
    Masquerade,
    /// Delivery to the node itself, without translation.
    Local,
    /// Forwarding through an IP tunnel. Not used by the backend.
    Tunnel,
    /// Direct routing: only the link-layer destination changes. Not used by the backend.
    Direct,
    /// Delivery that bypasses IPVS. Not used by the backend.
    Bypass,
}

/// Key of a destination within a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// Address of the endpoint.
    pub address: IpAddr,
    /// Port of the endpoint.
    pub port: Port,
}

/// Forwarding method and weight of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelDestination {
    /// Method by which packets reach the destination.
    pub forwarding: Forwarding,
    /// Weight for new connections; 0 means none.
    pub weight: u32,
}

/// Virtual server with its scheduling parameters and destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Scheduler, flags and persistence timeout.
    pub service: SchedulingParameters,
    /// Destinations, each with its forwarding method and weight.
    pub destinations: BTreeMap<Destination, KernelDestination>,
}

/// Connection and traffic counters of a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of established connections.
    pub active: u32,
    /// Connections in any state other than established, such as closing ones.
    pub inactive: u32,
    /// Persistence entries, each of which assigns a client to this destination.
    pub persistent: u32,
    /// Number of connections since the destination was created.
    pub connections: u64,
    /// Packets in both directions since the destination was created.
    pub packets: u64,
    /// Bytes in both directions since the destination was created.
    pub bytes: u64,
}

impl Load {
    /// Returns true if the destination has no connection in any state. Persistence entries do not count,
    /// because no connection is lost with them.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}
