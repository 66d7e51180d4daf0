//! Watch of objects by a client: first the current objects, or a position from which to resume, then every
//! change in order.
//!
//! A watch reads the recent commits from memory at its own pace. If the next commit is no longer in memory,
//! the watch ends with an error event, and the client must list again. A pacer (task that forwards new
//! states) wakes all watches at the same time, so that a change sent to a thousand of them is serialized only
//! once.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use model::{
    cluster::change::ChangeKind,
    kinds::{
        resource::{Kind, Object},
        selector::LabelSelector,
    },
    primitives::{
        name::Namespace,
        quantity::{Epoch, Position, Revision},
    },
};
use serde::Serialize;
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::{
    base::{
        body_stream::{Gone, HEARTBEAT, PIECE_BYTES, Pieces},
        error::{Code, Problem, ProblemBody},
        negotiate::StreamForm,
    },
    context::server_state::ServerState,
    security::{Access, Verb, access::unauthenticated},
    state::{
        change_ring::{Before, RecentChange},
        published::Published,
    },
};

use crate::stream::watching::ShownCommit;

/// Selection of the objects that a watch reports.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    /// Kinds of the selected objects.
    pub(crate) kinds: BTreeSet<Kind>,
    /// Namespace of the selected objects. `None` selects all namespaces and cluster-scoped objects.
    pub(crate) namespace: Option<Namespace>,
    /// Label selector of the selected objects.
    pub(crate) selector: LabelSelector,
    /// Permissions of the client. Objects that it may not watch are not reported.
    pub(crate) access: Arc<Access>,
}

/// Type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum EventType {
    /// The object was created, or began to match the selection.
    Added,
    /// The object has changed.
    Modified,
    /// The object was deleted, or no longer matches the selection.
    Deleted,
    /// All events up to `position` have been sent.
    Bookmark,
    /// Periodic sign that the watch is alive, without a change.
    Heartbeat,
    /// The watch ends; `problem` holds the reason.
    Error,
}

/// Event of a watch.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchEvent {
    /// Type of the event, such as `ADDED`.
    #[serde(rename = "type")]
    pub(crate) event_type: EventType,
    /// Revision of the change. In events without an object, the revision up to which changes have been sent.
    pub(crate) revision: Revision,
    /// Position from which the watch can be resumed. Present on the last event of a revision, on bookmarks
    /// and on heartbeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<Position>,
    /// True on the bookmark that ends the list of current objects. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initial: Option<bool>,
    /// Object after the change. If it was deleted, its last state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::http::schema::Object>)]
    pub(crate) object: Option<Value>,
    /// Reason why the watch ends. Present in `ERROR` events only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::base::error::ProblemBody>)]
    pub(crate) problem: Option<Box<ProblemBody>>,
}

/// Watch of objects by one client.
pub(crate) struct ObjectWatch {
    /// State of the server that every handler shares.
    pub(crate) app: Arc<ServerState>,
    /// Selection of the objects that the watch reports.
    pub(crate) filter: Filter,
    /// Revision after which the watch resumes; `None` starts with the current objects.
    pub(crate) resume: Option<Revision>,
    /// Format of the events.
    pub(crate) form: StreamForm,
    /// Id of the request, included in an error event.
    pub(crate) request_id: String,
    /// Token that is cancelled to end the watch, for example at shutdown.
    pub(crate) stop: CancellationToken,
}

impl Filter {
    fn covers(&self, object: &Object) -> bool {
        let in_namespace = |wanted: &Namespace| object.metadata.namespace.as_ref() == Some(wanted);
        let kind = object.spec.kind();
        self.kinds.contains(&kind)
            && self.namespace.as_ref().is_none_or(in_namespace)
            && self.access.may_object(Verb::Watch, kind, object.metadata.namespace.as_ref())
    }

    fn selects(&self, object: &Object) -> bool {
        self.selector.matches(&object.metadata.labels)
    }

    /// Returns the type of the event that reports a change to this watch, or `None` if the selection does not
    /// include the object. An object that stops matching is reported as deleted, one that begins to match as
    /// added.
    fn judge(&self, change: &RecentChange) -> Option<EventType> {
        if !self.covers(&change.object) {
            return None;
        }
        // If the previous state is unknown, the object may have matched.
        let matched = match &change.before {
            Before::Nothing => false,
            Before::Object(object) => self.selects(object),
            Before::Unknown => true,
        };
        let matches = change.kind != ChangeKind::Deleted && self.selects(&change.object);
        match (matched, matches) {
            (false, false) => None,
            (false, true) => Some(EventType::Added),
            (true, false) => Some(EventType::Deleted),
            (true, true) => Some(EventType::Modified),
        }
    }
}

impl ObjectWatch {
    /// Sends events until the client disconnects, the server shuts down, or the watch ends with an error
    /// event.
    pub(crate) async fn run(self, pieces: Pieces) {
        let mut sink = EventSink { pieces, form: self.form, buffer: Vec::new() };
        // The watcher disconnected; there is no recipient for the error.
        let _ = self.serve(&mut sink).await;
    }

    async fn serve(&self, sink: &mut EventSink) -> Result<(), Gone> {
        let mut pacer = self.app.watching.pacer.subscribe();
        let published = self.app.hub.load();
        let epoch = published.epoch;
        let mut at = match self.resume {
            Some(revision) => revision,
            None => self.initial(&published, sink).await?,
        };
        let mut first = Some(published);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        loop {
            // Checked before every piece that is sent, because a token may have been revoked.
            if !self.is_allowed() {
                return self.revoked(at, sink).await;
            }
            let newest = first.take().unwrap_or_else(|| Arc::clone(&pacer.borrow_and_update()));
            // The first state was the newest one, which the pacer may not have reached.
            let is_ahead = newest.epoch == epoch && newest.position().revision > at;
            if newest.epoch != epoch || (is_ahead && !self.follow(&newest, &mut at, sink).await?) {
                self.app.metrics.watch_overruns.inc();
                return self.expired(epoch, at, sink).await;
            }
            drop(newest);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.pieces.closed() => return Err(Gone),
                changed = pacer.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                _ = heartbeat.tick() => {
                    let position = Some(Position { epoch, revision: at });
                    sink.event(&WatchEvent { position, ..event(EventType::Heartbeat, at) }).await?;
                    sink.flush().await?;
                }
            }
        }
    }

    /// Sends the current objects as `ADDED` events, followed by a bookmark. Returns the revision of the state
    /// that they show.
    async fn initial(&self, published: &Arc<Published>, sink: &mut EventSink) -> Result<Revision, Gone> {
        for kind in &self.filter.kinds {
            let namespace = self.filter.namespace.as_ref();
            let mut after = None;
            loop {
                // In batches, because data used for rendering must not be held while waiting for the client.
                let batch = self.batch(published, *kind, namespace, after.as_ref());
                let Some((last, events)) = batch else { break };
                for event in &events {
                    sink.event(event).await?;
                }
                after = Some(last);
            }
        }
        let revision = published.snapshot.revision();
        let position = Some(published.position());
        sink.event(&WatchEvent { position, initial: Some(true), ..event(EventType::Bookmark, revision) })
            .await?;
        sink.flush().await?;
        Ok(revision)
    }

    fn batch(
        &self,
        published: &Arc<Published>,
        kind: Kind,
        namespace: Option<&Namespace>,
        after: Option<&model::kinds::resource::ObjectKey>,
    ) -> Option<(model::kinds::resource::ObjectKey, Vec<WatchEvent>)> {
        let objects: Vec<_> = published.snapshot.list(kind, namespace, after).take(BATCH_OBJECTS).collect();
        let last = objects.last()?.key();
        let view = self.app.view_of(Arc::clone(published));
        let renderer = view.renderer();
        let chosen =
            objects.into_iter().filter(|object| self.filter.covers(object) && self.filter.selects(object));
        let events = chosen.map(|object| WatchEvent {
            object: Some(renderer.object(object)),
            ..event(EventType::Added, object.metadata.revision())
        });
        Some((last, events.collect()))
    }

    /// Sends the changes after revision `at`, and advances `at` to the last revision sent. Returns `false` if
    /// the changes are no longer in memory.
    async fn follow(
        &self,
        published: &Arc<Published>,
        at: &mut Revision,
        sink: &mut EventSink,
    ) -> Result<bool, Gone> {
        let stretch = self.app.watching.stretches.since(*at, published);
        let Some(stretch) = stretch else { return Ok(false) };
        for commit in &stretch.commits {
            self.tell(published, commit, sink).await?;
            *at = commit.revision();
        }
        sink.flush().await?;
        Ok(true)
    }

    /// Sends those changes of a commit that the selection includes. Only the last event has the position (epoch
    /// and revision), so that a watch never resumes in the middle of a commit.
    async fn tell(
        &self,
        published: &Arc<Published>,
        commit: &ShownCommit,
        sink: &mut EventSink,
    ) -> Result<(), Gone> {
        let revision = commit.revision();
        let chosen: Vec<_> = commit
            .changes()
            .filter_map(|(change, object)| Some((self.filter.judge(change)?, change, object)))
            .collect();
        let count = chosen.len();
        for (at, (event_type, change, object)) in chosen.into_iter().enumerate() {
            self.app.metrics.watch_events.inc();
            let is_last = at + 1 == count;
            let position = is_last.then_some(Position { epoch: published.epoch, revision });
            let object = object.get_or_init(|| self.show(published, change).to_string().into());
            sink.event_of(&WatchEvent { position, ..event(event_type, revision) }, object).await?;
        }
        Ok(())
    }

    fn show(&self, published: &Arc<Published>, change: &RecentChange) -> Value {
        match change.kind {
            ChangeKind::Deleted => change.object.to_json(),
            ChangeKind::Added | ChangeKind::Modified => {
                self.app.view_of(Arc::clone(published)).renderer().object(&change.object)
            }
        }
    }

    /// Returns true if the client's current permissions equal those with which the watch started.
    fn is_allowed(&self) -> bool {
        let renewed = self.app.authenticator.renew(&self.filter.access, self.app.source.now());
        renewed.is_some_and(|renewed| renewed.is_as(&self.filter.access))
    }

    async fn revoked(&self, at: Revision, sink: &mut EventSink) -> Result<(), Gone> {
        let problem =
            unauthenticated("the token has expired, or its role bindings have changed since the watch began");
        let problem = problem.finish("/v1/watch", &self.request_id);
        sink.event(&WatchEvent { problem: Some(Box::new(problem)), ..event(EventType::Error, at) }).await?;
        sink.flush().await
    }

    async fn expired(&self, epoch: Epoch, at: Revision, sink: &mut EventSink) -> Result<(), Gone> {
        let problem = resume_expired(Position { epoch, revision: at }).finish("/v1/watch", &self.request_id);
        sink.event(&WatchEvent { problem: Some(Box::new(problem)), ..event(EventType::Error, at) }).await?;
        sink.flush().await
    }
}

/// Number of objects of the initial list that are rendered at once.
const BATCH_OBJECTS: usize = 256;

/// Creates the problem response for a position from which a watch cannot resume.
pub(crate) fn resume_expired(position: Position) -> Problem {
    Problem::new(Code::ResumeExpired, format!("the changes after {position} are no longer available"))
        .hint("watch again without `resume`, which starts with the current objects")
}

fn event(event_type: EventType, revision: Revision) -> WatchEvent {
    WatchEvent { event_type, revision, position: None, initial: None, object: None, problem: None }
}

struct EventSink {
    pieces: Pieces,
    form: StreamForm,
    buffer: Vec<u8>,
}

impl EventSink {
    async fn event(&mut self, event: &WatchEvent) -> Result<(), Gone> {
        let json = serde_json::to_string(event).expect("events have string keys only");
        self.write(event.position, &[&json]).await
    }

    /// Sends an event with `object`, an object already serialized as JSON, as its last field.
    async fn event_of(&mut self, event: &WatchEvent, object: &str) -> Result<(), Gone> {
        let json = serde_json::to_string(event).expect("events have string keys only");
        let head = json.strip_suffix('}').expect("an event is an object");
        self.write(event.position, &[head, ",\"object\":", object, "}"]).await
    }

    async fn write(&mut self, position: Option<Position>, json: &[&str]) -> Result<(), Gone> {
        if self.form == StreamForm::Sse {
            if let Some(position) = position {
                self.buffer.extend_from_slice(format!("id: {position}\n").as_bytes());
            }
            self.buffer.extend_from_slice(b"data: ");
        }
        json.iter().for_each(|part| self.buffer.extend_from_slice(part.as_bytes()));
        // A server-sent event ends with an empty line.
        self.buffer.extend_from_slice(if self.form == StreamForm::Sse { b"\n\n" } else { b"\n" });
        if self.buffer.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.pieces.send(Bytes::from(std::mem::take(&mut self.buffer))).await
    }
}
