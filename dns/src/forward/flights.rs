//! Questions that wait for the upstream servers of one zone: each key is asked once at a time, a limited number of keys are asked
//! at once, and the others wait in a queue of limited length for a limited time.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::message::QuestionKey;

/// Limits on waiting questions.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlightLimits {
    /// Maximum number of keys that are asked at once.
    pub(super) asked: usize,
    /// Maximum number of waiting clients of all keys.
    pub(super) waiting: usize,
    /// Maximum time from the first client of a key to its end. A key that waits longer in the queue is not asked any more.
    pub(super) time: Duration,
}

/// Questions that wait, with their clients of type `W`.
#[derive(Debug)]
pub(super) struct Flights<W> {
    limits: FlightLimits,
    flights: HashMap<QuestionKey, Flight<W>>,
    queue: VecDeque<QuestionKey>,
    waiting: usize,
}

#[derive(Debug)]
struct Flight<W> {
    /// Time of the first question.
    start: Duration,
    clients: Vec<W>,
}

/// Result of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinResult {
    /// The caller must ask the upstream servers.
    Ask,
    /// The question is asked already, or waits in the queue, since this time.
    Wait(Duration),
    /// Too many clients wait.
    Full,
}

impl<W> Flights<W> {
    pub(super) fn new(limits: FlightLimits) -> Self {
        Self { limits, flights: HashMap::new(), queue: VecDeque::new(), waiting: 0 }
    }

    /// Number of keys that are asked.
    pub(super) fn asked(&self) -> usize {
        self.flights.len() - self.queue.len()
    }

    /// Adds a client, or nobody for a question that renews the cache. Renewals never wait in the queue.
    pub(super) fn join(&mut self, key: &QuestionKey, now: Duration, client: Option<W>) -> JoinResult {
        let is_room = self.asked() < self.limits.asked;
        let is_full = self.waiting >= self.limits.waiting || client.is_none() && !is_room;
        if is_full {
            return JoinResult::Full;
        }
        self.waiting += usize::from(client.is_some());
        if let Some(flight) = self.flights.get_mut(key) {
            flight.clients.extend(client);
            return JoinResult::Wait(flight.start);
        }
        self.flights.insert(key.clone(), Flight { start: now, clients: client.into_iter().collect() });
        if is_room {
            return JoinResult::Ask;
        }
        self.queue.push_back(key.clone());
        JoinResult::Wait(now)
    }

    /// Ends a question. Returns its clients, and the next question that the caller must ask, with the time of its first client. Drops
    /// the questions that waited in the queue for too long, with their clients.
    pub(super) fn end(
        &mut self,
        key: &QuestionKey,
        now: Duration,
    ) -> (Vec<W>, Option<(QuestionKey, Duration)>) {
        let clients = self.remove(key);
        while let Some(next) = self.queue.pop_front() {
            match self.flights.get(&next).map(|flight| flight.start) {
                Some(start) if now < start + self.limits.time => return (clients, Some((next, start))),
                Some(_) | None => drop(self.remove(&next)),
            }
        }
        (clients, None)
    }

    /// Removes a question and returns its clients.
    fn remove(&mut self, key: &QuestionKey) -> Vec<W> {
        let clients = self.flights.remove(key).map(|flight| flight.clients).unwrap_or_default();
        self.waiting -= clients.len();
        clients
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use hickory_proto::rr::{Name, RecordType};
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> QuestionKey {
        QuestionKey::plain(&Name::from_labels([format!("n{number}").as_bytes()]).unwrap(), RecordType::A)
    }

    proptest! {
        /// No key is asked twice at once, the limits hold, and every client that was not refused gets the answer to
        /// its question, exactly once.
        #[test]
        fn every_client_gets_its_answer(steps in prop::collection::vec((0_u8..8, any::<bool>()), 0..200)) {
            let limits = FlightLimits { asked: 3, waiting: 12, time: Duration::from_secs(1) };
            let mut flights = Flights::new(limits);
            let mut asked = BTreeSet::new();
            let mut expected: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
            let end = |flights: &mut Flights<usize>, asked: &mut BTreeSet<u8>, expected: &mut BTreeMap<u8, Vec<usize>>, number: u8| {
                let (clients, next) = flights.end(&key(number), Duration::ZERO);
                assert!(asked.remove(&number));
                assert_eq!(clients, expected.remove(&number).unwrap());
                if let Some((next, _)) = next {
                    assert!(asked.insert((0..8).find(|number| key(*number) == next).unwrap()));
                }
            };
            for (client, (number, is_question)) in steps.into_iter().enumerate() {
                if is_question {
                    let waiting: usize = expected.values().map(Vec::len).sum();
                    match flights.join(&key(number), Duration::ZERO, Some(client)) {
                        JoinResult::Ask => prop_assert!(asked.insert(number)),
                        JoinResult::Wait(_) => {}
                        JoinResult::Full => {
                            prop_assert_eq!(waiting, limits.waiting);
                            continue;
                        }
                    }
                    expected.entry(number).or_default().push(client);
                } else if let Some(first) = asked.first().copied() {
                    end(&mut flights, &mut asked, &mut expected, first);
                }
                prop_assert!(asked.len() <= limits.asked && flights.asked() == asked.len());
            }
            while let Some(first) = asked.first().copied() {
                end(&mut flights, &mut asked, &mut expected, first);
            }
            prop_assert!(expected.is_empty() && flights.waiting == 0);
        }
    }

    /// A renewal does not wait behind the questions of clients.
    #[test]
    fn renewals_do_not_wait() {
        let time = Duration::from_secs(5);
        let mut flights = Flights::<u8>::new(FlightLimits { asked: 1, waiting: 4, time });
        assert_eq!(flights.join(&key(1), Duration::ZERO, None), JoinResult::Ask);
        assert_eq!(flights.join(&key(2), Duration::ZERO, None), JoinResult::Full);
        assert_eq!(flights.join(&key(1), Duration::from_secs(1), Some(7)), JoinResult::Wait(Duration::ZERO));
        assert_eq!(flights.end(&key(1), Duration::from_secs(1)), (vec![7], None));
    }

    /// A question whose clients have given up is not asked; the next one in the queue is.
    #[test]
    fn questions_wait_in_the_queue_for_a_limited_time() {
        let time = Duration::from_secs(5);
        let mut flights = Flights::<u8>::new(FlightLimits { asked: 1, waiting: 8, time });
        let at = Duration::from_secs;
        assert_eq!(flights.join(&key(1), at(0), Some(1)), JoinResult::Ask);
        assert_eq!(flights.join(&key(2), at(1), Some(2)), JoinResult::Wait(at(1)));
        assert_eq!(flights.join(&key(2), at(5), Some(3)), JoinResult::Wait(at(1)));
        assert_eq!(flights.join(&key(3), at(2), Some(4)), JoinResult::Wait(at(2)));
        assert_eq!(flights.end(&key(1), at(6)), (vec![1], Some((key(3), at(2)))));
        assert_eq!((flights.waiting, flights.asked()), (1, 1));
        assert_eq!(flights.join(&key(2), at(6), Some(5)), JoinResult::Wait(at(6)));
        assert_eq!(flights.end(&key(3), at(6)), (vec![4], Some((key(2), at(6)))));
        assert_eq!(flights.end(&key(2), at(6)), (vec![5], None));
        assert_eq!((flights.waiting, flights.asked()), (0, 0));
    }
}
