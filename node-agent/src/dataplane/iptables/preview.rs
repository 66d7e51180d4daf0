//! What a pass would change, without one.

use std::{collections::BTreeMap, io};

use model::wire::plan::LineChange;

use super::{IptablesBackend, commit, listing, parse, plan};
use crate::dataplane::{Desired, Scope};

impl IptablesBackend {
    /// The lines of `iptables-save` that would go and come. What the chains hold is read anew, because only digests of it
    /// are remembered; what is wanted is taken over into a copy.
    pub(super) fn previewed(&self, desired: &Desired, scope: &Scope) -> io::Result<Vec<LineChange>> {
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
