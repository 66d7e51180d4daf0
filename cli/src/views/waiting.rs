//! Evaluation of `wait` goals from the responses of the server. Pure functions.

use model::{
    observed::status::{ConditionStatus, ConditionType, NodeStatus},
    primitives::quantity::Revision,
};
use serde_json::Value;

use crate::{
    args::wait::Goal,
    terminal::clean,
    views::{
        columns::condition,
        typed::{ObjectHeader, conditions, decode_or_default, items, word},
    },
};

/// Maximum number of nodes named in one line.
const NODES_NAMED_MAX: usize = 5;

/// Progress of a `wait` towards its goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The goal is reached, so the command exits with 0.
    Reached,
    /// The goal is not reached yet; contains the reason.
    NotYet(String),
    /// The goal can never be reached, because the object has no condition of the type waited for. Contains
    /// the condition types that it does have.
    Never(String),
}

/// Evaluates `goal` for an object in its current state.
pub(crate) fn of_object(object: &Value, goal: &Goal) -> Progress {
    let (wanted, status) = match goal {
        Goal::Deleted => return Progress::NotYet("the object still exists".to_owned()),
        Goal::Verified if ObjectHeader::of(object).kind == "Node" => ("Converged", "True"),
        Goal::Verified => ("Programmed", "True"),
        Goal::Condition { condition, status } => (condition.as_str(), status.as_str()),
    };
    let conditions = conditions(object);
    // In any case, as `kubectl wait` accepts them.
    let is_wanted = |known: &str| known.eq_ignore_ascii_case(wanted);
    let Some(found) = conditions.iter().find(|condition| is_wanted(&condition.condition_type)) else {
        let known: Vec<_> = conditions.iter().map(|condition| clean(&condition.condition_type)).collect();
        return Progress::Never(known.join(", "));
    };
    let is = word(&found.status);
    if is == status {
        return Progress::Reached;
    }
    let texts = [&found.reason, &found.message].map(|text| clean(text));
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    Progress::NotYet(format!("{} is {is}: {}", clean(&found.condition_type), texts.join(", ")))
}

/// Evaluates whether all connected nodes have verified their kernel state up to `revision`. Also returns the
/// names of the nodes that are not connected, because their state is unknown.
pub(crate) fn of_nodes(nodes: &Value, revision: Revision) -> (Progress, Vec<String>) {
    let (mut behind, mut absent) = (Vec::new(), Vec::new());
    for node in items(nodes, "/items") {
        let name = clean(&ObjectHeader::of(node).metadata.name);
        let connected = condition(&conditions(node), ConditionType::Connected);
        let status: NodeStatus = decode_or_default(node.get("status"));
        let verified = status.verified;
        if connected != Some(ConditionStatus::True) {
            absent.push(name);
        } else if verified.map(|verified| verified.revision).unwrap_or_default() < revision {
            let verified = verified.map_or_else(|| "nothing".to_owned(), |verified| verified.to_string());
            behind.push(format!("{name} ({verified})"));
        }
    }
    if behind.is_empty() {
        return (Progress::Reached, absent);
    }
    let more = behind.len().saturating_sub(NODES_NAMED_MAX);
    behind.truncate(NODES_NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (Progress::NotYet(format!("behind revision {revision}: {}{more}", behind.join(", "))), absent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(status: &str) -> Value {
        json!({ "kind": "Service", "status": { "conditions": [
            { "type": "Accepted", "status": "True", "reason": "Valid" },
            { "type": "Programmed", "status": status, "reason": "NodesBehind", "message": "1 of 3 nodes" },
        ] } })
    }

    #[test]
    fn an_object_is_waited_for_by_its_conditions() {
        assert_eq!(of_object(&service("True"), &Goal::Verified), Progress::Reached);
        let waiting = Progress::NotYet("Programmed is False: NodesBehind, 1 of 3 nodes".to_owned());
        assert_eq!(of_object(&service("False"), &Goal::Verified), waiting);
        let inverse = Goal::parse("condition=Programmed=false").unwrap();
        assert_eq!(of_object(&service("False"), &inverse), Progress::Reached);
        let never = Progress::Never("Accepted, Programmed".to_owned());
        assert_eq!(of_object(&service("True"), &Goal::parse("ready").unwrap()), never);
        let there = Progress::NotYet("the object still exists".to_owned());
        assert_eq!(of_object(&service("True"), &Goal::Deleted), there);
    }

    #[test]
    fn nodes_that_are_behind_are_named_and_those_that_are_away_too() {
        let node = |name: &str, connected: &str, verified: &str| {
            json!({ "metadata": { "name": name }, "status": {
                "conditions": [{ "type": "Connected", "status": connected }], "verified": verified,
            } })
        };
        let nodes = json!({ "items": [node("a", "True", "17-40"), node("b", "True", "17-38"), node("c", "False", "17-2")] });
        let away = vec!["c".to_owned()];
        let behind = Progress::NotYet("behind revision 40: b (17-38)".to_owned());
        assert_eq!(of_nodes(&nodes, Revision(40)), (behind, away.clone()));
        assert_eq!(of_nodes(&nodes, Revision(38)), (Progress::Reached, away));
    }

    #[test]
    fn goals_are_words_or_conditions() {
        assert_eq!(Goal::parse("verified"), Ok(Goal::Verified));
        for bad in ["", "done", "condition=", "condition=A=maybe", "condition=a b"] {
            assert!(Goal::parse(bad).is_err(), "{bad}");
        }
    }
}
