//! What the loop does about states that would take away too much: it goes on with what it has, and says so.

use std::time::Instant;

use model::{kinds::event::EventReason, primitives::quantity::Epoch, wire::ask::Reply};
use tracing::{error, info, warn};

use super::Agent;
use crate::{
    ask::failed,
    clock::wall_clock,
    feed::machine::{Batch, StreamFault},
    hold::{Guard, Verdict, consent},
};

impl Agent {
    /// Lets a guard judge the states of other lives of control's store.
    pub fn guard_by(&mut self, guard: Guard) {
        self.guard = guard;
    }

    /// What is left of a batch to be taken.
    pub(super) fn pass_guard(&mut self, batch: Batch, now: Instant) -> Option<Batch> {
        let was_holding = self.guard.is_holding();
        match self.guard.consider(&self.state, batch, wall_clock()) {
            Ok(Verdict::Take(batch)) => {
                if was_holding {
                    info!(position = %batch.position, "the state that was held back is not held any longer");
                    let message = "what control offers does not take away too much any longer".to_owned();
                    self.events.record(EventReason::StateReleased, message);
                }
                Some(batch)
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
        error!(%fault, "a batch was refused; the last good state stays");
    }

    /// Looks for consent given on this machine, and says again what is held back.
    pub(super) fn guard_turn(&mut self, now: Instant) {
        if !self.guard.is_holding() {
            return;
        }
        let dir = self.journal.dir().to_owned();
        if let Some(epoch) = consent::given(&dir)
            && let Reply::Confirmed(_) = self.confirm(epoch, now)
            && let Err(error) = consent::remove(&dir)
        {
            warn!(%error, "the consent that was used cannot be removed; it counts for this epoch only");
        }
        self.shout(now);
    }

    /// Takes the state that is held back, if it is of this epoch.
    pub(super) fn confirm(&mut self, epoch: Epoch, now: Instant) -> Reply {
        match self.guard.confirm(epoch) {
            Ok((held, batch)) => {
                warn!(offered = %held.offered, "the state that was held back was confirmed and is taken");
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
