//! Text of `explain policy`. Pure functions.

use std::fmt::Write as _;

use model::policy::explain::{ExplainedDirection, ExplainedEnd, PolicyExplanation, PolicyReason};

use super::typed::{UNREADABLE, words};

/// Formats an explanation; `None` if the response cannot be decoded.
#[must_use]
pub fn explanation(explanation: Option<&PolicyExplanation>) -> String {
    let Some(PolicyExplanation { accepted, source, destination, protocol, port, egress, ingress }) =
        explanation
    else {
        return format!("{UNREADABLE}\n");
    };
    let verdict = if *accepted { "accepted" } else { "dropped" };
    let port = match (protocol, port) {
        (Some(protocol), Some(port)) => format!("{port}/{}", protocol.as_str()),
        (Some(_) | None, _) => "ICMP echo".to_owned(),
    };
    let mut text = format!("{} -> {}, {port}: {verdict}\n", end(source), end(destination));
    for (name, found) in [("egress of the source", egress), ("ingress of the destination", ingress)] {
        // A String takes every write.
        let _infallible = writeln!(text, "  {name}: {}", direction(found));
    }
    text
}

fn end(end: &ExplainedEnd) -> String {
    match &end.workload {
        Some(workload) => format!("{workload} ({})", end.address),
        None => end.address.to_string(),
    }
}

fn direction(found: &ExplainedDirection) -> String {
    let ExplainedDirection { accepted, reason, policies, rule } = found;
    let verdict = if *accepted { "accepted" } else { "dropped" };
    let rule = rule.as_ref().map(|rule| format!("rule {} of {}", rule.rule, rule.policy)).unwrap_or_default();
    let why = match reason {
        PolicyReason::NotSelected => "no policy selects it".to_owned(),
        PolicyReason::NotEnforced => format!(
            "no node enforces {}: the workload has no node, or the address of a node",
            words(policies)
        ),
        PolicyReason::RuleAccepts | PolicyReason::RuleDenies => rule,
        PolicyReason::Isolated => format!("no rule of {} accepts it", words(policies)),
        PolicyReason::UnknownRules => "the rules are unknown".to_owned(),
        PolicyReason::SameAddress => "connections of a workload to itself".to_owned(),
    };
    format!("{verdict}, {why}")
}
