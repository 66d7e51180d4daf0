//! `GET /v1/watch`.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use model::{
    kinds::resource::Kind,
    primitives::{name::Namespace, quantity::Position},
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        body_stream as stream,
        error::{Answer, Code, Problem},
        negotiate::{StreamForm, stream_form},
    },
    http::{
        middleware::RequestId,
        openapi::{Doc, Route, Routes},
        params::{ApiQuery, selector},
        watch::{Filter, Watch, WatchEvent, resume_expired},
    },
    security::{Permission, Verb, access},
};

/// Where a browser's event source stopped.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// `Retry-After` if too many watches are open, in seconds.
const RETRY_SECS: u32 = 10;

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    /// Kinds, separated by commas; all when left out.
    #[param(example = "Service,Node", max_length = 256)]
    kinds: Option<String>,
    /// Only objects of this namespace.
    namespace: Option<Namespace>,
    /// Only objects with these labels. An object that stops matching is `DELETED`, one that begins to is `ADDED`.
    #[param(max_length = 4096)]
    label_selector: Option<String>,
    /// A `position` of an earlier answer or event: go on after it. Without it the current objects come first.
    #[param(max_length = 64)]
    resume: Option<String>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("watch", "Cluster", "Streams changes as they happen, in order.")
        .describe(
            "Without `resume`: the current objects as `ADDED`, then a `BOOKMARK` with `initial`. Then every change. \
             Every event of one revision comes before any of the next; `position` stands on the last of them and on \
             heartbeats, which come at least every 10 seconds. A watch that falls too far behind ends with an `ERROR` \
             event. A position holds at every control server of the store; one that is behind it waits until it is not. The \
             status in an object is that of the moment; changes of status alone are no events.",
        )
        .query::<WatchQuery>()
        .header("Last-Event-ID", "The same as `resume`; browsers send it.")
        .answer::<WatchEvent>(200, "Events, one per line or as server-sent events.", &["application/x-ndjson", "text/event-stream"], &[])
        .problems(&[Code::NotAcceptable, Code::ResumeExpired]);
    router.routes(
        Route::at("/v1/watch").on(HttpMethod::Get, Permission::Each(Verb::Watch, None), doc, watch).done(),
    )
}

async fn watch(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<WatchQuery>,
    RequestId(request_id): RequestId,
    headers: HeaderMap,
) -> Answer {
    let form = stream_form(&headers)?;
    let filter = Filter {
        kinds: kinds(query.kinds.as_deref())?,
        namespace: query.namespace,
        selector: selector(query.label_selector.as_deref())?,
        access: access::current(),
    };
    let resume = match query.resume {
        Some(text) => Some(text),
        None => headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).map(str::to_owned),
    };
    let resume = resume.map(|text| position("resume", &text)).transpose()?;
    if let Some(position) = resume {
        check_resume(&app, position).await?;
    }
    let permit = Arc::clone(&app.watches).try_acquire_owned().map_err(|_| {
        Problem::new(Code::TooManyRequests, "too many watches are open").retry_after(RETRY_SECS)
    })?;
    let (pieces, body) = stream::pieces();
    let stop = app.stop_streams.child_token();
    let watch = Watch { app, filter, resume: resume.map(|at| at.revision), form, request_id, stop };
    tokio::spawn(async move {
        watch.run(pieces).await;
        drop(permit);
    });
    let mut response = body.into_response();
    let content_type = match form {
        StreamForm::Ndjson => "application/x-ndjson",
        StreamForm::Sse => "text/event-stream",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

fn kinds(text: Option<&str>) -> Result<BTreeSet<Kind>, Problem> {
    let Some(text) = text else { return Ok(Kind::ALL.into_iter().collect()) };
    text.split(',')
        .map(|word| {
            Kind::parse(word.trim()).ok_or_else(|| {
                let known = Kind::ALL.map(Kind::as_str).join(", ");
                Problem::bad_request(format!(
                    "query parameter: `kinds` must be some of {known}, not `{word}`"
                ))
            })
        })
        .collect()
}

/// Reads a resume token.
pub(super) fn position(parameter: &str, text: &str) -> Result<Position, Problem> {
    let parsed = text.parse::<Position>();
    parsed.map_err(|error| Problem::bad_request(format!("query parameter: `{parameter}` {error}")))
}

/// Whether there is a way from a position to the present. What another control server has shown already is waited for: who
/// fails over to a server that is a little behind must neither miss anything nor begin again.
async fn check_resume(app: &Shared, position: Position) -> Result<(), Problem> {
    if app.store.is_shared() {
        app.reach(position).await?;
    }
    let published = app.hub.load();
    let present = published.position();
    let is_ours = position.epoch == present.epoch && position.revision <= present.revision;
    if is_ours && published.recent.since(position.revision).is_some() {
        Ok(())
    } else {
        Err(resume_expired(position))
    }
}
