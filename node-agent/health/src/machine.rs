//! Health state machine of one endpoint on this node: `rise` consecutive successes make it healthy, `fall`
//! consecutive failures unhealthy. Does no I/O.
//!
//! ```text
//!             rise successes             fall failures
//!  Pending ────────────▶ Healthy ◀─┐ ┌───────────▶ Unhealthy
//!     │                            └─┼─ rise successes ─┘
//!     └────── fall failures ─────────┘  (not during the start delay)
//! ```

use std::time::{Duration, Instant};

use model::{
    kinds::endpoint_health::CheckKey,
    primitives::quantity::Timestamp,
    wire::report::{CheckReport, CheckState},
};

use super::verdict::{Outcome, Verdict, presentable};

/// Divisor of the check interval that gives the maximum jitter: a tenth of the interval. Jitter only makes a
/// check earlier, so that the check that makes a failing endpoint unhealthy starts at most `fall` intervals
/// after the endpoint fails.
const JITTER_SHARE: u32 = 10;

/// Delay before a check of an endpoint that refused the connection is repeated, until the failures suffice to make it
/// unhealthy. A refusal is a definite answer of the machine, and half of the clients of two endpoints get it meanwhile.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(1);

/// Numbers of consecutive results that change the health state, from the health check of the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Consecutive successes before an endpoint becomes healthy.
    pub rise: u8,
    /// Consecutive failures before an endpoint becomes unhealthy.
    pub fall: u8,
}

/// Significance of a change, which determines when it is reported to the control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// No change of the contents of a report.
    Nothing,
    /// Only the message changed; it is included in the next report.
    Words,
    /// The health state changed; it is reported at once.
    State,
}

/// Health state of one endpoint, with the counters of consecutive results.
#[derive(Debug, Clone)]
pub struct Machine {
    state: CheckState,
    since: Timestamp,
    message: String,
    good: u8,
    bad: u8,
    /// End of the start delay, during which failures do not count; `None` once the delay has ended. The
    /// first success ends it, too.
    lenient_until: Option<Instant>,
}

impl Machine {
    /// Creates the pending state of a new endpoint. Failures do not count until `start_delay` has elapsed or
    /// a check has succeeded.
    #[must_use]
    pub fn new(start_delay: Duration, now: Instant, wall: Timestamp) -> Self {
        Self {
            state: CheckState::Pending,
            since: wall,
            message: "not checked yet".to_owned(),
            good: 0,
            bad: 0,
            lenient_until: (!start_delay.is_zero()).then(|| now + start_delay),
        }
    }

    /// Applies a check result to the counters, and changes the state if a threshold is reached.
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

    /// Makes the endpoint unhealthy without waiting for checks, because it refused `in_a_row` consecutive
    /// client connections. Checks make it healthy again.
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

    /// Resets the counters of consecutive results after a configuration change. The health state stays until
    /// new results change it.
    pub const fn begin_anew(&mut self) {
        (self.good, self.bad) = (0, 0);
    }

    /// Sets the state to pending with a reason, because the endpoint cannot be probed.
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

    /// Returns the interval to the next check after a check with the result `outcome`: `interval`, or a shorter one while
    /// an endpoint that is not unhealthy yet refuses connections.
    #[must_use]
    pub fn interval_after(&self, outcome: Outcome, interval: Duration) -> Duration {
        let is_waiting = self.bad > 0 && self.state != CheckState::Unhealthy;
        if outcome == Outcome::Refused && is_waiting { interval.min(REFUSED_INTERVAL) } else { interval }
    }

    /// Returns the health state of the endpoint.
    #[must_use]
    pub const fn state(&self) -> CheckState {
        self.state
    }

    /// Returns the health of the endpoint `key` in the form that is reported to the control server.
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

    /// Sets the message if the state is pending. In other states the message describes the last state change
    /// and is kept.
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

/// Returns the time at which the check after one started at `begun` must start: one interval later, minus a
/// random part of up to a tenth of the interval, so that checks started together spread out.
#[must_use]
pub fn next_due(begun: Instant, interval: Duration, random: u64) -> Instant {
    begun + interval.saturating_sub(spread(interval, random))
}

/// Returns the time of the first check: a random delay of up to a tenth of the interval after `now`.
#[must_use]
pub fn first_due(now: Instant, interval: Duration, random: u64) -> Instant {
    now + spread(interval, random)
}

/// Returns the time of the first check by default: a random delay of up to an interval after `now`, because the checks
/// of all endpoints of a node may begin together.
#[must_use]
pub fn first_due_by_default(now: Instant, interval: Duration, random: u64) -> Instant {
    now + up_to(interval, random)
}

fn spread(interval: Duration, random: u64) -> Duration {
    up_to(interval / JITTER_SHARE, random)
}

fn up_to(longest: Duration, random: u64) -> Duration {
    let micros_max = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(random % (micros_max + 1))
}

#[cfg(test)]
mod tests;
