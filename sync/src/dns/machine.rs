//! State machine of one DNS name: its last good answer and the time of the next query. Pure; the time is an
//! argument.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::primitives::net::forbidden;

/// Maximum number of endpoints per DNS name.
const TARGETS_MAX: usize = 500;
/// Initial retry delay after a failed query.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// Limits on the validity and the addresses of DNS answers.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) ttl_min: Duration,
    pub(super) ttl_max: Duration,
    /// Accepted address ranges; all addresses if empty.
    pub(super) allowed: Vec<IpNet>,
}

/// Endpoint to which a DNS name resolves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) address: IpAddr,
    /// Port from the SRV record; `None` for address records.
    pub(super) port: Option<u16>,
    pub(super) weight: u16,
}

/// Result of querying one DNS name.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// Endpoints to which the DNS name resolves, with the remaining TTL of the answer.
    Targets(Vec<Target>, Duration),
    /// No endpoints: the DNS name does not exist, or the query failed. Contains the reason.
    Nothing(String),
}

/// State of one DNS name: its last good endpoints, and the time of the next query.
#[derive(Debug, Clone, Default)]
pub(super) struct NameState {
    /// Endpoints of the last good answer; `None` before the first one.
    pub(super) targets: Option<BTreeSet<Target>>,
    /// Problems of the last query result; replaced with each new result.
    pub(super) complaints: Vec<String>,
    next: Option<Instant>,
    failures: u32,
}

impl NameState {
    /// Returns the time of the next query; `None` means now.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Applies the answer to a query at time `now`. A failed query, and an answer without any valid endpoint
    /// address, keeps the previous endpoints: a faulty name server must not remove endpoints.
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
                Some(why) => self.complaints.push(format!("{} is rejected: {why}", target.address)),
                None if good.len() < TARGETS_MAX => {
                    good.insert(target);
                }
                None => {}
            }
        }
        if found > TARGETS_MAX {
            self.complaints.push(format!("{found} answers; only {TARGETS_MAX} are used"));
        }
        if good.is_empty() {
            return self.fail(bounds, "no valid endpoint address".to_owned(), now);
        }
        self.failures = 0;
        self.targets = Some(good);
        self.next = now.checked_add(lifetime.clamp(bounds.ttl_min, bounds.ttl_max));
    }

    fn fail(&mut self, bounds: &Bounds, why: String, now: Instant) {
        let known = if self.targets.is_some() { "; keeping the last answer" } else { "" };
        self.complaints.push(format!("{why}{known}"));
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(10)).min(bounds.ttl_max);
        self.failures = self.failures.saturating_add(1);
        self.next = now.checked_add(wait);
    }
}

/// Returns the reason why a resolved address must not be used, or `None` if it may be used. A name server
/// must not be able to direct traffic to the machine itself (loopback), to its local link, or outside the
/// allowed ranges.
fn refusal(bounds: &Bounds, address: IpAddr) -> Option<String> {
    if let Some(kind) = forbidden(address) {
        return Some(format!("the address is {kind}"));
    }
    let is_allowed = bounds.allowed.is_empty() || bounds.allowed.iter().any(|net| net.contains(&address));
    (!is_allowed).then(|| "the address is in none of the ranges of --allow".to_owned())
}

#[cfg(test)]
mod tests;
