//! Read-back after a run of `iptables-restore`: changed chains one by one if they are few, otherwise the
//! whole address family.

use std::{io, sync::Arc};

use model::wire::report::FailureReason;

use super::{
    IptablesBackend,
    commit::{Run, ServiceChanges},
    mirror::IptablesMirror,
    parse,
    plan::{self, DesiredRules},
    tools::Flavour,
};
use crate::{KernelError, Outcome, RejectedServices};

/// Maximum number of changed chains that are read back one by one. Beyond it, reading everything is cheaper.
const CHAINS_READ_ONE_BY_ONE_MAX: usize = 8;

impl IptablesBackend {
    /// Compares the written chains with the kernel. Adds the Services with a difference to `failed`.
    pub(super) fn verify(
        &mut self,
        run: &Run,
        parts: &[ServiceChanges],
        failed: &mut RejectedServices,
    ) -> Result<(), KernelError> {
        if run.lines == 0 {
            return Ok(());
        }
        let reading = |source| KernelError { action: "reading back what was written".to_owned(), source };
        self.refresh(run).map_err(reading)?;
        let fixed = self.layout.fixed(run.family, &self.asked.networks);
        let mirror = self.mirror(run.family);
        let is_different = |wanted: &DesiredRules| !plan::plan(mirror, &fixed, wanted).is_empty();
        if is_different(&DesiredRules::default()) {
            return Err(differs("the fixed chains"));
        }
        let parts = parts.iter().filter(|part| !part.is_failed(failed));
        let wrong: Vec<_> = parts.filter(|part| is_different(&part.wanted)).collect();
        for part in wrong {
            let Some(service) = &part.service else {
                return Err(differs("objects that belong to no Service"));
            };
            let message = "the kernel returned other rules than were written".to_owned();
            let outcome = Outcome::Failed { reason: FailureReason::VerificationFailed, message };
            failed.insert(Arc::clone(service), outcome);
            self.generation = None;
        }
        Ok(())
    }

    /// Reads back the chains that `run` has written, from the kernel into the mirror (copy in memory). The
    /// nft flavor can read single chains; the legacy tables can only be read as a whole.
    fn refresh(&mut self, run: &Run) -> io::Result<()> {
        let Run { family, ref changed, .. } = *run;
        let are_ours = changed.iter().all(|chain| self.layout.is_ours(chain.table, &chain.name));
        let one_by_one =
            self.tools.flavour == Flavour::Nft && are_ours && changed.len() <= CHAINS_READ_ONE_BY_ONE_MAX;
        if !one_by_one {
            *self.mirror(family) = self.read_family(family)?;
            return Ok(());
        }
        let mut seen = IptablesMirror::default();
        for chain in changed {
            if let Some(text) = self.tools.list(family, chain)? {
                let IptablesMirror { chains, dispatch, jumps: _ } =
                    parse::listed(&self.layout, chain.table, &text);
                seen.chains.extend(chains);
                seen.dispatch.extend(dispatch);
            }
        }
        self.mirror(family).refresh(changed, &seen);
        Ok(())
    }
}

fn differs(what: &str) -> KernelError {
    let source = io::Error::other(format!("the kernel returned {what} differently than they were written"));
    KernelError { action: "verifying".to_owned(), source }
}
