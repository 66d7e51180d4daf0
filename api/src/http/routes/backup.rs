//! `POST /v1/backup`: everything that the store keeps, as of one revision, while the server serves.
//!
//! No GET, because the answer holds every secret of the cluster: what reads everything, such as a crawler or whoever may
//! only look, must not come by it, and the audit log says who took one.

use std::sync::Arc;

use axum::{extract::State, response::IntoResponse};
use bytes::Bytes;
use http::{HeaderValue, header};
use serde::Deserialize;
use store::{Contents, backup};
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        body_stream::{self as stream, PIECE_BYTES, Pieces},
        error::{Answer, Code, Problem},
        error_chain::Chain,
    },
    http::{
        openapi::{Doc, Route, Routes},
        params::ApiQuery,
    },
    security::{Permission, Subject, Verb},
    write::caller,
};

/// The form of a backup.
const CONTENT_TYPE: &str = "application/x-ndjson";
/// When to come back while another backup is taken, in seconds.
const RETRY_SECS: u32 = 10;

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BackupQuery {
    /// Whether the history of writes is in it, without which nothing older can be undone after a restore.
    history: Option<bool>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc =
        Doc::new("takeBackup", "Server", "Answers everything that the store keeps, to be restored elsewhere.")
            .describe(
                "JSON lines, all of one revision; the last line has a checksum of those before it, and without it the backup \
             is not complete. It holds every secret of the cluster: passwords of routers, keys, and what tokens are \
             checked against. What nodes observed and the audit log are not in it. One is taken at a time.",
            )
            .query::<BackupQuery>()
            .authored()
            .text(200, "The backup.", CONTENT_TYPE);
    router.routes(
        Route::at("/v1/backup")
            .on(HttpMethod::Post, Permission::On(Verb::Get, Subject::Backup), doc, take)
            .done(),
    )
}

async fn take(State(app): State<Shared>, ApiQuery(BackupQuery { history }): ApiQuery<BackupQuery>) -> Answer {
    let permit = Arc::clone(&app.backups).try_acquire_owned().map_err(|_| {
        Problem::new(Code::TooManyRequests, "another backup is being taken").retry_after(RETRY_SECS)
    })?;
    let contents = Contents::of(&*app.store, history.unwrap_or(false)).await;
    let (position, contents) = contents.map_err(|error| {
        tracing::error!(error = %Chain(&error), "no backup could be taken");
        Problem::new(Code::Unavailable, error.to_string()).retry_after(RETRY_SECS)
    })?;
    caller::note_object(format!("backup of {position}"));
    tracing::info!(%position, objects = contents.objects.len(), "a backup is taken; it holds secrets");
    let lines = backup::lines(app.source.now(), position, contents);
    let (pieces, body) = stream::pieces();
    tokio::spawn(async move {
        send(lines, &pieces).await;
        drop(permit);
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// Sends the lines in pieces. A client that goes away finds that its file has no end.
async fn send(lines: impl Iterator<Item = String>, pieces: &Pieces) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    for line in lines {
        piece.extend_from_slice(line.as_bytes());
        if piece.len() >= PIECE_BYTES && pieces.send(Bytes::from(std::mem::take(&mut piece))).await.is_err() {
            tracing::warn!("whoever took a backup went away before its end");
            return;
        }
    }
    if pieces.send(Bytes::from(piece)).await.is_err() {
        tracing::warn!("whoever took a backup went away before its end");
    }
}
