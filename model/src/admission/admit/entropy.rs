//! Deterministic pseudo-random numbers for UIDs and for the starting points of searches: equal seeds and names
//! give equal numbers.

/// SplitMix64 generator (Steele, Lea, Flood 2014). Not cryptographic; only the seed is unpredictable for
/// clients.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a generator that is seeded with the FNV-1a hash of a name.
    pub(super) fn of_name(name: &str) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        Self(name.bytes().fold(0xCBF2_9CE4_8422_2325, hash))
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a pseudo-random number below `bound`, which must not be zero.
    pub(super) fn below(&mut self, bound: u128) -> u128 {
        let wide = (u128::from(self.next()) << 64) | u128::from(self.next());
        wide % bound
    }

    /// Returns a version 7 UUID (RFC 9562 §5.7) with the given time.
    pub(super) fn uuid(&mut self, unix_seconds: i64) -> uuid::Uuid {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes()[..2]);
        let milliseconds = u64::try_from(unix_seconds).unwrap_or(0).saturating_mul(1000);
        uuid::Builder::from_unix_timestamp_millis(milliseconds, &bytes).into_uuid()
    }
}
