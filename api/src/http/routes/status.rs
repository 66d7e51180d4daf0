//! `GET /v1/status`: summary of the cluster state.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    primitives::{
        name::Name,
        quantity::{Position, Timestamp},
    },
    views::overview::{Impact, NodeConvergence, NodeRow, PrecedingChange, Problem, Replica},
};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::{Shared, overview::ending};
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Caller, Permission, Subject, Verb},
    state::overview_cache::Counts,
    tasks::overview::stream::seen,
};

/// Maximum number of nodes whose announced addresses the status lists. The page and `GET /v1/overview` list all.
const ADDRESS_NODES_MAX: usize = 10;

/// Summary of the cluster state.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterStatus {
    /// Position of the published state: epoch and revision.
    position: Position,
    /// Version of this server.
    version: &'static str,
    /// Role of this control server among the servers that share its store.
    replica: Replica,
    /// True if every client that reaches this server has all permissions.
    insecure: bool,
    /// Numbers of Nodes by state.
    nodes: NodeTotals,
    /// Numbers of Services by state.
    services: ServiceTotals,
    /// Load balancer addresses that nodes announce by ARP or NDP. Absent if no node announces one.
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<AnnouncedAddresses>,
    /// Number of objects by kind.
    objects: BTreeMap<&'static str, usize>,
    /// Current problems, sorted by their impact on users; the first 100.
    #[schema(max_items = 100)]
    problems: Vec<ClusterProblem>,
}

/// Numbers of Nodes by state.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = NodeTotals)]
struct NodeTotals {
    /// Total number of Nodes.
    total: usize,
    /// Number of Nodes whose agent has reported recently.
    connected: usize,
    /// Number of Nodes whose agent has verified the current state in the kernel.
    converged: usize,
}

/// Numbers of Services by state.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceTotals {
    /// Total number of Services.
    total: usize,
    /// Number of ready Services.
    ready: usize,
    /// Number of Services that are not ready.
    not_ready: usize,
    /// Number of Services with endpoints that receive new connections although nobody checks them.
    not_checked: usize,
}

/// Load balancer addresses that nodes announce by ARP or NDP, with their distribution over the nodes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AnnouncedAddresses {
    /// Number of addresses that the nodes announce.
    total: usize,
    /// Nodes whose agents report, with the number of addresses of each; those with the most addresses first. At
    /// most 10.
    #[schema(max_items = 10)]
    nodes: Vec<AddressesOfNode>,
    /// Number of nodes that `nodes` does not list.
    nodes_omitted: usize,
}

/// Number of load balancer addresses that one node announces.
#[derive(Serialize, ToSchema)]
struct AddressesOfNode {
    /// Name of the Node.
    #[schema(value_type = String)]
    node: Name,
    /// Number of addresses that the Node announces.
    addresses: usize,
}

/// Problem that affects an object now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterProblem {
    /// Kind and name of the affected object or DNS server.
    #[schema(example = "Service default/web")]
    object: String,
    /// Impact of the problem on users.
    impact: Impact,
    /// Start time of the problem, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Reason of the problem, as a stable identifier in CamelCase.
    reason: String,
    /// Description of the problem for users. The text may change between releases.
    message: String,
    /// Suggested remedy. Absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Last write to the affected object before the problem began. Absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<PrecedingChange>,
}

/// Registers the route of the cluster summary.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readStatus", "Cluster", "Read the cluster status")
        .describe(
            "Returns the numbers of objects and nodes by state, the progress of the nodes and the \
             present problems.",
        )
        .answer::<ClusterStatus>(200, "Returned with counts and problems.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/status")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, status)
            .done(),
    )
}

async fn status(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let shown = app.overview.current(&app).await.ok_or_else(ending)?;
    let Counts { connected, converged, ready } = shown.counts;
    let part = seen(caller.access(), &shown.overview);
    let overview = part.as_deref().unwrap_or(&shown.overview);
    let snapshot = &app.hub.load().snapshot;
    let total = overview.services.len();
    let status = ClusterStatus {
        position: overview.position,
        version: env!("CARGO_PKG_VERSION"),
        replica: overview.replica.clone(),
        insecure: overview.insecure,
        nodes: NodeTotals { total: overview.nodes.len(), connected, converged },
        services: ServiceTotals {
            total,
            ready,
            not_ready: total.saturating_sub(ready),
            not_checked: overview.totals.services.not_checked,
        },
        addresses: announced(&overview.nodes),
        objects: Kind::ALL.into_iter().map(|kind| (kind.as_str(), snapshot.count(kind))).collect(),
        problems: overview.problems.iter().map(problem).collect(),
    };
    Ok(render(form, &status))
}

/// Returns the distribution of the announced addresses over the nodes, or `None` if no node announces one.
fn announced(nodes: &[NodeRow]) -> Option<AnnouncedAddresses> {
    let total = nodes.iter().map(|node| node.addresses).sum();
    let mut rows: Vec<_> = nodes.iter().filter(|node| node.state != NodeConvergence::Disconnected).collect();
    // The sort is stable, so that nodes with equal numbers stay in the order of their names.
    rows.sort_by_key(|node| Reverse(node.addresses));
    let nodes_omitted = rows.len().saturating_sub(ADDRESS_NODES_MAX);
    rows.truncate(ADDRESS_NODES_MAX);
    let row = |node: &NodeRow| AddressesOfNode { node: node.name.clone(), addresses: node.addresses };
    let nodes = rows.into_iter().map(row).collect();
    (total > 0).then_some(AnnouncedAddresses { total, nodes, nodes_omitted })
}

fn problem(problem: &Problem) -> ClusterProblem {
    let Problem { kind, namespace, name, impact, reason, message, hint, since, change, .. } = problem.clone();
    let subject = model::views::overview::Subject { kind, namespace, name };
    ClusterProblem { object: subject.to_string(), impact, since, reason, message, hint, change }
}
