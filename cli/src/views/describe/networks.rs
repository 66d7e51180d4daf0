//! `describe` sections of workload networks, blocks and Attachments. Pure functions.

use model::{kinds::resource::Kind, primitives::quantity::Timestamp};
use serde_json::Value;

use crate::{
    resource::Resource,
    terminal::table::Table,
    views::{
        columns::{
            self, Columns,
            networks::{block_state, or_none},
        },
        typed::{Attachment, Block, WorkloadNetwork, word, words},
    },
};

use super::Page;

/// Maximum number of blocks in a description; `get blocks` has all.
const BLOCKS_SHOWN: usize = 200;

pub(crate) fn network(page: &mut Page, object: &WorkloadNetwork) {
    let (spec, found) = (&object.spec, &object.status);
    page.section("Workload network");
    page.field("CIDRs", &words(&spec.cidrs));
    page.field("Block size", &format!("IPv4 /{}, IPv6 /{}", spec.block_size.ipv4, spec.block_size.ipv6));
    page.field("Reserved", &or_none(words(&spec.reserved)));
    page.field("Cooldown", &format!("{} s", spec.cooldown_seconds));
    page.field("Encapsulation", &format!("{}, {}", word(&spec.encapsulation), word(&spec.when)));
    let except = match spec.nat_except.is_empty() {
        true => String::new(),
        false => format!(", except to {}", words(&spec.nat_except)),
    };
    let nat = if spec.nat_outgoing { format!("outgoing packets{except}") } else { "none".to_owned() };
    page.field("Masquerading", &nat);
    page.field("MTU", &spec.mtu.map_or_else(|| "derived by nodes".to_owned(), |mtu| mtu.to_string()));
    page.optional("Interfaces", &words(&spec.interfaces.names));
    page.optional("Network namespaces", &words(&spec.interfaces.network_namespaces));
    page.section("Blocks");
    let mut table = Table::new(vec!["FAMILY", "GIVEN", "COOLING", "TOTAL", "ADDRESSES", "ATTACHED"]);
    for (family, usage) in [("IPv4", found.v4), ("IPv6", found.v6)] {
        if usage.total > 0 {
            let numbers = [usage.given, usage.cooling, usage.total, usage.addresses, usage.attached];
            let numbers = numbers.into_iter().map(|number| number.to_string().into());
            table.push(std::iter::once(family.into()).chain(numbers).collect());
        }
    }
    page.table(&table);
    page.field("Nodes", &found.nodes.to_string());
    if !found.nodes_without_block.is_empty() {
        page.field("Without block", &words(&found.nodes_without_block));
    }
}

/// Lists the blocks of a network or a Node, in the order of their addresses.
pub(crate) fn map(page: &mut Page, blocks: &[Value], now: Timestamp) {
    let resource = Resource::Object(Kind::Block);
    page.section(&format!("Block map ({})", blocks.len()));
    if blocks.is_empty() {
        page.line("  <none>");
        return;
    }
    let mut table = columns::empty(resource, Columns::default());
    for block in columns::in_order(resource, blocks).into_iter().take(BLOCKS_SHOWN) {
        columns::push(&mut table, resource, Columns::default(), block, now, "");
    }
    page.table(&table);
    if blocks.len() > BLOCKS_SHOWN {
        page.line(&format!("  and {} more: `tidegate get blocks`", blocks.len() - BLOCKS_SHOWN));
    }
}

pub(crate) fn block(page: &mut Page, object: &Block) {
    let (spec, found) = (&object.spec, &object.status);
    page.section("Block");
    page.field("Network", spec.network.as_str());
    page.field("CIDR", &spec.cidr.to_string());
    page.field("Node", spec.node.as_str());
    page.field("State", block_state(spec));
    page.field("Since", &spec.since.to_string());
    if let Some(until) = spec.cooldown_until {
        page.field("Cooldown", &format!("until {until}"));
    }
    page.field("Attached", &format!("{} of {} addresses", found.attached, found.addresses));
}

pub(crate) fn attachment(page: &mut Page, object: &Attachment) {
    let spec = &object.spec;
    page.section("Attachment");
    page.field("Workload", &spec.workload.to_string());
    page.field("Addresses", &words(&spec.addresses));
    page.field("Network", &or_none(spec.network.as_ref().map(ToString::to_string).unwrap_or_default()));
    page.field("Node", spec.node.as_str());
    page.field("Kind", &word(&spec.kind));
    page.field("Interface", &format!("{} (on the node: {})", spec.interface, spec.host_interface));
    page.field("MAC", &or_none(spec.mac.clone().unwrap_or_default()));
    page.field("Container", &or_none(spec.container_id.clone().unwrap_or_default()));
    if spec.declared {
        let state = spec.fault.as_ref().map_or("configured", |fault| fault.message.as_str());
        page.field("Declared", &format!("by the Workload; {state}"));
    }
}
