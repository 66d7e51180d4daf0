//! Routes to the owners of connections: nodes to which packets are forwarded by their mark, without translation.
//!
//! Each owner has a number. A policy routing rule selects, for packets whose mark contains the number, a routing table
//! with a default route to the owner. Rules and routes carry the protocol number of the agent
//! ([`crate::service_routes::PROTOCOL`]), so a new process recognizes them and continues with the same numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use model::primitives::net::IpFamily;
use nix::errno::Errno;
use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType},
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{
    netlink::{
        route,
        socket::{Netlink, Protocol},
        uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL},
        wire::Message,
    },
    service_routes::PROTOCOL,
};

/// Bits of the packet mark that contain the number of an owner. Rules of Calico, Kube-OVN and kube-router use the four bits below,
/// also before a packet is routed.
pub const MARK_MASK: u32 = 0xfff0_0000;
/// Bits that are 0 in the mark of an owner. Cilium sets some of them in marks that contain an identity in the upper 16 bits.
pub const IDENTITY_MASK: u32 = 0x0000_0f00;
/// Maximum number of owners: the numbers 1 to 4095 fit into the mark. Each owner takes a policy routing rule, which
/// every packet of the node passes.
pub const OWNERS_MAX: u16 = 4095;

const MARK_SHIFT: u32 = 20;
/// Number of the routing table of the owner with number 0, which does not exist.
const TABLE_BASE: u32 = 74_400;
/// Priority of the rules, before `main` (32766).
const PRIORITY: u32 = 7440;

/// Number of an owner, 1 to [`OWNERS_MAX`], unique on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerNumber(pub u16);

impl OwnerNumber {
    /// Returns the packet mark that selects the owner.
    #[must_use]
    pub const fn mark(self) -> u32 {
        (self.0 as u32) << MARK_SHIFT
    }

    /// Returns the owner that a packet mark selects; `None` if it contains no number or other bits.
    #[must_use]
    pub fn of_mark(mark: u32) -> Option<Self> {
        let number = u16::try_from(mark >> MARK_SHIFT).ok().filter(|number| *number > 0)?;
        (mark & !MARK_MASK == 0).then_some(Self(number))
    }

    const fn table(self) -> u32 {
        TABLE_BASE + self.0 as u32
    }

    fn of_table(table: u32) -> Option<Self> {
        let number = table.checked_sub(TABLE_BASE)?;
        u16::try_from(number).ok().filter(|number| (1..=OWNERS_MAX).contains(number)).map(Self)
    }
}

/// Numbers of the owners, by the address at which the node reaches the owner.
pub type OwnerNumbers = BTreeMap<IpAddr, OwnerNumber>;

/// Packet mark and mask of a policy routing rule.
type MatchedMark = (u32, u32);

/// Rules and routes of the agent in the kernel. Earlier versions of the agent have other marks in their rules.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldRoutes {
    rules: BTreeSet<(IpFamily, OwnerNumber, MatchedMark)>,
    routes: BTreeMap<(IpFamily, OwnerNumber), Option<IpAddr>>,
}

/// Returns the owners to which the kernel has routes, with their numbers.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn numbers() -> io::Result<OwnerNumbers> {
    let held = held(&mut Netlink::open(Protocol::Route)?)?;
    let hops = held.routes.into_iter().filter_map(|((_, number), hop)| Some((hop?, number)));
    Ok(hops.collect())
}

/// Adds missing rules and routes to owners, and returns the number of added objects. A route to an owner that is not on
/// a network of the node is left out. Reads nothing, because the kernel rejects objects that exist.
///
/// # Errors
/// Returns an error if the kernel rejects a change.
pub fn ensure(owners: &OwnerNumbers) -> io::Result<u64> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let mut changes = 0;
    for (hop, number) in owners {
        let family = IpFamily::of(*hop);
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let route = RouteNetlinkMessage::NewRoute(route_to(family, *number, Some(*hop)));
        let absent = [Errno::EEXIST, Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::ENETDOWN];
        changes += write(&mut netlink, route::request(&route, flags), &absent)?;
        let rule = RouteNetlinkMessage::NewRule(rule(family, *number, matched(*number)));
        changes += write(&mut netlink, route::request(&rule, flags), &[Errno::EEXIST])?;
    }
    Ok(changes)
}

/// Removes the rules and routes of all other owners than these, and routes that lead elsewhere, and returns the number
/// of removed objects. Reads all routes of the node.
///
/// # Errors
/// Returns an error if the kernel cannot be read, or rejects a change.
pub fn prune(owners: &OwnerNumbers) -> io::Result<u64> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let held = held(&mut netlink)?;
    let wanted: BTreeMap<_, _> =
        owners.iter().map(|(hop, number)| ((IpFamily::of(*hop), *number), *hop)).collect();
    let mut changes = 0;
    let is_wanted = |(family, number, mark): &&(IpFamily, OwnerNumber, MatchedMark)| {
        wanted.contains_key(&(*family, *number)) && *mark == matched(*number)
    };
    for (family, number, mark) in held.rules.iter().filter(|rule| !is_wanted(rule)) {
        let request = RouteNetlinkMessage::DelRule(rule(*family, *number, *mark));
        changes += write(&mut netlink, route::request(&request, NLM_F_ACK), &[Errno::ENOENT])?;
    }
    for ((family, number), hop) in &held.routes {
        if wanted.get(&(*family, *number)) != hop.as_ref() {
            let request = RouteNetlinkMessage::DelRoute(route_to(*family, *number, None));
            changes += write(&mut netlink, route::request(&request, NLM_F_ACK), &[Errno::ESRCH])?;
        }
    }
    Ok(changes)
}

fn held(netlink: &mut Netlink) -> io::Result<HeldRoutes> {
    let mut held = HeldRoutes::default();
    for family in IpFamily::ALL {
        let mut rules = RuleMessage::default();
        rules.header.family = number(family);
        let request = route::request(&RouteNetlinkMessage::GetRule(rules), NLM_F_DUMP);
        let found = netlink.dump(&request, Vec::new, |found, answer| {
            found.extend(own_rule(&route::parse(answer)?));
            Ok(())
        })?;
        held.rules.extend(found.into_iter().map(|(number, mark)| (family, number, mark)));
        let mut routes = RouteMessage::default();
        routes.header.address_family = number(family);
        let request = route::request(&RouteNetlinkMessage::GetRoute(routes), NLM_F_DUMP);
        let found = netlink.dump(&request, Vec::new, |found, answer| {
            found.extend(own_route(&route::parse(answer)?));
            Ok(())
        })?;
        held.routes.extend(found.into_iter().map(|(number, hop)| ((family, number), hop)));
    }
    Ok(held)
}

/// Sends a request and returns 1 if it changed the kernel. The errors `expected` count as no change.
fn write(netlink: &mut Netlink, request: Message, expected: &[Errno]) -> io::Result<u64> {
    let errnos = netlink.ask(&[request], |_, _| Ok(()))?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(1),
        errno if expected.iter().any(|one| *one as i32 == errno) => Ok(0),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Returns the mark that the rule of an owner matches.
const fn matched(owner: OwnerNumber) -> MatchedMark {
    (owner.mark(), MARK_MASK | IDENTITY_MASK)
}

fn rule(family: IpFamily, owner: OwnerNumber, (mark, mask): MatchedMark) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = number(family);
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(mask),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Table(owner.table()),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    rule
}

fn route_to(family: IpFamily, owner: OwnerNumber, hop: Option<IpAddr>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = number(family);
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Table(owner.table())];
    message.attributes.extend(hop.map(|hop| RouteAttribute::Gateway(hop.into())));
    message
}

/// Returns the owner and the mark of a rule of the agent; `None` for other messages.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn own_rule(message: &RouteNetlinkMessage) -> Option<(OwnerNumber, MatchedMark)> {
    let RouteNetlinkMessage::NewRule(rule) = message else { return None };
    let (mut mark, mut mask, mut table, mut is_own) = (None, u32::MAX, None, false);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Table(number) => table = OwnerNumber::of_table(*number),
            RuleAttribute::Protocol(protocol) => is_own = *protocol == RouteProtocol::Other(PROTOCOL),
            _ => {}
        }
    }
    Some((table.filter(|_| is_own)?, (mark?, mask)))
}

/// Returns the owner of a route of the agent, and the address at which it is reached; `None` for other messages.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn own_route(message: &RouteNetlinkMessage) -> Option<(OwnerNumber, Option<IpAddr>)> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let (mut gateway, mut table) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => gateway = Some(IpAddr::V4(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => gateway = Some(IpAddr::V6(*v6)),
            RouteAttribute::Table(number) => table = OwnerNumber::of_table(*number),
            _ => {}
        }
    }
    let is_own = message.header.protocol == RouteProtocol::Other(PROTOCOL);
    table.filter(|_| is_own).map(|number| (number, gateway))
}

const fn number(family: IpFamily) -> AddressFamily {
    match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    }
}
