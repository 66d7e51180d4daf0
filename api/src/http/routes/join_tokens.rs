//! `/v1/jointokens`: single-use tokens by which new machines join as nodes.

use axum::{body::Body, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode};
use model::{
    kinds::{
        metadata::{self, Labels},
        resource::Kind,
    },
    primitives::{
        name::Name,
        quantity::Timestamp,
        secret::Secret,
        violation::{Violation, ViolationCode},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::enrol::issuer;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::EnrollmentState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiPath,
    },
    security::{
        Caller, Permission, Subject, Verb,
        enrol::{self, JoinRecord, TTL_SECS_DEFAULT, TTL_SECS_MAX},
    },
};

/// Request to create a join token.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct JoinTokenRequest {
    /// Name of the only node that may use the token. Required for the name of an existing Node, and for a name
    /// that had a certificate before. Default: the holder of the token may choose any name that was never used.
    #[schema(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Labels that the Node gets when its agent registers it, as in `metadata.labels`. An agent can set no
    /// others. Requires the permission to update Nodes.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Labels,
    /// Validity in seconds, from 1 to 86400. Default: 3600.
    #[schema(minimum = 1, maximum = 86400)]
    ttl_seconds: Option<u32>,
}

/// Created join token, with its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinTokenMade {
    #[serde(flatten)]
    shown: JoinToken,
    /// Text of the token, with the secret. Anybody who has it can join a node. Returned in this response only.
    #[schema(value_type = String)]
    token: Secret,
}

/// Join token without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinToken {
    /// Id of the token; not secret.
    id: String,
    /// Name of the only node that may use the token. Absent if the token is not limited to a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    node: Option<Name>,
    /// Labels that the Node gets when its agent registers it.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Labels,
    /// Time of creation (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// End of validity (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
}

/// List of the valid join tokens.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinTokenList {
    /// Tokens, ordered by id.
    items: Vec<JoinToken>,
}

#[derive(Debug, Deserialize)]
struct JoinTokenPath {
    id: String,
}

/// Registers the routes of join tokens.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::JoinToken);
    let create = Doc::new("createJoinToken", "Server", "Create a join token")
        .describe(
            "The token lets one machine join once. The agent reads it from a file: \
                   `--join-token-file`. It also contains the data that the agent needs to authenticate \
                   this server.",
        )
        .authored()
        .body::<JoinTokenRequest>(&OBJECT_TYPES, "Node name, labels and validity of the token.")
        .answer::<JoinTokenMade>(
            201,
            "Returned with the token; its text is not available later.",
            &OBJECT_TYPES,
            &[],
        )
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Conflict]);
    let list = Doc::new("listJoinTokens", "Server", "List valid join tokens")
        .describe("Returns the join tokens that are neither used nor expired, without their texts.")
        .answer::<JoinTokenList>(200, "Returned with the valid join tokens.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let delete = Doc::new("deleteJoinToken", "Server", "Delete a join token")
        .describe(
            "Deletes a join token before its use. Machines that have joined with other tokens are not \
             affected.",
        )
        .authored()
        .named_text("id", "Id of the token.")
        .empty(204, "Returned if the token was deleted.")
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
        let JoinRecord { node, labels, created, expires, .. } = record;
        Self { id, node, labels, created, expires }
    }
}

async fn make(
    State(state): State<EnrollmentState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let issuer = issuer(&state)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let JoinTokenRequest { node, labels, ttl_seconds } = body::typed(&value)?;
    check_labels(&state, &caller, node.as_ref(), &labels)?;
    let ttl_secs = ttl_seconds.unwrap_or(TTL_SECS_DEFAULT);
    if !(1..=TTL_SECS_MAX).contains(&ttl_secs) {
        let message = format!("must be between 1 and {TTL_SECS_MAX}, not {ttl_secs}");
        return Err(Problem::invalid(vec![Violation::new("/ttlSeconds", ViolationCode::Invalid, message)]));
    }
    let (id, record, token) = enrol::make_token(issuer, (node, labels), ttl_secs).await?;
    caller.record_object(format!("JoinToken {id}"));
    let mut response = render(form, &JoinTokenMade { shown: JoinToken::of((id, record)), token });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Checks that the labels are valid, would take effect, and are the caller's to give.
fn check_labels(
    state: &EnrollmentState,
    caller: &Caller,
    node: Option<&Name>,
    labels: &Labels,
) -> Result<(), Problem> {
    if labels.is_empty() {
        return Ok(());
    }
    caller.access().need(Verb::Update, Subject::Object(Kind::Node), None)?;
    let mut violations = Vec::new();
    metadata::check_labels("/labels", labels, &mut violations);
    if !violations.is_empty() {
        return Err(Problem::invalid(violations));
    }
    match node.filter(|node| state.has_node(node)) {
        Some(node) => Err(enrol::labels_without_effect(node)),
        None => Ok(()),
    }
}

async fn tokens(State(state): State<EnrollmentState>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let items = enrol::tokens(&state.vault, state.source.now()).into_iter().map(JoinToken::of).collect();
    Ok(render(form, &JoinTokenList { items }))
}

async fn remove(
    State(state): State<EnrollmentState>,
    caller: Caller,
    ApiPath(JoinTokenPath { id }): ApiPath<JoinTokenPath>,
) -> Answer {
    if !enrol::remove_token(&state.vault, &id).await? {
        return Err(Problem::new(Code::NotFound, "there is no join token with this id")
            .hint("GET /v1/jointokens lists the valid ones"));
    }
    caller.record_object(format!("JoinToken {id}"));
    Ok(StatusCode::NO_CONTENT.into_response())
}
