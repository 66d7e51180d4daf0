//! Rules of the chains of the nftables backend. A slot is a position in the list of targets of a frontend.
//!
//! Rules for frontends load the same words into the registers: the target (to be filled in), the key of the
//! frontend, and after it the source or a slot. So one layout serves every lookup.
//!
//! ```text
//! | address port | id | address protocol port | source          |   an IPv6 address has four words
//! |    target    |    |  key of the frontend  | or slot, or id  |
//! ```

use kernel::{
    nftables::{
        conntrack_field::ConntrackField,
        expr::{CONNTRACK_INVALID, DynamicSet, Expr, Meta, Register, VerdictExpr},
        nfproto,
        quoted::QuotedField,
    },
    owner_routes::MARK_MASK,
};
use model::{kinds::service::Protocol, primitives::net::IpFamily, program::Masquerade};

use super::{
    NftablesOptions,
    schema::{Chain, Choice, LookupType, NetworkSet, Pick, SetId, SetRole, Treatment, VerdictClass},
};

impl Chain {
    /// Returns the rules of the chain, each as a list of expressions.
    #[must_use]
    pub fn rules(self, options: NftablesOptions) -> Vec<Vec<Expr>> {
        let mark_bit = options.mark_bit;
        match self {
            Self::Prerouting | Self::Output => {
                vec![vec![Expr::Verdict(VerdictExpr::Jump(Self::Services.to_string()))]]
            }
            Self::Services => services_rules(),
            Self::BySource(place) => by_source_rules(place),
            Self::Checked(place) => checked_rules(place),
            Self::Pick(pick) => pick_rules(pick, mark_bit),
            Self::Refuse => refuse_rules(),
            Self::Discard => vec![drop_rule()],
            Self::Postrouting => postrouting_rules(mark_bit),
            Self::Forward => {
                let invalid = options.drop_invalid.then(drop_invalid_rule);
                invalid.into_iter().chain(failover_rules()).collect()
            }
            Self::ErrorsInput | Self::ErrorsOutput => failover_rules().to_vec(),
        }
    }
}

/// Layout of the registers in rules that look up a frontend, for one lookup type and address family.
#[derive(Clone, Copy)]
struct RegisterLayout {
    place: LookupType,
    family: IpFamily,
}

impl RegisterLayout {
    const fn word(index: u32) -> Register {
        Register::word(index)
    }

    /// First register of the target: address, then port.
    const TARGET: Register = Register::word(0);

    const fn target_port(self) -> Register {
        Register::word(address_words(self.family))
    }

    const fn target_id(self) -> Register {
        Self::word(address_words(self.family) + 1)
    }

    const fn key_word(self) -> u32 {
        address_words(self.family) + 2
    }

    const fn key(self) -> Register {
        Self::word(self.key_word())
    }

    /// Returns the index of the first 32-bit word after the frontend's key.
    const fn behind_word(self) -> u32 {
        self.key_word()
            + match self.place {
                LookupType::Address | LookupType::Range => address_words(self.family) + 2,
                LookupType::NodePort => 2,
            }
    }

    const fn behind(self) -> Register {
        Self::word(self.behind_word())
    }

    /// Returns the name of the set with this role for the layout's address family.
    fn set(self, role: SetRole) -> String {
        set_name(role, self.family)
    }

    /// Matches packets of the family, and loads the key of the frontend.
    fn load_key(self) -> Vec<Expr> {
        let mut exprs = family_is(self.family).to_vec();
        let mut word = self.key_word();
        if self.place != LookupType::NodePort {
            exprs.push(Expr::LoadDestination(self.family, Self::word(word)));
            word += address_words(self.family);
        }
        exprs.push(Expr::LoadMeta(Meta::L4Proto, Self::word(word)));
        exprs.push(Expr::LoadDestinationPort(Self::word(word + 1)));
        if self.place == LookupType::Range {
            let map = self.set(SetRole::Ranges);
            exprs.push(Expr::Map { map, from: self.key(), to: Self::TARGET });
            exprs.extend(Self::answer_to(&[Self::word(word + 1)]));
        }
        exprs
    }

    /// Returns expressions that move the result of a map lookup to the registers `to`. The lookup leaves its
    /// result in the target's register, which is free until the target is loaded.
    ///
    /// The value passes through the packet mark, which is restored afterwards. The map could load the value into
    /// these registers directly, but then the `nft` command (1.0.6) aborts when it lists the rules.
    fn answer_to(to: &[Register]) -> Vec<Expr> {
        Self::answer_from(Self::TARGET, Self::word(1), to)
    }

    /// Returns expressions that move the result `answer` of a map lookup to the registers `to`, by way of the packet
    /// mark, which the register `mark` stores meanwhile.
    fn answer_from(answer: Register, mark: Register, to: &[Register]) -> Vec<Expr> {
        let mut exprs = vec![Expr::LoadMeta(Meta::Mark, mark), Expr::StoreMark(answer)];
        exprs.extend(to.iter().map(|register| Expr::LoadMeta(Meta::Mark, *register)));
        exprs.push(Expr::StoreMark(mark));
        exprs
    }

    fn load_source(self) -> Expr {
        Expr::LoadSource(self.family, self.behind())
    }

    /// Replaces the key of the frontend by the key of an affinity entry: the group of the frontend, and the source.
    /// The map lookup leaves its result in `answer`; `mark` must be free as well.
    fn load_client(self, answer: Register, mark: Register) -> Vec<Expr> {
        let map = self.set(SetRole::AffinityGroups(self.place));
        let mut exprs = vec![Expr::Map { map, from: self.key(), to: answer }];
        exprs.extend(Self::answer_from(answer, mark, &[self.key()]));
        exprs.push(Expr::LoadSource(self.family, Self::word(self.key_word() + 1)));
        exprs
    }

    /// Returns the rule that looks up the dispatch number of the frontend in the map `role` and continues in
    /// the chain with that number.
    fn dispatch(self, role: SetRole) -> Vec<Expr> {
        let mut exprs = vec![Expr::Map { map: self.set(role), from: self.key(), to: Self::TARGET }];
        exprs.extend(Self::answer_to(&[Self::TARGET]));
        let chains = chains_of(role, self.place);
        exprs.push(Expr::VerdictMap { map: self.set(chains), from: Self::TARGET });
        exprs
    }
}

fn set_name(role: SetRole, family: IpFamily) -> String {
    SetId::new(role, family).to_string()
}

/// Returns the role of the map that assigns a chain to each dispatch number in the map `role`.
const fn chains_of(role: SetRole, place: LookupType) -> SetRole {
    if matches!(role, SetRole::DispatchFrom(..)) {
        SetRole::ChainsFrom(place)
    } else {
        SetRole::Chains(place)
    }
}

/// Returns expressions that match packets of one address family.
fn family_is(family: IpFamily) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::NfProto, Register(1)), Expr::equal(1, &[nfproto(family)])]
}

const fn address_words(family: IpFamily) -> u32 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 4,
    }
}

fn drop_rule() -> Vec<Expr> {
    vec![Expr::Verdict(VerdictExpr::Drop)]
}

/// Returns the rule that drops packets which connection tracking cannot assign to a connection. Without it, a
/// TCP segment outside of the window would be forwarded without translation, and the client would reset the
/// connection of the endpoint. Segments with the mark of an owner are forwarded to it, which knows the connection.
fn drop_invalid_rule() -> Vec<Expr> {
    let mut rule = vec![
        Expr::LoadConntrackState(Register(1)),
        Expr::bits(1, CONNTRACK_INVALID),
        Expr::unequal(1, &[0; 4]),
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, MARK_MASK),
        Expr::equal(1, &[0; 4]),
    ];
    rule.extend(drop_rule());
    rule
}

/// Returns the rules that drop port unreachable errors about datagrams to frontends that fail over. A client then
/// repeats its datagram, as after a loss, and the repeated one reaches another endpoint once the health check has noticed
/// that this one is dead. Clients such as resolvers take the error for a final answer.
fn failover_rules() -> [Vec<Expr>; 2] {
    IpFamily::ALL.map(|family| {
        // Protocol number, and type and code of port unreachable (RFC 792, RFC 4443 §3.1).
        let (protocol, error) = match family {
            IpFamily::V4 => (1, [3, 3]),
            IpFamily::V6 => (58, [1, 4]),
        };
        let mut rule = family_is(family).to_vec();
        rule.extend([Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[protocol])]);
        rule.extend([Expr::LoadQuoted(QuotedField::ErrorKind, family, Register(1)), Expr::equal(1, &error)]);
        let direction = ConntrackField::Direction;
        rule.extend([Expr::LoadConntrack(direction, Register(1)), Expr::equal(1, &[ConntrackField::REPLY])]);
        let words = address_words(family);
        let key = [
            (ConntrackField::OriginalDestination(family), 0),
            (ConntrackField::Protocol, words),
            (ConntrackField::OriginalDestinationPort, words + 1),
        ];
        rule.extend(key.map(|(field, word)| Expr::LoadConntrack(field, Register::word(word))));
        rule.push(Expr::InSet { set: set_name(SetRole::Failover, family), from: Register(1) });
        rule.extend(drop_rule());
        rule
    })
}

fn services_rules() -> Vec<Vec<Expr>> {
    let mut rules = Vec::new();
    for place in [LookupType::Address, LookupType::Range] {
        for family in IpFamily::ALL {
            let layout = RegisterLayout { place, family };
            let mut dispatch = layout.load_key();
            dispatch.extend(layout.dispatch(SetRole::Dispatch(place)));
            rules.push(dispatch);
        }
    }
    for family in IpFamily::ALL {
        let layout = RegisterLayout { place: LookupType::NodePort, family };
        let addresses = layout.set(SetRole::Networks(NetworkSet::NodePortAddresses));
        let mut node_ports = family_is(family).to_vec();
        node_ports.extend([Expr::LoadDestinationIsLocal(Register(1)), Expr::equal(1, &LOCAL)]);
        node_ports.extend(not_loopback(family));
        node_ports.push(Expr::LoadDestination(family, Register(1)));
        node_ports.push(Expr::InSet { set: addresses, from: Register(1) });
        node_ports.extend(layout.load_key().into_iter().skip(family_is(family).len()));
        node_ports.extend(layout.dispatch(SetRole::Dispatch(LookupType::NodePort)));
        rules.push(node_ports);
    }
    for family in IpFamily::ALL {
        let mut refuse = family_is(family).to_vec();
        refuse.push(Expr::LoadDestination(family, Register(1)));
        let set = set_name(SetRole::VirtualAddresses, family);
        refuse.push(Expr::InSet { set, from: Register(1) });
        refuse.push(Expr::Verdict(VerdictExpr::Goto(Chain::Refuse.to_string())));
        rules.push(refuse);
    }
    for family in IpFamily::ALL {
        let mut unassigned = family_is(family).to_vec();
        unassigned.push(Expr::LoadDestination(family, Register(1)));
        let set = set_name(SetRole::Networks(NetworkSet::ServiceRanges), family);
        unassigned.push(Expr::InSet { set, from: Register(1) });
        unassigned.push(Expr::Verdict(VerdictExpr::Goto(Chain::Discard.to_string())));
        rules.push(unassigned);
    }
    rules
}

/// Address type of local addresses in the kernel (`RTN_LOCAL`), as the `fib` expression returns it.
const LOCAL: [u8; 4] = 2u32.to_ne_bytes();

/// Returns a match on destinations that are not loopback addresses. Node ports are not served on loopback,
/// because replies could not be routed back without `route_localnet`.
fn not_loopback(family: IpFamily) -> [Expr; 2] {
    match family {
        IpFamily::V4 => [Expr::LoadDestinationFirstByte(Register(1)), Expr::unequal(1, &[127])],
        IpFamily::V6 => {
            let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
            [Expr::LoadDestination(family, Register(1)), Expr::unequal(1, &loopback)]
        }
    }
}

fn source_is(source: VerdictClass, family: IpFamily) -> Vec<Expr> {
    match source {
        VerdictClass::Workloads => {
            let set = set_name(SetRole::Networks(NetworkSet::Workloads), family);
            vec![Expr::LoadSource(family, Register(1)), Expr::InSet { set, from: Register(1) }]
        }
        VerdictClass::Node => vec![Expr::LoadSourceIsLocal(Register(1)), Expr::equal(1, &LOCAL)],
        VerdictClass::Elsewhere => Vec::new(),
    }
}

/// Returns the rules that continue in the chain for the class of the source. If a class has no chain, as
/// between two changes, its packets are dropped, so that they are never treated as another class.
fn by_source_rules(place: LookupType) -> Vec<Vec<Expr>> {
    let mut rules = Vec::new();
    for source in VerdictClass::ALL {
        for family in IpFamily::ALL {
            let layout = RegisterLayout { place, family };
            let mut dispatch = source_is(source, family);
            dispatch.splice(0..0, family_is(family));
            dispatch.extend(layout.load_key().into_iter().skip(family_is(family).len()));
            dispatch.extend(layout.dispatch(SetRole::DispatchFrom(place, source)));
            let mut miss = family_is(family).to_vec();
            miss.extend(source_is(source, family));
            miss.extend(drop_rule());
            rules.extend([dispatch, miss]);
        }
    }
    rules
}

fn checked_rules(place: LookupType) -> Vec<Vec<Expr>> {
    let go_on = || Expr::Verdict(VerdictExpr::Goto(Chain::BySource(place).to_string()));
    let mut rules = Vec::new();
    for family in IpFamily::ALL {
        let layout = RegisterLayout { place, family };
        let mut allowed = layout.load_key();
        allowed.push(layout.load_source());
        allowed.push(Expr::InSet { set: layout.set(SetRole::AllowedSources(place)), from: layout.key() });
        allowed.push(go_on());
        rules.push(allowed);
    }
    rules.push(vec![Expr::LoadSourceIsLocal(Register(1)), Expr::equal(1, &LOCAL), go_on()]);
    rules.push(drop_rule());
    rules
}

/// Returns the rules that reject TCP, UDP and SCTP packets. Other packets to a virtual address, such as echo
/// requests, are not affected.
fn refuse_rules() -> Vec<Vec<Expr>> {
    let is = |protocol: Protocol| {
        [Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[protocol.number()])]
    };
    let refuse = |protocol, answer| is(protocol).into_iter().chain([answer]).collect();
    vec![
        refuse(Protocol::Tcp, Expr::RejectTcpReset),
        refuse(Protocol::Udp, Expr::RejectPortUnreachable),
        refuse(Protocol::Sctp, Expr::RejectPortUnreachable),
    ]
}

fn set_mark(mark_bit: u32) -> [Expr; 3] {
    [
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::Bitwise { register: Register(1), mask: !mark_bit, xor: mark_bit },
        Expr::StoreMark(Register(1)),
    ]
}

fn pick_rules(pick: Pick, mark_bit: u32) -> Vec<Vec<Expr>> {
    let mut rules = mark_rules(pick.masquerade, mark_bit);
    let layouts = IpFamily::ALL.map(|family| RegisterLayout { place: pick.place, family });
    if let Some(seconds) = pick.affinity_seconds {
        let by_family: Vec<_> = layouts.iter().map(|layout| affinity_rules(pick, *layout, seconds)).collect();
        rules.extend(by_family.into_iter().flatten());
    }
    for layout in layouts {
        let mut rule = load_target(pick, layout);
        rule.push(carry_out(pick.action, layout));
        rules.push(rule);
    }
    // A packet may find its slot removed if it looked up the chain just before a change. If it is dropped,
    // the client's retransmission finds the new slots. If it were accepted, the connection would be tracked
    // without translation.
    rules.push(drop_rule());
    rules
}

fn mark_rules(masquerade: Masquerade, mark_bit: u32) -> Vec<Vec<Expr>> {
    match masquerade {
        Masquerade::Never => Vec::new(),
        Masquerade::Always => vec![set_mark(mark_bit).to_vec()],
        Masquerade::OffCluster => {
            let rule = |family| {
                let set = set_name(SetRole::Networks(NetworkSet::MasqueradeSources), family);
                let mut rule = family_is(family).to_vec();
                rule.extend([Expr::LoadSource(family, Register(1)), Expr::InSet { set, from: Register(1) }]);
                rule.extend(set_mark(mark_bit));
                rule
            };
            IpFamily::ALL.map(rule).to_vec()
        }
    }
}

/// Returns expressions that pick a target slot and load the target in it. The key of the frontend stays in
/// the registers after it.
fn load_target(pick: Pick, layout: RegisterLayout) -> Vec<Expr> {
    let mut rule = load_slot(pick, layout);
    let lookup =
        |role: SetRole| Expr::Map { map: layout.set(role), from: layout.key(), to: RegisterLayout::TARGET };
    if pick.affinity_seconds.is_some() {
        rule.push(lookup(SetRole::AffinitySlots(pick.place)));
        rule.extend(RegisterLayout::answer_to(&[layout.behind(), layout.target_id()]));
        rule.push(lookup(SetRole::AffinityTargets(pick.place, pick.pool)));
    } else {
        rule.push(lookup(SetRole::Endpoints(pick.place)));
    }
    rule
}

/// Returns expressions that load the key of the frontend and, after it, the number of the target slot that
/// they pick.
fn load_slot(pick: Pick, layout: RegisterLayout) -> Vec<Expr> {
    let mut rule = layout.load_key();
    let (modulus, offset, to) = (pick.slots, pick.pool.offset(), layout.behind());
    // Until the target is known, its registers are free for the hash input.
    let words = address_words(layout.family);
    let source = Expr::LoadSource(layout.family, RegisterLayout::TARGET);
    let hash = |words| Expr::Hash { from: RegisterLayout::TARGET, words, modulus, offset, to };
    match pick.choice {
        Choice::Random => rule.push(Expr::Random { modulus, offset, to }),
        Choice::SourceAddress => rule.extend([source, hash(words)]),
        Choice::SourceAddressAndPort => {
            rule.extend([source, Expr::LoadSourcePort(RegisterLayout::word(words)), hash(words + 1)]);
        }
    }
    rule
}

const fn carry_out(action: Treatment, layout: RegisterLayout) -> Expr {
    let (family, address) = (layout.family, RegisterLayout::TARGET);
    match action {
        Treatment::Translate => Expr::DestinationNat { family, address, port: Some(layout.target_port()) },
        Treatment::TranslateAddress => Expr::DestinationNat { family, address, port: None },
        Treatment::Redirect => Expr::Redirect { port: layout.target_port() },
    }
}

/// Returns the session affinity rules: the first sends a source with an entry to the stored target if this is
/// still current, and refreshes the timeout. The second deletes a stale entry. The third picks a target and
/// stores it. If the map is full, the map update ends this rule before the translation; a later rule of the
/// chain then picks a target without storing it.
fn affinity_rules(pick: Pick, layout: RegisterLayout, seconds: u32) -> [Vec<Expr>; 3] {
    let map = layout.set(SetRole::Affinity);
    let dynamic = |operation, data| Expr::Dynamic { operation, map: map.clone(), key: layout.key(), data };
    let load_client = || layout.load_client(RegisterLayout::TARGET, RegisterLayout::word(1));
    // The target is loaded, so the lookup of the group uses the registers after the key.
    let go = || {
        let behind = layout.behind_word();
        let mut exprs = layout.load_client(layout.behind(), RegisterLayout::word(behind + 1));
        exprs.push(dynamic(DynamicSet::Update { seconds }, layout.target_id()));
        exprs.push(carry_out(pick.action, layout));
        exprs
    };
    let mut stay = layout.load_key();
    stay.extend(load_client());
    stay.push(Expr::Map { map: map.clone(), from: layout.key(), to: RegisterLayout::TARGET });
    stay.extend(RegisterLayout::answer_to(&[layout.behind(), layout.target_id()]));
    stay.extend(layout.load_key().into_iter().skip(family_is(layout.family).len()));
    let targets = layout.set(SetRole::AffinityTargets(pick.place, pick.pool));
    stay.push(Expr::Map { map: targets, from: layout.key(), to: RegisterLayout::TARGET });
    stay.extend(go());
    let mut forget = layout.load_key();
    forget.extend(load_client());
    // The value is irrelevant, but the kernel requires one.
    forget.push(Expr::LoadMeta(Meta::Mark, RegisterLayout::TARGET));
    forget.push(dynamic(DynamicSet::Delete, RegisterLayout::TARGET));
    let mut place = load_target(pick, layout);
    place.extend(go());
    [stay, forget, place]
}

fn postrouting_rules(mark_bit: u32) -> Vec<Vec<Expr>> {
    let translated = || {
        [Expr::LoadConntrackStatus(Register(1)), Expr::bits(1, DESTINATION_NAT), Expr::unequal(1, &[0; 4])]
    };
    let mut marked = translated().to_vec();
    marked.extend([
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, mark_bit),
        Expr::unequal(1, &[0; 4]),
    ]);
    marked.extend([
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, !mark_bit),
        Expr::StoreMark(Register(1)),
        Expr::Masquerade,
    ]);
    let mut rules = vec![marked];
    for family in IpFamily::ALL {
        let mut hairpin = translated().to_vec();
        hairpin.extend(family_is(family));
        hairpin.extend([
            Expr::LoadSource(family, Register(1)),
            Expr::LoadDestination(family, Register::word(address_words(family))),
            Expr::InSet { set: set_name(SetRole::Hairpins, family), from: Register(1) },
            Expr::Masquerade,
        ]);
        rules.push(hairpin);
    }
    rules
}

/// Bit of the conntrack status that marks destination NAT (`IPS_DST_NAT`).
const DESTINATION_NAT: u32 = 0x20;
