//! `GET /v1/convergence`: how long changes take until the nodes have them.

use std::time::Instant;

use axum::extract::State;
use http::HeaderMap;
use model::observed::lag::{LagOverview, overview};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Permission, Subject, Verb},
};

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new(
        "readLag",
        "Cluster",
        "Says how long changes take until the nodes have them, which node is the slowest, and why.",
    )
    .describe(
        "Of the last changes that concern nodes, 256 at most, of this life of the server. Times are from the commit until \
         the report of the node arrived. When each node had one change is at `/v1/history/{revision}/convergence`.",
    )
    .answer::<LagOverview>(200, "The overview.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/convergence")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, read)
            .done(),
    )
}

async fn read(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let view = app.view();
    let changes = app.convergence.changes(Instant::now());
    let head = view.published().nodes_head();
    Ok(render(form, &overview(&changes, &view.table().views(), head)))
}
