//! Plans to netlink messages, in an order in which every reference exists: table, sets, chains, rules, removals,
//! additions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use model::net::IpFamily;

use super::{
    element::{Dispatch, Edge, Element, target_value},
    expr::{Expr, VerdictExpr},
    plan::{Change, Structural},
    schema::{Chain, Pick, SetId, SetRole, TABLE},
    uapi,
};
use crate::netlink::wire::{Attributes, Message, netfilter_header};

/// Elements of one message: an attribute's length has 16 bits, and the largest element takes about 80 bytes.
pub const ELEMENTS_PER_MESSAGE: usize = 500;

/// One message to the kernel, in our words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Removes the table with all that is in it.
    DeleteTable,
    /// Makes the table.
    AddTable,
    /// Makes a set or map.
    AddSet(SetId),
    /// Makes a chain without rules.
    AddChain(Chain),
    /// Removes the rules of a chain.
    FlushChain(Chain),
    /// Appends a rule.
    AddRule(Chain, Vec<Expr>),
    /// Removes the elements with these keys.
    DeleteKeys(SetId, Vec<Vec<u8>>),
    /// Removes elements.
    DeleteElements(SetId, Vec<Element>),
    /// Adds elements.
    AddElements(SetId, Vec<Element>),
}

/// The messages of one transaction. `chains` are the pick chains that it needs first.
#[must_use]
pub fn commands(
    structure: &[Structural],
    chains: &BTreeSet<Pick>,
    changes: &[Change],
    mark_bit: u32,
) -> Vec<Command> {
    let mut commands = Vec::new();
    for change in structure {
        match change {
            Structural::DeleteTable => commands.push(Command::DeleteTable),
            Structural::AddTable => commands.push(Command::AddTable),
            Structural::AddSet(set) => commands.push(Command::AddSet(*set)),
            Structural::AddChain(chain) => commands.push(Command::AddChain(*chain)),
            Structural::FlushChain(chain) => commands.push(Command::FlushChain(*chain)),
            Structural::AddRules(chain) => commands.extend(rules(*chain, mark_bit)),
            Structural::RemoveStray(set, key) => commands.push(Command::DeleteKeys(*set, vec![key.clone()])),
        }
    }
    for &pick in chains {
        commands.push(Command::AddChain(Chain::Pick(pick)));
        commands.extend(rules(Chain::Pick(pick), mark_bit));
    }
    let mut removed: BTreeMap<SetId, Vec<Element>> = BTreeMap::new();
    let mut added: BTreeMap<SetId, Vec<Element>> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Remove(element) => removed.entry(element.set()).or_default().push(*element),
            Change::Add(element) => added.entry(element.set()).or_default().push(*element),
        }
    }
    let chunks =
        |elements: &[Element]| elements.chunks(ELEMENTS_PER_MESSAGE).map(<[_]>::to_vec).collect::<Vec<_>>();
    for (set, elements) in removed {
        commands.extend(chunks(&elements).into_iter().map(|chunk| Command::DeleteElements(set, chunk)));
    }
    for (set, elements) in added {
        commands.extend(chunks(&elements).into_iter().map(|chunk| Command::AddElements(set, chunk)));
    }
    commands
}

fn rules(chain: Chain, mark_bit: u32) -> impl Iterator<Item = Command> {
    chain.rules(mark_bit).into_iter().map(move |rule| Command::AddRule(chain, rule))
}

impl Command {
    /// The message. It asks for no acknowledgement.
    #[must_use]
    pub fn message(&self) -> Message {
        let empty = Attributes::default;
        match self {
            Self::DeleteTable => {
                message(uapi::NFT_MSG_DELTABLE, 0, empty().text(uapi::NFTA_TABLE_NAME, TABLE))
            }
            Self::AddTable => message(
                uapi::NFT_MSG_NEWTABLE,
                uapi::NLM_F_CREATE,
                empty().text(uapi::NFTA_TABLE_NAME, TABLE),
            ),
            Self::AddSet(set) => message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, set_definition(*set)),
            Self::AddChain(chain) => {
                message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, chain_definition(*chain))
            }
            Self::FlushChain(chain) => message(uapi::NFT_MSG_DELRULE, 0, rule_place(*chain)),
            Self::AddRule(chain, exprs) => {
                let list = exprs
                    .iter()
                    .fold(empty(), |list, expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode()));
                let attributes = rule_place(*chain).nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
                message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
            }
            Self::DeleteKeys(set, keys) => {
                let list = keys.iter().map(|key| encode_key(key));
                message(uapi::NFT_MSG_DELSETELEM, 0, element_list(*set, list))
            }
            Self::DeleteElements(set, elements) => message(
                uapi::NFT_MSG_DELSETELEM,
                0,
                element_list(*set, elements.iter().map(encode_element_key)),
            ),
            Self::AddElements(set, elements) => {
                let list = element_list(*set, elements.iter().map(encode_element));
                message(uapi::NFT_MSG_NEWSETELEM, uapi::NLM_F_CREATE, list)
            }
        }
    }
}

/// Asks whether these elements are there, and with which values.
#[must_use]
pub fn get_elements(set: SetId, elements: &[Element]) -> Message {
    message(
        uapi::NFT_MSG_GETSETELEM,
        uapi::NLM_F_ACK,
        element_list(set, elements.iter().map(encode_element_key)),
    )
}

/// Asks for all elements of a set.
#[must_use]
pub fn dump_elements(set: SetId) -> Message {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
    let attributes = attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string());
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, attributes)
}

/// Asks for our table.
#[must_use]
pub fn get_table() -> Message {
    message(uapi::NFT_MSG_GETTABLE, uapi::NLM_F_ACK, Attributes::default().text(uapi::NFTA_TABLE_NAME, TABLE))
}

/// Asks for all chains of the family; the kernel cannot be asked for those of one table.
#[must_use]
pub fn dump_chains() -> Message {
    message(uapi::NFT_MSG_GETCHAIN, uapi::NLM_F_DUMP, Attributes::default())
}

/// Asks for the rules of our table, or of one of its chains.
#[must_use]
pub fn dump_rules(chain: Option<Chain>) -> Message {
    let attributes = match chain {
        Some(chain) => rule_place(chain),
        None => Attributes::default().text(uapi::NFTA_RULE_TABLE, TABLE),
    };
    message(uapi::NFT_MSG_GETRULE, uapi::NLM_F_DUMP, attributes)
}

/// Asks for the sets of our table.
#[must_use]
pub fn dump_sets() -> Message {
    message(uapi::NFT_MSG_GETSET, uapi::NLM_F_DUMP, Attributes::default().text(uapi::NFTA_SET_TABLE, TABLE))
}

/// Asks for the generation of the ruleset.
#[must_use]
pub fn get_generation() -> Message {
    let header = netfilter_header(0, 0);
    Message { header, ..message(uapi::NFT_MSG_GETGEN, uapi::NLM_F_ACK, Attributes::default()) }
}

fn message(kind: u16, flags: u16, attributes: Attributes) -> Message {
    let header = netfilter_header(uapi::NFPROTO_INET, 0);
    Message { kind, flags: uapi::NLM_F_REQUEST | flags, header, attributes }
}

fn rule_place(chain: Chain) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_RULE_TABLE, TABLE);
    attributes.text(uapi::NFTA_RULE_CHAIN, &chain.to_string())
}

fn chain_definition(chain: Chain) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_CHAIN_TABLE, TABLE);
    let attributes = attributes.text(uapi::NFTA_CHAIN_NAME, &chain.to_string());
    let Some(hook) = chain.hook() else { return attributes };
    let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
    let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
    let attributes = attributes.nested(uapi::NFTA_CHAIN_HOOK, &place).text(uapi::NFTA_CHAIN_TYPE, "nat");
    attributes.be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT)
}

fn element_list(set: SetId, elements: impl Iterator<Item = Attributes>) -> Attributes {
    let list =
        elements.fold(Attributes::default(), |list, element| list.nested(uapi::NFTA_LIST_ELEM, &element));
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
    let attributes = attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string());
    attributes.nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list)
}

fn encode_key(key: &[u8]) -> Attributes {
    Attributes::default()
        .nested(uapi::NFTA_SET_ELEM_KEY, &Attributes::default().bytes(uapi::NFTA_DATA_VALUE, key))
}

fn encode_element_key(element: &Element) -> Attributes {
    let key = encode_key(&element.key());
    match element {
        Element::Source(Edge { is_end: true, .. }) => {
            key.be32(uapi::NFTA_SET_ELEM_FLAGS, uapi::NFT_SET_ELEM_INTERVAL_END)
        }
        Element::Source(_)
        | Element::Dispatch(..)
        | Element::Slot(..)
        | Element::VirtualAddress(_)
        | Element::Hairpin(_) => key,
    }
}

fn encode_element(element: &Element) -> Attributes {
    let key = encode_element_key(element);
    let data = Attributes::default();
    match element {
        Element::Dispatch(_, dispatch) => {
            let verdict = VerdictExpr::Goto(dispatch.chain().to_string()).encode();
            key.nested(uapi::NFTA_SET_ELEM_DATA, &data.nested(uapi::NFTA_DATA_VERDICT, &verdict))
        }
        Element::Slot(_, _, target) => {
            key.nested(uapi::NFTA_SET_ELEM_DATA, &data.bytes(uapi::NFTA_DATA_VALUE, &target_value(*target)))
        }
        Element::VirtualAddress(_) | Element::Hairpin(_) | Element::Source(_) => key,
    }
}

/// The pick chains that a list of changes refers to.
#[must_use]
pub fn picks(changes: &[Change]) -> BTreeSet<Pick> {
    let pick = |change: &Change| match change {
        Change::Add(Element::Dispatch(_, Dispatch::Forward(pick))) => Some(*pick),
        Change::Add(_) | Change::Remove(_) => None,
    };
    changes.iter().filter_map(pick).collect()
}

/// What makes up a set: flags, key and value, as the kernel shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetShape {
    /// `NFT_SET_…`.
    pub flags: u32,
    /// The types of the key's fields, six bits each.
    pub key_type: u32,
    /// In bytes.
    pub key_length: u32,
    /// The types of the value's fields, [`uapi::NFT_DATA_VERDICT`], or 0 for a set.
    pub data_type: u32,
    /// In bytes; 0 for verdicts.
    pub data_length: u32,
}

/// The shape that a set must have.
#[must_use]
pub fn set_shape(set: SetId) -> SetShape {
    let (address, words) = match set.family {
        IpFamily::V4 => (TYPE_IPV4_ADDRESS, 1),
        IpFamily::V6 => (TYPE_IPV6_ADDRESS, 4),
    };
    let concat = |fields: &[u32]| fields.iter().fold(0, |types, field| types << TYPE_BITS | field);
    let key = |fields: &[u32], words: u32| (concat(fields), words * 4);
    let (key_type, key_length) = match set.role {
        SetRole::Services => key(&[address, TYPE_PROTOCOL, TYPE_PORT], words + 2),
        SetRole::NodePorts => key(&[TYPE_PROTOCOL, TYPE_PORT], 2),
        SetRole::Endpoints => key(&[address, TYPE_PROTOCOL, TYPE_PORT, TYPE_INTEGER], words + 3),
        SetRole::NodePortEndpoints => key(&[TYPE_PROTOCOL, TYPE_PORT, TYPE_INTEGER], 3),
        SetRole::VirtualAddresses | SetRole::MasqueradeSources => key(&[address], words),
        SetRole::Hairpins => key(&[address, address], 2 * words),
    };
    let (flags, data_type, data_length) = match set.role {
        SetRole::Services | SetRole::NodePorts => (uapi::NFT_SET_MAP, uapi::NFT_DATA_VERDICT, 0),
        SetRole::Endpoints | SetRole::NodePortEndpoints => {
            (uapi::NFT_SET_MAP, concat(&[address, TYPE_PORT]), (words + 1) * 4)
        }
        SetRole::VirtualAddresses | SetRole::Hairpins => (0, 0, 0),
        SetRole::MasqueradeSources => (uapi::NFT_SET_INTERVAL, 0, 0),
    };
    SetShape { flags, key_type, key_length, data_type, data_length }
}

// Types of fields as the `nft` command numbers them; the kernel only keeps them for readers.
const TYPE_BITS: u32 = 6;
const TYPE_INTEGER: u32 = 4;
const TYPE_IPV4_ADDRESS: u32 = 7;
const TYPE_IPV6_ADDRESS: u32 = 8;
const TYPE_PROTOCOL: u32 = 12;
const TYPE_PORT: u32 = 13;

fn set_definition(set: SetId) -> Attributes {
    let shape = set_shape(set);
    let id = (1u32..).zip(SetId::all()).find(|(_, other)| *other == set).map_or(0, |(id, _)| id);
    let mut attributes = Attributes::default()
        .text(uapi::NFTA_SET_TABLE, TABLE)
        .text(uapi::NFTA_SET_NAME, &set.to_string())
        .be32(uapi::NFTA_SET_FLAGS, shape.flags)
        .be32(uapi::NFTA_SET_KEY_TYPE, shape.key_type)
        .be32(uapi::NFTA_SET_KEY_LEN, shape.key_length)
        .be32(uapi::NFTA_SET_ID, id);
    if shape.data_type != 0 {
        attributes = attributes.be32(uapi::NFTA_SET_DATA_TYPE, shape.data_type);
        attributes = attributes.be32(uapi::NFTA_SET_DATA_LEN, shape.data_length);
    }
    match super::notes::key_and_value(set) {
        Some(notes) => attributes.bytes(uapi::NFTA_SET_USERDATA, &notes),
        None => attributes,
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteTable => write!(f, "delete table inet {TABLE}"),
            Self::AddTable => write!(f, "add table inet {TABLE}"),
            Self::AddSet(set) => {
                let shape = set_shape(*set);
                write!(f, "add set {set} key {} bytes, value {} bytes", shape.key_length, shape.data_length)
            }
            Self::AddChain(chain) => match chain.hook() {
                Some(hook) => {
                    write!(f, "add chain {chain} at hook {} priority {}", hook.number, hook.priority)
                }
                None => write!(f, "add chain {chain}"),
            },
            Self::FlushChain(chain) => write!(f, "flush chain {chain}"),
            Self::AddRule(chain, exprs) => {
                let exprs: Vec<_> = exprs.iter().map(ToString::to_string).collect();
                write!(f, "add rule {chain} {}", exprs.join("; "))
            }
            Self::DeleteKeys(set, keys) => write!(f, "delete element {set} {keys:02x?}"),
            Self::DeleteElements(set, elements) => write!(f, "delete element {set} {{ {} }}", join(elements)),
            Self::AddElements(set, elements) => write!(f, "add element {set} {{ {} }}", join(elements)),
        }
    }
}

fn join(elements: &[Element]) -> String {
    let elements: Vec<_> = elements.iter().map(ToString::to_string).collect();
    elements.join(", ")
}
