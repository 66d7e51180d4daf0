//! Map of limited size that forgets the least recently used entries.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// Map with at most `entries_max` entries and `bytes_max` bytes. All operations take constant time on average.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    /// Positions of the entries.
    positions: HashMap<K, usize>,
    /// Entries, linked in the order of their last use; `None` at free positions.
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    /// Least and most recently used entries.
    ends: Option<(usize, usize)>,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    size: usize,
    /// Entry that was used before this one.
    older: Option<usize>,
    /// Entry that was used after this one.
    newer: Option<usize>,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        let (positions, slots, free) = (HashMap::new(), Vec::new(), Vec::new());
        Self { positions, slots, free, ends: None, bytes: 0, entries_max, bytes_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns an entry without using it.
    pub(crate) fn peek<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let position = *self.positions.get(key)?;
        self.slot(position).map(|slot| &mut slot.value)
    }

    /// Marks an entry as used, if it exists.
    pub(crate) fn touch<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(position) = self.positions.get(key).copied()
            && self.ends.is_some_and(|(_, newest)| newest != position)
        {
            self.unlink(position);
            self.link(position);
        }
    }

    /// Inserts or replaces an entry of `size` bytes, and removes the least recently used ones while the map is too
    /// large. Returns the number of removed entries.
    pub(crate) fn insert(&mut self, key: K, value: V, size: usize) -> usize {
        self.remove(&key);
        self.bytes += size;
        let slot = Slot { key: key.clone(), value, size, older: None, newer: None };
        let position = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(position) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.positions.insert(key, position);
        self.link(position);
        let mut removed = 0;
        while self.len() > self.entries_max || self.bytes > self.bytes_max {
            let Some((oldest, _)) = self.ends else { break };
            let Some(key) = self.slot(oldest).map(|slot| slot.key.clone()) else { break };
            self.remove(&key);
            removed += 1;
        }
        removed
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let Some(position) = self.positions.remove(key) else { return };
        self.unlink(position);
        if let Some(slot) = self.slots.get_mut(position).and_then(Option::take) {
            self.bytes -= slot.size;
            self.free.push(position);
        }
    }

    fn slot(&mut self, position: usize) -> Option<&mut Slot<K, V>> {
        self.slots.get_mut(position)?.as_mut()
    }

    /// Adds an entry as the most recently used one.
    fn link(&mut self, position: usize) {
        let newest = self.ends.map(|(_, newest)| newest);
        if let Some(slot) = self.slot(position) {
            (slot.older, slot.newer) = (newest, None);
        }
        if let Some(slot) = newest.and_then(|newest| self.slot(newest)) {
            slot.newer = Some(position);
        }
        self.ends = Some((self.ends.map_or(position, |(oldest, _)| oldest), position));
    }

    /// Takes an entry out of the order.
    fn unlink(&mut self, position: usize) {
        let Some((older, newer)) = self.slot(position).map(|slot| (slot.older, slot.newer)) else { return };
        if let Some(slot) = older.and_then(|older| self.slot(older)) {
            slot.newer = newer;
        }
        if let Some(slot) = newer.and_then(|newer| self.slot(newer)) {
            slot.older = older;
        }
        let Some((oldest, newest)) = self.ends else { return };
        let oldest = if oldest == position { newer } else { Some(oldest) };
        let newest = if newest == position { older } else { Some(newest) };
        self.ends = oldest.zip(newest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The map contains the entries that were used last, within both limits.
        #[test]
        fn the_least_recently_used_entries_are_removed(steps in prop::collection::vec((0_u8..12, 0_usize..40, any::<bool>()), 0..80)) {
            let mut map = Lru::new(5, 100);
            // Entries from the least to the most recently used.
            let mut expected: Vec<(u8, usize)> = Vec::new();
            for (key, size, is_insertion) in steps {
                let known = expected.iter().position(|(other, _)| *other == key);
                if is_insertion {
                    map.insert(key, size, size);
                    known.map(|at| expected.remove(at));
                    expected.push((key, size));
                    while expected.len() > 5 || expected.iter().map(|(_, size)| size).sum::<usize>() > 100 {
                        expected.remove(0);
                    }
                } else {
                    map.touch(&key);
                    if let Some(at) = known {
                        let entry = expected.remove(at);
                        expected.push(entry);
                    }
                }
                prop_assert_eq!(map.len(), expected.len());
                for (key, size) in &expected {
                    prop_assert_eq!(map.peek(key).copied(), Some(*size));
                }
            }
        }
    }
}
