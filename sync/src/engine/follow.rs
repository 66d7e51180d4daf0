//! Watches the source's objects on the server: a full listing, then every change, from any of the control
//! servers. Resumes at the last position, and lists again if that is not possible.

use std::time::Duration;

use client::Backoff;
use imbl::OrdMap;
use model::{
    kinds::resource::{Kind, ObjectKey},
    primitives::{name::Label, quantity::Revision},
};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    keep::SOURCE_LABEL,
    mirror::{Own, own},
};
use crate::control::{Control, Error, RETRY_MIN, Request, is_final};

/// Maximum delay between watch attempts.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Event of the watch on the source's objects.
#[derive(Debug)]
pub(super) enum WatchEvent {
    /// Complete listing, which replaces all known objects. Contains the objects by key.
    Listed(OrdMap<ObjectKey, Own>),
    /// An object was created or changed. Contains its key and its new state.
    Put(ObjectKey, Box<Own>),
    /// An object was deleted, or no longer belongs to the source. Contains its key and the revision of the
    /// change.
    Gone(ObjectKey, Revision),
    /// Heartbeat of the server without a change.
    Alive,
    /// The watch failed; contains the cause. Objects received earlier stay valid.
    Lost(String),
}

/// Watches the source's objects on the server and sends each event to `heard`, until the receiver is closed.
/// A failed watch resumes at the last position.
pub(super) async fn follow(control: &Control, source: &Label, heard: mpsc::Sender<WatchEvent>) {
    let mut position = None;
    let mut backoff = Backoff::new(RETRY_MIN, PAUSE_MAX);
    while !heard.is_closed() {
        let before = position.clone();
        let cause = match hear(control, source, &mut position, &heard).await {
            Ok(()) => "the server closed the watch".to_owned(),
            Err(Error::Rejected(problem)) if is_final(&problem) => {
                // If the position is rejected, a full listing always works.
                position = None;
                problem.to_string()
            }
            Err(failure) => failure.to_string(),
        };
        if position.is_some() && position != before {
            backoff.reset();
        }
        if heard.send(WatchEvent::Lost(cause)).await.is_err() {
            return;
        }
        control.use_next();
        tokio::time::sleep(backoff.next_random_delay()).await;
    }
}

async fn hear(
    control: &Control,
    source: &Label,
    position: &mut Option<String>,
    heard: &mpsc::Sender<WatchEvent>,
) -> Result<(), Error> {
    let kinds: Vec<_> =
        Kind::ALL.into_iter().filter(|kind| !kind.is_kept_by_server()).map(Kind::as_str).collect();
    let mut request = Request::get("/v1/watch")
        .query("kinds", Some(kinds.join(",")))
        .query("labelSelector", Some(format!("{SOURCE_LABEL}={source}")))
        .query("resume", position.clone());
    if position.is_none() {
        // Another replica of this adapter may just have written through another control server.
        request = request.latest();
    }
    let mut listing = position.is_none().then(OrdMap::new);
    let mut lines = control.stream(&request).await?;
    while let Some(event) = lines.next().await? {
        let next = match (read(source, event), &mut listing) {
            (Event::Put(key, own), Some(listing)) => {
                listing.insert(key, *own);
                None
            }
            (Event::Put(key, own), None) => Some(WatchEvent::Put(key, own)),
            // A listing contains no deletions.
            (Event::Gone(key, at), _) => Some(WatchEvent::Gone(key, at)),
            (Event::Bookmark(at), _) => {
                *position = Some(at);
                Some(listing.take().map_or(WatchEvent::Alive, WatchEvent::Listed))
            }
            (Event::At(at, inner), None) => {
                *position = Some(at);
                Some(inner)
            }
            (Event::At(_, inner), Some(_)) => Some(inner),
            (Event::Ended, _) => {
                *position = None;
                return Ok(());
            }
            (Event::Other, _) => None,
        };
        if let Some(next) = next
            && heard.send(next).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

enum Event {
    Put(ObjectKey, Box<Own>),
    Gone(ObjectKey, Revision),
    /// Last event of a revision, or a heartbeat. Contains the position at which the watch can resume, and the
    /// event.
    At(String, WatchEvent),
    Bookmark(String),
    Ended,
    Other,
}

fn read(source: &Label, mut event: Value) -> Event {
    let position = event.get("position").and_then(Value::as_str).map(str::to_owned);
    let revision = Revision(event.get("revision").and_then(Value::as_u64).unwrap_or(0));
    let object = event.get_mut("object").map(Value::take);
    let seen = match event.get("type").and_then(Value::as_str) {
        Some("ADDED" | "MODIFIED") => object.and_then(|object| match own(source, object.clone()) {
            Some((key, own)) => Some(WatchEvent::Put(key, Box::new(own))),
            None => key_of(&object).map(|key| WatchEvent::Gone(key, revision)),
        }),
        Some("DELETED") => {
            object.and_then(|object| key_of(&object)).map(|key| WatchEvent::Gone(key, revision))
        }
        Some("BOOKMARK") => return position.map_or(Event::Other, Event::Bookmark),
        Some("HEARTBEAT") => Some(WatchEvent::Alive),
        // The position expired or permission was lost; the next attempt returns the reason.
        Some("ERROR") => return Event::Ended,
        Some(_) | None => None,
    };
    match (seen, position) {
        (Some(heard), Some(position)) => Event::At(position, heard),
        (Some(WatchEvent::Put(key, own)), None) => Event::Put(key, own),
        (Some(WatchEvent::Gone(key, at)), None) => Event::Gone(key, at),
        (Some(WatchEvent::Listed(_) | WatchEvent::Alive | WatchEvent::Lost(_)) | None, _) => Event::Other,
    }
}

fn key_of(object: &Value) -> Option<ObjectKey> {
    let kind = Kind::parse(object.get("kind")?.as_str()?)?;
    let metadata = object.get("metadata")?;
    let namespace = match metadata.get("namespace").and_then(Value::as_str) {
        Some(namespace) => Some(Label::parse(namespace).ok()?),
        None => None,
    };
    let name = model::primitives::name::Name::parse(metadata.get("name")?.as_str()?).ok()?;
    Some(ObjectKey { kind, namespace, name })
}
