//! Selects the problems of the overview from the findings (deviations), and orders them.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{PROBLEMS_MAX, Problem, Subject, SubjectKind, memory::StatusFinding, preceding::Writes};
use crate::kinds::resource::Kind;

/// Returns for each object the finding with the worst impact; the first one if several have this impact.
#[must_use]
pub fn worst_by_object(findings: &[StatusFinding]) -> BTreeMap<&Subject, &StatusFinding> {
    let mut worst: BTreeMap<&Subject, &StatusFinding> = BTreeMap::new();
    for finding in findings {
        let kept = worst.entry(&finding.about).or_insert(finding);
        if finding.impact < kept.impact {
            *kept = finding;
        }
    }
    worst
}

/// Returns the listed problems, and the number of all problems. Of the findings of a Service, only the worst
/// becomes a problem, because the others are usually consequences.
#[must_use]
pub fn problems(findings: &[StatusFinding], writes: &Writes) -> (Vec<Problem>, usize) {
    let worst = worst_by_object(findings);
    let is_listed = |finding: &&StatusFinding| {
        finding.about.kind != SubjectKind::Object(Kind::Service)
            || worst.get(&finding.about).is_some_and(|worst| std::ptr::eq(*worst, *finding))
    };
    let mut listed: Vec<_> = findings.iter().filter(is_listed).collect();
    let total = listed.len();
    listed.sort_by(|a, b| order(a, b));
    listed.truncate(PROBLEMS_MAX);
    (listed.into_iter().map(|finding| problem(finding, writes)).collect(), total)
}

/// Orders findings by impact (the worst first), then by start time (the oldest first, unknown ones last),
/// then by object.
fn order(a: &StatusFinding, b: &StatusFinding) -> Ordering {
    let rank = |one: &StatusFinding| (one.impact, one.since.is_none(), one.since);
    rank(a).cmp(&rank(b)).then_with(|| (&a.about, a.aspect).cmp(&(&b.about, b.aspect)))
}

fn problem(finding: &StatusFinding, writes: &Writes) -> Problem {
    let StatusFinding {
        about,
        aspect: _,
        impact,
        reason,
        message,
        hint,
        since,
        basis: _,
        is_passing: _,
        affects,
        affects_more,
        concerns,
    } = finding;
    Problem {
        id: finding.id(),
        kind: about.kind,
        namespace: about.namespace.clone(),
        name: about.name.clone(),
        impact: *impact,
        reason: reason.clone(),
        message: message.clone(),
        hint: hint.clone(),
        since: *since,
        affects: affects.clone(),
        affects_more: *affects_more,
        change: since.and_then(|since| writes.preceding(concerns, since)),
    }
}
