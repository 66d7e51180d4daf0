//! Encoder of IPVS commands and requests as generic netlink messages. Does no I/O.

use std::{fmt, net::IpAddr};

use kernel::netlink::{
    uapi::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST},
    wire::{Attributes, Message, generic_header},
};
use model::primitives::net::IpFamily;

use super::{
    server::{Destination, Forwarding, KernelDestination, SchedulingParameters, Socket},
    uapi as u,
};

/// Command that changes IPVS state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpvsCommand {
    /// Creates a virtual server without destinations.
    AddServer(Socket, SchedulingParameters),
    /// Changes scheduler, flags or timeout of a virtual server.
    EditServer(Socket, SchedulingParameters),
    /// Removes a virtual server with its destinations.
    RemoveServer(Socket),
    /// Adds a destination to a virtual server.
    AddDestination(Socket, Destination, KernelDestination),
    /// Changes the weight of a destination.
    EditDestination(Socket, Destination, KernelDestination),
    /// Removes a destination from a virtual server.
    RemoveDestination(Socket, Destination),
    /// Zeroes the counters of a virtual server.
    Zero(Socket),
    /// Removes every virtual server of the namespace, foreign ones included. Never sent by the backend.
    Flush,
    /// Sets the idle timeouts of connections; 0 leaves a timeout unchanged.
    SetTimeouts(Timeouts),
    /// Starts a synchronization daemon. Never sent by the backend.
    AddDaemon(Daemon),
    /// Stops a synchronization daemon. Never sent by the backend.
    RemoveDaemon(Daemon),
}

/// Idle timeouts of connections in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout of established TCP connections, in seconds.
    pub tcp_secs: u32,
    /// Timeout of TCP connections after a FIN, in seconds.
    pub tcp_fin_secs: u32,
    /// Timeout of UDP connections, in seconds.
    pub udp_secs: u32,
}

/// Connection synchronization daemon of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Role of the daemon (`IP_VS_STATE_…`): 1 is master, 2 is backup.
    pub state: u32,
    /// Name of the interface on which the daemon sends or receives multicast packets.
    pub interface: String,
    /// Identifier of the group of daemons that synchronize with each other (`syncid`), 0–255.
    pub sync_id: u32,
}

impl fmt::Display for IpvsCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |destination: &Destination| {
            std::net::SocketAddr::new(destination.address, destination.port.get())
        };
        match self {
            Self::AddServer(socket, service) | Self::EditServer(socket, service) => {
                let verb = if matches!(self, Self::AddServer(..)) { "add" } else { "edit" };
                let SchedulingParameters { scheduler, flags, timeout_secs } = service;
                write!(
                    formatter,
                    "{verb} server {socket} {scheduler} flags {flags:#x} timeout {timeout_secs}"
                )
            }
            Self::RemoveServer(socket) => write!(formatter, "remove server {socket}"),
            Self::AddDestination(socket, destination, held) => {
                write!(formatter, "add {socket} -> {} weight {}", at(destination), held.weight)
            }
            Self::EditDestination(socket, destination, held) => {
                write!(formatter, "edit {socket} -> {} weight {}", at(destination), held.weight)
            }
            Self::RemoveDestination(socket, destination) => {
                write!(formatter, "remove {socket} -> {}", at(destination))
            }
            Self::Zero(socket) => write!(formatter, "zero {socket}"),
            Self::Flush => formatter.write_str("flush"),
            Self::SetTimeouts(Timeouts { tcp_secs, tcp_fin_secs, udp_secs }) => {
                write!(formatter, "set timeouts {tcp_secs} {tcp_fin_secs} {udp_secs}")
            }
            Self::AddDaemon(daemon) => write!(formatter, "add daemon on {}", daemon.interface),
            Self::RemoveDaemon(daemon) => write!(formatter, "remove daemon on {}", daemon.interface),
        }
    }
}

impl IpvsCommand {
    /// Encodes the command as a message with `NLM_F_ACK` to the netlink family of the given number.
    #[must_use]
    pub fn message(&self, family: u16) -> Message {
        let (command, attributes) = match self {
            Self::AddServer(socket, service) => (u::IPVS_CMD_NEW_SERVICE, with_service(socket, service)),
            Self::EditServer(socket, service) => (u::IPVS_CMD_SET_SERVICE, with_service(socket, service)),
            Self::RemoveServer(socket) => (u::IPVS_CMD_DEL_SERVICE, of_server(socket)),
            Self::AddDestination(socket, destination, held) => {
                (u::IPVS_CMD_NEW_DEST, with_destination(socket, destination, Some(held)))
            }
            Self::EditDestination(socket, destination, held) => {
                (u::IPVS_CMD_SET_DEST, with_destination(socket, destination, Some(held)))
            }
            Self::RemoveDestination(socket, destination) => {
                (u::IPVS_CMD_DEL_DEST, with_destination(socket, destination, None))
            }
            Self::Zero(socket) => (u::IPVS_CMD_ZERO, of_server(socket)),
            Self::Flush => (u::IPVS_CMD_FLUSH, Attributes::default()),
            Self::SetTimeouts(Timeouts { tcp_secs, tcp_fin_secs, udp_secs }) => {
                let attributes = Attributes::default()
                    .ne32(u::IPVS_CMD_ATTR_TIMEOUT_TCP, *tcp_secs)
                    .ne32(u::IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, *tcp_fin_secs)
                    .ne32(u::IPVS_CMD_ATTR_TIMEOUT_UDP, *udp_secs);
                (u::IPVS_CMD_SET_CONFIG, attributes)
            }
            Self::AddDaemon(daemon) => (u::IPVS_CMD_NEW_DAEMON, with_daemon(daemon)),
            Self::RemoveDaemon(daemon) => (u::IPVS_CMD_DEL_DAEMON, with_daemon(daemon)),
        };
        message(family, command, NLM_F_ACK, attributes)
    }
}

/// Builds the request for the number of the generic netlink family `name`.
#[must_use]
pub fn get_family(name: &str) -> Message {
    Message {
        kind: u::GENL_ID_CTRL,
        flags: NLM_F_REQUEST | NLM_F_ACK,
        header: generic_header(u::CTRL_CMD_GETFAMILY, 1),
        attributes: Attributes::default().text(u::CTRL_ATTR_FAMILY_NAME, name),
    }
}

/// Builds the request for all virtual servers of the network namespace.
#[must_use]
pub fn dump_servers(family: u16) -> Message {
    message(family, u::IPVS_CMD_GET_SERVICE, NLM_F_DUMP, Attributes::default())
}

/// Builds the request for one virtual server, by address, protocol and port.
#[must_use]
pub fn get_server(family: u16, socket: &Socket) -> Message {
    message(family, u::IPVS_CMD_GET_SERVICE, NLM_F_ACK, of_server(socket))
}

/// Builds the request for the destinations of a virtual server.
#[must_use]
pub fn dump_destinations(family: u16, socket: &Socket) -> Message {
    message(family, u::IPVS_CMD_GET_DEST, NLM_F_DUMP, of_server(socket))
}

/// Builds the request for the idle timeouts of connections.
#[must_use]
pub fn get_timeouts(family: u16) -> Message {
    message(family, u::IPVS_CMD_GET_CONFIG, NLM_F_ACK, Attributes::default())
}

/// Builds the request for the IPVS version and the size of the connection table.
#[must_use]
pub fn get_info(family: u16) -> Message {
    message(family, u::IPVS_CMD_GET_INFO, NLM_F_ACK, Attributes::default())
}

/// Builds the request for the running synchronization daemons.
#[must_use]
pub fn dump_daemons(family: u16) -> Message {
    message(family, u::IPVS_CMD_GET_DAEMON, NLM_F_DUMP, Attributes::default())
}

fn message(family: u16, command: u8, flags: u16, attributes: Attributes) -> Message {
    let header = generic_header(command, u::IPVS_GENL_VERSION);
    Message { kind: family, flags: flags | NLM_F_REQUEST, header, attributes }
}

fn of_server(socket: &Socket) -> Attributes {
    Attributes::default().nested(u::IPVS_CMD_ATTR_SERVICE, &server_name(socket))
}

fn server_name(socket: &Socket) -> Attributes {
    Attributes::default()
        .ne16(u::IPVS_SVC_ATTR_AF, family_number(socket.address))
        .ne16(u::IPVS_SVC_ATTR_PROTOCOL, u16::from(socket.protocol.number()))
        .bytes(u::IPVS_SVC_ATTR_ADDR, &address_bytes(socket.address))
        .be16(u::IPVS_SVC_ATTR_PORT, socket.port.get())
}

fn with_service(socket: &Socket, service: &SchedulingParameters) -> Attributes {
    // `struct ip_vs_flags`: the flags and their mask.
    let flags = [service.flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat();
    let named = server_name(socket)
        .text(u::IPVS_SVC_ATTR_SCHED_NAME, &service.scheduler)
        .bytes(u::IPVS_SVC_ATTR_FLAGS, &flags)
        .ne32(u::IPVS_SVC_ATTR_TIMEOUT, service.timeout_secs);
    // Persistence per source address: an all-ones netmask, encoded as a prefix length for IPv6.
    let masked = match socket.family() {
        IpFamily::V4 => named.be32(u::IPVS_SVC_ATTR_NETMASK, u32::MAX),
        IpFamily::V6 => named.ne32(u::IPVS_SVC_ATTR_NETMASK, 128),
    };
    Attributes::default().nested(u::IPVS_CMD_ATTR_SERVICE, &masked)
}

fn with_destination(
    socket: &Socket,
    destination: &Destination,
    held: Option<&KernelDestination>,
) -> Attributes {
    let named = Attributes::default()
        .bytes(u::IPVS_DEST_ATTR_ADDR, &address_bytes(destination.address))
        .be16(u::IPVS_DEST_ATTR_PORT, destination.port.get())
        .ne16(u::IPVS_DEST_ATTR_ADDR_FAMILY, family_number(destination.address));
    let whole = match held {
        None => named,
        Some(held) => named
            .ne32(u::IPVS_DEST_ATTR_FWD_METHOD, forwarding_number(held.forwarding))
            .ne32(u::IPVS_DEST_ATTR_WEIGHT, held.weight)
            .ne32(u::IPVS_DEST_ATTR_U_THRESH, 0)
            .ne32(u::IPVS_DEST_ATTR_L_THRESH, 0),
    };
    of_server(socket).nested(u::IPVS_CMD_ATTR_DEST, &whole)
}

fn with_daemon(daemon: &Daemon) -> Attributes {
    let daemon = Attributes::default()
        .ne32(u::IPVS_DAEMON_ATTR_STATE, daemon.state)
        .text(u::IPVS_DAEMON_ATTR_MCAST_IFN, &daemon.interface)
        .ne32(u::IPVS_DAEMON_ATTR_SYNC_ID, daemon.sync_id);
    Attributes::default().nested(u::IPVS_CMD_ATTR_DAEMON, &daemon)
}

const fn forwarding_number(forwarding: Forwarding) -> u32 {
    match forwarding {
        Forwarding::Masquerade => u::IP_VS_CONN_F_MASQ,
        Forwarding::Local => u::IP_VS_CONN_F_LOCALNODE,
        Forwarding::Tunnel => u::IP_VS_CONN_F_TUNNEL,
        Forwarding::Direct => u::IP_VS_CONN_F_DROUTE,
        Forwarding::Bypass => u::IP_VS_CONN_F_BYPASS,
    }
}

fn family_number(address: IpAddr) -> u16 {
    u16::from(match IpFamily::of(address) {
        IpFamily::V4 => u::AF_INET,
        IpFamily::V6 => u::AF_INET6,
    })
}

/// Encodes an address as `union nf_inet_addr`, always 16 bytes; an IPv4 address is followed by zeros.
fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}
