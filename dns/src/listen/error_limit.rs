//! Limit on the error responses over UDP to each source, as a state machine without a clock: times are given as the
//! time since the start of the process.
//!
//! The source of a datagram may be forged, so that the responses hit somebody else. Answers with records of the cluster
//! are not limited.

use std::{net::IpAddr, time::Duration};

use super::source_of;
use crate::forward::lru::Lru;

/// Delay between error responses to one source after a burst: 50 a second.
const INTERVAL: Duration = Duration::from_millis(20);
/// Number of error responses to one source at once.
const BURST: u32 = 200;
/// Maximum number of sources that are remembered. A source that is forgotten starts with a burst.
const SOURCES_MAX: usize = 10_000;
/// One of this number of error responses above the limit is sent, truncated, so that a client that is not forged repeats
/// its question over TCP.
const TRUNCATED_PART: u32 = 2;

/// Limit on error responses.
#[derive(Debug)]
pub(super) struct ErrorLimit {
    sources: Lru<IpAddr, Source>,
}

#[derive(Debug)]
struct Source {
    /// Time at which all responses so far are within the rate (generic cell rate algorithm).
    arrival: Duration,
    /// Responses above the limit since the last one within it.
    excess: u32,
}

/// Decision on an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorDecision {
    /// Send the response.
    Send,
    /// Send a response that tells the client to use TCP.
    Truncate,
    /// Send nothing.
    Drop,
}

impl Default for ErrorLimit {
    fn default() -> Self {
        Self { sources: Lru::new(SOURCES_MAX, usize::MAX) }
    }
}

impl ErrorLimit {
    /// Decides on an error response to a client.
    pub(super) fn decide(&mut self, client: IpAddr, now: Duration) -> ErrorDecision {
        let key = source_of(client);
        self.sources.touch(&key);
        let Some(source) = self.sources.peek(&key) else {
            self.sources.insert(key, Source { arrival: now + INTERVAL, excess: 0 }, 1);
            return ErrorDecision::Send;
        };
        let arrival = source.arrival.max(now) + INTERVAL;
        if arrival <= now + INTERVAL * BURST {
            (source.arrival, source.excess) = (arrival, 0);
            return ErrorDecision::Send;
        }
        source.excess = source.excess.wrapping_add(1);
        if source.excess % TRUNCATED_PART == 0 { ErrorDecision::Truncate } else { ErrorDecision::Drop }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A source gets a burst and then 50 error responses a second; half of the others are truncated. Other sources are
    /// not affected, but other addresses of the same IPv6 network are.
    #[test]
    fn a_source_has_a_burst_and_a_rate() {
        let mut limit = ErrorLimit::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let client = address("192.0.2.1");
        assert!((0..BURST).all(|_| limit.decide(client, at(0)) == ErrorDecision::Send));
        assert_eq!(limit.decide(client, at(0)), ErrorDecision::Drop);
        assert_eq!(limit.decide(client, at(0)), ErrorDecision::Truncate);
        assert_eq!(limit.decide(address("192.0.2.2"), at(0)), ErrorDecision::Send);
        assert_eq!(limit.decide(client, at(19)), ErrorDecision::Drop);
        assert_eq!(limit.decide(client, at(20)), ErrorDecision::Send);
        assert_eq!(limit.decide(client, at(21)), ErrorDecision::Drop);
        assert!((0..BURST).all(|_| limit.decide(client, at(60_000)) == ErrorDecision::Send));
        for last in 0..BURST {
            limit.decide(address(&format!("2001:db8::{last:x}")), at(60_000));
        }
        assert_eq!(limit.decide(address("2001:db8::ffff"), at(60_000)), ErrorDecision::Drop);
        assert_eq!(limit.decide(address("2001:db8:0:1::1"), at(60_000)), ErrorDecision::Send);
    }

    proptest! {
        /// In no interval, a source gets more than a burst and the rate.
        #[test]
        fn the_rate_is_never_exceeded(pauses in prop::collection::vec(0_u64..40, 1..600)) {
            let mut limit = ErrorLimit::default();
            let mut now = 0;
            let mut sent = Vec::new();
            for pause in pauses {
                now += pause;
                if limit.decide([192, 0, 2, 1].into(), at(now)) == ErrorDecision::Send {
                    sent.push(now);
                }
            }
            for (index, start) in sent.iter().enumerate() {
                for (count, end) in (1_u64..).zip(&sent[index..]) {
                    prop_assert!(count <= u64::from(BURST) + (end - start) / 20);
                }
            }
        }
    }
}
