//! How often packets come: the interval as the wire carries it, and the jitter that keeps senders apart.

use std::{num::NonZeroU8, time::Duration};

/// A time between control packets in whole microseconds, from 10 ms to 60 s.
///
/// Below that no program on a shared processor keeps its promise; above it the session tells nothing in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(u32);

/// An interval outside of what [`Interval`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a BFD interval is from 10 to 60000 milliseconds")]
pub struct IntervalOutOfRange;

impl Interval {
    /// The shortest.
    pub const MIN: Self = Self(10_000);
    /// The longest.
    pub const MAX: Self = Self(60_000_000);
    /// The shortest transmit interval of a session that is not up (RFC 5880 §6.8.3).
    pub const SLOW: Self = Self(1_000_000);

    /// The interval of a duration; what is below a microsecond is cut off.
    ///
    /// # Errors
    /// The duration is out of range.
    pub fn new(duration: Duration) -> Result<Self, IntervalOutOfRange> {
        let micros = u32::try_from(duration.as_micros()).map_err(|_| IntervalOutOfRange)?;
        let interval = Self(micros);
        if (Self::MIN..=Self::MAX).contains(&interval) { Ok(interval) } else { Err(IntervalOutOfRange) }
    }

    /// In microseconds, as the wire has it.
    #[must_use]
    pub const fn micros(self) -> u32 {
        self.0
    }

    /// As a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

/// Which part of the interval passes before the next packet, in thousandths: from 750 to 1000, and to no more than 900
/// when a single lost packet means down (RFC 5880 §6.8.7).
pub(crate) const fn jitter_permille(multiplier: NonZeroU8, random: u64) -> u32 {
    let span = if multiplier.get() == 1 { 151 } else { 251 };
    // The remainder is below 251.
    750 + (random % span) as u32
}

/// A part of an interval, in thousandths.
pub(crate) const fn part(interval: Duration, permille: u32) -> Duration {
    // Intervals are at most 2³² µs, far from where this overflows.
    Duration::from_micros(interval.as_micros() as u64 * permille as u64 / 1000)
}

/// The numbers that jitter is made of, from a seed that the driver draws (SplitMix64).
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
