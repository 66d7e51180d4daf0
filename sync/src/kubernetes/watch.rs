//! Watch of one kind of objects: a listing in pages, then changes, and a new listing if changes were lost.
//! Only complete listings are used; until a listing is complete, the previous objects stay in use.

use std::time::Duration;

use futures::StreamExt as _;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    resource::Resource,
    state::{Change, Id},
    translate::reduced_pod,
    words,
};

/// Page size; same as for other API server clients.
const PAGE: u32 = 500;
/// Retry interval of a kind that the cluster does not have and that may be installed later.
const ABSENT_RETRY: Duration = Duration::from_secs(10);

/// Watches the objects of one kind and sends their changes, until the receiver is closed.
pub(super) async fn follow(client: Client, resource: Resource, changes: mpsc::Sender<(Resource, Change)>) {
    let (mut is_known, mut is_absence_logged) = (false, false);
    loop {
        for place in resource.places() {
            follow_at(&client, resource, &place, &changes, &mut is_known).await;
            if changes.is_closed() {
                return;
            }
        }
        if !is_absence_logged {
            tracing::info!(kind = ?resource, "the cluster does not have the kind; objects of it are read once it is installed");
            is_absence_logged = true;
        }
        // Objects read before stay: an uninstalled kind is no reason to remove them.
        if !is_known && changes.send((resource, Change::Listed(Vec::new()))).await.is_err() {
            return;
        }
        tokio::time::sleep(ABSENT_RETRY).await;
    }
}

/// Watches one API version of a kind until the receiver is closed, or the API server reports that the kind
/// does not exist in this version.
async fn follow_at(
    client: &Client,
    resource: Resource,
    place: &ApiResource,
    changes: &mpsc::Sender<(Resource, Change)>,
    is_known: &mut bool,
) {
    let api = Api::<DynamicObject>::all_with(client.clone(), place);
    let config = watcher::Config::default().page_size(PAGE);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut list = Vec::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Init) => {
                list.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                list.extend(value(place, &object));
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                *is_known = true;
                Some(Change::Listed(std::mem::take(&mut list)))
            }
            Ok(watcher::Event::Apply(object)) => value(place, &object).map(Change::Put),
            Ok(watcher::Event::Delete(object)) => {
                value(place, &object).map(|object| Change::Gone(Id::of(&object)))
            }
            Err(error) if resource.is_optional() && is_absent(&error) => return,
            Err(watcher::Error::InitialListFailed(error)) => Some(Change::Failed(words(&error))),
            Err(error) => {
                tracing::warn!(
                    kind = place.kind,
                    "watch of the API server failed: {}; retrying",
                    cause(&error)
                );
                continue;
            }
        };
        if let Some(change) = change
            && changes.send((resource, change)).await.is_err()
        {
            return;
        }
    }
}

/// Returns a watched object in the form of a manifest: adds `kind` and `apiVersion`, which the items of a
/// list lack. Of Pods, only the fields that are read remain, because they would take most of the memory.
fn value(place: &ApiResource, object: &DynamicObject) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = json!(place.api_version);
    value["kind"] = json!(place.kind);
    Some(if place.kind == "Pod" { reduced_pod(&value) } else { value })
}

/// Returns true if the error means that the API server does not have the kind.
fn is_absent(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchError(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}

fn cause(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => words(error),
        watcher::Error::WatchError(status) => format!("{} ({})", status.message, status.code),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}
