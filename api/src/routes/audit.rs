//! `GET /v1/audit`: what was asked for, by whom, and what became of it.

use axum::extract::State;
use http::HeaderMap;
use utoipa::openapi::HttpMethod;
use utoipa_axum::router::OpenApiRouter;

use super::Shared;
use crate::{
    error::{Answer, Code},
    negotiate::{form, render},
    openapi::{Doc, OBJECT_TYPES, Route},
    paging::Moment,
    params::{ApiQuery, PageQuery},
    schema,
};

/// Adds the route.
pub(super) fn add(router: OpenApiRouter<Shared>) -> OpenApiRouter<Shared> {
    let doc = Doc::new("listAudit", "Cluster", "Lists the requests that would change something, the newest first.")
        .describe(
            "Accepted and refused ones, with who asked and from where. The server keeps the last 10,000 in memory; what \
             was accepted is in the history as well, which is stored.",
        )
        .query::<PageQuery>()
        .answer::<schema::AuditList>(200, "A page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(Route::at("/v1/audit").on(HttpMethod::Get, doc, list).done())
}

async fn list(State(app): State<Shared>, ApiQuery(query): ApiQuery<PageQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let limit = query.limit()?;
    let moment = Moment::new("AuditList", "");
    let after: Option<u64> = moment.resume(query.continue_token.as_deref())?;
    Ok(render(form, &moment.envelope(&app.audit.list(after, limit))))
}
