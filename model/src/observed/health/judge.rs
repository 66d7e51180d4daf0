//! Decisions from health check results: removal of an endpoint from service, its return, and slow start. The
//! share of an endpoint is the percentage of its weight that is in use.
//!
//! ```text
//!                   majority Unhealthy                 majority Healthy, with slow start
//!   share 100 % ──────────────────────────▶ share 0 % ──────────────────────────────────▶ share 10 % … 90 %
//!      ▲  ▲                                  │    ▲                                         │     │
//!      │  └── majority Healthy ──────────────┘    └── majority Unhealthy ───────────────────┘     │
//!      └── end of slow start ─────────────────────────────────────────────────────────────────────┘
//! ```
//! Without slow start, a healthy endpoint returns to 100 % at once. Without a majority of the checking nodes,
//! or without any result, the last decision remains in force: silence neither removes an endpoint from
//! service nor returns it.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckResult, HealthBook, checkers, checks, lost_nodes, unchecked};
use crate::{
    cluster::compiled::CompiledService,
    kinds::{
        endpoint_health::{EndpointHealthSpec, EndpointVerdict},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Timestamp},
};
use crate::{kinds::endpoint_health::CheckKey, wire::report::CheckState};

/// Number of steps of equal duration in slow start. The share is 10 % in the first step and 90 % in the last;
/// afterwards the endpoint has its full weight.
const STEPS: i64 = 9;

/// Inputs of a health decision.
#[derive(Clone, Copy)]
pub struct HealthInputs<'a> {
    /// Check results reported by the nodes.
    pub book: &'a HealthBook,
    /// Nodes with a live agent, from which the nodes that check an endpoint are selected
    /// (`NetworkState.checkers`).
    pub checkers: &'a BTreeSet<Name>,
    /// Function that returns true if the agent of a node currently reports. Results of nodes with a silent
    /// agent are ignored.
    pub is_reporting: &'a dyn Fn(&Name) -> bool,
    /// Lost Nodes whose data path is dead ([`super::dead_nodes`]).
    pub dead: &'a BTreeSet<Name>,
    /// Time at which the decision is made.
    pub now: Timestamp,
}

/// Results of the nodes that check one endpoint.
#[derive(Debug)]
pub struct Tally<'a> {
    /// Nodes that should check the endpoint.
    pub chosen: BTreeSet<&'a Name>,
    /// Number of nodes in `chosen` whose agents report.
    pub reporting: usize,
    /// Results of the nodes in `chosen` whose agents report.
    pub results: BTreeMap<&'a Name, &'a CheckResult>,
}

impl<'a> Tally<'a> {
    /// Collects the check results for one endpoint.
    #[must_use]
    pub fn of(
        inputs: &HealthInputs<'a>,
        service: &ServiceKey,
        key: &CheckKey,
        own: Option<&'a Name>,
    ) -> Self {
        let chosen = checkers(key, own, inputs.checkers);
        let reporting: Vec<_> = chosen.iter().copied().filter(|node| (inputs.is_reporting)(node)).collect();
        let result = |node: &&'a Name| Some((*node, inputs.book.result(service, key, node)?));
        let results = reporting.iter().filter_map(result).collect();
        Self { chosen, reporting: reporting.len(), results }
    }

    /// Returns the state that the majority of the reporting nodes observes: `Pending` without a majority,
    /// `None` without any result. A reporting node that has no result yet counts against the majority, so
    /// that a single early result does not decide.
    #[must_use]
    pub fn state(&self) -> Option<CheckState> {
        if self.results.is_empty() {
            return None;
        }
        let is_majority = |state| 2 * self.with_state(state).count() > self.reporting;
        let decided =
            [CheckState::Healthy, CheckState::Unhealthy].into_iter().find(|state| is_majority(*state));
        Some(decided.unwrap_or(CheckState::Pending))
    }

    /// Returns the nodes that observe the given state, with their results.
    pub fn with_state(&self, state: CheckState) -> impl Iterator<Item = (&'a Name, &'a CheckResult)> + '_ {
        self.results
            .iter()
            .map(|(node, result)| (*node, *result))
            .filter(move |(_, result)| result.state == state)
    }
}

/// Decision about the health of a Service's endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthDecision {
    /// New content of the Service's health record: a verdict for each endpoint that is unhealthy or in slow
    /// start. All other endpoints are fully in service.
    pub endpoints: BTreeMap<CheckKey, EndpointVerdict>,
    /// Endpoints that were in service until now and become unhealthy by this decision, except endpoints on lost
    /// Nodes: the leases of Nodes limit their number.
    pub leaving: BTreeSet<CheckKey>,
    /// Time at which the share of an endpoint in slow start increases next; `None` if no endpoint is in slow
    /// start.
    pub next: Option<Timestamp>,
}

/// Decides for each checked endpoint of a Service whether it is unhealthy, in slow start or fully in service.
/// Endpoints on lost Nodes that nobody can check are unhealthy if their Node is dead. `current` is the present
/// health record.
#[must_use]
pub fn judge(
    inputs: &HealthInputs<'_>,
    service: &CompiledService,
    current: Option<&EndpointHealthSpec>,
) -> HealthDecision {
    let slow_start_secs =
        service.health_check.as_ref().map_or(0, |check| i64::from(check.slow_start_seconds));
    let mut decision = HealthDecision::default();
    let lost = lost_nodes(service);
    for (key, own) in checks(service) {
        let before = current.and_then(|record| record.endpoints.get(&key));
        let tally = Tally::of(inputs, &service.service, &key, own.as_ref());
        let after = match tally.state() {
            Some(CheckState::Unhealthy) => Some(take_out(inputs, &tally, before)),
            Some(CheckState::Healthy) if before.is_some_and(EndpointVerdict::is_out) => {
                (slow_start_secs > 0).then(|| bring_back(inputs, &tally))
            }
            Some(CheckState::Healthy | CheckState::Pending) | None => before.cloned(),
        };
        let Some(verdict) = after else { continue };
        if verdict.is_out() {
            let is_on_lost_node = own.as_ref().is_some_and(|own| lost.contains(own));
            if !is_on_lost_node && !before.is_some_and(EndpointVerdict::is_out) {
                decision.leaving.insert(key);
            }
            decision.endpoints.insert(key, verdict);
        } else if let Some((share, next)) = grown(verdict.since, slow_start_secs, inputs.now) {
            decision.next = decision.next.into_iter().chain([next]).min();
            decision.endpoints.insert(key, EndpointVerdict { share, ..verdict });
        }
    }
    for (key, node) in unchecked(service).into_iter().filter(|(_, node)| inputs.dead.contains(node)) {
        let before = current.and_then(|record| record.endpoints.get(&key)).filter(|before| before.is_out());
        decision.endpoints.insert(key, before.cloned().unwrap_or_else(|| with_dead_node(inputs, &node)));
    }
    decision
}

/// Returns the verdict of an endpoint that nobody can check and whose Node is dead.
fn with_dead_node(inputs: &HealthInputs<'_>, node: &Name) -> EndpointVerdict {
    EndpointVerdict {
        share: 0,
        since: inputs.now,
        message: format!("the agent of {node} is silent, and no checked endpoint of {node} answers"),
        checkers: BTreeSet::new(),
    }
}

/// Returns the verdict of an unhealthy endpoint. If the endpoint was unhealthy before, the earlier verdict is
/// returned, even if checks now fail for another reason.
fn take_out(
    inputs: &HealthInputs<'_>,
    tally: &Tally<'_>,
    before: Option<&EndpointVerdict>,
) -> EndpointVerdict {
    if let Some(before) = before.filter(|before| before.is_out()) {
        return before.clone();
    }
    verdict(inputs, tally, CheckState::Unhealthy)
}

fn bring_back(inputs: &HealthInputs<'_>, tally: &Tally<'_>) -> EndpointVerdict {
    verdict(inputs, tally, CheckState::Healthy)
}

/// Creates a verdict with the message of the newest result in the given state. The share is 0 for unhealthy
/// endpoints, otherwise 10 %, the first step of slow start.
fn verdict(inputs: &HealthInputs<'_>, tally: &Tally<'_>, state: CheckState) -> EndpointVerdict {
    let newest = tally.with_state(state).max_by_key(|(_, result)| result.since);
    EndpointVerdict {
        share: if state == CheckState::Unhealthy { 0 } else { 10 },
        since: inputs.now,
        message: newest.map(|(_, result)| result.message.clone()).unwrap_or_default(),
        checkers: tally.with_state(state).map(|(node, _)| node.clone()).collect(),
    }
}

/// Returns the present share in percent of an endpoint that returned to service at `since`, and the time at
/// which it increases next; `None` if the slow start is over.
fn grown(since: Timestamp, slow_start_secs: i64, now: Timestamp) -> Option<(u8, Timestamp)> {
    let elapsed = now.unix_seconds().saturating_sub(since.unix_seconds()).max(0);
    if elapsed >= slow_start_secs {
        return None;
    }
    let step = elapsed * STEPS / slow_start_secs;
    let next = ((step + 1) * slow_start_secs + STEPS - 1) / STEPS;
    let share = u8::try_from(10 * (step + 1)).expect("there are nine steps of a tenth");
    Some((share, Timestamp::from_unix_seconds(since.unix_seconds() + next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_by_tenths_and_is_whole_at_the_end() {
        let at = |secs: i64| Timestamp::from_unix_seconds(1_771_000_000 + secs);
        let shares: Vec<_> =
            (0..=20).map(|secs| grown(at(0), 18, at(secs)).map(|(share, _)| share)).collect();
        let expected: Vec<_> = (0..18).map(|secs| Some(10 * (secs / 2 + 1))).chain([None; 3]).collect();
        assert_eq!(shares, expected);
        assert_eq!(grown(at(0), 18, at(3)), Some((20, at(4))));
        assert_eq!(grown(at(0), 1, at(0)), Some((10, at(1))), "less than a second a step");
        assert_eq!(grown(at(0), 0, at(0)), None, "no slow start");
        assert_eq!(grown(at(10), 3600, at(0)), Some((10, at(410))), "a clock that went back");
    }
}
