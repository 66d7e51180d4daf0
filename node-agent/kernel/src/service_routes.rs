//! Routes to the Service ranges, on a node where no other route leads there.
//!
//! Without a route, the kernel rejects packets to a virtual address before the rules of a proxy mode translate
//! them. A policy routing rule for each range selects a routing table of the agent. The rule follows those of the
//! tables `main` and `default`, so that every other route takes precedence, including a route that rejects
//! packets. Rules and routes carry a protocol number of their own, by which they are recognized.

use std::{collections::BTreeSet, io, net::IpAddr};

use ipnet::IpNet;
use model::primitives::net::IpFamily;
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    net::if_::{InterfaceFlags, if_nametoindex},
};
use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType},
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{
    links::ip_of,
    netlink::{
        route,
        socket::{Netlink, Protocol},
        uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE},
    },
};

/// Number of the routing table with the routes of the agent.
pub const TABLE: u32 = 7440;
/// Priority of the rules that select the table: after `main` (32766) and `default` (32767).
pub const PRIORITY: u32 = 32_800;
/// Protocol number of the routes and rules of the agent (`rtm_protocol`).
pub const PROTOCOL: u8 = 174;

/// Keeper of the routes to the Service ranges in a network namespace, or a test fake.
pub trait ServiceRoutes: Send {
    /// Adds and repairs the routes to ranges to which no other route leads, and removes those to other ranges.
    /// Returns the number of changed objects.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read, or rejects a change.
    fn follow(&mut self, ranges: &BTreeSet<IpNet>) -> io::Result<u64>;

    /// Returns the ranges to which the agent keeps a route.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    fn held(&mut self) -> io::Result<BTreeSet<IpNet>>;
}

/// Keeper that never has routes, for tests and for a machine whose routes must not change.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoServiceRoutes;

impl ServiceRoutes for NoServiceRoutes {
    fn follow(&mut self, _: &BTreeSet<IpNet>) -> io::Result<u64> {
        Ok(0)
    }

    fn held(&mut self) -> io::Result<BTreeSet<IpNet>> {
        Ok(BTreeSet::new())
    }
}

/// Keeper of the routes in the kernel, over its own netlink socket, which is opened on first use.
#[derive(Default)]
pub struct KernelServiceRoutes {
    netlink: Option<Netlink>,
}

impl ServiceRoutes for KernelServiceRoutes {
    fn follow(&mut self, ranges: &BTreeSet<IpNet>) -> io::Result<u64> {
        // The socket is dropped after a failure, because responses may still arrive on it.
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open(Protocol::Route)?,
        };
        let changes = follow(&mut netlink, ranges)?;
        self.netlink = Some(netlink);
        Ok(changes)
    }

    fn held(&mut self) -> io::Result<BTreeSet<IpNet>> {
        ranges()
    }
}

/// Returns the ranges to which the agent keeps a route.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn ranges() -> io::Result<BTreeSet<IpNet>> {
    held(&mut Netlink::open(Protocol::Route)?)
}

/// Removes all routes and rules of the agent, and returns their number.
///
/// # Errors
/// Returns an error if the kernel cannot be read, or rejects a change.
pub fn cleanup() -> io::Result<u64> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let rules = held(&mut netlink)?;
    let mut ranges = rules.clone();
    for family in IpFamily::ALL {
        let mut request = RouteMessage::default();
        request.header.address_family = number(family);
        let request = route::request(&RouteNetlinkMessage::GetRoute(request), NLM_F_DUMP);
        ranges.extend(netlink.dump(&request, Vec::new, |found, answer| {
            found.extend(own_route(family, &route::parse(answer)?));
            Ok(())
        })?);
    }
    let mut removed = 0;
    for range in &ranges {
        removed += remove(&mut netlink, range)?;
    }
    Ok(removed)
}

fn follow(netlink: &mut Netlink, ranges: &BTreeSet<IpNet>) -> io::Result<u64> {
    let held = held(netlink)?;
    let mut changes = 0;
    for range in held.difference(ranges) {
        changes += remove(netlink, range)?;
    }
    for range in ranges {
        let ends = [range.network(), range.broadcast()];
        let found = [lookup(netlink, ends[0])?, lookup(netlink, ends[1])?];
        let is_held = held.contains(range);
        if found == [FoundRoute::Other; 2] {
            changes += if is_held { remove(netlink, range)? } else { 0 };
        } else if (!is_held || found.contains(&FoundRoute::Missing))
            && let Some(interface) = interface(IpFamily::of_net(range), ranges)?
        {
            changes += add(netlink, range, interface, is_held)?;
        }
    }
    Ok(changes)
}

/// Route that the kernel selects for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundRoute {
    /// No route leads to the address.
    Missing,
    /// The route of the agent.
    Own,
    /// A route of another program, which may reject packets.
    Other,
}

fn lookup(netlink: &mut Netlink, address: IpAddr) -> io::Result<FoundRoute> {
    let mut request = RouteMessage::default();
    request.header.address_family = number(IpFamily::of(address));
    request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    request.header.flags = RouteFlags::FibMatch | RouteFlags::LookupTable;
    request.attributes.push(RouteAttribute::Destination(address.into()));
    let request = route::request(&RouteNetlinkMessage::GetRoute(request), NLM_F_ACK);
    let mut found = FoundRoute::Other;
    let errnos = netlink.ask(&[request], |_, answer| {
        if own_route(IpFamily::of(address), &route::parse(answer)?).is_some() {
            found = FoundRoute::Own;
        }
        Ok(())
    })?;
    let is_missing = errnos.first() == Some(&(Errno::ENETUNREACH as i32));
    Ok(if is_missing { FoundRoute::Missing } else { found })
}

/// Returns the ranges of the agent's rules.
fn held(netlink: &mut Netlink) -> io::Result<BTreeSet<IpNet>> {
    let mut held = BTreeSet::new();
    for family in IpFamily::ALL {
        let mut request = RuleMessage::default();
        request.header.family = number(family);
        let request = route::request(&RouteNetlinkMessage::GetRule(request), NLM_F_DUMP);
        held.extend(netlink.dump(&request, Vec::new, |found, answer| {
            found.extend(own_rule(&route::parse(answer)?));
            Ok(())
        })?);
    }
    Ok(held)
}

fn add(netlink: &mut Netlink, range: &IpNet, interface: u32, has_rule: bool) -> io::Result<u64> {
    let mut requests = Vec::new();
    if !has_rule {
        requests.push(route::request(
            &RouteNetlinkMessage::NewRule(rule(range)),
            NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        ));
    }
    let mut message = route_to(range);
    message.attributes.push(RouteAttribute::Oif(interface));
    requests.push(route::request(
        &RouteNetlinkMessage::NewRoute(message),
        NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
    ));
    write(netlink, &requests, Errno::EEXIST)
}

fn remove(netlink: &mut Netlink, range: &IpNet) -> io::Result<u64> {
    let requests = [
        route::request(&RouteNetlinkMessage::DelRoute(route_to(range)), NLM_F_ACK),
        route::request(&RouteNetlinkMessage::DelRule(rule(range)), NLM_F_ACK),
    ];
    // A route goes with its interface.
    let mut removed = 0;
    for (request, absent) in requests.iter().zip([Errno::ESRCH, Errno::ENOENT]) {
        removed += write(netlink, std::slice::from_ref(request), absent)?;
    }
    Ok(removed)
}

/// Sends requests and returns the number of those that changed the kernel. The error `expected` counts as no
/// change.
fn write(
    netlink: &mut Netlink,
    requests: &[crate::netlink::wire::Message],
    expected: Errno,
) -> io::Result<u64> {
    let errnos = netlink.ask(requests, |_, _| Ok(()))?;
    let mut changes = 0;
    for errno in errnos {
        match errno {
            0 => changes += 1,
            errno if errno == expected as i32 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
    Ok(changes)
}

fn rule(range: &IpNet) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = number(IpFamily::of_net(range));
    rule.header.dst_len = range.prefix_len();
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Destination(range.network()),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Table(TABLE),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    rule
}

fn route_to(range: &IpNet) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = number(IpFamily::of_net(range));
    message.header.destination_prefix_length = range.prefix_len();
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    message.header.scope = if range.network().is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
    message.header.kind = RouteType::Unicast;
    message.attributes =
        vec![RouteAttribute::Destination(range.network().into()), RouteAttribute::Table(TABLE)];
    message
}

/// Returns the range of a rule of the agent; `None` for other messages.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn own_rule(message: &RouteNetlinkMessage) -> Option<IpNet> {
    let RouteNetlinkMessage::NewRule(rule) = message else { return None };
    let (mut destination, mut table, mut is_own) = (None, None, false);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Destination(address) => destination = Some(*address),
            RuleAttribute::Table(number) => table = Some(*number),
            RuleAttribute::Protocol(protocol) => is_own = *protocol == RouteProtocol::Other(PROTOCOL),
            _ => {}
        }
    }
    let is_own = is_own && table == Some(TABLE);
    destination.filter(|_| is_own).and_then(|address| IpNet::new(address, rule.header.dst_len).ok())
}

/// Returns the destination of a route of the agent; `None` for other messages.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn own_route(family: IpFamily, message: &RouteNetlinkMessage) -> Option<IpNet> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let (mut destination, mut table) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = Some(address.clone()),
            RouteAttribute::Table(number) => table = Some(*number),
            _ => {}
        }
    }
    let address = match destination? {
        rtnetlink::packet_route::route::RouteAddress::Inet(v4) => IpAddr::V4(v4),
        rtnetlink::packet_route::route::RouteAddress::Inet6(v6) => IpAddr::V6(v6),
        _ => return None,
    };
    let is_own = message.header.protocol == RouteProtocol::Other(PROTOCOL)
        && table == Some(TABLE)
        && IpFamily::of(address) == family;
    IpNet::new(address, message.header.destination_prefix_length).ok().filter(|_| is_own)
}

/// Returns the index of the first interface with an address of the family, from which the node can send. Loopback
/// interfaces, interfaces without neighbors (`NOARP`) and addresses in the ranges do not count.
fn interface(family: IpFamily, ranges: &BTreeSet<IpNet>) -> io::Result<Option<u32>> {
    let is_usable = |address: &IpAddr| {
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        IpFamily::of(*address) == family
            && !is_link_local
            && !ranges.iter().any(|range| range.contains(address))
    };
    let unfit = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_NOARP;
    let first = getifaddrs()?.find(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.intersects(unfit)
            && interface.address.as_ref().and_then(ip_of).is_some_and(|address| is_usable(&address))
    });
    // An interface that has just been removed has no index.
    Ok(first.and_then(|interface| if_nametoindex(interface.interface_name.as_str()).ok()))
}

const fn number(family: IpFamily) -> AddressFamily {
    match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    }
}
