//! Many objects at once: all of them, as one revision, or none.

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
        mutation::{self as mutate, Manner},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
        schema::{ApplyAnswer, ApplyBody},
    },
    security::{Permission, Verb},
    state::idempotency,
};

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ApplyQuery {
    /// Answer as if, and change nothing.
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
    /// Do it even if it removes more of the virtual addresses or endpoints at once than the guards allow.
    #[serde(default)]
    #[param(required = false)]
    confirm: bool,
    /// The set that owns the objects from then on.
    apply_set: Option<Name>,
    /// Remove the members of the set that the body does not name.
    #[serde(default)]
    #[param(required = false)]
    prune: bool,
    /// Give Services other addresses when pools lose the ones they have, as far as there are any. Without it such a write
    /// is refused and names them.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
    /// How many may be removed; five, or a fifth of the set if that is more, when left out.
    #[param(minimum = 0, maximum = 5000)]
    prune_limit: Option<u32>,
    /// `false` refuses objects that exist and belong to no set; they are taken into the set when left out.
    #[param(required = false)]
    adopt: Option<bool>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("apply", "Cluster", "Creates or replaces many objects at once, all or none.")
        .describe(
            "The body is one object, an array, a `List`, or YAML documents. Pointers in `errors` begin with \
             `/items/N`, counted from 0 over all of them. Objects that are so already stay at their revision.",
        )
        .query::<ApplyQuery>()
        .authored()
        .header("Idempotency-Key", "Makes a repetition of the request to the same control server answer as the first did, for a day.")
        .body::<ApplyBody>(&OBJECT_TYPES, "The objects.")
        .answer::<ApplyAnswer>(
            200,
            "All of it is accepted.",
            &OBJECT_TYPES,
            &[("X-Revision", "The revision of the state that holds the write."), ("X-Dry-Run", "`true` when nothing was changed.")],
        )
        .problems(&[
            Code::NotAcceptable,
            Code::Conflict,
            Code::PruneLimit,
            Code::GuardHeld,
            Code::Invalid,
        ]);
    router.routes(
        Route::at("/v1/apply").on(HttpMethod::Post, Permission::Each(Verb::Update, None), doc, apply).done(),
    )
}

async fn apply(State(app): State<Shared>, ApiQuery(query): ApiQuery<ApplyQuery>, request: Request) -> Answer {
    let form = form(request.headers())?;
    if query.adopt.is_some() && query.apply_set.is_none() {
        return Err(Problem::bad_request("`adopt` needs `applySet`: it is about the objects of a set"));
    }
    let apply_set = apply_set_of(query.apply_set.as_ref(), query.prune, query.prune_limit)?
        .map(|set| ApplySet { adopt: query.adopt.unwrap_or(true), ..set });
    let target = request.uri().to_string();
    let (parts, body) = request.into_parts();
    let (bytes, items) = body::read_many(&parts.headers, body).await?;
    let serve = async {
        let operations = decode_all(&items)?;
        let manner = Manner {
            is_dry_run: query.dry_run,
            evict: query.evict,
            confirm: query.confirm,
            form,
            bytes: bytes.len(),
        };
        let written = mutate::write(
            &app,
            admit::Request { operations, apply_set, ..admit::Request::default() },
            manner,
        )
        .await?;
        Ok(mutate::answer_many(&app, manner, &written))
    };
    idempotency::once(&app.idempotency, &parts.headers, app.source.now(), (&target, &bytes), serve).await
}

/// The set that a query names.
pub(super) fn apply_set_of(
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
    Ok(apply_set.cloned().map(|name| ApplySet { name, prune, prune_limit, adopt: true }))
}

/// Reads every object, and collects what is wrong with any of them.
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

/// Violations after which reading further objects stops; nobody reads more in one go.
const VIOLATIONS_MAX: usize = 500;
