//! What is odd on the machine, as `preflight` sees it.

use model::{
    ask::{FINDINGS_MAX, Finding, FindingState},
    hold::Held,
    name::Name,
    node::ProxyMode,
};

use crate::{
    desired::limit_message,
    preflight::{self, State},
};

/// Looks at what a mode needs; loads no module and changes nothing.
pub(super) fn findings(mode: ProxyMode) -> Vec<Finding> {
    let report = preflight::run(mode, false);
    report.findings.into_iter().take(FINDINGS_MAX).map(finding).collect()
}

/// A state that is held back.
pub(super) fn held(held: &Held, node: &Name) -> Finding {
    Finding {
        check: "state-guard".to_owned(),
        state: FindingState::Broken,
        message: limit_message(held.message()),
        fix: Some(limit_message(held.hint(node.as_str()))),
    }
}

fn finding(found: preflight::Finding) -> Finding {
    let preflight::Finding { need, kind: _, state, required, purpose, detail, remedy } = found;
    let how = match (state, required) {
        (State::Present | State::BuiltIn | State::Loadable, _) => FindingState::Fine,
        (State::Missing, false) => FindingState::Warning,
        (State::Missing, true) => FindingState::Broken,
    };
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    Finding {
        check: need.chars().take(CHECK_LENGTH_MAX).collect(),
        state: how,
        message: limit_message(format!("{}: {purpose}{detail}", state.as_str())),
        fix: remedy.map(limit_message),
    }
}

/// Characters of the name of a check (`model::ask::Finding`).
const CHECK_LENGTH_MAX: usize = 64;
