//! Preview: the lines of `iptables-save` that a pass (update of the kernel) would remove and add. The kernel
//! is not changed.

use std::{collections::BTreeMap, io};

use model::wire::plan::LineChange;

use super::{IptablesBackend, commit, listing, parse, plan};
use crate::{DesiredState, Scope};

impl IptablesBackend {
    /// Returns the lines of `iptables-save` that a pass (update of the kernel) would remove and add. Reads
    /// the chains from the kernel, because the mirror (copy in memory) contains only digests, and applies the
    /// desired state to a copy.
    pub(super) fn previewed(&self, desired: &DesiredState, scope: &Scope) -> io::Result<Vec<LineChange>> {
        let mut asked = self.asked.clone();
        let looked = asked.take_over(&self.tools.families, desired, scope);
        let mut changes = Vec::new();
        for family in self.tools.families.iter().copied() {
            let text = self.tools.save(family, false)?;
            let mirror = parse::saved(&self.layout, &text);
            let parts = asked.parts(&self.layout, family, Some(&mirror), &looked);
            let wanted = commit::merged(&parts, true, &BTreeMap::new());
            let script = plan::plan(&mirror, &self.layout.fixed(family, &asked.networks), &wanted);
            changes.extend(listing::differences(family, &text, &script));
        }
        Ok(changes)
    }
}
