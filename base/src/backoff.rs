//! Retry delays: exponential backoff with jitter.

use std::time::Duration;

/// Maximum number of doublings of the delay, so that the bit shift does not overflow. Any practical delay
/// reaches its cap with fewer doublings.
const DOUBLINGS_MAX: u32 = 20;

/// Exponential backoff with full jitter between a floor and a rising ceiling, so that many clients that lost
/// the same server do not reconnect at the same moment.
#[derive(Debug, Clone)]
pub struct Backoff {
    floor: Duration,
    cap: Duration,
    attempts: u32,
}

impl Backoff {
    /// Creates a backoff with delays between `floor` and `cap`.
    #[must_use]
    pub const fn new(floor: Duration, cap: Duration) -> Self {
        Self { floor, cap, attempts: 0 }
    }

    /// Returns the next delay, randomized with bits from a pseudo-random generator.
    pub fn next_random_delay(&mut self) -> Duration {
        self.next_delay(crate::entropy())
    }

    /// Returns the next delay and doubles the ceiling up to the cap. `random` must be uniformly distributed
    /// over all values of `u64`.
    pub fn next_delay(&mut self, random: u64) -> Duration {
        self.attempts = self.attempts.saturating_add(1).min(DOUBLINGS_MAX);
        let ceiling = self.floor.saturating_mul(1 << self.attempts).min(self.cap);
        let span_nanos = ceiling.saturating_sub(self.floor).as_nanos();
        let nanos = span_nanos.saturating_mul(u128::from(random)) >> 64;
        self.floor + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Resets the backoff after a success: the next delay is between the floor and twice the floor.
    pub const fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_between_floor_and_cap_and_the_ceiling_rises() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        let ceilings: Vec<_> = (0..30).map(|_| backoff.next_delay(u64::MAX).as_millis()).collect();
        assert_eq!(ceilings[..4], [199, 399, 799, 1599]);
        assert_eq!(ceilings[29], 9999);
        assert_eq!(backoff.next_delay(0), Duration::from_millis(100));
        backoff.reset();
        assert_eq!(backoff.next_delay(u64::MAX).as_millis(), 199);
        let delay = backoff.next_random_delay();
        assert!((100..400).contains(&delay.as_millis()), "{delay:?}");
    }
}
