//! `GET /v1/audit`: log of the requests that change something, with author and result.

use axum::extract::State;
use http::HeaderMap;
use utoipa::openapi::HttpMethod;

use super::{Shared, history::unavailable};
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, PageQuery},
        schema,
    },
    security::{Permission, Subject, Verb},
    state::paging::{Moment, shortened},
};

/// Registers the route of the audit log.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listAudit", "Cluster", "List audit entries of mutating requests")
        .describe(
            "Entries are sorted from newest to oldest and include accepted and rejected requests with \
             author and source address. The server keeps the last 10,000 entries of requests that \
             changed something and the last 2,000 of those that did not, for at most 400 days. If more \
             than 200 requests a second are rejected, some entries are dropped. Each control server \
             keeps the entries of its own requests: with several servers, query each.",
        )
        .query::<PageQuery>()
        .answer::<schema::AuditList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Unavailable]);
    router.routes(
        Route::at("/v1/audit")
            .on(HttpMethod::Get, Permission::On(Verb::List, Subject::Audit), doc, list)
            .done(),
    )
}

async fn list(State(app): State<Shared>, ApiQuery(query): ApiQuery<PageQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let limit = query.limit()?;
    let moment = Moment::new("AuditList", "");
    let after: Option<u64> = moment.resume(query.continue_token.as_deref())?;
    let part = app.audit.list(&*app.store, after, limit).await.map_err(unavailable)?;
    Ok(render(form, &moment.envelope(&shortened(part, |entry| entry.number))))
}
