//! What becomes of endpoints by what nodes say of them: out of service, back, and growing into their whole share.
//!
//! ```text
//!                    most say Unhealthy                    most say Healthy, with slow start
//!   in service ───────────────────────────▶ out (share 0) ────────────────────────────────────▶ 10 % … 90 %
//!       ▲  ▲                                  │                                                   │  │
//!       │  └── most say Healthy, without ─────┘        ▲──── most say Unhealthy ─────────────────┘  │
//!       └──────────────────────────────────────────────────── time ────────────────────────────────┘
//! ```
//! Where the nodes that check do not say so by a majority, or nobody says anything, what was decided last holds: silence
//! neither takes an endpoint out nor brings one back.

use std::collections::{BTreeMap, BTreeSet};

use super::{HealthBook, Word, checkers, checks};
use crate::{
    cluster::compiled::CompiledService,
    kinds::{
        endpoint_health::{EndpointHealthSpec, EndpointVerdict},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Timestamp},
};
use crate::{kinds::endpoint_health::CheckKey, wire::report::CheckState};

/// Steps in which a share grows from a tenth to nine tenths, before it is whole.
const STEPS: i64 = 9;

/// What a judgement rests on.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// What nodes say.
    pub book: &'a HealthBook,
    /// The Nodes that check (`NetworkState.checkers`).
    pub checkers: &'a BTreeSet<Name>,
    /// Whether a node's agent reports; the words of others do not count.
    pub is_heard: &'a dyn Fn(&Name) -> bool,
    /// When it is judged.
    pub now: Timestamp,
}

/// What the nodes that check an endpoint say of it.
#[derive(Debug)]
pub struct Tally<'a> {
    /// The nodes that check it.
    pub chosen: BTreeSet<&'a Name>,
    /// How many of these have an agent that reports.
    pub heard: usize,
    /// The words of those.
    pub words: BTreeMap<&'a Name, &'a Word>,
}

impl<'a> Tally<'a> {
    /// Asks the nodes that check an endpoint.
    #[must_use]
    pub fn of(bench: &Bench<'a>, service: &ServiceKey, key: &CheckKey, own: Option<&'a Name>) -> Self {
        let chosen = checkers(key, own, bench.checkers);
        let heard: Vec<_> = chosen.iter().copied().filter(|node| (bench.is_heard)(node)).collect();
        let word = |node: &&'a Name| Some((*node, bench.book.word(service, key, node)?));
        let words = heard.iter().filter_map(word).collect();
        Self { chosen, heard: heard.len(), words }
    }

    /// What most of the nodes say whose agents report: one that has no word yet counts, too, so that the first that has one
    /// does not decide alone. `Pending` when no state has a majority, `None` when nobody has a word.
    #[must_use]
    pub fn state(&self) -> Option<CheckState> {
        if self.words.is_empty() {
            return None;
        }
        let is_majority = |state| 2 * self.saying(state).count() > self.heard;
        let decided =
            [CheckState::Healthy, CheckState::Unhealthy].into_iter().find(|state| is_majority(*state));
        Some(decided.unwrap_or(CheckState::Pending))
    }

    /// Those who say so, with their words.
    pub fn saying(&self, state: CheckState) -> impl Iterator<Item = (&'a Name, &'a Word)> + '_ {
        self.words.iter().map(|(node, word)| (*node, *word)).filter(move |(_, word)| word.state == state)
    }
}

/// What is to be on record of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The endpoints that are not fully in service.
    pub endpoints: BTreeMap<CheckKey, EndpointVerdict>,
    /// Of these, the ones that leave service by this judgement.
    pub leaving: BTreeSet<CheckKey>,
    /// When a share grows next.
    pub next: Option<Timestamp>,
}

/// Judges the endpoints of a Service. `current` is what is on record.
#[must_use]
pub fn judge(
    bench: &Bench<'_>,
    service: &CompiledService,
    current: Option<&EndpointHealthSpec>,
) -> Judgement {
    let Some(check) = &service.health_check else { return Judgement::default() };
    let slow_start_secs = i64::from(check.slow_start_seconds);
    let mut judgement = Judgement::default();
    for (key, own) in checks(service) {
        let before = current.and_then(|record| record.endpoints.get(&key));
        let tally = Tally::of(bench, &service.service, &key, own.as_ref());
        let after = match tally.state() {
            Some(CheckState::Unhealthy) => Some(take_out(bench, &tally, before)),
            Some(CheckState::Healthy) if before.is_some_and(EndpointVerdict::is_out) => {
                (slow_start_secs > 0).then(|| bring_back(bench, &tally))
            }
            Some(CheckState::Healthy | CheckState::Pending) | None => before.cloned(),
        };
        let Some(verdict) = after else { continue };
        if verdict.is_out() {
            if !before.is_some_and(EndpointVerdict::is_out) {
                judgement.leaving.insert(key);
            }
            judgement.endpoints.insert(key, verdict);
        } else if let Some((share, next)) = grown(verdict.since, slow_start_secs, bench.now) {
            judgement.next = judgement.next.into_iter().chain([next]).min();
            judgement.endpoints.insert(key, EndpointVerdict { share, ..verdict });
        }
    }
    judgement
}

/// What is on record stays as it was written: a result in other words is no other decision.
fn take_out(bench: &Bench<'_>, tally: &Tally<'_>, before: Option<&EndpointVerdict>) -> EndpointVerdict {
    if let Some(before) = before.filter(|before| before.is_out()) {
        return before.clone();
    }
    verdict(bench, tally, CheckState::Unhealthy)
}

fn bring_back(bench: &Bench<'_>, tally: &Tally<'_>) -> EndpointVerdict {
    verdict(bench, tally, CheckState::Healthy)
}

/// The share of one that is back is set by time alone, so it is out until then.
fn verdict(bench: &Bench<'_>, tally: &Tally<'_>, state: CheckState) -> EndpointVerdict {
    let newest = tally.saying(state).max_by_key(|(_, word)| word.since);
    EndpointVerdict {
        share: if state == CheckState::Unhealthy { 0 } else { 10 },
        since: bench.now,
        message: newest.map(|(_, word)| word.message.clone()).unwrap_or_default(),
        checkers: tally.saying(state).map(|(node, _)| node.clone()).collect(),
    }
}

/// The share in percent of an endpoint that came back at a time, and when it grows; `None` when it is whole.
fn grown(since: Timestamp, slow_start_secs: i64, now: Timestamp) -> Option<(u8, Timestamp)> {
    let elapsed = now.unix_seconds().saturating_sub(since.unix_seconds()).max(0);
    if elapsed >= slow_start_secs {
        return None;
    }
    let step = elapsed * STEPS / slow_start_secs;
    let next = ((step + 1) * slow_start_secs + STEPS - 1) / STEPS;
    let share = u8::try_from(10 * (step + 1)).expect("there are nine steps of a tenth");
    Some((share, Timestamp::from_unix_seconds(since.unix_seconds() + next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_by_tenths_and_is_whole_at_the_end() {
        let at = |secs: i64| Timestamp::from_unix_seconds(1_771_000_000 + secs);
        let shares: Vec<_> =
            (0..=20).map(|secs| grown(at(0), 18, at(secs)).map(|(share, _)| share)).collect();
        let expected: Vec<_> = (0..18).map(|secs| Some(10 * (secs / 2 + 1))).chain([None; 3]).collect();
        assert_eq!(shares, expected);
        assert_eq!(grown(at(0), 18, at(3)), Some((20, at(4))));
        assert_eq!(grown(at(0), 1, at(0)), Some((10, at(1))), "less than a second a step");
        assert_eq!(grown(at(0), 0, at(0)), None, "no slow start");
        assert_eq!(grown(at(10), 3600, at(0)), Some((10, at(410))), "a clock that went back");
    }
}
