//! What a node holds of one endpoint: so many good answers in a row make it healthy, so many bad ones unhealthy. Pure.
//!
//! ```text
//!            rise good                    fall bad
//!  Pending ────────────▶ Healthy ◀─┐ ┌───────────▶ Unhealthy
//!     │                            └─┼── rise good ────┘
//!     └──────── fall bad ────────────┘  (not during the start delay)
//! ```

use std::time::{Duration, Instant};

use model::{
    kinds::endpoint_health::CheckKey,
    primitives::quantity::Timestamp,
    wire::report::{CheckReport, CheckState},
};

use super::verdict::{Outcome, Verdict, presentable};

/// Part of the interval by which a check may come earlier. Never later: `fall` times the interval after an endpoint has failed,
/// the check that finds it unhealthy has begun.
const JITTER_SHARE: u32 = 10;

/// How many answers decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Good answers in a row before an endpoint is healthy.
    pub rise: u8,
    /// Bad answers in a row before it is unhealthy.
    pub fall: u8,
}

/// What an answer has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing that anybody sees.
    Nothing,
    /// The words only; told with whatever is told next.
    Words,
    /// The state; told at once.
    State,
}

/// What a node holds of one endpoint.
#[derive(Debug, Clone)]
pub struct Machine {
    state: CheckState,
    since: Timestamp,
    message: String,
    good: u8,
    bad: u8,
    /// Until when bad answers do not count, unless a good one comes first.
    lenient_until: Option<Instant>,
}

impl Machine {
    /// An endpoint that has just appeared.
    #[must_use]
    pub fn new(start_delay: Duration, now: Instant, wall: Timestamp) -> Self {
        Self {
            state: CheckState::Pending,
            since: wall,
            message: "has not been checked yet".to_owned(),
            good: 0,
            bad: 0,
            lenient_until: (!start_delay.is_zero()).then(|| now + start_delay),
        }
    }

    /// Takes an answer.
    pub fn handle(&mut self, verdict: &Verdict, rules: Rules, now: Instant, wall: Timestamp) -> Change {
        self.lenient_until = self.lenient_until.filter(|until| now < *until);
        match verdict.outcome {
            Outcome::Good => self.take_good(&verdict.words, rules, wall),
            Outcome::Refused
            | Outcome::Unreachable
            | Outcome::Silent
            | Outcome::WrongAnswer
            | Outcome::Tls => self.take_bad(&verdict.words, rules, wall),
            Outcome::NotAsked => self.say_while_pending(verdict.words.clone()),
        }
    }

    fn take_good(&mut self, words: &str, rules: Rules, wall: Timestamp) -> Change {
        self.lenient_until = None;
        (self.good, self.bad) = (self.good.saturating_add(1), 0);
        match self.state {
            CheckState::Healthy => Change::Nothing,
            CheckState::Pending | CheckState::Unhealthy if self.good >= rules.rise => {
                self.become_state(CheckState::Healthy, words, wall)
            }
            CheckState::Pending | CheckState::Unhealthy => {
                self.say_while_pending(format!("{words}; {} good of {} in a row", self.good, rules.rise))
            }
        }
    }

    fn take_bad(&mut self, words: &str, rules: Rules, wall: Timestamp) -> Change {
        self.good = 0;
        if self.lenient_until.is_some() {
            return self.say_while_pending(format!("{words}; does not count during the start delay"));
        }
        self.bad = self.bad.saturating_add(1);
        match self.state {
            CheckState::Unhealthy => self.say(words.to_owned()),
            CheckState::Pending | CheckState::Healthy if self.bad >= rules.fall => {
                self.become_state(CheckState::Unhealthy, words, wall)
            }
            CheckState::Pending | CheckState::Healthy => {
                self.say_while_pending(format!("{words}; {} bad of {} in a row", self.bad, rules.fall))
            }
        }
    }

    /// Clients' connections were refused, so many in a row that no check is waited for. The checks bring it back.
    pub fn refuse(&mut self, in_a_row: u64, now: Instant, wall: Timestamp) -> Change {
        self.lenient_until = self.lenient_until.filter(|until| now < *until);
        self.good = 0;
        let words = format!("refused {in_a_row} connections of clients in a row");
        match self.state {
            CheckState::Unhealthy => Change::Nothing,
            CheckState::Pending | CheckState::Healthy if self.lenient_until.is_none() => {
                self.become_state(CheckState::Unhealthy, &words, wall)
            }
            CheckState::Pending | CheckState::Healthy => {
                self.say_while_pending(format!("{words}; does not count during the start delay"))
            }
        }
    }

    /// Another question is asked from here on: the state stays until the new answers say something else.
    pub const fn begin_anew(&mut self) {
        (self.good, self.bad) = (0, 0);
    }

    /// The endpoint cannot be checked at all: nothing is known of it.
    pub fn give_up(&mut self, reason: &str, wall: Timestamp) -> Change {
        self.begin_anew();
        let words = presentable(&format!("is not checked: {reason}"));
        match self.state {
            CheckState::Pending => self.say(words),
            CheckState::Healthy | CheckState::Unhealthy => {
                self.become_state(CheckState::Pending, &words, wall)
            }
        }
    }

    /// What the node holds.
    #[must_use]
    pub const fn state(&self) -> CheckState {
        self.state
    }

    /// What control is told.
    #[must_use]
    pub fn report(&self, key: CheckKey) -> CheckReport {
        let CheckKey { address, port } = key;
        CheckReport { address, port, state: self.state, since: self.since, message: self.message.clone() }
    }

    fn become_state(&mut self, state: CheckState, words: &str, wall: Timestamp) -> Change {
        (self.state, self.since) = (state, wall);
        words.clone_into(&mut self.message);
        Change::State
    }

    /// In the other states the words are those that led there.
    fn say_while_pending(&mut self, words: String) -> Change {
        match self.state {
            CheckState::Pending => self.say(presentable(&words)),
            CheckState::Healthy | CheckState::Unhealthy => Change::Nothing,
        }
    }

    fn say(&mut self, words: String) -> Change {
        if self.message == words {
            return Change::Nothing;
        }
        self.message = words;
        Change::Words
    }
}

/// When the check after one that began at `begun` is due: after the interval, or up to a tenth of it earlier, so that checks
/// which began together spread.
#[must_use]
pub fn next_due(begun: Instant, interval: Duration, random: u64) -> Instant {
    begun + interval.saturating_sub(spread(interval, random))
}

/// When the first check is due: at once, or up to a tenth of the interval later.
#[must_use]
pub fn first_due(now: Instant, interval: Duration, random: u64) -> Instant {
    now + spread(interval, random)
}

fn spread(interval: Duration, random: u64) -> Duration {
    let micros_max = u64::try_from((interval / JITTER_SHARE).as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(random % (micros_max + 1))
}

#[cfg(test)]
mod tests;
