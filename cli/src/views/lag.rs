//! Convergence times as text. Pure.

use serde_json::Value;

use crate::{
    lenient_json::{clean, items, number, text},
    terminal::{
        style::Style,
        table::{Cell, Table},
    },
};

/// Table of `top nodes`: one row per node, slowest first. `None` without nodes.
#[must_use]
pub fn by_node(answer: &Value, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["NODE", "CHANGES", "P50", "P99", "WAITING", "REASON", "MESSAGE"]);
    for node in items(answer, "/nodes") {
        let waiting = match number(node, "/waiting") {
            0 => "0".to_owned(),
            count => format!("{count} for {}", millis(node, "/waitingMs")),
        };
        let row = [
            text(node, "/node"),
            text(node, "/measured"),
            millis(node, "/p50Ms"),
            millis(node, "/p99Ms"),
            waiting,
            text(node, "/reason"),
            text(node, "/message"),
        ];
        table.push(row.iter().map(Cell::from).collect());
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the convergence line of `status`, or `None` if nothing has been measured or is pending.
#[must_use]
pub fn summary(answer: &Value) -> Option<String> {
    let slowest = answer.get("slowest").filter(|slowest| !slowest.is_null())?;
    let name = clean(&text(slowest, "/node"));
    let why = format!("{}: {}", clean(&text(slowest, "/reason")), clean(&text(slowest, "/message")));
    let slowest = match number(slowest, "/waiting") {
        0 => format!("slowest {name} {} ({why})", millis(slowest, "/p99Ms")),
        count => format!("{name} is {count} behind for {} ({why})", millis(slowest, "/waitingMs")),
    };
    let changes = number(answer, "/changes");
    let (p50, p99) = (millis(answer, "/p50Ms"), millis(answer, "/p99Ms"));
    Some(format!("Changes    last {changes} applied on nodes after {p50} (p50), {p99} (p99); {slowest}"))
}

/// Formats a duration in milliseconds, seconds or minutes.
fn millis(of: &Value, at: &str) -> String {
    let Some(millis) = of.pointer(at).and_then(Value::as_u64) else { return "-".to_owned() };
    match millis {
        0..10_000 => format!("{millis} ms"),
        10_000..600_000 => format!("{} s", millis / 1000),
        _ => format!("{} min", millis / 60_000),
    }
}
