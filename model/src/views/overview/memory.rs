//! Memory of findings: the time at which each deviation from the desired state was first seen.
//!
//! A finding may become a problem of the overview. If the source of a finding has no start time, the memory
//! supplies the time of the evaluation that first saw the finding. The time is only supplied if another
//! evaluation without the finding was shortly before. It is unknown after a start of the server or a pause
//! without evaluations, because the finding may have existed earlier.

use std::collections::BTreeMap;

use super::{AffectedObject, Impact, Subject};
use crate::{
    kinds::resource::{Kind, ObjectKey},
    primitives::quantity::Timestamp,
};

/// Maximum time in seconds between two evaluations after which the time of the second one still counts as the
/// start time of its new findings. While no client watches the overview, an evaluation takes place every 12
/// seconds.
pub const LOOK_GAP_MAX_SECS: i64 = 30;
/// Time in seconds after a server start in which agents send their first reports. Findings from reports that
/// are first seen in this time have an unknown start time, because they may be older than the server.
pub const START_SECS: i64 = 60;
/// Time in seconds for which a usually transient finding must last before it becomes a problem.
pub const PASSING_SECS: i64 = 3;
/// Maximum number of findings whose first-seen time is stored; the start time of further ones is unknown.
const FINDINGS_MAX: usize = 20_000;

/// Deviation of an object from the desired state, before it is reported as a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFinding {
    /// Object or program with the deviation.
    pub about: Subject,
    /// Aspect of the object that deviates: a condition type, such as `Connected`, or a name such as
    /// `HealthGuard`.
    pub aspect: &'static str,
    /// Impact of the deviation on users.
    pub impact: Impact,
    /// Machine-readable reason in CamelCase; never empty.
    pub reason: String,
    /// Description of the deviation for users.
    pub message: String,
    /// Remedy, if one is known.
    pub hint: Option<String>,
    /// Time since which the deviation exists; `None` if neither its source nor the [`FindingMemory`] has a
    /// time.
    pub since: Option<Timestamp>,
    /// Source of the finding: stored objects or reports of agents.
    pub basis: Basis,
    /// True if the deviation is usually transient, so that it becomes a problem only after some seconds.
    pub is_passing: bool,
    /// Other objects that the deviation affects, up to a limit.
    pub affects: Vec<AffectedObject>,
    /// Number of affected objects beyond the limit.
    pub affects_more: usize,
    /// Objects of which the last write before the deviation is shown as the likely cause.
    pub concerns: Concerns,
}

/// Source from which a finding is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Stored objects, which are complete directly after a server start.
    Intent,
    /// Reports of agents, which are missing directly after a server start.
    Reports,
}

/// Objects of which the last write before the start of a finding is shown as the likely cause of the finding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Concerns {
    /// Keys of the objects whose writes may be the cause.
    pub keys: Vec<ObjectKey>,
    /// Kinds of objects, in addition to `keys`, of which a write to any object may be the cause.
    pub kinds: &'static [Kind],
}

/// Times at which the present findings were first seen.
#[derive(Debug)]
pub struct FindingMemory {
    seen: BTreeMap<(Subject, &'static str, Impact), Option<Timestamp>>,
    started: Timestamp,
    looked: Option<Timestamp>,
}

impl StatusFinding {
    /// Creates a finding from the given fields, with defaults for all others.
    #[must_use]
    pub fn new(
        about: impl Into<Subject>,
        aspect: &'static str,
        impact: Impact,
        reason: &str,
        message: String,
    ) -> Self {
        let about = about.into();
        Self {
            concerns: Concerns { keys: about.object().into_iter().collect(), kinds: &[] },
            about,
            aspect,
            impact,
            reason: reason.to_owned(),
            message,
            hint: None,
            since: None,
            basis: Basis::Intent,
            is_passing: false,
            affects: Vec::new(),
            affects_more: 0,
        }
    }

    /// Returns the identifier of the finding, which stays the same while the finding lasts.
    #[must_use]
    pub fn id(&self) -> String {
        let Subject { kind, namespace, name } = &self.about;
        let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{}/{namespace}{name}/{}", kind.as_str(), self.aspect)
    }
}

impl FindingMemory {
    /// Creates an empty memory; `started` is the start time of the server.
    #[must_use]
    pub const fn new(started: Timestamp) -> Self {
        Self { seen: BTreeMap::new(), started, looked: None }
    }

    /// Records that an evaluation at `now` found the same state as the previous one, so that no findings were
    /// computed.
    pub fn note_unchanged(&mut self, now: Timestamp) {
        self.looked = Some(now);
    }

    /// Updates the memory with the findings of an evaluation at `now`, and forgets findings that no longer
    /// exist. Sets the start time of each finding, if known. Removes usually transient findings from the list
    /// that have not lasted long enough; returns true if there was such a finding.
    pub fn update(&mut self, findings: &mut Vec<StatusFinding>, now: Timestamp) -> bool {
        let age = |at: Timestamp| now.unix_seconds() - at.unix_seconds();
        let has_looked = self.looked.is_some_and(|at| age(at) <= LOOK_GAP_MAX_SECS);
        let is_warm = age(self.started) > START_SECS;
        let mut seen = BTreeMap::new();
        let mut is_waiting = false;
        findings.retain_mut(|finding| {
            let key = (finding.about.clone(), finding.aspect, finding.impact);
            let is_news = has_looked && (is_warm || finding.basis == Basis::Intent);
            let first = self.seen.get(&key).copied().unwrap_or_else(|| is_news.then_some(now));
            if seen.len() < FINDINGS_MAX {
                seen.insert(key, first);
            }
            finding.since = finding.since.or(first);
            let is_young = finding.is_passing && first.is_some_and(|first| age(first) < PASSING_SECS);
            is_waiting |= is_young;
            !is_young
        });
        self.seen = seen;
        self.looked = Some(now);
        is_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::name::Name;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(seconds)
    }

    fn finding(name: &str, basis: Basis, is_passing: bool) -> StatusFinding {
        let about = ObjectKey { kind: Kind::Node, namespace: None, name: Name::parse(name).unwrap() };
        let finding = StatusFinding::new(about, "Connected", Impact::Risk, "AgentSilent", String::new());
        StatusFinding { basis, is_passing, ..finding }
    }

    /// Updates the memory with the findings `found` at time `now`. Returns the identifier and start time of
    /// each finding that remains, and true if transient findings were removed because they have not lasted
    /// long enough.
    fn look(
        memory: &mut FindingMemory,
        found: &[StatusFinding],
        now: i64,
    ) -> (Vec<(String, Option<i64>)>, bool) {
        let mut findings = found.to_vec();
        let is_waiting = memory.update(&mut findings, at(now));
        let seen = |one: &StatusFinding| (one.id(), one.since.map(Timestamp::unix_seconds));
        (findings.iter().map(seen).collect(), is_waiting)
    }

    #[test]
    fn since_when_is_said_only_of_what_began_under_the_eyes_of_the_memory() {
        let mut memory = FindingMemory::new(at(1000));
        let (old, new) = (finding("old", Basis::Intent, false), finding("new", Basis::Intent, false));
        let word = finding("word", Basis::Reports, false);
        let id = |name: &str| format!("Node/{name}/Connected");
        assert_eq!(
            look(&mut memory, std::slice::from_ref(&old), 1001).0,
            [(id("old"), None)],
            "found at the first look"
        );
        let seen = look(&mut memory, &[old.clone(), new.clone(), word.clone()], 1005).0;
        assert_eq!(
            seen,
            [(id("old"), None), (id("new"), Some(1005)), (id("word"), None)],
            "agents begin to speak"
        );
        let seen = look(&mut memory, &[old.clone(), new.clone(), word], 1020).0;
        assert_eq!(seen, [(id("old"), None), (id("new"), Some(1005)), (id("word"), None)], "they last");
        assert_eq!(look(&mut memory, std::slice::from_ref(&old), 1030).0, [(id("old"), None)]);
        assert_eq!(look(&mut memory, &[old.clone(), new.clone()], 1040).0[1].1, Some(1040), "it came back");
        let later = finding("later", Basis::Reports, false);
        assert_eq!(look(&mut memory, &[later], 1065).0, [(id("later"), Some(1065))], "agents have spoken");
        let gap = 1065 + LOOK_GAP_MAX_SECS + 1;
        assert_eq!(look(&mut memory, &[new], gap).0, [(id("new"), None)], "nobody has looked for a while");
    }

    #[test]
    fn what_usually_passes_is_a_problem_once_it_lasts() {
        let mut memory = FindingMemory::new(at(0));
        let passing = [finding("n", Basis::Intent, true)];
        assert_eq!(look(&mut memory, &passing, 1).0.len(), 1, "how long it has lasted is not known");
        assert_eq!(look(&mut memory, &[], 2), (Vec::new(), false));
        assert_eq!(look(&mut memory, &passing, 3), (Vec::new(), true));
        assert_eq!(look(&mut memory, &passing, 3 + PASSING_SECS).0[0].1, Some(3), "since it began");
    }
}
