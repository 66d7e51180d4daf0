//! Inspection of an existing attachment: the MTU and the routes at both ends.

use std::{fs::File, io, net::IpAddr};

use attach_socket::{AttachedWorkload, GATEWAY_V4};
use kernel::netlink::{
    route,
    socket::{Netlink, Protocol},
    uapi::{NLM_F_ACK, NLM_F_DUMP},
    wire::Message,
};
use model::primitives::net::IpFamily;
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
};
use nix::net::if_::if_nametoindex;

use super::veth;
use crate::routes::{keeper, render::family_number};

/// Returns the first difference of the interface and the routes inside of a network namespace.
///
/// # Errors
/// Returns an error if the namespace cannot be entered or read.
pub(super) fn inside(attached: &AttachedWorkload, netns: &File) -> io::Result<Option<String>> {
    veth::inside(netns, || {
        let mut netlink = Netlink::open(Protocol::Route)?;
        let name = &attached.key.interface;
        if let Some(difference) = link_difference(&mut netlink, name, attached.mtu)? {
            return Ok(Some(difference));
        }
        for gateway in attached.gateways() {
            let family = IpFamily::of(gateway);
            let routes = routes(&mut netlink, family)?;
            if !routes.iter().any(FoundRoute::is_default) {
                return Ok(Some(format!("the network namespace has no {} default route", family.as_str())));
            }
            let index = if_nametoindex(name.as_str())?;
            let is_gateway_route =
                |route: &FoundRoute| route.destination == Some(gateway) && route.interface == Some(index);
            if gateway == GATEWAY_V4 && !routes.iter().any(is_gateway_route) {
                return Ok(Some(format!("the interface `{name}` has no route to its gateway {gateway}")));
            }
        }
        Ok(None)
    })?
}

/// Returns the first difference of the interface on the node and of the routes to the workload.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub(super) fn on_node(netlink: &mut Netlink, attached: &AttachedWorkload) -> io::Result<Option<String>> {
    let host = &attached.host_interface;
    if let Some(difference) = link_difference(netlink, host, attached.mtu)? {
        return Ok(Some(difference));
    }
    let index = if_nametoindex(host.as_str())?;
    for address in &attached.addresses {
        if outbound(netlink, *address)? != Some(index) {
            return Ok(Some(format!("the route to {address} does not lead to the interface `{host}`")));
        }
    }
    Ok(None)
}

fn link_difference(netlink: &mut Netlink, name: &str, mtu: u32) -> io::Result<Option<String>> {
    let links = keeper::links(netlink)?;
    let Some(link) = links.values().find(|link| link.name == name) else {
        return Ok(Some(format!("the interface `{name}` does not exist")));
    };
    if !link.is_up {
        return Ok(Some(format!("the interface `{name}` is down")));
    }
    let difference = || format!("the interface `{name}` has MTU {}, not {mtu}", link.mtu);
    Ok((link.mtu != mtu).then(difference))
}

/// Route with the fields that are inspected.
struct FoundRoute {
    /// Address of a route to one address, or the first one of a network.
    destination: Option<IpAddr>,
    prefix: u8,
    gateway: bool,
    interface: Option<u32>,
}

impl FoundRoute {
    const fn is_default(&self) -> bool {
        self.prefix == 0 && self.gateway && self.interface.is_some()
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
    fn of(message: &RouteMessage) -> Self {
        let prefix = message.header.destination_prefix_length;
        let mut found = Self { destination: None, prefix, gateway: false, interface: None };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => {
                    found.destination = crate::routes::parse::ip(address);
                }
                RouteAttribute::Gateway(_) => found.gateway = true,
                RouteAttribute::Oif(index) => found.interface = Some(*index),
                _ => {}
            }
        }
        found
    }
}

fn routes(netlink: &mut Netlink, family: IpFamily) -> io::Result<Vec<FoundRoute>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family_number(family);
    let request = route::request(&RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
    netlink.dump(&request, Vec::new, |found, answer| {
        // Routes of other programs can have attributes that cannot be parsed.
        if let Ok(RouteNetlinkMessage::NewRoute(message)) = route::parse(answer) {
            found.push(FoundRoute::of(&message));
        }
        Ok(())
    })
}

/// Returns the interface through which packets to an address leave the node, or `None` without one.
fn outbound(netlink: &mut Netlink, address: IpAddr) -> io::Result<Option<u32>> {
    let mut interface = None;
    netlink.ask(&[lookup(address)], |_, answer| {
        if let Ok(RouteNetlinkMessage::NewRoute(message)) = route::parse(answer) {
            interface = FoundRoute::of(&message).interface;
        }
        Ok(())
    })?;
    Ok(interface)
}

fn lookup(address: IpAddr) -> Message {
    let family = IpFamily::of(address);
    let mut message = RouteMessage::default();
    message.header.address_family = family_number(family);
    message.header.destination_prefix_length = family.bits();
    message.attributes = vec![RouteAttribute::Destination(address.into())];
    route::request(&RouteNetlinkMessage::GetRoute(message), NLM_F_ACK)
}
