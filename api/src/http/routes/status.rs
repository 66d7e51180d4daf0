//! `GET /v1/status`: how it is going, on one page.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::{Kind, ObjectKey},
    primitives::quantity::{Position, Timestamp},
    views::overview::{Impact, PrecedingChange, Problem, Replica},
};
use serde::Serialize;
use std::collections::BTreeMap;
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
    security::{Permission, Subject, Verb, access},
    state::overview_cache::Counts,
    tasks::overview::stream::seen,
};

/// How it is going.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterStatus {
    /// Where the published state is in history.
    position: Position,
    /// The version of this server.
    version: &'static str,
    /// This control server among those of its store.
    replica: Replica,
    /// Whether anybody who reaches this server may do anything.
    insecure: bool,
    /// The Nodes.
    nodes: NodeTotals,
    /// The Services.
    services: ServiceTotals,
    /// Objects by kind.
    objects: BTreeMap<&'static str, usize>,
    /// What is not as it should be, sorted by what it means for users; at most 100.
    #[schema(max_items = 100)]
    problems: Vec<ClusterProblem>,
}

/// The Nodes.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = NodeTotals)]
struct NodeTotals {
    /// How many there are.
    total: usize,
    /// Of these, whose agent reports.
    connected: usize,
    /// Of these, which have everything, read back.
    converged: usize,
}

/// The Services.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceTotals {
    /// How many there are.
    total: usize,
    /// Of these, which are ready.
    ready: usize,
    /// Of these, which are not.
    not_ready: usize,
}

/// Something that is not as it should be.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterProblem {
    /// The object, as kind and name.
    #[schema(example = "Service default/web")]
    object: String,
    /// What it means for users.
    impact: Impact,
    /// Since when, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The machine word.
    reason: String,
    /// The same in words.
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The last write that went before it and touches what it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<PrecedingChange>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("status", "Cluster", "Says how it is going: counts, and what is not as it should be.")
        .answer::<ClusterStatus>(200, "The summary.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/status")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, status)
            .done(),
    )
}

async fn status(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let shown = app.overview.current(&app).await.ok_or_else(ending)?;
    let Counts { connected, converged, ready } = shown.counts;
    let part = seen(&access::current(), &shown.overview);
    let overview = part.as_deref().unwrap_or(&shown.overview);
    let snapshot = &app.hub.load().snapshot;
    let total = overview.services.len();
    let status = ClusterStatus {
        position: overview.position,
        version: env!("CARGO_PKG_VERSION"),
        replica: overview.replica.clone(),
        insecure: overview.insecure,
        nodes: NodeTotals { total: overview.nodes.len(), connected, converged },
        services: ServiceTotals { total, ready, not_ready: total.saturating_sub(ready) },
        objects: Kind::ALL.into_iter().map(|kind| (kind.as_str(), snapshot.count(kind))).collect(),
        problems: overview.problems.iter().map(problem).collect(),
    };
    Ok(render(form, &status))
}

fn problem(problem: &Problem) -> ClusterProblem {
    let Problem { kind, namespace, name, impact, reason, message, hint, since, change, .. } = problem.clone();
    let key = ObjectKey { kind, namespace, name };
    ClusterProblem { object: key.to_string(), impact, since, reason, message, hint, change }
}
