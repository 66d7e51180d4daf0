//! Columns of pools, advertisements and addresses. Pure functions.

use std::net::IpAddr;

use model::{
    kinds::{
        address::AddressSpec,
        advertisement::{AdvertisementSpec, AdvertisementType, PreferredNodes},
        selector::{Expression, Operator, Selector},
    },
    observed::status::{ConditionStatus, ConditionType, PoolUsage},
    primitives::quantity::Timestamp,
    wire::report::AddressConflict,
};
use serde_json::Value;

use crate::{
    age::age,
    terminal::{style::Tone, table::Cell},
    views::typed::{Address, AddressPool, Advertisement, ConditionRow, ObjectHeader, decode, word, words},
    views::{
        bgp,
        columns::{age_cell, bgp::or_dash, condition_tone, labels},
    },
};

/// Maximum number of ranges of a pool in the narrow table, followed by the number of further ones.
const RANGES_SHOWN: usize = 2;
/// Largest count printed in full; larger ones are printed as a magnitude such as `1.8e19`.
const COUNT_EXACT_MAX: u64 = 9_999_999;

/// Column headings of pools: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const POOL: (&[&str], &[&str]) = (
    &[
        "NAME",
        "ADDRESSES",
        "AUTO-ASSIGN",
        "IPV4-USED",
        "IPV4-FREE",
        "IPV6-USED",
        "IPV6-FREE",
        "STATUS",
        "AGE",
    ],
    &["RESERVED", "PRIORITY", "QUARANTINED", "NAMESPACES", "SERVICES"],
);
/// Column headings of advertisements: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ADVERTISEMENT: (&[&str], &[&str]) = (
    &["NAME", "TYPE", "POOLS", "NODES", "INTERFACES", "STATUS", "AGE"],
    &["SERVICES", "PREFERRED", "PING", "WHEN-ISOLATED", "PEERS", "PREFIXES", "ATTRIBUTES"],
);
/// Column headings of addresses: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ADDRESS: (&[&str], &[&str]) = (
    &["ADDRESS", "POOL", "SERVICES", "OWNER", "SINCE", "STATE"],
    &["EPOCH", "CANDIDATES", "INTERFACES", "LAST-GRATUITOUS", "REPLIES", "CONFLICT"],
);

pub(crate) fn pool(object: &AddressPool, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (spec, usages) = (&object.spec, [&object.status.v4, &object.status.v6]);
    let ranges: Vec<String> = spec.addresses.iter().map(ToString::to_string).collect();
    let shown = ranges.get(..RANGES_SHOWN).unwrap_or(&ranges).join(",");
    let more = ranges.len().saturating_sub(RANGES_SHOWN);
    let shown = match more {
        _ if wide => ranges.join(","),
        0 => shown,
        more => format!("{shown} + {more} more"),
    };
    let [[v4_used, v4_free], [v6_used, v6_free]] = usages.map(usage);
    let mut row: Vec<Cell> = vec![
        shown.into(),
        if spec.auto_assign { "yes" } else { "no" }.into(),
        v4_used,
        v4_free,
        v6_used,
        v6_free,
        status(spec.disabled, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let quarantined = usages.map(|usage| usage.quarantined).into_iter().fold(0, u64::saturating_add);
        row.push(words(&spec.reserved).into());
        row.push(word(&spec.priority).into());
        row.push(count(quarantined).into());
        row.push(or_all(words(&spec.namespaces)).into());
        row.push(or_all(selectors(&spec.service_selectors)).into());
    }
    row
}

/// Returns the cells for the numbers of used and free addresses of one IP family; both are `-` if the pool
/// has no address of that family.
fn usage(usage: &PoolUsage) -> [Cell; 2] {
    let PoolUsage { total, assigned, quarantined: _, available } = *usage;
    if total == 0 {
        return ["-".into(), "-".into()];
    }
    let tone = if available == 0 { Tone::Bad } else { Tone::Plain };
    [count(assigned).into(), Cell::toned(tone, count(available))]
}

/// Formats a number of addresses: exact up to [`COUNT_EXACT_MAX`], beyond that as a magnitude such as
/// `1.8e19`.
pub(crate) fn count(addresses: u64) -> String {
    if addresses <= COUNT_EXACT_MAX {
        return addresses.to_string();
    }
    let digits = addresses.to_string();
    let (first, rest) = digits.split_at(1);
    format!("{first}.{}e{}", rest.get(..1).unwrap_or("0"), rest.len())
}

/// Returns the pools that an Advertisement covers; `none` if it announces blocks of workload networks only.
pub(crate) fn advertised_pools(spec: &AdvertisementSpec) -> String {
    if spec.announces_addresses() { or_all(words(&spec.address_pools)) } else { "none".to_owned() }
}

pub(crate) fn advertisement(object: &Advertisement, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let is_bgp = spec.advertisement_type == AdvertisementType::Bgp;
    // Settings that the type does not support are printed as a dash.
    let of_l2 = |said: String| if is_bgp { "-".to_owned() } else { said };
    let of_bgp = |said: String| if is_bgp { said } else { "-".to_owned() };
    let mut row: Vec<Cell> = vec![
        word(&spec.advertisement_type).into(),
        advertised_pools(spec).into(),
        or_all(selectors(&spec.node_selectors)).into(),
        of_l2(or_all(words(&spec.interfaces))).into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(or_all(selectors(&spec.service_selectors)).into());
        row.push(of_l2(preferences(spec)).into());
        row.push(of_l2(if spec.answer_ping { "yes" } else { "no" }.to_owned()).into());
        row.push(of_l2(word(&spec.when_isolated)).into());
        row.push(of_bgp(or_all(words(&spec.peers))).into());
        row.push(of_bgp(prefixes(spec)).into());
        row.push(of_bgp(attributes(spec)).into());
    }
    row
}

/// Formats the lengths of the announced prefixes, such as `/32,/128`.
fn prefixes(spec: &AdvertisementSpec) -> String {
    let (v4, v6) = (spec.aggregation_length.unwrap_or(32), spec.aggregation_length_v6.unwrap_or(128));
    format!("/{v4},/{v6}")
}

/// Formats the BGP attributes, such as `localPref 200 med 10 no-export,65000:1`.
fn attributes(spec: &AdvertisementSpec) -> String {
    let named = [("localPref", spec.local_pref), ("med", spec.med), ("prepend", spec.prepend.map(u32::from))];
    let named = named.into_iter().filter_map(|(field, value)| Some(format!("{field} {}", value?)));
    let communities = Some(words(&spec.communities)).filter(|text| !text.is_empty());
    or_dash(named.chain(communities).collect::<Vec<_>>().join(" "))
}

/// Formats the preferred nodes of an Advertisement, each as weight and label selector such as `50×rack=a`,
/// separated by `|`.
pub(crate) fn preferences(spec: &AdvertisementSpec) -> String {
    let preference = |preferred: &PreferredNodes| {
        format!("{}×{}", preferred.weight, or_all(selector(&preferred.preference)))
    };
    spec.preferred_node_selectors.iter().map(preference).collect::<Vec<_>>().join(" | ")
}

pub(crate) fn address(object: &Address, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (spec, owner) = (&object.spec, object.status.owner.as_ref());
    let since = object.status.since.filter(|_| owner.is_some());
    let (state, tone) = address_state(object, now);
    let mut row: Vec<Cell> = vec![
        word(&spec.pool).into(),
        words(&spec.services).into(),
        owner_cell(object),
        since.map(|since| age(since, now)).unwrap_or_default().into(),
        Cell::toned(tone, state),
    ];
    if wide {
        let part = owner.and_then(|owner| object.status.nodes.get(owner));
        let gratuitous = part.and_then(|part| part.last_gratuitous);
        row.push(spec.announcement.epoch.to_string().into());
        row.push(words(spec.announcement.candidates.iter().map(|candidate| &candidate.node)).into());
        row.push(part.map(|part| part.interfaces.join(",")).unwrap_or_default().into());
        row.push(gratuitous.map(|then| age(then, now)).unwrap_or_default().into());
        row.push(part.map(|part| part.replies.to_string()).unwrap_or_default().into());
        row.push(conflicts(object).join(",").into());
    }
    row
}

/// Returns the cell with the announcers of an address: the node that announces it by ARP or NDP (the owner),
/// and the number of nodes that announce it by BGP.
fn owner_cell(object: &Address) -> Cell {
    let by_l2 = object.status.owner.as_ref().map(ToString::to_string);
    let all: Vec<String> = by_l2.into_iter().chain(bgp::announcers(&object.status)).collect();
    all.join(", ").into()
}

/// Returns a short state of an address: `Quarantined` with the time, else `Conflict`, else `Announced` or the
/// reason why the address is not announced.
pub(crate) fn address_state(object: &Address, now: Timestamp) -> (String, Tone) {
    if let Some(quarantine) = &object.spec.quarantine {
        return (format!("Quarantined {}", age(now, quarantine.until)), Tone::Waiting);
    }
    if !conflicts(object).is_empty() {
        return ("Conflict".to_owned(), Tone::Bad);
    }
    let name = word(&ConditionType::Announced);
    let announced = object.conditions.iter().find(|condition| condition.condition_type == name);
    let Some(announced) = announced else { return ("Unknown".to_owned(), Tone::Waiting) };
    match announced.status {
        ConditionStatus::True => ("Announced".to_owned(), Tone::Good),
        status @ (ConditionStatus::False | ConditionStatus::Unknown) if announced.reason.is_empty() => {
            ("Unknown".to_owned(), condition_tone(status))
        }
        status @ (ConditionStatus::False | ConditionStatus::Unknown) => {
            (announced.reason.clone(), condition_tone(status))
        }
    }
}

/// Lists the other machines that announce the same address. Each entry is the name of a node, or a MAC address
/// and the interface on which it was received, such as `02:00:00:00:00:01@eth0`.
pub(crate) fn conflicts(address: &Address) -> Vec<String> {
    let conflicts = address.status.nodes.values().filter_map(|part| part.conflict.as_ref());
    let shown = |conflict: &AddressConflict| match &conflict.node {
        Some(node) => node.to_string(),
        None => format!("{}@{}", conflict.mac, conflict.interface),
    };
    let mut heard: Vec<String> = conflicts.map(shown).collect();
    heard.sort();
    heard.dedup();
    heard
}

/// Returns the address of an Address object in textual form, or the object's name if the address is invalid.
#[must_use]
pub(crate) fn written(object: &Value) -> String {
    let spec: Option<AddressSpec> = object.get("spec").and_then(decode);
    spec.map_or_else(|| ObjectHeader::of(object).metadata.name, |spec| spec.address.to_string())
}

/// Returns the sort key of an address: IPv4 before IPv6, each in numerical order; invalid addresses last.
#[must_use]
pub(crate) fn rank(object: &Value) -> (bool, Option<IpAddr>) {
    let address = written(object).parse().ok();
    (address.is_none(), address)
}

/// Formats a list of alternative selectors as `app=web,tier in (a,b) | app=api`.
pub(crate) fn selectors(selectors: &[Selector]) -> String {
    selectors.iter().map(selector).map(or_all).collect::<Vec<_>>().join(" | ")
}

pub(crate) fn selector(selector: &Selector) -> String {
    let expression = |Expression { key, operator, values }: &Expression| {
        let values = values.join(",");
        match operator {
            Operator::In => format!("{key} in ({values})"),
            Operator::NotIn => format!("{key} notin ({values})"),
            Operator::DoesNotExist => format!("!{key}"),
            Operator::Exists => key.clone(),
        }
    };
    let exact = Some(labels(&selector.match_labels)).filter(|text| !text.is_empty());
    let others = selector.match_expressions.iter().map(expression);
    exact.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

/// Returns the text, or `all` if it is empty and so restricts nothing.
pub(crate) fn or_all(restriction: String) -> String {
    if restriction.is_empty() { "all".to_owned() } else { restriction }
}

/// Returns a one-word status: `Disabled`, else the reason of a condition that is false or, if there is none,
/// unknown, else `Ready`. Returns `Unknown` if there are no conditions.
pub(crate) fn status(is_disabled: bool, conditions: &[ConditionRow]) -> Cell {
    if is_disabled {
        return Cell::toned(Tone::Waiting, "Disabled");
    }
    let first = |status| conditions.iter().find(|condition| condition.status == status);
    match (first(ConditionStatus::False), first(ConditionStatus::Unknown)) {
        (Some(condition), _) => Cell::toned(Tone::Bad, &condition.reason),
        (None, Some(condition)) => Cell::toned(Tone::Waiting, &condition.reason),
        (None, None) if conditions.is_empty() => Cell::toned(Tone::Waiting, "Unknown"),
        (None, None) => Cell::toned(Tone::Good, "Ready"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_ordered_by_family_and_number_and_never_as_text() {
        let mut list: Vec<Value> = ["2001:db8::10", "10.0.0.9", "x", "2001:db8::9", "10.0.0.10", "9.0.0.1"]
            .map(|address| json!({"metadata": {"name": address}, "spec": {"address": address}}))
            .to_vec();
        list.sort_by_key(rank);
        let order: Vec<String> = list.iter().map(written).collect();
        assert_eq!(order, ["9.0.0.1", "10.0.0.9", "10.0.0.10", "2001:db8::9", "2001:db8::10", "x"]);
    }

    #[test]
    fn counts_are_exact_while_somebody_would_count() {
        for (addresses, said) in
            [(0, "0"), (9_999_999, "9999999"), (16_777_216, "1.6e7"), (u64::MAX, "1.8e19")]
        {
            assert_eq!(count(addresses), said);
        }
    }
}
