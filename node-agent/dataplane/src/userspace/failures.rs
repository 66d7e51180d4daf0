//! Counters of failed connections per target. Only a relay can count them, because in other modes the kernel
//! forwards the target's response to the client.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use kernel::connection_error::ConnectionError;
use model::wire::traffic_counts::TargetFailures;

use super::relay::count;

/// Counters of the connections of one target of one Service that failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    refused: AtomicU64,
    unreachable: AtomicU64,
    silent: AtomicU64,
    reset: AtomicU64,
    /// Number of refused connections since the last accepted one.
    refused_in_a_row: AtomicU64,
}

impl Failures {
    /// Records an accepted connection, or a response to a datagram.
    pub(super) fn note_taken(&self) {
        self.refused_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Records a failed connection attempt, or a rejected datagram. Errors caused by this machine or of
    /// unknown cause do not count.
    pub(super) fn note(&self, error: &io::Error) {
        match ConnectionError::of(error) {
            ConnectionError::Refused | ConnectionError::Reset | ConnectionError::Closed => {
                count(&self.refused);
                count(&self.refused_in_a_row);
            }
            ConnectionError::Unreachable => count(&self.unreachable),
            ConnectionError::TimedOut => self.note_silent(),
            ConnectionError::OwnFault | ConnectionError::Other => {}
        }
    }

    /// Records that the target did not respond within the timeout.
    pub(super) fn note_silent(&self) {
        count(&self.silent);
    }

    /// Records that the target reset an established connection.
    pub(super) fn note_reset(&self) {
        count(&self.reset);
    }

    /// Returns the number of refused connections since the last accepted one.
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
