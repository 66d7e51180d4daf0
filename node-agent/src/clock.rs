//! The clock of the node, for what people state as a time of day.

use std::time::{Duration, Instant, SystemTime};

use model::primitives::quantity::Timestamp;

/// The time of the node's clock, in whole seconds.
#[must_use]
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The moment at which the clock of the node will show a time, if nobody sets it; `now` for what has passed.
#[must_use]
pub(crate) fn moment_of(time: Timestamp, now: Instant) -> Instant {
    let left = time.unix_seconds().saturating_sub(wall_clock().unix_seconds());
    // A time that no clock reaches is as far as any that one waits for.
    now.checked_add(Duration::from_secs(u64::try_from(left).unwrap_or(0))).unwrap_or(now + FAR)
}

/// A hundred years.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
