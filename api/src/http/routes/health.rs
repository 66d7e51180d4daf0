//! Liveness and readiness checks of this server.

use std::sync::atomic::Ordering;

use ::base::chain;
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::error::{Answer, Code, Problem},
    context::server_state::ServerState,
    http::openapi::{Doc, Route, Routes},
    security::Permission,
};

/// `Retry-After` of a server that is not ready, in seconds.
const RETRY_SECS: u32 = 5;
/// Key that is written to the store and removed, to test if the store accepts writes.
const TRIAL: &str = "readyz";

/// Registers the routes of the liveness and readiness checks.
pub(super) fn add(router: Routes) -> Routes {
    let live = Doc::new("healthz", "Server", "Check the liveness of the server")
        .describe("Liveness probe for supervisors. Needs no authentication and does not access the store.")
        .text(200, "Returned if the process is alive.", "text/plain");
    let alias = Doc::new("livez", "Server", "Check the liveness under its Kubernetes name")
        .describe("Same as `/healthz`, under the name that Kubernetes API servers use.")
        .text(200, "Returned if the process is alive.", "text/plain");
    let ready = Doc::new("readyz", "Server", "Check the readiness of the server")
        .describe(
            "Readiness probe for load balancers. Needs no authentication. Returns 503 with the reason \
             if the store is unreachable or read-only.",
        )
        .text(200, "Returned if the store is reachable and accepts writes.", "text/plain");
    router
        .routes(Route::at("/healthz").on(HttpMethod::Get, Permission::Open, live, healthz).done())
        .routes(Route::at("/livez").on(HttpMethod::Get, Permission::Open, alias, healthz).done())
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
    // Reading the empty log after the head is the cheapest request that needs a working store.
    let read = app.store.changes(head, 1).await.map(drop).map_err(|error| error.to_string());
    let tried = match read {
        Ok(()) if app.has_failed.load(Ordering::Relaxed) => try_to_write(&app).await,
        outcome => outcome,
    };
    tried.map(|()| ok()).map_err(|why| Problem::new(Code::Unavailable, why).retry_after(RETRY_SECS))
}

/// Writes and removes a test key, to check if the store accepts writes again after a failure. Reading would be no
/// test, because a store on a full disk may still be readable.
async fn try_to_write(app: &ServerState) -> Result<(), String> {
    let written = async {
        app.store.put_status(TRIAL, b"{}").await.map_err(|error| chain(&error))?;
        app.store.remove_status(TRIAL).await.map_err(|error| chain(&error))
    };
    written.await.map_err(|why| format!("the last write failed, and writes still fail: {why}"))?;
    app.has_failed.store(false, Ordering::Relaxed);
    Ok(())
}
