//! Commit of a plan: runs of `iptables-restore` of limited size, bisection to find a Service that the kernel
//! rejects, and read-back.

use std::{collections::BTreeSet, io, sync::Arc};

use model::{kinds::resource::ServiceKey, primitives::net::IpFamily, wire::report::FailureReason};

use super::{
    IptablesBackend,
    layout::ChainId,
    plan::{self, DesiredRules, Script},
};
use crate::{KernelError, Outcome, Pass, RejectedServices};

/// Maximum number of rules in one run of `iptables-restore`. A run is atomic and holds the xtables lock until
/// it ends.
const RULES_PER_RUN: usize = 50_000;
/// Maximum number of Services that the kernel may reject in one pass (update of the kernel). If more are
/// rejected, the whole pass fails.
const REFUSED_SERVICES_MAX: usize = 32;

/// Changes that one run applies together: those of one Service, or of objects that belong to no Service.
#[derive(Debug, Clone)]
pub(super) struct ServiceChanges {
    pub(super) service: Option<Arc<ServiceKey>>,
    /// Wanted contents of chains and single rules in shared chains, or their removal. Chains in `removals` are not
    /// included.
    pub(super) wanted: DesiredRules,
    /// Chains to delete once no rule refers to them.
    pub(super) removals: BTreeSet<ChainId>,
}

impl ServiceChanges {
    pub(super) fn of(service: Option<&Arc<ServiceKey>>) -> Self {
        Self { service: service.cloned(), wanted: DesiredRules::default(), removals: BTreeSet::new() }
    }

    pub(super) fn is_failed(&self, failed: &RejectedServices) -> bool {
        self.service.as_ref().is_some_and(|service| failed.contains_key(service))
    }
}

impl IptablesBackend {
    /// Applies changes to one address family and reads the result back. Records rejected Services in
    /// `failed`. After an error the kernel state is unknown.
    pub(super) fn carry_out(
        &mut self,
        family: IpFamily,
        parts: &[ServiceChanges],
        everything: bool,
        failed: &mut RejectedServices,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let mut run = Run { family, everything, changed: BTreeSet::new(), lines: 0 };
        // The fixed part must exist before any rule marks packets for it.
        let fixed = self.write(&mut run, &DesiredRules::default(), pass)?;
        fixed.map_err(|said| refused("writing the fixed chains", said))?;
        let mut rest = parts;
        let rules: usize = parts.iter().map(|part| part.wanted.len() + part.removals.len()).sum();
        if rules <= RULES_PER_RUN {
            // Usual case: a single run, which also deletes the unreferenced chains.
            let wanted = merged(parts, true, failed);
            if self.write(&mut run, &wanted, pass)?.is_ok() {
                return self.verify(&run, parts, failed);
            }
            self.look_again(&run)?;
        }
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_length(rest));
            self.write_parts(&mut run, batch, failed, pass)?;
            rest = later;
        }
        let mut wanted = merged(parts, true, failed);
        wanted.lines.clear();
        wanted.chains.retain(|_, rules| rules.is_none());
        let outcome = self.write(&mut run, &wanted, pass)?;
        outcome.map_err(|said| refused("removing chains", said))?;
        self.verify(&run, parts, failed)
    }

    /// Writes the changes of several Services in one run of `iptables-restore`. If the kernel rejects the run,
    /// bisects the list until the rejected Service is isolated.
    fn write_parts(
        &mut self,
        run: &mut Run,
        parts: &[ServiceChanges],
        failed: &mut RejectedServices,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let wanted = merged(parts, false, failed);
        let Err(said) = self.write(run, &wanted, pass)? else { return Ok(()) };
        self.look_again(run)?;
        match parts {
            [] => Err(refused("writing rules", said)),
            [part] => {
                let Some(service) = part.service.as_ref().filter(|_| failed.len() < REFUSED_SERVICES_MAX)
                else {
                    return Err(refused("writing rules", said));
                };
                tracing::warn!(%service, message = said, "the kernel refused a Service");
                let outcome = Outcome::Failed { reason: FailureReason::KernelRefused, message: said };
                failed.insert(Arc::clone(service), outcome);
                Ok(())
            }
            parts => {
                let (first, second) = parts.split_at(parts.len() / 2);
                self.write_parts(run, first, failed, pass)?;
                self.write_parts(run, second, failed, pass)
            }
        }
    }

    /// Reads the rules of the address family again after the kernel rejected a run, because the mirror (the
    /// cached rules) may be wrong. A pass (update of the kernel) for some Services then fails, since other
    /// differences are unknown; a pass for all Services continues from the new mirror.
    fn look_again(&mut self, run: &Run) -> Result<(), KernelError> {
        let reading = |source| KernelError { action: "reading rules after a refusal".to_owned(), source };
        let seen = self.read_family(run.family).map_err(reading)?;
        let mirror = self.mirror(run.family);
        if *mirror != seen && !run.everything {
            let source = io::Error::other("the rules were changed by another program");
            return Err(KernelError { action: "writing rules".to_owned(), source });
        }
        *mirror = seen;
        Ok(())
    }

    /// Runs `iptables-restore` once, unless all chains and rules are already as wanted according to the mirror
    /// (the cached rules).
    fn write(
        &mut self,
        run: &mut Run,
        wanted: &DesiredRules,
        pass: &mut Pass,
    ) -> Result<Result<(), String>, KernelError> {
        let family = run.family;
        let fixed = self.layout.fixed(family, &self.asked.networks);
        let script = plan::plan(self.mirror(family), &fixed, wanted);
        if script.is_empty() {
            return Ok(Ok(()));
        }
        let flavour = self.tools.flavour.as_str();
        let action = || format!("writing {} lines with iptables-{flavour}-restore", script.lines());
        let writing = |source| KernelError { action: action(), source };
        let outcome = self.restore(family, &script).map_err(writing)?;
        if outcome.is_ok() {
            plan::absorb(self.mirror(family), &fixed, wanted);
            let lines = u64::try_from(script.lines()).unwrap_or(u64::MAX);
            self.counters.transactions += 1;
            self.counters.messages += lines;
            pass.writes += lines;
            run.lines += script.lines();
            run.changed.extend(script.chains());
        }
        Ok(outcome)
    }

    /// Runs `iptables-restore` with a script. Records the ruleset generation of this write, to distinguish it from
    /// changes by other programs.
    fn restore(&mut self, family: IpFamily, script: &Script) -> io::Result<Result<(), String>> {
        let before = self.own_generation()?;
        let text = script.to_string();
        let outcome = self.tools.restore(family, &text)?;
        if outcome.is_ok() {
            self.counters.bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        }
        let after = self.own_generation()?;
        let own = u32::try_from(script.tables()).unwrap_or(u32::MAX);
        let is_ours = |(before, after): (u32, u32)| after.wrapping_sub(before) == own;
        if before == self.generation && before.zip(after).is_some_and(is_ours) {
            self.generation = after;
        }
        Ok(outcome)
    }
}

/// Progress of the writes to one address family in a pass (update of the kernel).
pub(super) struct Run {
    pub(super) family: IpFamily,
    everything: bool,
    pub(super) changed: BTreeSet<ChainId>,
    pub(super) lines: usize,
}

/// Returns the wanted chains and rules of several Services as one set, optionally with the removal of their unused
/// chains.
pub(super) fn merged(
    parts: &[ServiceChanges],
    with_removals: bool,
    failed: &RejectedServices,
) -> DesiredRules {
    let mut wanted = DesiredRules::default();
    for part in parts.iter().filter(|part| !part.is_failed(failed)) {
        wanted.extend(&part.wanted);
        if with_removals {
            wanted.chains.extend(part.removals.iter().map(|chain| (chain.clone(), None)));
        }
    }
    wanted
}

/// Returns the number of Services whose changes go into the next run: as many as fit into [`RULES_PER_RUN`],
/// at least one.
fn batch_length(parts: &[ServiceChanges]) -> usize {
    let mut rules = 0;
    let fits = |part: &&ServiceChanges| {
        rules += part.wanted.len();
        rules <= RULES_PER_RUN
    };
    parts.iter().take_while(fits).count().max(1).min(parts.len())
}

fn refused(action: &str, said: String) -> KernelError {
    KernelError { action: action.to_owned(), source: io::Error::other(said) }
}
