//! Constants of the session timers, backoff and jitter.

use std::time::Duration;

/// Value of the Hold Timer until OPEN is received (RFC 4271 §8.2.2: "a large value", 4 minutes).
pub(super) const OPEN_HOLD: Duration = Duration::from_mins(4);
/// Minimum Send Hold Time (RFC 9687 §3.1).
const SEND_HOLD_MIN: Duration = Duration::from_mins(8);
/// Minimum duration of a connection attempt, sufficient for the retransmission of a lost SYN.
pub(super) const ATTEMPT_MIN: Duration = Duration::from_secs(5);
/// Maximum backoff between attempts in seconds, unless the configured delay is longer.
const WAIT_MAX_SECS: u64 = 60;
/// Duration after which an established session counts as successful and the backoff starts anew.
pub(super) const STABLE: Duration = Duration::from_mins(1);
/// Time in Idle after the prefix limit was exceeded; long, because the cause is unlikely to disappear soon.
pub(super) const PREFIX_LIMIT_HOLD: Duration = Duration::from_mins(5);
/// Minimum interval between KEEPALIVE messages (RFC 4271 §4.4).
const KEEPALIVE_MIN: Duration = Duration::from_secs(1);

/// Returns the backoff after a number of consecutive failures: the configured delay, doubled for each failure
/// after the first.
pub(super) fn wait(connect_time_secs: u16, failures: u32) -> Duration {
    let first = u64::from(connect_time_secs);
    // More doublings exceed any maximum.
    let doublings = failures.saturating_sub(1).min(16);
    Duration::from_secs((first << doublings).min(first.max(WAIT_MAX_SECS)))
}

/// Returns the Send Hold Time for a Hold Time. If the peer accepts no bytes for this time, the connection is
/// closed (RFC 9687 §3.1).
pub(super) fn send_hold(hold_time_secs: u16) -> Duration {
    SEND_HOLD_MIN.max(2 * Duration::from_secs(hold_time_secs.into()))
}

/// Pseudo-random numbers for jitter (`SplitMix64`), seeded by the caller of the session.
#[derive(Debug, Clone)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random time between three quarters of `time` and `time` (RFC 4271 §10).
    pub(super) fn jittered(&mut self, time: Duration) -> Duration {
        let permille = 750 + u32::try_from(self.next() % 251).expect("below 251");
        time * permille / 1000
    }

    /// Returns the jittered delay to the next KEEPALIVE.
    pub(super) fn keepalive(&mut self, keepalive_time_secs: u16) -> Duration {
        self.jittered(Duration::from_secs(keepalive_time_secs.into())).max(KEEPALIVE_MIN)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_a_longer_first_one_stays() {
        let seconds = |first, failures| wait(first, failures).as_secs();
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|failures| seconds(5, failures)),
            [5, 5, 10, 20, 40, 60, 60, 60]
        );
        assert_eq!((seconds(120, 1), seconds(120, 9)), (120, 120));
        assert_eq!(seconds(u16::MAX, u32::MAX), 65_535);
    }

    #[test]
    fn jitter_takes_at_most_a_quarter_and_keepalives_leave_a_second() {
        let mut noise = Noise::new(7);
        let waits: Vec<_> = (0..10_000).map(|_| noise.jittered(Duration::from_secs(60))).collect();
        assert_eq!(waits.iter().min(), Some(&Duration::from_secs(45)));
        assert_eq!(waits.iter().max(), Some(&Duration::from_secs(60)));
        assert!((0..100).all(|_| noise.keepalive(1) == Duration::from_secs(1)));
        assert_eq!(
            (send_hold(90).as_secs(), send_hold(0).as_secs(), send_hold(600).as_secs()),
            (480, 480, 1200)
        );
    }
}
