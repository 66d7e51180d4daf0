//! Formats the output of `tidegate-agent doctor`. Does no I/O.

use std::fmt::Write as _;

use model::wire::doctor::{Finding, FindingState, FixResult};

/// Formats the results of checks as a table, most severe first. Successful checks are included only if `all`
/// is true.
#[must_use]
pub fn table(findings: &[Finding], all: bool) -> String {
    let mut shown: Vec<_> =
        findings.iter().filter(|finding| all || finding.state != FindingState::Fine).collect();
    shown.sort_by_key(|finding| std::cmp::Reverse(finding.state));
    if shown.is_empty() {
        return format!("{} checks: no problems found\n", findings.len());
    }
    let width = shown.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, state, message, why, fix, safe_fix } in shown {
        let state = match state {
            FindingState::Fine => "fine",
            FindingState::Warning => "warning",
            FindingState::Broken => "BROKEN",
        };
        let _infallible = writeln!(text, "{state:7}  {check:width$}  {message}");
        let by_us = if safe_fix.is_some() { " (--fix does it)" } else { "" };
        for (word, said, more) in [("why", why, ""), ("fix", fix, by_us)] {
            if let Some(said) = said {
                let _infallible = writeln!(text, "{:7}  {:width$}  {word}: {said}{more}", "", "");
            }
        }
    }
    text
}

/// Formats the results of fixes, one line each.
#[must_use]
pub fn done(fixes: &[FixResult]) -> String {
    let line = |FixResult { fix, outcome, message }: &FixResult| {
        format!("{} {outcome:?}: {message}\n", fix.as_str())
    };
    fixes.iter().map(line).collect()
}
