//! Check that the order of committed writes agrees with real time. Also computes lower and upper limits of
//! the store's revision at any time of the test.

use super::{History, Operation, RequestOutcome, Rule, Violations, writes::CommittedWrites};

/// Highest revision that any client had observed by a given time.
#[derive(Debug, Default)]
pub(super) struct Floors {
    /// Times, each with the highest revision that any client had observed by then.
    known: Vec<(u64, u64)>,
    start: u64,
}

impl Floors {
    fn new(start: u64, mut known: Vec<(u64, u64)>) -> Self {
        known.sort_unstable();
        let mut highest = start;
        for (_, revision) in &mut known {
            highest = highest.max(*revision);
            *revision = highest;
        }
        Self { known, start }
    }

    /// Returns the highest revision that any client had observed before a time.
    pub(super) fn before(&self, time: u64) -> u64 {
        let count = self.known.partition_point(|(known_at, _)| *known_at < time);
        count.checked_sub(1).map_or(self.start, |last| self.known[last].1)
    }
}

/// Computes, from all responses, the highest revision that any client had observed by a given time.
pub(super) fn floors(history: &History) -> Floors {
    let told = history.operations.iter().filter_map(|operation| Some((operation.end, shown(operation)?)));
    Floors::new(history.start, told.collect())
}

/// Returns the revision that the store has certainly reached according to a response, or `None` if the
/// response contains no revision.
pub(super) fn shown(operation: &Operation) -> Option<u64> {
    match &operation.answer {
        RequestOutcome::Accepted(revision) => Some(*revision),
        RequestOutcome::Object(seen) => seen.as_ref().map(|seen| seen.revision),
        RequestOutcome::Listing { at, .. } => Some(*at),
        RequestOutcome::Refused(_) | RequestOutcome::Unknown | RequestOutcome::Unexpected(_) => None,
    }
}

/// Lower and upper limit of the store's revision at a given time.
#[derive(Debug)]
pub(super) struct Bounds {
    floors: Floors,
    /// Start times of the committed writes in ascending order, each with the lowest revision of the writes
    /// that began then or later.
    begun: Vec<(u64, u64)>,
    head: u64,
}

impl Bounds {
    pub(super) fn new(history: &History, made: &CommittedWrites) -> Self {
        let mut begun: Vec<_> =
            made.iter().map(|(&revision, &index)| (history.operations[index].begin, revision)).collect();
        begun.sort_unstable();
        let mut lowest = u64::MAX;
        for (_, revision) in begun.iter_mut().rev() {
            lowest = lowest.min(*revision);
            *revision = lowest;
        }
        Self { floors: floors(history), begun, head: history.head }
    }

    /// Returns the lower limit of the store's revision at a time: the highest revision that a client had
    /// observed before.
    pub(super) fn floor(&self, time: u64) -> u64 {
        self.floors.before(time)
    }

    /// Returns the upper limit of the store's revision at a time: one less than the lowest revision of the writes
    /// that began later, or the last revision if there are none.
    pub(super) fn ceiling(&self, time: u64) -> u64 {
        let later = self.begun.partition_point(|(begun_at, _)| *begun_at <= time);
        self.begun.get(later).map_or(self.head, |(_, revision)| revision.saturating_sub(1))
    }
}

/// Checks that the revision of each write is higher than every revision that a client had observed before the
/// write began. The order of the revisions then agrees with real time: each write can take effect at some instant
/// between its begin and end.
pub(super) fn check(history: &History, made: &CommittedWrites, bounds: &Bounds, found: &mut Violations) {
    for (&revision, &index) in made {
        let operation = &history.operations[index];
        let floor = bounds.floor(operation.begin);
        if revision <= floor {
            let seen = format!(
                "{operation:?} was committed at {revision}, but {floor} had been observed \
                                already"
            );
            found.add(Rule::RealTime, seen);
        }
    }
}
