//! States of all objects at each revision, derived from the change log, and a check that the log itself is
//! consistent.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChangeEvent, ChangeEventKind, History, ObjectState, Rule, Violations};

/// State of every object at every revision, computed from the change log.
#[derive(Debug, Default)]
pub struct Timeline {
    keys: BTreeMap<String, BTreeMap<u64, Option<LiveObject>>>,
    revisions: BTreeSet<u64>,
}

/// Object that exists at some revision of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LiveObject {
    value: String,
    address: Option<String>,
}

impl Timeline {
    pub(super) fn new(history: &History, found: &mut Violations) -> Self {
        let mut timeline = Self::default();
        let mut newest = history.start;
        let mut touched = BTreeSet::new();
        for event in &history.log {
            if event.revision < newest || event.revision > history.head {
                let seen = format!("{event:?} follows {newest}; the log ends at {}", history.head);
                found.add(Rule::Log, seen);
            }
            if event.revision != newest {
                touched.clear();
            }
            newest = newest.max(event.revision);
            if event.revision <= history.start || !touched.insert(event.key.as_str()) {
                found.add(Rule::Log, format!("{event:?} is a duplicate or from before the start"));
            }
            timeline.push(event, found);
        }
        timeline
    }

    fn push(&mut self, event: &ChangeEvent, found: &mut Violations) {
        let ChangeEvent { revision, key, happened, value, address } = event;
        let before = self.held(key, revision.saturating_sub(1));
        let fits = match (happened, before) {
            (ChangeEventKind::Added, before) => before.is_none(),
            (ChangeEventKind::Modified, before) => before.is_some(),
            (ChangeEventKind::Deleted, before) => before.is_some_and(|before| before.value == *value),
        };
        if !fits {
            found.add(Rule::Log, format!("{event:?} was logged while the object was {before:?}"));
        }
        let held = match happened {
            ChangeEventKind::Added | ChangeEventKind::Modified => {
                Some(LiveObject { value: value.clone(), address: address.clone() })
            }
            ChangeEventKind::Deleted => None,
        };
        if held.is_some() {
            self.check_address(event, found);
        }
        self.revisions.insert(*revision);
        self.keys.entry(key.clone()).or_default().insert(*revision, held);
    }

    /// Adds a violation to `found` if another object has the event's address at the revision of the event.
    /// The order of events within one revision does not matter: no write of the test moves an address from
    /// one object to another.
    fn check_address(&self, event: &ChangeEvent, found: &mut Violations) {
        let Some(address) = &event.address else { return };
        if let Some(holder) = self.holder(address, event.revision, &event.key) {
            found.add(Rule::Address, format!("{event:?} has the address held by {holder}"));
        }
    }

    fn held(&self, key: &str, at: u64) -> Option<&LiveObject> {
        self.keys.get(key)?.range(..=at).next_back()?.1.as_ref()
    }

    /// Returns the state of an object at a revision, or `None` if the object did not exist then.
    #[must_use]
    pub fn seen(&self, key: &str, at: u64) -> Option<ObjectState> {
        let (&revision, held) = self.keys.get(key)?.range(..=at).next_back()?;
        held.as_ref().map(|held| ObjectState { value: held.value.clone(), revision })
    }

    /// Returns the state of every object that existed at a revision, by object name.
    #[must_use]
    pub fn state(&self, at: u64) -> BTreeMap<String, ObjectState> {
        self.keys.keys().filter_map(|key| Some((key.clone(), self.seen(key, at)?))).collect()
    }

    /// Returns the address of every object that had one at a revision, by object name.
    #[must_use]
    pub fn addresses(&self, at: u64) -> BTreeMap<String, String> {
        let address = |key: &String| Some((key.clone(), self.held(key, at)?.address.clone()?));
        self.keys.keys().filter_map(address).collect()
    }

    /// Returns the name of an object other than `but` that had an address at a revision, or `None` if there
    /// was none.
    pub(super) fn holder(&self, address: &str, at: u64, but: &str) -> Option<&str> {
        let others = self.keys.keys().filter(|key| *key != but);
        let has =
            |key: &&String| self.held(key, at).is_some_and(|held| held.address.as_deref() == Some(address));
        others.map(|key| (key, key)).find(|(key, _)| has(key)).map(|(_, key)| key.as_str())
    }

    /// Returns the last revision at which an object still had the state that was written at revision `since`.
    /// `head` is the last revision of the log.
    pub(super) fn lasted(&self, key: &str, since: u64, head: u64) -> u64 {
        let next = self.keys.get(key).and_then(|states| states.range(since + 1..).next());
        next.map_or(head, |(&revision, _)| revision - 1)
    }

    /// Returns the first revision, at or after `from`, at which an object did not exist, or `None` if there
    /// is none.
    pub(super) fn first_absence(&self, key: &str, from: u64) -> Option<u64> {
        if self.held(key, from).is_none() {
            return Some(from);
        }
        let states = self.keys.get(key)?;
        states.range(from..).find(|(_, held)| held.is_none()).map(|(&revision, _)| revision)
    }

    /// Returns `low`, and every higher revision up to `high` at which an object changed. The states at these
    /// revisions are all states that the store had in the range.
    pub(super) fn states_between(&self, low: u64, high: u64) -> impl Iterator<Item = u64> {
        std::iter::once(low)
            .chain(self.revisions.range(low + 1..=high.max(low + 1)).copied())
            .take_while(move |&at| at <= high)
    }
}
