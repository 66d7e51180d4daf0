//! Kernel objects of the backend in the output format of the tools: `ipvsadm-save -n`, `ipset save`, `ip -o
//! address`. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::net::IpFamily,
    wire::plan::{LineChange, LineFate},
};

use super::{
    ipset,
    mirror::{DummyLink, IpvsMirror},
    server::{Destination, Forwarding, KernelDestination, Server, Socket},
    sets::{self, IpsetElement, Set, Shape, Value},
    uapi,
};

/// Name under which the lines of virtual servers appear in a preview.
const SERVERS: &str = "ipvs";

/// Line of a listing, after the name of the object group that contains it (such as `ipvs` or a set).
type PlacedLine = (String, String);

/// Returns the lines that are removed from and added to the tools' listings if the kernel state changes from
/// `before` to `after`, without rules or sysctls.
#[must_use]
pub fn differences(before: &IpvsMirror, after: &IpvsMirror, naming: Naming) -> Vec<LineChange> {
    let (mut gone, mut come) = (BTreeSet::new(), BTreeSet::new());
    let sockets: BTreeSet<_> = before.servers.keys().chain(after.servers.keys()).collect();
    for socket in sockets {
        let (is, should) = (before.servers.get(socket), after.servers.get(socket));
        if is != should {
            gone.extend(is.into_iter().flat_map(|server| of_server(socket, server)));
            come.extend(should.into_iter().flat_map(|server| of_server(socket, server)));
        }
    }
    let elements = |a: &IpvsMirror, b: &IpvsMirror| {
        a.elements.difference(&b.elements).map(|element| of_element(element, naming)).collect::<Vec<_>>()
    };
    gone.extend(elements(before, after));
    come.extend(elements(after, before));
    gone.extend(sets_without(&before.sets, &after.sets, naming));
    come.extend(sets_without(&after.sets, &before.sets, naming));
    gone.extend(of_link(before.link.as_ref(), naming));
    come.extend(of_link(after.link.as_ref(), naming));
    changes(&gone, &come)
}

/// Returns the removed and the added lines as changes, sorted by object group.
#[must_use]
pub fn changes(gone: &BTreeSet<PlacedLine>, come: &BTreeSet<PlacedLine>) -> Vec<LineChange> {
    let change =
        |change, (place, line): &PlacedLine| LineChange { change, place: place.clone(), line: line.clone() };
    let removed = gone.difference(come).map(|line| change(LineFate::Removed, line));
    let added = come.difference(gone).map(|line| change(LineFate::Added, line));
    let mut changes: Vec<_> = removed.chain(added).collect();
    changes.sort_by(|a, b| (&a.place, a.change).cmp(&(&b.place, b.change)));
    changes
}

/// Formats a virtual server and its destinations as lines of `ipvsadm-save -n`.
fn of_server(socket: &Socket, server: &Server) -> Vec<PlacedLine> {
    let Server { service, destinations } = server;
    let name = format!("{} {}", option(socket.protocol), SocketAddr::new(socket.address, socket.port.get()));
    let mut head = format!("-A {name} -s {}", service.scheduler);
    if service.flags & uapi::IP_VS_SVC_F_PERSISTENT != 0 {
        head += &format!(" -p {}", service.timeout_secs);
    }
    if service.flags & uapi::IP_VS_SVC_F_ONEPACKET != 0 {
        head += " -o";
    }
    let flags = scheduler_flags(&service.scheduler, service.flags);
    if !flags.is_empty() {
        head += &format!(" -b {}", flags.join(","));
    }
    let destination = |(destination, held): (&Destination, &KernelDestination)| {
        let at = SocketAddr::new(destination.address, destination.port.get());
        format!("-a {name} -r {at} {} -w {}", forwarding(held.forwarding), held.weight)
    };
    let lines = [head].into_iter().chain(destinations.iter().map(destination));
    lines.map(|line| (SERVERS.to_owned(), line)).collect()
}

const fn option(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
        Protocol::Sctp => "--sctp-service",
    }
}

const fn forwarding(forwarding: Forwarding) -> &'static str {
    match forwarding {
        Forwarding::Masquerade => "-m",
        Forwarding::Tunnel => "-i",
        // Local destinations are listed as directly routed.
        Forwarding::Local | Forwarding::Direct | Forwarding::Bypass => "-g",
    }
}

/// Returns the names that `ipvsadm` uses for the flags of a scheduler, such as `sh-port`.
fn scheduler_flags(scheduler: &str, flags: u32) -> Vec<String> {
    let words = match scheduler {
        "sh" => ["sh-fallback".to_owned(), "sh-port".to_owned()],
        "mh" => ["mh-fallback".to_owned(), "mh-port".to_owned()],
        _ => ["flag-1".to_owned(), "flag-2".to_owned()],
    };
    let bits = [uapi::IP_VS_SVC_F_SCHED1, uapi::IP_VS_SVC_F_SCHED2];
    words.into_iter().zip(bits).filter(|(_, bit)| flags & bit != 0).map(|(word, _)| word).collect()
}

/// Formats an element as a line of `ipset save`.
fn of_element(element: &IpsetElement, naming: Naming) -> PlacedLine {
    let name = element.set.name(naming);
    let line = format!("add {name} {}", value(&element.value));
    (place_of(&name), line)
}

fn value(value: &Value) -> String {
    let socket = |Socket { address, protocol, port }: &Socket| {
        format!("{address},{}:{}", protocol_word(*protocol), port.get())
    };
    match value {
        Value::Address(address) => address.to_string(),
        Value::Net(net) => network(net),
        Value::Socket(at) => socket(at),
        Value::SocketAddress(at, source) => format!("{},{source}", socket(at)),
        Value::SocketNet(at, net) => format!("{},{}", socket(at), network(net)),
        Value::Port(number) => number.to_string(),
    }
}

/// Formats a network; one with a single address is formatted without prefix length, as `ipset` does.
fn network(net: &ipnet::IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

const fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

fn place_of(set: &str) -> String {
    format!("ipset {set}")
}

/// Returns a `create` line for each set in `is` that is missing in `other`, without fields that the kernel
/// chooses itself (`initval`) or that depend on its version (`bucketsize`).
fn sets_without(is: &BTreeMap<Set, u32>, other: &BTreeMap<Set, u32>, naming: Naming) -> Vec<PlacedLine> {
    let missing = is.keys().filter(|set| !other.contains_key(*set));
    let line = |set: &Set| {
        let name = set.name(naming);
        let family = match set.family {
            IpFamily::V4 => "inet",
            IpFamily::V6 => "inet6",
        };
        let shape = set.kind.shape();
        let settings = match shape {
            Shape::Port => "range 0-65535".to_owned(),
            Shape::Address | Shape::Net | Shape::Socket | Shape::SocketAddress | Shape::SocketNet => {
                format!("family {family} hashsize {} maxelem {}", ipset::HASH_SIZE, ipset::ELEMENTS_MAX)
            }
        };
        (place_of(&name), format!("create {name} {} {settings}", shape.type_name()))
    };
    missing.map(line).collect()
}

/// Formats the dummy link and its addresses similarly to `ip address`, without fields that are always the
/// same.
fn of_link(link: Option<&DummyLink>, naming: Naming) -> Vec<PlacedLine> {
    let Some(DummyLink { index: _, is_up, addresses }) = link else { return Vec::new() };
    let name = sets::link(naming);
    let state = if *is_up { "up" } else { "down" };
    let address = |address: &IpAddr| match address {
        IpAddr::V4(v4) => format!("inet {v4}/32 scope global {name}"),
        IpAddr::V6(v6) => format!("inet6 {v6}/128 scope global nodad"),
    };
    let lines = [format!("dummy {state}")].into_iter().chain(addresses.iter().map(address));
    lines.map(|line| (format!("link {name}"), line)).collect()
}
