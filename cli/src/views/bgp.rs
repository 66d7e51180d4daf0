//! Tables of BGP sessions, routes and events. Pure.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, entries, flag, items, joined, number, scalar, text, time},
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
};

/// Placeholder for an empty value.
const NOTHING: &str = "-";
/// Maximum number of hints printed below a table.
const HINTS_MAX: usize = 5;

/// Table of `bgp peers`: one row per session.
#[must_use]
pub fn peers(listing: &Value, wide: bool, now: Timestamp, style: Style) -> Option<String> {
    let mut header = vec!["NODE", "PEER", "NEIGHBOUR", "AS", "STATE", "SINCE", "PREFIXES", "BECAUSE"];
    if wide {
        header.extend([
            "LOCAL-AS",
            "ROUTER-ID",
            "HOST-NAME",
            "HOLD",
            "KEEPALIVE",
            "TIMES-UP",
            "RECEIVED",
            "BFD",
            "LAST-SENT",
            "LAST-RECEIVED",
        ]);
    }
    let mut table = Table::new(header);
    for item in items(listing, "/items") {
        let since = time(item, "/session/since").map(|since| age(since, now)).unwrap_or_default();
        let (state, tone, because) = standing(item, "/session");
        let or_nothing = |at| Cell::from(or_nothing(text(item, at)));
        let mut row: Vec<Cell> = vec![
            text(item, "/node").into(),
            text(item, "/session/peer").into(),
            or_nothing("/session/address"),
            or_nothing("/session/remoteASN"),
            Cell::toned(tone, state),
            since.into(),
            number(item, "/session/counters/prefixesSent").to_string().into(),
            because.into(),
        ];
        if wide {
            row.push(text(item, "/session/localASN").into());
            row.push(or_nothing("/session/remoteRouterId"));
            row.push(or_nothing("/session/hostName"));
            row.push(or_nothing("/session/negotiated/holdTime"));
            row.push(or_nothing("/session/negotiated/keepaliveTime"));
            row.push(number(item, "/session/established").to_string().into());
            row.push(number(item, "/session/counters/prefixesReceived").to_string().into());
            row.push(or_nothing("/session/bfd"));
            row.push(notification(item, "/session/lastSent", now).into());
            row.push(notification(item, "/session/lastReceived", now).into());
        }
        table.push(row);
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the state of a session, its tone and its reason. For a node whose agent is silent the last
/// reported state is part of the reason.
fn standing(item: &Value, session: &str) -> (String, Tone, String) {
    let [state, reason] = ["state", "reason"].map(|field| text(item, &format!("{session}/{field}")));
    if !flag(item, "/isReporting", true) {
        return (
            "Unknown".to_owned(),
            Tone::Waiting,
            format!("the agent is silent; last reported {state}: {reason}"),
        );
    }
    let tone = match state.as_str() {
        "Established" => Tone::Good,
        "Idle" => Tone::Bad,
        _ => Tone::Waiting,
    };
    (state, tone, reason)
}

fn notification(item: &Value, at: &str, now: Timestamp) -> String {
    let Some(error) = item.pointer(at).filter(|error| error.is_object()) else { return NOTHING.to_owned() };
    let ago = time(error, "/at").map(|at| format!(" {} ago", age(at, now))).unwrap_or_default();
    format!("{}/{}{ago}: {}", text(error, "/code"), text(error, "/subcode"), text(error, "/message"))
}

/// Returns one hint line per problem of sessions that are not established; sessions with the same problem
/// share a line.
#[must_use]
pub fn hints(listing: &Value) -> Vec<String> {
    let mut hints: Vec<(String, String, usize)> = Vec::new();
    for item in items(listing, "/items").iter().filter(|item| flag(item, "/isReporting", true)) {
        let [reason, hint] = ["/trouble/reason", "/trouble/hint"].map(|at| clean(&text(item, at)));
        if hint.is_empty() {
            continue;
        }
        let what = format!("{reason}: {hint}");
        if let Some((_, _, more)) = hints.iter_mut().find(|(_, known, _)| *known == what) {
            *more += 1;
        } else if hints.len() < HINTS_MAX {
            let whose = format!("{} with {}", text(item, "/node"), text(item, "/session/peer"));
            hints.push((clean(&whose), what, 0));
        }
    }
    let line = |(whose, what, more): (String, String, usize)| {
        let others = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("hint: {whose}{others}: {what}")
    };
    hints.into_iter().map(line).collect()
}

/// Table of `bgp routes`: one row per router to which a prefix is advertised, or one row with the reason if
/// there is none.
#[must_use]
pub fn routes(listing: &Value, wide: bool, now: Timestamp, style: Style) -> Option<String> {
    let mut header = vec!["NODE", "PREFIX", "ROUTER", "STATE", "SINCE", "DETAILS"];
    header.extend(wide.then_some("ADDRESSES"));
    let mut table = Table::new(header);
    for item in items(listing, "/items") {
        let withheld = text(item, "/withheld");
        let mut told: Vec<(&str, &Value)> = entries(item, "/peers").collect();
        if told.is_empty() {
            told.push((NOTHING, &Value::Null));
        }
        for (router, told) in told {
            let since = time(told, "/since");
            let details = text(told, "/text");
            let (state, tone) = match (since, withheld.is_empty()) {
                _ if !flag(item, "/isReporting", true) => ("Unknown", Tone::Waiting),
                (Some(_), _) => ("Announced", Tone::Good),
                (None, false) => ("Withheld", Tone::Bad),
                (None, true) => ("Waiting", Tone::Waiting),
            };
            let mut row: Vec<Cell> = vec![
                text(item, "/node").into(),
                text(item, "/prefix").into(),
                router.into(),
                Cell::toned(tone, state),
                or_nothing(since.map(|since| age(since, now)).unwrap_or_default()).into(),
                if details.is_empty() { &withheld } else { &details }.into(),
            ];
            if wide {
                row.push(addresses(item).into());
            }
            table.push(row);
        }
    }
    (!table.is_empty()).then(|| table.render(style))
}

fn addresses(item: &Value) -> String {
    match number(item, "/addressesOmitted") {
        0 => joined(item, "/addresses"),
        omitted => format!("{} + {omitted} more", joined(item, "/addresses")),
    }
}

/// Table of `bgp events`: one row per event, newest last as in a log. The server lists the newest first.
#[must_use]
pub fn events(listing: &Value, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["TIME", "NODE", "PEER", "NEIGHBOUR", "SESSION", "COUNT", "MESSAGE"]);
    for event in items(listing, "/items").iter().rev() {
        let reason = text(event, "/reason");
        let (word, tone) = match reason.as_str() {
            "BgpSessionUp" => ("Up", Tone::Good),
            "BgpSessionDown" => ("Down", Tone::Bad),
            other => (other, Tone::Plain),
        };
        table.push(vec![
            text(event, "/time").into(),
            text(event, "/node").into(),
            or_nothing(text(event, "/peer")).into(),
            or_nothing(text(event, "/address")).into(),
            Cell::toned(tone, word),
            text(event, "/count").into(),
            text(event, "/message").into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}

fn or_nothing(text: String) -> String {
    if text.is_empty() { NOTHING.to_owned() } else { text }
}

/// Returns the table of sessions in the status of a peer.
#[must_use]
pub(crate) fn of_peer(peer: &Value, now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        "NODE",
        "NEIGHBOUR",
        "STATE",
        "SINCE",
        "PREFIXES",
        "LAST-SENT",
        "LAST-RECEIVED",
        "BECAUSE",
    ]);
    for (node, sessions) in entries(peer, "/status/sessions/byNode") {
        for session in sessions.as_array().into_iter().flatten() {
            let (state, tone, because) = standing(session, "");
            table.push(vec![
                node.into(),
                or_nothing(text(session, "/address")).into(),
                Cell::toned(tone, state),
                time(session, "/since").map(|since| age(since, now)).unwrap_or_default().into(),
                number(session, "/prefixesSent").to_string().into(),
                notification(session, "/lastSent", now).into(),
                notification(session, "/lastReceived", now).into(),
                because.into(),
            ]);
        }
    }
    table
}

/// Returns a summary of the nodes that announce an address by BGP, or `None` if there are none.
#[must_use]
pub fn announcers(address: &Value) -> Option<String> {
    let nodes = number(address, "/status/byBgp/nodes");
    (nodes > 0).then(|| format!("{nodes} by BGP"))
}

/// Returns label and value of each BGP line of an address.
#[must_use]
pub fn of_address(address: &Value) -> Vec<(&'static str, String)> {
    if !address.pointer("/status/byBgp").is_some_and(Value::is_object) {
        return Vec::new();
    }
    let at = |key: &str| format!("/status/byBgp/{key}");
    let listed = |names: &str, count: &str| {
        let (names, count) = (items(address, &at(names)), number(address, &at(count)));
        let shown: Vec<String> = names.iter().map(scalar).collect();
        let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(shown.len());
        let shown = shown.join(", ");
        if more == 0 { shown } else { format!("{shown} and {more} more") }
    };
    let mut lines = vec![
        ("Advertisements", joined(address, "/spec/announcement/advertisements")),
        ("Announced by", listed("announcedBy", "nodes")),
        ("Announced to", listed("announcedTo", "routers")),
    ];
    let prefixes = joined(address, &at("prefixes"));
    if !prefixes.is_empty() {
        lines.push(("As", prefixes));
    }
    for (node, why) in entries(address, &at("notBy")) {
        lines.push(("Not by", format!("{node}: {}", scalar(why))));
    }
    lines
}
