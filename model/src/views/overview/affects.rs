//! What suffers from what a node lacks.

use std::cell::OnceCell;

use super::{AFFECTS_MAX, Affected};
use crate::{
    kinds::resource::ServiceKey,
    primitives::quantity::{Epoch, Position, Revision},
};

/// The forms that nodes are told of, the newest first. They are listed and sorted for the first node that lacks some.
pub struct Forms<'a> {
    epoch: Epoch,
    list: &'a dyn Fn() -> Vec<(Revision, ServiceKey)>,
    sorted: OnceCell<Vec<(Revision, ServiceKey)>>,
}

impl<'a> Forms<'a> {
    /// The forms of an epoch, in any order.
    #[must_use]
    pub const fn new(epoch: Epoch, list: &'a dyn Fn() -> Vec<(Revision, ServiceKey)>) -> Self {
        Self { epoch, list, sorted: OnceCell::new() }
    }

    fn sorted(&self) -> &[(Revision, ServiceKey)] {
        self.sorted.get_or_init(|| {
            let mut forms = (self.list)();
            forms.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            forms
        })
    }

    /// The Services whose form is newer than what a node has verified; those beyond the first ten are counted.
    pub(super) fn beyond(&self, verified: Option<Position>) -> (Vec<Affected>, usize) {
        let is_newer = |revision: Revision| {
            verified.is_none_or(|verified| Position { epoch: self.epoch, revision } > verified)
        };
        let forms = self.sorted();
        let count = forms.partition_point(|(revision, _)| is_newer(*revision));
        let listed = forms.iter().take(count.min(AFFECTS_MAX));
        let listed = listed.map(|(_, key)| Affected::from(key.object_key())).collect();
        (listed, count.saturating_sub(AFFECTS_MAX))
    }
}

/// The first ten objects, and how many there are beyond them.
pub(super) fn listed<T: Into<Affected>>(all: impl Iterator<Item = T>) -> (Vec<Affected>, usize) {
    let mut all = all.map(Into::into);
    let listed: Vec<_> = all.by_ref().take(AFFECTS_MAX).collect();
    (listed, all.count())
}
