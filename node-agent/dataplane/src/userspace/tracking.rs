//! Encoder and parser of ctnetlink messages for the relay (`linux/netfilter/nfnetlink_conntrack.h`). Does no
//! I/O.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kernel::{
    conntrack::{
        uapi::{
            CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_IP_V6_DST, CTA_IP_V6_SRC, CTA_PROTO_DST_PORT, CTA_PROTO_NUM,
            CTA_PROTO_SRC_PORT, CTA_TUPLE_IP, CTA_TUPLE_PROTO, CTA_TUPLE_REPLY, GET,
        },
        wire::{ConntrackEntry, Tuple, message},
    },
    netlink::{
        uapi,
        wire::{Attributes, MalformedMessage, Message, ReceivedMessage},
    },
};
use model::{kinds::service::Protocol, primitives::net::IpFamily};

/// Addresses and ports of one direction of a tracked flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowDirection {
    /// Address and port of the sender.
    pub(super) source: SocketAddr,
    /// Address and port of the receiver.
    pub(super) destination: SocketAddr,
}

/// Flow in connection tracking, with its addresses before and after translation.
pub(super) struct TrackedFlow<'a> {
    /// Direction from client to server, before translation.
    pub(super) original: FlowDirection,
    /// Direction of the replies, which shows the translated destination.
    pub(super) reply: FlowDirection,
    shown: ConntrackEntry<'a>,
}

/// Requests the UDP flow whose replies go from `local` to `client`.
pub(super) fn get_by_reply(local: SocketAddr, client: SocketAddr) -> Message {
    let addresses = match (local.ip(), client.ip()) {
        (IpAddr::V4(local), IpAddr::V4(client)) => {
            Attributes::default().bytes(CTA_IP_V4_SRC, &local.octets()).bytes(CTA_IP_V4_DST, &client.octets())
        }
        (local, client) => {
            let octets = |address| match address {
                IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            Attributes::default().bytes(CTA_IP_V6_SRC, &octets(local)).bytes(CTA_IP_V6_DST, &octets(client))
        }
    };
    let ports = Attributes::default()
        .bytes(CTA_PROTO_NUM, &[Protocol::Udp.number()])
        .be16(CTA_PROTO_SRC_PORT, local.port())
        .be16(CTA_PROTO_DST_PORT, client.port());
    let tuple = Attributes::default().nested(CTA_TUPLE_IP, &addresses).nested(CTA_TUPLE_PROTO, &ports);
    let family = match IpFamily::of(local.ip()) {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    };
    message(GET, uapi::NLM_F_ACK, family, Attributes::default().nested(CTA_TUPLE_REPLY, &tuple))
}

/// Requests all flows of the conntrack table.
pub(super) fn dump() -> Message {
    message(GET, uapi::NLM_F_DUMP, 0, Attributes::default())
}

impl<'a> TrackedFlow<'a> {
    /// Parses an entry; `None` if the flow has no ports.
    pub(super) fn parse(answer: &ReceivedMessage<'a>) -> Result<Option<Self>, MalformedMessage> {
        let shown = ConntrackEntry::parse(answer)?;
        let flows = flow(&shown.original).zip(flow(&shown.reply));
        Ok(flows.map(|(original, reply)| Self { original, reply, shown }))
    }

    pub(super) fn is_udp(&self) -> bool {
        self.shown.original.protocol == Protocol::Udp.number()
    }

    /// Builds the request that deletes the flow.
    pub(super) fn deletion(&self) -> Message {
        self.shown.deletion()
    }
}

fn flow(tuple: &Tuple) -> Option<FlowDirection> {
    Some(FlowDirection {
        source: SocketAddr::new(tuple.source?, tuple.source_port),
        destination: SocketAddr::new(tuple.destination?, tuple.destination_port),
    })
}
