//! Encodes a plan for the echo reply table as netlink messages, ordered so that objects exist before they are
//! referenced. Does no I/O.

use std::net::IpAddr;

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        expr::Expr,
        render::{self as request, message},
        uapi,
    },
};

use super::{
    plan::Plan,
    schema::{Reply, Set, TABLE},
};

/// Maximum number of set elements per message. The length of an attribute has 16 bits, and an element takes
/// 28 bytes.
const ELEMENTS_PER_MESSAGE: usize = 1000;

/// Returns the netlink messages of one transaction that carries out a plan.
#[must_use]
pub fn messages(plan: &Plan) -> Vec<Message> {
    let Plan { delete_table, make_table, removed, added } = plan;
    let mut messages = Vec::new();
    if *delete_table {
        messages.push(request::delete_table(TABLE));
    }
    if *make_table {
        messages.push(request::add_table(TABLE));
        messages.extend((1..).zip(Set::all()).map(|(id, set)| add_set(set, id)));
        for reply in Reply::ALL {
            messages.push(add_chain(reply));
            messages.extend(reply.rules().iter().map(|rule| add_rule(reply, rule)));
        }
    }
    messages.extend(elements(uapi::NFT_MSG_DELSETELEM, 0, removed));
    messages.extend(elements(uapi::NFT_MSG_NEWSETELEM, uapi::NLM_F_CREATE, added));
    messages
}

/// Returns the dump request for all elements of a set.
#[must_use]
pub fn dump_elements(set: Set) -> Message {
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, element_place(set))
}

/// Returns the message that creates a set. Rules in the same transaction refer to the set by `id`, which the
/// kernel requires even if no rule uses it.
fn add_set(set: Set, id: u32) -> Message {
    let (key_type, key_length) = set.key();
    let attributes = Attributes::default()
        .text(uapi::NFTA_SET_TABLE, TABLE)
        .text(uapi::NFTA_SET_NAME, set.name())
        .be32(uapi::NFTA_SET_FLAGS, 0)
        .be32(uapi::NFTA_SET_KEY_TYPE, key_type)
        .be32(uapi::NFTA_SET_KEY_LEN, key_length)
        .be32(uapi::NFTA_SET_ID, id);
    message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, attributes)
}

fn add_chain(reply: Reply) -> Message {
    let hook = reply.hook();
    let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
    let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
    let attributes = Attributes::default()
        .text(uapi::NFTA_CHAIN_TABLE, TABLE)
        .text(uapi::NFTA_CHAIN_NAME, reply.chain())
        .nested(uapi::NFTA_CHAIN_HOOK, &place)
        .text(uapi::NFTA_CHAIN_TYPE, reply.chain_type())
        .be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT);
    message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, attributes)
}

fn add_rule(reply: Reply, rule: &[Expr]) -> Message {
    let list = rule
        .iter()
        .fold(Attributes::default(), |list, expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode()));
    let attributes = Attributes::default()
        .text(uapi::NFTA_RULE_TABLE, TABLE)
        .text(uapi::NFTA_RULE_CHAIN, reply.chain())
        .nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
    message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
}

fn elements(kind: u16, flags: u16, changes: &[(Set, IpAddr)]) -> Vec<Message> {
    let mut messages = Vec::new();
    for set in Set::all() {
        let of_set: Vec<_> =
            changes.iter().filter(|(other, _)| *other == set).map(|(_, address)| *address).collect();
        for chunk in of_set.chunks(ELEMENTS_PER_MESSAGE) {
            let list = chunk.iter().fold(Attributes::default(), |list, address| {
                list.nested(uapi::NFTA_LIST_ELEM, &key(*address))
            });
            let attributes = element_place(set).nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list);
            messages.push(message(kind, flags, attributes));
        }
    }
    messages
}

fn element_place(set: Set) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
    attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, set.name())
}

fn key(address: IpAddr) -> Attributes {
    let value = Attributes::default();
    let value = match address {
        IpAddr::V4(address) => value.bytes(uapi::NFTA_DATA_VALUE, &address.octets()),
        IpAddr::V6(address) => value.bytes(uapi::NFTA_DATA_VALUE, &address.octets()),
    };
    Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value)
}
