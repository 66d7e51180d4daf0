//! Formats convergence times, the times that nodes take to apply changes. Pure functions.

use model::observed::lag::{LagOverview, NodeLag};
use serde_json::Value;

use crate::{
    terminal::{clean, style::Style, table::Table},
    views::typed::{decode, rows, word},
};

/// Renders the table of `top nodes`: one row per node, slowest first. `None` without nodes.
#[must_use]
pub fn by_node(answer: &Value, style: Style) -> Option<String> {
    let mut table = Table::new(vec!["NODE", "CHANGES", "P50", "P99", "WAITING", "REASON", "MESSAGE"]);
    for node in rows::<NodeLag>(answer, "/nodes") {
        let Some(node) = node else {
            table.push_unreadable();
            continue;
        };
        let waiting = match node.waiting {
            0 => "0".to_owned(),
            count => format!("{count} for {}", millis(node.waiting_ms)),
        };
        table.push(vec![
            word(&node.node).into(),
            node.measured.to_string().into(),
            millis(node.p50_ms).into(),
            millis(node.p99_ms).into(),
            waiting.into(),
            word(&node.reason).into(),
            node.message.into(),
        ]);
    }
    (!table.is_empty()).then(|| table.render(style))
}

/// Returns the convergence line of `status`, or `None` if nothing has been measured or is pending.
#[must_use]
pub fn summary(answer: &Value) -> Option<String> {
    let overview: LagOverview = decode(answer)?;
    let slowest = overview.slowest?;
    let (name, message) = (word(&slowest.node), clean(&slowest.message));
    let why = format!("{}: {message}", word(&slowest.reason));
    let slowest = match slowest.waiting {
        0 => format!("slowest {name} {} ({why})", millis(slowest.p99_ms)),
        count => format!("{name} is {count} behind for {} ({why})", millis(slowest.waiting_ms)),
    };
    let (changes, p50, p99) = (overview.changes, millis(overview.p50_ms), millis(overview.p99_ms));
    Some(format!("Changes    last {changes} applied on nodes after {p50} (p50), {p99} (p99); {slowest}"))
}

/// Formats a duration in milliseconds, seconds or minutes.
fn millis(millis: Option<u64>) -> String {
    match millis {
        None => "-".to_owned(),
        Some(millis @ 0..10_000) => format!("{millis} ms"),
        Some(millis @ 10_000..600_000) => format!("{} s", millis / 1000),
        Some(millis) => format!("{} min", millis / 60_000),
    }
}
