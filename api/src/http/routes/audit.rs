//! `GET /v1/audit`: log of the requests that change something, with author and result.

use axum::extract::State;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::{Shared, history::unavailable};
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{AUTHOR_LENGTH_MAX, ApiQuery, limit, text},
        schema,
    },
    security::{Permission, Subject, Verb},
    state::paging::{Moment, shortened},
    write::audit::{AuditFilter, Decision},
};

/// Maximum number of characters of an object in a query: more than the longest name with its kind and namespace.
const OBJECT_LENGTH_MAX: usize = 400;

/// Query of the audit listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Maximum number of entries in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Name of the author. Only entries of this author are returned. Default: all authors.
    #[param(max_length = 260, example = "ann")]
    author: Option<String>,
    /// Object as kind and name, in upper or lower case. Only entries that list this object are returned: they list
    /// at most 100 objects of a request, and the one in the path of a rejected request. Default: all entries.
    #[param(max_length = 400, example = "Service default/web")]
    object: Option<String>,
    /// Result of the request. Only entries with this result are returned. Default: all results.
    #[param(inline)]
    decision: Option<Decision>,
}

/// Registers the route of the audit log.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listAudit", "Cluster", "List audit entries of mutating requests")
        .describe(
            "Entries are sorted from newest to oldest and include accepted and rejected requests with \
             author and source address. The server keeps the last 10,000 entries of requests that \
             changed something and the last 2,000 of those that did not, for at most 400 days. If more \
             than 200 requests a second are rejected, some entries are dropped. Each control server \
             keeps the entries of its own requests: with several servers, query each. With a filter, a page may \
             have fewer entries than the limit, or none, although others follow.",
        )
        .query::<AuditQuery>()
        .answer::<schema::AuditList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Unavailable]);
    router.routes(
        Route::at("/v1/audit")
            .on(HttpMethod::Get, Permission::On(Verb::List, Subject::Audit), doc, list)
            .done(),
    )
}

async fn list(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<AuditQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let AuditQuery { limit: rows, continue_token, author, object, decision } = query;
    let rows = limit(rows)?;
    let author = text("author", author, AUTHOR_LENGTH_MAX)?;
    let object = text("object", object, OBJECT_LENGTH_MAX)?;
    let filter = AuditFilter { author, object, decision };
    let moment = Moment::new("AuditList", &format!("{filter:?}"));
    let after: Option<u64> = moment.resume(continue_token.as_deref())?;
    let part = app.audit.list(&*app.store, (after, &filter), rows).await.map_err(unavailable)?;
    Ok(render(form, &moment.envelope(&shortened(part, |entry| entry.number))))
}
