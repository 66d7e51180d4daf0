//! What all mutations share: asking the writer (or only trying), and saying what came of it.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use model::{
    admission::admit::{Guarded, Held, Outcome, Refusal, Request},
    cluster::change::Action,
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::{
        quantity::Position,
        violation::{Violation, ViolationCode},
    },
};
use serde_json::{Value, json};

use crate::{
    app::App,
    caller,
    error::{Answer, Code, Problem},
    etag,
    negotiate::{Form, render},
    patch::not_found,
    security::{Verb, access},
    writer::{WriteError, Written, dry_run},
};

/// The revision after a mutation.
pub(crate) const X_REVISION: HeaderName = HeaderName::from_static("x-revision");
/// Says that nothing was changed.
pub(crate) const X_DRY_RUN: HeaderName = HeaderName::from_static("x-dry-run");
/// When to come back when the queue is full, in seconds.
const BUSY_RETRY_SECS: u32 = 1;
/// When to come back when the store fails, in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 5;

/// How a mutation is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Only try.
    pub(crate) is_dry_run: bool,
    /// Move Services to other addresses when a pool loses theirs.
    pub(crate) evict: bool,
    /// Do it even if it removes more at once than the guards allow.
    pub(crate) confirm: bool,
    /// The form of the answer.
    pub(crate) form: Form,
    /// Bytes of the body.
    pub(crate) bytes: usize,
}

/// Has a request admitted, and carried out unless it is only tried, if who asks may write all of it.
pub(crate) async fn write(app: &App, request: Request, manner: Manner) -> Result<Written, Problem> {
    write_besides(app, request, manner, None).await
}

/// The same, where the route does something to each object beyond writing it.
pub(crate) async fn write_besides(
    app: &App,
    request: Request,
    manner: Manner,
    besides: Option<Verb>,
) -> Result<Written, Problem> {
    let request = Request { evict: manner.evict, confirmed: manner.confirm, ..request };
    caller::note_request(&request, manner.is_dry_run);
    let access = access::current();
    access.check_write(&app.hub.load().snapshot, &request, besides)?;
    let entropy = app.source.draw();
    let outcome = if manner.is_dry_run {
        let tried = dry_run(&app.hub, &app.cluster, &request, &entropy);
        if let Ok(written) = &tried {
            access.check_outcomes(&written.outcomes)?;
        }
        tried
    } else {
        app.writer.write_for(caller::origin(), request, entropy, manner.bytes).await
    };
    if let Ok(written) = &outcome {
        caller::note_accepted(written.position.revision, &written.outcomes);
    }
    outcome.map_err(problem)
}

fn forbidden(violations: Vec<Violation>) -> Problem {
    match access::current().refuse_all(violations) {
        Err(problem) => problem,
        Ok(()) => Problem::new(Code::Forbidden, "this is not allowed"),
    }
}

/// Answers with the one object that a mutation was about.
pub(crate) fn answer_object(app: &Arc<App>, manner: Manner, status: StatusCode, written: &Written) -> Answer {
    let outcome = written
        .outcomes
        .first()
        .ok_or_else(|| Problem::new(Code::Internal, "the write was accepted without saying what it did"))?;
    let shown = show_all(app, manner, std::slice::from_ref(outcome));
    let mut response = render(manner.form, &shown.first());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag::header_value(&outcome.object.metadata));
    if outcome.action == Action::Created {
        headers.insert(header::LOCATION, location(&outcome.object));
    }
    Ok(stamp(response, manner, written.position))
}

/// Answers a mutation that has nothing to change.
pub(crate) fn answer_unchanged(app: &Arc<App>, manner: Manner, key: &ObjectKey) -> Answer {
    let published = app.hub.load();
    let object = published.snapshot.get(key).ok_or_else(|| not_found(key))?;
    let outcome = Outcome { action: Action::Unchanged, object: Arc::clone(object) };
    answer_object(
        app,
        manner,
        StatusCode::OK,
        &Written { position: published.position(), outcomes: vec![outcome] },
    )
}

fn location(object: &Object) -> HeaderValue {
    HeaderValue::from_str(&object.key().path()).expect("names are ASCII")
}

/// Objects as the answer to a mutation shows them. What is gone or was only tried has no status: nobody observed it.
pub(crate) fn show_all(app: &App, manner: Manner, outcomes: &[Outcome]) -> Vec<Value> {
    let view = app.view();
    let shower = view.shower();
    let show = |outcome: &Outcome| {
        let is_live = match outcome.action {
            Action::Created | Action::Updated | Action::Unchanged => !manner.is_dry_run,
            Action::Deleted | Action::Pruned => false,
        };
        if is_live { shower.object(&outcome.object) } else { outcome.object.to_json() }
    };
    outcomes.iter().map(show).collect()
}

/// Answers with all objects that a mutation was about.
pub(crate) fn answer_many(app: &App, manner: Manner, written: &Written) -> Response {
    let shown = show_all(app, manner, &written.outcomes);
    let results = written.outcomes.iter().zip(shown);
    let results: Vec<Value> =
        results.map(|(outcome, object)| json!({ "action": outcome.action, "object": object })).collect();
    let position = written.position;
    let answer = json!({
        "position": position, "revision": position.revision, "dryRun": manner.is_dry_run, "results": results,
    });
    stamp(render(manner.form, &answer), manner, position)
}

/// Adds the headers of every mutation.
pub(crate) fn stamp(response: Response, manner: Manner, position: Position) -> Response {
    let mut response = response.into_response();
    let headers = response.headers_mut();
    headers.insert(X_REVISION, HeaderValue::from(position.revision.0));
    if manner.is_dry_run {
        headers.insert(X_DRY_RUN, HeaderValue::from_static("true"));
    }
    response
}

/// Says why a write did not happen.
pub(crate) fn problem(error: WriteError) -> Problem {
    match error {
        WriteError::Contended => Problem::new(
            Code::Unavailable,
            "other control servers were faster, time after time; nothing was changed",
        )
        .retry_after(BUSY_RETRY_SECS),
        WriteError::Refused(refusal) => refused(refusal),
        WriteError::Forbidden(violations) => forbidden(violations),
        WriteError::Busy => {
            Problem::new(Code::TooManyRequests, "too many writes wait").retry_after(BUSY_RETRY_SECS)
        }
        WriteError::TooLarge(detail) => Problem::new(Code::PayloadTooLarge, detail),
        WriteError::Unavailable => Problem::new(
            Code::Unavailable,
            "the store did not confirm the write; whether it happened is unknown",
        )
        .hint("read the object before trying again; /readyz says what the store lacks")
        .retry_after(UNAVAILABLE_RETRY_SECS),
    }
}

/// Says why a write is refused.
pub(crate) fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NotFound(key) => Problem::new(Code::NotFound, format!("there is no {key}")),
        Refusal::AlreadyExists(object) => {
            Problem::new(Code::AlreadyExists, format!("{} exists", object.key()))
                .hint("replace it with PUT and `If-Match`, or change it with PATCH")
                .current(etag::current(&object))
        }
        Refusal::PreconditionFailed(object) => etag::failed(&object),
        Refusal::Conflict(object) => {
            let detail = format!(
                "`metadata.resourceVersion` or `metadata.uid` is not that of {}, which is at revision {}",
                object.key(),
                object.metadata.revision()
            );
            Problem::new(Code::Conflict, detail)
                .hint("read it again and repeat the change on what it is, or leave both fields out")
                .current(etag::current(&object))
        }
        Refusal::Invalid(violations) => Problem::invalid(violations),
        Refusal::PruneLimit { would_prune, limit } => {
            // A set may have members that who asks may not even see.
            let access = access::current();
            let is_named =
                |key: &&ObjectKey| access.may_object(Verb::Delete, key.kind, key.namespace.as_ref());
            let detail =
                format!("the apply set would lose {} objects, and may lose {limit}", would_prune.len());
            Problem::new(Code::PruneLimit, detail)
                .hint("look at `wouldPrune`; if that is what you want, send `pruneLimit`")
                .would_prune(would_prune.iter().filter(is_named).map(ToString::to_string).collect())
        }
        Refusal::GuardHeld(held) => guard_held(held),
        Refusal::TooManyOperations(count) => {
            let limit = model::admission::admit::OPERATIONS_MAX;
            let message = format!("must be at most {limit} objects in one request, found {count}");
            Problem::invalid(vec![Violation::new("/items", ViolationCode::TooLong, message)])
        }
    }
}

fn guard_held(held: Held) -> Problem {
    let detail = held_in_words(&held);
    // What goes with members of a set may be another's.
    let is_named = access::current().may_object(Verb::List, Kind::Service, None);
    Problem::new(Code::GuardHeld, detail)
        .hint("look at `wouldRemove`; if that is what you want, repeat it with `?confirm=true`")
        .would_remove(if is_named { held.named } else { Vec::new() })
}

/// What a guard holds.
pub(crate) fn held_in_words(held: &Held) -> String {
    let Held { guarded, named: _, removed, total, limit_percent } = held;
    let (what, flag) = match guarded {
        Guarded::Vips => ("virtual addresses", "--guard-vips-percent"),
        Guarded::Endpoints => ("endpoint addresses", "--guard-endpoints-percent"),
    };
    format!(
        "it would remove {removed} of {total} {what} at once, and may remove {limit_percent} % ({flag} of the server)"
    )
}
