//! Set of integers that is cheap to copy (persistent data structure), stored as intervals, with a search for
//! the next number that is not in the set in O(log n).
//!
//! Adjacent intervals are merged, so the number after the end of an interval is never in the set. The search
//! therefore looks at one interval only.

use imbl::OrdMap;

/// Set of integers that is cheap to copy (persistent data structure), stored as disjoint intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// Intervals: the key is the first number, the value the last number, and both belong to the interval.
    intervals: OrdMap<u128, u128>,
}

impl IntervalSet {
    /// Creates the set of the numbers from `first` to `last`, including both.
    #[must_use]
    pub fn of_range(first: u128, last: u128) -> Self {
        Self { intervals: OrdMap::unit(first, last) }
    }

    /// Adds a number. Returns true if the set did not contain the number.
    pub fn insert(&mut self, number: u128) -> bool {
        let before = self.holding_or_before(number);
        if before.is_some_and(|(_, last)| number <= last) {
            return false;
        }
        let mut first = number;
        let mut last = number;
        if let Some((before_first, before_last)) = before
            && before_last.checked_add(1) == Some(number)
        {
            first = before_first;
        }
        if let Some(next) = number.checked_add(1)
            && let Some(&next_last) = self.intervals.get(&next)
        {
            last = next_last;
            self.intervals.remove(&next);
        }
        self.intervals.insert(first, last);
        true
    }

    /// Removes a number. Returns true if the set contained the number.
    pub fn remove(&mut self, number: u128) -> bool {
        let Some((first, last)) = self.holding_or_before(number).filter(|(_, last)| number <= *last) else {
            return false;
        };
        self.intervals.remove(&first);
        if first < number {
            self.intervals.insert(first, number - 1);
        }
        if number < last {
            self.intervals.insert(number + 1, last);
        }
        true
    }

    /// True if the number is in the set.
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        self.holding_or_before(number).is_some_and(|(_, last)| number <= last)
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Returns the lowest number from `start` to `end`, including both, that is not in the set; `None` if the
    /// set contains all of them.
    #[must_use]
    pub fn first_free(&self, start: u128, end: u128) -> Option<u128> {
        let candidate = match self.holding_or_before(start) {
            Some((_, last)) if start <= last => last.checked_add(1)?,
            Some(_) | None => start,
        };
        (candidate <= end).then_some(candidate)
    }

    fn holding_or_before(&self, number: u128) -> Option<(u128, u128)> {
        self.intervals.get_prev(&number).map(|(first, last)| (*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(operations in prop::collection::vec((any::<bool>(), 0_u128..40), 0..200)) {
            let (mut set, mut plain) = (IntervalSet::default(), BTreeSet::new());
            for (insert, number) in operations {
                if insert {
                    prop_assert_eq!(set.insert(number), plain.insert(number));
                } else {
                    prop_assert_eq!(set.remove(number), plain.remove(&number));
                }
                for probe in 0..42 {
                    prop_assert_eq!(set.contains(probe), plain.contains(&probe));
                    let free = (probe..=40).find(|n| !plain.contains(n));
                    prop_assert_eq!(set.first_free(probe, 40), free);
                }
            }
        }
    }

    #[test]
    fn the_ends_of_the_number_range_are_safe() {
        let mut set = IntervalSet::default();
        assert!(set.insert(u128::MAX) && set.insert(0) && set.insert(u128::MAX - 1));
        assert_eq!(set.first_free(u128::MAX - 1, u128::MAX), None);
        assert!(set.remove(u128::MAX) && set.contains(u128::MAX - 1));
    }
}
