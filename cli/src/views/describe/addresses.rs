//! `describe` sections of pools, advertisements and addresses. Pure.

use model::{kinds::resource::Kind, primitives::quantity::Timestamp};
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, entries, flag, items, joined, number, scalar, text, time},
    resource::Resource,
    terminal::{
        style::Tone,
        table::{Cell, Table},
    },
    views::{
        bgp,
        columns::{
            self, Columns,
            addresses::{address_state, conflicts, or_all, preferences, selectors},
        },
        describe::{Page, bgp as describe_bgp},
    },
};

/// Maximum number of addresses in a description; `get addresses` lists all.
const ADDRESSES_SHOWN: usize = 100;

pub(crate) fn pool(page: &mut Page, object: &Value) {
    page.section("Address pool");
    for range in items(object, "/spec/addresses") {
        page.field("Addresses", &scalar(range));
    }
    page.optional("Reserved", &joined(object, "/spec/reserved"));
    let auto = flag(object, "/spec/autoAssign", true);
    page.field(
        "Auto-assign",
        if auto { "yes" } else { "no: only to Services that request the pool or one of its addresses" },
    );
    if flag(object, "/spec/avoidBuggyIPs", false) {
        page.field("Left out", "IPv4 addresses ending in .0 or .255");
    }
    let priority = text(object, "/spec/priority");
    page.field(
        "Priority",
        if priority.is_empty() { "none: used after pools with a priority" } else { &priority },
    );
    page.field("Namespaces", &or_all(joined(object, "/spec/namespaces")));
    page.field("Services", &or_all(selectors(object, "/spec/serviceSelectors")));
    let quarantine = text(object, "/spec/quarantineSeconds");
    page.field("Quarantine (s)", if quarantine.is_empty() { "60 (the default)" } else { &quarantine });
    if flag(object, "/spec/disabled", false) {
        page.field("Disabled", "yes: assigned addresses are kept, no new ones are assigned");
    }
    for (title, family) in [("IPv4", "ipv4"), ("IPv6", "ipv6")] {
        let [total, assigned, quarantined, available] = ["total", "assigned", "quarantined", "available"]
            .map(|key| {
                let addresses = number(object, &format!("/status/{family}/{key}"));
                if addresses == u64::MAX { format!("at least {addresses}") } else { addresses.to_string() }
            });
        if total != "0" {
            page.field(
                title,
                &format!("{assigned} used, {quarantined} in quarantine, {available} free, of {total}"),
            );
        }
    }
}

/// Adds the list of assigned addresses with their holders.
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

pub(crate) fn advertisement(page: &mut Page, object: &Value) {
    page.section("Advertisement");
    let kind = text(object, "/spec/type");
    page.field("Type", if kind.is_empty() { "L2" } else { &kind });
    page.field("Pools", &or_all(joined(object, "/spec/addressPools")));
    page.field("Services", &or_all(selectors(object, "/spec/serviceSelectors")));
    page.field("Nodes", &or_all(selectors(object, "/spec/nodeSelectors")));
    page.optional("Preferred nodes", &preferences(object));
    if kind == "BGP" {
        describe_bgp::advertisement(page, object);
        return;
    }
    let interfaces = joined(object, "/spec/interfaces");
    page.field(
        "Interfaces",
        if interfaces.is_empty() { "all interfaces whose network contains the address" } else { &interfaces },
    );
    page.field("Answers ping", if flag(object, "/spec/answerPing", true) { "yes" } else { "no" });
    page.field("When isolated", isolated(&text(object, "/spec/whenIsolated")));
}

fn isolated(word: &str) -> &str {
    match word {
        "" | "Keep" => "Keep: the owner keeps announcing",
        "Withdraw" => "Withdraw: the owner stops announcing",
        other => other,
    }
}

pub(crate) fn address(page: &mut Page, object: &Value, now: Timestamp) {
    page.section("Address");
    page.field("Address", &columns::identity(Resource::Object(Kind::Address), object).1);
    let (state, tone) = address_state(object, now);
    let state = page.paint(tone, &state);
    page.line(&format!("{:<24}{state}", "State:"));
    let pool = text(object, "/spec/pool");
    page.field("Pool", if pool.is_empty() { "none: requested manually" } else { &pool });
    page.field("Services", &joined(object, "/spec/services"));
    page.optional("Sharing key", &text(object, "/spec/sharingKey"));
    let former = text(object, "/spec/quarantine/former");
    if !former.is_empty() {
        let until = text(object, "/spec/quarantine/until");
        page.field("Held back", &format!("for {former} until {until}; then available to all"));
    }
    let by_bgp = bgp::of_address(object);
    let is_by_l2 = !text(object, "/status/owner").is_empty()
        || !items(object, "/spec/announcement/candidates").is_empty();
    if is_by_l2 || by_bgp.is_empty() {
        announcement(page, object, now);
    }
    if !by_bgp.is_empty() {
        page.section("Announcement by BGP");
    }
    for (label, value) in by_bgp {
        page.field(label, &value);
    }
}

/// Adds owner, candidates and excluded nodes of an address.
fn announcement(page: &mut Page, object: &Value, now: Timestamp) {
    let owner = text(object, "/status/owner");
    page.section("Announcement");
    let since = time(object, "/status/since").filter(|_| !owner.is_empty());
    let since = since.map(|then| format!(" since {then} ({} ago)", age(then, now))).unwrap_or_default();
    page.field("Owner", &format!("{owner}{since}"));
    page.field("Epoch", &text(object, "/spec/announcement/epoch"));
    let ping = flag(object, "/spec/announcement/answerPing", false);
    page.field("Answers ping", if ping { "yes" } else { "no" });
    page.field("When isolated", isolated(&text(object, "/spec/announcement/whenIsolated")));
    for conflict in conflicts(object) {
        let line = page.paint(Tone::Bad, &format!("also announced by {conflict}"));
        page.line(&format!("{:<24}{line}", "Conflict:"));
    }
    candidates(page, object);
    parts(page, object, now);
    let mut refused = entries(object, "/status/notCandidates").peekable();
    if refused.peek().is_some() {
        page.section("Excluded nodes");
    }
    for (node, reason) in refused {
        page.line(&format!("  {}: {}", clean(node), clean(&scalar(reason))));
    }
}

fn candidates(page: &mut Page, object: &Value) {
    page.section("Candidates (the first live one owns the address)");
    let candidates = items(object, "/spec/announcement/candidates");
    if candidates.is_empty() {
        page.line("  <none>");
        return;
    }
    let mut table = Table::new(vec!["RANK", "NODE", "ADDRESS", "INTERFACES"]);
    for (at, candidate) in candidates.iter().enumerate() {
        table.push(vec![
            (at + 1).to_string().into(),
            text(candidate, "/node").into(),
            text(candidate, "/address").into(),
            joined(candidate, "/interfaces").into(),
        ]);
    }
    page.table(&table);
}

/// Adds the announcement status reported by each node.
fn parts(page: &mut Page, object: &Value, now: Timestamp) {
    let mut parts = entries(object, "/status/nodes").peekable();
    if parts.peek().is_none() {
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
    for (node, part) in parts {
        let role = text(part, "/role");
        let tone = match role.as_str() {
            "Owner" => Tone::Good,
            "Held" => Tone::Bad,
            _ => Tone::Plain,
        };
        let ago = |at| time(part, at).map(|then| age(then, now)).unwrap_or_default();
        table.push(vec![
            node.into(),
            Cell::toned(tone, role),
            text(part, "/epoch").into(),
            ago("/since").into(),
            joined(part, "/interfaces").into(),
            text(part, "/replies").into(),
            text(part, "/gratuitous").into(),
            ago("/lastGratuitous").into(),
            text(part, "/reason").into(),
        ]);
    }
    page.table(&table);
}
