//! Watch of the cluster's state: a full listing, then every change, from any of the control servers. Resumes at the
//! last position, and lists again if that is not possible. The zone changes only at complete revisions.

use std::{sync::Arc, time::Duration};

use client::{Backoff, Client, Error, Request};
use model::{
    admission::decode::decode_received,
    cluster::snapshot::Snapshot,
    discovery::dns::{Zone, ZoneChange, ZoneSettings},
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::quantity::{Position, Revision},
};
use serde_json::Value;
use tokio::sync::watch;

use super::serial::numbered;
use crate::metrics::Metrics;

/// Kinds whose objects have an influence on the zone.
pub(crate) const KINDS: [Kind; 7] = [
    Kind::Node,
    Kind::DnsZone,
    Kind::Workload,
    Kind::Service,
    Kind::EndpointSet,
    Kind::Address,
    Kind::EndpointHealth,
];
/// Minimum delay before the next attempt to reach a control server.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum delay before the next attempt to reach a control server.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Watch of the state.
pub(crate) struct Follower {
    pub(crate) client: Client,
    pub(crate) settings: ZoneSettings,
    pub(crate) zones: watch::Sender<Option<Arc<Zone>>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// State of one stream from a control server.
struct Reader<'a> {
    follower: &'a Follower,
    /// Objects of the initial listing; `None` after it is complete.
    listing: Option<Vec<Arc<Object>>>,
    /// Changes of a revision that is not complete.
    changes: Vec<ZoneChange>,
    position: Option<Position>,
}

impl Follower {
    /// Watches the state until the task is cancelled.
    pub(crate) async fn run(&self) {
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
            self.metrics.connected.set(0);
            tracing::warn!(
                server = self.client.url(),
                cause,
                "no watch of the state; the last state stays in use"
            );
            self.client.use_next();
            tokio::time::sleep(backoff.next_random_delay()).await;
        }
    }

    fn publish(&self, zone: Zone) {
        self.metrics.revision.set(i64::try_from(zone.snapshot().revision().0).unwrap_or(i64::MAX));
        self.metrics.set_ready();
        // The announced addresses come from another stream.
        self.zones.send_modify(|current| {
            let announced = current.as_ref().and_then(|current| current.announced().cloned());
            *current = Some(Arc::new(numbered(&zone.with_announced(announced), current.as_deref())));
        });
    }
}

impl Reader<'_> {
    async fn read(&mut self) -> Result<(), Error> {
        let request = Request::get("/v1/watch")
            .query("kinds", Some(KINDS.map(Kind::as_str).join(",")))
            .query("resume", self.position.map(|position| position.to_string()));
        let mut lines = self.follower.client.stream(&request).await?;
        while let Some(event) = lines.next().await? {
            self.follower.metrics.connected.set(1);
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
            Some("DELETED") => self.changes.extend(key_of(&object).map(ZoneChange::Removed)),
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
                    None => self.changes.push(ZoneChange::Put(object)),
                }
            }
            // A newer server may use unknown fields. The last state of the object stays in use.
            Err(violations) => tracing::warn!(?violations, "cannot decode an object of the control server"),
        }
    }

    /// Publishes the zone with all changes up to a position.
    fn complete(&mut self, position: Position) {
        self.position = Some(position);
        let revision: Revision = position.revision;
        if let Some(listing) = self.listing.take() {
            let snapshot = Snapshot::from_objects(revision, listing);
            return self.follower.publish(Zone::new(self.follower.settings.clone(), snapshot));
        }
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            // A change of other objects. The zone, its serial number and the file on disk stay as they are.
            return;
        }
        let zone = self.follower.zones.borrow().clone();
        if let Some(zone) = zone {
            self.follower.publish(zone.update(revision, changes));
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
