//! Services that are affected because a node lacks recent changes.

use std::cell::OnceCell;

use super::{AFFECTS_MAX, AffectedObject};
use crate::{
    kinds::resource::ServiceKey,
    primitives::quantity::{Epoch, Position, Revision},
};

/// Compiled Services with their revisions, newest first. The list is built and sorted when it is first used.
pub struct Forms<'a> {
    epoch: Epoch,
    list: &'a dyn Fn() -> Vec<(Revision, ServiceKey)>,
    sorted: OnceCell<Vec<(Revision, ServiceKey)>>,
}

impl<'a> Forms<'a> {
    /// Creates a list whose contents `list` returns at the first use. `epoch` is the epoch of all revisions.
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

    /// Returns the Services whose compiled form changed after the position that a node has verified, up to
    /// the list limit, and the number of further Services.
    pub(super) fn beyond(&self, verified: Option<Position>) -> (Vec<AffectedObject>, usize) {
        let is_newer = |revision: Revision| {
            verified.is_none_or(|verified| Position { epoch: self.epoch, revision } > verified)
        };
        let forms = self.sorted();
        let count = forms.partition_point(|(revision, _)| is_newer(*revision));
        let listed = forms.iter().take(count.min(AFFECTS_MAX));
        let listed = listed.map(|(_, key)| AffectedObject::from(key.object_key())).collect();
        (listed, count.saturating_sub(AFFECTS_MAX))
    }
}

/// Returns the first [`AFFECTS_MAX`](super::AFFECTS_MAX) objects of an iterator, and the number of further
/// objects.
pub(super) fn listed<T: Into<AffectedObject>>(all: impl Iterator<Item = T>) -> (Vec<AffectedObject>, usize) {
    let mut all = all.map(Into::into);
    let listed: Vec<_> = all.by_ref().take(AFFECTS_MAX).collect();
    (listed, all.count())
}
