//! Tables of endpoint health. Pure functions.

use model::{
    kinds::endpoint_health::EndpointHealthSpec,
    observed::service_health::{CheckedEndpoint, GuardedEndpoint, HealthState},
    primitives::quantity::Timestamp,
};
use serde_json::Value;

use crate::{
    age::age,
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::typed::{EndpointHealth, decode_items, rows, word, words},
    views::{
        columns::{age_cell, socket},
        describe::Page,
    },
};

/// Column headings of EndpointHealth objects: those of the narrow table, and the additional ones of `-o
/// wide`. `OUT` is the number of endpoints out of service, `GROWING` the number of endpoints whose share of
/// new connections still grows.
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
    for endpoint in rows::<CheckedEndpoint>(health, "/endpoints") {
        let Some(endpoint) = endpoint else {
            table.push_unreadable();
            continue;
        };
        let since = endpoint.since.map_or_else(|| "-".to_owned(), |since| age(since, now));
        let held = match (endpoint.held, endpoint.kept) {
            (true, _) => " (held)",
            (false, true) => " (kept)",
            (false, false) => "",
        };
        let by_default = if endpoint.by_default { " (checked by default)" } else { "" };
        let mut row: Vec<Cell> = vec![
            socket(&endpoint.address.to_string(), &endpoint.port.to_string()).into(),
            Cell::toned(tone(endpoint.state), word(&endpoint.state)),
            since.into(),
            format!("{}%{held}", endpoint.share).into(),
            words(endpoint.checkers.keys()).into(),
            format!("{}{by_default}", endpoint.message).into(),
        ];
        row.extend(is_wide.then(|| Cell::from(results(&endpoint))));
        table.push(row);
    }
    (!table.is_empty()).then_some(table)
}

const fn tone(state: HealthState) -> Tone {
    match state {
        HealthState::Healthy => Tone::Good,
        HealthState::Unhealthy => Tone::Bad,
        HealthState::Pending | HealthState::Unknown | HealthState::NotChecked => Tone::Waiting,
    }
}

/// Formats the results per node, such as `node1=Healthy,node2=silent`.
fn results(endpoint: &CheckedEndpoint) -> String {
    let results = endpoint.checkers.iter().map(|(node, checker)| {
        let result = match checker.state {
            _ if !checker.is_reporting => "silent".to_owned(),
            None => "nothing".to_owned(),
            Some(state) => word(&state),
        };
        format!("{node}={result}")
    });
    results.collect::<Vec<_>>().join(",")
}

/// Returns a warning that lists the ports for which all endpoints are used because too few are healthy, or
/// `None` if there are none.
#[must_use]
pub fn panic(health: &Value) -> Option<String> {
    let ports = decode_items::<String>(health, "/panicPorts").join(",");
    (!ports.is_empty()).then(|| {
        format!("too few endpoints of {} are healthy (panicThreshold): all endpoints are used", clean(&ports))
    })
}

/// Returns one row per unhealthy endpoint that stays in service because too many failed at once, or `None` if
/// there are none.
#[must_use]
pub fn held(guard: &Value, now: Timestamp, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["SERVICE", "ENDPOINT", "HELD", "RESULT"]);
    for endpoint in rows::<GuardedEndpoint>(guard, "/held") {
        let Some(endpoint) = endpoint else {
            table.push_unreadable();
            continue;
        };
        table.push(vec![
            word(&endpoint.service).into(),
            socket(&endpoint.address.to_string(), &endpoint.port.to_string()).into(),
            age(endpoint.since, now).into(),
            endpoint.message.into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the table row of an EndpointHealth object.
pub(crate) fn record(object: &EndpointHealth, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (out, growing) = counts(&object.spec);
    let mut row: Vec<Cell> = vec![
        Cell::toned(if out > 0 { Tone::Bad } else { Tone::Plain }, out.to_string()),
        growing.to_string().into(),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(words(object.spec.endpoints.keys()).into());
    }
    row
}

/// Returns a one-line summary of an EndpointHealth object.
pub(crate) fn record_summary(record: &EndpointHealthSpec) -> String {
    let (out, growing) = counts(record);
    let growing = if growing > 0 { format!(", {growing} growing") } else { String::new() };
    format!("{out} out of service{growing}")
}

/// Adds the sections of an EndpointHealth object.
pub(crate) fn describe_record(page: &mut Page, record: &EndpointHealthSpec, now: Timestamp) {
    page.section("Endpoints not fully in service");
    let mut table = Table::new(vec!["ENDPOINT", "SHARE", "SINCE", "SAID-BY", "RESULT"]);
    for (endpoint, verdict) in &record.endpoints {
        table.push(vec![
            endpoint.to_string().into(),
            format!("{}%", verdict.share).into(),
            age(verdict.since, now).into(),
            words(&verdict.checkers).into(),
            (&verdict.message).into(),
        ]);
    }
    page.table(&table);
}

/// Returns the number of endpoints out of service (share 0), and the number of endpoints whose share of new
/// connections is still growing.
fn counts(record: &EndpointHealthSpec) -> (usize, usize) {
    let out = record.endpoints.values().filter(|verdict| verdict.share == 0).count();
    (out, record.endpoints.len() - out)
}
