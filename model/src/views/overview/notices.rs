//! Notices about problems for receivers outside of the cluster, such as webhooks: one when a problem has begun, when its
//! impact changes, and when it has ended. A problem that does not last causes none.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Impact, PROBLEMS_MAX, Problem};
use crate::primitives::quantity::Timestamp;

/// Maximum number of problems that a book remembers. Problems that are not listed any more, because there are too many,
/// stay remembered.
const REMEMBERED_MAX: usize = 4 * PROBLEMS_MAX;

/// Event in the life of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum NoticeKind {
    /// The problem exists and has lasted for the delay.
    #[serde(rename = "problem.began")]
    Began,
    /// The impact of the problem on users has changed.
    #[serde(rename = "problem.changed")]
    Changed,
    /// The problem has been absent for the delay.
    #[serde(rename = "problem.ended")]
    Ended,
}

impl NoticeKind {
    /// Returns the name of the event, such as `problem.began`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Began => "problem.began",
            Self::Changed => "problem.changed",
            Self::Ended => "problem.ended",
        }
    }
}

/// Notice about one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Event that the notice reports.
    pub kind: NoticeKind,
    /// Start of the problem, or of its observation if the start is unknown.
    pub since: Timestamp,
    /// Time of the event.
    pub at: Timestamp,
    /// Problem; its last state if it has ended.
    pub problem: Problem,
}

/// Remembers the problems of which receivers know, and derives the notices from each new list of problems.
#[derive(Debug, Clone)]
pub struct NoticeBook {
    delay_secs: i64,
    entries: BTreeMap<String, TrackedProblem>,
}

#[derive(Debug, Clone)]
struct TrackedProblem {
    problem: Problem,
    since: Timestamp,
    phase: NoticePhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoticePhase {
    /// The problem has not lasted for the delay yet.
    Young,
    /// Receivers know the problem with this impact.
    Known { impact: Impact },
    /// Receivers know the problem with this impact; it is absent since then.
    Absent { impact: Impact, since: Timestamp },
}

impl NoticeBook {
    /// Creates a book without problems. `delay_secs` is the time in seconds for which a problem has to last before its notice,
    /// and to be absent before the notice of its end.
    #[must_use]
    pub fn new(delay_secs: i64) -> Self {
        Self { delay_secs, entries: BTreeMap::new() }
    }

    /// Derives the notices from the problems that exist now, in the order of their identifiers. `total` is the number of all
    /// problems; if `problems` has fewer, an absent problem has not ended.
    pub fn update(&mut self, problems: &[Problem], total: usize, now: Timestamp) -> Vec<Notice> {
        let mut present: BTreeMap<&str, &Problem> = BTreeMap::new();
        for problem in problems {
            present.insert(&problem.id, problem);
        }
        let mut notices = Vec::new();
        let is_complete = total <= problems.len();
        let delay_secs = self.delay_secs;
        self.entries.retain(|id, entry| match present.remove(id.as_str()) {
            Some(problem) => {
                notices.extend(entry.is_present(problem, now, delay_secs));
                true
            }
            None if !is_complete => true,
            None => {
                let (notice, stays) = entry.is_absent(now, delay_secs);
                notices.extend(notice);
                stays
            }
        });
        for (id, problem) in present {
            if self.entries.len() >= REMEMBERED_MAX {
                break;
            }
            let since = problem.since.map_or(now, |since| since.min(now));
            let mut entry = TrackedProblem { problem: problem.clone(), since, phase: NoticePhase::Young };
            notices.extend(entry.is_present(problem, now, delay_secs));
            self.entries.insert(id.to_owned(), entry);
        }
        notices.sort_by(|a, b| a.problem.id.cmp(&b.problem.id));
        notices
    }
}

impl TrackedProblem {
    fn is_present(&mut self, problem: &Problem, now: Timestamp, delay_secs: i64) -> Option<Notice> {
        let impact = problem.impact;
        self.problem = problem.clone();
        let kind = match self.phase {
            NoticePhase::Young if seconds(self.since, now) >= delay_secs => Some(NoticeKind::Began),
            NoticePhase::Young => return None,
            NoticePhase::Known { impact: known } | NoticePhase::Absent { impact: known, .. } => {
                (known != impact).then_some(NoticeKind::Changed)
            }
        };
        self.phase = NoticePhase::Known { impact };
        Some(self.notice(kind?, now))
    }

    /// Returns the notice, and true if the entry stays.
    fn is_absent(&mut self, now: Timestamp, delay_secs: i64) -> (Option<Notice>, bool) {
        let (impact, since) = match self.phase {
            NoticePhase::Young => return (None, false),
            NoticePhase::Known { impact } => (impact, now),
            NoticePhase::Absent { impact, since } => (impact, since),
        };
        if seconds(since, now) >= delay_secs {
            return (Some(self.notice(NoticeKind::Ended, now)), false);
        }
        self.phase = NoticePhase::Absent { impact, since };
        (None, true)
    }

    fn notice(&self, kind: NoticeKind, at: Timestamp) -> Notice {
        Notice { kind, since: self.since, at, problem: self.problem.clone() }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.unix_seconds().saturating_sub(from.unix_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kinds::resource::Kind, primitives::name::Name, views::overview::SubjectKind};

    const DELAY: i64 = 30;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(1_000_000 + seconds)
    }

    fn problem(id: &str, impact: Impact, since: Option<i64>) -> Problem {
        Problem {
            id: id.to_owned(),
            kind: SubjectKind::Object(Kind::Service),
            namespace: None,
            name: Name::parse("web").unwrap(),
            impact,
            reason: "NoEndpoints".to_owned(),
            message: String::new(),
            hint: None,
            since: since.map(at),
            affects: Vec::new(),
            affects_more: 0,
            change: None,
        }
    }

    fn shown(notices: &[Notice]) -> Vec<(NoticeKind, &str, Impact)> {
        notices
            .iter()
            .map(|notice| (notice.kind, notice.problem.id.as_str(), notice.problem.impact))
            .collect()
    }

    #[test]
    fn a_problem_is_reported_once_when_it_lasts_and_once_when_it_has_ended() {
        let mut book = NoticeBook::new(DELAY);
        let bad = [problem("a", Impact::Degraded, Some(0))];
        assert_eq!(book.update(&bad, 1, at(29)), []);
        let began = book.update(&bad, 1, at(30));
        assert_eq!(shown(&began), [(NoticeKind::Began, "a", Impact::Degraded)]);
        assert_eq!((began[0].since, began[0].at), (at(0), at(30)));
        assert_eq!(book.update(&bad, 1, at(31)), []);
        assert_eq!(book.update(&[], 0, at(40)), []);
        assert_eq!(book.update(&[], 0, at(69)), []);
        assert_eq!(shown(&book.update(&[], 0, at(70))), [(NoticeKind::Ended, "a", Impact::Degraded)]);
        assert_eq!(book.update(&[], 0, at(200)), []);
        assert!(book.entries.is_empty());
    }

    #[test]
    fn short_problems_and_short_pauses_are_not_reported() {
        let mut book = NoticeBook::new(DELAY);
        let bad = [problem("a", Impact::Degraded, None)];
        // The start is unknown, so it counts from the first look.
        assert_eq!(book.update(&bad, 1, at(0)), []);
        assert_eq!(book.update(&[], 0, at(20)), []);
        assert_eq!(book.update(&bad, 1, at(25)), []);
        assert_eq!(book.update(&bad, 1, at(54)), []);
        assert_eq!(book.update(&bad, 1, at(55)).len(), 1);
        assert_eq!(book.update(&[], 0, at(60)), []);
        assert_eq!(book.update(&bad, 1, at(80)), [], "absent for 20 s only");
        assert_eq!(book.update(&[], 0, at(90)), []);
        assert_eq!(book.update(&[], 0, at(119)), []);
        assert_eq!(book.update(&[], 0, at(120)).len(), 1);
    }

    #[test]
    fn another_impact_is_reported_also_after_a_pause() {
        let mut book = NoticeBook::new(0);
        let of = |impact| [problem("a", impact, Some(0))];
        assert_eq!(
            shown(&book.update(&of(Impact::Risk), 1, at(0))),
            [(NoticeKind::Began, "a", Impact::Risk)]
        );
        let worse = book.update(&of(Impact::Unreachable), 1, at(1));
        assert_eq!(shown(&worse), [(NoticeKind::Changed, "a", Impact::Unreachable)]);
        let mut book = NoticeBook::new(DELAY);
        assert_eq!(book.update(&of(Impact::Risk), 1, at(30)).len(), 1);
        assert_eq!(book.update(&[], 0, at(31)), []);
        let back = book.update(&of(Impact::Degraded), 1, at(32));
        assert_eq!(shown(&back), [(NoticeKind::Changed, "a", Impact::Degraded)]);
    }

    #[test]
    fn an_incomplete_list_ends_nothing_and_the_memory_is_bounded() {
        let mut book = NoticeBook::new(0);
        let some = |from: usize, count: usize| -> Vec<Problem> {
            (from..from + count).map(|number| problem(&format!("{number:05}"), Impact::Risk, None)).collect()
        };
        assert_eq!(book.update(&some(0, PROBLEMS_MAX), PROBLEMS_MAX + 1, at(0)).len(), PROBLEMS_MAX);
        assert_eq!(book.update(&some(1, PROBLEMS_MAX), PROBLEMS_MAX + 1, at(1)).len(), 1, "0 is not listed");
        for round in 1..20 {
            book.update(&some(round * PROBLEMS_MAX, PROBLEMS_MAX), 10 * PROBLEMS_MAX, at(2));
        }
        assert_eq!(book.entries.len(), REMEMBERED_MAX);
        assert_eq!(book.update(&[], 0, at(3)).len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_reports_nothing_too_early() {
        let mut book = NoticeBook::new(DELAY);
        let bad = [problem("a", Impact::Risk, Some(100))];
        assert_eq!(book.update(&bad, 1, at(50)), []);
        assert_eq!(book.update(&bad, 1, at(0)), []);
        assert_eq!(book.update(&bad, 1, at(80)).len(), 1);
    }
}
