//! `GET /v1/audit`: what was asked for, by whom, and what became of it.

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
    state::paging::Moment,
};

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listAudit", "Cluster", "Lists the requests that would change something, the newest first.")
        .describe(
            "Accepted and refused ones, with who asked and from where. The last 10,000 that changed something are kept, and \
             the last 2,000 that did not, for 400 days at most. Of a flood of refusals, more than 200 a second, some are left out. \
             Each control server keeps what it was asked itself: of several, ask each.",
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
    Ok(render(form, &moment.envelope(&part)))
}
