//! The messages of the kernel's connection tracking that a relay needs (`linux/netfilter/nfnetlink_conntrack.h`). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use model::{net::IpFamily, service::Protocol};

use crate::netlink::{
    uapi,
    wire::{AttributeIter, Attributes, Malformed, Message, Received, netfilter_header},
};

const GET: u16 = 1;
const DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const NLA_F_NESTED: u16 = 0x8000;

/// One direction of a tracked flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    /// Who sends.
    pub(super) source: SocketAddr,
    /// Who receives.
    pub(super) destination: SocketAddr,
}

/// A tracked flow.
pub(super) struct Entry<'a> {
    /// As the client sends.
    pub(super) original: Flow,
    /// As it is answered.
    pub(super) reply: Flow,
    protocol: u8,
    family: u8,
    /// What identifies the entry, as the kernel showed it.
    identity: Vec<(u16, &'a [u8])>,
}

/// Asks for the UDP flow that is answered from `local` to `client`.
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

/// Asks for every flow.
pub(super) fn dump() -> Message {
    message(GET, uapi::NLM_F_DUMP, 0, Attributes::default())
}

fn message(number: u16, flags: u16, family: u8, attributes: Attributes) -> Message {
    Message {
        kind: uapi::NFNL_SUBSYS_CTNETLINK << 8 | number,
        flags: uapi::NLM_F_REQUEST | flags,
        header: netfilter_header(family, 0),
        attributes,
    }
}

impl<'a> Entry<'a> {
    /// `None` when the message shows no flow between ports.
    pub(super) fn parse(answer: &Received<'a>) -> Result<Option<Self>, Malformed> {
        let (mut original, mut reply, mut identity) = (Tuple::default(), Tuple::default(), Vec::new());
        for attribute in answer.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                CTA_TUPLE_ORIG => original = Tuple::parse(attribute.nested())?,
                CTA_TUPLE_REPLY => reply = Tuple::parse(attribute.nested())?,
                _ => {}
            }
            if [CTA_TUPLE_ORIG, CTA_ID, CTA_ZONE].contains(&attribute.kind) {
                identity.push((attribute.kind, attribute.value));
            }
        }
        let family = answer.payload.first().copied().unwrap_or_default();
        let (protocol, flows) = (original.protocol, original.flow().zip(reply.flow()));
        Ok(flows.map(|(original, reply)| Self { original, reply, protocol, family, identity }))
    }

    pub(super) fn is_udp(&self) -> bool {
        self.protocol == Protocol::Udp.number()
    }

    /// The request that forgets the flow.
    pub(super) fn deletion(&self) -> Message {
        let add = |list: Attributes, &(kind, value): &(u16, &[u8])| match kind {
            CTA_TUPLE_ORIG => list.bytes(kind | NLA_F_NESTED, value),
            _ => list.bytes(kind, value),
        };
        let attributes = self.identity.iter().fold(Attributes::default(), add);
        message(DELETE, uapi::NLM_F_ACK, self.family, attributes)
    }
}

#[derive(Default)]
struct Tuple {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

impl Tuple {
    fn parse(attributes: AttributeIter<'_>) -> Result<Self, Malformed> {
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

    fn parse_addresses(&mut self, attributes: AttributeIter<'_>) -> Result<(), Malformed> {
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

    fn parse_protocol(&mut self, attributes: AttributeIter<'_>) -> Result<(), Malformed> {
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                CTA_PROTO_NUM => self.protocol = attribute.value.first().copied().unwrap_or_default(),
                CTA_PROTO_SRC_PORT => self.source_port = attribute.be16()?,
                CTA_PROTO_DST_PORT => self.destination_port = attribute.be16()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn flow(&self) -> Option<Flow> {
        let at = |address: IpAddr, port| SocketAddr::new(address, port);
        Some(Flow {
            source: at(self.source?, self.source_port),
            destination: at(self.destination?, self.destination_port),
        })
    }
}
