//! Exponential backoff with jitter, so that many clients of a lost server do not reconnect at once.

use std::time::Duration;

/// Initial delay.
const FIRST: Duration = Duration::from_millis(200);

/// Exponential backoff.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Creates a backoff with a maximum delay.
    #[must_use]
    pub(super) const fn new(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// Returns the next delay, a random value between half and the full delay.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Resets to the initial delay.
    pub(super) const fn reset(&mut self) {
        self.next = FIRST;
    }
}
