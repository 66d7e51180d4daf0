//! Whether this server lives, and whether it can take writes.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    error::{Answer, Code, Problem},
    openapi::{Doc, Route, Routes},
    security::Permission,
};

/// When to ask again, in seconds.
const RETRY_SECS: u32 = 5;

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let live = Doc::new("healthz", "Server", "Answers while the process lives.").text(
        200,
        "It lives.",
        "text/plain",
    );
    let ready = Doc::new("readyz", "Server", "Answers while the store answers.").text(
        200,
        "It is ready.",
        "text/plain",
    );
    router
        .routes(Route::at("/healthz").on(HttpMethod::Get, Permission::Open, live, healthz).done())
        .routes(Route::at("/readyz").on(HttpMethod::Get, Permission::Open, ready, readyz).done())
}

fn ok() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))], "ok\n").into_response()
}

async fn healthz() -> Response {
    std::future::ready(ok()).await
}

async fn readyz(State(app): State<Shared>) -> Answer {
    let head = app.hub.load().position().revision;
    // The log after the head is empty: the cheapest question that the store can only answer when it works.
    match app.store.changes(head, 1).await {
        Ok(_) => Ok(ok()),
        Err(error) => Err(Problem::new(Code::Unavailable, error.to_string()).retry_after(RETRY_SECS)),
    }
}
