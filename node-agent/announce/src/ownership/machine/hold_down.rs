//! Hold-down of unsteady candidates: after a session that fails repeatedly within a short time, the next
//! failure must last longer before it counts. A candidate with a lossy or interrupted link would otherwise take
//! addresses from healthy owners again and again.

use std::time::{Duration, Instant};

use super::Liveness;

/// Minimum time for which a session must be up so that its next failure counts at once.
pub const STEADY_TIME: Duration = Duration::from_secs(10);
/// Hold-down after the first failure of an unsteady session. Doubles with each further one, up to
/// [`HOLD_DOWN_MAX`].
pub const HOLD_DOWN: Duration = Duration::from_secs(1);
/// Maximum of the hold-down, and thereby the maximum delay of a takeover from an unsteady owner.
pub const HOLD_DOWN_MAX: Duration = Duration::from_secs(8);

/// History of the session with one candidate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SessionHistory {
    up_at: Option<Instant>,
    down_at: Option<Instant>,
    hold_down: Duration,
}

impl SessionHistory {
    /// Records a change of the liveness of the candidate.
    pub(super) fn follow(&mut self, before: Option<Liveness>, after: Liveness, now: Instant) {
        match (before, after) {
            (Some(Liveness::Up), Liveness::Up) => {}
            (_, Liveness::Up) => self.up_at = Some(now),
            (Some(Liveness::Up), Liveness::Down) => {
                let is_steady = self.up_at.is_none_or(|at| now >= at + STEADY_TIME);
                self.hold_down = match self.down_at {
                    Some(_) if !is_steady => (self.hold_down * 2).clamp(HOLD_DOWN, HOLD_DOWN_MAX),
                    Some(_) | None => Duration::ZERO,
                };
                self.down_at = Some(now);
            }
            // An announced restart or handover is no failure.
            (
                _,
                Liveness::Unknown { .. }
                | Liveness::Down
                | Liveness::HandedOver
                | Liveness::Restarting { .. },
            ) => {}
        }
    }

    /// Returns the time until which the candidate counts as alive although its session is down, or `None` if the
    /// failure counts at once.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.down_at.filter(|_| self.is_unsteady()).map(|at| at + self.hold_down)
    }

    /// Returns true if the session has failed repeatedly within a short time.
    pub(super) fn is_unsteady(&self) -> bool {
        !self.hold_down.is_zero()
    }

    /// Returns the time of the last failure, or `None` if the session never failed.
    pub(super) fn down_at(&self) -> Option<Instant> {
        self.down_at
    }
}
