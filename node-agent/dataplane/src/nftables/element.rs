//! Elements of the sets and maps of the nftables backend: typed in this program, bytes in the kernel.
//!
//! A key is a concatenation of fields, each padded to four bytes. Addresses and ports are in network byte
//! order. A slot, the position in a frontend's list of targets, is in host byte order, because the kernel
//! loads the random number that picks the slot in this order. In the key of a port range, first and last port
//! take the place of the port.
//!
//! With session affinity a target has an id, which the kernel stores per source. The id is derived from the
//! target, so that it keeps its meaning when other targets change.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use kernel::nftables::parse::{RawElement, RawValue};
use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Port, PortRange},
    },
    program::{Destination, Frontend, Target},
};

use super::{
    number,
    schema::{Chain, LookupType, NetworkSet, Pick, Pool, SetId, SetRole, TARGETS_MAX, VerdictClass},
};

/// Element of one of the backend's sets or maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetElement {
    /// Chain that a dispatch number (integer) identifies in the map for the scope of the number.
    Chain(Numbers, FrontendChain),
    /// Chain that handles the connections of a frontend.
    Dispatch(Frontend, FrontendChain),
    /// Chain that handles the connections of one class of sources to a frontend.
    DispatchFrom(Frontend, VerdictClass, FrontendChain),
    /// Target of one slot (position in the list of targets) of a frontend.
    Slot(Frontend, Slot, Target),
    /// Group of a frontend with session affinity: frontends of one Service port, which share it.
    AffinityGroup(Frontend, GroupId),
    /// Target id of one slot (position in the list of targets) of a frontend with session affinity.
    AffinitySlot(Frontend, Slot, TargetId),
    /// Target of a frontend with session affinity, by pool and target id.
    AffinityTarget(Frontend, Pool, TargetId, Target),
    /// Range of source addresses that may connect to a frontend.
    Allowed(Frontend, Span),
    /// Port range of a frontend, found by any of its ports.
    Range(Frontend),
    /// UDP frontend that fails over: its clients repeat a datagram that an endpoint refused.
    Failover(Frontend),
    /// Virtual address, which belongs to no interface.
    VirtualAddress(IpAddr),
    /// Local endpoint that may connect to itself through a Service (hairpin).
    Hairpin(IpAddr),
    /// First address of a network, or the first address after it.
    Network(NetworkSet, Edge),
}

/// Chain in which the handling of a frontend's connections starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendChain {
    /// Chain that picks one slot of the frontend and forwards to the target in it.
    Forward(Pick),
    /// Chain that rejects connections with a TCP reset or ICMP port unreachable.
    Refuse,
    /// Chain that drops connections without a reply.
    Discard,
    /// Chain that continues in another chain by class of sources. Never used for a single class, which would
    /// be a loop.
    BySource(LookupType),
    /// Chain that drops sources other than the allowed ranges and the node itself. Never used for a single
    /// class of sources.
    Checked(LookupType),
}

impl FrontendChain {
    /// Returns the chain of the table that this value refers to.
    #[must_use]
    pub const fn chain(self) -> Chain {
        match self {
            Self::Forward(pick) => Chain::Pick(pick),
            Self::Refuse => Chain::Refuse,
            Self::Discard => Chain::Discard,
            Self::BySource(place) => Chain::BySource(place),
            Self::Checked(place) => Chain::Checked(place),
        }
    }

    const fn of(chain: Chain) -> Option<Self> {
        match chain {
            Chain::Pick(pick) => Some(Self::Forward(pick)),
            Chain::Refuse => Some(Self::Refuse),
            Chain::Discard => Some(Self::Discard),
            Chain::BySource(place) => Some(Self::BySource(place)),
            Chain::Checked(place) => Some(Self::Checked(place)),
            Chain::Services
            | Chain::Prerouting
            | Chain::Output
            | Chain::Postrouting
            | Chain::Forward
            | Chain::ErrorsInput
            | Chain::ErrorsOutput => None,
        }
    }
}

/// Scope within which a dispatch number (an integer) identifies a chain: each scope has a map from numbers to
/// chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbers {
    /// Address family of the frontends in this scope.
    pub family: IpFamily,
    /// Lookup type of the frontends in this scope.
    pub place: LookupType,
    /// True for chains that handle a single class of sources.
    pub is_by_source: bool,
}

impl Numbers {
    /// Returns the scope of the dispatch numbers of a frontend.
    #[must_use]
    pub fn of(frontend: &Frontend, is_by_source: bool) -> Self {
        Self { family: frontend.destination.family(), place: place(frontend), is_by_source }
    }

    /// Returns the map that resolves the dispatch numbers of this scope to chains.
    #[must_use]
    pub const fn set(self) -> SetId {
        let role =
            if self.is_by_source { SetRole::ChainsFrom(self.place) } else { SetRole::Chains(self.place) };
        SetId::new(role, self.family)
    }
}

/// Position in a list of targets of a frontend. A new connection picks one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// List of targets that contains the slot.
    pub pool: Pool,
    /// Index of the slot in the list, below [`TARGETS_MAX`].
    pub index: u32,
}

impl Slot {
    /// Returns the number by which the kernel identifies the slot: the offset of the pool plus the index.
    pub(super) const fn number(self) -> u32 {
        self.pool.offset() + self.index
    }

    fn of(number: u32) -> Option<Self> {
        let pool = Pool::ALL.into_iter().rfind(|pool| pool.offset() <= number)?;
        let index = number - pool.offset();
        (index < TARGETS_MAX).then_some(Self { pool, index })
    }
}

/// Identifier of a target that the kernel stores per source for session affinity. Unique among the targets of
/// a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

impl TargetId {
    /// Returns the preferred id of a target: the FNV-1a hash of its bytes.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        Self(fnv1a(&target_value(target)))
    }

    /// Returns the id to try if another target of the frontend already has this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Identifier of a group of frontends with common session affinity. Unique among the groups of an IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Returns the FNV-1a hash of bytes.
pub(super) fn fnv1a(bytes: &[u8]) -> u32 {
    let fold = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, fold)
}

/// Range of addresses of one family, first and last included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First address of the range.
    pub first: IpAddr,
    /// Last address of the range.
    pub last: IpAddr,
}

/// Boundary of an address interval in an interval set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// First address of the interval, or first address after it.
    pub address: IpAddr,
    /// True if `address` is the first one after the interval.
    pub is_end: bool,
}

/// Key of an element as bytes. If the key contains an interval, its ends are two separate byte strings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Bytes of the key, or of the low end of the interval.
    pub low: Vec<u8>,
    /// Bytes of the high end of the interval; `None` if the key contains none.
    pub high: Option<Vec<u8>>,
}

/// Returns the lookup type by which rules find a frontend.
#[must_use]
pub fn place(frontend: &Frontend) -> LookupType {
    match frontend.destination {
        Destination::AnyLocal(_) => LookupType::NodePort,
        Destination::Address(_) if frontend.ports.single().is_none() => LookupType::Range,
        Destination::Address(_) => LookupType::Address,
    }
}

impl SetElement {
    /// Returns the set or map that contains the element.
    #[must_use]
    pub fn set(&self) -> SetId {
        let of = |frontend: &Frontend, role: fn(LookupType) -> SetRole| {
            SetId::new(role(place(frontend)), frontend.destination.family())
        };
        match self {
            Self::Chain(numbers, _) => numbers.set(),
            Self::Dispatch(frontend, _) => of(frontend, SetRole::Dispatch),
            Self::DispatchFrom(frontend, source, _) => {
                SetId::new(SetRole::DispatchFrom(place(frontend), *source), frontend.destination.family())
            }
            Self::Slot(frontend, ..) => of(frontend, SetRole::Endpoints),
            Self::AffinityGroup(frontend, _) => of(frontend, SetRole::AffinityGroups),
            Self::AffinitySlot(frontend, ..) => of(frontend, SetRole::AffinitySlots),
            Self::AffinityTarget(frontend, pool, ..) => {
                SetId::new(SetRole::AffinityTargets(place(frontend), *pool), frontend.destination.family())
            }
            Self::Allowed(frontend, _) => of(frontend, SetRole::AllowedSources),
            Self::Range(frontend) => SetId::new(SetRole::Ranges, frontend.destination.family()),
            Self::Failover(frontend) => SetId::new(SetRole::Failover, frontend.destination.family()),
            Self::VirtualAddress(address) => SetId::new(SetRole::VirtualAddresses, IpFamily::of(*address)),
            Self::Hairpin(address) => SetId::new(SetRole::Hairpins, IpFamily::of(*address)),
            Self::Network(networks, edge) => {
                SetId::new(SetRole::Networks(*networks), IpFamily::of(edge.address))
            }
        }
    }

    /// Returns the key of the element as bytes.
    #[must_use]
    pub fn key(&self) -> Key {
        let exact = |low| Key { low, high: None };
        match self {
            Self::Chain(_, dispatch) => exact(number_value(*dispatch)),
            Self::Dispatch(frontend, _)
            | Self::DispatchFrom(frontend, ..)
            | Self::AffinityGroup(frontend, _)
            | Self::Failover(frontend) => exact(frontend_key(frontend)),
            Self::Slot(frontend, slot, _) | Self::AffinitySlot(frontend, slot, _) => {
                exact([&frontend_key(frontend)[..], &slot.number().to_ne_bytes()].concat())
            }
            Self::AffinityTarget(frontend, _, id, _) => {
                exact([&frontend_key(frontend)[..], &id.0.to_ne_bytes()].concat())
            }
            Self::Allowed(frontend, span) => {
                let end = |address| [frontend_key(frontend), address_bytes(address)].concat();
                Key { low: end(span.first), high: Some(end(span.last)) }
            }
            Self::Range(frontend) => {
                let end = |port: Port| frontend_key(&Frontend { ports: port.into(), ..*frontend });
                Key { low: end(frontend.ports.first()), high: Some(end(frontend.ports.last())) }
            }
            Self::VirtualAddress(address) => exact(address_bytes(*address)),
            Self::Hairpin(address) => exact([address_bytes(*address), address_bytes(*address)].concat()),
            Self::Network(_, edge) => exact(address_bytes(edge.address)),
        }
    }

    /// Returns the value of the element as bytes; `None` for elements of a set, and if the value is a chain.
    #[must_use]
    pub fn value(&self) -> Option<Vec<u8>> {
        match self {
            Self::Slot(_, _, target) | Self::AffinityTarget(_, _, _, target) => Some(target_value(target)),
            Self::AffinityGroup(_, id) => Some(id.0.to_ne_bytes().to_vec()),
            Self::AffinitySlot(_, _, id) => Some(id.0.to_ne_bytes().to_vec()),
            Self::Range(frontend) => Some(ports_bytes(frontend.ports).to_vec()),
            Self::Dispatch(_, dispatch) | Self::DispatchFrom(_, _, dispatch) => Some(number_value(*dispatch)),
            Self::Chain(..)
            | Self::Allowed(..)
            | Self::Failover(_)
            | Self::VirtualAddress(_)
            | Self::Hairpin(_)
            | Self::Network(..) => None,
        }
    }

    /// Returns the chain that the value of the element refers to; `None` if the value is not a chain.
    #[must_use]
    pub const fn chain(&self) -> Option<FrontendChain> {
        match self {
            Self::Chain(_, dispatch) => Some(*dispatch),
            Self::Dispatch(..)
            | Self::DispatchFrom(..)
            | Self::Slot(..)
            | Self::AffinityGroup(..)
            | Self::AffinitySlot(..)
            | Self::AffinityTarget(..)
            | Self::Allowed(..)
            | Self::Range(_)
            | Self::Failover(_)
            | Self::VirtualAddress(_)
            | Self::Hairpin(_)
            | Self::Network(..) => None,
        }
    }

    /// Parses an element that was read from the kernel. Returns `None` for an element that this program would
    /// not have written.
    #[must_use]
    pub fn parse(set: SetId, raw: &RawElement<'_>) -> Option<Self> {
        let family = set.family;
        let mut key = Fields(raw.key);
        let element = match set.role {
            SetRole::Chains(place) => {
                Self::Chain(Numbers { family, place, is_by_source: false }, parse_chain(raw)?)
            }
            SetRole::ChainsFrom(place) => {
                Self::Chain(Numbers { family, place, is_by_source: true }, parse_chain(raw)?)
            }
            SetRole::Dispatch(place) => {
                Self::Dispatch(key.frontend(place, family)?, parse_number(place, raw)?)
            }
            SetRole::DispatchFrom(place, source) => {
                Self::DispatchFrom(key.frontend(place, family)?, source, parse_number(place, raw)?)
            }
            SetRole::Endpoints(place) => {
                let frontend = key.frontend(place, family)?;
                let slot = Slot::of(u32::from_ne_bytes(key.take()?))?;
                Self::Slot(frontend, slot, parse_target(family, raw)?)
            }
            SetRole::AffinityGroups(place) => {
                let frontend = key.frontend(place, family)?;
                let RawValue::Bytes(value) = raw.value else { return None };
                Self::AffinityGroup(frontend, GroupId(u32::from_ne_bytes(Fields(value).take()?)))
            }
            SetRole::AffinitySlots(place) => {
                let frontend = key.frontend(place, family)?;
                let slot = Slot::of(u32::from_ne_bytes(key.take()?))?;
                let RawValue::Bytes(value) = raw.value else { return None };
                Self::AffinitySlot(frontend, slot, TargetId(u32::from_ne_bytes(Fields(value).take()?)))
            }
            SetRole::AffinityTargets(place, pool) => {
                let frontend = key.frontend(place, family)?;
                let id = TargetId(u32::from_ne_bytes(key.take()?));
                Self::AffinityTarget(frontend, pool, id, parse_target(family, raw)?)
            }
            SetRole::AllowedSources(place) => {
                let frontend = key.frontend(place, family)?;
                let mut end = Fields(raw.key_end?);
                end.frontend(place, family)?;
                Self::Allowed(frontend, Span { first: key.address(family)?, last: end.address(family)? })
            }
            SetRole::Ranges => {
                let frontend = key.frontend(LookupType::Address, family)?;
                let ports = PortRange::new(frontend.ports.first(), Fields(raw.key_end?).last_port(family)?);
                Self::Range(Frontend { ports, ..frontend })
            }
            SetRole::Failover => Self::Failover(key.frontend(LookupType::Address, family)?),
            SetRole::VirtualAddresses => Self::VirtualAddress(key.address(family)?),
            SetRole::Hairpins => {
                let (source, destination) = (key.address(family)?, key.address(family)?);
                (source == destination).then_some(Self::Hairpin(source))?
            }
            SetRole::Networks(networks) => {
                Self::Network(networks, Edge { address: key.address(family)?, is_end: raw.is_end })
            }
            SetRole::Affinity => return None,
        };
        element.is_shown_as(raw).then_some(element)
    }

    /// Returns true if an element read from the kernel is exactly the one that this program would write.
    fn is_shown_as(&self, raw: &RawElement<'_>) -> bool {
        let Key { low, high } = self.key();
        // Some kernels report a high end even for keys without one.
        let same_end = raw.key_end.is_none_or(|end| *end == *high.as_ref().unwrap_or(&low));
        let same_value = match (&raw.value, self.value()) {
            (RawValue::Bytes(shown), Some(value)) => *shown == value,
            (RawValue::None, None) => self.chain().is_none(),
            (RawValue::Goto(_), None) => self.chain().is_some(),
            (RawValue::None | RawValue::Goto(_) | RawValue::Bytes(_) | RawValue::Other, _) => false,
        };
        raw.key == low && same_end && same_value
    }
}

fn parse_chain(raw: &RawElement<'_>) -> Option<FrontendChain> {
    let RawValue::Goto(name) = raw.value else { return None };
    FrontendChain::of(Chain::parse(name)?)
}

fn parse_number(place: LookupType, raw: &RawElement<'_>) -> Option<FrontendChain> {
    let RawValue::Bytes(value) = raw.value else { return None };
    number::numbered(place, u32::from_ne_bytes(Fields(value).take()?))
}

/// Encodes a dispatch number in host byte order, as nf_tables compares packet marks.
fn number_value(dispatch: FrontendChain) -> Vec<u8> {
    number::number(dispatch).to_ne_bytes().to_vec()
}

fn parse_target(family: IpFamily, raw: &RawElement<'_>) -> Option<Target> {
    let RawValue::Bytes(bytes) = raw.value else { return None };
    Fields(bytes).target(family)
}

/// Encodes an address and a port; port 0 keeps the client's port.
fn target_value(target: &Target) -> Vec<u8> {
    let mut value = address_bytes(target.address);
    value.extend(port_bytes(target.port.map_or(0, Port::get)));
    value
}

pub(super) fn frontend_key(frontend: &Frontend) -> Vec<u8> {
    let mut key = match frontend.destination {
        Destination::Address(address) => address_bytes(address),
        Destination::AnyLocal(_) => Vec::new(),
    };
    key.extend([frontend.protocol.number(), 0, 0, 0]);
    key.extend(match frontend.ports.single() {
        Some(port) => port_bytes(port.get()),
        None => ports_bytes(frontend.ports),
    });
    key
}

pub(super) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

const fn port_bytes(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [high, low, 0, 0]
}

/// Encodes a port range in four bytes, which take the place of the port in a key.
const fn ports_bytes(ports: PortRange) -> [u8; 4] {
    let ([a, b], [c, d]) = (ports.first().get().to_be_bytes(), ports.last().get().to_be_bytes());
    [a, b, c, d]
}

/// Parses the group at the beginning of a key and ignores the bytes after it; `None` if the key is too short.
#[must_use]
pub fn group_of(key: &[u8]) -> Option<GroupId> {
    Fields(key).take().map(|bytes| GroupId(u32::from_ne_bytes(bytes)))
}

/// Parses the key of a frontend of one address and port, and the number after it, if there is one.
pub(super) fn parse_frontend(family: IpFamily, key: &[u8]) -> Option<(Frontend, Option<u32>)> {
    let mut key = Fields(key);
    let frontend = key.frontend(LookupType::Address, family)?;
    Some((frontend, key.take().map(u32::from_ne_bytes)))
}

/// Remaining bytes of a key or value while it is decoded field by field.
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

    fn target(&mut self, family: IpFamily) -> Option<Target> {
        let address = self.address(family)?;
        let [high, low, ..]: [u8; 4] = self.take()?;
        Some(Target { address, port: Port::new(u16::from_be_bytes([high, low])) })
    }

    fn frontend(&mut self, place: LookupType, family: IpFamily) -> Option<Frontend> {
        let destination = match place {
            LookupType::Address | LookupType::Range => Destination::Address(self.address(family)?),
            LookupType::NodePort => Destination::AnyLocal(family),
        };
        let [number, ..]: [u8; 4] = self.take()?;
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let protocol = protocols.into_iter().find(|protocol| protocol.number() == number)?;
        let [a, b, c, d] = self.take()?;
        let first = Port::new(u16::from_be_bytes([a, b]))?;
        let ports = match place {
            LookupType::Range => PortRange::new(first, Port::new(u16::from_be_bytes([c, d]))?),
            LookupType::Address | LookupType::NodePort => first.into(),
        };
        // A range of one port is stored as a single port.
        let is_found_so = place != LookupType::Range || ports.single().is_none();
        is_found_so.then_some(Frontend { destination, protocol, ports })
    }

    fn last_port(&mut self, family: IpFamily) -> Option<Port> {
        self.frontend(LookupType::Address, family).map(|frontend| frontend.ports.last())
    }
}

impl fmt::Display for SetElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain(_, dispatch) => {
                write!(f, "{:#010x} : goto {}", number::number(*dispatch), dispatch.chain())
            }
            Self::Dispatch(frontend, dispatch) | Self::DispatchFrom(frontend, _, dispatch) => {
                write_frontend(f, frontend)?;
                write!(f, " : {:#010x} ({})", number::number(*dispatch), dispatch.chain())
            }
            Self::Slot(frontend, slot, target) => {
                write_frontend(f, frontend)?;
                write!(f, " . {} : ", slot.number())?;
                write_target(f, target)
            }
            Self::AffinityGroup(frontend, GroupId(id)) => {
                write_frontend(f, frontend)?;
                write!(f, " : {id:#010x}")
            }
            Self::AffinitySlot(frontend, slot, TargetId(id)) => {
                write_frontend(f, frontend)?;
                write!(f, " . {} : {id:#010x}", slot.number())
            }
            Self::AffinityTarget(frontend, _, TargetId(id), target) => {
                write_frontend(f, frontend)?;
                write!(f, " . {id:#010x} : ")?;
                write_target(f, target)
            }
            Self::Allowed(frontend, Span { first, last }) => {
                write_frontend(f, frontend)?;
                write!(f, " . {first}-{last}")
            }
            Self::Range(frontend) | Self::Failover(frontend) => write_frontend(f, frontend),
            Self::VirtualAddress(address) => address.fmt(f),
            Self::Hairpin(address) => write!(f, "{address} . {address}"),
            Self::Network(_, Edge { address, is_end }) => {
                write!(f, "{} {address}", if *is_end { "until" } else { "from" })
            }
        }
    }
}

fn write_target(f: &mut fmt::Formatter<'_>, target: &Target) -> fmt::Result {
    write!(f, "{} . {}", target.address, target.port.map_or(0, Port::get))
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
mod tests;
