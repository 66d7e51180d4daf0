//! Connection tracking: flows, ctnetlink messages, and challenges to clients whose flows were deleted.

pub mod nudge;
pub mod uapi;
pub mod wire;

use std::{io, net::IpAddr};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

use self::nudge::wire::Nudge;
use crate::netlink::socket::{Netlink, Protocol as NetlinkProtocol};

/// A tracked flow, reduced to the fields needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Destination address of the client's packets.
    pub destination: IpAddr,
    /// Destination port of the client's packets.
    pub port: Port,
    /// Address of the target that responds.
    pub target: IpAddr,
    /// Port of the target.
    pub target_port: Port,
}

/// Criteria common to all flows of interest, so that the kernel can skip other flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// The address family.
    pub family: Option<IpFamily>,
    /// The transport protocol.
    pub protocol: Option<Protocol>,
    /// Destination address of the client's packets.
    pub destination: Option<IpAddr>,
    /// Destination port of the client's packets.
    pub port: Option<Port>,
}

/// Key of a flow, unique among the flows that exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// The kernel's id of the conntrack entry, which is a hash.
    pub id: u32,
    /// Port of the client; distinguishes two flows with the same hash.
    pub client_port: u16,
    /// Port of the target.
    pub target_port: u16,
}

/// Traffic in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Packets.
    pub packets: u64,
    /// Bytes, including headers from the network layer up.
    pub bytes: u64,
}

impl FlowTraffic {
    /// Adds other traffic.
    pub fn add(&mut self, other: &Self) {
        let Self { packets, bytes } = other;
        self.packets = self.packets.saturating_add(*packets);
        self.bytes = self.bytes.saturating_add(*bytes);
    }

    /// Returns the increase since an earlier reading of the same flow.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        // A lower counter belongs to a new flow with the same id.
        let grown = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new);
        Self { packets: grown(self.packets, before.packets), bytes: grown(self.bytes, before.bytes) }
    }
}

/// A flow in one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// Addresses and ports of the flow.
    pub flow: Flow,
    /// Key of the flow.
    pub id: FlowId,
    /// Traffic since the flow began, if counted.
    pub carried: Option<FlowTraffic>,
    /// True if at least one direction is open; for connectionless protocols, if both sides have sent packets.
    pub is_open: bool,
}

/// Returns the clients of open TCP connections that pass the filter and for which `is_meant` returns true.
///
/// # Errors
/// Returns an error if the kernel does not dump its table.
pub fn clients(filter: &Filter, is_meant: impl Fn(&Flow) -> bool) -> io::Result<Vec<Nudge>> {
    let mut netlink = Netlink::open(NetlinkProtocol::Netfilter)?;
    netlink.dump(&wire::dump(filter), Vec::new, |clients, answer| {
        let entry = wire::Entry::parse(answer)?.filter(|entry| is_meant(&entry.flow));
        clients.extend(entry.and_then(|entry| entry.nudge()));
        Ok(())
    })
}
