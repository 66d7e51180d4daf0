//! Selection of the control server that an agent receives its state from. Does no I/O.
//!
//! Each node has its own order of the servers, so that the agents of a cluster spread over all servers, and
//! the agents of a failing server spread over the remaining ones. After the end of a stream, the next server
//! is tried at once; after all have failed, the agent waits. An agent does not return to an earlier server
//! in its order when that server recovers; it only moves on to the next one, in a circle.

use model::primitives::name::Name;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::ServerId;

/// Order in which this node tries the control servers, with the current server.
#[derive(Debug, Clone)]
pub struct Choice {
    order: Vec<ServerId>,
    at: usize,
    in_vain: usize,
}

/// Time at which to try the next server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Try the next server at once.
    AtOnce,
    /// Try the next server after a backoff, because every server has been tried.
    AfterWait,
}

impl Choice {
    /// Creates the order of the servers for this node and selects the first one.
    ///
    /// # Panics
    /// Panics if there is no server.
    #[must_use]
    pub fn new(node: &Name, urls: &[Url]) -> Self {
        assert!(!urls.is_empty(), "an agent has at least one control server");
        let mut order: Vec<_> = (0..urls.len()).map(ServerId).collect();
        // Rendezvous hashing: adding or removing a server affects only the agents it gets or had.
        order.sort_by_key(|server| std::cmp::Reverse((liking(node, &urls[server.0]), *server)));
        Self { order, at: 0, in_vain: 0 }
    }

    /// Returns the current server.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.order[self.at]
    }

    /// Selects the next server after a stream has ended, and returns the time at which to try it.
    /// `has_worked` is true if the stream had worked for a while before it ended.
    pub fn go_on(&mut self, has_worked: bool) -> Pace {
        if has_worked {
            self.in_vain = 0;
        }
        self.at = (self.at + 1) % self.order.len();
        self.in_vain += 1;
        if self.in_vain < self.order.len() {
            return Pace::AtOnce;
        }
        self.in_vain = 0;
        Pace::AfterWait
    }
}

/// Returns a hash of node and server by which the node orders the servers. The hash is stable across versions
/// of the agent.
fn liking(node: &Name, url: &Url) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(node.as_str());
    // Names contain no line feed, so the concatenation is unambiguous.
    hash.update("\n");
    hash.update(url.as_str());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn urls(count: usize) -> Vec<Url> {
        (0..count).map(|number| format!("http://control-{number}:7440").parse().unwrap()).collect()
    }

    fn name(number: usize) -> Name {
        Name::parse(&format!("node-{number}")).unwrap()
    }

    #[test]
    fn one_server_is_waited_for_each_time() {
        let mut choice = Choice::new(&name(1), &urls(1));
        for has_worked in [true, false, false, true] {
            assert_eq!((choice.go_on(has_worked), choice.server()), (Pace::AfterWait, ServerId(0)));
        }
    }

    #[test]
    fn every_other_server_is_tried_at_once_and_then_it_is_waited() {
        let mut choice = Choice::new(&name(1), &urls(3));
        let first = choice.server();
        let mut met = vec![first];
        assert_eq!(choice.go_on(true), Pace::AtOnce);
        met.push(choice.server());
        assert_eq!(choice.go_on(false), Pace::AtOnce);
        met.push(choice.server());
        assert_eq!((choice.go_on(false), choice.server()), (Pace::AfterWait, first));
        met.sort();
        assert_eq!(met, [ServerId(0), ServerId(1), ServerId(2)]);
        assert_eq!(choice.go_on(false), Pace::AtOnce, "the next round begins");
        assert_eq!(choice.go_on(true), Pace::AtOnce, "what has worked begins a round anew");
    }

    #[test]
    fn agents_spread_over_the_servers_and_a_new_one_moves_only_those_it_gets() {
        let (three, four) = (urls(3), urls(4));
        let (mut loads, mut moved) = (BTreeMap::<_, u32>::new(), 0);
        for number in 0..900 {
            let (before, after) = (Choice::new(&name(number), &three), Choice::new(&name(number), &four));
            *loads.entry(before.server()).or_default() += 1;
            if after.server() != before.server() {
                assert_eq!(after.server(), ServerId(3));
                moved += 1;
            }
        }
        assert!(loads.values().all(|load| (200..400).contains(load)), "{loads:?}");
        assert!((150..300).contains(&moved), "{moved}");
    }
}
