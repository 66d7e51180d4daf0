//! `/v1/history`: accepted writes with author and changes, and the time until each node had a write in its
//! kernel (convergence).

use std::{cmp::Reverse, collections::BTreeMap, time::Instant};

use ::base::chain;
use axum::extract::State;
use http::HeaderMap;
use model::{
    admission::rollback,
    cluster::history::{RevisedObject, RevisionEntry, RevisionHead, differences},
    kinds::resource::{Kind, ObjectKey},
    observed::{
        lag::{ChangeConvergence, NodeProgress, Steps, percentile},
        rollup::NodeView,
    },
    primitives::{
        name::{Name, Namespace},
        quantity::{Position, Revision},
    },
    wire::plan::NodePlan,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{HistoryQuery, ObjectFilter, StoreError};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{AUTHOR_LENGTH_MAX, ApiPath, ApiQuery, NoQuery, limit, text},
        plans::{self, Past},
        schema,
    },
    security::{Access, Caller, Permission, Subject, Verb, access::forbidden},
    state::paging::{Moment, PageRoom},
};
use model::bgp::listing::ListPage;

/// Maximum number of changed objects that the listing names for one write; further ones are only counted.
const CHANGES_NAMED_MAX: usize = 100;
/// Number of history entries read from the store at a time, which limits the memory for their objects.
pub(super) const ENTRIES_AT_ONCE: usize = 200;
/// `Retry-After` if the store fails, in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 5;

/// Query of the history listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RevisionsQuery {
    /// Maximum number of writes in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Kind. Only writes that changed an object of this kind are returned. Default: all kinds.
    kind: Option<Kind>,
    /// Namespace. Only writes that changed an object in this namespace are returned. Default: all namespaces.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
    /// Name of an object. Only writes that changed an object of this name are returned. Default: all names.
    #[param(value_type = Option<String>, max_length = 253)]
    name: Option<Name>,
    /// Name of the author. Only writes of this author are returned. Default: all authors.
    #[param(max_length = 260, example = "ann")]
    author: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct RevisionPath {
    revision: Revision,
}

/// Changes that a write made to the packet filter rulesets of the nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleChanges {
    /// Revision of the write.
    revision: Revision,
    /// Position (epoch and revision) of the server's state when the changes were computed.
    position: Position,
    /// Changed ruleset lines by node, or the reason why those of a node are not available.
    nodes: BTreeMap<Name, NodePlan>,
}

/// Registers the routes of the history.
pub(super) fn add(router: Routes) -> Routes {
    let list_doc = Doc::new("listHistory", "Cluster", "List accepted writes")
        .describe(
            "Writes are sorted from newest to oldest. The server keeps the last 10,000 writes of \
             clients, up to 128 MiB, and the last 500 of its own. Without authentication the author is a \
             claim of the client; `source` is the address of the client.",
        )
        .query::<RevisionsQuery>()
        .answer::<schema::HistoryList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let read_doc = Doc::new("readHistory", "Cluster", "Read one write with its changes")
        .describe("Returns every changed object before and after the write. Secrets are omitted.")
        .numbered("revision", "Revision of the write.")
        .answer::<schema::HistoryEntry>(200, "Returned with the write and its objects.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::HistoryDropped]);
    let curve_doc = Doc::new("readConvergence", "Cluster", "Read the convergence of one write")
        .describe(
            "Returns the time at which each node had the write verified in its kernel. Kept in memory \
             for the last 256 writes since the start of this server. Times are measured from the commit \
             to the arrival of the node's report.",
        )
        .numbered("revision", "Revision of the write.")
        .answer::<ChangeConvergence>(200, "Returned with the progress of each node.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let rules_doc = Doc::new("readRuleChanges", "Cluster", "Read the ruleset changes of one write")
        .describe(
            "The changes are recomputed, not recorded: each connected agent compares the state before \
             and after the write with its current mode and version. Decisions of the server that \
             followed the write, such as the choice of an announcer, are separate writes.",
        )
        .numbered("revision", "Revision of the write.")
        .answer::<RuleChanges>(200, "Returned with the changed lines of each node.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::HistoryDropped]);
    let path = "/v1/history";
    router
        .routes(
            Route::at(path)
                .on(HttpMethod::Get, Permission::Each(Verb::List, Some(Subject::History)), list_doc, list)
                .done(),
        )
        .routes(
            Route::at(format!("{path}/{{revision}}"))
                .on(HttpMethod::Get, Permission::Each(Verb::Get, Some(Subject::History)), read_doc, read)
                .done(),
        )
        .routes(
            Route::at(format!("{path}/{{revision}}/rules"))
                .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::History), rules_doc, rules)
                .done(),
        )
        .routes(
            Route::at(format!("{path}/{{revision}}/convergence"))
                .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::History), curve_doc, convergence)
                .done(),
        )
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<RevisionsQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let RevisionsQuery { limit: rows, continue_token, kind, namespace, name, author } = query;
    let rows = limit(rows)?;
    let author = text("author", author, AUTHOR_LENGTH_MAX)?;
    let moment = Moment::new("HistoryList", &format!("{kind:?} {namespace:?} {name:?} {author:?}"));
    let before: Option<Revision> = moment.resume(continue_token.as_deref())?;
    let filter = ObjectFilter { kind, namespace, name };
    let (mut heads, floor) = visible_page(&app, (caller.access(), author), before, filter, rows).await?;
    let mut more_after = (heads.len() > rows).then(|| heads[rows - 1].revision);
    heads.truncate(rows);
    let rendered = move || {
        let (mut items, mut room, mut last) = (Vec::new(), PageRoom::of(rows), None);
        for entry in &heads {
            let item = head(entry);
            if !room.add(&item) {
                more_after = last;
                break;
            }
            items.push(item);
            last = Some(entry.revision);
        }
        let mut envelope = moment.envelope(&ListPage { items, more_after });
        envelope["metadata"]["floor"] = json!(floor);
        Ok(render(form, &envelope))
    };
    app.render(&caller, rendered).await
}

/// Returns the history entries before a revision that match a filter and an author, and that the caller may see, newest first,
/// and the revision at which the history begins. The list has more than `rows` entries if there is a next page.
/// Entries that the caller may not see do not count, because otherwise the page token would reveal them.
async fn visible_page(
    app: &Shared,
    (access, author): (&Access, Option<String>),
    mut before: Option<Revision>,
    filter: ObjectFilter,
    rows: usize,
) -> Result<(Vec<RevisionHead>, Revision), Problem> {
    let mut heads = Vec::new();
    // One extra entry shows if there is a next page.
    let mut limit = rows + 1;
    loop {
        let query = HistoryQuery { before, filter: filter.clone(), limit };
        let page = app.store.history(&query).await.map_err(unavailable)?;
        let is_last = page.heads.len() < limit;
        before = page.heads.last().map(|head| head.revision).or(before);
        let is_by_author =
            |head: &RevisionHead| author.as_ref().is_none_or(|author| head.origin.author == *author);
        heads.extend(page.heads.into_iter().filter(is_by_author).filter_map(|head| visible(access, head)));
        if is_last || heads.len() > rows {
            return Ok((heads, page.floor));
        }
        limit = ENTRIES_AT_ONCE;
    }
}

async fn read(
    State(app): State<Shared>,
    caller: Caller,
    ApiPath(RevisionPath { revision }): ApiPath<RevisionPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let mut entry = entry_of(&app, revision).await?;
    let access = caller.access();
    let is_empty = entry.objects.is_empty();
    entry.objects.retain(|object| is_visible(access, Verb::Get, &object.key));
    if entry.objects.is_empty() && !is_empty {
        return Err(forbidden(format!("{access} may not get any object of revision {revision}")));
    }
    let rendered = move || {
        let mut json = head(&entry.head());
        json["objects"] = entry.objects.iter().map(revised).collect();
        Ok(render(form, &json))
    };
    app.render(&caller, rendered).await
}

async fn rules(
    State(app): State<Shared>,
    ApiPath(RevisionPath { revision }): ApiPath<RevisionPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let entry = entry_of(&app, revision).await?;
    let query = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 0 };
    let floor = app.store.history(&query).await.map_err(unavailable)?.floor;
    if revision < floor {
        return Err(dropped(revision, floor));
    }
    // Concurrent writes are newer than this state and do not affect older states.
    let published = app.hub.load();
    let head = published.position().revision;
    if revision > head {
        return Err(unknown(&app, revision).await?);
    }
    let after = former_after(&app, revision, head).await?;
    let mut before = rollback::before_only(&entry);
    for (key, object) in &after {
        before.entry(key.clone()).or_insert_with(|| object.clone());
    }
    let nodes = plans::compare(&app, &published, &Past { before, after }).await;
    Ok(render(form, &RuleChanges { revision, position: published.position(), nodes }))
}

/// Returns the states that objects had after the write of `revision`, for all objects that later writes up to
/// `head` have changed.
async fn former_after(
    app: &Shared,
    revision: Revision,
    head: Revision,
) -> Result<rollback::FormerStates, Problem> {
    let mut former = rollback::FormerStates::new();
    let mut next = revision.next();
    loop {
        let mut entries = app.store.revisions(next, ENTRIES_AT_ONCE).await.map_err(unavailable)?;
        let is_full = entries.len() == ENTRIES_AT_ONCE;
        entries.retain(|entry| entry.revision <= head);
        rollback::before_all(&mut former, &entries);
        let Some(last) = entries.last().filter(|_| is_full) else {
            return Ok(former);
        };
        next = last.revision.next();
    }
}

/// Returns the history entry of the write that created a revision, or a problem if there is none.
pub(super) async fn entry_of(app: &Shared, revision: Revision) -> Result<RevisionEntry, Problem> {
    let entry = app.store.revisions(revision, 1).await.map_err(unavailable)?.pop();
    match entry.filter(|entry| entry.revision == revision) {
        Some(entry) => Ok(entry),
        None => Err(unknown(app, revision).await?),
    }
}

async fn convergence(
    State(app): State<Shared>,
    ApiPath(RevisionPath { revision }): ApiPath<RevisionPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let Some((known, age_ms)) = app.observations.convergence.of(revision, Instant::now()) else {
        let detail = format!(
            "there is no convergence data of revision {revision}; only the newest \
                              revisions are kept, in memory"
        );
        return Err(Problem::new(Code::NotFound, detail));
    };
    let view = app.view();
    let head = view.published().nodes_head();
    let at = Position { epoch: head.epoch, revision };
    // Nodes receive nothing for later revisions and are not behind because of them.
    let concerns_nodes = revision <= head.revision;
    let views = view.table().views();
    let steps = views.iter().map(|node| (node, known.get(node.name).copied().unwrap_or_default()));
    let mut rows: Vec<_> = steps.filter(|(_, steps)| concerns_nodes || steps.verified.is_some()).collect();
    // Nodes without the revision first, then the slowest.
    rows.sort_by_key(|(node, steps)| (Reverse(steps.verified.unwrap_or(u64::MAX)), node.name.clone()));
    let mut sorted: Vec<u64> = rows.iter().filter_map(|(_, steps)| steps.verified).collect();
    sorted.reverse();
    let row = |(node, steps): &(&NodeView<'_>, Steps)| {
        let Steps { received, applied, verified, is_after_silence: _ } = steps;
        NodeProgress {
            node: node.name.clone(),
            received_ms: *received,
            applied_ms: *applied,
            verified_ms: *verified,
            why: verified.is_none().then(|| why(node, at).to_owned()),
        }
    };
    let answer = ChangeConvergence {
        revision,
        concerns_nodes,
        age_ms,
        verified: sorted.len() as u64,
        total: rows.len() as u64,
        p50_ms: percentile(&sorted, 50),
        p99_ms: percentile(&sorted, 99),
        max_ms: sorted.last().copied(),
        nodes: rows.iter().map(row).collect(),
    };
    Ok(render(form, &answer))
}

/// Returns the reason why a node has not reported that its kernel has the state at a position.
fn why(node: &NodeView<'_>, at: Position) -> &'static str {
    let Some(report) = node.report.filter(|_| node.is_connected) else {
        return "its agent does not report";
    };
    if report.received < at {
        "its agent has not received it"
    } else if report.applied < at {
        "its agent has received it, but not applied it yet"
    } else if report.verified < at {
        "its agent has applied it, but not verified it yet"
    } else {
        "it was verified before this server recorded the revision"
    }
}

fn without_null(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

/// Removes all objects from a history entry except those that the caller may see. Returns `None` if all are
/// removed.
fn visible(access: &Access, mut head: RevisionHead) -> Option<RevisionHead> {
    let is_empty = head.touched.is_empty();
    head.touched.retain(|(_, key)| is_visible(access, Verb::List, key));
    (is_empty || !head.touched.is_empty()).then_some(head)
}

/// Returns true if the caller may use `verb` on the history and on objects of this kind, in the namespace of
/// the object.
fn is_visible(access: &Access, verb: Verb, key: &ObjectKey) -> bool {
    let namespace = key.namespace.as_ref();
    access.may(verb, Subject::History, namespace) && access.may_object(verb, key.kind, namespace)
}

/// Renders a write as an entry of the history listing.
fn head(head: &RevisionHead) -> Value {
    let RevisionHead { revision, at, origin, touched } = head;
    let change = |(kind, key): &(model::cluster::change::ChangeKind, ObjectKey)| json!({ "kind": kind, "object": name(key) });
    let changes: Vec<_> = touched.iter().take(CHANGES_NAMED_MAX).map(change).collect();
    let mut json = json!({
        "revision": revision, "at": at, "changes": changes, "changesTotal": touched.len(),
    });
    let origin = serde_json::to_value(origin).expect("an origin has string keys only");
    if let (Some(json), Value::Object(origin)) = (json.as_object_mut(), origin) {
        json.extend(origin);
    }
    json
}

/// Renders an object changed by a write, with its states before and after.
fn revised(object: &RevisedObject) -> Value {
    let (fields, omitted) = differences(object.before.as_deref(), object.after.as_deref());
    let json = json!({
        "kind": object.kind(), "object": name(&object.key), "before": object.before.as_ref().map(|it| it.to_json()),
        "after": object.after.as_ref().map(|it| it.to_json()), "fields": fields, "fieldsOmitted": omitted,
    });
    without_null(json)
}

fn name(key: &ObjectKey) -> Value {
    without_null(json!({ "kind": key.kind, "namespace": key.namespace, "name": key.name }))
}

/// Creates the problem response for a revision without a history entry: with code `NotFound` if the revision
/// does not exist, otherwise with code `HistoryDropped`.
pub(super) async fn unknown(app: &Shared, revision: Revision) -> Result<Problem, Problem> {
    let head = app.hub.load().position().revision;
    let query = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 0 };
    let floor = app.store.history(&query).await.map_err(unavailable)?.floor;
    Ok(if revision > head || revision.0 == 0 {
        Problem::new(
            Code::NotFound,
            format!(
                "there is no revision {revision}; the newest revision is \
                                              {head}"
            ),
        )
    } else if revision <= floor {
        dropped(revision, floor)
    } else {
        let detail =
            format!("revision {revision} is a write of the server itself, of which only the newest are kept");
        Problem::new(Code::HistoryDropped, detail)
    })
}

/// Creates the problem response for a revision that is older than the history.
pub(super) fn dropped(revision: Revision, floor: Revision) -> Problem {
    let detail = format!("the history begins after revision {floor}; revision {revision} is no longer kept");
    Problem::new(Code::HistoryDropped, detail).hint("GET /v1/history lists the available revisions")
}

/// Creates the problem response for a failure to read the history from the store.
pub(super) fn unavailable(error: StoreError) -> Problem {
    tracing::error!(error = chain(&error), "the history cannot be read");
    Problem::new(Code::Unavailable, "the history cannot be read").retry_after(UNAVAILABLE_RETRY_SECS)
}
