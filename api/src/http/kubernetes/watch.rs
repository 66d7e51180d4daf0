//! Watches of the Kubernetes API: the existing objects, then changes as watch events.
//!
//! A watch keeps the last state it sent, which shares almost all memory with the newest state. Objects that have
//! changed since are rendered in both states, and the differences are sent: an object that begins to match the
//! selection is `ADDED`, one that no longer matches is `DELETED`. Commits that arrive while a client is slow are
//! merged; each object is sent in its newest state.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, header};
use model::{
    cluster::snapshot::Snapshot,
    primitives::quantity::{Epoch, Position, Revision},
};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{
    PREFIX,
    accept::ListFormat,
    catalogue::Resource,
    changes,
    options::{Include, Options, Since},
    path::Target,
    refusal,
    show::{ListSelection, Side, Unit},
    status, table,
};
use crate::{
    base::{
        body_stream::{self as stream, Gone, HEARTBEAT, PIECE_BYTES, Pieces},
        error::{Answer, Code, Problem},
    },
    http::{middleware::RequestId, routes::Shared, watch::resume_expired},
    security::{
        Access, Caller, Permission, Verb,
        access::{PathParams, unauthenticated},
        permission::Subject,
    },
    state::published::Published,
};

/// Maximum number of entities ([`Unit`]) rendered in one batch. The state is released before the batch is sent, so
/// that a slow client does not keep old states in memory.
const BATCH_UNITS: usize = 256;
/// Default and maximum duration of a watch in seconds: one day. Clients reconnect afterwards.
const LIFE_SECONDS_MAX: u32 = 86_400;
/// Annotation of the bookmark that follows the initial objects.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Watch of a Kubernetes resource by one client.
struct ResourceWatch {
    app: Shared,
    chosen: ListSelection,
    form: ListFormat,
    include: Include,
    access: Arc<Access>,
    has_bookmarks: bool,
    marks_initial_end: bool,
    /// Revision after which the watch resumes; `None` starts with the existing objects.
    resume: Option<Revision>,
    life: Duration,
    request_id: String,
    stop: CancellationToken,
}

/// State that the client has received, with its revision.
struct SentState {
    epoch: Epoch,
    state: Snapshot,
    /// Revision up to which changes have been sent.
    at: Revision,
    /// Resource version of the last event that the client received.
    known: Revision,
}

/// Starts a watch and returns the response that streams its events.
pub(super) async fn begin(
    app: Shared,
    caller: &Caller,
    chosen: ListSelection,
    form: ListFormat,
    options: &Options,
    RequestId(request_id): RequestId,
) -> Answer {
    if !chosen.resource.is_watchable() {
        let target = Target { resource: Some(chosen.resource), ..Target::default() };
        return Err(Problem::new(Code::MethodNotAllowed, refusal::of_read(&target)));
    }
    let access = Arc::clone(caller.access());
    may_watch(&access, &chosen)?;
    let resume = match options.since {
        Since::Any | Since::Latest => None,
        Since::NotOlder(position) => Some(check_resume(&app, position).await?),
        Since::Exactly(_) => {
            let detail = "query parameter: `resourceVersionMatch` of a watch must be NotOlderThan";
            return Err(Problem::bad_request(detail));
        }
    };
    let permit = app.open_watch(caller)?;
    let (pieces, body) = stream::pieces();
    let watch = ResourceWatch {
        stop: app.stop_streams.child_token(),
        app,
        chosen,
        form,
        include: options.include,
        access,
        has_bookmarks: options.has_bookmarks || options.marks_initial_end,
        marks_initial_end: options.marks_initial_end,
        resume,
        life: Duration::from_secs(u64::from(options.timeout_seconds.unwrap_or(LIFE_SECONDS_MAX))),
        request_id,
    };
    tokio::spawn(async move {
        let mut sink = ResourceSink { pieces, buffer: Vec::new() };
        // The watcher disconnected; there is no recipient for the error.
        let _ = watch.serve(&mut sink).await;
        drop(permit);
    });
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Checks the permission to watch. The route itself requires only the permission to list.
fn may_watch(access: &Access, chosen: &ListSelection) -> Result<(), Problem> {
    let subject = chosen.resource.of().map(Subject::Object);
    let asks = match (subject, &chosen.namespace) {
        (Some(subject), None) if chosen.resource.is_namespaced() => {
            Permission::Each(Verb::Watch, Some(subject))
        }
        (Some(subject), _) => Permission::On(Verb::Watch, subject),
        (None, _) => Permission::Each(Verb::Watch, None),
    };
    access.check(asks, &PathParams { namespace: chosen.namespace.as_ref(), name: None, node: None })
}

/// Checks that a watch can be resumed from a position, and returns its revision.
///
/// # Errors
/// Returns a problem with code `ResumeExpired` if the position is of a different epoch or the changes after it
/// are no longer in memory, and one with code `Behind` if this server does not reach the position in time.
async fn check_resume(app: &Shared, position: Position) -> Result<Revision, Problem> {
    if app.store.is_shared() {
        app.reach(position).await?;
    }
    let published = app.hub.load();
    let present = published.position();
    let is_ours = position.epoch == present.epoch && position.revision <= present.revision;
    let is_ours = app.may_resume(position) && is_ours;
    if is_ours && changes::state_at(&published, position.revision).is_some() {
        Ok(position.revision)
    } else {
        Err(resume_expired(position))
    }
}

impl ResourceWatch {
    async fn serve(&self, sink: &mut ResourceSink) -> Result<(), Gone> {
        let mut bell = self.app.hub.subscribe();
        let Some(mut told) = self.first(sink).await? else { return self.expired(sink).await };
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        let end = tokio::time::sleep(self.life);
        tokio::pin!(end);
        loop {
            // Checked before every piece that is sent, because a token may have been revoked.
            let renewed = self.app.authenticator.renew(&self.access, self.app.source.now());
            if !renewed.is_some_and(|renewed| renewed.is_as(&self.access)) {
                let detail = "the token has expired, or its role bindings have changed since the watch \
                              began";
                return self.fail(unauthenticated(detail), sink).await;
            }
            let newest = self.app.hub.load();
            if newest.epoch != told.epoch || !self.follow(&newest, &mut told, sink).await? {
                return self.expired(sink).await;
            }
            drop(newest);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.pieces.closed() => return Err(Gone),
                () = &mut end => {
                    self.bookmark(&mut told, sink).await?;
                    return Ok(());
                }
                changed = bell.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                _ = heartbeat.tick() => self.bookmark(&mut told, sink).await?,
            }
        }
    }

    /// Sends the existing objects, or reconstructs the state from which the watch resumes. Returns `None` if that
    /// state is no longer available.
    async fn first(&self, sink: &mut ResourceSink) -> Result<Option<SentState>, Gone> {
        let published = self.app.hub.load();
        let epoch = published.epoch;
        if let Some(at) = self.resume {
            let state = changes::state_at(&published, at);
            return Ok(state.map(|state| SentState { epoch, state, at, known: at }));
        }
        let mut after = None;
        loop {
            let (last, objects) = self.batch(&published, after.as_ref());
            for object in objects {
                self.send("ADDED", object, sink).await?;
            }
            match last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        let at = published.snapshot.revision();
        if self.has_bookmarks {
            let mut metadata = json!({ "resourceVersion": Position { epoch, revision: at } });
            if self.marks_initial_end {
                metadata["annotations"] = json!({ INITIAL_END: "true" });
            }
            sink.event("BOOKMARK", &self.empty(metadata)).await?;
        }
        sink.flush().await?;
        Ok(Some(SentState { epoch, state: published.snapshot.clone(), at, known: at }))
    }

    /// Renders the next batch of existing objects: those of the entities after `after` (`None`: from the
    /// first one). Returns the last entity of the batch (`None` if there are no more entities) and the
    /// objects.
    fn batch(&self, published: &Arc<Published>, after: Option<&Unit>) -> (Option<Unit>, Vec<Value>) {
        let view = self.app.view_of(Arc::clone(published));
        let renderer = view.renderer();
        let side = Side {
            snapshot: &published.snapshot,
            compiled: Some(&published.compiled),
            epoch: published.epoch,
            status: &|object| renderer.node(object),
        };
        let mut units = Vec::new();
        side.walk(&self.chosen, after, |unit| {
            units.push(unit);
            if units.len() < BATCH_UNITS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let seen = units.iter().filter(|unit| self.chosen.is_seen(&self.access, Verb::Watch, unit));
        let objects = seen.flat_map(|unit| side.show(unit, &self.chosen).into_values()).collect();
        (units.pop(), objects)
    }

    /// Sends the changes between the state that the client has received (`told`) and `newest`, and updates
    /// `told`. Returns false if these changes are no longer in memory.
    ///
    /// Every event except the last has the previous state's resource version, so that a client that resumes from
    /// it receives all of these events again.
    async fn follow(
        &self,
        newest: &Arc<Published>,
        told: &mut SentState,
        sink: &mut ResourceSink,
    ) -> Result<bool, Gone> {
        let revision = newest.snapshot.revision();
        if revision == told.at {
            return Ok(true);
        }
        let Some(units) = changes::since(newest, self.chosen.resource, told.at) else {
            return Ok(false);
        };
        let units: Vec<Unit> = units.into_iter().filter(|unit| self.concerns(unit)).collect();
        let (before, after) = (told.at, revision);
        let version = |revision| json!(Position { epoch: told.epoch, revision });
        let mut held: Option<(&'static str, Value)> = None;
        for units in units.chunks(BATCH_UNITS) {
            for event in self.differences(newest, &told.state, units) {
                if let Some((word, mut object)) = held.replace(event) {
                    object["metadata"]["resourceVersion"] = version(before);
                    self.send(word, object, sink).await?;
                }
            }
        }
        if let Some((word, mut object)) = held {
            object["metadata"]["resourceVersion"] = version(after);
            self.send(word, object, sink).await?;
            told.known = after;
        }
        told.state = newest.snapshot.clone();
        told.at = after;
        sink.flush().await?;
        Ok(true)
    }

    fn concerns(&self, unit: &Unit) -> bool {
        let is_here = match (unit, &self.chosen.namespace) {
            (Unit::Object(key), Some(wanted)) => key.namespace.as_ref() == Some(wanted),
            (Unit::Object(_) | Unit::Namespace(_), _) => true,
        };
        is_here && self.chosen.is_seen(&self.access, Verb::Watch, unit)
    }

    /// Returns the watch events for some entities: the differences between their Kubernetes objects in two states.
    fn differences(
        &self,
        newest: &Arc<Published>,
        before: &Snapshot,
        units: &[Unit],
    ) -> Vec<(&'static str, Value)> {
        let view = self.app.view_of(Arc::clone(newest));
        let renderer = view.renderer();
        let status = |object: &_| renderer.node(object);
        let (epoch, compiled) = (newest.epoch, Some(&newest.compiled));
        let old = Side { snapshot: before, compiled: None, epoch, status: &status };
        let new = Side { snapshot: &newest.snapshot, compiled, epoch, status: &status };
        let mut events = Vec::new();
        for unit in units {
            let (mut was, is) = (old.show(unit, &self.chosen), new.show(unit, &self.chosen));
            for (name, object) in is {
                match was.remove(&name) {
                    None => events.push(("ADDED", object)),
                    Some(former) if is_same(&former, &object) => {}
                    Some(former) if former["metadata"]["uid"] != object["metadata"]["uid"] => {
                        events.extend([("DELETED", former), ("ADDED", object)]);
                    }
                    Some(_) => events.push(("MODIFIED", object)),
                }
            }
            events.extend(was.into_values().map(|former| ("DELETED", former)));
        }
        events
    }

    async fn send(&self, word: &'static str, object: Value, sink: &mut ResourceSink) -> Result<(), Gone> {
        self.app.metrics.watch_events.inc();
        match self.form {
            ListFormat::Objects => sink.event(word, &object).await,
            ListFormat::Table(version) => {
                let (resource, now) = (self.chosen.resource, self.app.source.now());
                let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                let row = table::row(resource, &object, now, self.include);
                sink.event(word, &table::table(version, resource, metadata, vec![row])).await
            }
        }
    }

    /// Sends a bookmark if the client has requested bookmarks and does not have the current resource version yet.
    async fn bookmark(&self, told: &mut SentState, sink: &mut ResourceSink) -> Result<(), Gone> {
        if !self.has_bookmarks || told.known == told.at {
            return Ok(());
        }
        told.known = told.at;
        let metadata = json!({ "resourceVersion": Position { epoch: told.epoch, revision: told.at } });
        sink.event("BOOKMARK", &self.empty(metadata)).await?;
        sink.flush().await
    }

    /// Renders an object that consists only of metadata, for a bookmark.
    fn empty(&self, metadata: Value) -> Value {
        let resource: Resource = self.chosen.resource;
        match self.form {
            ListFormat::Objects => json!({
                "kind": resource.words().kind,
                "apiVersion": resource.group().api_version(&self.chosen.api_version),
                "metadata": metadata,
            }),
            ListFormat::Table(version) => table::table(version, resource, metadata, Vec::new()),
        }
    }

    async fn expired(&self, sink: &mut ResourceSink) -> Result<(), Gone> {
        self.app.metrics.watch_overruns.inc();
        let detail = "the changes since this resource version are no longer available";
        self.fail(Problem::new(Code::ResumeExpired, detail).hint("list again, and watch from there"), sink)
            .await
    }

    async fn fail(&self, problem: Problem, sink: &mut ResourceSink) -> Result<(), Gone> {
        let problem = problem.finish(PREFIX, &self.request_id);
        sink.event("ERROR", &status::of(&problem)).await?;
        sink.flush().await
    }
}

/// Returns true if two renderings of an object differ at most in their resource version.
fn is_same(former: &Value, object: &Value) -> bool {
    let timeless = |value: &Value| {
        let mut value = value.clone();
        value["metadata"]["resourceVersion"] = Value::Null;
        value
    };
    timeless(former) == timeless(object)
}

struct ResourceSink {
    pieces: Pieces,
    buffer: Vec<u8>,
}

impl ResourceSink {
    async fn event(&mut self, word: &'static str, object: &Value) -> Result<(), Gone> {
        let line = json!({ "type": word, "object": object }).to_string();
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.pieces.send(Bytes::from(std::mem::take(&mut self.buffer))).await
    }
}
