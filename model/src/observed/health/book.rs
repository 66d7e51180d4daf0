//! Health check results of all agents: the last result of each node for each endpoint, up to [`RESULTS_KEPT_MAX`].
//!
//! The results exist in memory only, because agents report all of them again to a restarted server. The
//! decisions that follow from them are stored in EndpointHealth objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    kinds::endpoint_health::CheckKey,
    wire::report::{CheckReport, CheckState},
};
use crate::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
};

/// Maximum number of stored results, one for each node and endpoint. A result has about 300 bytes, so all
/// have at most 60 MB. Further results are not stored. If an endpoint has no stored results, the last
/// decision about its health remains in force.
pub const RESULTS_KEPT_MAX: usize = 200_000;

/// Health check results in one report of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthUpdate {
    /// Results by Service, for each Service with a changed result. The list of a Service replaces its earlier
    /// results from the node; an empty list removes them.
    pub services: BTreeMap<ServiceKey, Vec<CheckReport>>,
    /// True if `services` replaces all results that the node reported before, false if it contains only
    /// changes.
    pub is_complete: bool,
}

impl HealthUpdate {
    /// Returns the endpoints of each Service that the node reports as healthy.
    pub fn passed(&self) -> impl Iterator<Item = (ServiceKey, Vec<CheckKey>)> {
        self.services.iter().filter_map(|(service, reports)| {
            let healthy = reports.iter().filter(|report| report.state == CheckState::Healthy);
            let keys: Vec<_> =
                healthy.map(|report| CheckKey { address: report.address, port: report.port }).collect();
            (!keys.is_empty()).then(|| (service.clone(), keys))
        })
    }
}

/// Last result of the health checks of one endpoint by one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// State of the endpoint according to the node.
    pub state: CheckState,
    /// Time at which the endpoint entered this state.
    pub since: Timestamp,
    /// Description of the check that led to the state.
    pub message: String,
}

/// Results of one node for the endpoints of one Service, by endpoint.
type NodeResults = BTreeMap<CheckKey, CheckResult>;

/// Last reported health check results of each endpoint by each node.
#[derive(Debug, Default)]
pub struct HealthBook {
    pages: BTreeMap<ServiceKey, BTreeMap<Name, NodeResults>>,
    /// Services whose endpoints each node checks.
    nodes: BTreeMap<Name, BTreeSet<ServiceKey>>,
    results: usize,
    /// Number of results that were not stored because [`RESULTS_KEPT_MAX`] was reached.
    pub refused: u64,
}

impl HealthBook {
    /// Stores the results that a node's agent reports. Returns the Services with an endpoint whose state on
    /// this node changed.
    pub fn apply(&mut self, node: &Name, news: HealthUpdate) -> BTreeSet<ServiceKey> {
        let HealthUpdate { mut services, is_complete } = news;
        if is_complete {
            for known in self.nodes.get(node).into_iter().flatten() {
                services.entry(known.clone()).or_default();
            }
        }
        let mut changed = BTreeSet::new();
        for (service, reports) in services {
            if self.put(node, &service, reports) {
                changed.insert(service);
            }
        }
        changed
    }

    /// Replaces all results of a node for a Service by `reports`. Returns true if the state of an endpoint
    /// changed, or an endpoint was added or removed.
    fn put(&mut self, node: &Name, service: &ServiceKey, reports: Vec<CheckReport>) -> bool {
        let before = self.remove(node, service);
        let mut part = NodeResults::new();
        for CheckReport { address, port, state, since, message } in reports {
            if self.results + part.len() >= RESULTS_KEPT_MAX {
                self.refused += 1;
                continue;
            }
            part.insert(CheckKey { address, port }, CheckResult { state, since, message });
        }
        let states =
            |part: &NodeResults| part.iter().map(|(key, word)| (*key, word.state)).collect::<Vec<_>>();
        let has_changed = states(&before) != states(&part);
        if !part.is_empty() {
            self.results += part.len();
            self.nodes.entry(node.clone()).or_default().insert(service.clone());
            self.pages.entry(service.clone()).or_default().insert(node.clone(), part);
        }
        has_changed
    }

    fn remove(&mut self, node: &Name, service: &ServiceKey) -> NodeResults {
        let Some(page) = self.pages.get_mut(service) else { return NodeResults::new() };
        let part = page.remove(node).unwrap_or_default();
        if page.is_empty() {
            self.pages.remove(service);
        }
        if let Some(services) = self.nodes.get_mut(node) {
            services.remove(service);
            if services.is_empty() {
                self.nodes.remove(node);
            }
        }
        self.results -= part.len();
        part
    }

    /// Returns the last result of a node for an endpoint, if it has reported one.
    #[must_use]
    pub fn result(&self, service: &ServiceKey, key: &CheckKey, node: &Name) -> Option<&CheckResult> {
        self.pages.get(service)?.get(node)?.get(key)
    }

    /// True if the last result of at least one node for an endpoint is healthy.
    #[must_use]
    pub fn has_passed(&self, service: &ServiceKey, key: &CheckKey) -> bool {
        let mut parts = self.pages.get(service).into_iter().flat_map(BTreeMap::values);
        parts.any(|part| part.get(key).is_some_and(|result| result.state == CheckState::Healthy))
    }

    /// Returns the Services whose endpoints a node checks.
    pub fn services_of(&self, node: &Name) -> impl Iterator<Item = &ServiceKey> {
        self.nodes.get(node).into_iter().flatten()
    }

    /// Removes the results of nodes and Services for which `has_node` or `has_service` returns false.
    pub fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_service: impl Fn(&ServiceKey) -> bool) {
        let checked =
            self.nodes.iter().flat_map(|(node, services)| services.iter().map(move |of| (node, of)));
        let gone: Vec<_> = checked
            .filter(|(node, service)| !has_node(node) || !has_service(service))
            .map(|(node, service)| (node.clone(), service.clone()))
            .collect();
        for (node, service) in gone {
            self.remove(&node, &service);
        }
    }

    /// Returns the number of stored results of all nodes.
    #[must_use]
    pub const fn results(&self) -> usize {
        self.results
    }
}
