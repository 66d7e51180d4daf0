//! Elements in the words of `nft`. Pure.

use std::net::IpAddr;

use model::{
    program::{Destination, Frontend, Target},
    service::Protocol,
};

use super::{
    element::Element,
    schema::{SetId, SetRole},
};

/// An element as `nft` lists it.
pub(super) fn element(element: &Element) -> String {
    match element {
        Element::Dispatch(of, dispatch) | Element::DispatchFrom(of, _, dispatch) => {
            format!("{} : goto {}", frontend(of), dispatch.chain())
        }
        Element::Slot(of, slot, to) => {
            format!("{} . {} : {}", frontend(of), slot.pool.offset() + slot.index, target(to))
        }
        Element::AffinitySlot(of, slot, id) => {
            format!("{} . {} : {:#010x}", frontend(of), slot.pool.offset() + slot.index, id.0)
        }
        Element::AffinityTarget(of, _, id, to) => {
            format!("{} . {:#010x} : {}", frontend(of), id.0, target(to))
        }
        Element::Allowed(of, span) => format!("{} . {}", frontend(of), range(span.first, span.last)),
        Element::Range(of) => format!("{} : {}", frontend(of), of.ports),
        Element::VirtualAddress(address) => address.to_string(),
        Element::Hairpin(address) => format!("{address} . {address}"),
        Element::Network(_, edge) => edge.address.to_string(),
    }
}

/// The key of a frontend.
pub(super) fn frontend(frontend: &Frontend) -> String {
    let protocol = match frontend.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let ports = frontend.ports;
    match frontend.destination {
        Destination::Address(address) => format!("{address} . {protocol} . {ports}"),
        Destination::AnyLocal(_) => format!("{protocol} . {ports}"),
    }
}

/// Whether elements of a set have values.
pub(super) const fn is_map(set: SetId) -> bool {
    match set.role {
        SetRole::Dispatch(_)
        | SetRole::DispatchFrom(..)
        | SetRole::Endpoints(_)
        | SetRole::Affinity(_)
        | SetRole::AffinitySlots(_)
        | SetRole::AffinityTargets(..)
        | SetRole::Ranges => true,
        SetRole::AllowedSources(_) | SetRole::VirtualAddresses | SetRole::Hairpins | SetRole::Networks(_) => {
            false
        }
    }
}

fn target(target: &Target) -> String {
    match target.port {
        Some(port) => format!("{} . {port}", target.address),
        None => target.address.to_string(),
    }
}

fn range(first: IpAddr, last: IpAddr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}
