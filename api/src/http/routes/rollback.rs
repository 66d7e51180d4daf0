//! `POST /v1/rollback`: makes objects again what they were, as one write.

use axum::extract::{Request, State};
use model::{
    admission::{
        admit,
        rollback::{self, Former, Later},
    },
    cluster::history::MESSAGE_LENGTH_MAX,
    primitives::{
        quantity::Revision,
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
        mutation::{self as mutate, Manner},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, MutationQuery, NoQuery},
        plans,
        schema::ApplyAnswer,
    },
    security::{Permission, Verb, access},
    write::{caller, writer::Written},
};

/// Times that a rollback is made anew because another write was faster.
const ATTEMPTS_MAX: usize = 5;

/// What to go back to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// The revision.
    revision: Revision,
    /// Undo only the write that made this revision, in place of all that came after it.
    #[serde(default)]
    #[schema(required = false)]
    only: bool,
    /// Why; the header `X-Change-Message` counts first.
    #[serde(default)]
    #[schema(max_length = 200)]
    message: Option<String>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("rollback", "Cluster", "Makes objects again what they were at a revision.")
        .describe(
            "Every object that somebody wrote after the revision becomes what it was at it, or is removed, as one write \
             that can be undone like any other. Services get their addresses and node ports back where those are free; \
             what the server and the agents wrote by themselves stays. With `only`, the one write is undone that made \
             the revision, unless a later write changed one of its objects.",
        )
        .query::<MutationQuery>()
        .authored()
        .body::<RollbackBody>(&OBJECT_TYPES, "Where to.")
        .answer::<ApplyAnswer>(
            200,
            "It is done, or was so already.",
            &OBJECT_TYPES,
            &[super::resource::REVISION, super::resource::DRY_RUN],
        )
        .problems(&[
            Code::NotAcceptable,
            Code::NotFound,
            Code::Conflict,
            Code::GuardHeld,
            Code::HistoryDropped,
            Code::Invalid,
        ]);
    let plan = Doc::new("planRollback", "Cluster", "Says what a rollback would do, also on every node, and does nothing.")
        .describe(
            "The body is that of `POST /v1/rollback`, the answer that of `POST /v1/plan`: the plan is kept, and can be applied by \
             its id.",
        )
        .body::<RollbackBody>(&OBJECT_TYPES, "Where to.")
        .answer::<Plan>(200, "The plan.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::Conflict, Code::HistoryDropped, Code::Invalid]);
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
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let RollbackBody { revision, only, message: _ } = read(&value)?;
    app.confirm().await?;
    let former =
        if only { former_of_one(&app, revision).await? } else { former_since(&app, revision).await? };
    let request = rollback::request(&app.hub.load().snapshot, &former, !only);
    let request = admit::Request { evict: !only, ..request };
    let plan = plans::make(&app, plans::Wish { request, bytes: bytes.len(), asks_nodes: true }).await?;
    Ok(render(form, &plan))
}

async fn roll_back(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<MutationQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let RollbackBody { revision, only, message } = read(&value)?;
    let said =
        if only { format!("undo revision {revision}") } else { format!("rollback to revision {revision}") };
    caller::note_message(message.unwrap_or(said));
    let manner = Manner {
        is_dry_run: query.dry_run,
        // Pools that were smaller take back what Services have of them since.
        evict: !only,
        confirm: query.confirm,
        form,
        bytes: bytes.len(),
    };
    app.confirm().await?;
    let written = attempt(&app, revision, only, manner).await?;
    let shown = mutate::show_all(&app, manner, &written.outcomes);
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
        message.chars().count() <= MESSAGE_LENGTH_MAX && !message.chars().any(char::is_control)
    };
    if body.message.as_ref().is_some_and(|message| !is_fit(message)) {
        let message = format!("must be at most {MESSAGE_LENGTH_MAX} characters on one line");
        return Err(Problem::invalid(vec![Violation::new("/message", ViolationCode::TooLong, message)]));
    }
    Ok(body)
}

/// Writes what the history says, again when another write came between reading and writing.
async fn attempt(app: &Shared, revision: Revision, only: bool, manner: Manner) -> Result<Written, Problem> {
    let mut attempt = 1;
    loop {
        let former =
            if only { former_of_one(app, revision).await? } else { former_since(app, revision).await? };
        let published = app.hub.load();
        let request = rollback::request(&published.snapshot, &former, !only);
        if request.operations.is_empty() && request.former.is_empty() {
            return Ok(Written { position: published.position(), outcomes: Vec::new() });
        }
        match mutate::write_besides(app, request, manner, Some(Verb::Rollback)).await {
            Err(problem) if is_race(problem.code()) && attempt < ATTEMPTS_MAX => attempt += 1,
            outcome => return outcome,
        }
    }
}

fn is_race(code: Code) -> bool {
    matches!(code, Code::PreconditionFailed | Code::AlreadyExists | Code::NotFound)
}

/// What the objects were at a revision that somebody wrote after it.
async fn former_since(app: &Shared, revision: Revision) -> Result<Former, Problem> {
    let head = app.hub.load().position().revision;
    if revision > head {
        return Err(unknown(app, revision).await?);
    }
    let query = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 0 };
    let floor = app.store.history(&query).await.map_err(unavailable)?.floor;
    if revision < floor {
        return Err(dropped(revision, floor));
    }
    let mut former = Former::new();
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

/// What the objects of one write were before it.
async fn former_of_one(app: &Shared, revision: Revision) -> Result<Former, Problem> {
    let entry = entry_of(app, revision).await?;
    let former = rollback::before_only(&entry);
    let mut next = revision.next();
    loop {
        let entries = app.store.revisions(next, ENTRIES_AT_ONCE).await.map_err(unavailable)?;
        let later = rollback::later(&former, &entries);
        if !later.is_empty() {
            return Err(stands_in_the_way(revision, &later));
        }
        let Some(last) = entries.last().filter(|_| entries.len() == ENTRIES_AT_ONCE) else {
            return Ok(former);
        };
        next = last.revision.next();
    }
}

fn stands_in_the_way(revision: Revision, later: &[Later]) -> Problem {
    let access = access::current();
    let is_seen = |later: &&Later| access.may_object(Verb::Get, later.key.kind, later.key.namespace.as_ref());
    let named: Vec<_> = later
        .iter()
        .filter(is_seen)
        .take(LATER_NAMED_MAX)
        .map(|Later { key, revision, author }| format!("{key} by revision {revision} of {author}"))
        .collect();
    let more = later.len().saturating_sub(named.len());
    let more = (more > 0).then(|| format!("{more} more"));
    let named = named.into_iter().chain(more).collect::<Vec<_>>().join(", and ");
    let detail = format!("revision {revision} cannot be undone alone: changed since were {named}");
    Problem::new(Code::Conflict, detail)
        .hint("undo the later writes first, or leave `only` out to go back to the whole state of a revision")
}

/// Later writes that a refusal names.
const LATER_NAMED_MAX: usize = 10;
