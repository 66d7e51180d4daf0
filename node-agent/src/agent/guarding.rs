//! Use of the state guard by the agent loop. The guard holds a received state that would remove too many
//! addresses or endpoints until an operator confirms it. Meanwhile, the loop applies the last good state and
//! reports the held one.

use std::time::Instant;

use base::clock::wall_clock;
use model::{kinds::event::EventReason, primitives::quantity::Epoch, wire::ask::Reply};
use tracing::{error, info, warn};

use super::Agent;
use crate::{
    ask::failed,
    feed::machine::{Batch, StreamFault},
    hold::{Guard, Verdict, consent},
};

impl Agent {
    /// Attaches the guard that checks a full state before it is applied if it is from a different epoch of
    /// the control server's store, for example from another database.
    pub fn guard_by(&mut self, guard: Guard) {
        self.guard = guard;
    }

    /// Passes a batch of state changes through the state guard. Returns the batch to apply, or `None` if the
    /// guard holds the resulting state pending confirmation.
    pub(super) fn pass_guard(&mut self, batch: Batch, now: Instant) -> Option<Batch> {
        let was_holding = self.guard.is_holding();
        match self.guard.consider(&self.state, batch, wall_clock()) {
            Ok(Verdict::Take(batch)) => {
                if was_holding {
                    info!(position = %batch.position, "the state that was held back has been released");
                    let message = "the state offered by control no longer removes too much".to_owned();
                    self.events.record(EventReason::StateReleased, message);
                }
                Some(*batch)
            }
            Ok(Verdict::Hold { held, is_new }) => {
                if is_new {
                    self.tally.states_held.inc();
                    self.events.record(EventReason::StateHeld, held.message());
                    self.shout(now);
                }
                None
            }
            Err(fault) => {
                self.refuse(&fault);
                None
            }
        }
    }

    pub(super) fn refuse(&self, fault: &StreamFault) {
        self.tally.feed_refusals.inc();
        error!(%fault, "a batch was rejected; the last good state stays");
    }

    /// Checks for a confirmation file on this machine, and repeats the warning about a state held pending
    /// confirmation.
    pub(super) fn guard_turn(&mut self, now: Instant) {
        if !self.guard.is_holding() {
            return;
        }
        let dir = self.journal.dir().to_owned();
        if let Some(epoch) = consent::given(&dir)
            && let Reply::Confirmed(_) = self.confirm(epoch, now)
            && let Err(error) = consent::remove(&dir)
        {
            warn!(%error, "the used consent cannot be removed; it is valid for this epoch only");
        }
        self.shout(now);
    }

    /// Applies the state held pending confirmation if its epoch is `epoch`; otherwise replies with the
    /// reason.
    pub(super) fn confirm(&mut self, epoch: Epoch, now: Instant) -> Reply {
        match self.guard.confirm(epoch) {
            Ok((held, batch)) => {
                warn!(offered = %held.offered, "the state that was held back was confirmed and is applied");
                let message = format!("{} was confirmed and is taken", held.offered);
                self.events.record(EventReason::StateReleased, message);
                self.take(batch, now);
                Reply::Confirmed(held)
            }
            Err(why) => failed(&why),
        }
    }

    fn shout(&mut self, now: Instant) {
        if let Some(held) = self.guard.shout(now) {
            let hint = held.hint(self.derived.node().as_str());
            error!(offered = %held.offered, hint, "{}", held.message());
        }
    }
}
