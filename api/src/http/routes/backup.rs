//! `POST /v1/backup`: stream of the contents of the store at one revision, taken while the server runs.
//!
//! The method is not GET, because the response contains every secret of the cluster: clients with read access,
//! such as crawlers, must not receive it, and the audit log must record each backup.

use std::sync::Arc;

use ::base::chain;
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
    },
    http::{
        openapi::{Doc, Route, Routes},
        params::ApiQuery,
    },
    security::{Caller, Permission, Subject, Verb},
};

/// Media type of a backup.
const CONTENT_TYPE: &str = "application/x-ndjson";
/// `Retry-After` while another backup is in progress, in seconds.
const RETRY_SECS: u32 = 10;

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BackupQuery {
    /// If true, the backup includes the history of writes. Without it no older write can be undone after a
    /// restore. Default: false.
    history: Option<bool>,
}

/// Registers the route of backups.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("takeBackup", "Server", "Download a backup of the store")
        .describe(
            "The response consists of JSON lines, all of one revision. The last line holds a \
                 checksum of the others; a backup without it is incomplete. The backup contains every \
                 secret of the cluster: router passwords, keys, and token digests. It contains neither \
                 observed state nor the audit log. Only one backup can be taken at a time.",
        )
        .query::<BackupQuery>()
        .authored()
        .text(200, "Returned with the backup as JSON lines.", CONTENT_TYPE);
    router.routes(
        Route::at("/v1/backup")
            .on(HttpMethod::Post, Permission::On(Verb::Get, Subject::Backup), doc, take)
            .done(),
    )
}

async fn take(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(BackupQuery { history }): ApiQuery<BackupQuery>,
) -> Answer {
    let permit = Arc::clone(&app.backups).try_acquire_owned().map_err(|_| {
        Problem::new(Code::TooManyRequests, "another backup is in progress").retry_after(RETRY_SECS)
    })?;
    let contents = Contents::of(&*app.store, history.unwrap_or(false)).await;
    let (position, contents) = contents.map_err(|error| {
        tracing::error!(error = chain(&error), "cannot take a backup");
        Problem::new(Code::Unavailable, error.to_string()).retry_after(RETRY_SECS)
    })?;
    caller.record_object(format!("backup of {position}"));
    tracing::info!(%position, objects = contents.objects.len(), "a backup is being taken; it contains \
                                                                 secrets");
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

/// Sends the lines of the backup as a stream. If the client disconnects early, the file that it has saved lacks
/// the last line and is recognized as incomplete.
async fn send(lines: impl Iterator<Item = String>, pieces: &Pieces) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    for line in lines {
        piece.extend_from_slice(line.as_bytes());
        if piece.len() >= PIECE_BYTES && pieces.send(Bytes::from(std::mem::take(&mut piece))).await.is_err() {
            tracing::warn!("the client of a backup disconnected before its end");
            return;
        }
    }
    if pieces.send(Bytes::from(piece)).await.is_err() {
        tracing::warn!("the client of a backup disconnected before its end");
    }
}
