//! `GET /v1/watch`: stream of the changes of objects.

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
        watch::{Filter, ObjectWatch, WatchEvent, resume_expired},
    },
    security::{Caller, Permission, Verb},
};

/// Request header by which a browser's `EventSource` resumes: the id of the last event it received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    /// Kinds of the objects to send, separated by commas. Default: all kinds.
    #[param(example = "Service,Node", max_length = 256)]
    kinds: Option<String>,
    /// Namespace. Only objects of this namespace are sent. Default: all namespaces.
    namespace: Option<Namespace>,
    /// Label selector. Only matching objects are sent. An object that stops matching is sent as `DELETED`,
    /// one that starts matching as `ADDED`. Default: all objects.
    #[param(max_length = 4096)]
    label_selector: Option<String>,
    /// Position to resume from: `position` of an earlier response or event. The watch continues after it. Default:
    /// the watch begins with the current objects.
    #[param(max_length = 64)]
    resume: Option<String>,
}

/// Registers the route of watches.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("watch", "Cluster", "Watch changes of objects")
        .describe(
            "Without `resume` the watch begins with the current objects as `ADDED`, followed by a \
             `BOOKMARK` with `initial`. Then it sends every change in order. All events of one revision \
             precede those of the next; `position` is present in the last of them and in heartbeats, \
             which are sent at least every 10 seconds. A watch that falls too far behind ends with an \
             `ERROR` event. A position is valid at every control server of the store; a server that has \
             not reached it yet waits. The status of an object is current at the time of the event; \
             changes of status alone cause no event.",
        )
        .query::<WatchQuery>()
        .header("Last-Event-ID", "Same as `resume`; sent by browsers.")
        .answer::<WatchEvent>(
            200,
            "Returned with events, one per line or as server-sent events.",
            &["application/x-ndjson", "text/event-stream"],
            &[],
        )
        .problems(&[Code::NotAcceptable, Code::ResumeExpired]);
    router.routes(
        Route::at("/v1/watch").on(HttpMethod::Get, Permission::Each(Verb::Watch, None), doc, watch).done(),
    )
}

async fn watch(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<WatchQuery>,
    RequestId(request_id): RequestId,
    headers: HeaderMap,
) -> Answer {
    let form = stream_form(&headers)?;
    let filter = Filter {
        kinds: kinds(query.kinds.as_deref())?,
        namespace: query.namespace,
        selector: selector(query.label_selector.as_deref())?,
        access: Arc::clone(caller.access()),
    };
    let resume = match query.resume {
        Some(text) => Some(text),
        None => headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).map(str::to_owned),
    };
    let resume = resume.map(|text| position("resume", &text)).transpose()?;
    if let Some(position) = resume {
        check_resume(&app, position).await?;
    }
    let permit = app.open_watch(&caller)?;
    let (pieces, body) = stream::pieces();
    let stop = app.stop_streams.child_token();
    let watch = ObjectWatch { app, filter, resume: resume.map(|at| at.revision), form, request_id, stop };
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

/// Parses a position (epoch and revision) from the query parameter with the given name.
pub(super) fn position(parameter: &str, text: &str) -> Result<Position, Problem> {
    let parsed = text.parse::<Position>();
    parsed.map_err(|error| Problem::bad_request(format!("query parameter: `{parameter}` {error}")))
}

/// Checks that a watch can resume from a position: the changes after it are in memory. If another control server
/// has returned the position, waits until this server has reached it, so that a client that fails over neither
/// misses events nor starts over.
async fn check_resume(app: &Shared, position: Position) -> Result<(), Problem> {
    if app.store.is_shared() {
        app.reach(position).await?;
    }
    let published = app.hub.load();
    let present = published.position();
    let is_ours = position.epoch == present.epoch && position.revision <= present.revision;
    let is_ours = app.may_resume(position) && is_ours;
    if is_ours && published.recent.since(position.revision).is_some() {
        Ok(())
    } else {
        Err(resume_expired(position))
    }
}
