//! Renders plans as netlink messages, ordered so that every reference exists: table, sets, chains, rules,
//! removals, additions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        expr::{Expr, VerdictExpr},
        render::{add_table, delete_table, message},
        uapi,
    },
};

use super::{
    NftablesOptions,
    definition::{set_definition, set_shape},
    element::{Edge, FrontendChain, Key, SetElement},
    plan::{Change, Structural},
    schema::{Chain, Pick, SetId},
};

/// Maximum number of elements in one message: an attribute's length has 16 bits, and the largest element
/// takes about 130 bytes.
pub const ELEMENTS_PER_MESSAGE: usize = 400;

/// Command for the kernel, encoded as one netlink message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NftCommand {
    /// Removes the table with its chains, sets and elements.
    DeleteTable,
    /// Creates the empty table.
    AddTable,
    /// Creates a set or map.
    AddSet(SetId),
    /// Creates a chain without rules.
    AddChain(Chain),
    /// Removes all rules of a chain.
    FlushChain(Chain),
    /// Removes a chain with its rules; no rule or element may refer to it.
    DeleteChain(Chain),
    /// Appends a rule with these expressions to a chain.
    AddRule(Chain, Vec<Expr>),
    /// Removes the elements that have these keys from a set.
    DeleteKeys(SetId, Vec<Key>),
    /// Removes elements from a set or map.
    DeleteElements(SetId, Vec<SetElement>),
    /// Adds elements to a set or map.
    AddElements(SetId, Vec<SetElement>),
}

/// Returns the commands of one transaction. `chains` are the pick chains (which pick a target slot) that must
/// be created first.
#[must_use]
pub fn commands(
    structure: &[Structural],
    chains: &BTreeSet<Pick>,
    changes: &[Change],
    options: NftablesOptions,
) -> Vec<NftCommand> {
    let mut commands = Vec::new();
    for change in structure {
        match change {
            Structural::DeleteTable => commands.push(NftCommand::DeleteTable),
            Structural::AddTable => commands.push(NftCommand::AddTable),
            Structural::AddSet(set) => commands.push(NftCommand::AddSet(*set)),
            Structural::AddChain(chain) => commands.push(NftCommand::AddChain(*chain)),
            Structural::FlushChain(chain) => commands.push(NftCommand::FlushChain(*chain)),
            Structural::AddRules(chain) => commands.extend(rules(*chain, options)),
            Structural::RemoveStray(set, key) => {
                commands.push(NftCommand::DeleteKeys(*set, vec![key.clone()]))
            }
        }
    }
    for &pick in chains {
        commands.push(NftCommand::AddChain(Chain::Pick(pick)));
        commands.extend(rules(Chain::Pick(pick), options));
    }
    let mut removed: BTreeMap<SetId, Vec<SetElement>> = BTreeMap::new();
    let mut added: BTreeMap<SetId, Vec<SetElement>> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Remove(element) => removed.entry(element.set()).or_default().push(*element),
            Change::Add(element) => added.entry(element.set()).or_default().push(*element),
        }
    }
    let chunks = |elements: &[SetElement]| {
        elements.chunks(ELEMENTS_PER_MESSAGE).map(<[_]>::to_vec).collect::<Vec<_>>()
    };
    for (set, elements) in removed {
        commands.extend(chunks(&elements).into_iter().map(|chunk| NftCommand::DeleteElements(set, chunk)));
    }
    for (set, elements) in added {
        commands.extend(chunks(&elements).into_iter().map(|chunk| NftCommand::AddElements(set, chunk)));
    }
    commands
}

fn rules(chain: Chain, options: NftablesOptions) -> impl Iterator<Item = NftCommand> {
    chain.rules(options).into_iter().map(move |rule| NftCommand::AddRule(chain, rule))
}

impl NftCommand {
    /// Encodes the command for the table of this name, without requesting an acknowledgement.
    #[must_use]
    pub fn message(&self, table: &str) -> Message {
        let empty = Attributes::default;
        match self {
            Self::DeleteTable => delete_table(table),
            Self::AddTable => add_table(table),
            Self::AddSet(set) => {
                message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, set_definition(table, *set))
            }
            Self::AddChain(chain) => {
                message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, chain_definition(table, *chain))
            }
            Self::FlushChain(chain) => message(uapi::NFT_MSG_DELRULE, 0, rule_place(table, *chain)),
            Self::DeleteChain(chain) => {
                let attributes = Attributes::default().text(uapi::NFTA_CHAIN_TABLE, table);
                message(uapi::NFT_MSG_DELCHAIN, 0, attributes.text(uapi::NFTA_CHAIN_NAME, &chain.to_string()))
            }
            Self::AddRule(chain, exprs) => {
                let list = exprs
                    .iter()
                    .fold(empty(), |list, expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode()));
                let attributes = rule_place(table, *chain).nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
                message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
            }
            Self::DeleteKeys(set, keys) => {
                let list = keys.iter().map(encode_key);
                message(uapi::NFT_MSG_DELSETELEM, 0, element_list(table, *set, list))
            }
            Self::DeleteElements(set, elements) => message(
                uapi::NFT_MSG_DELSETELEM,
                0,
                element_list(table, *set, elements.iter().map(encode_element_key)),
            ),
            Self::AddElements(set, elements) => {
                let list = element_list(table, *set, elements.iter().map(encode_element));
                message(uapi::NFT_MSG_NEWSETELEM, uapi::NLM_F_CREATE, list)
            }
        }
    }
}

/// Builds the request for single elements of a set, by key, with their values.
#[must_use]
pub fn get_elements(table: &str, set: SetId, elements: &[SetElement]) -> Message {
    message(
        uapi::NFT_MSG_GETSETELEM,
        uapi::NLM_F_ACK,
        element_list(table, set, elements.iter().map(encode_element_key)),
    )
}

/// Builds the request for all elements of a set.
#[must_use]
pub fn dump_elements(table: &str, set: SetId) -> Message {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, table);
    let attributes = attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string());
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, attributes)
}

fn rule_place(table: &str, chain: Chain) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_RULE_TABLE, table);
    attributes.text(uapi::NFTA_RULE_CHAIN, &chain.to_string())
}

fn chain_definition(table: &str, chain: Chain) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_CHAIN_TABLE, table);
    let attributes = attributes.text(uapi::NFTA_CHAIN_NAME, &chain.to_string());
    let Some(hook) = chain.hook() else { return attributes };
    let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
    let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
    let attributes = attributes.nested(uapi::NFTA_CHAIN_HOOK, &place);
    let attributes = match chain.chain_type() {
        Some(kind) => attributes.text(uapi::NFTA_CHAIN_TYPE, kind),
        None => attributes,
    };
    attributes.be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT)
}

fn element_list(table: &str, set: SetId, elements: impl Iterator<Item = Attributes>) -> Attributes {
    let list =
        elements.fold(Attributes::default(), |list, element| list.nested(uapi::NFTA_LIST_ELEM, &element));
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, table);
    let attributes = attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string());
    attributes.nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list)
}

fn encode_key(key: &Key) -> Attributes {
    let value = |bytes: &[u8]| Attributes::default().bytes(uapi::NFTA_DATA_VALUE, bytes);
    let attributes = Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value(&key.low));
    match &key.high {
        Some(high) => attributes.nested(uapi::NFTA_SET_ELEM_KEY_END, &value(high)),
        None => attributes,
    }
}

fn encode_element_key(element: &SetElement) -> Attributes {
    let key = encode_key(&element.key());
    if matches!(element, SetElement::Network(_, Edge { is_end: true, .. })) {
        key.be32(uapi::NFTA_SET_ELEM_FLAGS, uapi::NFT_SET_ELEM_INTERVAL_END)
    } else {
        key
    }
}

fn encode_element(element: &SetElement) -> Attributes {
    let key = encode_element_key(element);
    let data = Attributes::default();
    if let Some(dispatch) = element.chain() {
        let verdict = VerdictExpr::Goto(dispatch.chain().to_string()).encode();
        return key.nested(uapi::NFTA_SET_ELEM_DATA, &data.nested(uapi::NFTA_DATA_VERDICT, &verdict));
    }
    match element.value() {
        Some(value) => key.nested(uapi::NFTA_SET_ELEM_DATA, &data.bytes(uapi::NFTA_DATA_VALUE, &value)),
        None => key,
    }
}

/// Returns the pick chains (which pick a target slot) that `changes` refer to.
#[must_use]
pub fn picks(changes: &[Change]) -> BTreeSet<Pick> {
    let pick = |change: &Change| match change {
        Change::Add(element) => match element.chain()? {
            FrontendChain::Forward(pick) => Some(pick),
            FrontendChain::Refuse
            | FrontendChain::Discard
            | FrontendChain::BySource(_)
            | FrontendChain::Checked(_) => None,
        },
        Change::Remove(_) => None,
    };
    changes.iter().filter_map(pick).collect()
}

impl fmt::Display for NftCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteTable => f.write_str("delete the table"),
            Self::AddTable => f.write_str("add the table"),
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
            Self::DeleteChain(chain) => write!(f, "delete chain {chain}"),
            Self::AddRule(chain, exprs) => {
                let exprs: Vec<_> = exprs.iter().map(ToString::to_string).collect();
                write!(f, "add rule {chain} {}", exprs.join("; "))
            }
            Self::DeleteKeys(set, keys) => {
                let keys: Vec<_> = keys.iter().map(|key| format!("{:02x?}", key.low)).collect();
                write!(f, "delete element {set} {{ {} }}", keys.join(", "))
            }
            Self::DeleteElements(set, elements) => write!(f, "delete element {set} {{ {} }}", join(elements)),
            Self::AddElements(set, elements) => write!(f, "add element {set} {{ {} }}", join(elements)),
        }
    }
}

fn join(elements: &[SetElement]) -> String {
    let elements: Vec<_> = elements.iter().map(ToString::to_string).collect();
    elements.join(", ")
}
