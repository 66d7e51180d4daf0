//! Tables of predicted node failures. Pure.

use serde_json::Value;

use crate::{
    lenient_json::{clean, flag, items, number, text},
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
};

/// Maximum number of names in one cell; the count covers all.
const NAMES_MAX: usize = 5;

/// Returns true if a Service or an address would become unavailable.
#[must_use]
pub fn is_harmful(answer: &Value) -> bool {
    let is_lost = items(answer, "/addresses").iter().any(|address| flag(address, "/isLost", false));
    is_lost || items(answer, "/services").iter().any(|service| flag(service, "/isDown", false))
}

/// Renders the output of `what-if`.
#[must_use]
pub fn tables(answer: &Value, style: Style) -> String {
    let sections = [
        (addresses(answer), "ADDRESSES", "No address would move."),
        (services(answer), "SERVICES", "No Service would lose an endpoint."),
        (single_points(answer), "SINGLE POINTS OF FAILURE", "Nothing depends on a single node."),
    ];
    let failed = names(answer, "/failed");
    let mut out = match failed.as_str() {
        "" => "Nothing fails.\n".to_owned(),
        failed => format!("If {failed} failed:\n"),
    };
    for (table, title, otherwise) in sections {
        let body = if table.is_empty() {
            format!("{otherwise}\n")
        } else {
            format!("{title}\n{}", table.render(style))
        };
        out = out + "\n" + &body;
    }
    match number(answer, "/omitted") {
        0 => out,
        omitted => out + &format!("\n{omitted} more not shown.\n"),
    }
}

fn addresses(answer: &Value) -> Table {
    let mut table = Table::new(vec!["ADDRESS", "SERVICES", "ANNOUNCED BY", "THEN BY", "BGP PATHS"]);
    for address in items(answer, "/addresses") {
        let node = |pointer: &str| match text(address, pointer) {
            node if node.is_empty() => "-".to_owned(),
            node => node,
        };
        let then = if flag(address, "/isLost", false) {
            Cell::toned(Tone::Bad, "nobody")
        } else {
            Cell::from(node("/nextOwner"))
        };
        let paths = format!("{} of {}", number(address, "/pathsLeft"), number(address, "/paths"));
        table.push(vec![
            text(address, "/address").into(),
            names(address, "/services").into(),
            node("/owner").into(),
            then,
            paths.into(),
        ]);
    }
    table
}

fn services(answer: &Value) -> Table {
    let mut table = Table::new(vec!["SERVICE", "ENDPOINTS LEFT", "CAPACITY LEFT"]);
    for service in items(answer, "/services") {
        let left = format!("{} of {}", number(service, "/endpointsLeft"), number(service, "/endpoints"));
        let tone = if flag(service, "/isDown", false) { Tone::Bad } else { Tone::Waiting };
        let capacity = format!("{} %", number(service, "/capacityLeft"));
        table.push(vec![text(service, "/service").into(), left.into(), Cell::toned(tone, capacity)]);
    }
    table
}

fn single_points(answer: &Value) -> Table {
    let mut table = Table::new(vec!["NODE", "SERVICES", "ADDRESSES"]);
    for point in items(answer, "/singlePoints") {
        table.push(vec![
            text(point, "/node").into(),
            names(point, "/services").into(),
            names(point, "/addresses").into(),
        ]);
    }
    table
}

fn names(value: &Value, pointer: &str) -> String {
    let all = items(value, pointer);
    let some: Vec<_> =
        all.iter().take(NAMES_MAX).map(|name| clean(&crate::lenient_json::scalar(name))).collect();
    match all.len().saturating_sub(NAMES_MAX) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}
