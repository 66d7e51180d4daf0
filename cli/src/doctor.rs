//! What agents found on their machines, as a table. Pure.

use serde_json::Value;

use crate::{
    style::{Style, Tone},
    table::{Cell, Table},
    view::{clean, items, text},
};

/// Whether something does harm.
#[must_use]
pub fn is_broken(answers: &Value) -> bool {
    findings(answers).any(|(_, finding)| text(finding, "/state") == "Broken")
}

/// A row for each finding, the worst first; without `all` only those that are not well.
#[must_use]
pub fn table(answers: &Value, all: bool, style: Style) -> String {
    let mut shown: Vec<_> =
        findings(answers).filter(|(_, finding)| all || text(finding, "/state") != "Fine").collect();
    shown.sort_by_key(|(node, finding)| (rank(&text(finding, "/state")), node.clone(), text(finding, "/check")));
    if shown.is_empty() {
        let nodes = items(answers, "").len();
        return format!("{nodes} of {nodes} nodes: nothing is odd\n");
    }
    let mut table = Table::new(vec!["NODE", "CHECK", "STATE", "FOUND", "FIX"]);
    for (node, finding) in shown {
        let state = text(finding, "/state");
        let tone = match state.as_str() {
            "Fine" => Tone::Good,
            "Warning" => Tone::Waiting,
            _ => Tone::Bad,
        };
        let fix = Some(text(finding, "/fix")).filter(|fix| !fix.is_empty()).unwrap_or_else(|| "-".to_owned());
        table.push(vec![
            node.into(),
            clean(&text(finding, "/check")).into(),
            Cell::toned(tone, clean(&state)),
            clean(&text(finding, "/message")).into(),
            clean(&fix).into(),
        ]);
    }
    table.render(style)
}

fn rank(state: &str) -> u8 {
    match state {
        "Broken" => 0,
        "Warning" => 1,
        _ => 2,
    }
}

fn findings(answers: &Value) -> impl Iterator<Item = (String, &Value)> {
    items(answers, "").iter().flat_map(|answer| {
        let node = clean(&text(answer, "/node"));
        items(answer, "/findings").iter().map(move |finding| (node.clone(), finding))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_worst_comes_first_and_what_is_well_only_when_asked_for() {
        let finding = |check: &str, state: &str| json!({ "check": check, "state": state, "message": "so it is" });
        let mut broken = finding("conntrack-size", "Broken");
        broken["fix"] = json!("make it larger");
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
        assert_eq!(lines(false), [head, "b conntrack-size Broken", "a iptables-flavours Warning"]);
        assert_eq!(lines(true).last().unwrap(), "a nf_tables Fine");
        let fine = json!([{ "node": "a", "findings": [finding("nf_tables", "Fine")] }]);
        assert_eq!(table(&fine, false, Style::PLAIN), "1 of 1 nodes: nothing is odd\n");
        assert!(!is_broken(&fine));
    }
}
