//! How much of its own history etcd keeps: by time, and by the bytes that it takes.
//!
//! Nothing that is written over or deleted leaves etcd's database before a compaction. At a few thousand writes a second five
//! minutes of that are more than the 2 GiB which etcd allows itself, and then it takes no writes at all until a person helps.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long etcd keeps what has changed: longer than the longest read of one revision takes.
const AGE: Duration = Duration::from_secs(300);
/// How long at least, however much is written. A read of one revision that takes longer begins again.
const AGE_MIN: Duration = Duration::from_secs(10);
/// Time between two compactions that are due by time.
const TURN: Duration = Duration::from_secs(30);
/// Time between two revisions that are remembered.
const STEP: Duration = Duration::from_secs(2);
/// Bytes that the database may grow by before etcd keeps no more than it must.
pub(super) const GROWTH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The part of etcd's quota that this may be, where etcd tells it.
const QUOTA_SHARE: u64 = 8;

/// How much of its database a member of etcd uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes in use.
    pub(super) used: u64,
    /// Bytes that there may be; 0 when the member does not tell (before etcd 3.6).
    pub(super) quota: u64,
}

/// Revisions of etcd and when they were current, and how etcd's database grew meanwhile.
#[derive(Debug)]
pub(super) struct Past {
    /// Oldest first; at most as many as fit into [`AGE`] by the step.
    revisions: VecDeque<(Instant, i64)>,
    /// When etcd was last told to forget, and before which revision.
    forgotten: Option<(Instant, i64)>,
    /// The fewest bytes in use since then.
    used_min: Option<u64>,
    growth_max: u64,
}

impl Past {
    /// Nothing is known; the database may grow by so many bytes.
    pub(super) fn new(growth_max: u64) -> Self {
        Self { revisions: VecDeque::new(), forgotten: None, used_min: None, growth_max }
    }

    /// Takes in what is current; answers the revision before which etcd shall forget, when it is time.
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
        // What is given back by the compaction is seen at a later look.
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

    /// A second at a time: what is forgotten when, with so many bytes in use at each and a revision for each.
    fn play(quota: u64, used: impl Fn(u64) -> Option<u64>, seconds: u64) -> Vec<(u64, i64)> {
        let begun = Instant::now();
        let mut past = Past::new(GROWTH_BYTES_MAX);
        let note = |second| {
            let room = used(second).map(|used| Room { used, quota });
            let revision = i64::try_from(second).unwrap();
            Some((second, past.note(begun + Duration::from_secs(second), revision, room)?))
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
        // A burst of two seconds: once, as soon as the revisions of the burst are old enough.
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
        let begun = Instant::now();
        let mut past = Past::new(GROWTH_BYTES_MAX);
        let mut note = |second| past.note(begun + Duration::from_secs(second), 7, None);
        assert_eq!((0..2000).filter_map(&mut note).collect::<Vec<_>>(), [7]);
    }
}
