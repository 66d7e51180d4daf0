//! `GET /v1/convergence`: time from a write until each node has verified the new state in its kernel.

use std::time::Instant;

use axum::extract::State;
use http::HeaderMap;
use model::observed::lag::{LagOverview, overview};
use utoipa::openapi::HttpMethod;

use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Permission, Subject, Verb},
};

/// Registers the route that lists the convergence times of recent writes.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readLag", "Cluster", "Read the propagation delay of changes")
        .describe(
            "Covers the last 256 changes that concern nodes since the start of this server, and includes the \
         slowest node with the reason. Times are measured from the commit to the arrival of the node's \
         report. The progress of each node with one change is at `/v1/history/{revision}/convergence`.",
        )
        .answer::<LagOverview>(200, "Returned with the propagation delays.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/convergence")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, read)
            .done(),
    )
}

async fn read(State(state): State<ReadState>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let view = state.view();
    let changes = state.observations.convergence.changes(Instant::now());
    let head = view.published().nodes_head();
    Ok(render(form, &overview(&changes, &view.table().views(), head)))
}
