//! What is known of one name: its last good answer, and when to ask again. Pure; the time is an argument.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::primitives::net::forbidden;

/// Endpoints taken of one name.
const TARGETS_MAX: usize = 500;
/// The first wait after a name could not be asked for.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The bounds of how long an answer counts, and of what is believed.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) ttl_min: Duration,
    pub(super) ttl_max: Duration,
    /// Only addresses in these; all when empty.
    pub(super) allowed: Vec<IpNet>,
}

/// Where a name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) address: IpAddr,
    /// What SRV records say.
    pub(super) port: Option<u16>,
    pub(super) weight: u16,
}

/// What became of asking.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// The name leads there, for so long.
    Targets(Vec<Target>, Duration),
    /// There is no such name, or nobody said anything; in words.
    Nothing(String),
}

/// What is known of a name.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// `None` before the first good answer.
    pub(super) targets: Option<BTreeSet<Target>>,
    /// What is wrong, in words.
    pub(super) complaints: Vec<String>,
    next: Option<Instant>,
    failures: u32,
}

impl Known {
    /// When to ask; at once when `None`.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Takes an answer. What is no answer, and an answer without any address that may be one of an endpoint, leaves what was
    /// known before: a name server that is ill must not take endpoints away.
    pub(super) fn take(&mut self, bounds: &Bounds, answer: Answer, now: Instant) {
        self.complaints.clear();
        let (targets, lifetime) = match answer {
            Answer::Targets(targets, lifetime) => (targets, lifetime),
            Answer::Nothing(why) => return self.fail(bounds, why, now),
        };
        let found = targets.len();
        let mut good = BTreeSet::new();
        for target in targets {
            match refusal(bounds, target.address) {
                Some(why) => self.complaints.push(format!("{} is not taken: {why}", target.address)),
                None if good.len() < TARGETS_MAX => {
                    good.insert(target);
                }
                None => {}
            }
        }
        if found > TARGETS_MAX {
            self.complaints.push(format!("{found} answers; {TARGETS_MAX} are taken"));
        }
        if good.is_empty() {
            return self.fail(bounds, "no address that may be one of an endpoint".to_owned(), now);
        }
        self.failures = 0;
        self.targets = Some(good);
        self.next = now.checked_add(lifetime.clamp(bounds.ttl_min, bounds.ttl_max));
    }

    fn fail(&mut self, bounds: &Bounds, why: String, now: Instant) {
        let known = if self.targets.is_some() { "; what it said last stays" } else { "" };
        self.complaints.push(format!("{why}{known}"));
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(10)).min(bounds.ttl_max);
        self.failures = self.failures.saturating_add(1);
        self.next = now.checked_add(wait);
    }
}

/// Whoever answers for a name must not lead to daemons of the machine or the link, nor out of what was allowed.
fn refusal(bounds: &Bounds, address: IpAddr) -> Option<String> {
    if let Some(kind) = forbidden(address) {
        return Some(format!("it is {kind}"));
    }
    let is_allowed = bounds.allowed.is_empty() || bounds.allowed.iter().any(|net| net.contains(&address));
    (!is_allowed).then(|| "it is in none of the ranges of --allow".to_owned())
}

#[cfg(test)]
mod tests;
