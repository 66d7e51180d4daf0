//! Fixed schema of the table of the two-stage path: sets, maps, chains and rules. Does no I/O.
//!
//! ```text
//! forward      (after `raw`, before connection tracking): slots of other nodes ─▶ mark of the owner, no connection tracking
//! former       (after connection tracking): connections that this node does not translate, of slots that moved
//!                 away from this node  ─▶ mark of the owner
//!                 to this node, no SYN ─▶ marks of the former owners, one after another; reset after the last one
//! both: an ICMP error follows the connection whose packet it quotes
//! untranslated (before destination NAT): connections with such a mark stay untranslated
//! ```
//! The mark selects a route to the owner (`kernel::owner_routes`).

use std::fmt;

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        Hook,
        expr::{CONNTRACK_INVALID, Expr, Meta, Register, VerdictExpr},
        nfproto,
        quoted::QuotedField,
        render::message,
        uapi,
    },
    owner_routes::{IDENTITY_MASK, MARK_MASK},
};
use model::{primitives::net::IpFamily, program::survival};

use super::{
    super::{
        notes,
        schema::{Choice, LookupType, SetId, SetRole},
    },
    state::FORMER_OWNERS,
};

/// Set or map of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerSet {
    pub(super) role: OwnerRole,
    pub(super) family: IpFamily,
}

/// Purpose of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerRole {
    /// Workload networks of this node, whose connections this node translates itself.
    Workloads,
    /// Frontends whose slot is a hash of the source address.
    BySource,
    /// Frontends whose slot is a hash of source address and port.
    ByPort,
    /// Map from frontend and slot to the mark of the owner, for slots of other nodes.
    Owners,
    /// The same for slots of other nodes that this node had before.
    Former,
    /// Map from frontend and slot to the mark of the former owner that is asked first (0), second (1), or last (2).
    Previous(u8),
}

impl OwnerRole {
    /// Maps of former owners, in the order in which these are asked.
    pub(super) const PREVIOUS: [Self; FORMER_OWNERS] =
        [Self::Previous(0), Self::Previous(1), Self::Previous(2)];
}

/// Base chain of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerChain {
    /// Chain before connection tracking.
    Forward,
    /// Chain after connection tracking.
    Former,
    /// Chain before destination NAT.
    Untranslated,
}

impl OwnerSet {
    const ROLES: [OwnerRole; 8] = [
        OwnerRole::Workloads,
        OwnerRole::BySource,
        OwnerRole::ByPort,
        OwnerRole::Owners,
        OwnerRole::Former,
        OwnerRole::PREVIOUS[0],
        OwnerRole::PREVIOUS[1],
        OwnerRole::PREVIOUS[2],
    ];

    /// Returns all sets, in creation order.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::ROLES.into_iter().flat_map(|role| IpFamily::ALL.map(|family| Self { role, family }))
    }

    /// Returns the set with this name, or `None` for a name outside of the schema.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.to_string() == name)
    }

    /// Returns the flags of the set, the types of its key as `nft` numbers them, and the length of the key in bytes.
    pub(super) const fn shape(self) -> (u32, u32, u32) {
        let (address, bytes) = match self.family {
            IpFamily::V4 => (7, 4),
            IpFamily::V6 => (8, 16),
        };
        // Address, protocol (12), port (13), integer (4).
        let frontend = (((address << 6) | 12) << 6) | 13;
        match self.role {
            OwnerRole::Workloads => (uapi::NFT_SET_INTERVAL, address, bytes),
            OwnerRole::BySource | OwnerRole::ByPort => (0, frontend, bytes + 8),
            OwnerRole::Owners | OwnerRole::Former | OwnerRole::Previous(_) => {
                (uapi::NFT_SET_MAP, (frontend << 6) | 4, bytes + 12)
            }
        }
    }

    /// Returns the message that creates the set.
    pub(super) fn definition(self, table: &str) -> Message {
        let (flags, key_type, key_length) = self.shape();
        let id = (1u32..).zip(Self::all()).find(|(_, other)| *other == self).map_or(0, |(id, _)| id);
        let mut attributes = Attributes::default()
            .text(uapi::NFTA_SET_TABLE, table)
            .text(uapi::NFTA_SET_NAME, &self.to_string())
            .be32(uapi::NFTA_SET_FLAGS, flags)
            .be32(uapi::NFTA_SET_KEY_TYPE, key_type)
            .be32(uapi::NFTA_SET_KEY_LEN, key_length)
            .be32(uapi::NFTA_SET_ID, id);
        if flags & uapi::NFT_SET_MAP != 0 {
            // A mark (19).
            attributes = attributes.be32(uapi::NFTA_SET_DATA_TYPE, 19).be32(uapi::NFTA_SET_DATA_LEN, 4);
            // Key and value have the types of this map.
            let alike = SetId::new(SetRole::AffinitySlots(LookupType::Address), self.family);
            if let Some(notes) = notes::key_and_value(alike) {
                attributes = attributes.bytes(uapi::NFTA_SET_USERDATA, &notes);
            }
        }
        message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, attributes)
    }
}

impl fmt::Display for OwnerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.role {
            OwnerRole::Workloads => "workloads",
            OwnerRole::BySource => "by-source",
            OwnerRole::ByPort => "by-port",
            OwnerRole::Owners => "owners",
            OwnerRole::Former => "former",
            OwnerRole::Previous(0) => "previous",
            OwnerRole::Previous(1) => "earlier",
            OwnerRole::Previous(_) => "earliest",
        })?;
        f.write_str(match self.family {
            IpFamily::V4 => "4",
            IpFamily::V6 => "6",
        })
    }
}

impl OwnerChain {
    /// All chains, in creation order.
    pub(super) const ALL: [Self; 3] = [Self::Forward, Self::Former, Self::Untranslated];

    /// Returns the name of the chain.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Former => "former",
            Self::Untranslated => "untranslated",
        }
    }

    /// Returns the hook of the chain: before connection tracking (-200), between it and destination NAT (-100), and
    /// before destination NAT of the Services. The first chain follows the table `raw` (-300), in which Calico clears its bits of
    /// the packet mark, some of which are those of owners.
    pub(super) const fn hook(self) -> Hook {
        let priority = match self {
            Self::Forward => -290,
            Self::Former => -150,
            Self::Untranslated => -105,
        };
        Hook { number: uapi::NF_INET_PRE_ROUTING, priority }
    }

    /// Returns the type of the chain.
    pub(super) const fn chain_type(self) -> &'static str {
        match self {
            Self::Forward | Self::Former => "filter",
            Self::Untranslated => "nat",
        }
    }

    /// Returns the rules of the chain, each as a list of expressions.
    pub(super) fn rules(self) -> Vec<Vec<Expr>> {
        let by_family = |rule: fn(IpFamily) -> Vec<Expr>| IpFamily::ALL.map(rule).to_vec();
        match self {
            Self::Forward => {
                let mut rules = by_family(from_workloads);
                rules.extend(each(|lookup| lookup.rule(Vec::new(), OwnerRole::Owners, vec![Expr::Notrack])));
                // A new connection is not tracked: only one direction of it would be seen here.
                rules.extend(each(|lookup| lookup.rule(is_syn(), OwnerRole::Former, vec![Expr::Notrack])));
                rules.extend(each(|lookup| {
                    lookup.error_rule(Vec::new(), OwnerRole::Owners, vec![Expr::Notrack])
                }));
                rules
            }
            Self::Former => {
                let mut rules = by_family(from_workloads);
                let accept = || vec![Expr::Verdict(VerdictExpr::Accept)];
                rules.extend(each(|lookup| lookup.rule(is_untranslated(), OwnerRole::Former, accept())));
                rules.extend(each(|lookup| lookup.rule(is_unknown_end(), OwnerRole::Former, accept())));
                for attempt in ATTEMPTS {
                    for unknown in [[is_untranslated(), is_within()].concat(), is_unknown_end()] {
                        rules.extend(each(|lookup| {
                            let conditions = [unknown.clone(), attempt.is_next(lookup.family)].concat();
                            lookup.rule(conditions, attempt.map, attempt.end(lookup.family))
                        }));
                    }
                }
                rules.extend(each(SlotLookup::refuse_stranded));
                rules.extend(by_family(is_error_of_translated));
                rules.extend(each(|lookup| lookup.error_rule(Vec::new(), OwnerRole::Former, accept())));
                for attempt in ATTEMPTS {
                    rules.extend(each(|lookup| {
                        let family = lookup.family;
                        let conditions = [is_unmarked(), attempt.is_next(family)].concat();
                        lookup.error_rule(conditions, attempt.map, attempt.end(family))
                    }));
                }
                rules
            }
            Self::Untranslated => by_family(keep_destination),
        }
    }

    /// Returns the message that creates the chain without rules.
    pub(super) fn definition(self, table: &str) -> Message {
        let hook = self.hook();
        let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
        let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
        let attributes = Attributes::default()
            .text(uapi::NFTA_CHAIN_TABLE, table)
            .text(uapi::NFTA_CHAIN_NAME, self.name())
            .nested(uapi::NFTA_CHAIN_HOOK, &place)
            .text(uapi::NFTA_CHAIN_TYPE, self.chain_type())
            .be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT);
        message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, attributes)
    }

    /// Returns the messages that append the rules.
    pub(super) fn rule_messages(self, table: &str) -> Vec<Message> {
        let rule = |exprs: Vec<Expr>| {
            let list = exprs
                .iter()
                .fold(Attributes::default(), |list, expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode()));
            let attributes = Attributes::default()
                .text(uapi::NFTA_RULE_TABLE, table)
                .text(uapi::NFTA_RULE_CHAIN, self.name())
                .nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
            message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
        };
        self.rules().into_iter().map(rule).collect()
    }
}

/// Lookup of the slot of a packet.
#[derive(Clone, Copy)]
struct SlotLookup {
    family: IpFamily,
    choice: Choice,
}

fn each(rule: impl Fn(SlotLookup) -> Vec<Expr>) -> Vec<Vec<Expr>> {
    let choices = [Choice::SourceAddress, Choice::SourceAddressAndPort];
    let lookup = |family| choices.map(|choice| SlotLookup { family, choice });
    IpFamily::ALL.into_iter().flat_map(lookup).map(rule).collect()
}

impl SlotLookup {
    const fn address_words(self) -> u32 {
        match self.family {
            IpFamily::V4 => 1,
            IpFamily::V6 => 4,
        }
    }

    /// Returns a rule that stores the value of the map as the packet mark, if the conditions hold, and then evaluates
    /// `after`.
    fn rule(self, conditions: Vec<Expr>, map: OwnerRole, after: Vec<Expr>) -> Vec<Expr> {
        self.marked(conditions, &ClientFields::OF_PACKET, map, after)
    }

    /// Returns the same rule for ICMP errors, by the packet that they quote, which was sent to the client.
    fn error_rule(self, conditions: Vec<Expr>, map: OwnerRole, after: Vec<Expr>) -> Vec<Expr> {
        let client = ClientFields {
            protocol: |family, to| Expr::LoadQuoted(QuotedField::Protocol, family, to),
            service_port: |family, to| Expr::LoadQuoted(QuotedField::SourcePort, family, to),
            address: |family, to| Expr::LoadQuoted(QuotedField::Destination, family, to),
            port: |family, to| Expr::LoadQuoted(QuotedField::DestinationPort, family, to),
        };
        self.marked([is_error(self.family), conditions].concat(), &client, map, after)
    }

    /// Returns a rule that looks up the slot of a client. The hash must equal that of the chains which translate
    /// (`rules.rs`), so that the owner selects a target of its own.
    fn marked(
        self,
        conditions: Vec<Expr>,
        client: &ClientFields,
        map: OwnerRole,
        after: Vec<Expr>,
    ) -> Vec<Expr> {
        let family = self.family;
        let (words, first) = (self.address_words(), Register::word(0));
        let (key, slot) = (self.key(0), self.key(words + 2));
        let hashed = match self.choice {
            Choice::SourceAddressAndPort => words + 1,
            Choice::SourceAddress | Choice::Random => words,
        };
        let mut rule = self.in_frontend(conditions, client);
        rule.push((client.address)(family, first));
        if hashed > words {
            rule.push((client.port)(family, Register::word(words)));
        }
        let modulus = survival::SLOTS;
        rule.extend([
            Expr::Hash { from: first, words: hashed, modulus, offset: 0, to: slot },
            Expr::Map { map: OwnerSet { role: map, family }.to_string(), from: key, to: first },
            Expr::StoreMark(first),
        ]);
        rule.extend(after);
        rule
    }

    /// Returns the register of a word of the key of the maps. The fields before it are hashed.
    const fn key(self, word: u32) -> Register {
        Register::word(self.address_words() + 2 + word)
    }

    /// Matches packets to frontends of the method, if the conditions hold, and loads the start of the key.
    fn in_frontend(self, conditions: Vec<Expr>, client: &ClientFields) -> Vec<Expr> {
        let Self { family, .. } = self;
        let words = self.address_words();
        let role = match self.choice {
            Choice::SourceAddressAndPort => OwnerRole::ByPort,
            Choice::SourceAddress | Choice::Random => OwnerRole::BySource,
        };
        let mut rule = family_is(family).to_vec();
        rule.extend(conditions);
        rule.extend([
            Expr::LoadDestination(family, self.key(0)),
            (client.protocol)(family, self.key(words)),
            (client.service_port)(family, self.key(words + 1)),
            Expr::InSet { set: OwnerSet { role, family }.to_string(), from: self.key(0) },
        ]);
        rule
    }

    /// Returns the rule that resets connections which no former owner knows any more. Connection tracking of this node
    /// has seen them on their way to a former owner, so that destination NAT is not asked for them again, and they
    /// would circle between this node and the announcing node.
    fn refuse_stranded(self) -> Vec<Expr> {
        let conditions = [is_within(), is_seen_untranslated()].concat();
        let mut rule = self.in_frontend(conditions, &ClientFields::OF_PACKET);
        rule.push(Expr::RejectTcpReset);
        rule
    }
}

/// Expressions that load the fields of a packet by which the slot of its client is found.
struct ClientFields {
    protocol: fn(IpFamily, Register) -> Expr,
    /// Port of the frontend.
    service_port: fn(IpFamily, Register) -> Expr,
    address: fn(IpFamily, Register) -> Expr,
    port: fn(IpFamily, Register) -> Expr,
}

impl ClientFields {
    /// Fields of packets from the client.
    const OF_PACKET: Self = Self {
        protocol: |_, to| Expr::LoadMeta(Meta::L4Proto, to),
        service_port: |_, to| Expr::LoadDestinationPort(to),
        address: Expr::LoadSource,
        port: |_, to| Expr::LoadSourcePort(to),
    };
}

fn family_is(family: IpFamily) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::NfProto, Register(1)), Expr::equal(1, &[nfproto(family)])]
}

/// Returns the rule that ends the chain for packets of workloads of this node.
fn from_workloads(family: IpFamily) -> Vec<Expr> {
    let set = OwnerSet { role: OwnerRole::Workloads, family }.to_string();
    let mut rule = family_is(family).to_vec();
    rule.extend([Expr::LoadSource(family, Register(1)), Expr::InSet { set, from: Register(1) }]);
    rule.push(Expr::Verdict(VerdictExpr::Accept));
    rule
}

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Type of ICMP errors of which "fragmentation needed" is one.
const DESTINATION_UNREACHABLE: u8 = 3;
/// Bit of the type of ICMPv6 messages that are no errors (RFC 4443, section 2.1).
const INFORMATIONAL: u8 = 0x80;
/// First byte of an IPv4 header without options.
const WITHOUT_OPTIONS: u8 = 0x45;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Bit of the conntrack status that marks destination NAT (`IPS_DST_NAT`).
const DESTINATION_NAT: u32 = 0x20;
/// Bit of the conntrack status of connections of which a packet has left this node (`IPS_CONFIRMED`).
const CONFIRMED: u32 = 0x08;

/// Forwarding of a packet that this node does not know to one of the former owners. A former owner that does not know it
/// either returns it, after which the next one is asked.
///
/// The time to live counts the attempts: each attempt sets it to the highest value of its range, and each node on the way
/// decreases it by 1. After the last attempt, this node resets the connection.
#[derive(Clone, Copy)]
struct Attempt {
    map: OwnerRole,
    /// Bits of the time to live by which the attempt is the next one, and their value; `None` for any value but 0.
    next: (u8, Option<u8>),
    /// Time to live of the forwarded packet.
    hops: u8,
}

/// Attempts in their order. Packets of clients have a time to live of at least 32.
const ATTEMPTS: [Attempt; FORMER_OWNERS] = [
    Attempt { map: OwnerRole::PREVIOUS[0], next: (0xe0, None), hops: 31 },
    Attempt { map: OwnerRole::PREVIOUS[1], next: (0xf0, Some(0x10)), hops: 15 },
    Attempt { map: OwnerRole::PREVIOUS[2], next: (0xf8, Some(0x08)), hops: 7 },
];

impl Attempt {
    /// Matches packets for which the attempt is the next one.
    fn is_next(self, family: IpFamily) -> Vec<Expr> {
        let (mask, value) = self.next;
        byte_matches(Expr::LoadHopLimit(family, Register(1)), hop_byte(family), mask, value)
    }

    /// Sets the time to live, and ends the chain, so that no other attempt follows.
    fn end(self, family: IpFamily) -> Vec<Expr> {
        let at = |byte: u8, other: u8| hop_byte(family).map(|is_here| if is_here > 0 { byte } else { other });
        let (mask, xor) = (u32::from_ne_bytes(at(0, 0xff)), u32::from_ne_bytes(at(self.hops, 0)));
        vec![
            Expr::LoadHopLimit(family, Register(1)),
            Expr::Bitwise { register: Register(1), mask, xor },
            Expr::StoreHopLimit(family, Register(1)),
            Expr::Verdict(VerdictExpr::Accept),
        ]
    }
}

/// Returns a comparison of one byte of a loaded word, after masking.
fn byte_matches(load: Expr, word: [u8; 4], mask: u8, value: Option<u8>) -> Vec<Expr> {
    let at = |byte: u8| word.map(|is_here| if is_here > 0 { byte } else { 0 });
    let compared = match value {
        Some(value) => Expr::equal(1, &at(value)),
        None => Expr::unequal(1, &[0; 4]),
    };
    vec![load, Expr::bits(1, u32::from_ne_bytes(at(mask))), compared]
}

fn tcp_flags(mask: u8, value: u8) -> Vec<Expr> {
    let mut exprs = vec![Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[TCP])];
    exprs.extend(byte_matches(Expr::LoadTcpFlags(Register(1)), [1, 0, 0, 0], mask, Some(value)));
    exprs
}

fn is_icmp(family: IpFamily) -> [Expr; 2] {
    let number = match family {
        IpFamily::V4 => ICMP,
        IpFamily::V6 => ICMPV6,
    };
    [Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[number])]
}

/// Matches ICMP errors that quote a packet.
fn is_error(family: IpFamily) -> Vec<Expr> {
    let mut exprs = is_icmp(family).to_vec();
    let load_type = Expr::LoadIcmpType(Register(1));
    match family {
        IpFamily::V4 => {
            exprs.extend([load_type, Expr::equal(1, &[DESTINATION_UNREACHABLE])]);
            let version = Expr::LoadQuoted(QuotedField::Version, family, Register(1));
            exprs.extend([version, Expr::equal(1, &[WITHOUT_OPTIONS])]);
        }
        IpFamily::V6 => exprs.extend(byte_matches(load_type, [1, 0, 0, 0], INFORMATIONAL, Some(0))),
    }
    exprs
}

/// Returns the rule that ends the chain for ICMP errors of connections that this node translates.
fn is_error_of_translated(family: IpFamily) -> Vec<Expr> {
    let mut rule = family_is(family).to_vec();
    rule.extend(is_icmp(family));
    rule.extend([
        Expr::LoadConntrackStatus(Register(1)),
        Expr::bits(1, DESTINATION_NAT),
        Expr::unequal(1, &[0; 4]),
        Expr::Verdict(VerdictExpr::Accept),
    ]);
    rule
}

/// Matches the first segment of a TCP connection.
fn is_syn() -> Vec<Expr> {
    tcp_flags(SYN | ACK, SYN)
}

/// Matches segments within a TCP connection.
fn is_within() -> Vec<Expr> {
    tcp_flags(SYN, 0)
}

/// Matches segments that end a connection and that connection tracking cannot assign, such as the first segment after the
/// slot moved to this node.
fn is_unknown_end() -> Vec<Expr> {
    let mut exprs = vec![Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[TCP])];
    exprs.extend(byte_matches(Expr::LoadTcpFlags(Register(1)), [1, 0, 0, 0], FIN | RST, None));
    exprs.extend([
        Expr::LoadConntrackState(Register(1)),
        Expr::bits(1, CONNTRACK_INVALID),
        Expr::unequal(1, &[0; 4]),
    ]);
    exprs
}

/// Matches packets of connections that this node does not translate.
fn is_untranslated() -> Vec<Expr> {
    vec![Expr::LoadConntrackStatus(Register(1)), Expr::bits(1, DESTINATION_NAT), Expr::equal(1, &[0; 4])]
}

/// Matches packets of connections that this node has forwarded without translation.
fn is_seen_untranslated() -> Vec<Expr> {
    vec![
        Expr::LoadConntrackStatus(Register(1)),
        Expr::bits(1, CONFIRMED | DESTINATION_NAT),
        Expr::equal(1, &CONFIRMED.to_ne_bytes()),
    ]
}

/// Matches packets without the mark of an owner. Slots of other nodes have former owners as well.
fn is_unmarked() -> Vec<Expr> {
    vec![Expr::LoadMeta(Meta::Mark, Register(1)), Expr::bits(1, MARK_MASK), Expr::equal(1, &[0; 4])]
}

/// Returns the position of the time to live in the word that [`Expr::LoadHopLimit`] loads.
const fn hop_byte(family: IpFamily) -> [u8; 4] {
    match family {
        IpFamily::V4 => [1, 0, 0, 0],
        IpFamily::V6 => [0, 1, 0, 0],
    }
}

/// Returns the rule that translates the destination of marked connections to itself, after which no other chain
/// translates it.
fn keep_destination(family: IpFamily) -> Vec<Expr> {
    let mut rule = family_is(family).to_vec();
    rule.extend([
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, IDENTITY_MASK),
        Expr::equal(1, &[0; 4]),
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, MARK_MASK),
        Expr::unequal(1, &[0; 4]),
        Expr::LoadDestination(family, Register(1)),
        Expr::DestinationNat { family, address: Register(1), port: None },
    ]);
    rule
}
