//! Polling with a timeout, so that a test waits for a state and not for a fixed time.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use crate::host::guest;

/// Default timeout of [`until`], long because test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two polls.
const INTERVAL: Duration = Duration::from_millis(20);
/// Minimum pause between two polls in the guest VM (`lab/guest.sh`), as a multiple of the duration of the
/// previous poll. A test shares the only CPU of the VM with the program under test, and polling without
/// pauses would use all of its time.
const GUEST_PAUSE_SHARE: u32 = 4;

/// Calls `look` repeatedly until it returns `Ok`, for at most [`PATIENCE`]. The first argument describes the
/// awaited state in errors.
///
/// # Errors
/// Returns the last error of `look` on timeout.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T>) -> Result<T> {
    until_within(PATIENCE, what, look)
}

/// Calls `look` repeatedly until it returns `Ok`, for at most the time `patience`. The first argument
/// describes the awaited state in errors.
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

/// Waits until `condition` returns true, for at most [`PATIENCE`]. The first argument describes the condition
/// in errors.
///
/// # Errors
/// Returns an error on timeout.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    until(what, || if condition() { Ok(()) } else { Err(anyhow!("not yet")) })
}
