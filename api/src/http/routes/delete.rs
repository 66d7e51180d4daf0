//! `POST /v1/delete`: atomic deletion of many objects as one revision.

use std::collections::BTreeSet;

use axum::extract::{Request, State};
use model::{
    admission::admit::{self, Operation},
    kinds::resource::{Kind, ObjectKey},
    primitives::{
        name::{Name, Namespace},
        violation::{Violation, ViolationCode},
    },
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
        schema::{ApplyAnswer, DeleteBody},
    },
    security::{Caller, Permission, Verb},
};

/// Maximum number of attempts if objects disappear between the selection and the write.
const ATTEMPTS_MAX: usize = 3;

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    /// If true, the request is validated and answered as usual, but nothing is changed. Default: false.
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
    /// If true, the write is performed even if it removes more virtual addresses or endpoints at once than the
    /// server's limits (guards) allow, or a Node whose agent reports. Default: false.
    #[serde(default)]
    #[param(required = false)]
    confirm: bool,
    /// If true, Services that lose their addresses because a pool is deleted get other addresses, if any are
    /// available. If false, a write with this effect is rejected, and the response lists the Services.
    /// Default: false.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
    /// If true, objects that do not exist are ignored. If false, the request is rejected if one of the objects
    /// does not exist. Default: false.
    #[serde(default)]
    #[param(required = false)]
    ignore_not_found: bool,
}

/// Reference to an object in the body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectReference {
    kind: Kind,
    #[serde(default)]
    namespace: Option<Namespace>,
    name: Name,
}

/// Registers the route `POST /v1/delete`.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("deleteObjects", "Cluster", "Delete many objects atomically")
        .describe(
            "The body is an array of references, or a `List` of them. All objects are deleted as one revision, or \
             none. The guards judge the request as a whole. JSON pointers in `errors` begin with `/items/N`, \
             counted from 0.",
        )
        .query::<DeleteQuery>()
        .authored()
        .body::<DeleteBody>(&OBJECT_TYPES, "References to the objects to delete, at most 5000.")
        .answer::<ApplyAnswer>(
            200,
            "Returned if all objects were deleted.",
            &OBJECT_TYPES,
            &[
                ("X-Revision", "Revision of the state that includes the write."),
                ("X-Dry-Run", "`true` for a dry run."),
            ],
        )
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::GuardHeld, Code::Invalid]);
    router.routes(
        Route::at("/v1/delete")
            .on(HttpMethod::Post, Permission::Each(Verb::Delete, None), doc, delete)
            .done(),
    )
}

async fn delete(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<DeleteQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, items) = body::read_many(&parts.headers, body).await?;
    let keys = keys(&items)?;
    let manner = WriteOptions {
        is_dry_run: query.dry_run,
        evict: query.evict,
        confirm: query.confirm,
        form,
        bytes: bytes.len(),
    };
    // Before the selection, so that the response does not reveal which objects of other namespaces exist.
    caller.access().check_write(&app.hub.load().snapshot, &deletion(keys.iter()), None)?;
    let mut attempt = 1;
    loop {
        let snapshot = app.hub.load().snapshot.clone();
        let selected = keys.iter().filter(|key| !query.ignore_not_found || snapshot.get(key).is_some());
        match mutate::write(&app, &caller, deletion(selected), manner).await {
            Err(problem)
                if problem.code() == Code::NotFound && query.ignore_not_found && attempt < ATTEMPTS_MAX =>
            {
                attempt += 1;
            }
            written => return Ok(mutate::answer_many(&app, manner, &written?)),
        }
    }
}

fn deletion<'a>(keys: impl Iterator<Item = &'a ObjectKey>) -> admit::Request {
    let operations = keys.map(|key| Operation::Delete { key: key.clone(), if_revision: None }).collect();
    admit::Request { operations, ..admit::Request::default() }
}

/// Decodes the references of a request, and returns the keys of the objects, each once.
fn keys(items: &[Value]) -> Result<BTreeSet<ObjectKey>, Problem> {
    let invalid = |pointer: String, code, message: String| {
        Problem::invalid(vec![Violation::new(pointer, code, message)])
    };
    if items.len() > admit::OPERATIONS_MAX {
        let message = format!("must be at most {} references, found {}", admit::OPERATIONS_MAX, items.len());
        return Err(invalid("/items".to_owned(), ViolationCode::TooLong, message));
    }
    let mut keys = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let reference = ObjectReference::deserialize(item).map_err(|error| {
            let message = format!(
                "must be a reference with `kind`, `name` and, if the kind has one, `namespace`: {error}"
            );
            invalid(format!("/items/{index}"), ViolationCode::Invalid, message)
        })?;
        let ObjectReference { kind, namespace, name } = reference;
        if kind.is_namespaced() != namespace.is_some() {
            let (verb, scope) = if kind.is_namespaced() {
                ("must be present", "namespaced")
            } else {
                ("must be absent", "cluster-scoped")
            };
            let message = format!("{verb}, because objects of kind {kind} are {scope}");
            return Err(invalid(format!("/items/{index}/namespace"), ViolationCode::Invalid, message));
        }
        keys.insert(ObjectKey { kind, namespace, name });
    }
    Ok(keys)
}
