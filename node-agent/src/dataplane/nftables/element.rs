//! The elements of our sets and maps: typed on our side, bytes on the kernel's.
//!
//! A key is a concatenation of fields, each padded to four bytes. Addresses and ports are in network byte order, the
//! slot is in host byte order because that is how the random number arrives in its register.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use model::{
    net::IpFamily,
    program::{Destination, Frontend, Target},
    quantity::Port,
    service::Protocol,
};

use super::schema::{Chain, Pick, SetId, SetRole, TARGETS_MAX};

/// One element of one of our sets or maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// Which chain takes the connections of a frontend.
    Dispatch(Frontend, Dispatch),
    /// Which target a slot of a frontend stands for.
    Slot(Frontend, u32, Target),
    /// An address that exists only in rules.
    VirtualAddress(IpAddr),
    /// An endpoint that may connect to itself.
    Hairpin(IpAddr),
    /// Where masqueraded sources begin or end.
    Source(Edge),
}

/// Which chain takes the connections of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dispatch {
    /// The one that chooses a slot.
    Forward(Pick),
    /// The one that refuses.
    Refuse,
}

impl Dispatch {
    /// The chain.
    #[must_use]
    pub const fn chain(self) -> Chain {
        match self {
            Self::Forward(pick) => Chain::Pick(pick),
            Self::Refuse => Chain::Refuse,
        }
    }
}

/// An edge of an interval of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The first address of the interval, or the first one behind it.
    pub address: IpAddr,
    /// Whether the interval ends here.
    pub is_end: bool,
}

/// The value of an element, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawValue<'a> {
    /// No value: an element of a set.
    None,
    /// Go to the chain.
    Goto(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Anything that we never write.
    Other,
}

impl Element {
    /// The set or map it belongs to.
    #[must_use]
    pub const fn set(&self) -> SetId {
        match self {
            Self::Dispatch(frontend, _) => match frontend.destination {
                Destination::Address(address) => SetId::new(SetRole::Services, IpFamily::of(address)),
                Destination::AnyLocal(family) => SetId::new(SetRole::NodePorts, family),
            },
            Self::Slot(frontend, _, _) => match frontend.destination {
                Destination::Address(address) => SetId::new(SetRole::Endpoints, IpFamily::of(address)),
                Destination::AnyLocal(family) => SetId::new(SetRole::NodePortEndpoints, family),
            },
            Self::VirtualAddress(address) => SetId::new(SetRole::VirtualAddresses, IpFamily::of(*address)),
            Self::Hairpin(address) => SetId::new(SetRole::Hairpins, IpFamily::of(*address)),
            Self::Source(edge) => SetId::new(SetRole::MasqueradeSources, IpFamily::of(edge.address)),
        }
    }

    /// The bytes of the key.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        match self {
            Self::Dispatch(frontend, _) => frontend_key(frontend),
            Self::Slot(frontend, slot, _) => {
                let mut key = frontend_key(frontend);
                key.extend(slot.to_ne_bytes());
                key
            }
            Self::VirtualAddress(address) => address_bytes(*address),
            Self::Hairpin(address) => [address_bytes(*address), address_bytes(*address)].concat(),
            Self::Source(edge) => address_bytes(edge.address),
        }
    }

    /// Reads an element of the set from what the kernel shows; `None` for one that we would not have written.
    #[must_use]
    pub fn parse(set: SetId, key: &[u8], value: &RawValue<'_>, is_end: bool) -> Option<Self> {
        let family = set.family;
        let mut key = Fields(key);
        let element = match set.role {
            SetRole::Services | SetRole::NodePorts => {
                let frontend = key.frontend(set)?;
                Self::Dispatch(frontend, parse_dispatch(value)?)
            }
            SetRole::Endpoints | SetRole::NodePortEndpoints => {
                let frontend = key.frontend(set)?;
                let slot = u32::from_ne_bytes(key.take()?);
                Self::Slot(frontend, slot, parse_target(family, value)?)
            }
            SetRole::VirtualAddresses => Self::VirtualAddress(key.address(family)?),
            SetRole::Hairpins => {
                let (source, destination) = (key.address(family)?, key.address(family)?);
                (source == destination).then_some(Self::Hairpin(source))?
            }
            SetRole::MasqueradeSources => Self::Source(Edge { address: key.address(family)?, is_end }),
        };
        let slot_is_bounded = !matches!(element, Self::Slot(_, slot, _) if slot >= TARGETS_MAX);
        (key.0.is_empty() && slot_is_bounded).then_some(element)
    }
}

fn parse_dispatch(value: &RawValue<'_>) -> Option<Dispatch> {
    let RawValue::Goto(name) = value else { return None };
    match Chain::parse(name)? {
        Chain::Pick(pick) => Some(Dispatch::Forward(pick)),
        Chain::Refuse => Some(Dispatch::Refuse),
        Chain::Services | Chain::Prerouting | Chain::Output | Chain::Postrouting => None,
    }
}

fn parse_target(family: IpFamily, value: &RawValue<'_>) -> Option<Target> {
    let RawValue::Bytes(bytes) = value else { return None };
    let mut value = Fields(bytes);
    let target = Target { address: value.address(family)?, port: Some(value.port()?) };
    value.0.is_empty().then_some(target)
}

/// The bytes of a map's value.
#[must_use]
pub fn target_value(target: Target) -> Vec<u8> {
    let mut value = address_bytes(target.address);
    value.extend(port_bytes(target.port.map_or(0, Port::get)));
    value
}

fn frontend_key(frontend: &Frontend) -> Vec<u8> {
    let mut key = match frontend.destination {
        Destination::Address(address) => address_bytes(address),
        Destination::AnyLocal(_) => Vec::new(),
    };
    key.extend([frontend.protocol.number(), 0, 0, 0]);
    key.extend(port_bytes(frontend.ports.first().get()));
    key
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

const fn port_bytes(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [high, low, 0, 0]
}

/// The fields of a key or value that have not been read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn address(&mut self, family: IpFamily) -> Option<IpAddr> {
        match family {
            IpFamily::V4 => self.take().map(|bytes: [u8; 4]| Ipv4Addr::from(bytes).into()),
            IpFamily::V6 => self.take().map(|bytes: [u8; 16]| Ipv6Addr::from(bytes).into()),
        }
    }

    fn port(&mut self) -> Option<Port> {
        let [high, low, 0, 0] = self.take()? else { return None };
        Port::new(u16::from_be_bytes([high, low]))
    }

    fn frontend(&mut self, set: SetId) -> Option<Frontend> {
        let destination = match set.role {
            SetRole::Services | SetRole::Endpoints => Destination::Address(self.address(set.family)?),
            SetRole::NodePorts | SetRole::NodePortEndpoints => Destination::AnyLocal(set.family),
            SetRole::VirtualAddresses | SetRole::Hairpins | SetRole::MasqueradeSources => return None,
        };
        let [number, 0, 0, 0] = self.take()? else { return None };
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let protocol = protocols.into_iter().find(|protocol| protocol.number() == number)?;
        Some(Frontend { destination, protocol, ports: self.port()?.into() })
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dispatch(frontend, dispatch) => {
                write_frontend(f, frontend)?;
                write!(f, " : goto {}", dispatch.chain())
            }
            Self::Slot(frontend, slot, target) => {
                write_frontend(f, frontend)?;
                write!(f, " . {slot} : {} . {}", target.address, target.port.map_or(0, Port::get))
            }
            Self::VirtualAddress(address) => address.fmt(f),
            Self::Hairpin(address) => write!(f, "{address} . {address}"),
            Self::Source(Edge { address, is_end }) => {
                write!(f, "{} {address}", if *is_end { "until" } else { "from" })
            }
        }
    }
}

fn write_frontend(f: &mut fmt::Formatter<'_>, frontend: &Frontend) -> fmt::Result {
    if let Destination::Address(address) = frontend.destination {
        write!(f, "{address} . ")?;
    }
    let protocol = match frontend.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    write!(f, "{protocol} . {}", frontend.ports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataplane::nftables::schema::PickKind;

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|n| IpAddr::V4(n.into())),
            any::<u128>().prop_map(|n| IpAddr::V6(n.into()))
        ]
    }

    fn any_element() -> impl Strategy<Value = Element> {
        let frontend = || {
            (any_address(), any::<bool>(), 0..3usize, 1..=u16::MAX).prop_map(
                |(address, node_port, protocol, port)| {
                    let destination = if node_port {
                        Destination::AnyLocal(IpFamily::of(address))
                    } else {
                        Destination::Address(address)
                    };
                    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][protocol];
                    Frontend { destination, protocol, ports: Port::new(port).unwrap().into() }
                },
            )
        };
        let slot = (frontend(), 0..TARGETS_MAX, any::<u128>(), 1..=u16::MAX).prop_map(
            |(frontend, slot, number, port)| {
                let number =
                    if frontend.destination.family() == IpFamily::V4 { number & 0xffff_ffff } else { number };
                let address = model::net::from_number(frontend.destination.family(), number).unwrap();
                Element::Slot(frontend, slot, Target { address, port: Port::new(port) })
            },
        );
        let dispatch = (frontend(), prop::option::of(1..=TARGETS_MAX)).prop_map(|(frontend, slots)| {
            let forward = |slots| Dispatch::Forward(Pick { kind: PickKind::External, slots });
            Element::Dispatch(frontend, slots.map_or(Dispatch::Refuse, forward))
        });
        prop_oneof![
            slot,
            dispatch,
            any_address().prop_map(Element::VirtualAddress),
            any_address().prop_map(Element::Hairpin),
            (any_address(), any::<bool>())
                .prop_map(|(address, is_end)| Element::Source(Edge { address, is_end })),
        ]
    }

    proptest! {
        #[test]
        fn elements_are_read_back_as_written(element in any_element()) {
            let (bytes, name);
            let value = match element {
                Element::Dispatch(_, dispatch) => {
                    name = dispatch.chain().to_string();
                    RawValue::Goto(&name)
                }
                Element::Slot(_, _, target) => {
                    bytes = target_value(target);
                    RawValue::Bytes(&bytes)
                }
                Element::VirtualAddress(_) | Element::Hairpin(_) | Element::Source(_) => RawValue::None,
            };
            let is_end = matches!(element, Element::Source(Edge { is_end: true, .. }));
            prop_assert_eq!(Element::parse(element.set(), &element.key(), &value, is_end), Some(element));
        }

        #[test]
        fn strange_keys_are_refused_without_panic(key in prop::collection::vec(any::<u8>(), 0..48), value in prop::collection::vec(any::<u8>(), 0..24)) {
            for set in SetId::all() {
                if let Some(element) = Element::parse(set, &key, &RawValue::Bytes(&value), false) {
                    prop_assert_eq!(element.key(), key.clone());
                }
            }
        }
    }
}
