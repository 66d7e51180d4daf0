//! `/v1/tokens`: tokens by which users and automation authenticate. The text of a token is returned only in the
//! response to its creation.

use std::sync::Arc;

use ::base::chain;
use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode};
use model::primitives::{
    name::Label,
    quantity::Timestamp,
    secret::Secret,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use store::VaultError;
use utoipa::{ToSchema, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::CredentialState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{
        Caller, Permission, Subject, Verb,
        tokens::{self, Binding, LIFE_SECS_MAX, TOKENS_MAX, TokenRecord, VAULT_PREFIX},
    },
};

/// `Retry-After` if the store fails, in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 5;

/// Request to create a token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenBody {
    /// Unique name of the token; recorded as the author of its requests.
    #[schema(value_type = String, max_length = 63, example = "ci")]
    name: Label,
    /// Role bindings, 1 to 32. The token has the permissions of all of them.
    #[schema(min_items = 1, max_items = 32)]
    bindings: Vec<Binding>,
    /// Lifetime in seconds, at most ten years. Default: unlimited.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000)]
    ttl_seconds: Option<i64>,
}

/// Token without its secret text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
struct TokenView {
    /// Id of the token, which its text contains. Not secret.
    id: String,
    /// Name of the token; recorded as the author of its requests.
    #[schema(value_type = String)]
    name: Label,
    /// Role bindings of the token.
    bindings: Vec<Binding>,
    /// Time of creation (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// Author of the request that created the token.
    created_by: String,
    /// End of validity (RFC 3339, UTC). Absent if the token does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
    /// Time at which the token was last used at this control server, to the minute. Absent if unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used: Option<Timestamp>,
}

/// Created token with its text.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TokenMade {
    #[serde(flatten)]
    shown: TokenView,
    /// Text of the token, to be sent as `Authorization: Bearer`. Returned in this response only.
    #[schema(value_type = String)]
    token: Secret,
}

/// List of all tokens.
#[derive(Debug, Serialize, ToSchema)]
struct TokenList {
    /// Tokens, ordered by name.
    #[schema(max_items = 1000)]
    items: Vec<TokenView>,
}

/// Path parameter with the id of a token.
#[derive(Debug, Clone, Deserialize)]
struct TokenPath {
    id: String,
}

/// Registers the routes of tokens.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::Token);
    let make = Doc::new("createToken", "Security", "Create a token")
        .describe(
            "A token cannot get permissions that the caller does not have. The text of the token is part \
             of this response only; the server stores a digest.",
        )
        .authored()
        .body::<TokenBody>(&OBJECT_TYPES, "Name, role bindings and validity of the token.")
        .answer::<TokenMade>(201, "Returned if the token was created.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::AlreadyExists, Code::Invalid]);
    let all = Doc::new("listTokens", "Security", "List tokens without their texts")
        .describe(
            "Returns all tokens with their role bindings, their validity and their last use. The \
             server stores only digests of the texts.",
        )
        .answer::<TokenList>(200, "Returned with all tokens.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let one = Doc::new("readToken", "Security", "Read a token without its text")
        .describe(
            "Returns one token with its role bindings, its validity and its last use. The server \
             stores only a digest of the text.",
        )
        .named_text("id", "Id of the token.")
        .answer::<TokenView>(200, "Returned with the token, without its text.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let revoke = Doc::new("revokeToken", "Security", "Revoke a token")
        .describe(
            "The token becomes invalid at once; at other servers of the same store within one or \
                   two seconds.",
        )
        .named_text("id", "Id of the token.")
        .authored()
        .answer::<TokenView>(200, "Returned with the revoked token.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::Conflict]);
    let many = Route::at("/v1/tokens").on(HttpMethod::Get, asks(Verb::List), all, list).on(
        HttpMethod::Post,
        asks(Verb::Create),
        make,
        create,
    );
    let single = Route::at("/v1/tokens/{id}").on(HttpMethod::Get, asks(Verb::Get), one, read).on(
        HttpMethod::Delete,
        asks(Verb::Delete),
        revoke,
        delete,
    );
    router.routes(many.done()).routes(single.done())
}

async fn create(
    State(state): State<CredentialState>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let TokenBody { name, bindings, ttl_seconds } = body::typed(&value)?;
    caller.record_object(format!("Token {name}"));
    let now = state.source.now();
    let directory = state.authenticator.directory();
    let mut violations = tokens::check_bindings(&bindings);
    if ttl_seconds.is_some_and(|ttl| !(1..=LIFE_SECS_MAX).contains(&ttl)) {
        let message = format!("must be 1 to {LIFE_SECS_MAX}");
        violations.push(Violation::new("/ttlSeconds", ViolationCode::Invalid, message));
    }
    let access = caller.access();
    for (index, binding) in bindings.iter().enumerate() {
        let pointer = format!("/bindings/{index}/role");
        match directory.grant(binding) {
            None => {
                let message = format!("must be a role; there is no {}", binding.role);
                violations.push(Violation::new(pointer, ViolationCode::NotFound, message));
            }
            Some(grant) if !access.has_all_of(&grant) => {
                let message = format!("must not exceed the permissions of {access}");
                violations.push(Violation::new(pointer, ViolationCode::Forbidden, message));
            }
            Some(_) => {}
        }
    }
    if !violations.is_empty() {
        return Err(Problem::invalid(violations));
    }
    if directory.tokens().any(|(_, _, token)| token.name == name) {
        let detail = format!("a token named {name} exists, and audit entries could not distinguish the two");
        return Err(Problem::new(Code::AlreadyExists, detail).hint(
            "choose another name, or revoke the existing \
                                                            token first",
        ));
    }
    if directory.tokens().count() >= TOKENS_MAX {
        let detail = format!("the maximum of {TOKENS_MAX} tokens is reached");
        return Err(Problem::new(Code::Conflict, detail).hint("revoke unused tokens"));
    }
    let id = tokens::id(&state.source.secret());
    let text = tokens::mint(&id, &state.source.secret());
    let ends = |ttl: i64| Timestamp::from_unix_seconds(now.unix_seconds().saturating_add(ttl));
    let token = TokenRecord {
        name,
        digest: tokens::digest(text.reveal()),
        bindings,
        created: now,
        created_by: caller.origin().author,
        expires: ttl_seconds.map(ends),
    };
    state.vault.put(&format!("{VAULT_PREFIX}{id}"), 0, &token).await.map_err(failed)?;
    tracing::info!(id, name = %token.name, "a token was created");
    let made = TokenMade { shown: token_view(&state, &id, &token), token: text };
    let mut response = render(form, &made);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn list(
    State(state): State<CredentialState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let directory = state.authenticator.directory();
    let mut items: Vec<_> = directory.tokens().map(|(id, _, token)| token_view(&state, id, token)).collect();
    items.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(render(form, &TokenList { items }))
}

async fn read(
    State(state): State<CredentialState>,
    ApiPath(TokenPath { id }): ApiPath<TokenPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (_, token) = find(&state, &id)?;
    Ok(render(form, &token_view(&state, &id, &token)))
}

async fn delete(
    State(state): State<CredentialState>,
    caller: Caller,
    ApiPath(TokenPath { id }): ApiPath<TokenPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (version, token) = find(&state, &id)?;
    caller.record_object(format!("Token {}", token.name));
    let shown = token_view(&state, &id, &token);
    state.vault.remove(&format!("{VAULT_PREFIX}{id}"), version).await.map_err(failed)?;
    tracing::info!(id, name = %token.name, "a token was revoked");
    Ok(render(form, &shown).into_response())
}

fn find(state: &CredentialState, id: &str) -> Result<(u64, Arc<TokenRecord>), Problem> {
    let directory = state.authenticator.directory();
    let found = directory.token(id).map(|(version, token)| (version, Arc::clone(token)));
    found.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no token {id}")).hint("GET /v1/tokens lists them")
    })
}

fn token_view(state: &CredentialState, id: &str, token: &TokenRecord) -> TokenView {
    let TokenRecord { name, digest: _, bindings, created, created_by, expires } = token;
    TokenView {
        id: id.to_owned(),
        name: name.clone(),
        bindings: bindings.clone(),
        created: *created,
        created_by: created_by.clone(),
        expires: *expires,
        last_used: state.authenticator.last_used(id),
    }
}

/// Converts an error of the vault (the store of secrets) to a problem response.
pub(super) fn failed(error: VaultError) -> Problem {
    match error {
        VaultError::Stale { .. } => {
            Problem::new(Code::Conflict, "the record was changed by another request at the same time")
                .hint("read it again and repeat the request")
        }
        VaultError::TooLarge { .. } => Problem::new(Code::Conflict, error.to_string())
            .hint("revoke unused tokens and delete unused roles"),
        VaultError::Unavailable(error) => {
            tracing::error!(error = chain(&error), "the vault cannot be written");
            Problem::new(
                Code::Unavailable,
                "the store did not confirm the write; whether it happened is \
                                             unknown",
            )
            .retry_after(UNAVAILABLE_RETRY_SECS)
        }
    }
}
