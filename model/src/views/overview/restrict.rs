//! Restriction of the overview to the objects that a caller may see.

use super::{ConvergenceBrief, EndpointTotals, Overview, ServiceStateTotals, Totals};
use crate::primitives::name::Namespace;

impl Overview {
    /// Returns the overview without the writes that preceded problems, for callers that must not see them.
    #[must_use]
    pub fn without_changes(&self) -> Self {
        let mut overview = self.clone();
        overview.problems.iter_mut().for_each(|problem| problem.change = None);
        overview
    }

    /// Returns the overview limited to some namespaces. The result contains the Services of these namespaces
    /// and their problems, but no objects without a namespace. The write that preceded a problem is only
    /// included if `may_see_changes` returns true for the namespace.
    #[must_use]
    pub fn restricted(
        &self,
        may_see: impl Fn(&Namespace) -> bool,
        may_see_changes: impl Fn(&Namespace) -> bool,
    ) -> Self {
        let services: Vec<_> = self.services.iter().filter(|row| may_see(&row.namespace)).cloned().collect();
        let mut totals = ServiceStateTotals::default();
        for row in &services {
            totals.add(row);
        }
        let endpoints = EndpointTotals {
            total: services.iter().map(|row| u64::from(row.endpoints_total)).sum(),
            ready: services.iter().map(|row| u64::from(row.endpoints_ready)).sum(),
            ..EndpointTotals::default()
        };
        let is_seen = |namespace: &Option<Namespace>| namespace.as_ref().is_some_and(&may_see);
        let mut problems: Vec<_> =
            self.problems.iter().filter(|problem| is_seen(&problem.namespace)).cloned().collect();
        for problem in &mut problems {
            problem.affects.retain(|affected| is_seen(&affected.namespace));
            problem.affects_more = 0;
            problem.change =
                problem.change.take().filter(|_| problem.namespace.as_ref().is_some_and(&may_see_changes));
        }
        Self {
            is_whole: false,
            totals: Totals { services: totals, endpoints, ..Totals::default() },
            convergence: ConvergenceBrief::default(),
            nodes: Vec::new(),
            problems_total: problems.len(),
            services,
            problems,
            ..self.clone()
        }
    }
}
