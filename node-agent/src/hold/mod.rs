//! Holds a state back that would take away too much: one of another life of control's store, in which much is missing of what
//! this node holds (`model::hold`).
//!
//! ```text
//!            difference, or full state of the same life ─────────────────────────────▶ taken
//! batch ──▶  full state of another life ──▶ compared with what is in force ─ little lost ▶ taken
//!                                              │ much lost
//!                                              ▼
//!                    held ◀── differences to it: compared anew ── little lost ────────▶ taken
//!                     ├── confirmed, by its epoch ────────────────────────────────────▶ taken
//!                     └── a full state of the life in force ──────────────────────────▶ taken, and this one forgotten
//! ```
//! What is held is in memory only: the journal keeps what is in force, so an agent that starts again is offered the same,
//! and holds it again. What must not happen here: a consent that counts for another life than the one it names.

pub mod consent;
pub mod plan;

use std::time::{Duration, Instant};

use model::{
    primitives::quantity::{Epoch, Position, Timestamp},
    wire::{
        feed::StartMode,
        hold::{Held, HeldReason, LOST_PERCENT_DEFAULT},
    },
};
use tokio::sync::watch;

use self::plan::Losses;
use crate::{
    feed::machine::{self, Batch, StreamFault},
    state::State,
};

/// Time between two lines of the log about the same held state.
const SHOUT_INTERVAL: Duration = Duration::from_secs(60);

/// The guard of one agent.
#[derive(Debug)]
pub struct Guard {
    limit_percent: u8,
    held_back: Option<HeldBack>,
    /// Since when control has been behind.
    behind: Option<(Position, Timestamp)>,
    shout_at: Option<Instant>,
    link: LoopEnd,
}

/// A state that waits.
#[derive(Debug)]
struct HeldBack {
    state: State,
    held: Held,
}

/// What becomes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken; another one in its place where it was a difference to a state that was held.
    Take(Batch),
    /// A state is held back.
    Hold {
        /// What would be lost.
        held: Held,
        /// Whether no state of this life was held before.
        is_new: bool,
    },
}

/// The end of the loop of what loop and feed tell each other.
#[derive(Debug)]
pub struct LoopEnd {
    in_force: watch::Sender<Option<Position>>,
    behind: watch::Receiver<Option<Position>>,
}

/// The end of the feed.
#[derive(Debug, Clone)]
pub struct FeedEnd {
    /// While a state is held back, the position of the one in force: control may go back to it.
    pub in_force: watch::Receiver<Option<Position>>,
    /// What control offered last, if it was older than what is in force.
    pub behind: watch::Sender<Option<Position>>,
}

/// Connects a loop and a feed.
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
    /// Nothing is held. A limit of 100 percent holds nothing ever.
    #[must_use]
    pub fn new(limit_percent: u8, link: LoopEnd) -> Self {
        Self { limit_percent, held_back: None, behind: None, shout_at: None, link }
    }

    /// Decides about a batch. `in_force` is the state that it would change.
    ///
    /// # Errors
    /// When it does not follow from what is held back; nothing has changed then.
    pub fn consider(
        &mut self,
        in_force: &State,
        batch: Batch,
        wall: Timestamp,
    ) -> Result<Verdict, StreamFault> {
        let candidate = match (batch.mode, self.held_back.as_ref()) {
            (StartMode::Delta, None) => return Ok(Verdict::Take(batch)),
            (StartMode::Full, _) => {
                machine::check(in_force.position(), batch.mode, batch.position)?;
                if in_force.position().is_none_or(|position| position.epoch == batch.position.epoch) {
                    self.release();
                    return Ok(Verdict::Take(batch));
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
            return Verdict::Take(candidate.into_batch());
        };
        let before = self.held_back.as_ref().map(|held_back| held_back.held);
        let before = before.filter(|before| before.offered.epoch == offered.epoch);
        let Losses { vips, endpoints } = losses;
        let held = Held {
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

    /// Gives out the state that is held back, if it is of the life that is confirmed.
    ///
    /// # Errors
    /// In words, when there is none, or one of another life.
    pub fn confirm(&mut self, epoch: Epoch) -> Result<(Held, Batch), String> {
        match self.held_back.take() {
            None => Err("nothing is held back".to_owned()),
            Some(held_back) if held_back.held.offered.epoch == epoch => {
                self.release();
                Ok((held_back.held, held_back.state.into_batch()))
            }
            Some(other) => {
                let held = other.held.offered.epoch;
                self.held_back = Some(other);
                Err(format!("what is held back is of epoch {held}, not of {epoch}"))
            }
        }
    }

    fn release(&mut self) {
        self.held_back = None;
        self.shout_at = None;
        self.link.in_force.send_replace(None);
    }

    /// Whether a state is held back that can be confirmed.
    #[must_use]
    pub const fn is_holding(&self) -> bool {
        self.held_back.is_some()
    }

    /// What is held back or refused. `in_force` is the position of the state in force.
    pub fn held(&mut self, in_force: Option<Position>, wall: Timestamp) -> Option<Held> {
        if let Some(held_back) = &self.held_back {
            return Some(held_back.held);
        }
        let offered = *self.link.behind.borrow();
        let before = self.behind.take();
        let (offered, in_force) = offered.zip(in_force).filter(|(offered, in_force)| offered < in_force)?;
        let since = before.filter(|before| before.0 == offered).map_or(wall, |before| before.1);
        self.behind = Some((offered, since));
        let (vips, endpoints) = Default::default();
        Some(Held { offered, in_force, reason: HeldReason::ControlBehind, since, vips, endpoints })
    }

    /// What is to be said again in the log, for as long as a state is held back.
    pub fn shout(&mut self, now: Instant) -> Option<Held> {
        let held = self.held_back.as_ref()?.held;
        let is_due = self.shout_at.is_none_or(|at| now >= at);
        is_due.then(|| {
            self.shout_at = Some(now + SHOUT_INTERVAL);
            held
        })
    }
}
