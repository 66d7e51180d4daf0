//! Detection of loops: an upstream server that forwards questions back to this server.
//!
//! A question with a random name is sent to each upstream server at the start, and again to those that do not respond to
//! other questions. A server through which such a question comes back is not used until one does not.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicBool, Ordering},
};

use hickory_proto::rr::{Name, RecordType};

use crate::message::QuestionKey;

/// Name above those of the questions, below the zone of the servers. No such domain exists.
const DOMAIN: [&str; 2] = ["loop", "tidegate-dns"];

/// State of the loop detection.
#[derive(Debug)]
pub(super) struct LoopGuard {
    /// Random word that only the upstream servers receive.
    word: String,
    /// Name above those of the questions. `None` if it would be too long; then no loops are found.
    domain: Option<Name>,
    /// Number of labels of the names of the questions.
    labels: usize,
    servers: Vec<LoopState>,
}

#[derive(Debug, Default)]
struct LoopState {
    /// True if the next check must include the server.
    is_suspected: AtomicBool,
    /// True while a question of a check waits.
    is_checked: AtomicBool,
    /// True if the question of the last check came back.
    has_returned: AtomicBool,
    is_looping: AtomicBool,
}

impl LoopGuard {
    /// Creates the state for a number of servers of a zone, all to be checked.
    pub(super) fn new(servers: usize, zone: &Name) -> Self {
        let word = [(); 2].map(|()| format!("{:016x}", RandomState::new().hash_one(0))).concat();
        let state = || LoopState { is_suspected: AtomicBool::new(true), ..LoopState::default() };
        let domain = Name::from_labels(DOMAIN.map(str::as_bytes)).ok();
        let domain = domain.and_then(|domain| domain.append_name(zone).ok());
        let labels = 1 + DOMAIN.len() + zone.iter().count();
        Self { word, domain, labels, servers: std::iter::repeat_with(state).take(servers).collect() }
    }

    /// Returns true if a server must not be used.
    pub(super) fn is_looping(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|state| state.is_looping.load(Ordering::Relaxed))
    }

    /// Number of servers that must not be used.
    pub(super) fn looping(&self) -> usize {
        (0..self.servers.len()).filter(|server| self.is_looping(*server)).count()
    }

    /// Includes a server in the next check, because it did not respond.
    pub(super) fn suspect(&self, server: usize) {
        if let Some(state) = self.servers.get(server) {
            state.is_suspected.store(true, Ordering::Relaxed);
        }
    }

    /// Starts the check of a server. Returns the question to send to it, or `None` if no check is needed.
    pub(super) fn start(&self, server: usize) -> Option<QuestionKey> {
        let state = self.servers.get(server)?;
        let is_suspected = state.is_suspected.swap(false, Ordering::Relaxed);
        if !is_suspected && !state.is_looping.load(Ordering::Relaxed) {
            return None;
        }
        let label = format!("{}-{server}", self.word);
        let name = self.domain.as_ref()?.prepend_label(label).ok()?;
        state.has_returned.store(false, Ordering::Relaxed);
        state.is_checked.store(true, Ordering::Relaxed);
        Some(QuestionKey::plain(&name, RecordType::TXT))
    }

    /// Ends the check of a server. Returns the new state, true for a loop, if it has changed.
    pub(super) fn end(&self, server: usize) -> Option<bool> {
        let state = self.servers.get(server)?;
        state.is_checked.store(false, Ordering::Relaxed);
        let is_looping = state.has_returned.load(Ordering::Relaxed);
        (state.is_looping.swap(is_looping, Ordering::Relaxed) != is_looping).then_some(is_looping)
    }

    /// Returns true if a name is that of a question of a check, which has come back.
    pub(super) fn observe(&self, name: &Name) -> bool {
        let Some(domain) = &self.domain else { return false };
        // Almost all names are decided here.
        if name.iter().count() != self.labels || !domain.zone_of(name) {
            return false;
        }
        let first = name.iter().next().map(<[u8]>::to_ascii_lowercase).unwrap_or_default();
        let number = first.strip_prefix(self.word.as_bytes()).and_then(|rest| rest.strip_prefix(b"-"));
        let server = number.and_then(|number| std::str::from_utf8(number).ok()?.parse::<usize>().ok());
        let Some(state) = server.and_then(|server| self.servers.get(server)) else { return false };
        if state.is_checked.load(Ordering::Relaxed) {
            state.has_returned.store(true, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server is not used after the question of its check came back, until another check.
    #[test]
    fn a_question_that_comes_back_is_a_loop() {
        let guard = LoopGuard::new(2, &Name::root());
        let first = guard.start(0).unwrap();
        let second = guard.start(1).unwrap();
        assert_ne!(first.name, second.name);
        assert!(
            guard.observe(&second.name)
                && guard.observe(&Name::from_ascii(second.name.to_ascii().to_uppercase()).unwrap())
        );
        assert_eq!((guard.end(0), guard.end(1)), (None, Some(true)));
        assert!(!guard.is_looping(0) && guard.is_looping(1) && guard.looping() == 1);
        // Only the server with the loop is checked again.
        assert_eq!((guard.start(0), guard.start(1)), (None, Some(second.clone())));
        assert_eq!((guard.end(1), guard.looping()), (Some(false), 0));
        // A late question is recognized, but is no proof.
        assert!(guard.observe(&second.name));
        guard.suspect(1);
        guard.start(1).unwrap();
        assert_eq!(guard.end(1), None);
    }

    /// A client that does not know the random word cannot stop forwarding.
    #[test]
    fn other_names_are_no_loop() {
        let (guard, other) = (LoopGuard::new(1, &Name::root()), LoopGuard::new(1, &Name::root()));
        let name = guard.start(0).unwrap().name;
        let above = name.base_name();
        for foreign in
            [other.start(0).unwrap().name, above.clone(), Name::root(), above.prepend_label("x-0").unwrap()]
        {
            assert!(!guard.observe(&foreign), "{foreign}");
        }
        assert_eq!(guard.end(0), None);
    }

    /// A server that gets the names of a zone only is checked with a name in the zone.
    #[test]
    fn the_question_is_in_the_zone_of_the_servers() {
        let zone = Name::from_ascii("corp.example.").unwrap();
        let guard = LoopGuard::new(1, &zone);
        let name = guard.start(0).unwrap().name;
        assert!(zone.zone_of(&name) && guard.observe(&name));
        assert!(!LoopGuard::new(1, &Name::root()).observe(&name));
        assert_eq!(guard.end(0), Some(true));
        let long = Name::from_labels(std::iter::repeat_n(&[b'x'; 60][..], 4)).unwrap();
        let guard = LoopGuard::new(1, &long);
        assert_eq!(guard.start(0), None);
        assert!(!guard.observe(&long));
    }
}
