//! Builder of the messages that read and write the table. Does no I/O.

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        expr::{Expr, VerdictExpr},
        render::{self as request, message},
        uapi,
    },
};

use super::{
    desired::{PolicyElement, PolicyElements, PolicyValue},
    plan::PolicyPlan,
    rules::rules,
    schema::{PolicyChain, PolicyMap, TABLE},
};

/// Maximum number of elements per message. The length of an attribute has 16 bits, and the largest element takes about 120
/// bytes.
const ELEMENTS_PER_MESSAGE: usize = 400;

/// Returns the messages of one transaction that creates the table with these elements. `exists` is true if the kernel has a
/// table with the name, which is replaced.
#[must_use]
pub fn replace(elements: &PolicyElements, exists: bool) -> Vec<Message> {
    let mut messages = Vec::new();
    if exists {
        messages.push(request::delete_table(TABLE));
    }
    messages.push(request::add_table(TABLE));
    messages.extend((1..).zip(PolicyMap::all()).map(|(id, map)| add_map(map, id)));
    messages.extend(PolicyChain::all().map(add_chain));
    for chain in PolicyChain::all() {
        messages.extend(rules(chain).iter().map(|rule| add_rule(chain, rule)));
    }
    let added = elements.iter().map(|(element, value)| (element.clone(), value.clone())).collect();
    messages.extend(changes(&PolicyPlan { removed: Vec::new(), added }));
    messages
}

/// Returns the messages of one transaction that changes elements.
#[must_use]
pub fn changes(plan: &PolicyPlan) -> Vec<Message> {
    let mut messages = Vec::new();
    for map in PolicyMap::all() {
        let keys: Vec<_> = plan.removed.iter().filter(|element| element.map == map).map(key).collect();
        let list = |chunk: &[Attributes]| message(uapi::NFT_MSG_DELSETELEM, 0, element_list(map, chunk));
        messages.extend(keys.chunks(ELEMENTS_PER_MESSAGE).map(list));
    }
    for map in PolicyMap::all() {
        let of_map = plan.added.iter().filter(|(element, _)| element.map == map);
        let elements: Vec<_> = of_map.map(|(element, value)| with_value(element, value)).collect();
        let list = |chunk: &[Attributes]| {
            message(uapi::NFT_MSG_NEWSETELEM, uapi::NLM_F_CREATE, element_list(map, chunk))
        };
        messages.extend(elements.chunks(ELEMENTS_PER_MESSAGE).map(list));
    }
    messages
}

/// Builds the request for all elements of a map.
#[must_use]
pub fn dump_elements(map: PolicyMap) -> Message {
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, element_place(map))
}

/// Builds the request for one element, by its key.
#[must_use]
pub fn get_element(element: &PolicyElement) -> Message {
    let list = element_list(element.map, &[key(element)]);
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_ACK, list)
}

/// Builds the message that creates a map. Rules in the same transaction refer to the map by name; the kernel requires the
/// `id` too.
fn add_map(map: PolicyMap, id: u32) -> Message {
    let (empty, shape) = (Attributes::default, map.shape());
    let mut attributes = empty()
        .text(uapi::NFTA_SET_TABLE, TABLE)
        .text(uapi::NFTA_SET_NAME, &map.to_string())
        .be32(uapi::NFTA_SET_FLAGS, shape.flags)
        .be32(uapi::NFTA_SET_KEY_TYPE, shape.key_type)
        .be32(uapi::NFTA_SET_KEY_LEN, shape.key_length)
        .be32(uapi::NFTA_SET_ID, id);
    if shape.data_type != 0 {
        attributes = attributes.be32(uapi::NFTA_SET_DATA_TYPE, shape.data_type);
        attributes = attributes.be32(uapi::NFTA_SET_DATA_LEN, shape.data_length);
    }
    if map.has_intervals() {
        let fields = map.field_lengths().into_iter().fold(empty(), |list, length| {
            list.nested(uapi::NFTA_LIST_ELEM, &empty().be32(uapi::NFTA_SET_FIELD_LEN, length))
        });
        let description = empty().nested(uapi::NFTA_SET_DESC_CONCAT, &fields);
        attributes = attributes.nested(uapi::NFTA_SET_DESC, &description);
    }
    if map.is_counted() {
        let counter = empty().text(uapi::NFTA_EXPR_NAME, "counter").nested(uapi::NFTA_EXPR_DATA, &empty());
        attributes = attributes.nested(uapi::NFTA_SET_EXPR, &counter);
    }
    message(uapi::NFT_MSG_NEWSET, uapi::NLM_F_CREATE, attributes)
}

fn add_chain(chain: PolicyChain) -> Message {
    let mut attributes = Attributes::default()
        .text(uapi::NFTA_CHAIN_TABLE, TABLE)
        .text(uapi::NFTA_CHAIN_NAME, &chain.to_string());
    if let Some(hook) = chain.hook() {
        let place = Attributes::default().be32(uapi::NFTA_HOOK_HOOKNUM, hook.number);
        let place = place.bytes(uapi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
        attributes = attributes
            .nested(uapi::NFTA_CHAIN_HOOK, &place)
            .text(uapi::NFTA_CHAIN_TYPE, "filter")
            .be32(uapi::NFTA_CHAIN_POLICY, uapi::NF_ACCEPT);
    }
    message(uapi::NFT_MSG_NEWCHAIN, uapi::NLM_F_CREATE, attributes)
}

fn add_rule(chain: PolicyChain, rule: &[Expr]) -> Message {
    let add = |list: Attributes, expr: &Expr| list.nested(uapi::NFTA_LIST_ELEM, &expr.encode());
    let list = rule.iter().fold(Attributes::default(), add);
    let attributes = Attributes::default()
        .text(uapi::NFTA_RULE_TABLE, TABLE)
        .text(uapi::NFTA_RULE_CHAIN, &chain.to_string())
        .nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
    message(uapi::NFT_MSG_NEWRULE, uapi::NLM_F_CREATE | uapi::NLM_F_APPEND, attributes)
}

fn element_list(map: PolicyMap, elements: &[Attributes]) -> Attributes {
    let add = |list: Attributes, element: &Attributes| list.nested(uapi::NFTA_LIST_ELEM, element);
    let list = elements.iter().fold(Attributes::default(), add);
    element_place(map).nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list)
}

fn element_place(map: PolicyMap) -> Attributes {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
    attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &map.to_string())
}

fn key(element: &PolicyElement) -> Attributes {
    let value = |bytes: &[u8]| Attributes::default().bytes(uapi::NFTA_DATA_VALUE, bytes);
    let attributes = Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value(&element.low));
    match &element.high {
        Some(high) => attributes.nested(uapi::NFTA_SET_ELEM_KEY_END, &value(high)),
        None => attributes,
    }
}

fn with_value(element: &PolicyElement, value: &PolicyValue) -> Attributes {
    let (key, data) = (key(element), Attributes::default());
    let data = match value {
        PolicyValue::Absent => return key,
        PolicyValue::Bytes(bytes) => data.bytes(uapi::NFTA_DATA_VALUE, bytes),
        PolicyValue::Goto(chain) => {
            data.nested(uapi::NFTA_DATA_VERDICT, &VerdictExpr::Goto(chain.to_string()).encode())
        }
    };
    key.nested(uapi::NFTA_SET_ELEM_DATA, &data)
}
