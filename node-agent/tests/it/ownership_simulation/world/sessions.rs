//! Simulated BFD sessions between the nodes of the ownership simulation, with detection times.

use std::collections::BTreeMap;

use node_agent::announce::machine::Liveness;

use super::{DETECTION_MS, SESSION_MS, Session, World};

/// Maximum difference between the times at which the two ends of a session come up, in milliseconds.
const ASYMMETRY_MS: u64 = 300;
/// Number of consecutive lost packets after which a session fails.
const MULTIPLIER: u64 = 3;

impl World {
    /// Advances the time by `ms` milliseconds while `percent` of the BFD packets are lost, independently for each pair of
    /// nodes and each direction. Other packets are not lost.
    pub(crate) fn run_with_bfd_loss(&mut self, ms: u64, percent: u64) {
        let interval_ms = DETECTION_MS / MULTIPLIER;
        let mut lost = BTreeMap::<(usize, usize), u64>::new();
        for _ in 0..ms / interval_ms {
            self.run(interval_ms);
            for one in 0..self.nodes.len() {
                for other in one + 1..self.nodes.len() {
                    let ends = [(one, other), (other, one)];
                    for end in ends {
                        let is_lost = self.next_random() % 100 < percent;
                        let count = lost.entry(end).or_default();
                        *count = if is_lost { *count + 1 } else { 0 };
                    }
                    if ends.iter().any(|end| lost[end] >= MULTIPLIER) {
                        // The end that detects the failure reports it to the other with its next packets.
                        ends.iter().for_each(|end| self.fail_session(*end));
                        self.report_all();
                    }
                }
            }
        }
    }

    fn fail_session(&mut self, (one, other): (usize, usize)) {
        let before = self.session(one, other);
        self.nodes[one].sessions.insert(other, Session::Down { reached_at: None });
        if let Session::Up { .. } = before {
            self.set_liveness(one, other, Liveness::Down);
        }
    }

    pub(super) fn reaches(&self, one: usize, other: usize) -> bool {
        let lives = |node: usize| self.nodes[node].owners.is_some() && self.nodes[node].paused.is_none();
        self.sides[one] == self.sides[other] && lives(one) && lives(other)
    }

    pub(super) fn next_session_change(&self) -> Option<u64> {
        let mut next = None;
        for one in 0..self.nodes.len() {
            for other in (0..self.nodes.len()).filter(|other| *other != one) {
                if self.nodes[one].owners.is_none() || self.nodes[one].paused.is_some() {
                    continue;
                }
                let reaches = self.reaches(one, other);
                let at = match self.session(one, other) {
                    Session::Up { lost_at } => {
                        (!reaches).then(|| lost_at.map_or(self.now, |at| at + DETECTION_MS))
                    }
                    Session::Down { reached_at } => (reaches && self.nodes[other].leaving.is_empty())
                        .then(|| reached_at.map_or(self.now, |at| at + SESSION_MS)),
                };
                next = [next, at].into_iter().flatten().min();
            }
        }
        next
    }

    pub(super) fn session(&self, one: usize, other: usize) -> Session {
        let none = Session::Down { reached_at: None };
        self.nodes[one].sessions.get(&other).copied().unwrap_or(none)
    }

    pub(super) fn change_sessions(&mut self) {
        for one in 0..self.nodes.len() {
            for other in (0..self.nodes.len()).filter(|other| *other != one) {
                if self.nodes[one].owners.is_none() || self.nodes[one].paused.is_some() {
                    continue;
                }
                let (before, reaches, now) = (self.session(one, other), self.reaches(one, other), self.now);
                // One end of a session comes up before the other.
                let begins_at = now + self.next_random() % ASYMMETRY_MS;
                let leaves = !self.nodes[other].leaving.is_empty();
                let after = match before {
                    Session::Up { .. } if reaches => Session::Up { lost_at: None },
                    Session::Up { lost_at: None } => Session::Up { lost_at: Some(now) },
                    Session::Up { lost_at: Some(at) } if now >= at + DETECTION_MS => {
                        Session::Down { reached_at: None }
                    }
                    Session::Down { .. } if !reaches || leaves => Session::Down { reached_at: None },
                    Session::Down { reached_at: None } => Session::Down { reached_at: Some(begins_at) },
                    Session::Down { reached_at: Some(at) } if now >= at + SESSION_MS => {
                        Session::Up { lost_at: None }
                    }
                    same @ (Session::Up { .. } | Session::Down { .. }) => same,
                };
                self.nodes[one].sessions.insert(other, after);
                let liveness = match (before, after) {
                    (Session::Up { .. }, Session::Down { .. }) => Liveness::Down,
                    (Session::Down { .. }, Session::Up { .. }) => Liveness::Up,
                    _ => continue,
                };
                self.set_liveness(one, other, liveness);
                self.report_all();
            }
        }
    }
}
