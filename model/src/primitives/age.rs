//! Text form of durations as in `kubectl`: at most two units, and larger units for longer durations.

use crate::primitives::quantity::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats the time from `then` to `now`, such as `45s`, `5m30s`, `3h20m`, `2d5h`, `45d`, `2y30d`. Returns
/// `0s` if `then` is in the future because of clock skew.
#[must_use]
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.unix_seconds().saturating_sub(then.unix_seconds()).max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        _ => two(seconds, YEAR, "y", DAY, "d"),
    }
}

fn two(seconds: i64, large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    let rest = seconds % large / small;
    let tail = if rest == 0 { String::new() } else { format!("{rest}{small_unit}") };
    format!("{}{large_unit}{tail}", seconds / large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_lose_detail_as_they_grow_and_are_never_negative() {
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (150, "2m30s"),
            (180, "3m"),
            (3599, "59m"),
            (12_000, "3h20m"),
            (100_000, "27h"),
            (190_800, "2d5h"),
            (45 * DAY, "45d"),
            (2 * YEAR + 30 * DAY, "2y30d"),
        ] {
            let now = Timestamp::from_unix_seconds(1_700_000_000 + seconds);
            assert_eq!(age(Timestamp::from_unix_seconds(1_700_000_000), now), expected);
        }
    }
}
