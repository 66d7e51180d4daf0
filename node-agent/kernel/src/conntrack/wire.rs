//! Encoder and parser of ctnetlink messages (`linux/netfilter/nfnetlink_conntrack.h`). Does no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

use super::{Filter, Flow, FlowId, FlowTraffic, Sighting, nudge::wire::Nudge, uapi::*};
use crate::netlink::{
    uapi,
    wire::{AttributeIter, Attributes, MalformedMessage, Message, ReceivedMessage, netfilter_header},
};

/// Builds the dump request for flows that match a filter. Kernels before 5.8 do not support filters and
/// return all flows.
#[must_use]
pub fn dump(filter: &Filter) -> Message {
    let Filter { family, protocol, destination, port } = *filter;
    match (family, protocol) {
        (Some(family), Some(protocol)) => dump_protocol(family, protocol.number(), destination, port),
        // The kernel accepts a tuple only together with the family, and a port only together with the
        // protocol.
        (Some(_), None) | (None, _) => {
            message(GET, uapi::NLM_F_DUMP, family.map_or(0, family_number), Attributes::default())
        }
    }
}

/// Builds the dump request for flows of one protocol to one destination, or to any destination if it is
/// `None`. The kernel may return more flows, so the caller must check each.
#[must_use]
pub fn dump_protocol(
    family: IpFamily,
    protocol: u8,
    destination: Option<IpAddr>,
    port: Option<Port>,
) -> Message {
    let mut flags = FILTER_PROTOCOL;
    let mut proto = Attributes::default().bytes(CTA_PROTO_NUM, &[protocol]);
    if let Some(port) = port {
        flags |= FILTER_DESTINATION_PORT;
        proto = proto.be16(CTA_PROTO_DST_PORT, port.get());
    }
    let mut tuple = Attributes::default();
    // With an IPv6 destination in the filter, the kernel returns the flows to all other addresses (the
    // comparison is inverted, seen in 6.18). Such a request therefore carries no address.
    if let Some(IpAddr::V4(destination)) = destination {
        flags |= FILTER_DESTINATION;
        let address = Attributes::default().bytes(CTA_IP_V4_DST, &destination.octets());
        tuple = tuple.nested(CTA_TUPLE_IP, &address);
    }
    let tuple = tuple.nested(CTA_TUPLE_PROTO, &proto);
    let flags = Attributes::default().ne32(CTA_FILTER_ORIG_FLAGS, flags);
    let attributes = Attributes::default().nested(CTA_TUPLE_ORIG, &tuple).nested(CTA_FILTER, &flags);
    message(GET, uapi::NLM_F_DUMP, family_number(family), attributes)
}

const fn family_number(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    }
}

/// Builds the dump request for flows with destination NAT. Kernels before 5.14 do not support this filter and
/// return all flows.
#[must_use]
pub fn dump_translated() -> Message {
    let status = Attributes::default().be32(CTA_STATUS, STATUS_DESTINATION_TRANSLATED);
    message(GET, uapi::NLM_F_DUMP, 0, status)
}

/// Parses a flow with destination NAT; `None` for every other entry.
///
/// # Errors
/// Returns an error if the bytes are not a conntrack entry.
pub fn sighting(answer: &ReceivedMessage<'_>) -> Result<Option<Sighting>, MalformedMessage> {
    let Some(Entry { flow, shown }) = Entry::parse(answer)? else { return Ok(None) };
    let (status, mut id, state) = (shown.status, 0, shown.state);
    let mut carried: Option<FlowTraffic> = None;
    for attribute in answer.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            CTA_ID => id = attribute.be32()?,
            kind if CTA_COUNTERS.contains(&kind) => {
                carried.get_or_insert_default().add(&counters(attribute.nested())?);
            }
            _ => {}
        }
    }
    if status & STATUS_DESTINATION_TRANSLATED == 0 {
        return Ok(None);
    }
    let is_answered = status & STATUS_SEEN_REPLY != 0;
    let is_open = match flow.protocol {
        Protocol::Tcp => state.is_some_and(|state| TCP_STATES_OPEN.contains(&state)),
        Protocol::Sctp => state == Some(SCTP_STATE_ESTABLISHED),
        Protocol::Udp => is_answered,
    };
    let id = FlowId { id, client_port: shown.original.source_port, target_port: shown.reply.source_port };
    Ok(Some(Sighting { flow, id, carried, is_open }))
}

fn protocol_state(attributes: AttributeIter<'_>) -> Result<Option<u8>, MalformedMessage> {
    let mut state = None;
    for attribute in attributes {
        let attribute = attribute?;
        if [CTA_PROTOINFO_TCP, CTA_PROTOINFO_SCTP].contains(&attribute.kind) {
            for part in attribute.nested() {
                let part = part?;
                if part.kind == CTA_PROTOINFO_STATE {
                    state = part.value.first().copied();
                }
            }
        }
    }
    Ok(state)
}

fn counters(attributes: AttributeIter<'_>) -> Result<FlowTraffic, MalformedMessage> {
    let mut carried = FlowTraffic::default();
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind {
            CTA_COUNTERS_PACKETS => carried.packets = attribute.be64()?,
            CTA_COUNTERS_BYTES => carried.bytes = attribute.be64()?,
            _ => {}
        }
    }
    Ok(carried)
}

/// Builds a ctnetlink message with this message number, for flows of an address family.
#[must_use]
pub fn message(number: u16, flags: u16, family: u8, attributes: Attributes) -> Message {
    let kind = uapi::NFNL_SUBSYS_CTNETLINK << 8 | number;
    Message { kind, flags: uapi::NLM_F_REQUEST | flags, header: netfilter_header(family, 0), attributes }
}

/// Entry of the conntrack table, for any protocol.
pub struct ConntrackEntry<'a> {
    /// Addresses and ports of the packets from the side that opened the connection.
    pub original: Tuple,
    /// Addresses and ports expected in replies; they differ from `original` if NAT applies.
    pub reply: Tuple,
    family: u8,
    /// Protocol state of TCP and SCTP; `None` for other protocols.
    state: Option<u8>,
    /// Status bits of the entry (`IPS_…`).
    status: u32,
    /// Attributes that identify the entry for a deletion: original tuple, id and zone.
    identity: [Option<&'a [u8]>; 3],
}

impl<'a> ConntrackEntry<'a> {
    /// Parses a conntrack entry from a kernel message.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a conntrack entry.
    pub fn parse(answer: &ReceivedMessage<'a>) -> Result<Self, MalformedMessage> {
        let (mut original, mut reply, mut identity) = (Tuple::default(), Tuple::default(), [None; 3]);
        let (mut state, mut status) = (None, 0);
        for attribute in answer.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                CTA_TUPLE_ORIG => {
                    original = Tuple::parse(attribute.nested())?;
                    identity[0] = Some(attribute.value);
                }
                CTA_TUPLE_REPLY => reply = Tuple::parse(attribute.nested())?,
                CTA_PROTOINFO => state = protocol_state(attribute.nested())?,
                CTA_STATUS => status = attribute.be32()?,
                CTA_ID => identity[1] = Some(attribute.value),
                CTA_ZONE => identity[2] = Some(attribute.value),
                _ => {}
            }
        }
        let family = answer.payload.first().copied().unwrap_or_default();
        Ok(Self { original, reply, family, state, status, identity })
    }

    /// Builds the request that deletes exactly this entry.
    #[must_use]
    pub fn deletion(&self) -> Message {
        let mut attributes = Attributes::default();
        for (kind, value) in [CTA_TUPLE_ORIG | NLA_F_NESTED, CTA_ID, CTA_ZONE].into_iter().zip(self.identity)
        {
            if let Some(value) = value {
                attributes = attributes.bytes(kind, value);
            }
        }
        message(DELETE, uapi::NLM_F_ACK, self.family, attributes)
    }
}

/// Entry of the conntrack table whose flow has ports and a supported protocol.
pub struct Entry<'a> {
    /// Protocol, addresses and ports of the flow.
    pub flow: Flow,
    shown: ConntrackEntry<'a>,
}

impl<'a> Entry<'a> {
    /// Parses a conntrack entry. Returns `None` if the flow has no ports or an unsupported protocol.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a conntrack entry.
    pub fn parse(answer: &ReceivedMessage<'a>) -> Result<Option<Self>, MalformedMessage> {
        let shown = ConntrackEntry::parse(answer)?;
        let Tuple { destination, protocol, destination_port, .. } = shown.original;
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let protocol = protocols.into_iter().find(|it| it.number() == protocol);
        let destination = destination.zip(Port::new(destination_port));
        let target = shown.reply.source.zip(Port::new(shown.reply.source_port));
        let (Some(protocol), Some((destination, port)), Some((target, target_port))) =
            (protocol, destination, target)
        else {
            return Ok(None);
        };
        let is_unanswered = protocol == Protocol::Tcp
            && shown.state == Some(TCP_STATE_SYN_SENT)
            && shown.status & (STATUS_SEEN_REPLY | STATUS_DESTINATION_TRANSLATED) == 0
            && (target, target_port) == (destination, port);
        let flow = Flow { protocol, destination, port, target, target_port, is_unanswered };
        Ok(Some(Self { flow, shown }))
    }

    /// Builds the request that deletes exactly this entry.
    #[must_use]
    pub fn deletion(&self) -> Message {
        self.shown.deletion()
    }

    /// Returns the challenge packet that makes the client of an open TCP connection send a packet; `None`
    /// for other flows.
    #[must_use]
    pub fn nudge(&self) -> Option<Nudge> {
        let is_open = self.shown.state.is_some_and(|state| TCP_STATES_OPEN.contains(&state));
        let Tuple { source, source_port, .. } = self.shown.original;
        let client = source.filter(|_| self.flow.protocol == Protocol::Tcp && is_open)?;
        let server = SocketAddr::new(self.flow.destination, self.flow.port.get());
        Some(Nudge { server, client: SocketAddr::new(client, source_port) })
    }
}

const NLA_F_NESTED: u16 = 0x8000;

/// Addresses and ports of one direction of a flow, as far as the message contains them.
#[derive(Clone, Copy, Default)]
pub struct Tuple {
    /// Source address; `None` if the message contains none.
    pub source: Option<IpAddr>,
    /// Destination address; `None` if the message contains none.
    pub destination: Option<IpAddr>,
    /// Number of the transport protocol (`IPPROTO_…`).
    pub protocol: u8,
    /// Source port; 0 if the protocol has no ports.
    pub source_port: u16,
    /// Destination port; 0 if the protocol has no ports.
    pub destination_port: u16,
}

impl Tuple {
    fn parse(attributes: AttributeIter<'_>) -> Result<Self, MalformedMessage> {
        let mut tuple = Self::default();
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                CTA_TUPLE_IP => tuple.parse_addresses(attribute.nested())?,
                CTA_TUPLE_PROTO => tuple.parse_protocol(attribute.nested())?,
                _ => {}
            }
        }
        Ok(tuple)
    }

    fn parse_addresses(&mut self, attributes: AttributeIter<'_>) -> Result<(), MalformedMessage> {
        let v4 = |value: &[u8]| value.try_into().ok().map(|bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes)));
        let v6 =
            |value: &[u8]| value.try_into().ok().map(|bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)));
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                CTA_IP_V4_SRC => self.source = v4(attribute.value),
                CTA_IP_V4_DST => self.destination = v4(attribute.value),
                CTA_IP_V6_SRC => self.source = v6(attribute.value),
                CTA_IP_V6_DST => self.destination = v6(attribute.value),
                _ => {}
            }
        }
        Ok(())
    }

    fn parse_protocol(&mut self, attributes: AttributeIter<'_>) -> Result<(), MalformedMessage> {
        let port = |value: &[u8]| value.try_into().map_or(0, u16::from_be_bytes);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                CTA_PROTO_NUM => self.protocol = attribute.value.first().copied().unwrap_or_default(),
                CTA_PROTO_SRC_PORT => self.source_port = port(attribute.value),
                CTA_PROTO_DST_PORT => self.destination_port = port(attribute.value),
                _ => {}
            }
        }
        Ok(())
    }
}
