//! Formats the output of `tidegate-agent preflight`. Does no I/O.

use std::fmt::Write as _;

use super::{Finding, Report};

/// Formats the report as a table.
#[must_use]
pub fn table(report: &Report) -> String {
    let Report { mode, kernel, usable, findings } = report;
    let width = |text: fn(&Finding) -> &str| findings.iter().map(|it| text(it).len()).max().unwrap_or(0);
    let (need, kind) = (width(|it| &it.need), width(|it| it.kind.as_str()));
    let mut table = format!("mode {}, kernel {kernel}\n", mode.as_str());
    for finding in findings {
        let Finding { need: name, kind: sort, state, required, purpose, detail, remedy } = finding;
        let optional = if *required { "" } else { " (optional)" };
        let (sort, state) = (sort.as_str(), state.as_str());
        let _infallible = write!(table, "{name:need$}  {sort:kind$}  {state:8}  {purpose}{optional}");
        if !detail.is_empty() {
            let _infallible = write!(table, ": {detail}");
        }
        table.push('\n');
        if let Some(remedy) = remedy.as_ref().filter(|_| *required) {
            let _infallible = writeln!(table, "{:need$}  {:kind$}  -> {remedy}", "", "");
        }
    }
    let verdict = if *usable { "can" } else { "cannot" };
    let _infallible = writeln!(table, "mode {} {verdict} be used on this machine", mode.as_str());
    table
}
