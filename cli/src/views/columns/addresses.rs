//! Columns of pools, advertisements and addresses. Pure.

use std::net::IpAddr;

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{condition, entries, flag, items, joined, labels, number, scalar, text, time},
    terminal::{style::Tone, table::Cell},
    views::{
        bgp,
        columns::{
            age_cell,
            bgp::{or_dash, with_default},
        },
    },
};

/// Maximum number of ranges of a pool in the narrow table; the rest is counted.
const RANGES_SHOWN: usize = 2;
/// Largest count printed in full; larger ones are printed as a magnitude.
const COUNT_EXACT_MAX: u64 = 9_999_999;

/// Headings of pools: narrow, and the additional wide ones.
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
/// Headings of advertisements.
pub(crate) const ADVERTISEMENT: (&[&str], &[&str]) = (
    &["NAME", "TYPE", "POOLS", "NODES", "INTERFACES", "STATUS", "AGE"],
    &["SERVICES", "PREFERRED", "PING", "WHEN-ISOLATED", "PEERS", "PREFIXES", "ATTRIBUTES"],
);
/// Headings of addresses.
pub(crate) const ADDRESS: (&[&str], &[&str]) = (
    &["ADDRESS", "POOL", "SERVICES", "OWNER", "SINCE", "STATE"],
    &["EPOCH", "CANDIDATES", "INTERFACES", "LAST-GRATUITOUS", "REPLIES", "CONFLICT"],
);

pub(crate) fn pool(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let ranges: Vec<String> = items(object, "/spec/addresses").iter().map(scalar).collect();
    let shown = ranges.get(..RANGES_SHOWN).unwrap_or(&ranges).join(",");
    let more = ranges.len().saturating_sub(RANGES_SHOWN);
    let shown = match more {
        _ if wide => ranges.join(","),
        0 => shown,
        more => format!("{shown} + {more} more"),
    };
    let auto = flag(object, "/spec/autoAssign", true);
    let [v4_used, v4_free] = usage(object, "ipv4");
    let [v6_used, v6_free] = usage(object, "ipv6");
    let mut row: Vec<Cell> = vec![
        shown.into(),
        if auto { "yes" } else { "no" }.into(),
        v4_used,
        v4_free,
        v6_used,
        v6_free,
        status(object),
        age_cell(object, now),
    ];
    if wide {
        let held_back =
            ["ipv4", "ipv6"].map(|family| number(object, &format!("/status/{family}/quarantined")));
        row.push(joined(object, "/spec/reserved").into());
        row.push(text(object, "/spec/priority").into());
        row.push(count(held_back.into_iter().fold(0, u64::saturating_add)).into());
        row.push(or_all(joined(object, "/spec/namespaces")).into());
        row.push(or_all(selectors(object, "/spec/serviceSelectors")).into());
    }
    row
}

/// Returns the used and free addresses of a family, or `-` if the pool has none of that family.
fn usage(pool: &Value, family: &str) -> [Cell; 2] {
    let of = |key: &str| number(pool, &format!("/status/{family}/{key}"));
    if of("total") == 0 {
        return ["-".into(), "-".into()];
    }
    let free = of("available");
    [count(of("assigned")).into(), Cell::toned(if free == 0 { Tone::Bad } else { Tone::Plain }, count(free))]
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

pub(crate) fn advertisement(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let kind = text(object, "/spec/type");
    let is_bgp = kind == "BGP";
    // Settings that the type does not support are printed as a dash.
    let of_l2 = |said: String| if is_bgp { "-".to_owned() } else { said };
    let of_bgp = |said: String| if is_bgp { said } else { "-".to_owned() };
    let mut row: Vec<Cell> = vec![
        if kind.is_empty() { "L2".to_owned() } else { kind }.into(),
        or_all(joined(object, "/spec/addressPools")).into(),
        or_all(selectors(object, "/spec/nodeSelectors")).into(),
        of_l2(or_all(joined(object, "/spec/interfaces"))).into(),
        status(object),
        age_cell(object, now),
    ];
    if wide {
        let isolated = text(object, "/spec/whenIsolated");
        row.push(or_all(selectors(object, "/spec/serviceSelectors")).into());
        row.push(of_l2(preferences(object)).into());
        row.push(of_l2(if flag(object, "/spec/answerPing", true) { "yes" } else { "no" }.to_owned()).into());
        row.push(of_l2(isolated).into());
        row.push(of_bgp(or_all(joined(object, "/spec/peers"))).into());
        row.push(of_bgp(prefixes(object)).into());
        row.push(of_bgp(attributes(object)).into());
    }
    row
}

/// Formats the lengths of the announced prefixes, such as `/32,/128`.
fn prefixes(advertisement: &Value) -> String {
    let [v4, v6] = [("aggregationLength", "32"), ("aggregationLengthV6", "128")]
        .map(|(field, whole)| with_default(advertisement, &format!("/spec/{field}"), whole));
    format!("/{v4},/{v6}")
}

/// Formats the BGP attributes, such as `localPref 200 med 10 no-export,65000:1`.
fn attributes(advertisement: &Value) -> String {
    let named =
        ["localPref", "med", "prepend"].map(|field| (field, text(advertisement, &format!("/spec/{field}"))));
    let named = named.into_iter().filter(|(_, value)| !value.is_empty());
    let named = named.map(|(field, value)| format!("{field} {value}"));
    let communities = Some(joined(advertisement, "/spec/communities")).filter(|text| !text.is_empty());
    or_dash(named.chain(communities).collect::<Vec<_>>().join(" "))
}

/// Formats the preferences of an advertisement, each as `50×rack=a`.
pub(crate) fn preferences(advertisement: &Value) -> String {
    let preference = |entry: &Value| {
        let of = entry.get("preference").map(selector).unwrap_or_default();
        format!("{}×{}", text(entry, "/weight"), or_all(of))
    };
    items(advertisement, "/spec/preferredNodeSelectors")
        .iter()
        .map(preference)
        .collect::<Vec<_>>()
        .join(" | ")
}

pub(crate) fn address(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let owner = text(object, "/status/owner");
    let since = time(object, "/status/since").filter(|_| !owner.is_empty());
    let (state, tone) = address_state(object, now);
    let mut row: Vec<Cell> = vec![
        text(object, "/spec/pool").into(),
        joined(object, "/spec/services").into(),
        owner_cell(object, &owner),
        since.map(|since| age(since, now)).unwrap_or_default().into(),
        Cell::toned(tone, state),
    ];
    if wide {
        let part = entries(object, "/status/nodes").find(|(node, _)| *node == owner).map(|(_, part)| part);
        let said = |at| part.map(|part| text(part, at)).unwrap_or_default();
        let gratuitous = part.and_then(|part| time(part, "/lastGratuitous"));
        let candidates = items(object, "/spec/announcement/candidates");
        row.push(number(object, "/spec/announcement/epoch").to_string().into());
        row.push(candidates.iter().map(|at| text(at, "/node")).collect::<Vec<_>>().join(",").into());
        row.push(part.map(|part| joined(part, "/interfaces")).unwrap_or_default().into());
        row.push(gratuitous.map(|then| age(then, now)).unwrap_or_default().into());
        row.push(said("/replies").into());
        row.push(conflicts(object).join(",").into());
    }
    row
}

/// Returns the announcers of an address: its L2 owner, the number of BGP nodes, or both.
fn owner_cell(object: &Value, owner: &str) -> Cell {
    let by_bgp = bgp::announcers(object);
    let all: Vec<String> =
        Some(owner.to_owned()).filter(|one| !one.is_empty()).into_iter().chain(by_bgp).collect();
    all.join(", ").into()
}

/// Returns a one-word state of an address: a conflict or quarantine if there is one, otherwise the state of
/// its announcement.
pub(crate) fn address_state(object: &Value, now: Timestamp) -> (String, Tone) {
    if object.pointer("/spec/quarantine").is_some_and(Value::is_object) {
        let left = time(object, "/spec/quarantine/until").map(|until| age(now, until));
        let left = left.map(|left| format!(" {left}")).unwrap_or_default();
        return (format!("Quarantined{left}"), Tone::Waiting);
    }
    if !conflicts(object).is_empty() {
        return ("Conflict".to_owned(), Tone::Bad);
    }
    let of_announced = |condition: &&Value| text(condition, "/type") == "Announced";
    let reason = items(object, "/status/conditions").iter().find(of_announced).map(|at| text(at, "/reason"));
    let reason = reason.filter(|reason| !reason.is_empty()).unwrap_or_else(|| "Unknown".to_owned());
    match condition(object, "Announced").as_str() {
        "True" => ("Announced".to_owned(), Tone::Good),
        "False" => (reason, Tone::Bad),
        _ => (reason, Tone::Waiting),
    }
}

/// Lists other stations that announce an address, each as `02:00:00:00:00:01@eth0`.
pub(crate) fn conflicts(address: &Value) -> Vec<String> {
    let mut heard: Vec<String> = entries(address, "/status/nodes")
        .filter_map(|(_, part)| part.get("conflict").filter(|conflict| conflict.is_object()))
        .map(|conflict| format!("{}@{}", text(conflict, "/mac"), text(conflict, "/interface")))
        .collect();
    heard.sort();
    heard.dedup();
    heard
}

/// Returns an address in textual form, or the object's name if it has no address.
#[must_use]
pub(crate) fn written(object: &Value) -> String {
    let address = text(object, "/spec/address");
    if address.is_empty() { text(object, "/metadata/name") } else { address }
}

/// Returns the sort key of an address: IPv4 before IPv6, each in numerical order; invalid addresses last.
#[must_use]
pub(crate) fn rank(object: &Value) -> (bool, Option<IpAddr>) {
    let address = written(object).parse().ok();
    (address.is_none(), address)
}

/// Formats a list of alternative selectors as `app=web,tier in (a,b) | app=api`.
pub(crate) fn selectors(object: &Value, pointer: &str) -> String {
    items(object, pointer).iter().map(selector).map(or_all).collect::<Vec<_>>().join(" | ")
}

fn selector(selector: &Value) -> String {
    let expression = |expression: &Value| {
        let [key, operator] = ["/key", "/operator"].map(|at| text(expression, at));
        let values = joined(expression, "/values");
        match operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key,
        }
    };
    let exact = Some(labels(selector, "/matchLabels")).filter(|text| !text.is_empty());
    let others = items(selector, "/matchExpressions").iter().map(expression);
    exact.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

/// Returns `all` for an empty restriction.
pub(crate) fn or_all(restriction: String) -> String {
    if restriction.is_empty() { "all".to_owned() } else { restriction }
}

/// Returns a one-word status: the reason of the first condition that is not true.
pub(crate) fn status(object: &Value) -> Cell {
    if flag(object, "/spec/disabled", false) {
        return Cell::toned(Tone::Waiting, "Disabled");
    }
    let conditions = items(object, "/status/conditions");
    let first = |status: &str| {
        let found = conditions.iter().find(|condition| text(condition, "/status") == status);
        found.map(|condition| text(condition, "/reason"))
    };
    match (first("False"), first("Unknown")) {
        (Some(reason), _) => Cell::toned(Tone::Bad, reason),
        (None, Some(reason)) => Cell::toned(Tone::Waiting, reason),
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
            .map(|address| json!({"spec": {"address": address}}))
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
