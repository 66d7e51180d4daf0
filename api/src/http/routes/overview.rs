//! `GET /v1/overview` and its watch: state of the cluster in one document, once or as a stream of changes.

use std::{io::Write, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt;
use model::views::overview::{Overview, diff::OverviewFrame};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        body_stream as stream,
        error::{Answer, Code, Problem},
        negotiate::{StreamForm, accepts_gzip, form, render, stream_form},
    },
    http::{
        middleware::RequestId,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Caller, Permission, Subject, Verb},
    tasks::overview::stream::{OverviewWatch, seen},
};

/// `Retry-After` during shutdown, in seconds.
const RETRY_SECS: u32 = 10;

/// Registers the routes of the overview.
pub(super) fn add(router: Routes) -> Routes {
    let read = Doc::new("readOverview", "Cluster", "Read the cluster overview")
        .describe(
            "The overview holds one row per Service and Node, and all problems. Problems are sorted by \
             their impact on users and name the last write before them that touched their subject, if \
             their start time is known. Callers limited to some namespaces see only the Services and \
             problems of these namespaces; `isWhole` is false then. Compressed with gzip if accepted.",
        )
        .answer::<Overview>(200, "Returned with the overview.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let watch_doc = Doc::new("watchOverview", "Cluster", "Watch the cluster overview")
        .describe(
            "The first line is the document with `type` `overview`. A `change` holds the differences to \
             the document built from the previous lines: fields that are present replace those of the \
             document; of rows, `changed` are complete rows, and `removed` are gone; of problems, \
             `order` lists the ids of all in order. At most four changes are sent per second, and a slow \
             reader receives one merged change. A `heartbeat` is sent at least every 2 seconds without a \
             change. An `error` ends the watch. With `Accept: text/event-stream` the lines are \
             server-sent events. Compressed with gzip if accepted, line by line.",
        )
        .answer::<OverviewFrame>(
            200,
            "Returned with one frame per line.",
            &["application/x-ndjson", "text/event-stream"],
            &[],
        )
        .problems(&[Code::NotAcceptable]);
    router
        .routes(
            Route::at("/v1/overview")
                .on(HttpMethod::Get, Permission::Each(Verb::Get, Some(Subject::Status)), read, overview)
                .done(),
        )
        .routes(
            Route::at("/v1/overview/watch")
                .on(HttpMethod::Get, Permission::Each(Verb::Get, Some(Subject::Status)), watch_doc, watch)
                .done(),
        )
}

async fn overview(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let shown = app.overview.current(&app).await.ok_or_else(ending)?;
    let at = app.source.now();
    let part = seen(caller.access(), &shown.overview);
    let overview = Overview { at, ..part.map_or_else(|| shown.overview.clone(), |part| *part) };
    let answer = render(form, &overview);
    if accepts_gzip(&headers) { compressed(answer).await } else { Ok(answer) }
}

/// Creates the problem response for a request during shutdown.
pub(super) fn ending() -> Problem {
    Problem::new(Code::Unavailable, "the server is stopping").retry_after(RETRY_SECS)
}

async fn compressed(answer: Response) -> Answer {
    let (mut parts, body) = answer.into_parts();
    let failed = || Problem::new(Code::Internal, "the response cannot be compressed");
    let plain = body.collect().await.map_err(|_| failed())?.to_bytes();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(&plain).and_then(|()| encoder.finish()).map_err(|_| failed())?;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    Ok(Response::from_parts(parts, Body::from(packed)))
}

async fn watch(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    RequestId(request_id): RequestId,
    headers: HeaderMap,
) -> Answer {
    let form = stream_form(&headers)?;
    let gzip = accepts_gzip(&headers);
    let permit = app.open_watch(&caller)?;
    let (pieces, body) = stream::pieces();
    let stop = app.stop_streams.child_token();
    let watch = OverviewWatch { app, access: Arc::clone(caller.access()), form, gzip, request_id, stop };
    tokio::spawn(async move {
        watch.run(pieces).await;
        drop(permit);
    });
    let mut response = body.into_response();
    let content_type = match form {
        StreamForm::Ndjson => "application/x-ndjson",
        StreamForm::Sse => "text/event-stream",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}
