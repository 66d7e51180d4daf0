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
    health::{CheckKey, CheckReport, CheckState},
    quantity::Timestamp,
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
mod tests {
    use super::*;

    const RULES: Rules = Rules { rise: 2, fall: 3 };

    /// `g` good, `b` bad, `n` not asked, each a second after the one before; answers the state after each.
    fn play(start_delay_secs: u64, rules: Rules, answers: &str) -> String {
        let begin = Instant::now();
        let wall = Timestamp::from_unix_seconds(0);
        let mut machine = Machine::new(Duration::from_secs(start_delay_secs), begin, wall);
        let mut states = String::new();
        for (second, answer) in (1..).zip(answers.chars()) {
            let outcome = match answer {
                'g' => Outcome::Good,
                'b' => Outcome::Silent,
                _ => Outcome::NotAsked,
            };
            let before = machine.state();
            let now = begin + Duration::from_secs(second);
            let change = machine.handle(&Verdict::new(outcome, "words"), rules, now, wall);
            assert_eq!(change == Change::State, machine.state() != before, "{answers} at {second}");
            states.push(match machine.state() {
                CheckState::Pending => '.',
                CheckState::Healthy => 'H',
                CheckState::Unhealthy => 'U',
            });
        }
        states
    }

    #[test]
    fn so_many_in_a_row_decide() {
        for (answers, states) in [
            ("gg", ".H"),
            ("gbgg", "...H"),
            ("bbb", "..U"),
            ("bbgbbb", ".....U"),
            ("ggbbgbbb", ".HHHHHHU"),
            ("bbbgbgg", "..UUUUH"),
            ("ggbbbgg", ".HHHUUH"),
            // A machine that cannot ask learns nothing, and forgets nothing.
            ("gng", "..H"),
            ("ggbnbnb", ".HHHHHU"),
            ("nnnnnn", "......"),
        ] {
            assert_eq!(play(0, RULES, answers), states, "{answers}");
        }
        assert_eq!(play(0, Rules { rise: 1, fall: 1 }, "gbgb"), "HUHU");
    }

    #[test]
    fn bad_answers_do_not_count_during_the_start_delay() {
        // The delay ends with second 5: the answers of seconds 1 to 4 do not count.
        assert_eq!(play(5, RULES, "bbbbbbb"), "......U");
        // The first good answer ends it.
        assert_eq!(play(100, RULES, "bbbbgbbb"), ".......U");
        assert_eq!(play(100, RULES, "bbgg"), "...H");
    }

    #[test]
    fn the_words_say_what_led_there() {
        let (now, wall) = (Instant::now(), Timestamp::from_unix_seconds(7));
        let mut machine = Machine::new(Duration::ZERO, now, Timestamp::from_unix_seconds(1));
        let key =
            CheckKey { address: "10.0.0.1".parse().unwrap(), port: model::quantity::Port::new(80).unwrap() };
        let mut take = |outcome, words: &str| {
            let change = machine.handle(&Verdict::new(outcome, words), RULES, now, wall);
            let report = machine.report(key);
            (change, report.message, report.since.unix_seconds())
        };
        assert_eq!(
            take(Outcome::Silent, "no answer"),
            (Change::Words, "no answer; 1 bad of 3 in a row".to_owned(), 1)
        );
        assert_eq!(take(Outcome::Good, "yes"), (Change::Words, "yes; 1 good of 2 in a row".to_owned(), 1));
        assert_eq!(take(Outcome::Good, "yes"), (Change::State, "yes".to_owned(), 7));
        assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "yes".to_owned(), 7));
        assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "yes".to_owned(), 7));
        assert_eq!(take(Outcome::Silent, "never"), (Change::State, "never".to_owned(), 7));
        assert_eq!(take(Outcome::Refused, "no"), (Change::Words, "no".to_owned(), 7));
        assert_eq!(take(Outcome::Refused, "no"), (Change::Nothing, "no".to_owned(), 7));
        assert_eq!(machine.give_up("for a reason", wall), Change::State);
        assert_eq!(machine.report(key).state, CheckState::Pending);
        assert_eq!(machine.report(key).message, "is not checked: for a reason");
    }

    #[test]
    fn checks_spread_and_never_come_late() {
        let now = Instant::now();
        let interval = Duration::from_secs(10);
        let dues: Vec<_> = (0..1000_u64)
            .map(|number| next_due(now, interval, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) - now)
            .collect();
        assert!(dues.iter().all(|due| (Duration::from_secs(9)..=interval).contains(due)));
        assert!(dues.iter().min().unwrap() < &Duration::from_millis(9100));
        assert!(dues.iter().max().unwrap() > &Duration::from_millis(9900));
        assert_eq!(first_due(now, interval, 0), now);
        assert!(first_due(now, interval, u64::MAX) <= now + Duration::from_secs(1));
    }
}
