//! Which Services have most traffic.

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

/// Services listed in one answer.
pub const BUSIEST_LISTED_MAX: usize = 1000;

/// What the busiest has most of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SortBy {
    /// Connections in a second.
    #[default]
    ConnectionRate,
    /// Bytes in a second.
    ByteRate,
    /// Connections given to it.
    Connections,
    /// Established connections.
    Active,
}

/// The Services with most traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Busiest {
    /// The busiest first.
    #[schema(max_items = 1000)]
    pub services: Vec<BusyService>,
    /// Services with traffic that are not listed.
    pub services_omitted: usize,
    /// All Services, also those that are not listed.
    pub total: Counts,
}

/// The traffic of one Service over all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BusyService {
    /// Which Service.
    pub service: ServiceKey,
    /// Nodes that report traffic of it.
    pub nodes: usize,
    /// The sum over all nodes and endpoints.
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
    /// The busiest Services that had a connection, or failed to give one to an endpoint, of one namespace or all. Walks everything that is remembered.
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
        // Of equals the one with more connections, then by name.
        services.sort_by_cached_key(|row| {
            (Reverse((sort_by.figure(&row.counts), row.counts.connections)), row.service.clone())
        });
        let services_omitted = services.len().saturating_sub(limit);
        services.truncate(limit);
        Busiest { services, services_omitted, total }
    }
}
