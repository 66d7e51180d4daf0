//! The few nf_tables expressions that our rules are made of, and how they look on the wire.
//!
//! An expression is sent with every attribute that the kernel shows when it is read back, also where the default would
//! do. So a rule in the kernel is compared with what it should be attribute by attribute, without decoding it.

use std::fmt;

use model::primitives::net::IpFamily;

use super::{
    schema::{SetId, nfproto},
    uapi,
};
use crate::netlink::wire::{AttributeIter, Attributes, Malformed};

/// A register, by the number that the kernel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u32);

impl Register {
    /// The register that starts with the 32-bit word `index`, counted from the first word of register 1. The kernel
    /// shows words that start a 128-bit register under the number of that register.
    #[must_use]
    pub const fn word(index: u32) -> Self {
        if index.is_multiple_of(4) { Self(index / 4 + 1) } else { Self(8 + index) }
    }
}

/// One expression of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Loads a fact about the packet.
    LoadMeta(Meta, Register),
    /// Makes the register the packet's mark.
    StoreMark(Register),
    /// Goes on with the rule only if the comparison holds.
    Compare {
        /// Whether equality is asked for, or its opposite.
        equal: bool,
        /// What is compared.
        from: Register,
        /// With what.
        value: Vec<u8>,
    },
    /// Loads the source address.
    LoadSource(IpFamily, Register),
    /// Loads the destination address.
    LoadDestination(IpFamily, Register),
    /// Loads the first byte of an IPv4 destination address.
    LoadDestinationFirstByte(Register),
    /// Loads the destination port of TCP, UDP or SCTP.
    LoadDestinationPort(Register),
    /// Loads the source port of TCP, UDP or SCTP.
    LoadSourcePort(Register),
    /// Loads the type of an ICMP or ICMPv6 message.
    LoadIcmpType(Register),
    /// Loads the routing type of the source address.
    LoadSourceIsLocal(Register),
    /// Loads the routing type of the destination address.
    LoadDestinationIsLocal(Register),
    /// Loads the status bits of the connection.
    LoadConntrackStatus(Register),
    /// Loads a random number, in host byte order.
    Random {
        /// How many different numbers.
        modulus: u32,
        /// The lowest one.
        offset: u32,
        /// Where to.
        to: Register,
    },
    /// Loads a number that the same words always give, in host byte order.
    Hash {
        /// Where the words begin.
        from: Register,
        /// How many words.
        words: u32,
        /// How many different numbers.
        modulus: u32,
        /// The lowest one.
        offset: u32,
        /// Where to.
        to: Register,
    },
    /// Sets a register to `(register & mask) ^ xor`.
    Bitwise {
        /// The register.
        register: Register,
        /// In host byte order.
        mask: u32,
        /// In host byte order.
        xor: u32,
    },
    /// Goes on with the rule only if the set holds the registers from `from` on.
    InSet {
        /// The set.
        set: SetId,
        /// Start of the key.
        from: Register,
    },
    /// As [`Self::InSet`], for a set of another table than that of Services.
    InNamedSet {
        /// The name of the set.
        set: &'static str,
        /// Start of the key.
        from: Register,
    },
    /// Does what the map says.
    VerdictMap {
        /// The map.
        map: SetId,
        /// Start of the key.
        from: Register,
    },
    /// Loads what the map says; ends the rule when it has no such key.
    Map {
        /// The map.
        map: SetId,
        /// Start of the key.
        from: Register,
        /// Where to.
        to: Register,
    },
    /// Changes a map that packets fill; ends the rule when the map is full.
    Dynamic {
        /// What is done.
        operation: DynamicSet,
        /// The map.
        map: SetId,
        /// Start of the key.
        key: Register,
        /// Start of the value.
        data: Register,
    },
    /// Replaces the destination address, and the port if one is given.
    DestinationNat {
        /// The family of the address.
        family: IpFamily,
        /// Start of the address.
        address: Register,
        /// The port.
        port: Option<Register>,
    },
    /// Makes this node the destination, at a port.
    Redirect {
        /// The port.
        port: Register,
    },
    /// Makes this node the destination, at an address of the interface that the packet came in by.
    RedirectHere,
    /// Replaces the source address by that of the interface, and the source port by a random free one, so that two
    /// connections rarely race for the same port.
    Masquerade,
    /// Answers a TCP segment with a reset.
    RejectTcpReset,
    /// Answers with ICMP port unreachable.
    RejectPortUnreachable,
    /// Goes on elsewhere, or ends.
    Verdict(VerdictExpr),
}

/// What a packet does to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DynamicSet {
    /// Adds the key with the value, or lets a key that is there live longer.
    Update {
        /// How long from here on.
        seconds: u32,
    },
    /// Removes the key.
    Delete,
}

/// A fact about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// Its mark.
    Mark,
    /// Its network protocol.
    NfProto,
    /// Its transport protocol.
    L4Proto,
}

/// Where a packet goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictExpr {
    /// Into a chain, and back.
    Jump(String),
    /// Into a chain.
    Goto(String),
    /// Nowhere.
    Drop,
}

impl Expr {
    /// A comparison for equality.
    #[must_use]
    pub fn equal(register: u32, value: &[u8]) -> Self {
        Self::Compare { equal: true, from: Register(register), value: value.to_vec() }
    }

    /// A comparison for difference.
    #[must_use]
    pub fn unequal(register: u32, value: &[u8]) -> Self {
        Self::Compare { equal: false, from: Register(register), value: value.to_vec() }
    }

    /// Keeps the bits of a mask only.
    #[must_use]
    pub const fn bits(register: u32, mask: u32) -> Self {
        Self::Bitwise { register: Register(register), mask, xor: 0 }
    }

    /// The expression as one element of a rule's list.
    #[must_use]
    pub fn encode(&self) -> Attributes {
        let shape = self.shape();
        Attributes::default().text(uapi::NFTA_EXPR_NAME, shape.name).nested(uapi::NFTA_EXPR_DATA, &shape.data)
    }

    /// Whether an expression in the kernel (its name and attribute list) does the same.
    ///
    /// # Errors
    /// When the list is malformed.
    pub fn matches(&self, name: &str, data: AttributeIter<'_>) -> Result<bool, Malformed> {
        let shape = self.shape();
        if shape.name != name {
            return Ok(false);
        }
        let mut shown = flatten(data, Some(shape.attribute_max))?;
        let mut wanted = flatten(AttributeIter::new(shape.data.as_bytes()), None)?;
        shown.sort_unstable();
        wanted.sort_unstable();
        Ok(shown == wanted)
    }

    fn shape(&self) -> Shape {
        let empty = Attributes::default;
        match self {
            Self::LoadMeta(meta, to) => Shape::new("meta", 3, empty().be32(1, to.0).be32(2, meta.key())),
            Self::StoreMark(from) => Shape::new("meta", 3, empty().be32(2, Meta::Mark.key()).be32(3, from.0)),
            Self::Compare { equal, from, value } => {
                let attributes = empty().be32(1, from.0).be32(2, u32::from(!equal));
                Shape::new("cmp", 3, attributes.nested(3, &empty().bytes(uapi::NFTA_DATA_VALUE, value)))
            }
            Self::LoadSource(IpFamily::V4, to) => payload(Header::Network, 12, 4, *to),
            Self::LoadSource(IpFamily::V6, to) => payload(Header::Network, 8, 16, *to),
            Self::LoadDestination(IpFamily::V4, to) => payload(Header::Network, 16, 4, *to),
            Self::LoadDestination(IpFamily::V6, to) => payload(Header::Network, 24, 16, *to),
            Self::LoadDestinationFirstByte(to) => payload(Header::Network, 16, 1, *to),
            Self::LoadDestinationPort(to) => payload(Header::Transport, 2, 2, *to),
            Self::LoadSourcePort(to) => payload(Header::Transport, 0, 2, *to),
            Self::LoadIcmpType(to) => payload(Header::Transport, 0, 1, *to),
            // NFT_FIB_RESULT_ADDRTYPE by NFTA_FIB_F_SADDR.
            Self::LoadSourceIsLocal(to) => Shape::new("fib", 3, empty().be32(1, to.0).be32(2, 3).be32(3, 1)),
            // NFT_FIB_RESULT_ADDRTYPE by NFTA_FIB_F_DADDR.
            Self::LoadDestinationIsLocal(to) => {
                Shape::new("fib", 3, empty().be32(1, to.0).be32(2, 3).be32(3, 2))
            }
            // NFT_CT_STATUS.
            Self::LoadConntrackStatus(to) => Shape::new("ct", 4, empty().be32(1, to.0).be32(2, 2)),
            Self::Random { modulus, offset, to } => {
                let attributes = empty().be32(1, to.0).be32(2, *modulus).be32(3, 1).be32(4, *offset);
                Shape::new("numgen", 4, attributes)
            }
            Self::Hash { from, words, modulus, offset, to } => {
                let attributes = empty().be32(1, from.0).be32(2, to.0).be32(3, words * 4);
                let attributes = attributes.be32(4, *modulus).be32(5, HASH_SEED);
                // The kernel does not show an offset of zero, nor need it be told.
                let attributes = if *offset == 0 { attributes } else { attributes.be32(6, *offset) };
                // NFT_HASH_JENKINS.
                Shape::new("hash", 7, attributes.be32(7, 0))
            }
            Self::Bitwise { register, mask, xor } => {
                let data = |number: u32| empty().bytes(uapi::NFTA_DATA_VALUE, &number.to_ne_bytes());
                let attributes = empty().be32(1, register.0).be32(2, register.0).be32(3, 4).be32(6, 0);
                Shape::new("bitwise", 7, attributes.nested(4, &data(*mask)).nested(5, &data(*xor)))
            }
            Self::InSet { set, from } => lookup(&set.to_string(), *from, None),
            Self::InNamedSet { set, from } => lookup(set, *from, None),
            Self::VerdictMap { map, from } => lookup(&map.to_string(), *from, Some(Register(0))),
            Self::Map { map, from, to } => lookup(&map.to_string(), *from, Some(*to)),
            Self::Dynamic { operation, map, key, data } => dynamic(*operation, *map, *key, *data),
            Self::DestinationNat { family, address, port } => {
                // NFT_NAT_DNAT.
                let attributes = empty().be32(1, 1).be32(2, nfproto(*family).into());
                let attributes = attributes.be32(3, address.0).be32(4, address.0);
                // Flags MAP_IPS and PROTO_SPECIFIED.
                Shape::new(
                    "nat",
                    7,
                    match port {
                        Some(port) => attributes.be32(5, port.0).be32(6, port.0).be32(7, 3),
                        None => attributes.be32(7, 1),
                    },
                )
            }
            Self::Redirect { port } => {
                // Flag PROTO_SPECIFIED.
                Shape::new("redir", 3, empty().be32(1, port.0).be32(2, port.0).be32(3, 2))
            }
            Self::RedirectHere => Shape::new("redir", 3, empty()),
            // NF_NAT_RANGE_PROTO_RANDOM_FULLY.
            Self::Masquerade => Shape::new("masq", 3, empty().be32(1, 0x10)),
            Self::RejectTcpReset => Shape::new("reject", 2, empty().be32(1, 1)),
            // NFT_REJECT_ICMPX_UNREACH with NFT_REJECT_ICMPX_PORT_UNREACH.
            Self::RejectPortUnreachable => Shape::new("reject", 2, empty().be32(1, 2).bytes(2, &[1])),
            Self::Verdict(verdict) => {
                let verdict = empty().nested(uapi::NFTA_DATA_VERDICT, &verdict.encode());
                Shape::new("immediate", 2, empty().be32(1, 0).nested(2, &verdict))
            }
        }
    }
}

impl VerdictExpr {
    /// The attributes of the verdict.
    #[must_use]
    pub fn encode(&self) -> Attributes {
        let (code, chain) = match self {
            Self::Jump(chain) => (uapi::NFT_JUMP, Some(chain)),
            Self::Goto(chain) => (uapi::NFT_GOTO, Some(chain)),
            Self::Drop => (uapi::NF_DROP, None),
        };
        let attributes = Attributes::default().bytes(uapi::NFTA_VERDICT_CODE, &code.to_be_bytes());
        match chain {
            Some(chain) => attributes.text(uapi::NFTA_VERDICT_CHAIN, chain),
            None => attributes,
        }
    }
}

impl Meta {
    const fn key(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::NfProto => 15,
            Self::L4Proto => 16,
        }
    }
}

/// An expression on the wire.
struct Shape {
    name: &'static str,
    /// The highest attribute of this expression that we know. What a newer kernel shows beyond it is not compared.
    attribute_max: u16,
    data: Attributes,
}

impl Shape {
    const fn new(name: &'static str, attribute_max: u16, data: Attributes) -> Self {
        Self { name, attribute_max, data }
    }
}

enum Header {
    Network,
    Transport,
}

fn payload(header: Header, offset: u32, length: u32, to: Register) -> Shape {
    let base = match header {
        Header::Network => 1,
        Header::Transport => 2,
    };
    Shape::new(
        "payload",
        8,
        Attributes::default().be32(1, to.0).be32(2, base).be32(3, offset).be32(4, length),
    )
}

/// Any number does, but it must be the same on all nodes and for ever.
pub(super) const HASH_SEED: u32 = 0x7469_6465;

fn dynamic(operation: DynamicSet, map: SetId, key: Register, data: Register) -> Shape {
    // NFT_DYNSET_OP_UPDATE, NFT_DYNSET_OP_DELETE.
    let (number, seconds) = match operation {
        DynamicSet::Update { seconds } => (1, seconds),
        DynamicSet::Delete => (2, 0),
    };
    let attributes = Attributes::default().text(1, &map.to_string()).be32(3, number);
    let attributes = attributes.be32(4, key.0).be32(5, data.0);
    Shape::new("dynset", 9, attributes.be64(6, u64::from(seconds) * 1000).be32(9, 0))
}

fn lookup(set: &str, from: Register, to: Option<Register>) -> Shape {
    let mut attributes = Attributes::default().text(1, set).be32(2, from.0);
    if let Some(to) = to {
        attributes = attributes.be32(3, to.0);
    }
    Shape::new("lookup", 5, attributes.be32(5, 0))
}

/// The attributes as comparable pairs. Padding that the kernel shows behind the flags of nesting does not count.
fn flatten(attributes: AttributeIter<'_>, kind_max: Option<u16>) -> Result<Vec<(u16, Vec<u8>)>, Malformed> {
    let mut flat = Vec::new();
    for attribute in attributes {
        let attribute = attribute?;
        if kind_max.is_none_or(|max| attribute.kind <= max) {
            flat.push((attribute.kind, canonical(attribute.value)));
        }
    }
    Ok(flat)
}

/// A payload without the nesting flags inside it, so that both spellings of a nested list compare equal.
fn canonical(value: &[u8]) -> Vec<u8> {
    let nested: Result<Vec<_>, _> = AttributeIter::new(value).collect();
    match nested {
        Ok(inner) if !inner.is_empty() && inner.iter().all(|attribute| attribute.kind != 0) => {
            let rebuilt = inner.iter().map(|attribute| (attribute.kind, canonical(attribute.value)));
            rebuilt.flat_map(|(kind, bytes)| [kind.to_ne_bytes().to_vec(), bytes].concat()).collect()
        }
        Ok(_) | Err(_) => value.to_vec(),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadMeta(meta, to) => write!(f, "r{} = meta {meta:?}", to.0),
            Self::StoreMark(from) => write!(f, "meta mark = r{}", from.0),
            Self::Compare { equal, from, value } => {
                write!(f, "r{} {} {value:?}", from.0, if *equal { "==" } else { "!=" })
            }
            Self::LoadSource(_, to) => write!(f, "r{} = saddr", to.0),
            Self::LoadDestination(_, to) => write!(f, "r{} = daddr", to.0),
            Self::LoadDestinationFirstByte(to) => write!(f, "r{} = daddr[0]", to.0),
            Self::LoadDestinationPort(to) => write!(f, "r{} = dport", to.0),
            Self::LoadSourcePort(to) => write!(f, "r{} = sport", to.0),
            Self::LoadIcmpType(to) => write!(f, "r{} = icmp type", to.0),
            Self::LoadSourceIsLocal(to) => write!(f, "r{} = fib saddr type", to.0),
            Self::LoadDestinationIsLocal(to) => write!(f, "r{} = fib daddr type", to.0),
            Self::LoadConntrackStatus(to) => write!(f, "r{} = ct status", to.0),
            Self::Random { modulus, offset, to } => {
                write!(f, "r{} = random mod {modulus} offset {offset}", to.0)
            }
            Self::Hash { from, words, modulus, offset, to } => {
                write!(f, "r{} = hash r{} {words} words mod {modulus} offset {offset}", to.0, from.0)
            }
            Self::Bitwise { register, mask, xor } => {
                write!(f, "r{0} = r{0} & {mask:#x} ^ {xor:#x}", register.0)
            }
            Self::InSet { set, from } => write!(f, "r{} in @{set}", from.0),
            Self::InNamedSet { set, from } => write!(f, "r{} in @{set}", from.0),
            Self::VerdictMap { map, from } => write!(f, "verdict r{} @{map}", from.0),
            Self::Map { map, from, to } => write!(f, "r{} = @{map}[r{}]", to.0, from.0),
            Self::Dynamic { operation: DynamicSet::Update { seconds }, map, key, data } => {
                write!(f, "update @{map}[r{}] = r{} for {seconds} s", key.0, data.0)
            }
            Self::Dynamic { operation: DynamicSet::Delete, map, key, .. } => {
                write!(f, "delete @{map}[r{}]", key.0)
            }
            Self::DestinationNat { address, port: Some(port), .. } => {
                write!(f, "dnat r{} port r{}", address.0, port.0)
            }
            Self::DestinationNat { address, port: None, .. } => write!(f, "dnat r{}", address.0),
            Self::Redirect { port } => write!(f, "redirect port r{}", port.0),
            Self::RedirectHere => f.write_str("redirect"),
            Self::Masquerade => f.write_str("masquerade fully-random"),
            Self::RejectTcpReset => f.write_str("reject tcp-reset"),
            Self::RejectPortUnreachable => f.write_str("reject port-unreachable"),
            Self::Verdict(VerdictExpr::Jump(chain)) => write!(f, "jump {chain}"),
            Self::Verdict(VerdictExpr::Goto(chain)) => write!(f, "goto {chain}"),
            Self::Verdict(VerdictExpr::Drop) => f.write_str("drop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_itself_and_no_other() {
        let set = SetId::parse("services4").unwrap();
        let all = [
            Expr::LoadMeta(Meta::Mark, Register(1)),
            Expr::StoreMark(Register(1)),
            Expr::equal(1, &[6]),
            Expr::unequal(1, &[6]),
            Expr::LoadSource(IpFamily::V4, Register(1)),
            Expr::LoadDestination(IpFamily::V4, Register(1)),
            Expr::Random { modulus: 2, offset: 0, to: Register(9) },
            Expr::Random { modulus: 3, offset: 0, to: Register(9) },
            Expr::Random { modulus: 3, offset: 65_536, to: Register(9) },
            Expr::Hash { from: Register(1), words: 1, modulus: 3, offset: 0, to: Register(2) },
            Expr::Hash { from: Register(1), words: 2, modulus: 3, offset: 0, to: Register(2) },
            Expr::Dynamic {
                operation: DynamicSet::Update { seconds: 5 },
                map: set,
                key: Register(1),
                data: Register(2),
            },
            Expr::Dynamic { operation: DynamicSet::Delete, map: set, key: Register(1), data: Register(2) },
            Expr::Redirect { port: Register(1) },
            Expr::RedirectHere,
            Expr::LoadIcmpType(Register(1)),
            Expr::bits(1, 0x4000),
            Expr::InSet { set, from: Register(1) },
            Expr::InNamedSet { set: "ping-answered4", from: Register(1) },
            Expr::VerdictMap { map: set, from: Register(1) },
            Expr::DestinationNat { family: IpFamily::V4, address: Register(1), port: Some(Register(9)) },
            Expr::DestinationNat { family: IpFamily::V4, address: Register(1), port: None },
            Expr::Verdict(VerdictExpr::Drop),
            Expr::Verdict(VerdictExpr::Goto("refuse".into())),
        ];
        for (i, wanted) in all.iter().enumerate() {
            for (j, shown) in all.iter().enumerate() {
                let shape = shown.shape();
                let same = wanted.matches(shape.name, AttributeIter::new(shape.data.as_bytes())).unwrap();
                assert_eq!(same, i == j, "{wanted} against {shown}");
            }
        }
    }

    #[test]
    fn words_that_start_a_register_are_named_by_it() {
        let numbers: Vec<_> = (0..9).map(|word| Register::word(word).0).collect();
        assert_eq!(numbers, [1, 9, 10, 11, 2, 13, 14, 15, 3]);
    }
}
