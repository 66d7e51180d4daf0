//! A pass that stops before the kernel: the same claims and the same plan, and then the lines instead of messages.

use model::{kinds::resource::ServiceKey, wire::plan::LineChange};

use super::{
    NftablesBackend,
    listing::{self, Setting},
};
use crate::dataplane::{Dataplane as _, Desired, KernelError, Pass, Scope, claims::Touched};

impl NftablesBackend {
    /// The lines that an `apply` would remove and add; `None` when the fixed part of the table is not as it should be.
    pub(super) fn previewed(
        &mut self,
        desired: &Desired,
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
        // As it was: what nobody carries out, nobody has claimed.
        if let Some(claims) = kept {
            self.claims = claims;
        }
        for (service, program) in before.into_iter().flatten() {
            self.claims.replace(&service, program, &mut Touched::default());
        }
        let setting = Setting { table: self.options.table, mark_bit: self.options.mark_bit };
        let mirror = self.mirror.get_or_insert_default();
        Ok(listing::changes(mirror, &plan, setting))
    }
}
