//! Cache of failures (RFC 9520), as a state machine without a clock: times are given as the time since the start of the process.
//!
//! Clients repeat a question that failed at once, often several of them. Without this cache, each repetition would go to all
//! upstream servers. The times are short, so that names resolve again soon after the servers do.

use std::{sync::Arc, time::Duration};

use super::lru::Lru;
use crate::message::{QuestionKey, Reply};

/// Time for which a failure is cached first, the minimum of RFC 9520 §3.2. Each further failure of the question doubles it.
const TIME_MIN: Duration = Duration::from_secs(1);
/// Maximum time for which a failure is cached. RFC 9520 §3.2 permits 5 min.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Time after the end of a cached failure from which on the next failure of the question counts as the first one.
const REPETITION_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of cached failures.
const ENTRIES_MAX: usize = 5000;
/// Maximum size of a response with an error that is kept, in bytes. Clients get SERVFAIL instead of a larger one.
const REPLY_BYTES_MAX: usize = 512;

/// Cache of failures.
#[derive(Debug)]
pub(super) struct FailureCache(Lru<QuestionKey, Failure>);

/// Failure of the upstream servers to answer a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Response of an upstream server with an error. `None` if no server responded.
    pub(super) reply: Option<Arc<Reply>>,
    /// Number of questions that were answered with the failure.
    pub(super) uses: u32,
    until: Duration,
    time: Duration,
}

impl Failure {
    /// Returns the time for which the upstream servers are not asked.
    pub(super) fn remaining(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }
}

impl Default for FailureCache {
    fn default() -> Self {
        Self(Lru::new(ENTRIES_MAX, usize::MAX))
    }
}

impl FailureCache {
    /// Finds a failure to answer a question, and counts it as used. The upstream servers must not be asked then.
    pub(super) fn find(&mut self, key: &QuestionKey, now: Duration) -> Option<&Failure> {
        self.0.touch(key);
        let failure = self.0.peek(key).filter(|failure| now < failure.until)?;
        failure.uses = failure.uses.saturating_add(1);
        Some(failure)
    }

    /// Returns a failure to answer a question, without using it.
    pub(super) fn inspect(&mut self, key: &QuestionKey, now: Duration) -> Option<Failure> {
        self.0.peek(key).filter(|failure| now < failure.until).cloned()
    }

    /// Records that the upstream servers failed to answer a question, with their response if there is one.
    pub(super) fn fail(&mut self, key: &QuestionKey, reply: Option<Arc<Reply>>, now: Duration) {
        let earlier = self.0.peek(key).filter(|earlier| now < earlier.until + REPETITION_TIME_MAX);
        let time = earlier.map_or(TIME_MIN, |earlier| (earlier.time * 2).min(TIME_MAX));
        let reply = reply.filter(|reply| reply.size() <= REPLY_BYTES_MAX);
        self.0.insert(key.clone(), Failure { reply, uses: 0, until: now + time, time }, 1);
    }

    /// Records that an upstream server answered a question.
    pub(super) fn succeed(&mut self, key: &QuestionKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::{Name, RecordType};

    use super::*;

    fn key(name: &str, record_type: RecordType) -> QuestionKey {
        QuestionKey::plain(&Name::from_ascii(name).unwrap(), record_type)
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A failure is that of one name and type, for 1 s at first and at most 5 s, until an answer.
    #[test]
    fn failures_are_cached_for_1_to_5_s() {
        let (mut failures, failed) = (FailureCache::default(), key("www.example.", RecordType::A));
        assert_eq!(failures.find(&failed, at(0)), None);
        let mut now = at(100);
        for time in [1000, 2000, 4000, 5000, 5000] {
            failures.fail(&failed, None, now);
            let end = now + at(time);
            assert!(failures.find(&failed, end - at(1)).is_some_and(|failure| failure.uses == 1), "{time}");
            assert_eq!(failures.inspect(&failed, end - at(1)).unwrap().remaining(end - at(1)), at(1));
            assert_eq!(failures.find(&failed, end), None, "{time}");
            assert_eq!(failures.inspect(&failed, end), None, "{time}");
            now = end + at(1000);
        }
        for other in [key("www.example.", RecordType::AAAA), key("example.", RecordType::A)] {
            assert_eq!(failures.find(&other, now - at(1500)), None);
        }
        failures.fail(&failed, None, now + REPETITION_TIME_MAX);
        assert_eq!(
            failures.find(&failed, now + REPETITION_TIME_MAX + TIME_MIN),
            None,
            "counted from the start"
        );
        failures.fail(&failed, None, now + 2 * REPETITION_TIME_MAX);
        failures.succeed(&failed);
        assert_eq!(failures.find(&failed, now + 2 * REPETITION_TIME_MAX), None);
    }

    /// Many names that fail, such as random ones, take a limited amount of memory.
    #[test]
    fn the_number_of_failures_is_limited() {
        let mut failures = FailureCache::default();
        for number in 0..2 * ENTRIES_MAX {
            failures.fail(&key(&format!("n{number}.example."), RecordType::A), None, at(0));
        }
        assert_eq!(failures.0.len(), ENTRIES_MAX);
    }
}
