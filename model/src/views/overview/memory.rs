//! What is wrong and since when: a finding is a problem before it is known whether it lasts.
//!
//! Where what was observed carries no time, the memory says when a finding was first seen. That is the truth only if it was
//! looked for shortly before, so after a start, and after nobody has looked for a while, nothing is said.

use std::collections::BTreeMap;

use super::{Affected, Impact};
use crate::{
    kinds::resource::{Kind, ObjectKey},
    primitives::quantity::Timestamp,
};

/// Time between two looks up to which what is new is known to be new, in seconds: three times that between looks while
/// nobody watches.
pub const LOOK_GAP_MAX_SECS: i64 = 30;
/// Time after a start in which agents say for the first time what has long been so, in seconds: as long as an agent may be
/// silent without counting as silent.
pub const START_SECS: i64 = 60;
/// Time that something which usually passes has to last before it is a problem, in seconds.
pub const PASSING_SECS: i64 = 3;
/// Findings remembered: as many as objects that a server holds well. Of more, nobody knows since when.
const FINDINGS_MAX: usize = 20_000;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object that has it.
    pub about: ObjectKey,
    /// What of it: the name of a condition, or another word.
    pub aspect: &'static str,
    /// What it means for users.
    pub impact: Impact,
    /// The machine word; never empty.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Since when, where what was observed says so.
    pub since: Option<Timestamp>,
    /// What it follows from.
    pub basis: Basis,
    /// Whether it usually passes within moments.
    pub is_passing: bool,
    /// What else suffers from it.
    pub affects: Vec<Affected>,
    /// How many more do.
    pub affects_more: usize,
    /// What a write must touch to be called its likely cause.
    pub concerns: Concerns,
}

/// What a finding follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// From what is stored: known at once after a start.
    Intent,
    /// From what agents say: after a start, nothing is known until they have spoken.
    Reports,
}

/// What a write must touch to be called the likely cause of something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Concerns {
    /// One of these objects, or
    pub keys: Vec<ObjectKey>,
    /// any object of one of these kinds.
    pub kinds: &'static [Kind],
}

/// When findings were first seen.
#[derive(Debug)]
pub struct Memory {
    seen: BTreeMap<(ObjectKey, &'static str, Impact), Option<Timestamp>>,
    started: Timestamp,
    looked: Option<Timestamp>,
}

impl Finding {
    /// A finding about an object of which nothing more is known.
    #[must_use]
    pub fn new(
        about: ObjectKey,
        aspect: &'static str,
        impact: Impact,
        reason: &str,
        message: String,
    ) -> Self {
        Self {
            concerns: Concerns { keys: vec![about.clone()], kinds: &[] },
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

    /// What names it as long as it lasts.
    #[must_use]
    pub fn id(&self) -> String {
        let ObjectKey { kind, namespace, name } = &self.about;
        let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{}/{namespace}{name}/{}", kind.as_str(), self.aspect)
    }
}

impl Memory {
    /// A memory that begins to look.
    #[must_use]
    pub const fn new(started: Timestamp) -> Self {
        Self { seen: BTreeMap::new(), started, looked: None }
    }

    /// Notes that nothing had changed since the last look.
    pub fn look_again(&mut self, now: Timestamp) {
        self.looked = Some(now);
    }

    /// Says of each finding since when it is known; forgets what is not found any longer. Drops findings that are young
    /// and usually pass, and says whether there were such.
    pub fn note(&mut self, findings: &mut Vec<Finding>, now: Timestamp) -> bool {
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

    fn finding(name: &str, basis: Basis, is_passing: bool) -> Finding {
        let about = ObjectKey { kind: Kind::Node, namespace: None, name: Name::parse(name).unwrap() };
        let finding = Finding::new(about, "Connected", Impact::Risk, "AgentSilent", String::new());
        Finding { basis, is_passing, ..finding }
    }

    /// Looks at a moment; gives the ids with their times, and whether something waits.
    fn look(memory: &mut Memory, found: &[Finding], now: i64) -> (Vec<(String, Option<i64>)>, bool) {
        let mut findings = found.to_vec();
        let is_waiting = memory.note(&mut findings, at(now));
        let seen = |one: &Finding| (one.id(), one.since.map(Timestamp::unix_seconds));
        (findings.iter().map(seen).collect(), is_waiting)
    }

    #[test]
    fn since_when_is_said_only_of_what_began_under_the_eyes_of_the_memory() {
        let mut memory = Memory::new(at(1000));
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
        let mut memory = Memory::new(at(0));
        let passing = [finding("n", Basis::Intent, true)];
        assert_eq!(look(&mut memory, &passing, 1).0.len(), 1, "how long it has lasted is not known");
        assert_eq!(look(&mut memory, &[], 2), (Vec::new(), false));
        assert_eq!(look(&mut memory, &passing, 3), (Vec::new(), true));
        assert_eq!(look(&mut memory, &passing, 3 + PASSING_SECS).0[0].1, Some(3), "since it began");
    }
}
