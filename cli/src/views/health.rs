//! Tables of endpoint health. Pure.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, entries, flag, items, joined, number, text, time},
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::{
        columns::{age_cell, socket},
        describe::Page,
    },
};

/// Headings of EndpointHealth objects: narrow, and the additional wide ones.
pub(crate) const RECORD: (&[&str], &[&str]) = (&["NAME", "OUT", "GROWING", "AGE"], &["ENDPOINTS"]);

/// Returns one row per checked endpoint, or `None` if no endpoint is checked.
#[must_use]
pub fn endpoints(health: &Value, now: Timestamp, style: Style) -> Option<String> {
    table(health, false, now).map(|table| table.render(style))
}

/// Same as [`endpoints`], with the result of each checking node.
#[must_use]
pub fn endpoints_wide(health: &Value, now: Timestamp, style: Style) -> Option<String> {
    table(health, true, now).map(|table| table.render(style))
}

fn table(health: &Value, is_wide: bool, now: Timestamp) -> Option<Table> {
    let mut header = vec!["ENDPOINT", "STATE", "SINCE", "SHARE", "CHECKED-BY", "RESULT"];
    header.extend(is_wide.then_some("SAID"));
    let mut table = Table::new(header);
    for endpoint in items(health, "/endpoints") {
        let since = time(endpoint, "/since").map_or_else(|| "-".to_owned(), |since| age(since, now));
        let nodes: Vec<&str> = entries(endpoint, "/checkers").map(|(node, _)| node).collect();
        let held = if flag(endpoint, "/held", false) { " (held)" } else { "" };
        let state = text(endpoint, "/state");
        let mut row: Vec<Cell> = vec![
            socket(&text(endpoint, "/address"), &text(endpoint, "/port")).into(),
            Cell::toned(tone(&state), state),
            since.into(),
            format!("{}%{held}", number(endpoint, "/share")).into(),
            nodes.join(",").into(),
            text(endpoint, "/message").into(),
        ];
        row.extend(is_wide.then(|| Cell::from(said(endpoint))));
        table.push(row);
    }
    (!table.is_empty()).then_some(table)
}

fn tone(state: &str) -> Tone {
    match state {
        "Healthy" => Tone::Good,
        "Unhealthy" => Tone::Bad,
        _ => Tone::Waiting,
    }
}

/// Formats the results per node, such as `node1=Healthy,node2=silent`.
fn said(endpoint: &Value) -> String {
    let word = |(node, of): (&str, &Value)| {
        let state = text(of, "/state");
        let word = match (flag(of, "/isReporting", false), state.is_empty()) {
            (false, _) => "silent",
            (true, true) => "nothing",
            (true, false) => &state,
        };
        format!("{node}={word}")
    };
    entries(endpoint, "/checkers").map(word).collect::<Vec<_>>().join(",")
}

/// Returns the warning that all endpoints of a port are used because too few are healthy, if that is so.
#[must_use]
pub fn panic(health: &Value) -> Option<String> {
    let ports = joined(health, "/panicPorts");
    (!ports.is_empty()).then(|| {
        format!("too few endpoints of {} are healthy (panicThreshold): all endpoints are used", clean(&ports))
    })
}

/// Returns one row per endpoint that the guard keeps in service, or `None` if there are none.
#[must_use]
pub fn held(guard: &Value, now: Timestamp, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["SERVICE", "ENDPOINT", "HELD", "RESULT"]);
    for endpoint in items(guard, "/held") {
        let since = time(endpoint, "/since").map_or_else(|| "-".to_owned(), |since| age(since, now));
        table.push(vec![
            text(endpoint, "/service").into(),
            socket(&text(endpoint, "/address"), &text(endpoint, "/port")).into(),
            since.into(),
            text(endpoint, "/message").into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the row of an EndpointHealth object.
pub(crate) fn record(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (out, growing) = counts(object);
    let mut row: Vec<Cell> = vec![
        Cell::toned(if out > 0 { Tone::Bad } else { Tone::Plain }, out.to_string()),
        growing.to_string().into(),
        age_cell(object, now),
    ];
    if wide {
        let names: Vec<&str> = entries(object, "/spec/endpoints").map(|(endpoint, _)| endpoint).collect();
        row.push(names.join(",").into());
    }
    row
}

/// Returns a one-line summary of an EndpointHealth object.
pub(crate) fn record_summary(object: &Value) -> String {
    let (out, growing) = counts(object);
    let growing = if growing > 0 { format!(", {growing} growing") } else { String::new() };
    format!("{out} out of service{growing}")
}

/// Adds the sections of an EndpointHealth object.
pub(crate) fn describe_record(page: &mut Page, object: &Value, now: Timestamp) {
    page.section("Endpoints not fully in service");
    let mut table = Table::new(vec!["ENDPOINT", "SHARE", "SINCE", "SAID-BY", "RESULT"]);
    for (endpoint, verdict) in entries(object, "/spec/endpoints") {
        let since = time(verdict, "/since").map_or_else(|| "-".to_owned(), |since| age(since, now));
        table.push(vec![
            endpoint.into(),
            format!("{}%", number(verdict, "/share")).into(),
            since.into(),
            joined(verdict, "/checkers").into(),
            text(verdict, "/message").into(),
        ]);
    }
    page.table(&table);
}

/// Returns the number of endpoints out of service, and the number whose share is growing.
fn counts(object: &Value) -> (usize, usize) {
    let shares = || entries(object, "/spec/endpoints").map(|(_, verdict)| number(verdict, "/share"));
    let out = shares().filter(|share| *share == 0).count();
    (out, shares().count() - out)
}
