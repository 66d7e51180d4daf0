//! Compaction policy for etcd's own history, by age and by size.
//!
//! Overwritten and deleted values stay in etcd's database until a compaction. At a few thousand writes per
//! second, five minutes of history exceed etcd's default quota of 2 GiB, after which it rejects all writes
//! until an operator intervenes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Age up to which etcd revisions are retained; longer than the longest read at one revision.
const AGE: Duration = Duration::from_secs(300);
/// Minimum age of etcd revisions that are compacted under heavy writes. A read at one revision that takes
/// longer must start again.
const AGE_MIN: Duration = Duration::from_secs(10);
/// Minimum interval between compactions by age.
const TURN: Duration = Duration::from_secs(30);
/// Minimum interval at which etcd revisions are recorded with their time.
const STEP: Duration = Duration::from_secs(2);
/// Default growth of the database in bytes after which all etcd revisions older than [`AGE_MIN`] are
/// compacted.
pub(super) const GROWTH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Divisor of etcd's quota. Growth of the database by this fraction of the quota (1/8) also causes such a
/// compaction, if etcd reports its quota.
const QUOTA_SHARE: u64 = 8;

/// Database size and use of one etcd member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes of the database in use.
    pub(super) used: u64,
    /// Quota in bytes; 0 if not reported (before etcd 3.6).
    pub(super) quota: u64,
}

/// Recent etcd revisions with their times, and the growth of etcd's database.
#[derive(Debug)]
pub(super) struct Past {
    /// Recorded etcd revisions with their times, oldest first; limited in number by [`AGE`] and [`STEP`].
    revisions: VecDeque<(Instant, i64)>,
    /// Time and etcd revision of the last compaction.
    forgotten: Option<(Instant, i64)>,
    /// Minimum number of bytes in use since the last compaction; `None` before the first measurement.
    used_min: Option<u64>,
    growth_max: u64,
}

impl Past {
    /// Creates an empty record of revisions. `growth_max` is the database growth in bytes that triggers a
    /// compaction.
    pub(super) fn new(growth_max: u64) -> Self {
        Self { revisions: VecDeque::new(), forgotten: None, used_min: None, growth_max }
    }

    /// Records the current etcd revision. Returns the revision up to which etcd must be compacted now, or
    /// `None` if no compaction is necessary.
    pub(super) fn note(&mut self, now: Instant, revision: i64, room: Option<Room>) -> Option<i64> {
        let last = self.revisions.back().copied().or(self.forgotten);
        if last.is_none_or(|(at, known)| known != revision && now.duration_since(at) >= STEP) {
            self.revisions.push_back((now, revision));
        }
        let is_turn = self.forgotten.is_none_or(|(at, _)| now.duration_since(at) >= TURN);
        let age = match room {
            Some(room) if self.has_grown(room) => AGE_MIN,
            Some(_) | None if is_turn => AGE,
            Some(_) | None => return None,
        };
        let is_old = |(at, _): &(Instant, i64)| now.duration_since(*at) >= age;
        let (_, newest) = self.revisions.drain(..self.revisions.partition_point(is_old)).next_back()?;
        self.forgotten = Some((now, newest));
        // The effect of the compaction on the size is observed later.
        self.used_min = room.map(|room| room.used);
        Some(newest)
    }

    fn has_grown(&mut self, Room { used, quota }: Room) -> bool {
        let least = self.used_min.map_or(used, |least| least.min(used));
        self.used_min = Some(least);
        let by_quota = if quota == 0 { u64::MAX } else { quota / QUOTA_SHARE };
        used - least >= self.growth_max.min(by_quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// Simulates a period of `seconds` with one new etcd revision per second. `used` returns the database
    /// size at each second. Returns the compactions, each as second and revision.
    fn play(quota: u64, used: impl Fn(u64) -> Option<u64>, seconds: u64) -> Vec<(u64, i64)> {
        let attempts = Instant::now();
        let mut past = Past::new(GROWTH_BYTES_MAX);
        let note = |second| {
            let room = used(second).map(|used| Room { used, quota });
            let revision = i64::try_from(second).unwrap();
            Some((second, past.note(attempts + Duration::from_secs(second), revision, room)?))
        };
        (0..seconds).filter_map(note).collect()
    }

    #[test]
    fn what_is_five_minutes_old_is_forgotten_every_half_minute() {
        for used in [None, Some(100 * MIB)] {
            assert_eq!(play(2048 * MIB, |_| used, 362), [(300, 0), (330, 30), (360, 60)]);
        }
    }

    #[test]
    fn what_takes_much_room_is_forgotten_sooner_but_not_at_once() {
        let by_30_mib = |second| Some(second * 30 * MIB);
        let forgotten = play(0, by_30_mib, 30);
        assert_eq!(forgotten, [(10, 0), (19, 8), (28, 18)]);
        // A burst of two seconds leads to one compaction, as soon as its revisions are old enough.
        let burst = |second: u64| Some(second.clamp(100, 102) * 200 * MIB);
        assert_eq!(play(0, burst, 250), [(102, 92)]);
        // With a small quota, sooner.
        assert_eq!(play(256 * MIB, |second| Some(second * MIB), 65), [(32, 22), (64, 54)]);
    }

    #[test]
    fn what_etcd_has_given_back_counts_as_growth_when_it_is_used_again() {
        let saw = |second| Some(if second % 20 < 10 { 300 * MIB } else { 10 * MIB });
        let forgotten = play(0, saw, 60);
        assert_eq!(forgotten, [(20, 10), (40, 30)]);
    }

    #[test]
    fn an_etcd_that_nobody_writes_to_is_left_alone() {
        let attempts = Instant::now();
        let mut past = Past::new(GROWTH_BYTES_MAX);
        let mut note = |second| past.note(attempts + Duration::from_secs(second), 7, None);
        assert_eq!((0..2000).filter_map(&mut note).collect::<Vec<_>>(), [7]);
    }
}
