//! Health of an upstream server by the outcomes of its questions, as a state machine without a clock.
//!
//! ```text
//!          failure                 third failure in a row
//!   ok ──────────────▶ failing ──────────────────────────▶ avoided ◀─────────┐
//!   ▲                     │                                   │ after a delay │ failure: longer delay
//!   └─────response────────┴──────────────response──────────── probed ─────────┘
//! ```
//! A single lost packet must not change the order of the servers, and a server that is back must get questions soon. Avoided servers
//! are asked after all others, so they still get questions if no other server is left.

use std::time::Duration;

use tokio::time::Instant;

use super::upstream::RESPONSE_TIME_MAX;

/// Number of questions without a response in a row after which a server is avoided.
const FAILURES_MIN: u32 = 3;
/// Time for which a server is avoided first. Each probe that fails doubles it.
const AVOIDANCE_MIN: Duration = Duration::from_secs(1);
/// Maximum time for which a server is avoided.
const AVOIDANCE_MAX: Duration = Duration::from_secs(10);

/// Health of a server.
#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    /// Number of questions without a response since the last response.
    failures: u32,
    avoidance: Option<Avoidance>,
}

#[derive(Debug, Clone, Copy)]
struct Avoidance {
    delay: Duration,
    until: Instant,
    /// Time until which a question that probes the server may take, and other questions avoid the server.
    probe_until: Instant,
}

impl ServerHealth {
    /// Returns true if the server did not respond to the last question.
    pub(super) const fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns true if other servers must be asked first.
    pub(super) fn is_avoided(&self, now: Instant) -> bool {
        self.avoidance.is_some_and(|avoidance| now < avoidance.until || now < avoidance.probe_until)
    }

    /// Records that a question is sent to the server. After an avoidance, this question probes the server, and others wait for
    /// its outcome.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(avoidance) = &mut self.avoidance
            && now >= avoidance.until
            && now >= avoidance.probe_until
        {
            avoidance.probe_until = now + RESPONSE_TIME_MAX;
        }
    }

    /// Records a response.
    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Records that the question that was sent at `start` got no response. Questions that were sent before the end of an avoidance
    /// do not prolong it: many wait at once, and all fail together.
    pub(super) fn fail(&mut self, start: Instant, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let delay = match self.avoidance {
            None if self.failures < FAILURES_MIN => return,
            None => AVOIDANCE_MIN,
            Some(Avoidance { until, .. }) if start < until => return,
            Some(Avoidance { delay, .. }) => (delay * 2).min(AVOIDANCE_MAX),
        };
        self.avoidance = Some(Avoidance { delay, until: now + delay, probe_until: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// One or two lost questions change nothing; the third one in a row does, until a response.
    #[test]
    fn a_server_is_avoided_after_three_failures_in_a_row() {
        let (mut health, now) = (ServerHealth::default(), Instant::now());
        for failures in 1..=2 {
            health.fail(now, now);
            assert!(health.is_failing() && !health.is_avoided(now), "{failures}");
        }
        health.succeed();
        assert!(!health.is_failing());
        for _ in 0..3 {
            assert!(!health.is_avoided(now));
            health.fail(now, now);
        }
        assert!(health.is_avoided(now) && health.is_avoided(now + SECOND / 2));
        assert!(!health.is_avoided(now + SECOND));
        health.succeed();
        assert!(!health.is_failing() && !health.is_avoided(now));
    }

    /// Questions that fail together count as one for the delay. After it, one question probes the server while the others avoid it, and
    /// the delay doubles up to 10 s.
    #[test]
    fn the_delay_between_probes_is_short_at_first_and_bounded() {
        let (mut health, start) = (ServerHealth::default(), Instant::now());
        for _ in 0..1000 {
            health.fail(start, start + 2 * SECOND);
        }
        let mut now = start + 2 * SECOND;
        for delay in [1, 2, 4, 8, 10, 10] {
            assert!(health.is_avoided(now + delay * SECOND - SECOND / 100), "{delay}");
            now += delay * SECOND;
            assert!(!health.is_avoided(now), "{delay}");
            health.begin(now);
            assert!(health.is_avoided(now) && health.is_avoided(now + SECOND), "one probe at a time");
            // A question from before the end of the avoidance.
            health.fail(now - SECOND / 2, now + SECOND);
            health.fail(now, now + 2 * SECOND);
            now += 2 * SECOND;
        }
        health.succeed();
        assert!(!health.is_avoided(now));
    }

    /// A probe whose outcome is never known, because its question had no time left, is followed by another one.
    #[test]
    fn a_probe_without_an_outcome_is_repeated() {
        let (mut health, now) = (ServerHealth::default(), Instant::now());
        for _ in 0..3 {
            health.fail(now, now);
        }
        health.begin(now + SECOND);
        assert!(health.is_avoided(now + SECOND));
        assert!(!health.is_avoided(now + SECOND + RESPONSE_TIME_MAX));
    }
}
