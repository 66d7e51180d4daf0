//! `describe` sections of pools, advertisements and addresses. Pure functions.

use model::{
    kinds::{
        advertisement::{AdvertisementType, WhenIsolated},
        resource::Kind,
    },
    observed::status::PoolUsage,
    primitives::quantity::Timestamp,
    wire::report::AnnouncementRole,
};
use serde_json::Value;

use crate::{
    age::age,
    resource::Resource,
    terminal::{
        clean,
        style::Tone,
        table::{Cell, Table},
    },
    views::typed::{Address, AddressPool, Advertisement, word, words},
    views::{
        bgp,
        columns::{
            self, Columns,
            addresses::{address_state, advertised_pools, conflicts, or_all, preferences, selectors},
        },
        describe::{Page, bgp as describe_bgp},
    },
};

/// Maximum number of addresses in a description; `get addresses` lists all.
const ADDRESSES_SHOWN: usize = 100;

pub(crate) fn pool(page: &mut Page, object: &AddressPool) {
    let spec = &object.spec;
    page.section("Address pool");
    for range in &spec.addresses {
        page.field("Addresses", &range.to_string());
    }
    page.optional("Reserved", &words(&spec.reserved));
    page.field(
        "Auto-assign",
        if spec.auto_assign {
            "yes"
        } else {
            "no: only to Services that request the pool or one of its addresses"
        },
    );
    if spec.avoid_buggy_ips {
        page.field("Left out", "IPv4 addresses ending in .0 or .255");
    }
    let priority = spec
        .priority
        .map_or_else(|| "none: used after pools with a priority".to_owned(), |it| it.to_string());
    page.field("Priority", &priority);
    page.field("Namespaces", &or_all(words(&spec.namespaces)));
    page.field("Services", &or_all(selectors(&spec.service_selectors)));
    let quarantine =
        spec.quarantine_seconds.map_or_else(|| "60 (the default)".to_owned(), |it| it.to_string());
    page.field("Quarantine (s)", &quarantine);
    if spec.routed_externally {
        page.field("Routed externally", "yes: another system leads the addresses to the nodes");
    }
    if spec.disabled {
        page.field("Disabled", "yes: assigned addresses are kept, no new ones are assigned");
    }
    let count = |addresses: u64| match addresses {
        u64::MAX => format!("at least {addresses}"),
        addresses => addresses.to_string(),
    };
    for (title, usage) in [("IPv4", &object.status.v4), ("IPv6", &object.status.v6)] {
        let PoolUsage { total, assigned, quarantined, available } = *usage;
        if total > 0 {
            let [total, assigned, quarantined, available] =
                [total, assigned, quarantined, available].map(count);
            page.field(
                title,
                &format!("{assigned} used, {quarantined} in quarantine, {available} free, of {total}"),
            );
        }
    }
}

/// Adds a table of the Address objects of a pool or Service, with the Services that use each address. Lists
/// at most [`ADDRESSES_SHOWN`].
pub(crate) fn held(page: &mut Page, addresses: &[Value], now: Timestamp) {
    let resource = Resource::Object(Kind::Address);
    page.section(&format!("Addresses ({})", addresses.len()));
    if addresses.is_empty() {
        page.line("  <none>");
        return;
    }
    let mut table = columns::empty(resource, Columns::default());
    for address in columns::in_order(resource, addresses).into_iter().take(ADDRESSES_SHOWN) {
        columns::push(&mut table, resource, Columns::default(), address, now, "");
    }
    page.table(&table);
    if addresses.len() > ADDRESSES_SHOWN {
        page.line(&format!("  and {} more: `tidegate get addresses`", addresses.len() - ADDRESSES_SHOWN));
    }
}

pub(crate) fn advertisement(page: &mut Page, object: &Advertisement) {
    let spec = &object.spec;
    page.section("Advertisement");
    page.field("Type", &word(&spec.advertisement_type));
    page.field("Pools", &advertised_pools(spec));
    page.optional("Workload networks", &words(&spec.workload_networks));
    page.field("Services", &or_all(selectors(&spec.service_selectors)));
    page.field("Nodes", &or_all(selectors(&spec.node_selectors)));
    page.optional("Preferred nodes", &preferences(spec));
    if spec.advertisement_type == AdvertisementType::Bgp {
        describe_bgp::advertisement(page, spec);
        return;
    }
    let interfaces = words(&spec.interfaces);
    page.field(
        "Interfaces",
        if interfaces.is_empty() { "all interfaces whose network contains the address" } else { &interfaces },
    );
    page.field("Answers ping", if spec.answer_ping { "yes" } else { "no" });
    page.field("When isolated", isolated(spec.when_isolated));
}

const fn isolated(policy: WhenIsolated) -> &'static str {
    match policy {
        WhenIsolated::Keep => "Keep: the owner keeps announcing",
        WhenIsolated::Withdraw => "Withdraw: the owner stops announcing",
    }
}

pub(crate) fn address(page: &mut Page, object: &Address, now: Timestamp) {
    let spec = &object.spec;
    page.section("Address");
    page.field("Address", &spec.address.to_string());
    let (state, tone) = address_state(object, now);
    let state = page.paint(tone, &state);
    page.line(&format!("{:<24}{state}", "State:"));
    let pool = spec.pool.as_ref().map_or_else(|| "none: requested manually".to_owned(), word);
    page.field("Pool", &pool);
    page.field("Services", &words(&spec.services));
    page.optional("Sharing key", &word(&spec.sharing_key));
    if let Some(quarantine) = &spec.quarantine {
        let (former, until) = (&quarantine.former, quarantine.until);
        page.field("Held back", &format!("for {former} until {until}; then available to all"));
    }
    let by_bgp = object.status.by_bgp.as_ref().map(|by_bgp| bgp::of_address(spec, by_bgp));
    let is_by_l2 = object.status.owner.is_some() || !spec.announcement.candidates.is_empty();
    if is_by_l2 || by_bgp.is_none() {
        announcement(page, object, now);
    }
    let Some(by_bgp) = by_bgp else { return };
    page.section("Announcement by BGP");
    for (label, value) in by_bgp {
        page.field(label, &value);
    }
}

/// Adds the owner of an address (the node that announces it), the candidates, and the nodes that may not be
/// candidates.
fn announcement(page: &mut Page, object: &Address, now: Timestamp) {
    let (announcement, status) = (&object.spec.announcement, &object.status);
    page.section("Announcement");
    let since = status.since.filter(|_| status.owner.is_some());
    let since = since.map(|then| format!(" since {then} ({} ago)", age(then, now))).unwrap_or_default();
    page.field("Owner", &format!("{}{since}", word(&status.owner)));
    page.field("Epoch", &announcement.epoch.to_string());
    page.field("Answers ping", if announcement.answer_ping { "yes" } else { "no" });
    page.field("When isolated", isolated(announcement.when_isolated));
    for conflict in conflicts(object) {
        let line = page.paint(Tone::Bad, &format!("also announced by {conflict}"));
        page.line(&format!("{:<24}{line}", "Conflict:"));
    }
    candidates(page, object);
    parts(page, object, now);
    if !status.not_candidates.is_empty() {
        page.section("Excluded nodes");
    }
    for (node, reason) in &status.not_candidates {
        page.line(&format!("  {}: {}", clean(&word(node)), clean(reason)));
    }
}

fn candidates(page: &mut Page, object: &Address) {
    page.section("Candidates (the first live one owns the address)");
    let candidates = &object.spec.announcement.candidates;
    if candidates.is_empty() {
        page.line("  <none>");
        return;
    }
    let mut table = Table::new(vec!["RANK", "NODE", "ADDRESS", "INTERFACES"]);
    for (at, candidate) in candidates.iter().enumerate() {
        table.push(vec![
            (at + 1).to_string().into(),
            word(&candidate.node).into(),
            candidate.address.to_string().into(),
            words(&candidate.interfaces).into(),
        ]);
    }
    page.table(&table);
}

/// Adds the state of the announcement on each node, as reported by the node's agent.
fn parts(page: &mut Page, object: &Address, now: Timestamp) {
    if object.status.nodes.is_empty() {
        return;
    }
    page.section("Reported by nodes");
    let mut table = Table::new(vec![
        "NODE",
        "ROLE",
        "EPOCH",
        "SINCE",
        "INTERFACES",
        "REPLIES",
        "GRATUITOUS",
        "LAST",
        "BECAUSE",
    ]);
    for (node, part) in &object.status.nodes {
        let tone = match part.role {
            AnnouncementRole::Owner => Tone::Good,
            AnnouncementRole::Standby => Tone::Plain,
            AnnouncementRole::Held => Tone::Bad,
        };
        table.push(vec![
            word(node).into(),
            Cell::toned(tone, word(&part.role)),
            part.epoch.to_string().into(),
            age(part.since, now).into(),
            part.interfaces.join(",").into(),
            part.replies.to_string().into(),
            part.gratuitous.to_string().into(),
            part.last_gratuitous.map(|then| age(then, now)).unwrap_or_default().into(),
            (&part.reason).into(),
        ]);
    }
    page.table(&table);
}
