//! Encoder of ipset commands and parser of the responses, as netlink messages. Does no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use kernel::netlink::{
    uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST},
    wire::{
        Attribute, AttributeIter, Attributes, MalformedMessage, Message, ReceivedMessage, netfilter_header,
    },
};
use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::{net::IpFamily, quantity::Port},
};

use super::{
    server::Socket,
    sets::{IpsetElement, Set, Shape, Value},
    uapi as u,
};

/// Maximum number of elements of a set: enough for 10,000 Services with ten frontends each, and a bound on
/// kernel memory.
pub const ELEMENTS_MAX: u32 = 1 << 20;
/// Initial number of buckets of hash sets; the kernel enlarges them on demand.
pub(super) const HASH_SIZE: u32 = 1024;

/// Builds the message that creates an empty set of the type and size that its kind requires.
#[must_use]
pub fn create(set: Set, naming: Naming) -> Message {
    let shape = set.kind.shape();
    let data = match shape {
        Shape::Port => Attributes::default()
            .bytes(u::IPSET_ATTR_PORT | u::NLA_F_NET_BYTEORDER, &0u16.to_be_bytes())
            .bytes(u::IPSET_ATTR_PORT_TO | u::NLA_F_NET_BYTEORDER, &u16::MAX.to_be_bytes()),
        Shape::Address | Shape::Net | Shape::Socket | Shape::SocketAddress | Shape::SocketNet => {
            Attributes::default()
                .bytes(u::IPSET_ATTR_HASHSIZE | u::NLA_F_NET_BYTEORDER, &HASH_SIZE.to_be_bytes())
                .bytes(u::IPSET_ATTR_MAXELEM | u::NLA_F_NET_BYTEORDER, &ELEMENTS_MAX.to_be_bytes())
        }
    };
    let family = match shape {
        Shape::Port => 0,
        Shape::Address | Shape::Net | Shape::Socket | Shape::SocketAddress | Shape::SocketNet => {
            family_number(set.family)
        }
    };
    let attributes = named(&set.name(naming))
        .text(u::IPSET_ATTR_TYPENAME, shape.type_name())
        .bytes(u::IPSET_ATTR_REVISION, &[shape.revision()])
        .bytes(u::IPSET_ATTR_FAMILY, &[family])
        .nested(u::IPSET_ATTR_DATA, &data);
    message(u::IPSET_CMD_CREATE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, set.family, attributes)
}

/// Builds the message that removes a set with its elements. The kernel rejects the removal while a rule
/// refers to the set.
#[must_use]
pub fn destroy(set: Set, naming: Naming) -> Message {
    message(u::IPSET_CMD_DESTROY, NLM_F_ACK, set.family, named(&set.name(naming)))
}

/// Builds the message that adds an element; no error if the element exists.
#[must_use]
pub fn add(element: &IpsetElement, naming: Naming) -> Message {
    change(u::IPSET_CMD_ADD, element, naming)
}

/// Builds the message that removes an element; no error if the element does not exist.
#[must_use]
pub fn remove(element: &IpsetElement, naming: Naming) -> Message {
    change(u::IPSET_CMD_DEL, element, naming)
}

/// Builds the request for the header and all elements of a set.
#[must_use]
pub fn dump(set: Set, naming: Naming) -> Message {
    message(u::IPSET_CMD_LIST, NLM_F_DUMP, set.family, named(&set.name(naming)))
}

/// Builds the request for the headers of all sets of the network namespace, without elements.
#[must_use]
pub fn dump_headers() -> Message {
    let attributes = Attributes::default()
        .bytes(u::IPSET_ATTR_PROTOCOL, &[u::IPSET_PROTOCOL])
        .bytes(u::IPSET_ATTR_FLAGS | u::NLA_F_NET_BYTEORDER, &u::IPSET_FLAG_LIST_HEADER.to_be_bytes());
    message(u::IPSET_CMD_LIST, NLM_F_DUMP, IpFamily::V4, attributes)
}

fn change(command: u16, element: &IpsetElement, naming: Naming) -> Message {
    let attributes = named(&element.set.name(naming))
        .bytes(u::IPSET_ATTR_LINENO | u::NLA_F_NET_BYTEORDER, &0u32.to_be_bytes())
        .nested(u::IPSET_ATTR_DATA, &data(&element.value));
    message(command, NLM_F_ACK, element.set.family, attributes)
}

fn message(command: u16, flags: u16, family: IpFamily, attributes: Attributes) -> Message {
    Message {
        kind: u::NFNL_SUBSYS_IPSET << 8 | command,
        flags: flags | NLM_F_REQUEST,
        header: netfilter_header(family_number(family), 0),
        attributes,
    }
}

fn named(name: &str) -> Attributes {
    Attributes::default()
        .bytes(u::IPSET_ATTR_PROTOCOL, &[u::IPSET_PROTOCOL])
        .text(u::IPSET_ATTR_SETNAME, name)
}

fn data(value: &Value) -> Attributes {
    let socket = |socket: &Socket| {
        with_address(Attributes::default(), u::IPSET_ATTR_IP, socket.address)
            .bytes(u::IPSET_ATTR_PORT | u::NLA_F_NET_BYTEORDER, &socket.port.get().to_be_bytes())
            .bytes(u::IPSET_ATTR_PROTO, &[socket.protocol.number()])
    };
    match value {
        Value::Address(address) => with_address(Attributes::default(), u::IPSET_ATTR_IP, *address),
        Value::Net(net) => with_address(Attributes::default(), u::IPSET_ATTR_IP, net.network())
            .bytes(u::IPSET_ATTR_CIDR, &[net.prefix_len()]),
        Value::Socket(at) => socket(at),
        Value::SocketAddress(at, source) => with_address(socket(at), u::IPSET_ATTR_IP2, *source),
        Value::SocketNet(at, net) => with_address(socket(at), u::IPSET_ATTR_IP2, net.network())
            .bytes(u::IPSET_ATTR_CIDR2, &[net.prefix_len()]),
        Value::Port(port) => {
            Attributes::default().bytes(u::IPSET_ATTR_PORT | u::NLA_F_NET_BYTEORDER, &port.to_be_bytes())
        }
    }
}

fn with_address(attributes: Attributes, kind: u16, address: IpAddr) -> Attributes {
    let inner = match address {
        IpAddr::V4(v4) => {
            Attributes::default().bytes(u::IPSET_ATTR_IPADDR_IPV4 | u::NLA_F_NET_BYTEORDER, &v4.octets())
        }
        IpAddr::V6(v6) => {
            Attributes::default().bytes(u::IPSET_ATTR_IPADDR_IPV6 | u::NLA_F_NET_BYTEORDER, &v6.octets())
        }
    };
    attributes.nested(kind, &inner)
}

const fn family_number(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => u::AF_INET,
        IpFamily::V6 => u::AF_INET6,
    }
}

/// Description of a set in a kernel response, without its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Name of the set, at most 31 bytes.
    pub name: String,
    /// Kernel type of the set, such as `hash:ip,port`.
    pub type_name: String,
    /// Number of iptables rules that refer to the set.
    pub references: u32,
    /// Number of elements in the set.
    pub elements: u32,
}

/// Parses the header in a part of a listing.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn header(answer: &ReceivedMessage<'_>) -> Result<Header, MalformedMessage> {
    let mut header = Header::default();
    for attribute in answer.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            u::IPSET_ATTR_SETNAME => attribute.text()?.clone_into(&mut header.name),
            u::IPSET_ATTR_TYPENAME => attribute.text()?.clone_into(&mut header.type_name),
            u::IPSET_ATTR_DATA => {
                for inner in attribute.nested() {
                    let inner = inner?;
                    match inner.kind {
                        u::IPSET_ATTR_REFERENCES => header.references = inner.be32()?,
                        u::IPSET_ATTR_ELEMENTS => header.elements = inner.be32()?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(header)
}

/// Parses the elements in one message of a listing. An element that this program would not have written
/// yields `None`.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn elements(
    answer: &ReceivedMessage<'_>,
    set: Set,
    found: &mut Vec<Option<IpsetElement>>,
) -> Result<(), MalformedMessage> {
    for attribute in answer.attributes() {
        let attribute = attribute?;
        if attribute.kind != u::IPSET_ATTR_ADT {
            continue;
        }
        for data in attribute.nested() {
            let value = value(data?.nested(), set)?;
            found.push(value.map(|value| IpsetElement { set, value }));
        }
    }
    Ok(())
}

fn value(data: AttributeIter<'_>, set: Set) -> Result<Option<Value>, MalformedMessage> {
    let (mut first, mut second, mut port, mut protocol) = (None, None, None, 0);
    let full = match set.family {
        IpFamily::V4 => 32,
        IpFamily::V6 => 128,
    };
    let (mut length, mut second_length) = (full, full);
    for attribute in data {
        let attribute = attribute?;
        match attribute.kind {
            u::IPSET_ATTR_IP => first = address(&attribute)?,
            u::IPSET_ATTR_IP2 => second = address(&attribute)?,
            u::IPSET_ATTR_PORT => port = Some(attribute.be16()?),
            u::IPSET_ATTR_PROTO => protocol = byte(&attribute)?,
            u::IPSET_ATTR_CIDR => length = byte(&attribute)?,
            u::IPSET_ATTR_CIDR2 => second_length = byte(&attribute)?,
            _ => {}
        }
    }
    let socket = || {
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .find(|known| known.number() == protocol)?;
        Some(Socket { address: first?, protocol, port: Port::new(port?)? })
    };
    let net = |address: Option<IpAddr>, length| IpNet::new(address?, length).ok();
    Ok(match set.kind.shape() {
        Shape::Address => first.map(Value::Address),
        Shape::Net => net(first, length).map(Value::Net),
        Shape::Socket => socket().map(Value::Socket),
        Shape::SocketAddress => {
            socket().and_then(|socket| second.map(|source| Value::SocketAddress(socket, source)))
        }
        Shape::SocketNet => {
            socket().and_then(|socket| net(second, second_length).map(|net| Value::SocketNet(socket, net)))
        }
        Shape::Port => port.map(Value::Port),
    })
}

fn byte(attribute: &Attribute<'_>) -> Result<u8, MalformedMessage> {
    attribute.value.first().copied().ok_or(MalformedMessage("a number without bytes"))
}

fn address(attribute: &Attribute<'_>) -> Result<Option<IpAddr>, MalformedMessage> {
    for inner in attribute.nested() {
        let inner = inner?;
        match inner.kind {
            u::IPSET_ATTR_IPADDR_IPV4 => {
                let octets: &[u8; 4] =
                    inner.value.first_chunk().ok_or(MalformedMessage("truncated address"))?;
                return Ok(Some(IpAddr::V4(Ipv4Addr::from(*octets))));
            }
            u::IPSET_ATTR_IPADDR_IPV6 => {
                let octets: &[u8; 16] =
                    inner.value.first_chunk().ok_or(MalformedMessage("truncated address"))?;
                return Ok(Some(IpAddr::V6(Ipv6Addr::from(*octets))));
            }
            _ => {}
        }
    }
    Ok(None)
}
