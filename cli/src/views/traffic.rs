//! Tables of Service traffic. Pure functions.

use model::{
    observed::traffic::{BusyService, EndpointTraffic, NodeTraffic},
    wire::traffic_counts::{Counts, Rate, TargetFailures},
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    terminal::{
        style::Style,
        table::{Cell, Table},
    },
    views::columns::socket,
    views::typed::{decode_or_default, named_rows, rows, word},
};

/// Placeholder for a value that a proxy mode does not count.
const NOT_COUNTED: &str = "-";

/// Column headings of the traffic counters.
const COUNTS: [&str; 8] =
    ["CONNECTIONS", "CONN/S", "ACTIVE", "INACTIVE", "PACKETS", "BYTES", "BYTES/S", "FAILED"];

/// Renders the table of `traffic`: one row per endpoint and node, and a row with the total.
#[must_use]
pub fn by_node(traffic: &Value, style: Style) -> String {
    let mut table = table(&["NODE", "MODE", "ENDPOINT", "PORTS"], &["AGE"]);
    for (name, node) in named_rows::<NodeTraffic>(traffic, "/nodes") {
        let Some(node) = node else {
            table.push_unreadable();
            continue;
        };
        for endpoint in &node.endpoints {
            let mut row = vec![Cell::from(name), word(&node.mode).into()];
            row.extend(endpoint_cells(endpoint));
            row.push(format!("{}s", node.age_seconds.unwrap_or(0)).into());
            table.push(row);
        }
    }
    let mut sum: Vec<Cell> = ["total", NOT_COUNTED, NOT_COUNTED, NOT_COUNTED].map(Cell::from).to_vec();
    sum.extend(total(traffic));
    sum.push(NOT_COUNTED.into());
    table.push(sum);
    table.render(style)
}

/// Renders the table of `top services`: one row per Service, busiest first, and a row with the total. `None`
/// if no Service has traffic.
#[must_use]
pub fn busiest(answer: &Value, style: Style) -> Option<String> {
    let mut table = table(&["SERVICE", "NODES"], &[]);
    for service in rows::<BusyService>(answer, "/services") {
        let Some(service) = service else {
            table.push_unreadable();
            continue;
        };
        let mut row: Vec<Cell> = vec![word(&service.service).into(), service.nodes.to_string().into()];
        row.extend(counts(&service.counts));
        table.push(row);
    }
    if table.is_empty() {
        return None;
    }
    let mut sum: Vec<Cell> = vec!["total".into(), NOT_COUNTED.into()];
    sum.extend(total(answer));
    table.push(sum);
    Some(table.render(style))
}

/// Returns a table of the traffic of each endpoint, summed over the nodes, or `None` if no node reports
/// traffic.
#[must_use]
pub fn by_endpoint(traffic: &Value, style: Style) -> Option<String> {
    let mut table = table(&["ENDPOINT", "PORTS"], &[]);
    for endpoint in rows::<EndpointTraffic>(traffic, "/endpoints") {
        match endpoint {
            Some(endpoint) => table.push(endpoint_cells(&endpoint)),
            None => table.push_unreadable(),
        }
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Formats the number of reporting nodes.
#[must_use]
pub fn reporting_nodes(traffic: &Value) -> String {
    match named_rows::<IgnoredAny>(traffic, "/nodes").count() {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn table(before: &[&'static str], after: &[&'static str]) -> Table {
    Table::new([before, &COUNTS, after].concat())
}

fn total(answer: &Value) -> [Cell; 8] {
    counts(&decode_or_default(answer.get("total")))
}

fn endpoint_cells(endpoint: &EndpointTraffic) -> Vec<Cell> {
    let port = endpoint.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
    let address = socket(&endpoint.address.to_string(), &port);
    let target = format!("{address}/{}", endpoint.protocol.as_str());
    let mut row: Vec<Cell> = vec![target.into(), endpoint.service_ports.join(",").into()];
    row.extend(counts(&endpoint.counts));
    row
}

fn counts(counts: &Counts) -> [Cell; 8] {
    let Counts { connections, packets, bytes, active, inactive, per_second, failed } = counts;
    [
        Some(connections.to_string()),
        per_second.map(|rates| rate(rates.connections)),
        active.map(|count| count.to_string()),
        inactive.map(|count| count.to_string()),
        packets.map(|count| count.to_string()),
        bytes.map(|count| count.to_string()),
        per_second.and_then(|rates| rates.bytes).map(rate),
        failed.map(failures),
    ]
    .map(|figure| figure.map_or_else(|| NOT_COUNTED.into(), Cell::from))
}

/// Formats a rate; values below 100 with one decimal.
fn rate(rate: Rate) -> String {
    let rate = rate.per_second();
    let digits = usize::from(rate > 0.0 && rate < 100.0);
    format!("{rate:.digits$}")
}

/// Formats the number of failed connections for each cause, such as `2 refused, 1 silent`.
fn failures(failed: TargetFailures) -> String {
    let TargetFailures { refused, unreachable, silent, reset } = failed;
    let causes = [(refused, "refused"), (unreachable, "unreachable"), (silent, "silent"), (reset, "reset")];
    let causes: Vec<_> = causes
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, cause)| format!("{count} {cause}"))
        .collect();
    if causes.is_empty() { "0".to_owned() } else { causes.join(", ") }
}
