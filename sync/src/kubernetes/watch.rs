//! Follows one kind of objects at the API server: a list in pages, then changes, and the list anew when changes were lost.
//! What is passed on is whole: a list counts when it was read to its end, and until then what was known goes on counting.

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
    words,
};

/// Objects of one page of a list: the figure of other clients of the API server.
const PAGE: u32 = 500;
/// How often a kind that the cluster does not have is asked for again: MetalLB's resources may be installed later.
const ABSENT_RETRY: Duration = Duration::from_secs(10);

/// Follows until nobody listens.
pub(super) async fn follow(client: Client, resource: Resource, changes: mpsc::Sender<(Resource, Change)>) {
    let mut is_known = false;
    loop {
        for place in resource.places() {
            follow_at(&client, resource, &place, &changes, &mut is_known).await;
            if changes.is_closed() {
                return;
            }
        }
        // What was read before goes on counting: a kind that is gone is no reason to take all of it away.
        if !is_known && changes.send((resource, Change::Listed(Vec::new()))).await.is_err() {
            return;
        }
        tokio::time::sleep(ABSENT_RETRY).await;
    }
}

/// Follows until nobody listens, or until the API server says that there is no such place.
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
            Err(error) if resource.is_metallb() && is_absent(&error) => return,
            Err(error) => {
                tracing::warn!(kind = place.kind, "the API server: {}; trying again", cause(&error));
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

/// An object as it would stand in a file. Entries of lists come without their kind.
fn value(place: &ApiResource, object: &DynamicObject) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = json!(place.api_version);
    value["kind"] = json!(place.kind);
    Some(value)
}

/// Whether the API server has no such place, not yet or no longer.
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
