//! The ipsets around the virtual servers: which there are, how they are named, and what they hold.
//!
//! The rules of iptables name these sets and never an address, so their number does not grow with the Services.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{
    kinds::node::Naming,
    primitives::{net::IpFamily, quantity::Port},
};

use super::server::Socket;

/// The longest name of a set that the kernel takes, in bytes.
const NAME_BYTES_MAX: usize = 31;

/// What a set is for. Each is there once for IPv4 and once for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Every virtual server of ours: what a fresh process recognises them by.
    Servers,
    /// Every address that answers nothing but its frontends.
    Addresses,
    /// Frontends that masquerade by source.
    ClusterIp,
    /// Endpoints that reach themselves.
    LoopBack,
    /// Exact frontends that masquerade always.
    ExternalIp,
    /// Exact frontends that masquerade only what the node itself sends.
    ExternalIpLocal,
    /// Load balancer frontends.
    LoadBalancer,
    /// Load balancer frontends that masquerade only what the node itself sends.
    LoadBalancerLocal,
    /// Frontends that only some sources may use.
    Firewall,
    /// Those sources.
    SourceCidr,
    /// TCP node ports that masquerade always.
    NodePortTcp,
    /// TCP node ports that masquerade only what the node itself sends.
    NodePortLocalTcp,
    /// UDP node ports that masquerade always.
    NodePortUdp,
    /// UDP node ports that masquerade only what the node itself sends.
    NodePortLocalUdp,
    /// SCTP node ports that masquerade always.
    NodePortSctp,
    /// SCTP node ports that masquerade only what the node itself sends.
    NodePortLocalSctp,
    /// Where the agent answers health checks.
    HealthCheck,
    /// Frontends that refuse everybody.
    Reject,
    /// Frontends that drop everybody.
    Drop,
    /// Frontends that drop whoever is neither a workload nor the node.
    DropOutside,
    /// The networks of the workloads.
    Workloads,
    /// Sources that are masqueraded where the source decides.
    MasqueradeSources,
    /// The former values of the sysctls that were changed.
    Sysctls,
}

/// The type of a set, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `hash:ip`.
    Address,
    /// `hash:net`.
    Net,
    /// `hash:ip,port`.
    Socket,
    /// `hash:ip,port,ip`.
    SocketAddress,
    /// `hash:ip,port,net`.
    SocketNet,
    /// `bitmap:port`.
    Port,
}

impl Shape {
    /// The kernel's name of the type.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Address => "hash:ip",
            Self::Net => "hash:net",
            Self::Socket => "hash:ip,port",
            Self::SocketAddress => "hash:ip,port,ip",
            Self::SocketNet => "hash:ip,port,net",
            Self::Port => "bitmap:port",
        }
    }

    /// A revision of the type that every kernel and every `ipset` of the last ten years has.
    #[must_use]
    pub const fn revision(self) -> u8 {
        match self {
            Self::Port => 3,
            Self::Address => 4,
            Self::Socket | Self::SocketAddress => 5,
            Self::Net => 6,
            Self::SocketNet => 7,
        }
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::Servers,
        Self::Addresses,
        Self::ClusterIp,
        Self::LoopBack,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::Firewall,
        Self::SourceCidr,
        Self::NodePortTcp,
        Self::NodePortLocalTcp,
        Self::NodePortUdp,
        Self::NodePortLocalUdp,
        Self::NodePortSctp,
        Self::NodePortLocalSctp,
        Self::HealthCheck,
        Self::Reject,
        Self::Drop,
        Self::DropOutside,
        Self::Workloads,
        Self::MasqueradeSources,
        Self::Sysctls,
    ];

    /// The kinds whose elements belong to one exact frontend.
    pub const OF_FRONTEND: [Self; 11] = [
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::Firewall,
        Self::NodePortSctp,
        Self::NodePortLocalSctp,
        Self::Reject,
        Self::Drop,
        Self::DropOutside,
    ];

    /// The kinds that hold the node ports of TCP and UDP.
    pub const OF_NODE_PORT: [Self; 4] =
        [Self::NodePortTcp, Self::NodePortLocalTcp, Self::NodePortUdp, Self::NodePortLocalUdp];

    /// The type of the set.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Addresses => Shape::Address,
            Self::Workloads | Self::MasqueradeSources => Shape::Net,
            Self::Servers
            | Self::ClusterIp
            | Self::ExternalIp
            | Self::ExternalIpLocal
            | Self::LoadBalancer
            | Self::LoadBalancerLocal
            | Self::Firewall
            | Self::NodePortSctp
            | Self::NodePortLocalSctp
            | Self::Reject
            | Self::Drop
            | Self::DropOutside => Shape::Socket,
            Self::LoopBack => Shape::SocketAddress,
            Self::SourceCidr => Shape::SocketNet,
            Self::NodePortTcp
            | Self::NodePortLocalTcp
            | Self::NodePortUdp
            | Self::NodePortLocalUdp
            | Self::HealthCheck
            | Self::Sysctls => Shape::Port,
        }
    }

    /// The name without prefix; those that kube-proxy has are its names.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Servers => "IPVS-SERVERS",
            Self::Addresses => "IPVS-IPS",
            Self::ClusterIp => "CLUSTER-IP",
            Self::LoopBack => "LOOP-BACK",
            Self::ExternalIp => "EXTERNAL-IP",
            Self::ExternalIpLocal => "EXTERNAL-IP-LOCAL",
            Self::LoadBalancer => "LOAD-BALANCER",
            Self::LoadBalancerLocal => "LOAD-BALANCER-LOCAL",
            Self::Firewall => "LOAD-BALANCER-FW",
            Self::SourceCidr => "LOAD-BALANCER-SOURCE-CIDR",
            Self::NodePortTcp => "NODE-PORT-TCP",
            Self::NodePortLocalTcp => "NODE-PORT-LOCAL-TCP",
            Self::NodePortUdp => "NODE-PORT-UDP",
            Self::NodePortLocalUdp => "NODE-PORT-LOCAL-UDP",
            Self::NodePortSctp => "NODE-PORT-SCTP-HASH",
            Self::NodePortLocalSctp => "NODE-PORT-LOCAL-SCTP-HASH",
            Self::HealthCheck => "HEALTH-CHECK-NODE-PORT",
            Self::Reject => "IPVS-REJECT",
            Self::Drop => "IPVS-DROP",
            Self::DropOutside => "IPVS-DROP-OUTSIDE",
            Self::Workloads => "IPVS-WORKLOADS",
            Self::MasqueradeSources => "IPVS-MASQ-SOURCES",
            Self::Sysctls => "IPVS-FORMER-SYSCTLS",
        }
    }
}

/// A set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// What it is for.
    pub kind: Kind,
    /// Whose packets.
    pub family: IpFamily,
}

impl Set {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        IpFamily::ALL.into_iter().flat_map(|family| Kind::ALL.map(|kind| Self { kind, family }))
    }

    /// Its name; what is longer than the kernel takes loses its end, as kube-proxy does it.
    #[must_use]
    pub fn name(self, naming: Naming) -> String {
        let family = match self.family {
            IpFamily::V4 => "",
            IpFamily::V6 => "6-",
        };
        let mut name = format!("{}-{family}{}", prefix(naming), self.kind.suffix());
        name.truncate(NAME_BYTES_MAX);
        name
    }
}

/// What all names of sets and chains begin with.
#[must_use]
pub const fn prefix(naming: Naming) -> &'static str {
    match naming {
        // Another one than that of iptables mode: while one mode takes over from the other, both are in the kernel.
        Naming::Tidegate => "TGV",
        Naming::Kube => "KUBE",
    }
}

/// The name of the link that holds the addresses.
#[must_use]
pub const fn link(naming: Naming) -> &'static str {
    match naming {
        Naming::Tidegate => "tidegate-ipvs",
        Naming::Kube => "kube-ipvs0",
    }
}

/// What a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// An address.
    Address(IpAddr),
    /// A network; never one of length 0, which no hash takes.
    Net(IpNet),
    /// An address, protocol and port.
    Socket(Socket),
    /// A destination and a source address.
    SocketAddress(Socket, IpAddr),
    /// A destination and a source network; never one of length 0.
    SocketNet(Socket, IpNet),
    /// A number of 16 bits, most often a port.
    Port(u16),
}

/// An element of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// The set.
    pub set: Set,
    /// The value.
    pub value: Value,
}

impl Element {
    /// An element of the set of this kind in the value's family.
    #[must_use]
    pub const fn of_socket(kind: Kind, socket: Socket) -> Self {
        Self { set: Set { kind, family: socket.family() }, value: Value::Socket(socket) }
    }

    /// A node port of TCP or UDP.
    #[must_use]
    pub const fn of_port(kind: Kind, family: IpFamily, port: Port) -> Self {
        Self { set: Set { kind, family }, value: Value::Port(port.get()) }
    }

    /// An address that answers nothing but its frontends.
    #[must_use]
    pub const fn of_address(address: IpAddr) -> Self {
        let set = Set { kind: Kind::Addresses, family: IpFamily::of(address) };
        Self { set, value: Value::Address(address) }
    }

    /// The way of an endpoint to itself.
    #[must_use]
    pub const fn of_loop(socket: Socket) -> Self {
        let set = Set { kind: Kind::LoopBack, family: socket.family() };
        Self { set, value: Value::SocketAddress(socket, socket.address) }
    }
}

/// A network as elements of a set: one of length 0 as its halves.
#[must_use]
pub fn halves(net: IpNet) -> Vec<IpNet> {
    if net.prefix_len() > 0 {
        return vec![net.trunc()];
    }
    net.subnets(1).map(Iterator::collect).unwrap_or_default()
}
