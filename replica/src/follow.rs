//! Watch of the cluster's objects: a full listing, then every change, from any of the control servers. Resumes at the
//! last position, and lists again if that is not possible. The state changes only at complete revisions.

use std::{sync::Arc, time::Duration};

use client::{Backoff, Client, Error, Request};
use model::{
    admission::decode::decode_received,
    cluster::change::ObjectChange,
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::quantity::{Position, Revision},
};
use serde_json::Value;

/// Minimum delay before the next attempt to reach a control server.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum delay before the next attempt to reach a control server.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Receiver of the objects.
pub trait StateSink {
    /// Replaces the state by all objects at a revision.
    fn replace(&self, revision: Revision, objects: Vec<Arc<Object>>);

    /// Applies the changes, at least one, up to a revision.
    fn change(&self, revision: Revision, changes: Vec<ObjectChange>);

    /// Records that a control server sends the state, or that none does.
    fn set_connected(&self, is_connected: bool);
}

/// Watch of the objects of some kinds.
#[derive(Debug)]
pub struct Follower<S> {
    /// Client of the control servers. Its idle timeout must be longer than the interval of heartbeats.
    pub client: Client,
    /// Kinds of the objects.
    pub kinds: &'static [Kind],
    /// Receiver of the objects.
    pub sink: S,
}

/// State of one stream from a control server.
struct Reader<'a, S> {
    follower: &'a Follower<S>,
    /// Objects of the initial listing; `None` after it is complete.
    listing: Option<Vec<Arc<Object>>>,
    /// Changes of a revision that is not complete.
    changes: Vec<ObjectChange>,
    position: Option<Position>,
}

impl<S: StateSink> Follower<S> {
    /// Watches the objects until the task is cancelled.
    pub async fn run(&self) {
        let mut position = None;
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let mut reader = Reader {
                follower: self,
                listing: position.is_none().then(Vec::new),
                changes: Vec::new(),
                position,
            };
            let outcome = reader.read().await;
            if reader.position.is_some() && reader.position != position {
                backoff.reset();
            }
            position = reader.position;
            let cause = match outcome {
                Ok(()) => "the server closed the watch".to_owned(),
                Err(Error::Rejected(problem)) if !problem.is_transient() && problem.status != 401 => {
                    // If the position is rejected, a full listing always works.
                    position = None;
                    problem.to_string()
                }
                Err(error) => base::chain(&error),
            };
            self.sink.set_connected(false);
            tracing::warn!(
                server = self.client.url(),
                cause,
                "no watch of the state; the last state stays in use"
            );
            self.client.use_next();
            tokio::time::sleep(backoff.next_random_delay()).await;
        }
    }
}

impl<S: StateSink> Reader<'_, S> {
    async fn read(&mut self) -> Result<(), Error> {
        let kinds: Vec<_> = self.follower.kinds.iter().map(|kind| kind.as_str()).collect();
        let request = Request::get("/v1/watch")
            .query("kinds", Some(kinds.join(",")))
            .query("resume", self.position.map(|position| position.to_string()));
        let mut lines = self.follower.client.stream(&request).await?;
        while let Some(event) = lines.next().await? {
            self.follower.sink.set_connected(true);
            if self.accept(event).is_none() {
                // The position has expired, or the permission was lost; the next attempt returns the reason.
                self.position = None;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Processes one event. Returns `None` if the server ended the watch.
    fn accept(&mut self, mut event: Value) -> Option<()> {
        let position = event.get("position").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        match event.get("type").and_then(Value::as_str) {
            Some("ADDED" | "MODIFIED") => self.put(&object),
            Some("DELETED") => self.changes.extend(key_of(&object).map(ObjectChange::Removed)),
            Some("ERROR") => return None,
            Some(_) | None => {}
        }
        let Some(position): Option<Position> = position else { return Some(()) };
        // A position before the end of the listing is that of an object in it.
        if event.get("type").and_then(Value::as_str) == Some("BOOKMARK") || self.listing.is_none() {
            self.complete(position);
        }
        Some(())
    }

    fn put(&mut self, object: &Value) {
        match decode_received(object) {
            Ok(object) => {
                let object = Arc::new(object);
                match &mut self.listing {
                    Some(listing) => listing.push(object),
                    None => self.changes.push(ObjectChange::Put(object)),
                }
            }
            // A newer server may use unknown fields. The last state of the object stays in use.
            Err(violations) => tracing::warn!(?violations, "cannot decode an object of the control server"),
        }
    }

    /// Hands over all changes up to a position.
    fn complete(&mut self, position: Position) {
        self.position = Some(position);
        let revision: Revision = position.revision;
        if let Some(listing) = self.listing.take() {
            return self.follower.sink.replace(revision, listing);
        }
        let changes = std::mem::take(&mut self.changes);
        // Without changes of these kinds, the state and the file on disk stay as they are.
        if !changes.is_empty() {
            self.follower.sink.change(revision, changes);
        }
    }
}

fn key_of(object: &Value) -> Option<ObjectKey> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let namespace = match text("/metadata/namespace") {
        Some(namespace) => Some(namespace.parse().ok()?),
        None => None,
    };
    Some(ObjectKey {
        kind: Kind::parse(text("/kind")?)?,
        namespace,
        name: text("/metadata/name")?.parse().ok()?,
    })
}
