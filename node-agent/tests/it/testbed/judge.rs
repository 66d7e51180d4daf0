//! Expected results of connections on the test bed, and their comparison with observed results. The
//! expectation follows from the rules for Services, as evaluated by the oracle ([`oracle`]), or, if no rule
//! applies, from the ports on which the host with the destination address listens.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Port, Weight},
    },
    program::{
        Program,
        oracle::{self, Connection, Fate, Networks},
    },
    wire::trace::{self, End},
};

use super::{
    Ask, Heard, Spot,
    hosts::{DAEMON_PORT, PORTS, WORKLOAD_PORTS, node_addresses},
};
use crate::support::programs::port;

/// Expected result of a connection, as the client should observe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Reply from one of these servers; the server must observe the given kind of source address.
    Answer(BTreeMap<(IpAddr, Port), Seen>),
    /// The daemon that runs on the node itself replies.
    Daemon,
    Refused,
    Silence,
    /// No reply arrives, because no host has the address.
    Nobody,
}

/// Source address of a connection that the replying server must observe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Client,
    Node,
}

/// Converts a connection on the test bed to the input of the oracle (pure interpreter of packet programs).
pub fn connection(ask: Ask) -> Connection {
    let own = node_addresses();
    let is_from_node = ask.from == Spot::Node;
    // A connection of a host to itself has the destination as its source.
    let default =
        if is_from_node && own.contains(&ask.to) { ask.to } else { ask.from.address(IpFamily::of(ask.to)) };
    Connection {
        source: ask.source.unwrap_or(default),
        is_from_node,
        destination: ask.to,
        is_node_address: own.contains(&ask.to),
        protocol: ask.protocol,
        port: port(ask.port),
    }
}

/// Returns true if the node has the address.
pub fn is_node_address(address: IpAddr) -> bool {
    node_addresses().contains(&address)
}

/// Returns the result that the oracle (pure interpreter of packet programs) computes for a connection.
pub fn fate<'a>(programs: impl Iterator<Item = &'a Program> + Clone, networks: &Networks, ask: Ask) -> Fate {
    oracle::fate(programs, networks, &connection(ask))
}

/// Converts the result that the oracle computed to the result that the client should observe.
pub fn expected(fate: &Fate, ask: Ask) -> Expected {
    match fate {
        Fate::Untouched => untouched(ask),
        Fate::Reject => Expected::Refused,
        Fate::Drop => Expected::Silence,
        Fate::Relay(_) => panic!("no program that is made from a Service relays"),
        Fate::Forward { targets, is_masqueraded, hairpins } => {
            let seen = |address: &IpAddr| {
                if *is_masqueraded || hairpins.contains(address) { Seen::Node } else { Seen::Client }
            };
            let answer = |(at, _): (&(IpAddr, Port), &Weight)| (*at, seen(&at.0));
            Expected::Answer(targets.iter().map(answer).collect())
        }
    }
}

/// Returns true if the observed result `heard` is one of `ends`, the possible results according to a trace
/// through the kernel state. A reply also proves that the return path works, because a connected socket
/// accepts packets only from its peer.
pub fn bears_out(ends: &BTreeSet<End>, ask: Ask, heard: &Heard) -> bool {
    ends.iter().any(|end| {
        let expected = match end {
            End::Reaches { address, port, sees } => {
                let seen = match sees {
                    trace::VisibleSource::Client => Seen::Client,
                    trace::VisibleSource::Node => Seen::Node,
                };
                Expected::Answer([((*address, *port), seen)].into())
            }
            End::Refused => Expected::Refused,
            End::Dropped => Expected::Silence,
            End::Untouched => untouched(ask),
            // No trace of a complete mode has such an end.
            End::Relayed(_) | End::Unknown(_) => return false,
        };
        agrees(&expected, ask, heard)
    })
}

/// Returns the result that the client should observe if no rule of the backend applies to the connection: a
/// reply if the host with the destination address listens on the port, a refusal if the host does not, and no
/// reply if no host has the address.
fn untouched(ask: Ask) -> Expected {
    let is_own = node_addresses().contains(&ask.to) || ask.to.is_loopback();
    match Spot::of(ask.to) {
        _ if is_own && ask.port == DAEMON_PORT && ask.protocol == Protocol::Tcp => Expected::Daemon,
        Some(spot) if listens(spot, ask.port) => {
            Expected::Answer([((ask.to, port(ask.port)), Seen::Client)].into())
        }
        Some(_) => Expected::Refused,
        None if is_own => Expected::Refused,
        None => Expected::Nobody,
    }
}

fn listens(spot: Spot, number: u16) -> bool {
    match spot {
        Spot::Client => false,
        Spot::Node => PORTS.contains(&number),
        Spot::A | Spot::B | Spot::C | Spot::D | Spot::E => {
            PORTS.contains(&number) || WORKLOAD_PORTS.contains(&number)
        }
    }
}

/// Returns true if the observed result `heard` of a connection matches the expected one.
pub fn agrees(expected: &Expected, ask: Ask, heard: &Heard) -> bool {
    match (expected, heard) {
        (Expected::Refused, Heard::Refused) | (Expected::Silence | Expected::Nobody, Heard::Silence) => true,
        // The node's kernel rejects the send call, in which case drop and reject are indistinguishable.
        (Expected::Refused | Expected::Silence | Expected::Nobody, Heard::Prohibited) => {
            ask.from == Spot::Node
        }
        // SCTP ignores ICMP port unreachable.
        (Expected::Refused, Heard::Silence) => ask.protocol == Protocol::Sctp,
        (Expected::Daemon, Heard::Answer { name, .. }) => name == "daemon",
        (Expected::Answer(targets), Heard::Answer { name, source, port }) => {
            targets.iter().any(|((address, number), seen)| {
                Spot::of(*address).is_some_and(|spot| spot.name() == name)
                    && number.get() == *port
                    && sees(*address, *seen, ask, *source)
            })
        }
        (
            Expected::Answer(_) | Expected::Daemon | Expected::Refused | Expected::Silence | Expected::Nobody,
            Heard::Answer { .. } | Heard::Refused | Heard::Prohibited | Heard::Silence | Heard::Odd(_),
        ) => false,
    }
}

fn sees(target: IpAddr, seen: Seen, ask: Ask, source: IpAddr) -> bool {
    let is_node = node_addresses().contains(&source);
    let is_client = connection(ask).source == source;
    if ask.from == Spot::Node {
        return is_node;
    }
    // Locally delivered packets do not leave the node, so they are not masqueraded.
    if node_addresses().contains(&target) {
        return is_node || is_client;
    }
    match seen {
        Seen::Client => is_client,
        Seen::Node => is_node,
    }
}
