//! Tables of Service traffic. Pure.

use serde_json::Value;

use crate::{
    lenient_json::{clean, entries, items, joined, number, text},
    terminal::{
        style::Style,
        table::{Cell, Table},
    },
    views::columns::socket,
};

/// Placeholder for a value that a proxy mode does not count.
const NOT_COUNTED: &str = "-";

/// Values of a row, with their headings.
const COUNTS: [(&str, Figure); 8] = [
    ("CONNECTIONS", Figure::Count("/connections")),
    ("CONN/S", Figure::Rate("/perSecond/connections")),
    ("ACTIVE", Figure::Count("/active")),
    ("INACTIVE", Figure::Count("/inactive")),
    ("PACKETS", Figure::Count("/packets")),
    ("BYTES", Figure::Count("/bytes")),
    ("BYTES/S", Figure::Rate("/perSecond/bytes")),
    ("FAILED", Figure::Failed),
];

/// Kind of a value, with its JSON pointer.
#[derive(Debug, Clone, Copy)]
enum Figure {
    /// Count.
    Count(&'static str),
    /// Rate per second.
    Rate(&'static str),
    /// Failed connections by cause.
    Failed,
}

/// Table of `traffic`: one row per endpoint and node, and a total.
#[must_use]
pub fn by_node(traffic: &Value, style: Style) -> String {
    let mut table = table(&["NODE", "MODE", "ENDPOINT", "PORTS"], &["AGE"]);
    for (node, of_node) in entries(traffic, "/nodes") {
        for endpoint in items(of_node, "/endpoints") {
            let mut row = vec![Cell::from(node), text(of_node, "/mode").into()];
            row.extend(endpoint_cells(endpoint));
            row.push(format!("{}s", number(of_node, "/ageSeconds")).into());
            table.push(row);
        }
    }
    let total = traffic.get("total").unwrap_or(&Value::Null);
    let mut sum: Vec<Cell> = ["total", NOT_COUNTED, NOT_COUNTED, NOT_COUNTED].map(Cell::from).to_vec();
    sum.extend(counts(total));
    sum.push(NOT_COUNTED.into());
    table.push(sum);
    table.render(style)
}

/// Table of `top services`: one row per Service, busiest first, and a total. `None` if no Service has
/// traffic.
#[must_use]
pub fn busiest(answer: &Value, style: Style) -> Option<String> {
    let mut table = table(&["SERVICE", "NODES"], &[]);
    for service in items(answer, "/services") {
        let mut row: Vec<Cell> = vec![text(service, "/service").into(), text(service, "/nodes").into()];
        row.extend(counts(service));
        table.push(row);
    }
    if table.is_empty() {
        return None;
    }
    let mut sum: Vec<Cell> = vec!["total".into(), NOT_COUNTED.into()];
    sum.extend(counts(answer.get("total").unwrap_or(&Value::Null)));
    table.push(sum);
    Some(table.render(style))
}

/// Returns one row per endpoint, summed over the nodes, or `None` if no node reports any.
#[must_use]
pub fn by_endpoint(traffic: &Value, style: Style) -> Option<String> {
    let mut table = table(&["ENDPOINT", "PORTS"], &[]);
    for endpoint in items(traffic, "/endpoints") {
        table.push(endpoint_cells(endpoint));
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Formats the number of reporting nodes.
#[must_use]
pub fn reporting_nodes(traffic: &Value) -> String {
    match entries(traffic, "/nodes").count() {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn table(before: &[&'static str], after: &[&'static str]) -> Table {
    let counts = COUNTS.map(|(title, _)| title);
    Table::new([before, &counts, after].concat())
}

fn endpoint_cells(endpoint: &Value) -> Vec<Cell> {
    let port = text(endpoint, "/port");
    let port = if port.is_empty() { "*" } else { &port };
    let target = format!("{}/{}", socket(&text(endpoint, "/address"), port), text(endpoint, "/protocol"));
    let mut row: Vec<Cell> = vec![target.into(), joined(endpoint, "/servicePorts").into()];
    row.extend(counts(endpoint));
    row
}

fn counts(of: &Value) -> Vec<Cell> {
    let cell = |(_, figure): (&str, Figure)| {
        let figure = match figure {
            Figure::Count(at) => clean(&text(of, at)),
            Figure::Rate(at) => rate(of, at),
            Figure::Failed => failed(of),
        };
        Cell::from(if figure.is_empty() { NOT_COUNTED } else { &figure })
    };
    COUNTS.map(cell).to_vec()
}

/// Formats a rate; values below 100 with one decimal.
fn rate(of: &Value, at: &str) -> String {
    let rate = of.pointer(at).and_then(Value::as_f64);
    let digits = |rate: f64| usize::from(rate > 0.0 && rate < 100.0);
    rate.map(|rate| format!("{rate:.0$}", digits(rate))).unwrap_or_default()
}

/// Formats the number of failed connections by cause; empty if failures are not counted.
fn failed(of: &Value) -> String {
    if of.get("failed").is_none_or(Value::is_null) {
        return String::new();
    }
    let kinds =
        ["refused", "unreachable", "silent", "reset"].map(|how| (how, number(of, &format!("/failed/{how}"))));
    let words: Vec<_> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(how, count)| format!("{count} {how}")).collect();
    if words.is_empty() { "0".to_owned() } else { words.join(", ") }
}
