//! Schedules all health checks of this node and stores their state. Pure: time and randomness are arguments,
//! and the caller runs the probes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use base::Refusals;
use model::{
    kinds::{endpoint_health::CheckKey, health_check::HealthCheck, resource::ServiceKey},
    observed::health::default_check,
    primitives::{name::Name, quantity::Timestamp},
};
use tracing::info;

use super::{
    machine::{self, Change, Machine, Rules},
    plan::{Changes, Delta, Plan},
    probe::{Probe, Recipe},
    refusals::{Limit, Streaks},
    slots::Slots,
    status::CheckedEndpoints,
    verdict::{Outcome, Verdict},
};

/// Message about a check that was ended to make room for another one.
const EVICTED: &str = "the check ended early, because this node runs too many checks at once";
/// Odd constant by which random bits are multiplied, so that checks that start together get different random
/// numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Key of one check: the Service and the endpoint to check.
pub(super) type Id = (ServiceKey, CheckKey);

/// Time at which an event is processed, and random bits that vary the delay until the next check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
    pub(super) random: u64,
}

/// Scheduler and state of all checks of this node.
pub(super) struct Engine {
    plan: Plan,
    services: BTreeMap<ServiceKey, Group>,
    due: BTreeSet<(Instant, Id)>,
    slots: Slots,
    streaks: Streaks<Id>,
    left_out: BTreeMap<ServiceKey, usize>,
    checked: CheckedEndpoints,
    change: Change,
}

/// Checks that start now, and running checks that must end.
#[derive(Default)]
pub(super) struct StartedChecks {
    /// Checks to abort, because other checks use their slots. They have no result.
    pub(super) evicted: Vec<Id>,
    /// Checks to run, each with its probe.
    pub(super) probes: Vec<(Id, Probe)>,
}

/// Health checks of one Service, with their common configuration.
struct Group {
    check: Arc<HealthCheck>,
    /// Prepared parameters of the probes, or the reason why no endpoint of the Service can be probed.
    recipe: Result<Recipe, String>,
    checks: BTreeMap<CheckKey, Check>,
}

struct Check {
    machine: Machine,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Check that is not running and is scheduled for this time.
    Due(Instant),
    /// Check whose scheduled time has passed and that waits, because the maximum number of checks is
    /// running.
    Waiting,
    /// Running check, with its start time.
    Running(Instant),
    /// Check that never runs, because the endpoint cannot be probed.
    Never,
}

impl Engine {
    pub(super) fn new(node: Name) -> Self {
        Self {
            plan: Plan::new(node),
            services: BTreeMap::new(),
            due: BTreeSet::new(),
            slots: Slots::default(),
            streaks: Streaks::default(),
            left_out: BTreeMap::new(),
            checked: CheckedEndpoints::default(),
            change: Change::Nothing,
        }
    }

    /// Applies state changes and returns the running checks to abort. The caller must report each aborted
    /// check by [`Self::cut`], so that a waiting check can start.
    pub(super) fn follow(&mut self, changes: Changes, mut moment: Moment) -> Vec<Id> {
        let mut cut = Vec::new();
        for delta in self.plan.follow(changes) {
            self.take(delta, &mut moment, &mut cut);
        }
        self.warn();
        cut
    }

    fn take(&mut self, delta: Delta, moment: &mut Moment, cut: &mut Vec<Id>) {
        let Delta { service, check, is_other_check, begin, end, left_out } = delta;
        if left_out == 0 {
            self.left_out.remove(&service);
        } else {
            self.left_out.insert(service.clone(), left_out);
        }
        for key in end {
            self.end(&service, key, cut);
        }
        let Some(check) = check else {
            self.services.remove(&service);
            return;
        };
        if !self.services.contains_key(&service) {
            let group = Group {
                check: Arc::clone(&check),
                recipe: Recipe::new(Arc::clone(&check)),
                checks: BTreeMap::new(),
            };
            self.services.insert(service.clone(), group);
        } else if is_other_check {
            self.renew(&service, &check, moment, cut);
        }
        for key in begin {
            let delay = Duration::from_millis(check.start_delay_ms.into());
            let machine = Machine::new(delay, moment.now, moment.wall);
            let new = Check { machine, stage: Stage::Never };
            if let Some(group) = self.services.get_mut(&service) {
                group.checks.insert(key, new);
            }
            self.begin(&service, key, moment);
        }
    }

    /// Applies a changed check configuration to a Service. Endpoints keep their health until new results
    /// change it.
    fn renew(
        &mut self,
        service: &ServiceKey,
        check: &Arc<HealthCheck>,
        moment: &mut Moment,
        cut: &mut Vec<Id>,
    ) {
        let Some(group) = self.services.get_mut(service) else { return };
        group.check = Arc::clone(check);
        group.recipe = Recipe::new(Arc::clone(check));
        let keys: Vec<_> = group.checks.keys().copied().collect();
        for key in keys {
            self.halt(service, key, cut);
            self.begin(service, key, moment);
        }
    }

    /// Schedules the first check of an endpoint with the current configuration. If the endpoint cannot be
    /// probed, sets its state to pending with the reason.
    fn begin(&mut self, service: &ServiceKey, key: CheckKey, moment: &mut Moment) {
        moment.random = moment.random.rotate_left(17).wrapping_mul(SPREAD) ^ SPREAD;
        let Some(group) = self.services.get_mut(service) else { return };
        let Some(check) = group.checks.get_mut(&key) else { return };
        let probe = group.recipe.as_ref().map_err(Clone::clone).and_then(|recipe| recipe.probe(key));
        if let Err(reason) = probe {
            check.stage = Stage::Never;
            let change = check.machine.give_up(&reason, moment.wall);
            return self.show(service, key, change.max(Change::Words));
        }
        check.machine.begin_anew();
        let first_due =
            if *group.check == default_check() { machine::first_due_by_default } else { machine::first_due };
        let due = first_due(moment.now, interval(&group.check), moment.random);
        check.stage = Stage::Due(due);
        self.due.insert((due, (service.clone(), key)));
        self.show(service, key, Change::Words);
    }

    fn end(&mut self, service: &ServiceKey, key: CheckKey, cut: &mut Vec<Id>) {
        self.halt(service, key, cut);
        if let Some(group) = self.services.get_mut(service) {
            group.checks.remove(&key);
        }
        if let Some(reports) = self.checked.services.get_mut(service) {
            reports.remove(&key);
            if reports.is_empty() {
                self.checked.services.remove(service);
            }
        }
        self.change = Change::State;
    }

    fn halt(&mut self, service: &ServiceKey, key: CheckKey, cut: &mut Vec<Id>) {
        let check = self.services.get_mut(service).and_then(|group| group.checks.get_mut(&key));
        let Some(check) = check else { return };
        match std::mem::replace(&mut check.stage, Stage::Never) {
            Stage::Due(at) => {
                self.due.remove(&(at, (service.clone(), key)));
            }
            Stage::Waiting => self.slots.withdraw(service, key),
            Stage::Running(_) => cut.push((service.clone(), key)),
            Stage::Never => {}
        }
    }

    /// Returns the time at which [`Self::start`] must be called next; `None` if no check is scheduled.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first_due().into_iter().chain(self.slots.next_eviction()).min()
    }

    fn first_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Starts checks whose scheduled time has passed, as many as the limits of running checks allow.
    pub(super) fn start(&mut self, moment: Moment) -> StartedChecks {
        let Moment { now, .. } = moment;
        while self.first_due().is_some_and(|at| at <= now) {
            let Some((_, (service, key))) = self.due.pop_first() else { break };
            if let Some(check) = check_mut(&mut self.services, &service, key) {
                check.stage = Stage::Waiting;
                self.slots.ask(&service, key);
            }
        }
        let mut started = StartedChecks::default();
        loop {
            while let Some((service, key)) = self.slots.next(now) {
                match self.ask(&service, key, now) {
                    Some(probe) => started.probes.push(((service, key), probe)),
                    None => self.slots.leave(&service, key),
                }
            }
            let Some(evicted) = self.slots.evict(now) else { return started };
            self.finish(&evicted, &Verdict::new(Outcome::NotAsked, EVICTED), moment);
            started.evicted.push(evicted);
        }
    }

    fn ask(&mut self, service: &ServiceKey, key: CheckKey, now: Instant) -> Option<Probe> {
        let group = self.services.get_mut(service)?;
        let probe = group.recipe.as_ref().ok()?.probe(key).ok()?;
        group.checks.get_mut(&key)?.stage = Stage::Running(now);
        Some(probe)
    }

    /// Applies the result of a check to the endpoint's health and schedules the next check.
    pub(super) fn finish(&mut self, (service, key): &Id, verdict: &Verdict, moment: Moment) {
        self.slots.leave(service, *key);
        let Some(group) = self.services.get_mut(service) else { return };
        let Some(check) = group.checks.get_mut(key) else { return };
        let Stage::Running(begun) = check.stage else { return };
        let rules = Rules { rise: group.check.rise, fall: group.check.fall };
        let change = check.machine.handle(verdict, rules, moment.now, moment.wall);
        let interval = check.machine.interval_after(verdict.outcome, interval(&group.check));
        let due = machine::next_due(begun, interval, moment.random).max(moment.now);
        check.stage = Stage::Due(due);
        self.due.insert((due, (service.clone(), *key)));
        if change == Change::State {
            let (state, message) = (check.machine.state(), &verdict.words);
            let CheckKey { address, port } = key;
            info!(%service, %address, %port, ?state, message, "the health state of an endpoint has changed");
        }
        if change != Change::Nothing {
            self.show(service, *key, change);
        }
    }

    /// Applies passive observations: for Services with passive checking, endpoints that refuse too many
    /// client connections become unhealthy.
    pub(super) fn refuse(&mut self, refusals: &[Refusals], moment: Moment) {
        let mut rows = BTreeMap::new();
        for Refusals { service, target, in_a_row } in refusals {
            let Some(group) = self.services.get(service).filter(|group| group.check.passive) else {
                continue;
            };
            let Some(port) = group.check.port.or(target.port) else { continue };
            let key = CheckKey { address: target.address, port };
            if group.checks.contains_key(&key) {
                let limit = Limit { fall: group.check.fall, interval: interval(&group.check) };
                // Several ports may share one check.
                let row = rows.entry((service.clone(), key)).or_insert((0, limit));
                row.0 = row.0.max(*in_a_row);
            }
        }
        for ((service, key), in_a_row) in self.streaks.read(moment.now, &rows) {
            let Some(check) = check_mut(&mut self.services, &service, key) else { continue };
            let change = check.machine.refuse(in_a_row, moment.now, moment.wall);
            if change == Change::State {
                let CheckKey { address, port } = key;
                info!(%service, %address, %port, in_a_row, "an endpoint refuses connections");
            }
            if change != Change::Nothing {
                self.show(&service, key, change);
            }
        }
    }

    /// Counts a running check as ended after it was aborted, so that a waiting check can start.
    pub(super) fn cut(&mut self, (service, key): &Id) {
        self.slots.leave(service, *key);
    }

    /// Returns the number of checks that should have started but wait, because the maximum number of checks
    /// is running.
    pub(super) const fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Returns the health of all endpoints, and the most significant change since the last call.
    pub(super) fn shown(&mut self) -> (Change, &CheckedEndpoints) {
        (std::mem::replace(&mut self.change, Change::Nothing), &self.checked)
    }

    fn show(&mut self, service: &ServiceKey, key: CheckKey, change: Change) {
        let Some(check) = self.services.get(service).and_then(|group| group.checks.get(&key)) else { return };
        let reports = self.checked.services.entry(service.clone()).or_default();
        let is_new = reports.insert(key, check.machine.report(key)).is_none();
        // A newly checked endpoint counts as a state change.
        self.change = self.change.max(if is_new { Change::State } else { change });
    }

    fn warn(&mut self) {
        let total: usize = self.left_out.values().sum();
        let warning = self.left_out.keys().next().map(|service| {
            format!(
                "{total} endpoints are not checked by this node because their Services have too many \
                     endpoints, for example {service}"
            )
        });
        if self.checked.warning != warning {
            self.checked.warning = warning;
            self.change = Change::State;
        }
    }
}

fn check_mut<'a>(
    services: &'a mut BTreeMap<ServiceKey, Group>,
    service: &ServiceKey,
    key: CheckKey,
) -> Option<&'a mut Check> {
    services.get_mut(service)?.checks.get_mut(&key)
}

fn interval(check: &HealthCheck) -> Duration {
    Duration::from_millis(check.interval_ms.into())
}
