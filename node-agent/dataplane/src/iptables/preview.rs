//! Preview: the lines of `iptables-save` that a pass would remove and add, without writing them.

use std::{collections::BTreeMap, io};

use model::wire::plan::LineChange;

use super::{IptablesBackend, commit, listing, parse, plan};
use crate::{DesiredState, Scope};

impl IptablesBackend {
    /// Returns the lines of `iptables-save` that a pass would remove and add. The chains are read from the
    /// kernel, because the mirror holds only digests; the desired state is applied to a copy.
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
