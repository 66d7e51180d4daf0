//! State guard: holds a full state from a different store epoch until it is confirmed, if the state would
//! remove too many of the current addresses or endpoints (`model::hold`).
//!
//! ```text
//!            delta, or full state of the same epoch ────────────────────────────────────▶ applied
//! batch ──▶  full state of another epoch ──▶ compared with the state in force ─ few losses ▶ applied
//!                                              │ many losses
//!                                              ▼
//!                    held ◀── delta to it: compared again ── few losses ────────────────▶ applied
//!                     ├── confirmed, by its epoch ──────────────────────────────────────▶ applied
//!                     └── a full state of the current epoch ────────────────────────────▶ applied, the held one dropped
//! ```
//! A held state is kept in memory only. The journal keeps the state in force, so a restarted agent receives
//! and holds the same state again. Invariant: a confirmation applies only to the epoch it names.

pub mod consent;
pub mod plan;

use std::time::{Duration, Instant};

use model::{
    primitives::quantity::{Epoch, Position, Timestamp},
    wire::{
        feed::StartMode,
        hold::{HeldReason, HeldState, LOST_PERCENT_DEFAULT},
    },
};
use tokio::sync::watch;

use self::plan::Losses;
pub use crate::feed::FeedEnd;
use crate::{
    feed::machine::{self, Batch, StreamFault},
    state::State,
};

/// Interval at which the log message about a held state is repeated.
const SHOUT_INTERVAL: Duration = Duration::from_secs(60);

/// State guard of one agent, with the state, if any, that it withholds until an operator confirms it.
#[derive(Debug)]
pub struct Guard {
    limit_percent: u8,
    held_back: Option<HeldBack>,
    /// Position older than the agent's that the control server offers, and the time since which it does so;
    /// `None` otherwise.
    behind: Option<(Position, Timestamp)>,
    shout_at: Option<Instant>,
    link: LoopEnd,
}

/// State that is not applied until the operator confirms it, with its description for the status.
#[derive(Debug)]
struct HeldBack {
    state: State,
    held: HeldState,
}

/// Decision of the state guard on a batch of state changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The batch is to be applied. If it was a delta to a held state, it has been replaced by a batch with
    /// the full state.
    Take(Box<Batch>),
    /// The batch must not be applied; the state to which it leads is held pending confirmation.
    Hold {
        /// Description of the state that is held pending confirmation, with the losses that applying it would
        /// cause.
        held: HeldState,
        /// True if no state of this epoch was held before, so that an event must be recorded.
        is_new: bool,
    },
}

/// Agent loop's end of the channels by which the state guard and the task that receives the state exchange
/// positions (epoch and revision).
#[derive(Debug)]
pub struct LoopEnd {
    in_force: watch::Sender<Option<Position>>,
    behind: watch::Receiver<Option<Position>>,
}

/// Creates the channels by which the state guard and the task that receives the state exchange positions
/// (epoch and revision), and returns both ends.
#[must_use]
pub fn link() -> (LoopEnd, FeedEnd) {
    let (in_force, in_force_seen) = watch::channel(None);
    let (behind, behind_seen) = watch::channel(None);
    (LoopEnd { in_force, behind: behind_seen }, FeedEnd { in_force: in_force_seen, behind })
}

impl Default for Guard {
    fn default() -> Self {
        Self::new(LOST_PERCENT_DEFAULT, link().0)
    }
}

impl Guard {
    /// Creates a state guard that holds no state. `limit_percent` is the share of addresses or endpoints
    /// that a state may remove without confirmation; 100 disables the guard.
    #[must_use]
    pub fn new(limit_percent: u8, link: LoopEnd) -> Self {
        Self { limit_percent, held_back: None, behind: None, shout_at: None, link }
    }

    /// Decides if a batch of state changes is applied now or held until the operator confirms it. `in_force`
    /// is the state that the agent currently applies.
    ///
    /// # Errors
    ///
    /// Returns an error, and changes nothing, if a full batch has an older position (epoch and revision) than
    /// `in_force`, or if, while a state is held, a delta is older than that state or does not start from it.
    pub fn consider(
        &mut self,
        in_force: &State,
        batch: Batch,
        wall: Timestamp,
    ) -> Result<Verdict, StreamFault> {
        let candidate = match (batch.mode, self.held_back.as_ref()) {
            (StartMode::Delta, None) => return Ok(Verdict::Take(Box::new(batch))),
            (StartMode::Full, _) => {
                machine::check(in_force.position(), batch.mode, batch.position)?;
                if in_force.position().is_none_or(|position| position.epoch == batch.position.epoch) {
                    self.release();
                    return Ok(Verdict::Take(Box::new(batch)));
                }
                let mut candidate = State::default();
                let _everything = candidate.apply(batch)?;
                candidate
            }
            (StartMode::Delta, Some(held_back)) => {
                let mut candidate = held_back.state.clone();
                let _changed = candidate.apply(batch)?;
                candidate
            }
        };
        Ok(self.judge(in_force, candidate, wall))
    }

    fn judge(&mut self, in_force: &State, candidate: State, wall: Timestamp) -> Verdict {
        let losses = Losses::between(in_force, &candidate);
        let positions = candidate.position().zip(in_force.position());
        let Some((offered, position)) = positions.filter(|_| losses.exceed(self.limit_percent)) else {
            self.release();
            return Verdict::Take(Box::new(candidate.into_batch()));
        };
        let before = self.held_back.as_ref().map(|held_back| held_back.held);
        let before = before.filter(|before| before.offered.epoch == offered.epoch);
        let Losses { vips, endpoints } = losses;
        let held = HeldState {
            offered,
            in_force: position,
            reason: HeldReason::MuchLost,
            since: before.map_or(wall, |before| before.since),
            vips,
            endpoints,
        };
        self.held_back = Some(HeldBack { state: candidate, held });
        self.link.in_force.send_replace(Some(position));
        Verdict::Hold { held, is_new: before.is_none() }
    }

    /// Returns the description of the held state, and the state as a batch to apply, if its epoch is the
    /// confirmed one. No state is held afterwards.
    ///
    /// # Errors
    /// Returns an error message if no state is held, or if its epoch is a different one.
    pub fn confirm(&mut self, epoch: Epoch) -> Result<(HeldState, Batch), String> {
        match self.held_back.take() {
            None => Err("no state is held pending confirmation".to_owned()),
            Some(held_back) if held_back.held.offered.epoch == epoch => {
                self.release();
                Ok((held_back.held, held_back.state.into_batch()))
            }
            Some(other) => {
                let held = other.held.offered.epoch;
                self.held_back = Some(other);
                Err(format!("the held state has epoch {held}, not {epoch}"))
            }
        }
    }

    fn release(&mut self) {
        self.held_back = None;
        self.shout_at = None;
        self.link.in_force.send_replace(None);
    }

    /// Returns true if a state is held that the operator can confirm.
    #[must_use]
    pub const fn is_holding(&self) -> bool {
        self.held_back.is_some()
    }

    /// Describes the state that is held pending confirmation, or the older state that the control server
    /// offers; `None` if there is neither. `in_force` is the position (epoch and revision) of the applied
    /// state.
    pub fn held(&mut self, in_force: Option<Position>, wall: Timestamp) -> Option<HeldState> {
        if let Some(held_back) = &self.held_back {
            return Some(held_back.held);
        }
        let offered = *self.link.behind.borrow();
        let before = self.behind.take();
        let (offered, in_force) = offered.zip(in_force).filter(|(offered, in_force)| offered < in_force)?;
        let since = before.filter(|before| before.0 == offered).map_or(wall, |before| before.1);
        self.behind = Some((offered, since));
        let (vips, endpoints) = Default::default();
        Some(HeldState { offered, in_force, reason: HeldReason::ControlBehind, since, vips, endpoints })
    }

    /// Returns the description of the held state if the log message about it must be repeated now, otherwise
    /// `None`.
    pub fn shout(&mut self, now: Instant) -> Option<HeldState> {
        let held = self.held_back.as_ref()?.held;
        let is_due = self.shout_at.is_none_or(|at| now >= at);
        is_due.then(|| {
            self.shout_at = Some(now + SHOUT_INTERVAL);
            held
        })
    }
}
