//! `/v1/tokens`: what people and automation prove who they are with. The text of a token is in the answer that makes it,
//! and nowhere else.

use std::sync::Arc;

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

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        error_chain::Chain,
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{
        Permission, Subject, Verb, access,
        tokens::{self, Binding, LIFE_SECS_MAX, TOKENS_MAX, Token, VAULT_PREFIX},
    },
    write::caller,
};

/// When to come back when the store fails, in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 5;

/// A token that is wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenBody {
    /// The author of what is done with it; no two tokens have the same.
    #[schema(value_type = String, max_length = 63, example = "ci")]
    name: Label,
    /// What its holder may do; the sum of all.
    #[schema(min_items = 1, max_items = 32)]
    bindings: Vec<Binding>,
    /// Seconds until it ends, at most ten years; without it, it lasts until it is revoked.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000)]
    ttl_seconds: Option<i64>,
}

/// A token as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
struct Shown {
    /// Its id, which is in its text, too.
    id: String,
    /// The author of what is done with it.
    #[schema(value_type = String)]
    name: Label,
    /// What its holder may do.
    bindings: Vec<Binding>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// By whom.
    created_by: String,
    /// When it ends; without it, when it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
    /// When it was last used, to the minute, as this server knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used: Option<Timestamp>,
}

/// A token that was made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TokenMade {
    #[serde(flatten)]
    shown: Shown,
    /// Its text, to be sent as `Authorization: Bearer`. It is not shown again.
    #[schema(value_type = String)]
    token: Secret,
}

/// The tokens.
#[derive(Debug, Serialize, ToSchema)]
struct TokenList {
    /// By name.
    #[schema(max_items = 1000)]
    items: Vec<Shown>,
}

/// Which token.
#[derive(Debug, Clone, Deserialize)]
struct TokenPath {
    id: String,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::Token);
    let make = Doc::new("createToken", "Security", "Makes a token.")
        .describe(
            "Nobody can give away what they may not do themselves. The text of the token is in this answer only; the \
             server keeps a digest of it.",
        )
        .authored()
        .body::<TokenBody>(&OBJECT_TYPES, "The token.")
        .answer::<TokenMade>(201, "It is made.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::AlreadyExists, Code::Invalid]);
    let all = Doc::new("listTokens", "Security", "Lists the tokens, without their texts.")
        .answer::<TokenList>(200, "The tokens.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let one = Doc::new("readToken", "Security", "Reads a token, without its text.")
        .named_text("id", "The id of the token.")
        .answer::<Shown>(200, "The token.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let revoke = Doc::new("revokeToken", "Security", "Revokes a token.")
        .describe("It counts no longer at once; at other servers of the same store within a second or two.")
        .named_text("id", "The id of the token.")
        .authored()
        .answer::<Shown>(200, "It is revoked; this is what it was.", &OBJECT_TYPES, &[])
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

async fn create(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, request: Request) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let TokenBody { name, bindings, ttl_seconds } = body::typed(&value)?;
    caller::note_object(format!("Token {name}"));
    let now = app.source.now();
    let directory = app.desk.directory();
    let mut violations = tokens::check_bindings(&bindings);
    if ttl_seconds.is_some_and(|ttl| !(1..=LIFE_SECS_MAX).contains(&ttl)) {
        let message = format!("must be 1 to {LIFE_SECS_MAX}");
        violations.push(Violation::new("/ttlSeconds", ViolationCode::Invalid, message));
    }
    let access = access::current();
    for (index, binding) in bindings.iter().enumerate() {
        let pointer = format!("/bindings/{index}/role");
        match directory.grant(binding) {
            None => {
                let message = format!("must be a role; there is no {}", binding.role);
                violations.push(Violation::new(pointer, ViolationCode::NotFound, message));
            }
            Some(grant) if !access.has_all_of(&grant) => {
                let message = format!("must not be more than {access} may do");
                violations.push(Violation::new(pointer, ViolationCode::Forbidden, message));
            }
            Some(_) => {}
        }
    }
    if !violations.is_empty() {
        return Err(Problem::invalid(violations));
    }
    if directory.tokens().any(|(_, _, token)| token.name == name) {
        let detail = format!("there is a token named {name}: nobody could tell what was done with which");
        return Err(
            Problem::new(Code::AlreadyExists, detail).hint("take another name, or revoke that one first")
        );
    }
    if directory.tokens().count() >= TOKENS_MAX {
        let detail = format!("there are {TOKENS_MAX} tokens, and there may be no more");
        return Err(Problem::new(Code::Conflict, detail).hint("revoke those that nobody uses"));
    }
    let id = tokens::id(&app.source.secret());
    let text = tokens::mint(&id, &app.source.secret());
    let ends = |ttl: i64| Timestamp::from_unix_seconds(now.unix_seconds().saturating_add(ttl));
    let token = Token {
        name,
        digest: tokens::digest(text.reveal()),
        bindings,
        created: now,
        created_by: caller::origin().author,
        expires: ttl_seconds.map(ends),
    };
    app.vault.put(&format!("{VAULT_PREFIX}{id}"), 0, &token).await.map_err(failed)?;
    tracing::info!(id, name = %token.name, "a token was made");
    let made = TokenMade { shown: show(&app, &id, &token), token: text };
    let mut response = render(form, &made);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn list(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let directory = app.desk.directory();
    let mut items: Vec<_> = directory.tokens().map(|(id, _, token)| show(&app, id, token)).collect();
    items.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(render(form, &TokenList { items }))
}

async fn read(
    State(app): State<Shared>,
    ApiPath(TokenPath { id }): ApiPath<TokenPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (_, token) = find(&app, &id)?;
    Ok(render(form, &show(&app, &id, &token)))
}

async fn delete(
    State(app): State<Shared>,
    ApiPath(TokenPath { id }): ApiPath<TokenPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (version, token) = find(&app, &id)?;
    caller::note_object(format!("Token {}", token.name));
    let shown = show(&app, &id, &token);
    app.vault.remove(&format!("{VAULT_PREFIX}{id}"), version).await.map_err(failed)?;
    tracing::info!(id, name = %token.name, "a token was revoked");
    Ok(render(form, &shown).into_response())
}

fn find(app: &Shared, id: &str) -> Result<(u64, Arc<Token>), Problem> {
    let directory = app.desk.directory();
    let found = directory.token(id).map(|(version, token)| (version, Arc::clone(token)));
    found.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no token {id}")).hint("GET /v1/tokens lists them")
    })
}

fn show(app: &Shared, id: &str, token: &Token) -> Shown {
    let Token { name, digest: _, bindings, created, created_by, expires } = token;
    Shown {
        id: id.to_owned(),
        name: name.clone(),
        bindings: bindings.clone(),
        created: *created,
        created_by: created_by.clone(),
        expires: *expires,
        last_used: app.desk.last_used(id),
    }
}

/// The vault did not take a record.
pub(super) fn failed(error: VaultError) -> Problem {
    match error {
        VaultError::Stale { .. } => {
            Problem::new(Code::Conflict, "somebody else changed it in the same moment")
                .hint("read it again and repeat the request")
        }
        VaultError::TooLarge { .. } => Problem::new(Code::Conflict, error.to_string())
            .hint("revoke tokens and remove roles that nobody uses"),
        VaultError::Unavailable(error) => {
            tracing::error!(error = %Chain(&error), "the vault cannot be written");
            Problem::new(Code::Unavailable, "the store did not confirm it; whether it happened is unknown")
                .retry_after(UNAVAILABLE_RETRY_SECS)
        }
    }
}
