//! Parser of the kernel's IPVS messages. Total: any input yields a value or an error; unknown attributes are
//! skipped or cause an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::netlink::wire::{Attribute, AttributeIter, MalformedMessage, ReceivedMessage};
use model::{kinds::service::Protocol, primitives::quantity::Port};

use super::{
    render::{Daemon, Timeouts},
    server::{Destination, Forwarding, KernelDestination, Load, SchedulingParameters, Socket},
    uapi as u,
};

/// Flags of a virtual server that can be set from user space; others are internal to the kernel.
const FLAGS_SETTABLE: u32 = u::IP_VS_SVC_F_PERSISTENT
    | u::IP_VS_SVC_F_ONEPACKET
    | u::IP_VS_SVC_F_SCHED1
    | u::IP_VS_SVC_F_SCHED2
    | 0x20;

/// Version of IPVS in the kernel, and size of its connection table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// IPVS version, one byte per number: `0x010201` for 1.2.1.
    pub version: u32,
    /// Number of buckets in the hash table of connections.
    pub connection_table_size: u32,
}

/// Parses the number of a generic netlink family.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn family(answer: &ReceivedMessage<'_>) -> Result<Option<u16>, MalformedMessage> {
    find(answer.attributes(), u::CTRL_ATTR_FAMILY_ID)?.map(|attribute| attribute.ne16()).transpose()
}

/// Parses a virtual server; `None` if it is identified by a firewall mark or has an unsupported protocol.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn server(
    answer: &ReceivedMessage<'_>,
) -> Result<Option<(Socket, SchedulingParameters)>, MalformedMessage> {
    let Some(nest) = find(answer.attributes(), u::IPVS_CMD_ATTR_SERVICE)? else { return Ok(None) };
    let (mut family, mut address, mut protocol, mut port) = (0, None, 0, 0);
    let mut service = SchedulingParameters { scheduler: String::new(), flags: 0, timeout_secs: 0 };
    for attribute in nest.nested() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPVS_SVC_ATTR_AF => family = attribute.ne16()?,
            u::IPVS_SVC_ATTR_PROTOCOL => protocol = attribute.ne16()?,
            u::IPVS_SVC_ATTR_ADDR => address = Some(attribute),
            u::IPVS_SVC_ATTR_PORT => port = attribute.be16()?,
            u::IPVS_SVC_ATTR_SCHED_NAME => attribute.text()?.clone_into(&mut service.scheduler),
            u::IPVS_SVC_ATTR_FLAGS => {
                let flags = attribute.value.first_chunk().ok_or(MalformedMessage("truncated flags"))?;
                service.flags = u32::from_ne_bytes(*flags) & FLAGS_SETTABLE;
            }
            u::IPVS_SVC_ATTR_TIMEOUT => service.timeout_secs = attribute.ne32()?,
            _ => {}
        }
    }
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|known| u16::from(known.number()) == protocol);
    let (Some(address), Some(protocol), Some(port)) = (address, protocol, Port::new(port)) else {
        return Ok(None);
    };
    Ok(Some((Socket { address: address_of(&address, family)?, protocol, port }, service)))
}

/// Parses a destination of a virtual server of the given family; `None` if it has no port.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn destination(
    answer: &ReceivedMessage<'_>,
    server_family: u16,
) -> Result<Option<(Destination, KernelDestination, Load)>, MalformedMessage> {
    let Some(nest) = find(answer.attributes(), u::IPVS_CMD_ATTR_DEST)? else { return Ok(None) };
    let (mut family, mut address, mut port) = (server_family, None, 0);
    let mut held = KernelDestination { forwarding: Forwarding::Masquerade, weight: 0 };
    let mut load = Load::default();
    for attribute in nest.nested() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPVS_DEST_ATTR_ADDR => address = Some(attribute),
            u::IPVS_DEST_ATTR_PORT => port = attribute.be16()?,
            u::IPVS_DEST_ATTR_FWD_METHOD => held.forwarding = forwarding(attribute.ne32()?),
            u::IPVS_DEST_ATTR_WEIGHT => held.weight = attribute.ne32()?,
            u::IPVS_DEST_ATTR_ACTIVE_CONNS => load.active = attribute.ne32()?,
            u::IPVS_DEST_ATTR_INACT_CONNS => load.inactive = attribute.ne32()?,
            u::IPVS_DEST_ATTR_PERSIST_CONNS => load.persistent = attribute.ne32()?,
            u::IPVS_DEST_ATTR_ADDR_FAMILY => family = attribute.ne16()?,
            u::IPVS_DEST_ATTR_STATS64 => statistics(&attribute, &mut load)?,
            _ => {}
        }
    }
    let (Some(address), Some(port)) = (address, Port::new(port)) else { return Ok(None) };
    Ok(Some((Destination { address: address_of(&address, family)?, port }, held, load)))
}

/// Parses the idle timeouts of connections.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn timeouts(answer: &ReceivedMessage<'_>) -> Result<Timeouts, MalformedMessage> {
    let mut timeouts = Timeouts::default();
    for attribute in answer.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPVS_CMD_ATTR_TIMEOUT_TCP => timeouts.tcp_secs = attribute.ne32()?,
            u::IPVS_CMD_ATTR_TIMEOUT_TCP_FIN => timeouts.tcp_fin_secs = attribute.ne32()?,
            u::IPVS_CMD_ATTR_TIMEOUT_UDP => timeouts.udp_secs = attribute.ne32()?,
            _ => {}
        }
    }
    Ok(timeouts)
}

/// Parses the IPVS version and the size of the connection table.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn info(answer: &ReceivedMessage<'_>) -> Result<Info, MalformedMessage> {
    let number = |kind| {
        let attribute = find(answer.attributes(), kind)?;
        attribute.map_or(Ok(0), |attribute| attribute.ne32())
    };
    Ok(Info {
        version: number(u::IPVS_INFO_ATTR_VERSION)?,
        connection_table_size: number(u::IPVS_INFO_ATTR_CONN_TAB_SIZE)?,
    })
}

/// Parses the state of a connection synchronization daemon; `None` if the message contains no daemon.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn daemon(answer: &ReceivedMessage<'_>) -> Result<Option<Daemon>, MalformedMessage> {
    let Some(nest) = find(answer.attributes(), u::IPVS_CMD_ATTR_DAEMON)? else { return Ok(None) };
    let mut daemon = Daemon { state: 0, interface: String::new(), sync_id: 0 };
    for attribute in nest.nested() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPVS_DAEMON_ATTR_STATE => daemon.state = attribute.ne32()?,
            u::IPVS_DAEMON_ATTR_MCAST_IFN => attribute.text()?.clone_into(&mut daemon.interface),
            u::IPVS_DAEMON_ATTR_SYNC_ID => daemon.sync_id = attribute.ne32()?,
            _ => {}
        }
    }
    Ok(Some(daemon))
}

fn statistics(nest: &Attribute<'_>, load: &mut Load) -> Result<(), MalformedMessage> {
    for attribute in nest.nested() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPVS_STATS_ATTR_CONNS => load.connections = attribute.ne64()?,
            u::IPVS_STATS_ATTR_INPKTS | u::IPVS_STATS_ATTR_OUTPKTS => {
                load.packets = load.packets.saturating_add(attribute.ne64()?)
            }
            u::IPVS_STATS_ATTR_INBYTES | u::IPVS_STATS_ATTR_OUTBYTES => {
                load.bytes = load.bytes.saturating_add(attribute.ne64()?)
            }
            _ => {}
        }
    }
    Ok(())
}

fn find<'a>(attributes: AttributeIter<'a>, kind: u16) -> Result<Option<Attribute<'a>>, MalformedMessage> {
    for attribute in attributes {
        let attribute = attribute?;
        if attribute.kind == kind {
            return Ok(Some(attribute));
        }
    }
    Ok(None)
}

fn address_of(attribute: &Attribute<'_>, family: u16) -> Result<IpAddr, MalformedMessage> {
    if family == u16::from(u::AF_INET6) {
        let octets: &[u8; 16] = attribute.value.first_chunk().ok_or(MalformedMessage("truncated address"))?;
        return Ok(IpAddr::V6(Ipv6Addr::from(*octets)));
    }
    let octets: &[u8; 4] = attribute.value.first_chunk().ok_or(MalformedMessage("truncated address"))?;
    Ok(IpAddr::V4(Ipv4Addr::from(*octets)))
}

const fn forwarding(number: u32) -> Forwarding {
    match number & u::IP_VS_CONN_F_FWD_MASK {
        u::IP_VS_CONN_F_LOCALNODE => Forwarding::Local,
        u::IP_VS_CONN_F_TUNNEL => Forwarding::Tunnel,
        u::IP_VS_CONN_F_DROUTE => Forwarding::Direct,
        u::IP_VS_CONN_F_BYPASS => Forwarding::Bypass,
        _ => Forwarding::Masquerade,
    }
}
