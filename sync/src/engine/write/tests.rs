//! Tests of removals with a server that only answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, http::Uri};
use client::{Connection, TokenSource};
use serde_json::json;
use tokio::{net::TcpListener, sync::Barrier};

use super::*;
use crate::control::connect;

/// Log of a server: the number of open requests after each one arrived, and the paths in the order of arrivals and of responses.
#[derive(Debug, Default)]
struct Log {
    open: usize,
    most_open: usize,
    events: Vec<(bool, String)>,
}

/// Starts a server that answers requests in groups: each response waits until as many requests are open as the barrier needs.
async fn control(group: usize) -> (Control, Arc<Mutex<Log>>) {
    let log = Arc::<Mutex<Log>>::default();
    let (shared, barrier) = (Arc::clone(&log), Arc::new(Barrier::new(group)));
    let answer = move |uri: Uri| async move {
        let path = uri.path().to_owned();
        {
            let mut log = shared.lock().unwrap();
            log.open += 1;
            log.most_open = log.most_open.max(log.open);
            log.events.push((false, path.clone()));
        }
        barrier.wait().await;
        let mut log = shared.lock().unwrap();
        log.open -= 1;
        log.events.push((true, path));
        Json(json!({ "metadata": { "resourceVersion": "9" } }))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let routes = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let connection =
        Connection { urls: vec![url], ca_file: None, pin: None, identity: None, token: TokenSource::None };
    (connect(connection, "test".to_owned()).unwrap(), log)
}

async fn remove(control: &Control, keys: &[String]) -> Outcome {
    let (source, confirmed) = (Label::parse("shop").unwrap(), BTreeSet::new());
    let writer = Writer { control, source: &source, confirmed: &confirmed, is_dry_run: false };
    let removals = keys.iter().map(|key| (ObjectKey::parse_store_key(key).unwrap(), "\"1.1\"".to_owned()));
    let removed = tokio::time::timeout(Duration::from_secs(60), writer.remove(removals.collect())).await;
    removed.expect("the server never has enough requests at once")
}

/// The server answers only when as many requests as possible are open.
#[tokio::test]
async fn removals_of_one_kind_are_concurrent_and_bounded() {
    let (control, log) = control(REMOVALS_MAX).await;
    let keys: Vec<_> = (0..REMOVALS_MAX * 3).map(|number| format!("workloads/default/w{number}")).collect();
    let outcome = remove(&control, &keys).await;
    assert_eq!((outcome.fates.len(), outcome.failure), (keys.len(), None));
    assert!(outcome.fates.iter().all(|(_, fate)| matches!(fate, Fate::Removed(Revision(9)))));
    assert_eq!(log.lock().unwrap().most_open, REMOVALS_MAX);
}

/// Objects that others refer to are removed after all of these.
#[tokio::test]
async fn removals_of_a_kind_wait_for_those_of_the_kind_before() {
    let (control, log) = control(4).await;
    let of_kind =
        |plural: &'static str| (0..4).map(move |number| format!("{plural}/default/{plural}-{number}"));
    let keys: Vec<_> = of_kind("services").chain(of_kind("workloads")).collect();
    let outcome = remove(&control, &keys).await;
    assert_eq!(outcome.fates.len(), 8);
    let log = log.lock().unwrap();
    let last = log.events.iter().rposition(|(is_end, path)| *is_end && path.contains("services"));
    let first = log.events.iter().position(|(is_end, path)| !is_end && path.contains("workloads"));
    assert!(last.unwrap() < first.unwrap(), "{:?}", log.events);
}
