//! Source of time and randomness as a trait, so that tests can fix both.

use std::{
    hash::{BuildHasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use model::{admission::admit::Entropy, primitives::quantity::Timestamp};

/// A source of time and randomness.
pub trait Source: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns a number that clients cannot predict.
    fn seed(&self) -> u64;

    /// Returns 32 unpredictable bytes for a key.
    fn secret(&self) -> [u8; 32];

    /// Returns the time and a seed for one admission.
    fn draw(&self) -> Entropy {
        Entropy { now: self.now(), seed: self.seed() }
    }
}

/// Clock and random numbers of the operating system.
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

    fn secret(&self) -> [u8; 32] {
        // A version 4 UUID has 122 random bits at fixed positions. Each 8 bytes combine the halves without
        // fixed bits of two UUIDs, so that every byte has 8 random bits.
        let mut bytes = [0; 32];
        for part in bytes.chunks_exact_mut(8) {
            let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
            for (to, (a, b)) in part.iter_mut().zip(one.as_bytes().iter().zip(&two.as_bytes()[8..])) {
                *to = a ^ b;
            }
        }
        bytes
    }
}
