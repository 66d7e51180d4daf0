//! Waits between attempts: doubling, with a random part, so that many who lost the same server do not return together.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(200);

/// Waits that grow.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Waits that grow up to `longest`.
    #[must_use]
    pub(super) const fn new(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// The next wait: between half of it and all of it.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Begins with short waits again.
    pub(super) const fn reset(&mut self) {
        self.next = FIRST;
    }
}
