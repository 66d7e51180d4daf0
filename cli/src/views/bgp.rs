//! Tables of BGP sessions, routes and events. Pure functions.

use std::fmt::Display;

use model::{
    bgp::{
        listing::{BgpEvent, BgpRouteItem, BgpSessionItem},
        report::{BgpError, BgpSessionState},
    },
    kinds::{address::AddressSpec, event::EventReason},
    observed::status::{AddressByBgp, AddressStatus, BgpPeerSessions},
    primitives::quantity::Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    age::age,
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::typed::{decode_items, rows, word, words},
};

/// Placeholder for a cell without a value.
const NOTHING: &str = "-";
/// Maximum number of hint lines printed below a table; further problems are not listed.
const HINTS_MAX: usize = 5;

/// Renders the table of `bgp peers`: one row per session. Returns `None` if there are no sessions.
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
            "REFLECTED",
            "BFD",
            "LAST-SENT",
            "LAST-RECEIVED",
        ]);
    }
    let mut table = Table::new(header);
    for item in rows::<BgpSessionItem>(listing, "/items") {
        let Some(item) = item else {
            table.push_unreadable();
            continue;
        };
        let session = &item.session;
        let (state, tone, because) = standing(item.is_reporting, session.state, &session.reason);
        let mut row: Vec<Cell> = vec![
            word(&item.node).into(),
            word(&session.peer).into(),
            or_nothing(&session.address).into(),
            or_nothing(&session.remote_asn).into(),
            Cell::toned(tone, state),
            age(session.since, now).into(),
            session.counters.prefixes_sent.to_string().into(),
            because.into(),
        ];
        if wide {
            let negotiated = session.negotiated.as_ref();
            row.push(session.local_asn.to_string().into());
            row.push(or_nothing(&session.remote_router_id).into());
            row.push(or_nothing(&session.host_name).into());
            row.push(or_nothing(&negotiated.map(|negotiated| negotiated.hold_time)).into());
            row.push(or_nothing(&negotiated.map(|negotiated| negotiated.keepalive_time)).into());
            row.push(session.established.to_string().into());
            row.push(session.counters.prefixes_received.to_string().into());
            row.push(session.counters.prefixes_reflected.to_string().into());
            row.push(or_nothing(&session.bfd).into());
            row.push(notification(session.last_sent.as_ref(), now).into());
            row.push(notification(session.last_received.as_ref(), now).into());
        }
        table.push(row);
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the state to print for a session, its color, and the reason. If the node's agent has stopped
/// reporting, the state is `Unknown` and the reason contains the last reported state.
fn standing(is_reporting: bool, state: BgpSessionState, reason: &str) -> (String, Tone, String) {
    let name = word(&state);
    if !is_reporting {
        let last = format!("the agent is silent; last reported {name}: {reason}");
        return ("Unknown".to_owned(), Tone::Waiting, last);
    }
    let tone = match state {
        BgpSessionState::Established => Tone::Good,
        BgpSessionState::Idle => Tone::Bad,
        BgpSessionState::Connect
        | BgpSessionState::Active
        | BgpSessionState::OpenSent
        | BgpSessionState::OpenConfirm => Tone::Waiting,
    };
    (name, tone, reason.to_owned())
}

fn notification(error: Option<&BgpError>, now: Timestamp) -> String {
    let Some(BgpError { at, code, subcode, message }) = error else { return NOTHING.to_owned() };
    format!("{code}/{subcode} {} ago: {message}", age(*at, now))
}

/// Returns one line with the hint for each problem of BGP sessions, at most `HINTS_MAX`. Sessions with the
/// same problem share a line.
#[must_use]
pub fn hints(listing: &Value) -> Vec<String> {
    let mut hints: Vec<(String, String, usize)> = Vec::new();
    for item in decode_items::<BgpSessionItem>(listing, "/items").into_iter().filter(|item| item.is_reporting)
    {
        let Some(trouble) = &item.trouble else { continue };
        let Some(hint) = trouble.hint.as_ref().filter(|hint| !hint.is_empty()) else { continue };
        let problem = clean(&format!("{}: {hint}", trouble.reason));
        if let Some((_, _, more)) = hints.iter_mut().find(|(_, known, _)| *known == problem) {
            *more += 1;
        } else if hints.len() < HINTS_MAX {
            let session = format!("{} with {}", item.node, item.session.peer);
            hints.push((clean(&session), problem, 0));
        }
    }
    let line = |(session, problem, more): (String, String, usize)| {
        let others = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("hint: {session}{others}: {problem}")
    };
    hints.into_iter().map(line).collect()
}

/// Renders the table of `bgp routes`: one row per router to which a prefix is advertised, or one row with the
/// reason if it is advertised to none. Returns `None` if there are no prefixes.
#[must_use]
pub fn routes(listing: &Value, wide: bool, now: Timestamp, style: Style) -> Option<String> {
    let mut header = vec!["NODE", "PREFIX", "ROUTER", "STATE", "SINCE", "DETAILS"];
    header.extend(wide.then_some("ADDRESSES"));
    let mut table = Table::new(header);
    for item in rows::<BgpRouteItem>(listing, "/items") {
        let Some(item) = item else {
            table.push_unreadable();
            continue;
        };
        let mut row = |router: &str, since: Option<Timestamp>, text: &str| {
            let (state, tone) = match (since, &item.withheld) {
                _ if !item.is_reporting => ("Unknown", Tone::Waiting),
                (Some(_), _) => ("Announced", Tone::Good),
                (None, Some(_)) => ("Withheld", Tone::Bad),
                (None, None) => ("Waiting", Tone::Waiting),
            };
            let withheld = item.withheld.as_deref().unwrap_or_default();
            let mut row: Vec<Cell> = vec![
                word(&item.node).into(),
                word(&item.prefix).into(),
                router.into(),
                Cell::toned(tone, state),
                since.map_or_else(|| NOTHING.to_owned(), |since| age(since, now)).into(),
                if text.is_empty() { withheld } else { text }.into(),
            ];
            if wide {
                row.push(addresses(&item).into());
            }
            table.push(row);
        };
        if item.peers.is_empty() {
            row(NOTHING, None, "");
        }
        for (router, sent) in &item.peers {
            row(router, sent.since, &sent.text);
        }
    }
    (!table.is_empty()).then(|| table.render(style))
}

fn addresses(item: &BgpRouteItem) -> String {
    match item.addresses_omitted {
        0 => words(&item.addresses),
        omitted => format!("{} + {omitted} more", words(&item.addresses)),
    }
}

/// Renders the table of `bgp events`: one row per event, newest last as in a log, although the server lists
/// the newest first. Returns `None` if there are no events.
#[must_use]
pub fn events(listing: &Value, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["TIME", "NODE", "PEER", "NEIGHBOUR", "SESSION", "COUNT", "MESSAGE"]);
    for event in rows::<BgpEvent>(listing, "/items").rev() {
        let Some(event) = event else {
            table.push_unreadable();
            continue;
        };
        let (name, tone) = if event.reason == EventReason::BgpSessionUp {
            ("Up".to_owned(), Tone::Good)
        } else if event.reason == EventReason::BgpSessionDown {
            ("Down".to_owned(), Tone::Bad)
        } else {
            (word(&event.reason), Tone::Plain)
        };
        table.push(vec![
            word(&event.time).into(),
            word(&event.node).into(),
            or_nothing(&event.peer).into(),
            or_nothing(&event.address).into(),
            Cell::toned(tone, name),
            event.count.to_string().into(),
            event.message.into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}

pub(super) fn or_nothing(value: &impl Serialize) -> String {
    let text = word(value);
    if text.is_empty() { NOTHING.to_owned() } else { text }
}

/// Returns a table of the BGP sessions with one peer, as listed in the status of the BgpPeer.
#[must_use]
pub(crate) fn of_peer(sessions: &BgpPeerSessions, now: Timestamp) -> Table {
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
    for (node, sessions) in &sessions.by_node {
        for session in sessions {
            let (state, tone, because) = standing(session.is_reporting, session.state, &session.reason);
            table.push(vec![
                word(node).into(),
                or_nothing(&session.address).into(),
                Cell::toned(tone, state),
                age(session.since, now).into(),
                session.prefixes_sent.to_string().into(),
                notification(session.last_sent.as_ref(), now).into(),
                notification(session.last_received.as_ref(), now).into(),
                because.into(),
            ]);
        }
    }
    table
}

/// Returns the number of nodes that announce an address by BGP, as text such as `2 by BGP`; `None` if there
/// are none.
#[must_use]
pub(crate) fn announcers(address: &AddressStatus) -> Option<String> {
    let nodes = address.by_bgp.as_ref().map_or(0, |by_bgp| by_bgp.nodes);
    (nodes > 0).then(|| format!("{nodes} by BGP"))
}

/// Returns the labels and values that describe the BGP announcement of an address.
#[must_use]
pub(crate) fn of_address(address: &AddressSpec, by_bgp: &AddressByBgp) -> Vec<(&'static str, String)> {
    let AddressByBgp { nodes, routers, announced_by, announced_to, prefixes, not_by } = by_bgp;
    let mut lines = vec![
        ("Advertisements", words(&address.announcement.advertisements)),
        ("Announced by", listed(announced_by, *nodes)),
        ("Announced to", listed(announced_to, *routers)),
    ];
    if !prefixes.is_empty() {
        lines.push(("As", words(prefixes)));
    }
    lines.extend(not_by.iter().map(|(node, reason)| ("Not by", format!("{node}: {reason}"))));
    lines
}

/// Formats `names`, followed by the number of further entries if `total` is larger than their number.
fn listed(names: &[impl Display], total: u32) -> String {
    let shown: Vec<String> = names.iter().map(ToString::to_string).collect();
    let more = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(shown.len());
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
