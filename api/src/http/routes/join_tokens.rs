//! `/v1/jointokens`: what lets a new machine in, once.

use axum::{body::Body, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode};
use model::primitives::{
    name::Name,
    quantity::Timestamp,
    secret::Secret,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::{Shared, enrol::desk};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiPath,
    },
    security::{
        Permission, Subject, Verb,
        enrol::{self, JoinRecord, TTL_SECS_DEFAULT, TTL_SECS_MAX},
    },
    write::caller,
};

/// A join token to be made.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct JoinTokenRequest {
    /// The only node that may use it. Needed where a node of this name has a certificate already; else whoever has the
    /// token chooses a name that nobody has.
    #[schema(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// How long it can be used, in seconds; an hour when left out.
    #[schema(minimum = 1, maximum = 86400)]
    ttl_seconds: Option<u32>,
}

/// A join token that was made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinTokenMade {
    #[serde(flatten)]
    shown: JoinToken,
    /// The token itself: whoever has it may join. It is told this once.
    #[schema(value_type = String)]
    token: Secret,
}

/// A join token, without what makes it one.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinToken {
    /// Its id; no secret.
    id: String,
    /// The only node that may use it; any when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    node: Option<Name>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
}

/// The join tokens that can be used.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinTokenList {
    /// The tokens, by id.
    items: Vec<JoinToken>,
}

#[derive(Debug, Deserialize)]
struct TokenPath {
    id: String,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::JoinToken);
    let create = Doc::new("createJoinToken", "Server", "Makes a token with which a machine joins once.")
        .describe("The agent is given the token in a file: `--join-token-file`. It holds what the agent needs to know this server.")
        .authored()
        .body::<JoinTokenRequest>(&OBJECT_TYPES, "For whom, and for how long.")
        .answer::<JoinTokenMade>(201, "The token, told this once.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Conflict]);
    let list = Doc::new(
        "listJoinTokens",
        "Server",
        "Lists the join tokens that can be used, without their secrets.",
    )
    .answer::<JoinTokenList>(200, "The tokens.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable]);
    let delete = Doc::new("deleteJoinToken", "Server", "Removes a join token, so that nobody can use it.")
        .authored()
        .named_text("id", "The id of the token.")
        .empty(204, "It is removed.")
        .problems(&[Code::NotFound]);
    let all = Route::at("/v1/jointokens").on(HttpMethod::Post, asks(Verb::Create), create, make).on(
        HttpMethod::Get,
        asks(Verb::List),
        list,
        tokens,
    );
    let one = Route::at("/v1/jointokens/{id}").on(HttpMethod::Delete, asks(Verb::Delete), delete, remove);
    router.routes(all.done()).routes(one.done())
}

impl JoinToken {
    fn of((id, record): (String, JoinRecord)) -> Self {
        let JoinRecord { node, created, expires, .. } = record;
        Self { id, node, created, expires }
    }
}

async fn make(State(app): State<Shared>, headers: HeaderMap, body: Body) -> Answer {
    let form = form(&headers)?;
    let desk = desk(&app)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let JoinTokenRequest { node, ttl_seconds } = body::typed(&value)?;
    let ttl_secs = ttl_seconds.unwrap_or(TTL_SECS_DEFAULT);
    if !(1..=TTL_SECS_MAX).contains(&ttl_secs) {
        let message = format!("must be between 1 and {TTL_SECS_MAX}, not {ttl_secs}");
        return Err(Problem::invalid(vec![Violation::new("/ttlSeconds", ViolationCode::Invalid, message)]));
    }
    let (id, record, token) = enrol::make_token(desk, node, ttl_secs).await?;
    caller::note_object(format!("JoinToken {id}"));
    let mut response = render(form, &JoinTokenMade { shown: JoinToken::of((id, record)), token });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn tokens(State(app): State<Shared>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let items = enrol::tokens(&app.vault, app.source.now()).into_iter().map(JoinToken::of).collect();
    Ok(render(form, &JoinTokenList { items }))
}

async fn remove(State(app): State<Shared>, ApiPath(TokenPath { id }): ApiPath<TokenPath>) -> Answer {
    if !enrol::remove_token(&app.vault, &id).await? {
        return Err(Problem::new(Code::NotFound, "there is no join token of this id")
            .hint("GET /v1/jointokens lists those that can be used"));
    }
    caller::note_object(format!("JoinToken {id}"));
    Ok(StatusCode::NO_CONTENT.into_response())
}
