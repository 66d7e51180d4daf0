//! Test that `docs/trials.md` names an existing test, or a reason, for each finding.

use std::fs;

use crate::root;

/// Page with one table row per finding: id, finding, state, and the tests that hold it or the reason.
const PAGE: &str = "docs/trials.md";
/// Lowest number of findings on the page. A finding is never removed.
const FINDINGS_MIN: usize = 60;
/// States of a finding.
const STATES: [&str; 4] = ["mended", "in part", "answered", "open"];

/// Each row has a known state, a mended finding names at least one test, and each test that the page names as
/// `path::function` is a function of that file.
#[test]
fn every_finding_of_the_trials_names_its_test() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let mut counts = [0_usize; STATES.len()];
    let mut problems = Vec::new();
    for line in page.lines().filter(|line| is_row(line)) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, state, proof] = cells[..] else {
            problems.push(format!("{line}: must have four columns"));
            continue;
        };
        let Some(index) = STATES.iter().position(|known| *known == state) else {
            problems.push(format!("{id}: the state `{state}` is unknown"));
            continue;
        };
        counts[index] += 1;
        let tests: Vec<_> =
            proof.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect();
        if tests.is_empty() && state == "mended" {
            problems.push(format!("{id}: names no test"));
        }
        for (path, name) in tests {
            let code = fs::read_to_string(root().join(format!("{path}.rs"))).unwrap_or_default();
            if !code.contains(&format!("fn {name}(")) {
                problems.push(format!("{id}: {path}.rs has no test {name}"));
            }
        }
    }
    let counted: Vec<_> =
        STATES.iter().zip(counts).map(|(state, count)| format!("{count} {state}")).collect();
    println!("trials: {}", counted.join(", "));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(counts.iter().sum::<usize>() >= FINDINGS_MIN, "{counted:?}: findings are missing");
}

/// Returns true if a line is a row of a table and neither its head nor the rule below it.
fn is_row(line: &str) -> bool {
    line.starts_with("| ")
        && !line.starts_with("| --")
        && !line.starts_with("| id ")
        && !line.starts_with("|--")
}
