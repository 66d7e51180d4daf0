//! Listing of the Services with the most traffic.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{TrafficBook, current};
use crate::wire::traffic_counts::{Counts, Rate, Rates};
use crate::{
    kinds::resource::ServiceKey,
    observed::rollup::NodeView,
    primitives::name::{Name, Namespace},
};

/// Maximum number of Services in one response.
pub const BUSIEST_LISTED_MAX: usize = 1000;

/// Sort key of the list of the busiest Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SortBy {
    /// New connections per second.
    #[default]
    ConnectionRate,
    /// Bytes per second.
    ByteRate,
    /// Total number of connections so far.
    Connections,
    /// Number of established connections.
    Active,
}

/// Services with the most traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Busiest {
    /// Services in the order of their traffic, busiest first.
    #[schema(max_items = 1000)]
    pub services: Vec<BusyService>,
    /// Number of Services with traffic beyond the limit of `services`.
    pub services_omitted: usize,
    /// Sum over all Services, including those not listed.
    pub total: Counts,
}

/// Traffic of one Service over all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BusyService {
    /// Key of the Service.
    pub service: ServiceKey,
    /// Number of nodes that report traffic of the Service.
    pub nodes: usize,
    /// Sum over all nodes and endpoints.
    #[serde(flatten)]
    pub counts: Counts,
}

impl SortBy {
    fn figure(self, counts: &Counts) -> u64 {
        let rate =
            |of: fn(Rates) -> Option<Rate>| counts.per_second.and_then(of).map_or(0, Rate::thousandths);
        match self {
            Self::ConnectionRate => rate(|rates| Some(rates.connections)),
            Self::ByteRate => rate(|rates| rates.bytes),
            Self::Connections => counts.connections,
            Self::Active => counts.active.unwrap_or(0),
        }
    }
}

impl TrafficBook {
    /// Returns the Services of one namespace, or of all, that have had at least one connection or failure,
    /// busiest first. The function visits all stored counters.
    #[must_use]
    pub fn busiest(
        &self,
        namespace: Option<&Namespace>,
        sort_by: SortBy,
        limit: usize,
        views: &[NodeView<'_>],
    ) -> Busiest {
        let views: BTreeMap<&Name, &NodeView<'_>> = views.iter().map(|view| (view.name, view)).collect();
        let mut services = Vec::new();
        for (service, pages) in &self.services {
            if namespace.is_some_and(|namespace| *namespace != service.namespace) {
                continue;
            }
            let (mut counts, mut nodes) = (Counts::default(), 0);
            for (node, page) in &pages.nodes {
                let Some(view) = views.get(node) else { continue };
                nodes += 1;
                for target in page.targets.values() {
                    counts.add(&current(target, view));
                }
            }
            if counts.has_any() {
                services.push(BusyService { service: service.clone(), nodes, counts });
            }
        }
        let total = Counts::sum(services.iter().map(|service| &service.counts));
        // Equal Services are sorted by connections, then by name.
        services.sort_by_cached_key(|row| {
            (Reverse((sort_by.figure(&row.counts), row.counts.connections)), row.service.clone())
        });
        let services_omitted = services.len().saturating_sub(limit);
        services.truncate(limit);
        Busiest { services, services_omitted, total }
    }
}
