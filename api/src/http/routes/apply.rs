//! `POST /v1/apply`: atomic write of many objects as one revision.

use axum::extract::{Request, State};
use model::{
    admission::{
        admit::{self, ApplySet, Operation},
        decode::{Expect, decode},
    },
    primitives::{name::Name, violation::Violation},
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::form,
    },
    http::{
        body,
        mutation::{self as mutate, WriteOptions},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
        schema::{ApplyAnswer, ApplyBody},
    },
    security::{Caller, Permission, Verb},
    state::idempotency::{self, KeyedRequest},
};

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ApplyQuery {
    /// If true, the request is validated and answered as usual, but nothing is changed. Default: false.
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
    /// If true, the write is performed even if it removes more virtual addresses or endpoints at once than
    /// the server's limits (guards) allow. Default: false.
    #[serde(default)]
    #[param(required = false)]
    confirm: bool,
    /// Name of the apply set (a named group of objects) that owns the objects from now on, for example
    /// `shop`. Default: no set.
    apply_set: Option<Name>,
    /// If true, members of the apply set that the body does not contain are deleted. Requires `applySet`. A caller
    /// that is limited to namespaces deletes members in these namespaces only; other callers do not delete members
    /// that such a caller has added. Default: false.
    #[serde(default)]
    #[param(required = false)]
    prune: bool,
    /// If true, Services that lose their addresses because a pool changes get other addresses, if any are
    /// available. If false, a write with this effect is rejected, and the response lists the Services.
    /// Default: false.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
    /// Maximum number of objects that `prune` may delete, from 0 to 5000. If it would delete more, the whole
    /// request is rejected. Default: five, or a fifth of the members of the apply set if that is more.
    #[param(minimum = 0, maximum = 5000)]
    prune_limit: Option<u32>,
    /// If false, the request is rejected if one of the objects exists and belongs to no set. If true, such
    /// objects are added to the set. Default: true.
    #[param(required = false)]
    adopt: Option<bool>,
}

/// Registers the route `POST /v1/apply`.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("apply", "Cluster", "Create or replace many objects atomically")
        .describe(
            "The body is one object, an array, a `List`, or YAML documents. All objects are written as \
             one revision, or none. JSON pointers in `errors` begin with `/items/N`, counted from 0 over \
             all objects. Unchanged objects keep their revision.",
        )
        .query::<ApplyQuery>()
        .authored()
        .header(
            "Idempotency-Key",
            "Idempotency key of the request, 1 to 255 visible ASCII characters. A \
                                    repetition with the same key at the same control server returns the \
                                    first response, for one day.",
        )
        .body::<ApplyBody>(&OBJECT_TYPES, "Objects to create or replace.")
        .answer::<ApplyAnswer>(
            200,
            "Returned if all objects were accepted.",
            &OBJECT_TYPES,
            &[
                ("X-Revision", "Revision of the state that includes the write."),
                (
                    "X-Dry-Run",
                    "`true` \
                                                                                                for a \
                                                                                                dry run.",
                ),
            ],
        )
        .problems(&[
            Code::NotAcceptable,
            Code::Conflict,
            Code::PruneLimit,
            Code::GuardHeld,
            Code::QuotaExceeded,
            Code::Invalid,
        ]);
    router.routes(
        Route::at("/v1/apply").on(HttpMethod::Post, Permission::Each(Verb::Update, None), doc, apply).done(),
    )
}

async fn apply(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<ApplyQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    if query.adopt.is_some() && query.apply_set.is_none() {
        return Err(Problem::bad_request("`adopt` needs `applySet`: it is about the objects of a set"));
    }
    let apply_set = apply_set_of(&caller, query.apply_set.as_ref(), query.prune, query.prune_limit)?
        .map(|set| ApplySet { adopt: query.adopt.unwrap_or(true), ..set });
    let target = request.uri().to_string();
    let (parts, body) = request.into_parts();
    let (bytes, items) = body::read_many(&parts.headers, body).await?;
    let serve = async {
        let operations = decode_all(&items)?;
        let manner = WriteOptions {
            is_dry_run: query.dry_run,
            evict: query.evict,
            confirm: query.confirm,
            form,
            bytes: bytes.len(),
        };
        let written = mutate::write(
            &app,
            &caller,
            admit::Request { operations, apply_set, ..admit::Request::default() },
            manner,
        )
        .await?;
        Ok(mutate::answer_many(&app, manner, &written))
    };
    let request =
        KeyedRequest { access: caller.access(), headers: &parts.headers, target: &target, body: &bytes };
    idempotency::once(&app.idempotency, app.source.now(), request, serve).await
}

/// Returns the apply set with this name and the scope of the caller, or `None` if no name is given. Returns a
/// problem for `prune` without a name, and for `prune_limit` without `prune`.
pub(super) fn apply_set_of(
    caller: &Caller,
    apply_set: Option<&Name>,
    prune: bool,
    prune_limit: Option<u32>,
) -> Result<Option<ApplySet>, Problem> {
    if prune && apply_set.is_none() {
        return Err(Problem::bad_request("`prune` needs `applySet`: it removes members of a set"));
    }
    if prune_limit.is_some() && !prune {
        return Err(Problem::bad_request("`pruneLimit` needs `prune`: without it nothing is removed"));
    }
    let prune_limit = prune_limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let scope = caller.access().apply_set_scope();
    Ok(apply_set.cloned().map(|name| ApplySet { name, scope, prune, prune_limit, adopt: true }))
}

/// Decodes all objects of a request. Returns a problem if there are too many objects, or if any are invalid,
/// with the violations of all of them; decoding stops at [`VIOLATIONS_MAX`] violations.
pub(super) fn decode_all(items: &[Value]) -> Result<Vec<Operation>, Problem> {
    if items.len() > admit::OPERATIONS_MAX {
        let message = format!(
            "must be at most {} objects in one request, found {}",
            admit::OPERATIONS_MAX,
            items.len()
        );
        return Err(Problem::invalid(vec![Violation::new(
            "/items",
            model::primitives::violation::ViolationCode::TooLong,
            message,
        )]));
    }
    let mut operations = Vec::with_capacity(items.len());
    let mut violations = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match decode(item, &Expect::default()) {
            Ok(object) => operations.push(Operation::Apply(object)),
            Err(found) => violations.extend(found.into_iter().map(|mut violation| {
                violation.pointer = format!("/items/{index}{}", violation.pointer);
                violation
            })),
        }
        if violations.len() >= VIOLATIONS_MAX {
            break;
        }
    }
    if violations.is_empty() { Ok(operations) } else { Err(Problem::invalid(violations)) }
}

/// Number of violations after which no further objects are decoded.
const VIOLATIONS_MAX: usize = 500;
