//! Status of a Node, with the conditions Connected (the agent of the Node reports) and Converged (the Node
//! has verified the current state).

use super::{NodeView, condition, no, ready, yes};
use crate::{
    cluster::config::{REGISTERED_PREFIX_V4_MIN, REGISTERED_PREFIX_V6_MIN},
    kinds::{
        condition_reason::ConditionReason,
        node::{NodeRequest, NodeSpec},
    },
    observed::status::{Condition, ConditionStatus, ConditionType, NodeStatus},
    primitives::{name::Name, quantity::Position},
    wire::report::Report,
};

/// Computes the status of a Node from its spec, lease state and last report. `head` is the position of the
/// newest state, which a converged Node has verified.
#[must_use]
pub fn node_status(spec: &NodeSpec, view: &NodeView<'_>, head: Position) -> NodeStatus {
    let last_report = view.last_report;
    let connected = connected(spec, view);
    let Some(report) = view.report else {
        let unknown = condition(
            ConditionType::Converged,
            ConditionStatus::Unknown,
            ConditionReason::NoReport,
            String::new(),
        );
        let mut conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid), connected, unknown];
        conditions.push(ready(&conditions));
        let warnings = not_accepted(view.name, &spec.requested);
        return NodeStatus { conditions, last_report, warnings, ..NodeStatus::default() };
    };
    let converged = converged(spec, view.name, report, head);
    let mut conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid), connected, converged];
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
        warnings: not_accepted(view.name, &spec.requested)
            .into_iter()
            .chain(report.warnings.clone())
            .collect(),
        events: report.events.clone(),
        bgp: None,
    }
}

/// Returns a warning for each type of property that the agent requested and that is not accepted.
fn not_accepted(name: &Name, requested: &NodeRequest) -> Vec<String> {
    let NodeRequest { labels, addresses, workload_cidrs } = requested;
    let warning = |field: &str, values: Vec<String>, cause: &str| {
        let values = values.join(", ");
        format!(
            "{field} {values} requested by the agent, not accepted: {cause}; `tidegate node accept {name}` accepts"
        )
    };
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let networks: Vec<_> = workload_cidrs.iter().map(ToString::to_string).collect();
    let size = format!("larger than a /{REGISTERED_PREFIX_V4_MIN} or /{REGISTERED_PREFIX_V6_MIN} together");
    let cause = format!("outside of --workload-range, {size}, or in use by another Node");
    let of_another = "in use by another Node";
    [
        ("labels", labels, "not in the join token"),
        ("addresses", addresses, of_another),
        ("workloadCIDRs", networks, &cause),
    ]
    .into_iter()
    .filter(|(_, values, _)| !values.is_empty())
    .map(|(field, values, cause)| warning(field, values, cause))
    .collect()
}

fn converged(spec: &NodeSpec, name: &Name, report: &Report, head: Position) -> Condition {
    let at = ConditionType::Converged;
    let other_mode = spec.mode.filter(|wanted| *wanted != report.mode);
    // A held state comes first: it may look like convergence, and failures of the state in force matter less.
    if let Some(held) = &report.held {
        no(at, ConditionReason::StateHeld, held.message()).hint(&held.hint(name.as_str()))
    } else if report.failures_total > 0 {
        let message = format!("{} Services failed on the node", report.failures_total);
        no(at, ConditionReason::ServicesFailed, message).hint("`tidegate describe node` lists them")
    } else if let Some(failure) = &report.network_failure {
        no(at, ConditionReason::NetworkNotProgrammed, format!("workload network: {failure}"))
            .hint("correct the cause on the node, which tries again every 5 seconds")
    } else if report.verified < head {
        no(at, ConditionReason::CatchingUp, format!("verified up to {}, of {head}", report.verified))
    } else if let Some(wanted) = other_mode {
        let message = format!(
            "traffic uses mode {} instead of the requested {}",
            report.mode.as_str(),
            wanted.as_str()
        );
        no(at, ConditionReason::OtherMode, message)
            .hint("the change takes a moment; the warnings of the node name an obstacle, if any")
    } else {
        yes(at, ConditionReason::Verified)
    }
}

fn connected(spec: &NodeSpec, view: &NodeView<'_>) -> Condition {
    let lost = spec.lost_since.map(|since| format!("; lost since {since}: other nodes check its Workloads"));
    match (view.is_connected, view.last_report) {
        (true, _) if view.is_contested => no(
            ConditionType::Connected,
            ConditionReason::TwoAgents,
            "two agents report under this name, and each report replaces the other's".to_owned(),
        )
        .hint("give the tidegate-agent of each machine a different --node"),
        (true, _) => yes(ConditionType::Connected, ConditionReason::Reporting),
        (false, Some(at)) => no(
            ConditionType::Connected,
            ConditionReason::AgentSilent,
            format!("the agent has not reported since {at}{}", lost.unwrap_or_default()),
        )
        .hint(
            "check that tidegate-agent runs on the node and reaches this server; its rules remain in force",
        ),
        (false, None) => no(
            ConditionType::Connected,
            ConditionReason::NeverReported,
            "no agent has reported for this node".to_owned(),
        )
        .hint("start tidegate-agent there with --node and the name of this Node"),
    }
}
