//! nf_tables expressions used by the agent's rules, and their netlink encoding.
//!
//! An expression is sent with every attribute that the kernel reports when the rule is read back, even
//! attributes with their default value. Therefore a rule in the kernel can be compared with the wanted rule
//! attribute by attribute, without decoding.

use std::fmt;

use model::primitives::net::IpFamily;

use super::{conntrack_field::ConntrackField, nfproto, quoted::QuotedField, uapi};
use crate::netlink::wire::{AttributeIter, Attributes, MalformedMessage};

/// Number of an nf_tables register, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u32);

impl Register {
    /// Returns the register that starts with the 32-bit word `index`, counted from the first word of register
    /// 1. The kernel reports a word that starts a 128-bit register under the number of that register.
    #[must_use]
    pub const fn word(index: u32) -> Self {
        if index.is_multiple_of(4) { Self(index / 4 + 1) } else { Self(8 + index) }
    }
}

/// Expression of an nf_tables rule, applied to the packet that traverses the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Loads metadata of the packet into a register.
    LoadMeta(Meta, Register),
    /// Sets the packet mark to the value of the register.
    StoreMark(Register),
    /// Continues the rule only if the comparison holds.
    Compare {
        /// True to compare for equality, false for inequality.
        equal: bool,
        /// Register with the bytes to compare.
        from: Register,
        /// Bytes with which the register is compared.
        value: Vec<u8>,
    },
    /// Loads the source address of the packet's network header.
    LoadSource(IpFamily, Register),
    /// Loads the destination address of the packet's network header.
    LoadDestination(IpFamily, Register),
    /// Loads the first byte of an IPv4 destination address, to match loopback addresses.
    LoadDestinationFirstByte(Register),
    /// Loads the destination port of TCP, UDP or SCTP.
    LoadDestinationPort(Register),
    /// Loads the source port of TCP, UDP or SCTP.
    LoadSourcePort(Register),
    /// Loads the flags of the TCP header, one byte.
    LoadTcpFlags(Register),
    /// Loads the 16-bit word of the network header that contains the time to live or hop limit.
    LoadHopLimit(IpFamily, Register),
    /// Replaces the word that [`Expr::LoadHopLimit`] loads by the register, and updates the checksum of IPv4.
    StoreHopLimit(IpFamily, Register),
    /// Exempts the packet from connection tracking.
    Notrack,
    /// Loads the type of an ICMP or ICMPv6 message.
    LoadIcmpType(Register),
    /// Loads a field of the packet that an ICMP or ICMPv6 error quotes after its own header of 8 bytes.
    LoadQuoted(QuotedField, IpFamily, Register),
    /// Loads the routing type of the source address (`fib saddr type`), which is `RTN_LOCAL` for addresses of
    /// the node.
    LoadSourceIsLocal(Register),
    /// Loads the routing type of the destination address (`fib daddr type`), which is `RTN_LOCAL` for
    /// addresses of the node.
    LoadDestinationIsLocal(Register),
    /// Loads the index of the inbound interface if packets to the source address leave through it, otherwise zero
    /// (`fib saddr . iif oif`).
    LoadReversePath(Register),
    /// Loads the state of the packet in connection tracking as a bit, such as [`CONNTRACK_INVALID`] (`ct state`).
    LoadConntrackState(Register),
    /// Loads the status bits of the connection (`IPS_…`).
    LoadConntrackStatus(Register),
    /// Loads a field of the connection.
    LoadConntrack(ConntrackField, Register),
    /// Loads a random number in host byte order.
    Random {
        /// Number of possible values: results are in `offset..offset + modulus`.
        modulus: u32,
        /// Smallest possible value.
        offset: u32,
        /// Register that receives the number.
        to: Register,
    },
    /// Loads a hash of the input words, in host byte order.
    Hash {
        /// First register of the hashed words.
        from: Register,
        /// Number of hashed 32-bit words.
        words: u32,
        /// Number of possible values: results are in `offset..offset + modulus`.
        modulus: u32,
        /// Smallest possible value.
        offset: u32,
        /// Register that receives the hash.
        to: Register,
    },
    /// Sets a register to `(register & mask) ^ xor`.
    Bitwise {
        /// Register that is read and overwritten.
        register: Register,
        /// Bits of the register to keep, in host byte order.
        mask: u32,
        /// Bits to invert after masking, in host byte order.
        xor: u32,
    },
    /// Continues the rule only if the set contains the key in the registers from `from` on.
    InSet {
        /// Name of the set in which the key is looked up.
        set: String,
        /// First register of the key.
        from: Register,
    },
    /// Executes the verdict that a map contains for the key; ends the rule if the key is missing.
    VerdictMap {
        /// Name of the map in which the key is looked up.
        map: String,
        /// First register of the key.
        from: Register,
    },
    /// Loads the value that a map contains for the key; ends the rule if the key is missing.
    Map {
        /// Name of the map in which the key is looked up.
        map: String,
        /// First register of the key.
        from: Register,
        /// First register that receives the value.
        to: Register,
    },
    /// Adds a key to a map, or removes it, when a packet reaches the rule; ends the rule if the map is full.
    Dynamic {
        /// Addition or removal of the key.
        operation: DynamicSet,
        /// Name of the map that is changed.
        map: String,
        /// First register of the key.
        key: Register,
        /// First register of the value to store.
        data: Register,
    },
    /// Replaces the destination address (DNAT), and the port if a register is given.
    DestinationNat {
        /// Address family of the new destination.
        family: IpFamily,
        /// First register of the new address.
        address: Register,
        /// Register of the new port; `None` keeps the port.
        port: Option<Register>,
    },
    /// Redirects the connection to this node, at a port from a register.
    Redirect {
        /// Register of the new port.
        port: Register,
    },
    /// Redirects the connection to this node, at an address of the inbound interface; the port is kept.
    RedirectHere,
    /// Masquerades: replaces the source address by that of the outbound interface, and the source port by a
    /// random free one, so that two connections rarely race for the same port.
    Masquerade,
    /// Rejects the packet with a TCP reset.
    RejectTcpReset,
    /// Rejects the packet with ICMP port unreachable.
    RejectPortUnreachable,
    /// Executes a verdict: continues in another chain, or drops the packet.
    Verdict(VerdictExpr),
}

/// Bit of the conntrack state of packets that connection tracking cannot assign to a connection, such as TCP
/// segments outside of the window (`NF_CT_STATE_INVALID_BIT`).
pub const CONNTRACK_INVALID: u32 = 1;

/// Change of a map by a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DynamicSet {
    /// Addition of the key with the value. If the key exists, its timeout is refreshed.
    Update {
        /// Timeout of the entry, in seconds.
        seconds: u32,
    },
    /// Removal of the key.
    Delete,
}

/// Metadata of a packet that can be loaded into a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// Packet mark (`meta mark`).
    Mark,
    /// Network protocol: IPv4 or IPv6 (`meta nfproto`).
    NfProto,
    /// Transport protocol number (`meta l4proto`).
    L4Proto,
    /// Name of the inbound interface, 16 bytes that are padded with zeros (`meta iifname`).
    InboundInterface,
    /// Name of the outbound interface, 16 bytes that are padded with zeros (`meta oifname`).
    OutboundInterface,
}

/// Verdict of a rule, after which the following expressions are not evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictExpr {
    /// Continuation in another chain, and afterwards at the next rule of this chain.
    Jump(String),
    /// Continuation in another chain, without return to this chain.
    Goto(String),
    /// Drop of the packet.
    Drop,
    /// End of the base chain; the packet continues at the next hook.
    Accept,
}

impl Expr {
    /// Creates a comparison of a register with a value for equality.
    #[must_use]
    pub fn equal(register: u32, value: &[u8]) -> Self {
        Self::Compare { equal: true, from: Register(register), value: value.to_vec() }
    }

    /// Creates a comparison of a register with a value for inequality.
    #[must_use]
    pub fn unequal(register: u32, value: &[u8]) -> Self {
        Self::Compare { equal: false, from: Register(register), value: value.to_vec() }
    }

    /// Creates an expression that keeps only the bits of a register that `mask` contains.
    #[must_use]
    pub const fn bits(register: u32, mask: u32) -> Self {
        Self::Bitwise { register: Register(register), mask, xor: 0 }
    }

    /// Encodes the expression as one element of a rule's expression list.
    #[must_use]
    pub fn encode(&self) -> Attributes {
        let shape = self.shape();
        Attributes::default().text(uapi::NFTA_EXPR_NAME, shape.name).nested(uapi::NFTA_EXPR_DATA, &shape.data)
    }

    /// Returns true if an expression in the kernel, given by name and attributes, is equal to this one.
    ///
    /// # Errors
    /// Returns an error if the attribute list is malformed.
    pub fn matches(&self, name: &str, data: AttributeIter<'_>) -> Result<bool, MalformedMessage> {
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
            Self::LoadTcpFlags(to) => payload(Header::Transport, 13, 1, *to),
            Self::LoadHopLimit(family, to) => payload(Header::Network, hop_limit_at(*family), 2, *to),
            Self::StoreHopLimit(family, from) => {
                let attributes = Attributes::default().be32(2, 1).be32(3, hop_limit_at(*family)).be32(4, 2);
                // NFT_PAYLOAD_CSUM_INET at offset 10; IPv6 has no checksum.
                let (kind, at) = match family {
                    IpFamily::V4 => (1, 10),
                    IpFamily::V6 => (0, 0),
                };
                let attributes = attributes.be32(5, from.0).be32(6, kind).be32(7, at).be32(8, 0);
                Shape::new("payload", 8, attributes)
            }
            Self::Notrack => Shape::new("notrack", 0, empty()),
            Self::LoadIcmpType(to) => payload(Header::Transport, 0, 1, *to),
            Self::LoadQuoted(field, family, to) => {
                let (offset, length) = field.place(*family);
                payload(Header::Transport, offset, length, *to)
            }
            // NFT_FIB_RESULT_ADDRTYPE by NFTA_FIB_F_SADDR.
            Self::LoadSourceIsLocal(to) => Shape::new("fib", 3, empty().be32(1, to.0).be32(2, 3).be32(3, 1)),
            // NFT_FIB_RESULT_ADDRTYPE by NFTA_FIB_F_DADDR.
            Self::LoadDestinationIsLocal(to) => {
                Shape::new("fib", 3, empty().be32(1, to.0).be32(2, 3).be32(3, 2))
            }
            // NFT_FIB_RESULT_OIF by NFTA_FIB_F_SADDR and NFTA_FIB_F_IIF.
            Self::LoadReversePath(to) => Shape::new("fib", 3, empty().be32(1, to.0).be32(2, 1).be32(3, 9)),
            // NFT_CT_STATE.
            Self::LoadConntrackState(to) => Shape::new("ct", 4, empty().be32(1, to.0).be32(2, 0)),
            // NFT_CT_STATUS.
            Self::LoadConntrackStatus(to) => Shape::new("ct", 4, empty().be32(1, to.0).be32(2, 2)),
            Self::LoadConntrack(field, to) => Shape::new("ct", 4, field.attributes(*to)),
            Self::Random { modulus, offset, to } => {
                let attributes = empty().be32(1, to.0).be32(2, *modulus).be32(3, 1).be32(4, *offset);
                Shape::new("numgen", 4, attributes)
            }
            Self::Hash { from, words, modulus, offset, to } => {
                let attributes = empty().be32(1, from.0).be32(2, to.0).be32(3, words * 4);
                let attributes = attributes.be32(4, *modulus).be32(5, HASH_SEED);
                // The kernel does not report an offset of zero, so it is not sent.
                let attributes = if *offset == 0 { attributes } else { attributes.be32(6, *offset) };
                // NFT_HASH_JENKINS.
                Shape::new("hash", 7, attributes.be32(7, 0))
            }
            Self::Bitwise { register, mask, xor } => {
                let data = |number: u32| empty().bytes(uapi::NFTA_DATA_VALUE, &number.to_ne_bytes());
                let attributes = empty().be32(1, register.0).be32(2, register.0).be32(3, 4).be32(6, 0);
                Shape::new("bitwise", 7, attributes.nested(4, &data(*mask)).nested(5, &data(*xor)))
            }
            Self::InSet { set, from } => lookup(set, *from, None),
            Self::VerdictMap { map, from } => lookup(map, *from, Some(Register(0))),
            Self::Map { map, from, to } => lookup(map, *from, Some(*to)),
            Self::Dynamic { operation, map, key, data } => dynamic(*operation, map, *key, *data),
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
    /// Encodes the verdict as an attribute list.
    #[must_use]
    pub fn encode(&self) -> Attributes {
        let (code, chain) = match self {
            Self::Jump(chain) => (uapi::NFT_JUMP, Some(chain)),
            Self::Goto(chain) => (uapi::NFT_GOTO, Some(chain)),
            Self::Drop => (uapi::NF_DROP, None),
            // NF_ACCEPT.
            Self::Accept => (1, None),
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
            Self::InboundInterface => 6,
            Self::OutboundInterface => 7,
            Self::NfProto => 15,
            Self::L4Proto => 16,
        }
    }
}

/// Name and attributes of an encoded expression.
struct Shape {
    name: &'static str,
    /// Highest known attribute of this expression. Attributes beyond it, reported by newer kernels, are not
    /// compared.
    attribute_max: u16,
    data: Attributes,
}

impl Shape {
    const fn new(name: &'static str, attribute_max: u16, data: Attributes) -> Self {
        Self { name, attribute_max, data }
    }
}

/// Returns the offset in the network header of the word with the time to live (first byte) or hop limit (second byte).
const fn hop_limit_at(family: IpFamily) -> u32 {
    match family {
        IpFamily::V4 => 8,
        IpFamily::V6 => 6,
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

/// Seed of the hash expressions. The value is arbitrary, but must be the same on all nodes and in all
/// versions, because it determines the hash of a client, and so the endpoint that is selected for the
/// client.
pub const HASH_SEED: u32 = 0x7469_6465;

fn dynamic(operation: DynamicSet, map: &str, key: Register, data: Register) -> Shape {
    // NFT_DYNSET_OP_UPDATE, NFT_DYNSET_OP_DELETE.
    let (number, seconds) = match operation {
        DynamicSet::Update { seconds } => (1, seconds),
        DynamicSet::Delete => (2, 0),
    };
    let attributes = Attributes::default().text(1, map).be32(3, number);
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

/// Converts attributes into pairs of type and canonical value, so that two attribute lists can be compared.
/// Leaves out attributes whose type is above `kind_max`.
fn flatten(
    attributes: AttributeIter<'_>,
    kind_max: Option<u16>,
) -> Result<Vec<(u16, Vec<u8>)>, MalformedMessage> {
    let mut flat = Vec::new();
    for attribute in attributes {
        let attribute = attribute?;
        if kind_max.is_none_or(|max| attribute.kind <= max) {
            flat.push((attribute.kind, canonical(attribute.value)));
        }
    }
    Ok(flat)
}

/// Encodes the attribute value without nesting flags, so that nested lists with and without these flags
/// compare equal. Other values are returned unchanged.
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
            Self::LoadTcpFlags(to) => write!(f, "r{} = tcp flags", to.0),
            Self::LoadHopLimit(_, to) => write!(f, "r{} = hop limit", to.0),
            Self::StoreHopLimit(_, from) => write!(f, "hop limit = r{}", from.0),
            Self::Notrack => f.write_str("notrack"),
            Self::LoadIcmpType(to) => write!(f, "r{} = icmp type", to.0),
            Self::LoadQuoted(field, _, to) => write!(f, "r{} = quoted {field:?}", to.0),
            Self::LoadSourceIsLocal(to) => write!(f, "r{} = fib saddr type", to.0),
            Self::LoadDestinationIsLocal(to) => write!(f, "r{} = fib daddr type", to.0),
            Self::LoadReversePath(to) => write!(f, "r{} = fib saddr . iif oif", to.0),
            Self::LoadConntrackState(to) => write!(f, "r{} = ct state", to.0),
            Self::LoadConntrackStatus(to) => write!(f, "r{} = ct status", to.0),
            Self::LoadConntrack(field, to) => write!(f, "r{} = ct {field:?}", to.0),
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
            Self::Verdict(VerdictExpr::Accept) => f.write_str("accept"),
        }
    }
}

#[cfg(test)]
mod tests;
