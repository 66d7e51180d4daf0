//! JSON merge patch (RFC 7396) on the published form of an object, and the race with other writers.
//!
//! A patch is turned into a replacement of the state it was made from. When somebody else writes in between and the
//! client did not insist on a state, the patch is applied again on the new state: it names only the fields it means.

use std::sync::Arc;

use http::StatusCode;
use model::{
    admit::{Operation, Request},
    decode::{Expect, decode},
    resource::{Object, ObjectKey},
};
use serde_json::Value;

use crate::{
    app::App,
    error::{Answer, Code, Problem},
    etag::{self, IfMatch},
    mutate::{self, Manner},
};

/// Times that a patch is applied anew after losing a race.
const ATTEMPTS_MAX: usize = 5;
/// Metadata that the server sets; a patch is applied on an object without it, so that only what the patch itself says
/// about it is checked.
const SERVER_SET: [&str; 6] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "applySet"];

/// Applies a patch.
pub(crate) async fn patch(
    app: &Arc<App>,
    key: &ObjectKey,
    changes: &Value,
    demand: Option<&IfMatch>,
    manner: Manner,
) -> Answer {
    let mut attempt = 1;
    loop {
        let published = app.hub.load();
        let current = published.snapshot.get(key).ok_or_else(|| not_found(key))?;
        if let Some(demand) = demand {
            etag::required_revision(demand, current)?;
        }
        let object = patched(current, key, changes)?;
        let operation = Operation::Replace { object, if_revision: Some(current.metadata.revision()) };
        let request = Request { operations: vec![operation], apply_set: None };
        match mutate::write(app, request, manner).await {
            Ok(written) => return mutate::answer_object(app, manner, StatusCode::OK, &written),
            Err(problem) if problem.code() == Code::PreconditionFailed && may_retry(demand, attempt) => {
                attempt += 1
            }
            Err(problem) => return Err(problem),
        }
    }
}

fn may_retry(demand: Option<&IfMatch>, attempt: usize) -> bool {
    // A client that names a state has asked to be told when it is another one.
    !matches!(demand, Some(IfMatch::Tags(_))) && attempt < ATTEMPTS_MAX
}

fn patched(current: &Object, key: &ObjectKey, changes: &Value) -> Result<Object, Problem> {
    let mut json = current.to_json();
    if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
        for field in SERVER_SET {
            metadata.remove(field);
        }
    }
    json_patch::merge(&mut json, changes);
    let expect =
        Expect { kind: Some(key.kind), namespace: key.namespace.clone(), name: Some(key.name.clone()) };
    decode(&json, &expect).map_err(Problem::invalid)
}

/// There is no such object.
pub(crate) fn not_found(key: &ObjectKey) -> Problem {
    Problem::new(Code::NotFound, format!("there is no {key}"))
}
