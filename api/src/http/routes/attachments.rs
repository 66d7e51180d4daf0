//! `PUT` and `GET /v1/nodes/{node}/attachments`: Attachments that the agent of a node reports.

use std::collections::{BTreeMap, VecDeque};

use axum::extract::{Request as HttpRequest, State};
use http::HeaderMap;
use model::{
    admission::admit::{Operation, Request, refused_attachments},
    cluster::snapshot::Snapshot,
    kinds::attachment::attachment_id,
    primitives::{
        name::{Label, Name, Namespace},
        quantity::Position,
    },
    wire::attachments::{
        ATTACHMENTS_MAX, AttachmentChanges, AttachmentRecords, AttachmentRefusal, AttachmentRequest,
        AttachmentResult, RefusedAttachment, WANTED_MAX,
    },
};
use utoipa::openapi::HttpMethod;

use super::{
    Shared,
    feed::{NodePath, require_node},
};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Caller, Permission},
    write::{refusal::problem, writer::WriteError},
};

/// Maximum number of further writes of one report that fails as a whole, so that a namespace at its quota does not take up
/// the writer. A namespace at its quota is found with a write for each bit of the number of its entries.
const PARTS_MAX: usize = 32;

/// Registers the routes of the Attachments of a node.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("reportAttachments", "Agent", "Report the Attachments of a node")
        .describe(
            "Records new and changed Attachments of the node, fills the addresses of their Workloads in the same \
             write, and removes those that have ended. Entries are independent: an entry that is refused does not hold \
             up others. A repeated report changes nothing. If `wanted` names a network, the node gets a further block \
             of it, as far as its Attachments justify it and one is free.",
        )
        .named("node", "Name of the Node.")
        .body::<AttachmentChanges>(&OBJECT_TYPES, "Changes of the Attachments.")
        .answer::<AttachmentResult>(200, "Returned with the refused entries.", &OBJECT_TYPES, &[])
        .problems(&[Code::NodeNotFound, Code::Invalid, Code::NotAcceptable]);
    let route =
        Route::at("/v1/nodes/{node}/attachments").on(HttpMethod::Put, Permission::OwnNode, doc, report);
    let doc = Doc::new("readAttachmentsOfNode", "Agent", "Read the Attachments of a node")
        .describe("Returns the recorded Attachments of the node, for an agent that has lost its own records.")
        .named("node", "Name of the Node.")
        .answer::<AttachmentRecords>(200, "Returned with the Attachments.", &OBJECT_TYPES, &[])
        .problems(&[Code::NodeNotFound, Code::NotAcceptable]);
    router.routes(route.on(HttpMethod::Get, Permission::OwnNode, doc, read).done())
}

async fn report(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    caller: Caller,
    request: HttpRequest,
) -> Answer {
    let (parts, body) = request.into_parts();
    let form = form(&parts.headers)?;
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let changes: AttachmentChanges = body::typed(&value)?;
    let AttachmentChanges { complete: _, attachments, removed, wanted } = &changes;
    body::within([
        ("/attachments", attachments.len(), ATTACHMENTS_MAX),
        ("/removed", removed.len(), ATTACHMENTS_MAX),
        ("/wanted", wanted.len(), WANTED_MAX),
    ])?;
    require_node(&app.hub.load().snapshot, &node)?;
    let result = match write(&app, &caller, &node, changes.clone(), bytes.len()).await {
        Ok(position) => AttachmentResult { position, refused: refused(&app, &node, &changes) },
        Err(WriteError::Refused(_)) => in_parts(&app, &caller, &node, changes).await?,
        Err(error) => return Err(problem(error, caller.access())),
    };
    Ok(render(form, &result))
}

/// Returns the entries of a report that the published state does not record, each with the reason.
fn refused(app: &Shared, node: &Name, changes: &AttachmentChanges) -> BTreeMap<Label, AttachmentRefusal> {
    refused_attachments(&app.hub.load().snapshot, app.cluster.quotas(), node, changes)
}

/// Writes the entries of a report in several writes, because some of them together make the whole report fail, for example
/// by the quota of checked endpoints. A part that fails is divided, until [`PARTS_MAX`] writes were made.
async fn in_parts(
    app: &Shared,
    caller: &Caller,
    node: &Name,
    changes: AttachmentChanges,
) -> Result<AttachmentResult, Problem> {
    let AttachmentChanges { complete, attachments, removed, wanted } = changes;
    let kept = app.hub.load();
    let is_kept = |id: &Label| !removed.contains(id) && (!complete || attachments.contains_key(id));
    let known = kept.snapshot.attachments_of_node(node);
    let gone =
        known.filter_map(|object| attachment_id(node, &object.metadata.name)).filter(|id| !is_kept(id));
    let first = AttachmentChanges { removed: gone.collect(), wanted, ..AttachmentChanges::default() };
    let failed = |error| problem(error, caller.access());
    let mut position = write(app, caller, node, first, 0).await.map_err(failed)?;
    let mut all_refused = BTreeMap::new();
    let mut parts = by_namespace(attachments);
    let mut writes = 0;
    while let Some(part) = parts.pop_front() {
        writes += 1;
        let one = AttachmentChanges { attachments: part.clone(), ..AttachmentChanges::default() };
        match write(app, caller, node, one.clone(), 0).await {
            Ok(reached) => {
                position = reached;
                all_refused.extend(refused(app, node, &one));
            }
            Err(WriteError::Refused(_)) if part.len() > 1 && writes + parts.len() < PARTS_MAX => {
                let second = part.len() / 2;
                let mut halves = [BTreeMap::new(), BTreeMap::new()];
                for (index, (id, request)) in part.into_iter().enumerate() {
                    halves[usize::from(index >= second)].insert(id, request);
                }
                // The first half next, so that the entries that fit are found with few writes.
                halves.into_iter().rev().for_each(|half| parts.push_front(half));
            }
            Err(WriteError::Refused(refusal)) => {
                let problem = problem(WriteError::Refused(refusal), caller.access());
                let message = problem.detail().to_owned();
                let refusal = AttachmentRefusal { reason: RefusedAttachment::LimitReached, message };
                all_refused.extend(part.into_keys().map(|id| (id, refusal.clone())));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(AttachmentResult { position, refused: all_refused })
}

/// Divides entries by the namespaces of their Workloads, because quotas are those of namespaces. Those of further namespaces
/// are one part.
fn by_namespace(
    attachments: BTreeMap<Label, AttachmentRequest>,
) -> VecDeque<BTreeMap<Label, AttachmentRequest>> {
    let mut parts: BTreeMap<Option<Namespace>, BTreeMap<_, _>> = BTreeMap::new();
    for (id, request) in attachments {
        let namespace = Some(request.workload.namespace.clone());
        let is_known = parts.contains_key(&namespace);
        let part = if is_known || parts.len() < PARTS_MAX / 2 { namespace } else { None };
        parts.entry(part).or_default().insert(id, request);
    }
    parts.into_values().collect()
}

/// Submits a report as one write. The agent reports facts, so that the guards against large removals do not apply.
async fn write(
    app: &Shared,
    caller: &Caller,
    node: &Name,
    changes: AttachmentChanges,
    bytes: usize,
) -> Result<Position, WriteError> {
    let operations = vec![Operation::SetAttachments { node: node.clone(), changes: Box::new(changes) }];
    let request = Request { operations, confirmed: true, ..Request::default() };
    caller.record_request(&request, false);
    let written = app.writer.write(caller, request, app.source.draw(), bytes).await?;
    caller.record_accepted(written.position.revision, &written.outcomes);
    Ok(written.position)
}

async fn read(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let published = app.hub.load();
    require_node(&published.snapshot, &node)?;
    Ok(render(form, &records(&published.snapshot, &node)))
}

fn records(snapshot: &Snapshot, node: &Name) -> AttachmentRecords {
    let of_node = snapshot.attachments_of_node(node).filter_map(|object| {
        Some((attachment_id(node, &object.metadata.name)?, object.as_attachment()?.clone()))
    });
    AttachmentRecords { attachments: of_node.collect() }
}
