//! ipsets around the virtual servers: kinds, names and elements.
//!
//! The iptables rules refer to these sets and never to an address, so the number of rules does not grow with
//! the Services.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{
    kinds::node::Naming,
    primitives::{net::IpFamily, quantity::Port},
};

use super::server::Socket;

/// Maximum length of a set name in the kernel, in bytes.
const NAME_BYTES_MAX: usize = 31;

/// Purpose of a set. Each kind exists once for IPv4 and once for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetKind {
    /// Virtual servers of the backend. A starting process recognizes them by this set.
    Servers,
    /// Addresses of Services on which every port without a frontend is rejected.
    Addresses,
    /// Frontends of any role (such as cluster IP or node port) whose connections are masqueraded depending on the
    /// source.
    ClusterIp,
    /// Endpoints that connect to themselves (hairpin).
    LoopBack,
    /// Frontends at external addresses whose connections are always masqueraded.
    ExternalIp,
    /// Frontends at external addresses of which only connections from the node itself are masqueraded.
    ExternalIpLocal,
    /// Load balancer frontends of which all connections, or only those from the node itself, are masqueraded.
    /// In the second case, the frontends are also in [`Self::LoadBalancerLocal`].
    LoadBalancer,
    /// Load balancer frontends of which only connections from the node itself are masqueraded.
    LoadBalancerLocal,
    /// Frontends with allowed source ranges.
    Firewall,
    /// Source ranges that may connect to a frontend of [`Self::Firewall`].
    SourceCidr,
    /// TCP node ports whose connections are always masqueraded.
    NodePortTcp,
    /// TCP node ports of which only connections from the node itself are masqueraded.
    NodePortLocalTcp,
    /// UDP node ports whose connections are always masqueraded.
    NodePortUdp,
    /// UDP node ports of which only connections from the node itself are masqueraded.
    NodePortLocalUdp,
    /// SCTP node ports whose connections are always masqueraded.
    NodePortSctp,
    /// SCTP node ports of which only connections from the node itself are masqueraded.
    NodePortLocalSctp,
    /// Health check node ports of the agent.
    HealthCheck,
    /// Frontends that reject all sources.
    Reject,
    /// Frontends that drop all sources.
    Drop,
    /// Frontends that drop all sources except workloads and the node.
    DropOutside,
    /// Networks of the workloads on this node, from the node's state.
    Workloads,
    /// Source networks that are masqueraded at frontends where masquerading depends on the source.
    MasqueradeSources,
    /// Networks of cluster IPs. Packets to an address in them that no Service has are dropped.
    ServiceRanges,
    /// Former values of the changed sysctls.
    Sysctls,
}

/// Kernel type of a set, which determines the fields of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `hash:ip`: single addresses.
    Address,
    /// `hash:net`: networks.
    Net,
    /// `hash:ip,port`: an address, protocol and port.
    Socket,
    /// `hash:ip,port,ip`: a destination address, protocol and port, and a source address.
    SocketAddress,
    /// `hash:ip,port,net`: a destination address, protocol and port, and a source network.
    SocketNet,
    /// `bitmap:port`: ports, or other 16-bit numbers.
    Port,
}

impl Shape {
    /// Returns the kernel's name of the type.
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

    /// Returns a revision of the type that all kernels and `ipset` versions of the last ten years support.
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

impl SetKind {
    /// All kinds of sets. Each has one set per address family.
    pub const ALL: [Self; 24] = [
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
        Self::ServiceRanges,
        Self::Sysctls,
    ];

    /// Kinds of sets whose elements belong to one frontend, identified by address, protocol and port.
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

    /// Kinds of sets that hold TCP or UDP node ports.
    pub const OF_NODE_PORT: [Self; 4] =
        [Self::NodePortTcp, Self::NodePortLocalTcp, Self::NodePortUdp, Self::NodePortLocalUdp];

    /// Returns the kernel type that sets of this kind have.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Addresses => Shape::Address,
            Self::Workloads | Self::MasqueradeSources | Self::ServiceRanges => Shape::Net,
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

    /// Returns the name of the set without prefix. Sets that kube-proxy also has are named as in kube-proxy.
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
            Self::ServiceRanges => "IPVS-SERVICE-RANGES",
            Self::Sysctls => "IPVS-FORMER-SYSCTLS",
        }
    }
}

/// ipset of one kind and one address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// Purpose of the set, which determines its type and name.
    pub kind: SetKind,
    /// Address family of the matched packets.
    pub family: IpFamily,
}

impl Set {
    /// Iterates over the sets of all kinds in both address families.
    pub fn all() -> impl Iterator<Item = Self> {
        IpFamily::ALL.into_iter().flat_map(|family| SetKind::ALL.map(|kind| Self { kind, family }))
    }

    /// Returns the name of the set, truncated to the kernel's limit as in kube-proxy.
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

/// Returns the prefix of the names of all sets and chains in the naming scheme.
#[must_use]
pub const fn prefix(naming: Naming) -> &'static str {
    match naming {
        // Different from the prefix of iptables mode, because during a mode change both are in the kernel.
        Naming::Tidegate => "TGV",
        Naming::Kube => "KUBE",
    }
}

/// Returns the name of the dummy link that holds the virtual addresses.
#[must_use]
pub const fn link(naming: Naming) -> &'static str {
    match naming {
        Naming::Tidegate => "tidegate-ipvs",
        Naming::Kube => "kube-ipvs0",
    }
}

/// Value of a set element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Address in a set of type [`Shape::Address`].
    Address(IpAddr),
    /// Network in a set of type [`Shape::Net`]; never with prefix length 0, which hash types do not support.
    Net(IpNet),
    /// Address, protocol and port in a set of type [`Shape::Socket`].
    Socket(Socket),
    /// Destination address, protocol and port, and source address, in a set of type [`Shape::SocketAddress`].
    SocketAddress(Socket, IpAddr),
    /// Destination address, protocol and port, and source network, in a set of type [`Shape::SocketNet`]; the
    /// prefix length is never 0.
    SocketNet(Socket, IpNet),
    /// Number in a set of type [`Shape::Port`]: a port, or a recorded sysctl value.
    Port(u16),
}

/// Element of one of the backend's sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpsetElement {
    /// Set that contains the element.
    pub set: Set,
    /// Value of the element, of the type that the set requires.
    pub value: Value,
}

impl IpsetElement {
    /// Creates an element of the set of this kind, in the family of the socket.
    #[must_use]
    pub const fn of_socket(kind: SetKind, socket: Socket) -> Self {
        Self { set: Set { kind, family: socket.family() }, value: Value::Socket(socket) }
    }

    /// Creates an element for a TCP or UDP node port.
    #[must_use]
    pub const fn of_port(kind: SetKind, family: IpFamily, port: Port) -> Self {
        Self { set: Set { kind, family }, value: Value::Port(port.get()) }
    }

    /// Creates the element that marks an address as closed: every port without a frontend is rejected.
    #[must_use]
    pub const fn of_address(address: IpAddr) -> Self {
        let set = Set { kind: SetKind::Addresses, family: IpFamily::of(address) };
        Self { set, value: Value::Address(address) }
    }

    /// Creates an element for the hairpin connection of an endpoint to itself.
    #[must_use]
    pub const fn of_loop(socket: Socket) -> Self {
        let set = Set { kind: SetKind::LoopBack, family: socket.family() };
        Self { set, value: Value::SocketAddress(socket, socket.address) }
    }
}

/// Returns the set elements for a network: the network itself, or its two halves for prefix length 0.
#[must_use]
pub fn halves(net: IpNet) -> Vec<IpNet> {
    if net.prefix_len() > 0 {
        return vec![net.trunc()];
    }
    net.subnets(1).map(Iterator::collect).unwrap_or_default()
}
