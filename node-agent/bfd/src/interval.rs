//! Interval between BFD packets, in the unit of the protocol, and transmit jitter, which prevents senders
//! from synchronizing.

use std::{num::NonZeroU8, time::Duration};

/// Interval between BFD Control packets in whole microseconds, from 10 ms to 60 s.
///
/// A process on a shared CPU cannot keep shorter intervals reliably. With longer ones, detection is too slow
/// to be useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(u32);

/// Error: the interval is outside the range of [`Interval`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a BFD interval must be from 10 to 60000 milliseconds")]
pub struct IntervalOutOfRange;

impl Interval {
    /// Shortest interval, 10 ms.
    pub const MIN: Self = Self(10_000);
    /// Longest interval, 60 s.
    pub const MAX: Self = Self(60_000_000);
    /// Minimum transmit interval of a session that is not up, 1 s (RFC 5880 §6.8.3).
    pub const SLOW: Self = Self(1_000_000);

    /// Converts a duration, truncated to microseconds.
    ///
    /// # Errors
    /// Returns [`IntervalOutOfRange`] if the duration is shorter than 10 ms or longer than 60 s.
    pub fn new(duration: Duration) -> Result<Self, IntervalOutOfRange> {
        let micros = u32::try_from(duration.as_micros()).map_err(|_| IntervalOutOfRange)?;
        let interval = Self(micros);
        if (Self::MIN..=Self::MAX).contains(&interval) { Ok(interval) } else { Err(IntervalOutOfRange) }
    }

    /// Returns the interval in microseconds, the unit of the wire format.
    #[must_use]
    pub const fn micros(self) -> u32 {
        self.0
    }

    /// Returns the interval as a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

/// Returns the fraction of the interval after which the next packet is sent, in thousandths. The fraction is
/// random: 750 to 1000, or 750 to 900 if Detect Mult is 1 (RFC 5880 §6.8.7).
pub(crate) const fn jitter_permille(multiplier: NonZeroU8, random: u64) -> u32 {
    let span = if multiplier.get() == 1 { 151 } else { 251 };
    // The remainder is below 251.
    750 + (random % span) as u32
}

/// Returns `permille` thousandths of an interval, such as the time until the next packet, shortened by
/// jitter.
pub(crate) const fn part(interval: Duration, permille: u32) -> Duration {
    // Intervals are at most 2³² µs, so this cannot overflow.
    Duration::from_micros(interval.as_micros() as u64 * permille as u64 / 1000)
}

/// Pseudo-random numbers for jitter (SplitMix64), seeded by the creator of the session.
#[derive(Debug, Clone)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
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
    fn intervals_have_their_bounds() {
        assert_eq!(Interval::new(Duration::from_millis(10)), Ok(Interval::MIN));
        assert_eq!(Interval::new(Duration::from_secs(60)), Ok(Interval::MAX));
        for outside in
            [Duration::ZERO, Duration::from_micros(9_999), Duration::from_micros(60_000_001), Duration::MAX]
        {
            assert_eq!(Interval::new(outside), Err(IntervalOutOfRange));
        }
    }

    /// The values are those of the published SplitMix64 generator for this seed.
    #[test]
    fn noise_is_splitmix64() {
        let mut noise = Noise::new(1_234_567);
        let values = [(); 3].map(|()| noise.next());
        assert_eq!(values, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn jitter_takes_at_most_a_quarter_and_at_least_a_tenth_with_multiplier_one() {
        let mut noise = Noise::new(7);
        let one: Vec<_> = (0..10_000).map(|_| jitter_permille(NonZeroU8::MIN, noise.next())).collect();
        assert_eq!((one.iter().min(), one.iter().max()), (Some(&750), Some(&900)));
        let three = NonZeroU8::new(3).unwrap();
        let more: Vec<_> = (0..10_000).map(|_| jitter_permille(three, noise.next())).collect();
        assert_eq!((more.iter().min(), more.iter().max()), (Some(&750), Some(&1000)));
        assert_eq!(part(Duration::from_millis(300), 750), Duration::from_millis(225));
    }
}
