//! Counts the prefixes of a neighbor in a limited amount of memory, to enforce the prefix limit.
//!
//! Up to [`KNOWN_MAX`] prefixes are tracked individually, so counts and limits in this range are exact. Above
//! it, a bitmap of hashes estimates the number of distinct prefixes announced in the session (linear
//! counting; error of about a third of a percent at one million, 32 KiB). The bitmap ignores withdrawals: a
//! neighbor that announces and withdraws ever new prefixes reaches its limit early; one that repeats the same
//! prefixes does not.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use ipnet::IpNet;

use crate::session::PrefixCount;

/// Maximum number of prefixes that are tracked individually. Beyond it, the limit is enforced by an estimate
/// from a bitmap of hashes.
const KNOWN_MAX: usize = 10_000;
/// Number of bits in the bitmap of hashes that estimates the number of prefixes; a power of two.
const BITS: usize = 1 << 18;
/// Highest prefix limit that is enforced. The bitmap of hashes cannot estimate larger numbers reliably.
const LIMIT_MAX: u32 = 1_000_000;

/// Prefixes that the neighbor has announced in one session.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefixes {
    known: BTreeSet<IpNet>,
    sketch: Option<Sketch>,
    /// True if the warning at three quarters of the prefix limit was already given.
    is_near_told: bool,
}

impl Prefixes {
    pub(super) fn announce(&mut self, prefix: IpNet) {
        if let Some(sketch) = &mut self.sketch {
            sketch.add(&prefix);
        }
        if self.known.len() < KNOWN_MAX {
            self.known.insert(prefix);
        } else if self.sketch.is_none() && !self.known.contains(&prefix) {
            let mut sketch = Sketch::default();
            self.known.iter().for_each(|prefix| sketch.add(prefix));
            sketch.add(&prefix);
            self.sketch = Some(sketch);
        }
    }

    pub(super) fn withdraw(&mut self, prefix: &IpNet) {
        self.known.remove(prefix);
    }

    pub(super) fn count(&self) -> PrefixCount {
        let known = u32::try_from(self.known.len()).expect("at most KNOWN_MAX");
        if self.sketch.is_some() { PrefixCount::AtLeast(known) } else { PrefixCount::Exactly(known) }
    }

    /// Returns true if the neighbor has announced more than `limit` prefixes. Numbers above [`KNOWN_MAX`] are
    /// estimated, with a margin of two percent in the neighbor's favor.
    pub(super) fn exceeds(&self, limit: u32) -> bool {
        match &self.sketch {
            None => self.known.len() as u64 > limit.into(),
            // The bitmap exists because the tracking limit was exceeded.
            Some(_) if limit as usize <= KNOWN_MAX => true,
            // The error margin is in the neighbor's favor.
            Some(sketch) => limit <= LIMIT_MAX && sketch.estimate() > limit.saturating_add(limit / 50),
        }
    }

    /// Returns true once, when the number of prefixes first reaches three quarters of `limit`.
    pub(super) fn comes_near(&mut self, limit: u32) -> bool {
        let is_news = !self.is_near_told && limit > 3 && self.exceeds(limit - limit / 4 - 1);
        self.is_near_told |= is_news;
        is_news
    }
}

/// Bitmap of hash values, from which the number of distinct prefixes is estimated.
#[derive(Debug, Clone)]
struct Sketch {
    words: Vec<u64>,
    ones: usize,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { words: vec![0; BITS / 64], ones: 0 }
    }
}

impl Sketch {
    fn add(&mut self, prefix: &IpNet) {
        let mut hasher = DefaultHasher::new();
        prefix.hash(&mut hasher);
        let bit = usize::try_from(hasher.finish() % BITS as u64).expect("below BITS");
        let (word, mask) = (&mut self.words[bit / 64], 1 << (bit % 64));
        self.ones += usize::from(*word & mask == 0);
        *word |= mask;
    }

    /// Returns the estimated number of distinct prefixes: −BITS · ln(share of zeros).
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of at most some millions"
    )]
    fn estimate(&self) -> u32 {
        let zeros = (BITS - self.ones).max(1);
        (BITS as f64 * (BITS as f64 / zeros as f64).ln()) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ipnet::Ipv4Net;

    use super::*;

    fn prefix(number: u32) -> IpNet {
        Ipv4Net::new_assert(Ipv4Addr::from_bits(number), 32).into()
    }

    fn announced(count: u32) -> Prefixes {
        let mut prefixes = Prefixes::default();
        (0..count).for_each(|number| prefixes.announce(prefix(number)));
        prefixes
    }

    #[test]
    fn up_to_ten_thousand_all_is_exact() {
        let mut prefixes = announced(10_000);
        assert_eq!(prefixes.count(), PrefixCount::Exactly(10_000));
        assert!(prefixes.exceeds(9_999) && !prefixes.exceeds(10_000));
        (0..10_000).for_each(|number| prefixes.announce(prefix(number)));
        assert!(!prefixes.exceeds(10_000), "the same again");
        prefixes.withdraw(&prefix(1));
        prefixes.withdraw(&prefix(1));
        prefixes.withdraw(&prefix(77_777));
        assert_eq!(prefixes.count(), PrefixCount::Exactly(9_999));
        prefixes.announce(prefix(1));
        prefixes.announce(prefix(77_777));
        assert_eq!(prefixes.count(), PrefixCount::AtLeast(10_000));
        assert!(prefixes.exceeds(10_000));
    }

    #[test]
    fn beyond_it_is_an_estimate_in_the_neighbours_favour_that_repetition_does_not_raise() {
        for count in [20_000, 200_000, 1_000_000] {
            let mut prefixes = announced(count);
            (0..count).step_by(3).for_each(|number| prefixes.announce(prefix(number)));
            assert!(!prefixes.exceeds(count), "{count}");
            assert!(prefixes.exceeds(count - count / 20), "{count}");
            assert_eq!(prefixes.count(), PrefixCount::AtLeast(10_000));
        }
        assert!(!announced(1_200_000).exceeds(1_000_001), "no limit of that height is held");
        assert!(announced(1_200_000).exceeds(1_000_000));
    }

    #[test]
    fn three_quarters_of_the_limit_are_told_once() {
        let mut prefixes = announced(74);
        assert!(!prefixes.comes_near(100));
        prefixes.announce(prefix(74));
        assert!(prefixes.comes_near(100) && !prefixes.comes_near(100));
        assert!(!announced(1).comes_near(1), "of so small a limit nothing is near");
    }
}
