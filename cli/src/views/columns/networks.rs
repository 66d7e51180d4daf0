//! Columns of workload networks, blocks and Attachments. Pure functions.

use ipnet::IpNet;
use model::{kinds::block::BlockSpec, observed::network_status::BlockUsage, primitives::quantity::Timestamp};

use serde_json::Value;

use crate::{
    terminal::table::Cell,
    views::columns::{addresses::status, age_cell},
    views::typed::{Attachment, Block, WorkloadNetwork, word, words},
};

/// Column headings of workload networks: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const NETWORK: (&[&str], &[&str]) = (
    &["NAME", "CIDRS", "ENCAPSULATION", "NODES", "IPV4-BLOCKS", "IPV6-BLOCKS", "STATUS", "AGE"],
    &["WHEN", "NAT", "MTU", "RESERVED", "COOLDOWN"],
);
/// Column headings of blocks.
pub(crate) const BLOCK: (&[&str], &[&str]) = (&["BLOCK", "NETWORK", "NODE", "USED", "STATE", "AGE"], &[]);
/// Column headings of Attachments: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ATTACHMENT: (&[&str], &[&str]) = (
    &["NAME", "WORKLOAD", "ADDRESSES", "NODE", "KIND", "STATUS", "AGE"],
    &["INTERFACE", "HOST-INTERFACE", "MAC", "CONTAINER"],
);

pub(crate) fn network(object: &WorkloadNetwork, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (spec, found) = (&object.spec, &object.status);
    let mut row: Vec<Cell> = vec![
        words(&spec.cidrs).into(),
        word(&spec.encapsulation).into(),
        found.nodes.to_string().into(),
        share(found.v4).into(),
        share(found.v6).into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(word(&spec.when).into());
        row.push(if spec.nat_outgoing { "outgoing" } else { "none" }.into());
        row.push(spec.mtu.map_or_else(|| "auto".to_owned(), |mtu| mtu.to_string()).into());
        row.push(or_none(words(&spec.reserved)).into());
        row.push(format!("{}s", spec.cooldown_seconds).into());
    }
    row
}

/// Returns the number of blocks in use and of all blocks, such as `3/1024`; a dash for a family without networks.
pub(crate) fn share(usage: BlockUsage) -> String {
    if usage.total == 0 { "-".to_owned() } else { format!("{}/{}", usage.given, usage.total) }
}

pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Returns the network of a block, by which blocks are sorted; `None` if it cannot be decoded.
pub(crate) fn rank(object: &Value) -> Option<IpNet> {
    object.pointer("/spec/cidr").and_then(Value::as_str).and_then(|text| text.parse().ok())
}

pub(crate) fn block(object: &Block, now: Timestamp) -> Vec<Cell> {
    let (spec, found) = (&object.spec, &object.status);
    vec![
        spec.network.as_str().into(),
        spec.node.as_str().into(),
        format!("{}/{}", found.attached, found.addresses).into(),
        block_state(spec).into(),
        age_cell(object.metadata.as_ref(), now),
    ]
}

/// Returns the state of a block: `Given`, `Draining` or `Cooling`.
pub(crate) const fn block_state(spec: &BlockSpec) -> &'static str {
    match (spec.is_held(), spec.draining) {
        (false, _) => "Cooling",
        (true, true) => "Draining",
        (true, false) => "Given",
    }
}

pub(crate) fn block_summary(spec: &BlockSpec) -> Vec<String> {
    vec![spec.cidr.to_string(), format!("node/{}", spec.node), block_state(spec).to_owned()]
}

pub(crate) fn attachment(object: &Attachment, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row: Vec<Cell> = vec![
        spec.workload.to_string().into(),
        words(&spec.addresses).into(),
        spec.node.as_str().into(),
        word(&spec.kind).into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push((&spec.interface).into());
        row.push((&spec.host_interface).into());
        row.push(or_none(spec.mac.clone().unwrap_or_default()).into());
        row.push(or_none(spec.container_id.clone().unwrap_or_default()).into());
    }
    row
}
