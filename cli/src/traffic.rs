//! The traffic of a Service as tables. Pure.

use serde_json::Value;

use crate::{
    columns::socket,
    style::Style,
    table::{Cell, Table},
    view::{clean, entries, items, joined, number, text},
};

/// What stands for a figure that a proxy mode does not count.
const NOT_COUNTED: &str = "-";

/// The figures of a row, with their headings.
const COUNTS: [(&str, &str); 5] = [
    ("CONNECTIONS", "/connections"),
    ("ACTIVE", "/active"),
    ("INACTIVE", "/inactive"),
    ("PACKETS", "/packets"),
    ("BYTES", "/bytes"),
];

/// What `traffic` prints: a row for each endpoint on each node, and a sum.
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

/// A row for each endpoint, summed over the nodes; nothing when no node reports any.
#[must_use]
pub fn by_endpoint(traffic: &Value, style: Style) -> Option<String> {
    let mut table = table(&["ENDPOINT", "PORTS"], &[]);
    for endpoint in items(traffic, "/endpoints") {
        table.push(endpoint_cells(endpoint));
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// The nodes that report, in words.
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
    let cell = |(_, at): (&str, &str)| {
        let figure = clean(&text(of, at));
        Cell::from(if figure.is_empty() { NOT_COUNTED } else { &figure })
    };
    COUNTS.map(cell).to_vec()
}
