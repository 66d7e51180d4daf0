//! Tables of the results of `doctor`. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use model::wire::doctor::{FindingState, FixOutcome};
use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::typed::{
        Word, decode, decode_items,
        documents::{NodeFinding, NodeFindings, NodeFix, NodeFixes},
        items, word,
    },
};

/// Returns true if any result has the state `Broken`.
#[must_use]
pub fn is_broken(answers: &Value) -> bool {
    findings(answers).any(|(_, finding)| finding.state == Word::Known(FindingState::Broken))
}

/// Returns the fixes that agents could apply to the problems found, by node.
#[must_use]
pub fn safe_fixes(answers: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut fixes: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (node, finding) in findings(answers) {
        if !finding.safe_fix.is_empty() {
            fixes.entry(node).or_default().insert(finding.safe_fix);
        }
    }
    fixes
}

/// Returns one line per requested fix with its outcome.
#[must_use]
pub fn done(answer: &Value) -> String {
    let NodeFixes { node, fixes } = decode(answer).unwrap_or_default();
    let line = |NodeFix { fix, outcome, message }: &NodeFix| {
        clean(&format!("{node}: {fix} {}: {message}", word(outcome))) + "\n"
    };
    fixes.iter().map(line).collect()
}

/// Returns true if any fix failed.
#[must_use]
pub fn has_failed(answer: &Value) -> bool {
    let NodeFixes { fixes, .. } = decode(answer).unwrap_or_default();
    fixes.iter().any(|fix| fix.outcome == Word::Known(FixOutcome::Failed))
}

/// Returns one row per check result, the most severe first; successful checks only if `all` is true. The
/// lines below the table explain the effect and the remedy of each problem.
#[must_use]
pub fn table(answers: &Value, all: bool, style: Style) -> String {
    let fine = Word::Known(FindingState::Fine);
    let mut shown: Vec<_> = findings(answers).filter(|(_, finding)| all || finding.state != fine).collect();
    shown.sort_by_cached_key(|(node, finding)| (rank(&finding.state), finding.check.clone(), node.clone()));
    if shown.is_empty() {
        let nodes = items(answers, "").len();
        return format!("{nodes} of {nodes} nodes: no problems found\n");
    }
    let mut table = Table::new(vec!["NODE", "CHECK", "STATE", "FOUND"]);
    let (mut remedies, mut explained) = (String::new(), BTreeSet::new());
    for (node, finding) in shown {
        let tone = match finding.state {
            Word::Known(FindingState::Fine) => Tone::Good,
            Word::Known(FindingState::Warning) => Tone::Waiting,
            Word::Known(FindingState::Broken) | Word::Unknown(_) => Tone::Bad,
        };
        let [check, why, fix] = [&finding.check, &finding.why, &finding.fix].map(|text| clean(text));
        if finding.state != fine && explained.insert((check.clone(), fix.clone())) {
            let by_agent = if finding.safe_fix.is_empty() { "" } else { " (--fix applies it)" };
            remedies += &format!("\n{check}: {why}\n");
            if !fix.is_empty() {
                remedies += &format!("  fix: {fix}{by_agent}\n");
            }
        }
        table.push(vec![
            node.into(),
            check.into(),
            Cell::toned(tone, word(&finding.state)),
            finding.message.into(),
        ]);
    }
    table.render(style) + &remedies
}

const fn rank(state: &Word<FindingState>) -> u8 {
    match state {
        Word::Known(FindingState::Broken) => 0,
        Word::Known(FindingState::Warning) => 1,
        Word::Known(FindingState::Fine) | Word::Unknown(_) => 2,
    }
}

fn findings(answers: &Value) -> impl Iterator<Item = (String, NodeFinding)> {
    decode_items::<NodeFindings>(answers, "").into_iter().flat_map(|NodeFindings { node, findings }| {
        let node = clean(&node);
        findings.into_iter().map(move |finding| (node.clone(), finding))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_worst_comes_first_and_what_is_well_only_when_asked_for() {
        let finding =
            |check: &str, state: &str| json!({ "check": check, "state": state, "message": "so it is" });
        let mut broken = finding("conntrack-size", "Broken");
        broken["fix"] = json!("make it larger");
        broken["why"] = json!("it is full");
        broken["safeFix"] = json!("ConntrackMax");
        let answers = json!([
            { "node": "a", "findings": [finding("iptables-flavours", "Warning"), finding("nf_tables", "Fine")] },
            { "node": "b", "findings": [broken] },
        ]);
        assert!(is_broken(&answers));
        let lines = |all| -> Vec<String> {
            let text = table(&answers, all, Style::PLAIN);
            text.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
        };
        let head = "NODE CHECK STATE";
        let rows = ["b conntrack-size Broken", "a iptables-flavours Warning"];
        assert_eq!(lines(false)[..3], [head, rows[0], rows[1]]);
        assert_eq!(lines(true)[..4], [head, rows[0], rows[1], "a nf_tables Fine"]);
        let text = table(&answers, false, Style::PLAIN);
        let remedy = "\nconntrack-size: it is full\n  fix: make it larger (--fix applies \
             it)\n\niptables-flavours: \n";
        assert!(text.ends_with(remedy), "{text}");
        let fixes = safe_fixes(&answers);
        assert_eq!(
            fixes.into_iter().collect::<Vec<_>>(),
            [("b".to_owned(), ["ConntrackMax".to_owned()].into())]
        );
        let fine = json!([{ "node": "a", "findings": [finding("nf_tables", "Fine")] }]);
        assert_eq!(table(&fine, false, Style::PLAIN), "1 of 1 nodes: no problems found\n");
        assert!(!is_broken(&fine));
    }
}
