//! Randomness from a seed: the same seed gives the same uids and allocations.

/// SplitMix64 (Steele, Lea, Flood 2014): small, well distributed, and not secret; the seed is what clients cannot know.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub(super) fn below(&mut self, bound: u128) -> u128 {
        let wide = (u128::from(self.next()) << 64) | u128::from(self.next());
        wide % bound
    }

    /// A version 7 UUID (RFC 9562 §5.7) for an instant.
    pub(super) fn uuid(&mut self, unix_seconds: i64) -> uuid::Uuid {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes()[..2]);
        let milliseconds = u64::try_from(unix_seconds).unwrap_or(0).saturating_mul(1000);
        uuid::Builder::from_unix_timestamp_millis(milliseconds, &bytes).into_uuid()
    }
}
