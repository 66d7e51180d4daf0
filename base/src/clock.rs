//! Wall clock of the node, for timestamps that people read or configure.

use std::time::{Duration, Instant, SystemTime};

use model::primitives::quantity::Timestamp;

/// Returns the wall-clock time of the node in whole seconds.
#[must_use]
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Converts a wall-clock time into an [`Instant`], assuming that the wall clock is not adjusted in between.
/// Returns `now` for a time in the past.
#[must_use]
pub fn moment_of(time: Timestamp, now: Instant) -> Instant {
    let left = time.unix_seconds().saturating_sub(wall_clock().unix_seconds());
    // Times beyond the range of `Instant` are replaced by one that is never reached.
    now.checked_add(Duration::from_secs(u64::try_from(left).unwrap_or(0))).unwrap_or(now + FAR)
}

/// Duration of one hundred years. A time beyond the range of [`Instant`] is replaced by the current time plus
/// this duration.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
