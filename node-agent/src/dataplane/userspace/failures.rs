//! What targets did with connections that were not to be: seen by the relay alone, because in other modes the kernel sends
//! what comes of it to the client.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use model::wire::traffic_counts::TargetFailures;

use super::relay::count;
use crate::health::verdict::{Outcome, Verdict};

/// The failures of one target of one Service.
#[derive(Debug, Default)]
pub(super) struct Failures {
    refused: AtomicU64,
    unreachable: AtomicU64,
    silent: AtomicU64,
    reset: AtomicU64,
    /// Refusals since the last connection that was taken.
    refused_in_a_row: AtomicU64,
}

impl Failures {
    /// A connection was taken, or a datagram answered.
    pub(super) fn note_taken(&self) {
        self.refused_in_a_row.store(0, Ordering::Relaxed);
    }

    /// A connection was not taken, or a datagram refused. What this machine is the cause of is no failure of the target.
    pub(super) fn note(&self, error: &io::Error) {
        match Verdict::of_io(error).outcome {
            Outcome::Refused => {
                count(&self.refused);
                count(&self.refused_in_a_row);
            }
            Outcome::Unreachable => count(&self.unreachable),
            Outcome::Silent => self.note_silent(),
            Outcome::Good | Outcome::WrongAnswer | Outcome::Tls | Outcome::NotAsked => {}
        }
    }

    /// No answer came for as long as the relay is patient.
    pub(super) fn note_silent(&self) {
        count(&self.silent);
    }

    /// The target broke off.
    pub(super) fn note_reset(&self) {
        count(&self.reset);
    }

    /// Refusals since the last connection that was taken.
    pub(super) fn refused_in_a_row(&self) -> u64 {
        self.refused_in_a_row.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self) -> TargetFailures {
        let Self { refused, unreachable, silent, reset, refused_in_a_row: _ } = self;
        TargetFailures {
            refused: refused.load(Ordering::Relaxed),
            unreachable: unreachable.load(Ordering::Relaxed),
            silent: silent.load(Ordering::Relaxed),
            reset: reset.load(Ordering::Relaxed),
        }
    }
}
