//! Steps that all write requests share: validating the write, committing it unless it is a dry run, and
//! creating the response.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use model::{
    admission::admit::{Entropy, NAMED_MAX, Operation, Outcome, Request},
    cluster::change::Action,
    kinds::{
        metadata::Labels,
        resource::{Kind, Object, ObjectKey},
    },
    primitives::{name::Name, quantity::Position},
};
use serde_json::{Value, json};
use store::VaultError;

use crate::{
    base::{
        error::{Answer, Code, Problem},
        etag,
        negotiate::{Form, render},
    },
    context::server_state::ServerState,
    http::patch::not_found,
    security::{Access, Caller, Verb, access::agent_of, certificates, enrol},
    write::{
        refusal::problem,
        writer::{Written, dry_run},
    },
};

/// Response header with the revision of the state that includes the write.
pub(crate) const X_REVISION: HeaderName = HeaderName::from_static("x-revision");
/// Response header with the value `true` if the write was a dry run; otherwise absent.
pub(crate) const X_DRY_RUN: HeaderName = HeaderName::from_static("x-dry-run");
/// Options of a write, read from the query and headers of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOptions {
    /// True if the write is only validated (dry run), not committed.
    pub(crate) is_dry_run: bool,
    /// True if Services get other addresses when an AddressPool loses the ones they use.
    pub(crate) evict: bool,
    /// True if the write is accepted although a guard (limit on the removals of one write) would reject it.
    pub(crate) confirm: bool,
    /// Media type requested for the response.
    pub(crate) form: Form,
    /// Size of the request body in bytes.
    pub(crate) bytes: usize,
}

/// Validates a request against the current state (admission), and commits it unless it is a dry run.
///
/// # Errors
/// Returns a problem if the caller lacks a permission for any part of the request, or if the request is
/// rejected.
pub(crate) async fn write(
    app: &ServerState,
    caller: &Caller,
    request: Request,
    manner: WriteOptions,
) -> Result<Written, Problem> {
    write_besides(app, caller, request, manner, None).await
}

/// Admits a request and commits it unless it is a dry run, as [`write`] does. Additionally requires the
/// permission for the verb `besides` on each object.
pub(crate) async fn write_besides(
    app: &ServerState,
    caller: &Caller,
    request: Request,
    manner: WriteOptions,
    besides: Option<Verb>,
) -> Result<Written, Problem> {
    let request = Request { evict: manner.evict, confirmed: manner.confirm, ..request };
    caller.record_request(&request, manner.is_dry_run);
    let access = caller.access();
    access.check_write(&app.hub.load().snapshot, &request, besides)?;
    let request = match agent_of(access.identity()) {
        Some(node) => Request { registration: Some(permitted_labels(app, node).await?), ..request },
        None => request,
    };
    check_live_nodes(app, &request)?;
    let entropy = app.source.draw();
    if !manner.is_dry_run {
        revoke_deleted(app, access, &request, &entropy).await?;
    }
    let outcome = if manner.is_dry_run {
        let tried = dry_run(&app.hub, &app.cluster, &request, &entropy);
        if let Ok(written) = &tried {
            access.check_outcomes(&written.outcomes)?;
        }
        tried
    } else {
        app.writer.write(caller, request, entropy, manner.bytes).await
    };
    if let Ok(written) = &outcome {
        caller.record_accepted(written.position.revision, &written.outcomes);
    }
    outcome.map_err(|error| problem(error, access))
}

/// Returns the labels that the agent of a node may set at the registration of its Node: those of its join token.
///
/// # Errors
/// Returns a problem if the certificate of the node was revoked a moment ago, perhaps by another control server.
async fn permitted_labels(app: &ServerState, node: &Name) -> Result<Labels, Problem> {
    if app.store.is_shared() {
        app.vault.refresh().await.map_err(|error| enrol::unwritten(&VaultError::Unavailable(error)))?;
    }
    let (_, record) = certificates::record(&app.vault, node);
    if record.is_used() && !record.is_held(app.source.now()) {
        return Err(enrol::revoked());
    }
    Ok(record.labels)
}

/// Rejects the deletion of a Node whose agent reports, unless the caller has confirmed it. Without certificates, the agent
/// would register the Node again at once, after its addresses had moved to other nodes. With certificates, the deletion
/// revokes that of the agent, which keeps its last state until it joins again.
fn check_live_nodes(app: &ServerState, request: &Request) -> Result<(), Problem> {
    let is_deletion =
        |operation: &Operation| matches!(operation, Operation::Delete { key, .. } if key.kind == Kind::Node);
    if request.confirmed || !request.operations.iter().any(is_deletion) {
        return Ok(());
    }
    let view = app.view();
    let table = view.table();
    let is_live = |node: &Name| table.view(node).is_some_and(|view| view.is_connected);
    let live_node = |operation: &Operation| {
        let Operation::Delete { key, .. } = operation else { return None };
        (key.kind == Kind::Node && is_live(&key.name)).then(|| key.to_string())
    };
    let live: Vec<String> = request.operations.iter().filter_map(live_node).collect();
    let Some(first) = live.first() else { return Ok(()) };
    let consequence = match app.authority {
        Some(_) => {
            "would need a new join token (`tidegate node join-token`), because a deletion revokes certificates"
        }
        None => "would register the Node again at once",
    };
    let detail = match live.len() {
        1 => format!("the agent of {first} reports, and {consequence}"),
        more => format!("the agents of {more} Nodes report, for example that of {first}, and {consequence}"),
    };
    Err(Problem::new(Code::GuardHeld, detail)
        .hint("drain the node, stop its agent and wait until it is no longer connected; or repeat the request with `?confirm=true`")
        .would_remove(live.iter().take(NAMED_MAX).cloned().collect()))
}

/// Revokes the certificates of the Nodes that a write is about to delete. The revocation comes first, because the
/// agent of a deleted Node registers the Node again at once.
async fn revoke_deleted(
    app: &ServerState,
    access: &Access,
    request: &Request,
    entropy: &Entropy,
) -> Result<(), Problem> {
    let snapshot = &app.hub.load().snapshot;
    let is_deletion =
        |operation: &Operation| matches!(operation, Operation::Delete { key, .. } if key.kind == Kind::Node);
    let prunes_nodes = request
        .apply_set
        .iter()
        .filter(|set| set.prune)
        .any(|set| snapshot.apply_set_members(&set.name).any(|key| key.kind == Kind::Node));
    if app.authority.is_none() || !(prunes_nodes || request.operations.iter().any(is_deletion)) {
        return Ok(());
    }
    // The write itself reports a refusal.
    let Ok(written) = dry_run(&app.hub, &app.cluster, request, entropy) else { return Ok(()) };
    access.check_outcomes(&written.outcomes)?;
    let deleted = written.outcomes.iter().filter(|outcome| match outcome.action {
        Action::Deleted | Action::Pruned => outcome.object.as_node().is_some(),
        Action::Created | Action::Updated | Action::Unchanged => false,
    });
    for outcome in deleted {
        let node = &outcome.object.metadata.name;
        certificates::revoke(&app.vault, node, app.source.now())
            .await
            .map_err(|error| enrol::unwritten(&error))?;
        tracing::info!(%node, "the certificates of a node were revoked, because the Node is being deleted");
    }
    Ok(())
}

/// Creates the response of a write with the single object it concerns.
pub(crate) fn answer_object(
    app: &Arc<ServerState>,
    manner: WriteOptions,
    status: StatusCode,
    written: &Written,
) -> Answer {
    let outcome = written
        .outcomes
        .first()
        .ok_or_else(|| Problem::new(Code::Internal, "the write was accepted without an outcome"))?;
    let shown = render_all(app, manner, std::slice::from_ref(outcome));
    let mut response = render(manner.form, &shown.first());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag::header_value(&outcome.object.metadata));
    if outcome.action == Action::Created {
        headers.insert(header::LOCATION, location(&outcome.object));
    }
    Ok(stamp(response, manner, written.position))
}

/// Creates the response of a write that leaves its object unchanged.
pub(crate) fn answer_unchanged(app: &Arc<ServerState>, manner: WriteOptions, key: &ObjectKey) -> Answer {
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

/// Renders the objects of a write for its response. Deleted objects and objects of a dry run are rendered without
/// status.
pub(crate) fn render_all(app: &ServerState, manner: WriteOptions, outcomes: &[Outcome]) -> Vec<Value> {
    let view = app.view();
    let renderer = view.renderer();
    let show = |outcome: &Outcome| {
        let is_live = match outcome.action {
            Action::Created | Action::Updated | Action::Unchanged => !manner.is_dry_run,
            Action::Deleted | Action::Pruned => false,
        };
        if is_live { renderer.object(&outcome.object) } else { outcome.object.to_json() }
    };
    outcomes.iter().map(show).collect()
}

/// Creates the response of a write with the results of all its objects.
pub(crate) fn answer_many(app: &ServerState, manner: WriteOptions, written: &Written) -> Response {
    let shown = render_all(app, manner, &written.outcomes);
    let results = written.outcomes.iter().zip(shown);
    let results: Vec<Value> =
        results.map(|(outcome, object)| json!({ "action": outcome.action, "object": object })).collect();
    let position = written.position;
    let answer = json!({
        "position": position, "revision": position.revision, "dryRun": manner.is_dry_run, "results": results,
    });
    stamp(render(manner.form, &answer), manner, position)
}

/// Adds the response headers that all writes have: [`X_REVISION`] and, for a dry run, [`X_DRY_RUN`].
pub(crate) fn stamp(response: Response, manner: WriteOptions, position: Position) -> Response {
    let mut response = response.into_response();
    let headers = response.headers_mut();
    headers.insert(X_REVISION, HeaderValue::from(position.revision.0));
    if manner.is_dry_run {
        headers.insert(X_DRY_RUN, HeaderValue::from_static("true"));
    }
    response
}
