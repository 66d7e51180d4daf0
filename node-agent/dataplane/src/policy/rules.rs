//! Rules of the chains. Each rule starts with empty registers, because the kernel rejects rules that read registers of an
//! earlier rule. Does no I/O.

use kernel::nftables::{
    expr::{Expr, Meta, Register, VerdictExpr},
    nfproto,
};
use model::{policy::node_policy::Direction, primitives::net::IpFamily};

use super::schema::{PolicyChain, PolicyMap};

/// Transport protocol numbers of TCP and ICMPv6.
const TCP: u8 = 6;
const ICMP_V6: u8 = 58;
/// Bits of the conntrack states established and related (`NF_CT_STATE_BIT`).
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
/// Types of the messages of neighbor discovery (RFC 4861 §4).
const NEIGHBOR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;
/// Flags SYN and ACK of the TCP header; only SYN is set in the first segment of a connection (RFC 9293 §3.5).
const SYN: u8 = 0x02;
const SYN_AND_ACK: u8 = 0x12;

// Words of the registers. The key of a map has consecutive words.
const ADDRESS: u32 = 0;
const SET: u32 = 8;
const PROTOCOL: u32 = 9;
const PORT: u32 = 10;
const CELL: u32 = 11;
const IDENTITY: u32 = 12;
const ACTION: u32 = 13;
const ANSWER: u32 = 14;
const SAVED_MARK: u32 = 15;

/// Returns the rules of a chain, in order.
#[must_use]
pub fn rules(chain: PolicyChain) -> Vec<Vec<Expr>> {
    match chain {
        PolicyChain::Accepted => Vec::new(),
        PolicyChain::Dropped => vec![vec![Expr::Verdict(VerdictExpr::Drop)]],
        PolicyChain::NeighborDiscovery => NEIGHBOR_DISCOVERY.map(neighbor_discovery).collect(),
        PolicyChain::Midstream => IpFamily::ALL.into_iter().flat_map(midstream).collect(),
        PolicyChain::Decide(direction, family) => decide(direction, family),
        PolicyChain::Forward => {
            let both = [Direction::Egress, Direction::Ingress];
            [always_accepted(), hairpins(), both.into_iter().flat_map(subjects).collect()].concat()
        }
        PolicyChain::Input => {
            let both = [Direction::Egress, Direction::Ingress];
            let subjects = both.into_iter().flat_map(subjects).collect();
            [vec![loopback(Meta::InboundInterface)], always_accepted(), hairpins(), subjects].concat()
        }
        PolicyChain::Output => [
            vec![loopback(Meta::OutboundInterface)],
            IpFamily::ALL.map(to_local).to_vec(),
            always_accepted(),
            subjects(Direction::Egress),
        ]
        .concat(),
    }
}

/// Returns the rules with which a base chain begins: packets of known connections and neighbor discovery pass; a TCP
/// segment in the middle of an unknown connection is no new connection.
fn always_accepted() -> Vec<Vec<Expr>> {
    let of_known_connection = vec![
        Expr::LoadConntrackState(Register(1)),
        Expr::bits(1, ESTABLISHED_OR_RELATED),
        Expr::unequal(1, &[0; 4]),
        Expr::Verdict(VerdictExpr::Accept),
    ];
    let midstream = [
        Expr::LoadTcpFlags(Register(1)),
        Expr::bits(1, u32::from_ne_bytes([SYN_AND_ACK, 0, 0, 0])),
        Expr::unequal(1, &[SYN]),
        jump(PolicyChain::Midstream),
    ];
    vec![
        of_known_connection,
        of_protocol(ICMP_V6).into_iter().chain([jump(PolicyChain::NeighborDiscovery)]).collect(),
        of_protocol(TCP).into_iter().chain(midstream).collect(),
    ]
}

fn neighbor_discovery(kind: u8) -> Vec<Expr> {
    vec![Expr::LoadIcmpType(Register(1)), Expr::equal(1, &[kind]), Expr::Verdict(VerdictExpr::Accept)]
}

/// Returns the rules that drop packets from or to a workload with a set. Without them, a segment of the server would open a
/// connection in the opposite direction after the deletion of a forbidden one, whose packets would then be replies.
/// Connections from the time before the first policy are tracked, because every proxy mode uses connection tracking.
fn midstream(family: IpFamily) -> Vec<Vec<Expr>> {
    let sides = [Expr::LoadSource(family, Register(1)), Expr::LoadDestination(family, Register(1))];
    let drop = |(side, direction): (&Expr, Direction)| {
        let lookup = map(PolicyMap::Subjects(direction, family), ADDRESS, SET);
        let rest = [side.clone(), lookup, Expr::Verdict(VerdictExpr::Drop)];
        of_family(family).into_iter().chain(rest).collect()
    };
    let pairs = |side| [Direction::Egress, Direction::Ingress].map(|direction| (side, direction));
    sides.iter().flat_map(pairs).map(drop).collect()
}

/// Returns the rules that accept packets of local workloads to themselves.
fn hairpins() -> Vec<Vec<Expr>> {
    let rule = |family| {
        let pair = [
            Expr::LoadSource(family, Register::word(0)),
            Expr::LoadDestination(family, Register::word(words(family))),
            in_set(PolicyMap::Hairpins(family)),
            Expr::Verdict(VerdictExpr::Accept),
        ];
        of_family(family).into_iter().chain(pair).collect()
    };
    IpFamily::ALL.map(rule).to_vec()
}

/// Returns the rule that accepts packets of this machine to its own workloads.
fn to_local(family: IpFamily) -> Vec<Expr> {
    let rest = [
        Expr::LoadDestination(family, Register(1)),
        in_set(PolicyMap::Locals(family)),
        Expr::Verdict(VerdictExpr::Accept),
    ];
    of_family(family).into_iter().chain(rest).collect()
}

/// Returns the rules that send packets of workloads with a set for a direction to the chain of its decision.
fn subjects(direction: Direction) -> Vec<Vec<Expr>> {
    let rule = |family| {
        let own = load_own(direction, family);
        let lookup = map(PolicyMap::Subjects(direction, family), ADDRESS, SET);
        let rest = [own, lookup, jump(PolicyChain::Decide(direction, family))];
        of_family(family).into_iter().chain(rest).collect()
    };
    IpFamily::ALL.map(rule).to_vec()
}

/// Returns the rules of a decision: by the identity of a workload, by that of networks, and the default of the cell. The last
/// one drops: a packet reaches it only if an element is missing.
fn decide(direction: Direction, family: IpFamily) -> Vec<Vec<Expr>> {
    let set = [load_own(direction, family)].into_iter();
    let set = set.chain(number(PolicyMap::Subjects(direction, family), ADDRESS, SET));
    let ports = [
        Expr::LoadMeta(Meta::L4Proto, Register::word(PROTOCOL)),
        Expr::LoadDestinationPort(Register::word(PORT)),
    ];
    let cell: Vec<_> = set.chain(ports).chain(number(PolicyMap::Ports, SET, CELL)).collect();
    let network =
        [load_peer(direction, family), Expr::LoadMeta(Meta::NfProto, Register::word(words(family)))];
    let of_peer = |peer: &[Expr], identities: PolicyMap| {
        let identity = number(identities, ADDRESS, IDENTITY);
        let decision = number(PolicyMap::Decisions, CELL, ACTION);
        [&cell, peer, &identity, &decision, &[action()]].concat()
    };
    let default = number(PolicyMap::Defaults, CELL, ACTION);
    vec![
        of_peer(&[load_peer(direction, family)], PolicyMap::Identities(family)),
        of_peer(&network, PolicyMap::Networks(family)),
        [&cell[..], &default, &[action()]].concat(),
        vec![Expr::Verdict(VerdictExpr::Drop)],
    ]
}

const fn load_own(direction: Direction, family: IpFamily) -> Expr {
    match direction {
        Direction::Egress => Expr::LoadSource(family, Register(1)),
        Direction::Ingress => Expr::LoadDestination(family, Register(1)),
    }
}

const fn load_peer(direction: Direction, family: IpFamily) -> Expr {
    match direction {
        Direction::Egress => Expr::LoadDestination(family, Register(1)),
        Direction::Ingress => Expr::LoadSource(family, Register(1)),
    }
}

/// Returns the number of words of an address.
const fn words(family: IpFamily) -> u32 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 4,
    }
}

fn loopback(interface: Meta) -> Vec<Expr> {
    vec![
        Expr::LoadMeta(interface, Register(1)),
        Expr::equal(1, b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        Expr::Verdict(VerdictExpr::Accept),
    ]
}

fn of_family(family: IpFamily) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::NfProto, Register(1)), Expr::equal(1, &[nfproto(family)])]
}

fn of_protocol(number: u8) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[number])]
}

fn map(map: PolicyMap, from: u32, to: u32) -> Expr {
    Expr::Map { map: map.to_string(), from: Register::word(from), to: Register::word(to) }
}

/// Returns expressions that look a number up for the key of another map. The value passes through the packet mark, which is
/// restored at once: the map could load the value into the word directly, but then the `nft` command (1.0.6) aborts when it
/// lists the rules.
fn number(from_map: PolicyMap, from: u32, to: u32) -> [Expr; 5] {
    [
        map(from_map, from, ANSWER),
        Expr::LoadMeta(Meta::Mark, Register::word(SAVED_MARK)),
        Expr::StoreMark(Register::word(ANSWER)),
        Expr::LoadMeta(Meta::Mark, Register::word(to)),
        Expr::StoreMark(Register::word(SAVED_MARK)),
    ]
}

fn in_set(set: PolicyMap) -> Expr {
    Expr::InSet { set: set.to_string(), from: Register(1) }
}

fn action() -> Expr {
    Expr::VerdictMap { map: PolicyMap::Actions.to_string(), from: Register::word(ACTION) }
}

fn jump(chain: PolicyChain) -> Expr {
    Expr::Verdict(VerdictExpr::Jump(chain.to_string()))
}
