//! Connection tracking: flows, ctnetlink messages, and packets that provoke a challenge ACK (RFC 5961) from
//! clients whose flows were deleted.

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

/// Tracked flow: its destination as the client addressed it, and the target to which the kernel forwards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Transport protocol of the flow.
    pub protocol: Protocol,
    /// Destination address of the client's packets, before translation.
    pub destination: IpAddr,
    /// Destination port of the client's packets, before translation.
    pub port: Port,
    /// Address of the target, which is the source of the replies.
    pub target: IpAddr,
    /// Port of the target; equal to `port` unless the kernel translates it.
    pub target_port: Port,
    /// True for a TCP connection of which only SYN segments of the client are known, without translation of the
    /// destination.
    pub is_unanswered: bool,
}

/// Criteria that all flows of interest fulfill, so that the kernel can skip other flows. `None` matches any
/// value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Required address family of the flow; `None` for any.
    pub family: Option<IpFamily>,
    /// Required transport protocol of the flow; `None` for any.
    pub protocol: Option<Protocol>,
    /// Required destination address of the client's packets, before translation; `None` for any.
    pub destination: Option<IpAddr>,
    /// Required destination port of the client's packets, before translation; `None` for any.
    pub port: Option<Port>,
}

/// Key of a flow, unique among the flows that exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// Id of the conntrack entry: a hash computed by the kernel, not necessarily unique.
    pub id: u32,
    /// Source port of the client; distinguishes flows with the same hash.
    pub client_port: u16,
    /// Port to which the destination is translated.
    pub target_port: u16,
}

/// Packets and bytes of a flow, in both directions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, including headers from the network layer up.
    pub bytes: u64,
}

impl FlowTraffic {
    /// Adds the packets and bytes of another flow or period.
    pub fn add(&mut self, other: &Self) {
        let Self { packets, bytes } = other;
        self.packets = self.packets.saturating_add(*packets);
        self.bytes = self.bytes.saturating_add(*bytes);
    }

    /// Returns the increase since `before`, an earlier reading of the same flow.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        // A lower counter belongs to a new flow with the same id.
        let grown = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new);
        Self { packets: grown(self.packets, before.packets), bytes: grown(self.bytes, before.bytes) }
    }
}

/// State of one flow when the conntrack table was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// Protocol, addresses and ports of the flow.
    pub flow: Flow,
    /// Key that identifies the flow in later readings.
    pub id: FlowId,
    /// Traffic since the flow began; `None` if the kernel does not count it (`nf_conntrack_acct`).
    pub carried: Option<FlowTraffic>,
    /// True if at least one direction is open; for connectionless protocols, if both sides have sent packets.
    pub is_open: bool,
}

/// Returns the clients of open TCP connections that match `filter` and for which `is_meant` returns true.
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
