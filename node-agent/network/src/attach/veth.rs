//! Interfaces of an attachment: a veth pair with one end on the node and the other in the network namespace of the
//! workload.
//!
//! ```text
//!  node                                      workload
//!  tgXXXXXXXXXXX ee:ee:ee:ee:ee:ee ────────── eth0 ADDRESS/32, ADDRESS/128
//!  fe80::ecee:eeff:feee:eeee                 default via 169.254.1.1, fe80::ecee:eeff:feee:eeee
//! ```

use std::{
    fs::File,
    io,
    net::IpAddr,
    os::fd::{AsRawFd as _, RawFd},
    thread,
};

use attach_socket::{AttachedWorkload, GATEWAY_V4};
use ipnet::IpNet;
use kernel::{
    links::Mac,
    netlink::{
        route,
        socket::{Netlink, Protocol},
        uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE},
        wire::Message,
    },
};
use model::primitives::net::IpFamily;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage},
    neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType},
};
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns},
};

use super::names::HOST_MAC;
use crate::routes::{
    keeper::acknowledge,
    render::{family_number, remove_link, set_up},
    tunnel::set_parameter,
};

/// Creates the interfaces of an attachment and configures the one of the workload. Returns the index of the interface on the
/// node, which is up.
///
/// # Errors
/// Returns an error if the kernel rejects a change. Interfaces may then exist in part.
pub fn create(netlink: &mut Netlink, attached: &AttachedWorkload, mac: Mac, netns: &File) -> io::Result<u32> {
    acknowledge(netlink, &[pair(attached, mac, netns.as_raw_fd())])?;
    let host = attached.host_interface.as_str();
    let index = if_nametoindex(host)?;
    for (parameter, value) in host_parameters(host) {
        set_parameter(&parameter, value)?;
    }
    inside(netns, || configure(attached))??;
    acknowledge(netlink, &[set_up(index, attached.mtu)])?;
    Ok(index)
}

/// Removes the interfaces of an attachment by the name of the one on the node. Returns true if they existed.
///
/// # Errors
/// Returns an error if the kernel rejects the removal.
pub fn remove(netlink: &mut Netlink, host_interface: &str) -> io::Result<bool> {
    let Ok(index) = if_nametoindex(host_interface) else { return Ok(false) };
    match acknowledge(netlink, &[remove_link(index)]) {
        Ok(()) => Ok(true),
        // Interfaces go with the network namespace of the workload.
        Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Compares the interface inside of a network namespace with its attachment. Returns the first difference.
///
/// # Errors
/// Returns an error if the namespace cannot be entered, or its interfaces cannot be listed.
pub fn difference(attached: &AttachedWorkload, netns: &File) -> io::Result<Option<String>> {
    let name = &attached.key.interface;
    let held = inside(netns, || {
        let interfaces = getifaddrs()?.filter(|interface| interface.interface_name == *name);
        let addresses = interfaces.filter_map(|interface| kernel::links::ip_of(&interface.address?));
        Ok::<_, io::Error>((if_nametoindex(name.as_str()).is_ok(), addresses.collect::<Vec<_>>()))
    })??;
    let (exists, addresses) = held;
    if !exists {
        return Ok(Some(format!("the network namespace has no interface `{name}`")));
    }
    let missing = attached.addresses.iter().find(|address| !addresses.contains(address));
    Ok(missing.map(|address| format!("the interface `{name}` does not have the address {address}")))
}

/// Returns true if the network namespace has an interface with this name.
///
/// # Errors
/// Returns an error if the namespace cannot be entered.
pub fn has_interface(netns: &File, name: &str) -> io::Result<bool> {
    inside(netns, || if_nametoindex(name).is_ok())
}

/// Runs code in a network namespace, on a thread of its own: a thread of the runtime must not stay in it.
pub(super) fn inside<T: Send>(netns: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, || {
            setns(netns, CloneFlags::CLONE_NEWNET)?;
            Ok::<_, io::Error>(work())
        })?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Builds the request that creates both interfaces at once, the second one in the network namespace of the workload.
fn pair(attached: &AttachedWorkload, mac: Mac, netns: RawFd) -> Message {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(attached.key.interface.clone()),
        LinkAttribute::Mtu(attached.mtu),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::NetNsFd(netns),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(attached.host_interface.clone()),
        LinkAttribute::Mtu(attached.mtu),
        LinkAttribute::Address(HOST_MAC.0.to_vec()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    route::request(&RouteNetlinkMessage::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
}

/// Returns the kernel parameters of an interface on the node. The node answers ARP requests for the gateway, forwards, and
/// drops packets with a source address to which the route leads elsewhere.
fn host_parameters(host: &str) -> [(String, &'static str); 9] {
    [
        (format!("ipv4/conf/{host}/proxy_arp"), "1"),
        (format!("ipv4/neigh/{host}/proxy_delay"), "0"),
        (format!("ipv4/conf/{host}/forwarding"), "1"),
        (format!("ipv4/conf/{host}/rp_filter"), "1"),
        (format!("ipv6/conf/{host}/disable_ipv6"), "0"),
        (format!("ipv6/conf/{host}/forwarding"), "1"),
        (format!("ipv6/conf/{host}/accept_ra"), "0"),
        // Each interface has the same link-local address, which is the gateway, on a link of its own.
        (format!("ipv6/conf/{host}/accept_dad"), "0"),
        (format!("ipv6/conf/{host}/addr_gen_mode"), "0"),
    ]
}

/// Configures the interface of the workload. Runs in its network namespace.
fn configure(attached: &AttachedWorkload) -> io::Result<()> {
    let name = attached.key.interface.as_str();
    let index = if_nametoindex(name)?;
    if attached.addresses.iter().any(IpAddr::is_ipv6) {
        for (parameter, value) in [("disable_ipv6", "0"), ("accept_ra", "0"), ("accept_dad", "0")] {
            set_parameter(&format!("ipv6/conf/{name}/{parameter}"), value)?;
        }
    }
    let mut netlink = Netlink::open(Protocol::Route)?;
    let mut requests: Vec<_> =
        attached.addresses.iter().map(|address| add_address(index, *address)).collect();
    requests.push(set_up(index, attached.mtu));
    for gateway in attached.gateways() {
        requests.push(neighbor(index, gateway));
        if gateway == GATEWAY_V4 {
            requests.push(add_route(index, IpNet::from(gateway), None));
        }
    }
    acknowledge(&mut netlink, &requests)?;
    for gateway in attached.gateways() {
        let all = if gateway.is_ipv4() {
            IpNet::V4(ipnet::Ipv4Net::default())
        } else {
            IpNet::V6(ipnet::Ipv6Net::default())
        };
        match acknowledge(&mut netlink, &[add_route(index, all, Some(gateway))]) {
            // The default route of another attachment stays.
            Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

fn add_address(index: u32, address: IpAddr) -> Message {
    let family = IpFamily::of(address);
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.family = family_number(family);
    message.header.prefix_len = family.bits();
    if family == IpFamily::V6 {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    route::request(&RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE)
}

/// Builds the request for a permanent neighbor entry, so that the gateway is reached without ARP and NDP.
fn neighbor(index: u32, gateway: IpAddr) -> Message {
    let mut message = NeighbourMessage::default();
    message.header.family = family_number(IpFamily::of(gateway));
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        NeighbourAttribute::Destination(gateway.into()),
        NeighbourAttribute::LinkLayerAddress(HOST_MAC.0.to_vec()),
    ];
    let message = RouteNetlinkMessage::NewNeighbour(message);
    route::request(&message, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
}

fn add_route(index: u32, destination: IpNet, gateway: Option<IpAddr>) -> Message {
    let mut message = RouteMessage::default();
    message.header.address_family = family_number(IpFamily::of_net(&destination));
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.table = netlink_packet_route::route::RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    if gateway.is_none() {
        message.header.scope = RouteScope::Link;
    }
    message.attributes = vec![RouteAttribute::Oif(index)];
    if destination.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(destination.network().into()));
    }
    message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    route::request(&RouteNetlinkMessage::NewRoute(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
}
