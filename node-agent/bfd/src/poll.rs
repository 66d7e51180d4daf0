//! Poll Sequences (RFC 5880 §6.5), and the intervals that are in use during a Poll Sequence (§6.8.3).

use std::time::{Duration, Instant};

use crate::interval::Interval;

/// Transmit and receive intervals that a system advertises to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timers {
    pub(crate) desired_min_tx: Interval,
    pub(crate) required_min_rx: Interval,
}

/// State of the negotiation of intervals: the intervals that the peer has confirmed, and the running Poll
/// Sequence.
///
/// During a Poll Sequence all packets carry the same intervals, because otherwise a packet with the Final bit
/// could not be matched to the intervals that it confirms. Newer intervals wait until the sequence has ended
/// and a packet without Final has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Negotiation {
    /// Intervals in transmitted packets.
    advertised: Timers,
    /// Intervals that the peer has confirmed.
    confirmed: Timers,
    poll: Poll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Idle,
    /// A Poll Sequence is in progress: packets carry the Poll bit until a packet with the Final bit arrives.
    Active,
    /// A Poll Sequence is complete, but another packet with the Final bit may still be in transit.
    Settling {
        until: Instant,
    },
}

impl Negotiation {
    pub(crate) const fn new(timers: Timers) -> Self {
        Self { advertised: timers, confirmed: timers, poll: Poll::Idle }
    }

    /// Adopts intervals at once, without a Poll Sequence. Called while the session is not up.
    pub(crate) const fn reset(&mut self, timers: Timers) {
        *self = Self::new(timers);
    }

    /// Starts a Poll Sequence if the intervals differ from those in transmitted packets and no previous Poll
    /// Sequence is in progress or settling. Returns true if one was started.
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

    /// Handles the Final bit of a received packet, which completes a Poll Sequence. `wait` is the maximum
    /// time for which another packet with the Final bit may still be in transit.
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

    /// Returns the time at which a Poll Sequence for the intervals `wanted` may start, if they must wait for
    /// a completed Poll Sequence to settle; otherwise `None`.
    pub(crate) fn settled(&self, wanted: Timers) -> Option<Instant> {
        match self.poll {
            Poll::Settling { until } if wanted != self.advertised => Some(until),
            Poll::Idle | Poll::Active | Poll::Settling { .. } => None,
        }
    }

    pub(crate) const fn advertised(&self) -> Timers {
        self.advertised
    }

    /// Returns the interval at which packets are sent. A longer interval takes effect only after the peer has
    /// confirmed it; otherwise the peer would declare the session down.
    pub(crate) fn transmit(&self) -> Interval {
        self.advertised.desired_min_tx.min(self.confirmed.desired_min_tx)
    }

    /// Returns the receive interval from which the detection time is computed. A shorter interval takes
    /// effect only after the peer has confirmed it.
    pub(crate) fn receive(&self) -> Interval {
        self.advertised.required_min_rx.max(self.confirmed.required_min_rx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a packet with the Final bit ends a Poll Sequence and confirms its intervals (RFC 5880 §6.5).
    #[test]
    #[allow(clippy::disallowed_methods, reason = "any point in time will do")]
    fn a_packet_without_the_final_bit_confirms_nothing() {
        let timers = |interval| Timers { desired_min_tx: interval, required_min_rx: interval };
        let (now, wait) = (Instant::now(), Duration::from_secs(1));
        let mut negotiation = Negotiation::new(timers(Interval::MIN));
        assert!(negotiation.want(timers(Interval::MAX), now));
        negotiation.heard(false, now, wait);
        assert!(negotiation.is_polling());
        assert_eq!(negotiation.confirmed, timers(Interval::MIN));
        negotiation.heard(true, now, wait);
        assert!(!negotiation.is_polling());
        assert_eq!(negotiation.confirmed, timers(Interval::MAX));
    }
}
