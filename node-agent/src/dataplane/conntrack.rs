//! Connection tracking after a change: flows of connectionless protocols that would stay on a target that is gone.
//!
//! The target of a UDP flow is chosen at its first packet and kept while the flow lives. A client that goes on sending
//! from one port would talk to a removed endpoint for ever, or to nobody if the Service came after its first packet. So
//! the entries of changed frontends whose target is none of the current ones are deleted; the next packet is a new
//! flow. SCTP is treated alike. TCP connections end by themselves and may be finishing their work; they stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use model::{
    net::IpFamily,
    program::{Destination, Frontend, Target},
    quantity::Port,
    service::Protocol,
};

use crate::netlink::{
    socket::Netlink,
    uapi,
    wire::{AttributeIter, Attributes, Malformed, Message, Received, netfilter_header},
};

/// Changed frontends, with the targets that they have.
pub type Targets = BTreeMap<Frontend, BTreeSet<Target>>;

/// Whether flows of a protocol outlive their target.
#[must_use]
pub const fn is_reconciled(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Udp | Protocol::Sctp => true,
        Protocol::Tcp => false,
    }
}

/// Deletes the entries of these frontends whose target is not current; answers how many.
///
/// The cost is one walk of the kernel's table, whatever the number of frontends.
///
/// # Errors
/// When the kernel does not show its table, or the socket fails.
pub fn reconcile(netlink: &mut Netlink, targets: &Targets) -> io::Result<u64> {
    if targets.is_empty() {
        return Ok(0);
    }
    let dump = message(GET, uapi::NLM_F_DUMP, Attributes::default());
    let stale = netlink.dump(&dump, Vec::new, |stale, answer| {
        let entry = Entry::parse(answer)?;
        stale.extend(entry.filter(|entry| entry.is_stale(targets)).map(|entry| entry.deletion()));
        Ok(())
    })?;
    let errnos = netlink.ask(&stale, |_, _| Ok(()))?;
    // An entry that went by itself in the meantime is refused, and that is as good.
    let deleted = errnos.iter().filter(|errno| **errno == 0).count();
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}

// `linux/netfilter/nfnetlink_conntrack.h`.
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

fn message(number: u16, flags: u16, attributes: Attributes) -> Message {
    let kind = uapi::NFNL_SUBSYS_CTNETLINK << 8 | number;
    Message { kind, flags: uapi::NLM_F_REQUEST | flags, header: netfilter_header(0, 0), attributes }
}

/// A tracked flow.
struct Entry<'a> {
    family: u8,
    /// What the client sent to.
    original: Tuple,
    /// Who answers.
    reply: Tuple,
    /// What identifies the entry, as the kernel showed it.
    identity: Vec<(u16, &'a [u8])>,
}

#[derive(Clone, Copy, Default)]
struct Tuple {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

impl<'a> Entry<'a> {
    /// `None` when the message shows no flow with addresses.
    fn parse(answer: &Received<'a>) -> Result<Option<Self>, Malformed> {
        let (mut original, mut reply, mut identity) = (None, None, Vec::new());
        for attribute in answer.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                CTA_TUPLE_ORIG => original = Some(Tuple::parse(attribute.nested())?),
                CTA_TUPLE_REPLY => reply = Some(Tuple::parse(attribute.nested())?),
                _ => {}
            }
            if [CTA_TUPLE_ORIG, CTA_ID, CTA_ZONE].contains(&attribute.kind) {
                identity.push((attribute.kind, attribute.value));
            }
        }
        let family = answer.payload.first().copied().unwrap_or_default();
        let entry = original.zip(reply);
        Ok(entry.map(|(original, reply)| Self { family, original, reply, identity }))
    }

    fn is_stale(&self, targets: &Targets) -> bool {
        let protocols = [Protocol::Udp, Protocol::Sctp].into_iter();
        let Some(protocol) = protocols.into_iter().find(|it| it.number() == self.original.protocol) else {
            return false;
        };
        let (Some(destination), Some(port)) =
            (self.original.destination, Port::new(self.original.destination_port))
        else {
            return false;
        };
        let at = |destination| Frontend { destination, protocol, ports: port.into() };
        let node_port = at(Destination::AnyLocal(IpFamily::of(destination)));
        let node_port = || targets.get(&node_port).filter(|_| !destination.is_loopback());
        let Some(current) = targets.get(&at(Destination::Address(destination))).or_else(node_port) else {
            return false;
        };
        let target = self.reply.source.zip(Port::new(self.reply.source_port));
        target.is_some_and(|(address, port)| !current.contains(&Target { address, port: Some(port) }))
    }

    fn deletion(&self) -> Message {
        let fold = |list: Attributes, &(kind, value): &(u16, &[u8])| match kind {
            CTA_TUPLE_ORIG => list.bytes(kind | NLA_F_NESTED, value),
            _ => list.bytes(kind, value),
        };
        let attributes = self.identity.iter().fold(Attributes::default(), fold);
        let header = netfilter_header(self.family, 0);
        Message { header, ..message(DELETE, uapi::NLM_F_ACK, attributes) }
    }
}

const NLA_F_NESTED: u16 = 0x8000;

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
