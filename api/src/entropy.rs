//! Where time and randomness enter: one small trait, so that a test can fix both.

use std::{
    hash::{BuildHasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use model::{admit::Entropy, quantity::Timestamp};

/// A source of time and randomness.
pub trait Source: Send + Sync {
    /// The present.
    fn now(&self) -> Timestamp;

    /// A number that clients cannot predict.
    fn seed(&self) -> u64;

    /// Both, for one admission.
    fn draw(&self) -> Entropy {
        Entropy { now: self.now(), seed: self.seed() }
    }
}

/// The clock and the random numbers of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Source for System {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    fn seed(&self) -> u64 {
        let uuid = uuid::Uuid::new_v4().as_u128();
        // A version 4 UUID has six fixed bits; hashing with a random key spreads the other 122.
        RandomState::new().hash_one(uuid)
    }
}
