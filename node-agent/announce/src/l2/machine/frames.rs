//! ARP and NDP frames sent by the announcer.
//!
//! The Router flag of Neighbor Advertisements is never set. The flag describes the target address (RFC 4861
//! §4.4), and load balancer addresses are not used as routers, even if the node is a router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::links::Mac;

use crate::l2::wire::{
    Advertisement, Arp, Frame, Operation, Packet, Solicitation, group_mac, solicited_node_group,
};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the gratuitous announcements of an address. IPv4: an ARP request and an ARP reply, because some
/// neighbors accept only one of them (RFC 5227 §2.3, RFC 5944 §4.6). IPv6: an unsolicited Neighbor
/// Advertisement with the Override flag (RFC 4861 §7.2.6).
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

/// Returns a probe for other users of an address. A probe does not update neighbor caches (RFC 5227 §2.1.1,
/// RFC 4862 §5.4.2).
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

/// Returns the reply to an ARP request, which maps the requested address to `mac`.
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

/// Returns the reply to a Neighbor Solicitation sent by `station` (RFC 4861 §7.2.4). The reply goes to all
/// nodes if the source address is unspecified, otherwise to the sender. If the solicitation has no Source
/// Link-Layer Address option (unicast reachability check), the reply goes to the source MAC of the frame.
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
