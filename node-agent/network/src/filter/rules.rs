//! Rules of the chains of the table. Does no I/O.

use kernel::nftables::{
    expr::{Expr, Meta, Register, VerdictExpr},
    nfproto,
};
use model::primitives::net::IpFamily;

use super::FilterSet;
use crate::{desired::TunnelKind, routes::PORT};

/// Transport protocol number of UDP.
const UDP: u8 = 17;
/// Protocol number of IPv4 in IP (RFC 2003 §3.1).
const IPIP: u8 = 4;
/// Index that the kernel reports if packets to a source address do not leave through the inbound interface.
const NO_INTERFACE: [u8; 4] = [0; 4];
/// Bits of the last word of the name of an interface that distinguish names of 13 characters: all that every letter and
/// digit has in common, and all bits of the following characters.
const LAST_WORD_MASK: [u8; 4] = [0x20, 0xff, 0xff, 0xff];
/// Length of the name of an interface in a register, with its zero bytes (`IFNAMSIZ`).
const INTERFACE_NAME_BYTES: usize = 16;
/// Last word of a name of 13 characters after the mask.
const LAST_WORD: [u8; 4] = [0x20, 0, 0, 0];

/// Returns the rules that masquerade packets from `sources` to addresses outside of `inside`.
pub(super) fn outgoing(sources: FilterSet, inside: FilterSet) -> [Vec<Expr>; 2] {
    let is_family = is_family(sources.family);
    let to_inside = [
        Expr::LoadDestination(sources.family, Register(1)),
        in_set(inside),
        Expr::Verdict(VerdictExpr::Accept),
    ];
    let to_outside = [Expr::LoadSource(sources.family, Register(1)), in_set(sources), Expr::Masquerade];
    [
        is_family.iter().cloned().chain(to_inside).collect(),
        is_family.iter().cloned().chain(to_outside).collect(),
    ]
}

/// Returns the rules for packets to this machine: only `nodes` may send packets of a tunnel.
pub(super) fn tunnel(kind: TunnelKind, nodes: FilterSet) -> [Vec<Expr>; 2] {
    let family = nodes.family;
    let in_tunnel: Vec<_> = is_family(family).into_iter().chain(of_tunnel(kind)).collect();
    let of_node = [Expr::LoadSource(family, Register(1)), in_set(nodes), Expr::Verdict(VerdictExpr::Accept)];
    let accepted = in_tunnel.iter().cloned().chain(of_node).collect();
    [accepted, in_tunnel.into_iter().chain([Expr::Verdict(VerdictExpr::Drop)]).collect()]
}

/// Returns the rule for forwarded packets that drops tunnel packets of workloads to any machine. Masquerading gives such
/// packets the address of this node, which other nodes accept.
pub(super) fn workload_tunnel(kind: TunnelKind) -> Vec<Expr> {
    let drop = [Expr::Verdict(VerdictExpr::Drop)];
    of_workload().into_iter().chain(of_tunnel(kind)).chain(drop).collect()
}

/// Returns the same rule as [`workload_tunnel`] for an interface with this name.
pub(super) fn interface_tunnel(kind: TunnelKind, name: &str) -> Vec<Expr> {
    let drop = [Expr::Verdict(VerdictExpr::Drop)];
    from_interface(name).into_iter().chain(of_tunnel(kind)).chain(drop).collect()
}

/// Returns the rules for forwarded packets that drop tunnel packets to `nodes` from other sources, such as clients of a
/// Service whose endpoint is the tunnel port of a node. Address translation can give them the address of this node.
pub(super) fn forwarded_tunnel(kind: TunnelKind, nodes: FilterSet) -> [Vec<Expr>; 2] {
    let family = nodes.family;
    let in_tunnel: Vec<_> = is_family(family).into_iter().chain(of_tunnel(kind)).collect();
    let from_node =
        [Expr::LoadSource(family, Register(1)), in_set(nodes), Expr::Verdict(VerdictExpr::Accept)];
    let to_node =
        [Expr::LoadDestination(family, Register(1)), in_set(nodes), Expr::Verdict(VerdictExpr::Drop)];
    [in_tunnel.iter().cloned().chain(from_node).collect(), in_tunnel.into_iter().chain(to_node).collect()]
}

/// Returns the rule that drops packets of a workload whose source address is not one of the workload. The link-local address
/// of a workload passes, because its network is on the interface; so do duplicate address detection and DHCP, whose
/// packets have no source address and which the kernel does not look up.
pub(super) fn foreign_source() -> Vec<Expr> {
    of_workload().into_iter().chain(drop_without_reverse_path()).collect()
}

/// Returns the same rule as [`foreign_source`] for an interface with this name.
pub(super) fn foreign_source_of(name: &str) -> Vec<Expr> {
    from_interface(name).into_iter().chain(drop_without_reverse_path()).collect()
}

fn drop_without_reverse_path() -> [Expr; 3] {
    [Expr::LoadReversePath(Register(1)), Expr::equal(1, &NO_INTERFACE), Expr::Verdict(VerdictExpr::Drop)]
}

/// Returns expressions that match packets from the interface with this name.
fn from_interface(name: &str) -> [Expr; 2] {
    let mut value = [0; INTERFACE_NAME_BYTES];
    value.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    [Expr::LoadMeta(Meta::InboundInterface, Register(1)), Expr::equal(1, &value)]
}

/// Returns expressions that match packets from the interface of a workload, by the form of its name
/// ([`crate::attach::names::is_host_interface`]).
fn of_workload() -> [Expr; 5] {
    let last = Register::word(3);
    [
        Expr::LoadMeta(Meta::InboundInterface, Register(1)),
        Expr::equal(1, b"tg"),
        Expr::unequal(1, b"tg-"),
        Expr::Bitwise { register: last, mask: u32::from_ne_bytes(LAST_WORD_MASK), xor: 0 },
        Expr::Compare { equal: true, from: last, value: LAST_WORD.to_vec() },
    ]
}

fn is_family(family: IpFamily) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::NfProto, Register(1)), Expr::equal(1, &[nfproto(family)])]
}

/// Returns expressions that match the packets of a tunnel by their outer header.
fn of_tunnel(kind: TunnelKind) -> Vec<Expr> {
    let is_protocol = |number: u8| [Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[number])];
    match kind {
        TunnelKind::Vxlan => {
            let to_port = [Expr::LoadDestinationPort(Register(1)), Expr::equal(1, &PORT.to_be_bytes())];
            is_protocol(UDP).into_iter().chain(to_port).collect()
        }
        TunnelKind::Ipip => is_protocol(IPIP).to_vec(),
    }
}

fn in_set(set: FilterSet) -> Expr {
    Expr::InSet { set: set.name().to_owned(), from: Register(1) }
}
