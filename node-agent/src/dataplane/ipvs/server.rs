//! Virtual servers and their destinations, as the kernel has them.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

/// An address, a protocol and a port: what names a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket {
    /// The address.
    pub address: IpAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: Port,
}

impl Socket {
    /// The family of the address.
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

/// How a virtual server gives out connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name of the scheduler.
    pub scheduler: String,
    /// `IP_VS_SVC_F_…`, without what the kernel keeps for itself.
    pub flags: u32,
    /// How long a source stays with its destination, in seconds; meaningless unless the flags say persistent.
    pub timeout_secs: u32,
}

/// How packets reach a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// The destination address is translated.
    Masquerade,
    /// The destination is the node itself.
    Local,
    /// In an IP tunnel; no virtual server of ours does it.
    Tunnel,
    /// Only the link-layer destination changes; no virtual server of ours does it.
    Direct,
    /// Past IPVS; no virtual server of ours does it.
    Bypass,
}

/// What names a destination of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Port,
}

/// A destination as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// How packets reach it.
    pub forwarding: Forwarding,
    /// Its share of new connections; none at 0.
    pub weight: u32,
}

/// A virtual server with its destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// How it gives out connections.
    pub service: Service,
    /// To whom.
    pub destinations: BTreeMap<Destination, Held>,
}

/// What a destination has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Established connections.
    pub active: u32,
    /// Connections in another state.
    pub inactive: u32,
    /// Persistence entries.
    pub persistent: u32,
    /// Connections since it was made.
    pub connections: u64,
    /// Packets in both directions.
    pub packets: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

impl Load {
    /// Whether a connection would be lost with the destination.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}
