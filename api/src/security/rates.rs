//! How fast one token may ask: a bucket that fills with time.

use model::quantity::Timestamp;

/// Requests that a token gains each second; several times what the busiest adapter we know sends.
pub(crate) const PER_SECOND: i64 = 1000;
/// Requests that it may have saved up: a burst, such as a whole configuration by single writes.
pub(crate) const BURST: i64 = 5000;

/// What one token has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: i64,
    at: Timestamp,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(now: Timestamp) -> Self {
        Self { left: BURST, at: now }
    }

    /// Takes one; `false` when there is none.
    pub(crate) fn take(&mut self, now: Timestamp) -> bool {
        // A clock that was set back gives nothing, and takes nothing.
        let secs = now.unix_seconds().saturating_sub(self.at.unix_seconds()).max(0);
        self.left = self.left.saturating_add(secs.saturating_mul(PER_SECOND)).min(BURST);
        self.at = now;
        let is_there = self.left > 0;
        self.left -= i64::from(is_there);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_what_time_brings() {
        let at = Timestamp::from_unix_seconds;
        let mut bucket = Bucket::full(at(0));
        let taken = (0..BURST + 10).filter(|_| bucket.take(at(0))).count();
        assert_eq!(i64::try_from(taken).unwrap(), BURST);
        let taken = (0..BURST).filter(|_| bucket.take(at(1))).count();
        assert_eq!(i64::try_from(taken).unwrap(), PER_SECOND);
        assert!(!bucket.take(at(-1_000_000)), "a clock that goes back brings nothing");
        assert!(bucket.take(at(i64::MAX)));
    }
}
