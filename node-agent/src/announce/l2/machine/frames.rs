//! The frames that an announcer sends.
//!
//! The router flag of neighbour advertisements is never set: it is about the address in question (RFC 4861 §4.4), and
//! nobody uses a load balancer address as a router, whatever the node does with other addresses of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    announce::l2::wire::{
        Advertisement, Arp, Frame, Operation, Packet, Solicitation, group_mac, solicited_node_group,
    },
    links::Mac,
};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What tells all neighbours who has an address: of IPv4 as a request and as a reply, because some understand only one
/// of them (RFC 5227 §2.3, RFC 5944 §4.6); of IPv6 an advertisement that replaces what they know (RFC 4861 §7.2.6).
pub(super) fn gratuitous(address: IpAddr, mac: Mac) -> Vec<Frame> {
    match address {
        IpAddr::V4(v4) => {
            let arp = |operation, target_mac| {
                let packet =
                    Packet::Arp(Arp { operation, sender_mac: mac, sender: v4, target_mac, target: v4 });
                Frame { destination: Mac::BROADCAST, source: mac, packet }
            };
            vec![arp(Operation::Request, Mac::ZERO), arp(Operation::Reply, mac)]
        }
        IpAddr::V6(v6) => vec![advertisement(v6, mac, group_mac(ALL_NODES), ALL_NODES, false)],
    }
}

/// Asks whether anybody has an address, without saying anything about us (RFC 5227 §2.1.1, RFC 4862 §5.4.2).
pub(super) fn probe(address: IpAddr, mac: Mac) -> Frame {
    match address {
        IpAddr::V4(v4) => {
            let packet = Packet::Arp(Arp {
                operation: Operation::Request,
                sender_mac: mac,
                sender: Ipv4Addr::UNSPECIFIED,
                target_mac: Mac::ZERO,
                target: v4,
            });
            Frame { destination: Mac::BROADCAST, source: mac, packet }
        }
        IpAddr::V6(v6) => {
            let destination = solicited_node_group(v6);
            let packet = Packet::Solicitation(Solicitation {
                source: Ipv6Addr::UNSPECIFIED,
                destination,
                target: v6,
                source_mac: None,
            });
            Frame { destination: group_mac(destination), source: mac, packet }
        }
    }
}

/// The answer to an ARP request.
pub(super) fn arp_reply(request: &Arp, mac: Mac) -> Frame {
    let packet = Packet::Arp(Arp {
        operation: Operation::Reply,
        sender_mac: mac,
        sender: request.target,
        target_mac: request.sender_mac,
        target: request.sender,
    });
    Frame { destination: request.sender_mac, source: mac, packet }
}

/// The answer to a solicitation that `station` has sent (RFC 4861 §7.2.4): to all nodes when the asker has no address
/// yet, else to the asker; where a check of a known neighbour does not say who asks, the frame does.
pub(super) fn neighbor_reply(solicitation: &Solicitation, station: Mac, mac: Mac) -> Frame {
    if solicitation.source.is_unspecified() {
        return advertisement(solicitation.target, mac, group_mac(ALL_NODES), ALL_NODES, false);
    }
    let to = solicitation.source_mac.unwrap_or(station);
    advertisement(solicitation.target, mac, to, solicitation.source, true)
}

fn advertisement(address: Ipv6Addr, mac: Mac, to: Mac, destination: Ipv6Addr, is_solicited: bool) -> Frame {
    let packet = Packet::Advertisement(Advertisement {
        source: address,
        destination,
        is_router: false,
        is_solicited,
        is_override: true,
        target: address,
        target_mac: Some(mac),
    });
    Frame { destination: to, source: mac, packet }
}
