//! The roll-up of a Node: whether its agent speaks, and how far it is.

use super::{NodeView, condition, no, ready, yes};
use crate::{
    kinds::node::NodeSpec,
    observed::status::{Condition, ConditionStatus, ConditionType, NodeStatus},
    primitives::{name::Name, quantity::Position},
    wire::report::Report,
};

/// Rolls up the status of a Node. `head` is the position that a node with everything has reached.
#[must_use]
pub fn node_status(spec: &NodeSpec, view: &NodeView<'_>, head: Position) -> NodeStatus {
    let last_report = view.last_report;
    let connected = connected(view);
    let Some(report) = view.report else {
        let unknown =
            condition(ConditionType::Converged, ConditionStatus::Unknown, "NoReport", String::new());
        let mut conditions = vec![yes(ConditionType::Accepted, "Valid"), connected, unknown];
        conditions.push(ready(&conditions));
        return NodeStatus { conditions, last_report, ..NodeStatus::default() };
    };
    let converged = converged(spec, view.name, report, head);
    let mut conditions = vec![yes(ConditionType::Accepted, "Valid"), connected, converged];
    conditions.push(ready(&conditions));
    NodeStatus {
        conditions,
        agent_version: Some(report.agent_version.clone()),
        last_report,
        received: Some(report.received),
        applied: Some(report.applied),
        verified: Some(report.verified),
        held: report.held,
        failures: report.failures_total,
        facts: report.facts.clone(),
        counters: report.counters,
        mode: Some(report.mode),
        warnings: report.warnings.clone(),
        events: report.events.clone(),
        bgp: None,
    }
}

fn converged(spec: &NodeSpec, name: &Name, report: &Report, head: Position) -> Condition {
    let at = ConditionType::Converged;
    let other_mode = spec.mode.filter(|wanted| *wanted != report.mode);
    // First: what a node refuses may look like what it has, and a failure of what it holds is the lesser news.
    if let Some(held) = &report.held {
        no(at, "StateHeld", held.message()).hint(&held.hint(name.as_str()))
    } else if report.failures_total > 0 {
        let message = format!("{} Services failed on the node", report.failures_total);
        no(at, "ServicesFailed", message).hint("describe the node to see them")
    } else if report.verified < head {
        no(at, "CatchingUp", format!("verified up to {}, of {head}", report.verified))
    } else if let Some(wanted) = other_mode {
        let message =
            format!("traffic goes by mode {}, not by {} as asked", report.mode.as_str(), wanted.as_str());
        no(at, "OtherMode", message)
            .hint("the change takes a moment; the node's warnings say what hinders it")
    } else {
        yes(at, "Verified")
    }
}

fn connected(view: &NodeView<'_>) -> Condition {
    match (view.is_connected, view.last_report) {
        (true, _) if view.is_contested => no(
            ConditionType::Connected,
            "TwoAgents",
            "two agents report under this name, and each undoes what is known of the other".to_owned(),
        )
        .hint("give every machine's tidegate-agent a --node of its own"),
        (true, _) => yes(ConditionType::Connected, "Reporting"),
        (false, Some(at)) => no(
            ConditionType::Connected,
            "AgentSilent",
            format!("the agent has not reported since {at}"),
        )
        .hint(
            "see whether tidegate-agent runs on the node and reaches this server; its rules stay as they are",
        ),
        (false, None) => {
            no(ConditionType::Connected, "NeverReported", "no agent has reported for this node".to_owned())
                .hint("start tidegate-agent there with --node and the name of this Node")
        }
    }
}
