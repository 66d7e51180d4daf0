//! Builder of the messages that write the table. Does no I/O.

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        expr::Expr,
        render::{self as request, message},
        uapi,
    },
};

use super::{FilterChain, FilterElement, FilterSet, FilterTable, TABLE};

/// Maximum number of set elements per message. The length of an attribute has 16 bits, and an element takes 36 bytes.
const ELEMENTS_PER_MESSAGE: usize = 1000;

/// Returns the messages of one transaction that replaces the table. `exists` is true if the kernel has a table with the name.
#[must_use]
pub fn replace(table: Option<&FilterTable>, exists: bool) -> Vec<Message> {
    let mut messages = Vec::new();
    if exists {
        messages.push(request::delete_table(TABLE));
    }
    let Some(table) = table else { return messages };
    messages.push(request::add_table(TABLE));
    messages.extend((1..).zip(table.sets.keys()).map(|(id, set)| add_set(*set, id)));
    for (chain, rules) in &table.chains {
        messages.push(add_chain(*chain));
        messages.extend(rules.iter().map(|rule| add_rule(*chain, rule)));
    }
    for (set, elements) in &table.sets {
        let elements: Vec<_> = elements.iter().collect();
        messages.extend(elements.chunks(ELEMENTS_PER_MESSAGE).map(|chunk| add_elements(*set, chunk)));
    }
    messages
}

/// Builds the request for the elements of a set.
#[must_use]
pub fn dump_elements(set: FilterSet) -> Message {
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, element_place(set))
}

/// Builds the message that creates a set. Rules in the same transaction refer to the set by name; the kernel requires the
/// `id` too.
fn add_set(set: FilterSet, id: u32) -> Message {
    let (key_type, key_length) = set.key();
    let attributes = Attributes::default()
        .text(uapi::NFTA_SET_TABLE, TABLE)
        .text(uapi::NFTA_SET_NAME, set.name())
        .be32(uapi::NFTA_SET_FLAGS, set.flags())
        .be32(uapi::NFTA_SET_KEY_TYPE, key_type)
        .be32(uapi::NFTA_SET_KEY_LEN, key_length)
        .be32(uapi::NFTA_SET_ID, id);
    message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, attributes)
}

fn add_chain(chain: FilterChain) -> Message {
    let hook = chain.hook();
    let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
    let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
    let attributes = Attributes::default()
        .text(uapi::NFTA_CHAIN_TABLE, TABLE)
        .text(uapi::NFTA_CHAIN_NAME, chain.name())
        .nested(uapi::NFTA_CHAIN_HOOK, &place)
        .text(uapi::NFTA_CHAIN_TYPE, chain.kind())
        .be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT);
    message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, attributes)
}

fn add_rule(chain: FilterChain, rule: &[Expr]) -> Message {
    let add = |list: Attributes, expr: &Expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode());
    let list = rule.iter().fold(Attributes::default(), add);
    let attributes = Attributes::default()
        .text(uapi::NFTA_RULE_TABLE, TABLE)
        .text(uapi::NFTA_RULE_CHAIN, chain.name())
        .nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
    message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
}

fn add_elements(set: FilterSet, elements: &[&FilterElement]) -> Message {
    let encode = |element: &FilterElement| {
        let value = Attributes::default().bytes(uapi::NFTA_DATA_VALUE, &element.key);
        let key = Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value);
        if element.is_end {
            key.be32(uapi::NFTA_SET_ELEM_FLAGS, uapi::NFT_SET_ELEM_INTERVAL_END)
        } else {
            key
        }
    };
    let add =
        |list: Attributes, element: &&FilterElement| list.nested(uapi::NFTA_LIST_ELEM, &encode(element));
    let list = elements.iter().fold(Attributes::default(), add);
    let attributes = element_place(set).nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list);
    message(uapi::NFT_MSG_NEWSETELEM, uapi::NLM_F_CREATE, attributes)
}

fn element_place(set: FilterSet) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
    attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, set.name())
}
