//! Objects that a problem affects, such as the Services whose recent changes a node lacks.

use std::cell::OnceCell;

use super::{AFFECTS_MAX, AffectedObject};
use crate::{
    kinds::resource::ServiceKey,
    primitives::quantity::{Epoch, Position, Revision},
};

/// List of compiled Services with the revision of their last change, newest first. The list is built and
/// sorted when it is first used.
pub struct Forms<'a> {
    epoch: Epoch,
    list: &'a dyn Fn() -> Vec<(Revision, ServiceKey)>,
    sorted: OnceCell<Vec<(Revision, ServiceKey)>>,
}

impl<'a> Forms<'a> {
    /// Creates a list. `list` is called at the first use, and returns the Services in any order; `epoch` is
    /// the epoch of the store to which the revisions belong.
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

    /// Returns the Services whose compiled form (the data that agents receive) changed after the position
    /// `verified` of a node, at most [`AFFECTS_MAX`], newest first, and the number of further Services. With
    /// `None`, returns all Services.
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
