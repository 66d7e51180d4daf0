//! Clock and random numbers behind a trait, so that tests can replace both with fixed values.

use std::time::{SystemTime, UNIX_EPOCH};

use model::{admission::admit::Entropy, primitives::quantity::Timestamp};

/// Message of the panic if the kernel provides no random bytes: `getrandom(2)` fails only before Linux 3.17 or in
/// a broken sandbox.
const RANDOM_WORKS: &str = "the kernel provides random bytes";

/// Clock and random number generator of the server. Tests implement it with fixed values.
pub trait Source: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns a random number that clients cannot predict.
    fn seed(&self) -> u64;

    /// Returns 32 unpredictable bytes for a key.
    fn secret(&self) -> [u8; 32];

    /// Returns the current time and a random seed (for the UIDs of new objects), which the admission
    /// (validation and completion) of one write needs.
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
        getrandom::u64().expect(RANDOM_WORKS)
    }

    fn secret(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect(RANDOM_WORKS);
        bytes
    }
}
