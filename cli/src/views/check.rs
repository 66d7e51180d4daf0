//! Output of `status --check`: one line with performance data, as monitoring plugins print it.

use model::views::overview::Impact;
use serde_json::Value;

use crate::{
    error::CheckState,
    terminal::clean,
    views::{
        render::is_healthy,
        typed::{
            Word, decode,
            documents::{ClusterStatus, StatusNodes, StatusServices},
        },
    },
};

/// Returns the state of the cluster and the line that reports it.
#[must_use]
pub fn line(status: &Value) -> (CheckState, String) {
    let ClusterStatus { nodes, services, problems, .. } = decode(status).unwrap_or_default();
    let unreachable =
        problems.iter().filter(|problem| problem.impact == Word::Known(Impact::Unreachable)).count();
    let state = match (unreachable, is_healthy(status)) {
        (1.., _) => CheckState::Critical,
        (0, false) => CheckState::Warning,
        (0, true) => CheckState::Ok,
    };
    let StatusNodes { total, connected, converged } = nodes;
    let StatusServices { total: services, ready, .. } = services;
    let first = problems
        .first()
        .map(|problem| format!("; {}: {}", problem.object, problem.reason))
        .unwrap_or_default();
    let text = format!(
        "TIDEGATE {} - {connected}/{total} nodes report, {ready}/{services} Services ready, {} problems{first}",
        state.as_str(),
        problems.len(),
    );
    // `|` separates the performance data.
    let text = clean(&text).replace('|', "/");
    let data = format!(
        "problems={} unreachable={unreachable} nodes={total} nodes_connected={connected} nodes_converged={converged} \
         services={services} services_ready={ready}",
        problems.len()
    );
    (state, format!("{text} | {data}\n"))
}

/// Returns the line for a check whose result is unknown.
pub(crate) fn unknown(cause: &str) -> String {
    let cause = clean(cause).replace(['|', '\n'], " ");
    format!("TIDEGATE {} - {cause}\n", CheckState::Unknown.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_is_that_of_the_worst_problem() {
        let status = |impact: &str| {
            json!({ "nodes": { "total": 1, "connected": 1, "converged": 1 }, "services": { "total": 2, "ready": 2 },
                    "problems": [{ "object": "Service a|b", "impact": impact, "reason": "NoEndpoints" }] })
        };
        assert_eq!(line(&status("unreachable")).0, CheckState::Critical);
        let (state, text) = line(&status("degraded"));
        assert_eq!(state, CheckState::Warning);
        assert!(text.starts_with(
            "TIDEGATE WARNING - 1/1 nodes report, 2/2 Services ready, 1 problems; Service a/b: NoEndpoints | "
        ));
        assert_eq!(line(&status("later")).0, CheckState::Warning, "an impact of a newer server");
        assert_eq!(line(&json!({})).0, CheckState::Ok);
        assert_eq!(unknown("a\nb|c"), "TIDEGATE UNKNOWN - a b c\n");
    }
}
