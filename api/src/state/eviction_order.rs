//! Eviction order of a cache that several callers share. If the cache is full, the caller with the largest part of
//! it loses its oldest entry, so that one caller cannot evict the entries of the others. Of callers with equal
//! parts, the one with the oldest entry loses it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// Keys of the entries of a cache by caller, oldest first, with their sizes.
#[derive(Debug, Default)]
pub(crate) struct EvictionOrder {
    callers: BTreeMap<String, CallerEntries>,
    count: usize,
    bytes: usize,
    /// Number of entries ever added.
    added: u64,
}

#[derive(Debug, Default)]
struct CallerEntries {
    entries: VecDeque<OrderEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct OrderEntry {
    key: String,
    bytes: usize,
    /// Position in the order in which the entries of all callers were added.
    number: u64,
}

impl EvictionOrder {
    /// Adds an entry of a caller, with its size in bytes.
    pub(crate) fn push(&mut self, caller: &str, key: &str, bytes: usize) {
        let of_caller = self.callers.entry(caller.to_owned()).or_default();
        of_caller.entries.push_back(OrderEntry { key: key.to_owned(), bytes, number: self.added });
        of_caller.bytes += bytes;
        self.added += 1;
        self.count += 1;
        self.bytes += bytes;
    }

    /// Returns the number of entries.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the total size of the entries in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes and returns the oldest entry of the caller with most entries; `None` if there are no entries.
    pub(crate) fn evict_most_entries(&mut self) -> Option<String> {
        self.evict_largest(|caller| caller.entries.len())
    }

    /// Removes and returns the oldest entry of the caller whose entries are the largest in total; `None` if there
    /// are no entries.
    pub(crate) fn evict_most_bytes(&mut self) -> Option<String> {
        self.evict_largest(|caller| caller.bytes)
    }

    /// Removes and returns the oldest entries of each caller for which `is_old` returns true.
    pub(crate) fn evict_old(&mut self, is_old: impl Fn(&str) -> bool) -> Vec<String> {
        let has_old = |caller: &CallerEntries| caller.entries.front().is_some_and(|entry| is_old(&entry.key));
        let mut evicted = Vec::new();
        while let Some((name, _)) = self.callers.iter().find(|(_, caller)| has_old(caller)) {
            let name = name.clone();
            evicted.extend(self.evict(&name));
        }
        evicted
    }

    fn evict_largest(&mut self, size: impl Fn(&CallerEntries) -> usize) -> Option<String> {
        let oldest = |caller: &CallerEntries| Reverse(caller.entries.front().map(|entry| entry.number));
        let (name, _) = self.callers.iter().max_by_key(|(_, caller)| (size(caller), oldest(caller)))?;
        let name = name.clone();
        self.evict(&name)
    }

    fn evict(&mut self, name: &str) -> Option<String> {
        let caller = self.callers.get_mut(name)?;
        let OrderEntry { key, bytes, number: _ } = caller.entries.pop_front()?;
        caller.bytes -= bytes;
        if caller.entries.is_empty() {
            self.callers.remove(name);
        }
        self.count -= 1;
        self.bytes -= bytes;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_with_the_largest_part_loses_its_oldest_entry() {
        let mut order = EvictionOrder::default();
        order.push("large", "old", 900);
        for number in 0..10 {
            order.push("many", &format!("m{number}"), 1);
        }
        order.push("few", "f", 5);
        assert_eq!((order.count(), order.bytes()), (12, 915));
        assert_eq!(order.evict_most_entries().as_deref(), Some("m0"));
        assert_eq!(order.evict_most_bytes().as_deref(), Some("old"));
        assert_eq!(order.evict_most_bytes().as_deref(), Some("m1"));
        assert_eq!(order.evict_old(|key| key < "m4"), ["f", "m2", "m3"]);
        assert_eq!((order.count(), order.bytes()), (6, 6));
        while order.evict_most_entries().is_some() {}
        assert_eq!((order.count(), order.bytes(), order.callers.len()), (0, 0, 0));
        for caller in ["b", "a", "c"] {
            order.push(caller, caller, 1);
        }
        assert_eq!(order.evict_most_entries().as_deref(), Some("b"), "the oldest of equal parts");
    }
}
