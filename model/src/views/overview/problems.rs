//! From findings to problems: which are listed, in which order, and what went before them.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{PROBLEMS_MAX, Problem, memory::Finding, preceding::Writes};
use crate::kinds::resource::{Kind, ObjectKey};

/// The worst finding of every Service and Node; of equals the first. Rows are explained by them.
#[must_use]
pub fn worst_by_object(findings: &[Finding]) -> BTreeMap<&ObjectKey, &Finding> {
    let mut worst: BTreeMap<&ObjectKey, &Finding> = BTreeMap::new();
    for finding in findings {
        let kept = worst.entry(&finding.about).or_insert(finding);
        if finding.impact < kept.impact {
            *kept = finding;
        }
    }
    worst
}

/// The problems that are listed, and how many there are. Of a Service the worst alone is listed: what else is wrong with it
/// follows from it more often than not.
#[must_use]
pub fn problems(findings: &[Finding], writes: &Writes) -> (Vec<Problem>, usize) {
    let worst = worst_by_object(findings);
    let is_listed = |finding: &&Finding| match finding.about.kind {
        Kind::Service => worst.get(&finding.about).is_some_and(|worst| std::ptr::eq(*worst, *finding)),
        Kind::Node
        | Kind::AddressPool
        | Kind::Advertisement
        | Kind::BgpPeer
        | Kind::BfdProfile
        | Kind::Workload
        | Kind::EndpointSet
        | Kind::EndpointHealth
        | Kind::Address => true,
    };
    let mut listed: Vec<_> = findings.iter().filter(is_listed).collect();
    let total = listed.len();
    listed.sort_by(|a, b| order(a, b));
    listed.truncate(PROBLEMS_MAX);
    (listed.into_iter().map(|finding| problem(finding, writes)).collect(), total)
}

/// By impact; then the oldest first, and those last of which nobody knows since when; then by object.
fn order(a: &Finding, b: &Finding) -> Ordering {
    let rank = |one: &Finding| (one.impact, one.since.is_none(), one.since);
    rank(a).cmp(&rank(b)).then_with(|| (&a.about, a.aspect).cmp(&(&b.about, b.aspect)))
}

fn problem(finding: &Finding, writes: &Writes) -> Problem {
    let Finding {
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
