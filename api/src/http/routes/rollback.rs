//! `POST /v1/rollback`: restores former states of objects as one write.

use axum::extract::{Request, State};
use model::{
    admission::{
        admit,
        rollback::{self, FormerStates, LaterWrite},
    },
    cluster::history::MESSAGE_LENGTH_MAX,
    primitives::{
        quantity::Revision,
        text::is_display_control,
        violation::{Violation, ViolationCode},
    },
    wire::plan::Plan,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{HistoryQuery, ObjectFilter};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::{
    Shared,
    history::{ENTRIES_AT_ONCE, dropped, entry_of, unavailable, unknown},
};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        mutation::{self as mutate, WriteOptions},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, MutationQuery, NoQuery},
        plans,
        schema::ApplyAnswer,
    },
    security::{Access, Caller, Permission, Verb},
    write::writer::Written,
};

/// Maximum number of attempts of a rollback if concurrent writes conflict with it.
const ATTEMPTS_MAX: usize = 5;

/// Revision to return to or to undo, and the reason.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// Revision to return to. With `only`, revision of the write to undo.
    revision: Revision,
    /// If true, only the write with this revision is undone. If false, all later writes are undone. Default:
    /// false.
    #[serde(default)]
    #[schema(required = false)]
    only: bool,
    /// Reason of the rollback, at most 200 characters on one line. The header `X-Change-Message` takes precedence.
    /// Default: a text that names the revision.
    #[serde(default)]
    #[schema(max_length = 200)]
    message: Option<String>,
}

/// Registers the routes of rollbacks.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("rollback", "Cluster", "Restore objects to a former revision")
        .describe(
            "Restores or deletes every object that a client wrote after the revision, as one write that \
             can itself be undone. Services get their former addresses and node ports if those are free. \
             Changes made by the server and the agents themselves are kept. With `only`, just the write \
             of the revision is undone; the request fails if a later write changed one of its objects.",
        )
        .query::<MutationQuery>()
        .authored()
        .body::<RollbackBody>(&OBJECT_TYPES, "Revision to restore, and the scope of the rollback.")
        .answer::<ApplyAnswer>(
            200,
            "Returned if the objects were restored or are unchanged.",
            &OBJECT_TYPES,
            &[super::resource::REVISION, super::resource::DRY_RUN],
        )
        .problems(&[
            Code::NotAcceptable,
            Code::NotFound,
            Code::Conflict,
            Code::GuardHeld,
            Code::QuotaExceeded,
            Code::HistoryDropped,
            Code::Invalid,
        ]);
    let plan = Doc::new("planRollback", "Cluster", "Plan a rollback without changing anything")
        .describe(
            "The body is that of `POST /v1/rollback`, the response that of `POST /v1/plan`. The plan is \
             kept and can be applied by its id.",
        )
        .body::<RollbackBody>(&OBJECT_TYPES, "Revision to restore, and the scope of the rollback.")
        .answer::<Plan>(200, "Returned with the plan and its id.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::NotFound,
            Code::Conflict,
            Code::HistoryDropped,
            Code::Invalid,
        ]);
    router
        .routes(
            Route::at("/v1/rollback")
                .on(HttpMethod::Post, Permission::Each(Verb::Rollback, None), doc, roll_back)
                .done(),
        )
        .routes(
            Route::at("/v1/rollback/plan")
                .on(HttpMethod::Post, Permission::Each(Verb::Rollback, None), plan, plan_rollback)
                .done(),
        )
}

async fn plan_rollback(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let RollbackBody { revision, only, message: _ } = read(&value)?;
    app.confirm().await?;
    let former = if only {
        former_of_one(&app, &caller, revision).await?
    } else {
        former_since(&app, revision).await?
    };
    let request = rollback::request(&app.hub.load().snapshot, &former, !only);
    let request = admit::Request { evict: !only, ..request };
    let plan =
        plans::make(&app, &caller, plans::PlanRequest { request, bytes: bytes.len(), asks_nodes: true })
            .await?;
    Ok(render(form, &plan))
}

async fn roll_back(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<MutationQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let RollbackBody { revision, only, message } = read(&value)?;
    let said =
        if only { format!("undo revision {revision}") } else { format!("rollback to revision {revision}") };
    caller.record_message(message.unwrap_or(said));
    let manner = WriteOptions {
        is_dry_run: query.dry_run,
        // Pools that were smaller reclaim addresses given to Services since.
        evict: !only,
        confirm: query.confirm,
        form,
        bytes: bytes.len(),
    };
    app.confirm().await?;
    let written = attempt(&app, &caller, revision, only, manner).await?;
    let shown = mutate::render_all(&app, manner, &written.outcomes);
    let results = written.outcomes.iter().zip(shown);
    let results: Vec<Value> =
        results.map(|(outcome, object)| json!({ "action": outcome.action, "object": object })).collect();
    let position = written.position;
    let answer = json!({
        "position": position, "revision": position.revision, "dryRun": query.dry_run, "results": results,
    });
    Ok(mutate::stamp(render(form, &answer), manner, position))
}

fn read(value: &Value) -> Result<RollbackBody, Problem> {
    let body: RollbackBody = body::typed(value)?;
    let is_fit = |message: &String| {
        message.chars().count() <= MESSAGE_LENGTH_MAX && !message.chars().any(is_display_control)
    };
    if body.message.as_ref().is_some_and(|message| !is_fit(message)) {
        let message = format!("must be at most {MESSAGE_LENGTH_MAX} characters on one line");
        return Err(Problem::invalid(vec![Violation::new("/message", ViolationCode::TooLong, message)]));
    }
    Ok(body)
}

/// Determines the earlier states that a rollback restores, and writes them. Starts again after a conflicting
/// write. With `only`, undoes the write of `revision` alone; otherwise restores the state at `revision`.
async fn attempt(
    app: &Shared,
    caller: &Caller,
    revision: Revision,
    only: bool,
    manner: WriteOptions,
) -> Result<Written, Problem> {
    let mut attempt = 1;
    loop {
        let former = if only {
            former_of_one(app, caller, revision).await?
        } else {
            former_since(app, revision).await?
        };
        let published = app.hub.load();
        let request = rollback::request(&published.snapshot, &former, !only);
        if request.operations.is_empty() && request.former.is_empty() {
            return Ok(Written { position: published.position(), outcomes: Vec::new() });
        }
        match mutate::write_besides(app, caller, request, manner, Some(Verb::Rollback)).await {
            Err(problem) if is_race(problem.code()) && attempt < ATTEMPTS_MAX => attempt += 1,
            outcome => return outcome,
        }
    }
}

fn is_race(code: Code) -> bool {
    matches!(code, Code::PreconditionFailed | Code::AlreadyExists | Code::NotFound)
}

/// Returns the states that objects had at `revision`, for all objects that later writes have changed. Returns a
/// problem if the history does not contain the revision.
async fn former_since(app: &Shared, revision: Revision) -> Result<FormerStates, Problem> {
    let head = app.hub.load().position().revision;
    if revision > head {
        return Err(unknown(app, revision).await?);
    }
    let query = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 0 };
    let floor = app.store.history(&query).await.map_err(unavailable)?.floor;
    if revision < floor {
        return Err(dropped(revision, floor));
    }
    let mut former = FormerStates::new();
    let mut next = revision.next();
    loop {
        let entries = app.store.revisions(next, ENTRIES_AT_ONCE).await.map_err(unavailable)?;
        rollback::before(&mut former, &entries);
        let Some(last) = entries.last().filter(|_| entries.len() == ENTRIES_AT_ONCE) else {
            return Ok(former);
        };
        next = last.revision.next();
    }
}

/// Returns the states that the objects of one write had before it. Returns a problem if later writes have changed
/// them again.
async fn former_of_one(app: &Shared, caller: &Caller, revision: Revision) -> Result<FormerStates, Problem> {
    let entry = entry_of(app, revision).await?;
    let former = rollback::before_only(&entry);
    let mut next = revision.next();
    loop {
        let entries = app.store.revisions(next, ENTRIES_AT_ONCE).await.map_err(unavailable)?;
        let later = rollback::later(&former, &entries);
        if !later.is_empty() {
            return Err(stands_in_the_way(caller.access(), revision, &later));
        }
        let Some(last) = entries.last().filter(|_| entries.len() == ENTRIES_AT_ONCE) else {
            return Ok(former);
        };
        next = last.revision.next();
    }
}

fn stands_in_the_way(access: &Access, revision: Revision, later: &[LaterWrite]) -> Problem {
    let is_seen =
        |later: &&LaterWrite| access.may_object(Verb::Get, later.key.kind, later.key.namespace.as_ref());
    let named: Vec<_> = later
        .iter()
        .filter(is_seen)
        .take(LATER_NAMED_MAX)
        .map(|LaterWrite { key, revision, author }| format!("{key} by revision {revision} of {author}"))
        .collect();
    let more = later.len().saturating_sub(named.len());
    let more = (more > 0).then(|| format!("{more} more"));
    let named = named.into_iter().chain(more).collect::<Vec<_>>().join(", and ");
    let detail = format!("revision {revision} cannot be undone alone; later changes: {named}");
    Problem::new(Code::Conflict, detail)
        .hint("undo the later writes first, or omit `only` to return to the complete state of a revision")
}

/// Maximum number of later writes that the message of a rejected rollback names.
const LATER_NAMED_MAX: usize = 10;
