//! Poll Sequences (RFC 5880 §6.5) and the intervals that hold meanwhile (§6.8.3).

use std::time::{Duration, Instant};

use crate::interval::Interval;

/// The intervals that a system tells its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timers {
    pub(crate) desired_min_tx: Interval,
    pub(crate) required_min_rx: Interval,
}

/// Which intervals the peer knows of, and whether it is being asked.
///
/// While a Poll Sequence runs, its packets carry one set of intervals and no newer: the answer could otherwise not be told
/// from one to an earlier packet. A newer set waits for the sequence to end, and a packet without Final in between.
#[derive(Debug, Clone)]
pub(crate) struct Negotiation {
    /// What packets carry.
    advertised: Timers,
    /// What the peer is known to have heard.
    confirmed: Timers,
    poll: Poll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Idle,
    /// Packets carry the Poll bit until one with the Final bit comes.
    Active,
    /// A late answer to the last sequence may still be on its way.
    Settling {
        until: Instant,
    },
}

impl Negotiation {
    pub(crate) const fn new(timers: Timers) -> Self {
        Self { advertised: timers, confirmed: timers, poll: Poll::Idle }
    }

    /// Takes intervals over at once: while the session is not up, nobody answers a Poll and nobody relies on them.
    pub(crate) const fn reset(&mut self, timers: Timers) {
        *self = Self::new(timers);
    }

    /// Begins a Poll Sequence if other intervals are wanted and none is running. Says whether one began.
    pub(crate) fn want(&mut self, timers: Timers, now: Instant) -> bool {
        let free = match self.poll {
            Poll::Idle => true,
            Poll::Active => false,
            Poll::Settling { until } => now >= until,
        };
        if !free || timers == self.advertised {
            return false;
        }
        self.advertised = timers;
        self.poll = Poll::Active;
        true
    }

    /// Takes note of the Final bit of a packet. `wait` is how long an answer may still be under way.
    pub(crate) fn heard(&mut self, is_final: bool, now: Instant, wait: Duration) {
        match self.poll {
            Poll::Active if is_final => {
                self.confirmed = self.advertised;
                self.poll = Poll::Settling { until: now + wait };
            }
            Poll::Settling { .. } if !is_final => self.poll = Poll::Idle,
            Poll::Idle | Poll::Active | Poll::Settling { .. } => {}
        }
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.poll == Poll::Active
    }

    /// When other intervals that are wanted may be asked for, if they have to wait for that.
    pub(crate) fn settled(&self, wanted: Timers) -> Option<Instant> {
        match self.poll {
            Poll::Settling { until } if wanted != self.advertised => Some(until),
            Poll::Idle | Poll::Active | Poll::Settling { .. } => None,
        }
    }

    pub(crate) const fn advertised(&self) -> Timers {
        self.advertised
    }

    /// What we send by. A longer interval counts only when the peer has heard of it, or it would see us as gone.
    pub(crate) fn transmit(&self) -> Interval {
        self.advertised.desired_min_tx.min(self.confirmed.desired_min_tx)
    }

    /// What we expect the peer to send by. A shorter one counts only when the peer has heard of it.
    pub(crate) fn receive(&self) -> Interval {
        self.advertised.required_min_rx.max(self.confirmed.required_min_rx)
    }
}
