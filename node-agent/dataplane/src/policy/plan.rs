//! Difference between the elements in the kernel and the desired ones. Does no I/O.

use super::desired::{PolicyElement, PolicyElements, PolicyValue};

/// Changes of elements, which one transaction makes: first the removals, then the additions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPlan {
    /// Elements to remove. An element whose value changes is removed and added.
    pub removed: Vec<PolicyElement>,
    /// Elements to add.
    pub added: Vec<(PolicyElement, PolicyValue)>,
}

impl PolicyPlan {
    /// Compares the elements.
    #[must_use]
    pub fn between(present: &PolicyElements, desired: &PolicyElements) -> Self {
        let differs = |one: &PolicyElement, value: &PolicyValue, others: &PolicyElements| {
            others.get(one) != Some(value)
        };
        let removed = present.iter().filter(|(element, value)| differs(element, value, desired));
        let added = desired.iter().filter(|(element, value)| differs(element, value, present));
        Self {
            removed: removed.map(|(element, _)| element.clone()).collect(),
            added: added.map(|(element, value)| (element.clone(), value.clone())).collect(),
        }
    }

    /// Returns true if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// Returns the number of removed and added elements.
    #[must_use]
    pub fn writes(&self) -> u64 {
        u64::try_from(self.removed.len() + self.added.len()).unwrap_or(u64::MAX)
    }
}
