//! Carrying out what is wanted: runs of bounded size, the search for a Service that the kernel refuses, and reading back.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use model::{kinds::resource::ServiceKey, primitives::net::IpFamily, wire::report::FailureReason};

use super::{
    IptablesBackend,
    layout::ChainId,
    plan::{self, Script, Wanted},
};
use crate::dataplane::{KernelError, Outcome, Pass};

/// Rules in one run: it is taken whole, and holds a lock meanwhile.
const RULES_PER_RUN: usize = 50_000;
/// Services that the kernel may refuse in a pass before it is the kernel that is at fault.
const REFUSED_SERVICES_MAX: usize = 32;

pub(super) type Failed = BTreeMap<Arc<ServiceKey>, Outcome>;

/// What should become of one Service, or of what belongs to none.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) service: Option<Arc<ServiceKey>>,
    /// Chains and lines that are there or not, other than
    pub(super) wanted: Wanted,
    /// chains that go when nothing leads to them any more.
    pub(super) removals: BTreeSet<ChainId>,
}

impl Part {
    pub(super) fn of(service: Option<&Arc<ServiceKey>>) -> Self {
        Self { service: service.cloned(), wanted: Wanted::default(), removals: BTreeSet::new() }
    }

    pub(super) fn is_failed(&self, failed: &Failed) -> bool {
        self.service.as_ref().is_some_and(|service| failed.contains_key(service))
    }
}

impl IptablesBackend {
    /// Brings one family to what is wanted and reads it back. Notes the Services that the kernel refused; an error means
    /// that nothing is known any more.
    pub(super) fn carry_out(
        &mut self,
        family: IpFamily,
        parts: &[Part],
        everything: bool,
        failed: &mut Failed,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let mut run = Run { family, everything, changed: BTreeSet::new(), lines: 0 };
        // The fixed part is there before anything marks packets for it.
        let fixed = self.write(&mut run, &Wanted::default(), pass)?;
        fixed.map_err(|said| refused("writing the fixed chains", said))?;
        let mut rest = parts;
        let rules: usize = parts.iter().map(|part| part.wanted.len() + part.removals.len()).sum();
        if rules <= RULES_PER_RUN {
            // The usual case is one run, in which what nothing leads to any more goes as well.
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

    /// Writes parts in one run. When it is refused, halves are tried until the refused Service is alone.
    fn write_parts(
        &mut self,
        run: &mut Run,
        parts: &[Part],
        failed: &mut Failed,
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

    /// After a refusal: what we believed of the kernel may be wrong. A pass over some Services cannot know what else
    /// is, so it fails; one over everything goes on from what is seen.
    fn look_again(&mut self, run: &Run) -> Result<(), KernelError> {
        let reading = |source| KernelError { action: "reading rules after a refusal".to_owned(), source };
        let seen = self.read_family(run.family).map_err(reading)?;
        let mirror = self.mirror(run.family);
        if *mirror != seen && !run.everything {
            let source = io::Error::other("the rules are not as they were left");
            return Err(KernelError { action: "writing rules".to_owned(), source });
        }
        *mirror = seen;
        Ok(())
    }

    /// One run of `iptables-restore`, if anything differs.
    fn write(
        &mut self,
        run: &mut Run,
        wanted: &Wanted,
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

    /// Writes, and keeps the generation of our own change apart from those of others.
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

/// What has been written into one family in a pass.
pub(super) struct Run {
    pub(super) family: IpFamily,
    everything: bool,
    pub(super) changed: BTreeSet<ChainId>,
    pub(super) lines: usize,
}

/// What the parts want together, with the chains that go if those shall be named.
pub(super) fn merged(parts: &[Part], with_removals: bool, failed: &Failed) -> Wanted {
    let mut wanted = Wanted::default();
    for part in parts.iter().filter(|part| !part.is_failed(failed)) {
        wanted.extend(&part.wanted);
        if with_removals {
            wanted.chains.extend(part.removals.iter().map(|chain| (chain.clone(), None)));
        }
    }
    wanted
}

/// How many parts the next run takes: as many as fit, at least one.
fn batch_length(parts: &[Part]) -> usize {
    let mut rules = 0;
    let fits = |part: &&Part| {
        rules += part.wanted.len();
        rules <= RULES_PER_RUN
    };
    parts.iter().take_while(fits).count().max(1).min(parts.len())
}

fn refused(action: &str, said: String) -> KernelError {
    KernelError { action: action.to_owned(), source: io::Error::other(said) }
}
