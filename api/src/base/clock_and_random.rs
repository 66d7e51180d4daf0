//! Where time and randomness enter: one small trait, so that a test can fix both.

use std::{
    hash::{BuildHasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use model::{admission::admit::Entropy, primitives::quantity::Timestamp};

/// A source of time and randomness.
pub trait Source: Send + Sync {
    /// The present.
    fn now(&self) -> Timestamp;

    /// A number that clients cannot predict.
    fn seed(&self) -> u64;

    /// Bytes that nobody can predict, for keys.
    fn secret(&self) -> [u8; 32];

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

    fn secret(&self) -> [u8; 32] {
        // Version 4 UUIDs are 122 random bits of the operating system each, at fixed places; the halves without the
        // fixed bits of four of them are combined, so that every byte has its eight.
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
