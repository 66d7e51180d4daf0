//! Bounded polling: a test waits for a state, never for a time.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use crate::host::guest;

/// How long anything may take before it counts as never happening. Generous, because machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// On the second kernel (`lab/guest.sh`) a pause is at least so many times as long as the look before it: a test shares its one
/// processor with what it tests, and a test that only looks leaves nothing of it.
const GUEST_PAUSE_SHARE: u32 = 4;

/// Looks until `look` answers `Ok`, and says what it last saw when [`PATIENCE`] is over.
///
/// # Errors
/// The last error of `look`.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T>) -> Result<T> {
    until_within(PATIENCE, what, look)
}

/// As [`until`], with another patience.
///
/// # Errors
/// The last error of `look`.
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + patience;
    let share = if guest::is_inside() { GUEST_PAUSE_SHARE } else { 0 };
    loop {
        let begun = Instant::now();
        match look() {
            Ok(seen) => return Ok(seen),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("gave up after {patience:?} waiting for: {what}")));
            }
            Err(_) => thread::sleep(INTERVAL.max(begun.elapsed() * share)),
        }
    }
}

/// Waits until a condition holds.
///
/// # Errors
/// It never did.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    until(what, || if condition() { Ok(()) } else { Err(anyhow!("not yet")) })
}
