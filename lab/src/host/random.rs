//! Seeded pseudo-random numbers (splitmix64).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Generator of a deterministic sequence of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence with number `lane` of a seed. Users with different numbers get independent
    /// sequences.
    #[must_use]
    pub fn new(seed: u64, lane: u64) -> Self {
        let mut mixer = Self(seed ^ lane.rotate_left(48));
        let start = mixer.next();
        Self(start)
    }

    /// Returns the next pseudo-random number, at least 0 and less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a random index of a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns true with a probability of `percent` percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random duration from `from` to `to` milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.below((to.saturating_sub(from)) * 1000))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Returns the random seed of a test, and true if the variable `TIDEGATE_SEED` sets it. Otherwise the seed
/// comes from the clock.
///
/// # Errors
/// Returns an error if the variable is not a number.
pub fn seed() -> anyhow::Result<(u64, bool)> {
    match std::env::var("TIDEGATE_SEED") {
        Ok(text) => Ok((
            text.parse().map_err(|_| anyhow::anyhow!("TIDEGATE_SEED must be a number, not `{text}`"))?,
            true,
        )),
        Err(_) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok((since.as_millis() as u64, false))
        }
    }
}
