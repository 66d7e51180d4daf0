//! Preview: the lines of `nft list table` that a pass (update of the kernel) would remove and add, computed
//! in the same way as by the pass.

use model::{kinds::resource::ServiceKey, wire::plan::LineChange};

use super::{
    NftablesBackend,
    listing::{self, Setting},
};
use crate::{Dataplane as _, DesiredState, KernelError, Pass, Scope, claims::TouchedObjects};

impl NftablesBackend {
    /// Returns the lines that `apply` would remove and add; `None` if the part of the table that does not
    /// depend on Services differs from the wanted one.
    pub(super) fn previewed(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        if self.mirror.is_none() {
            self.observe()?;
        }
        let everything = *scope == Scope::Everything;
        let before = match scope {
            Scope::Everything => None,
            Scope::Services(services) => {
                let held = |service| (ServiceKey::clone(service), self.claims.program(service).cloned());
                Some(services.iter().map(held).collect::<Vec<_>>())
            }
        };
        let kept = everything.then(|| std::mem::take(&mut self.claims));
        let (touched, _affected) = self.claim(desired, scope, &mut Pass::default());
        let plan = self.plan(desired, &touched, everything);
        // Restores the previous claims, because the preview is not committed.
        if let Some(claims) = kept {
            self.claims = claims;
        }
        for (service, program) in before.into_iter().flatten() {
            self.claims.replace(&service, program, &mut TouchedObjects::default());
        }
        let setting = Setting { table: self.options.table, mark_bit: self.options.mark_bit };
        let mirror = self.mirror.get_or_insert_default();
        Ok(listing::changes(mirror, &plan, setting))
    }
}
