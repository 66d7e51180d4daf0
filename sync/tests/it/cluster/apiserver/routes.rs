//! Routes of the test API server.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{Method, StatusCode, Uri, header},
    response::Response,
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    Mood, Shared,
    store::{self, Id, Place, Refusal, Told},
};

/// Maximum page size, whatever the request, so that tests with few objects have several pages.
const PAGE_MAX: usize = 2;
/// Interval at which an idle watch receives a bookmark.
const BOOKMARK: Duration = Duration::from_millis(300);

/// Returns the routes for one run of the server; requests on connections of an earlier run get status 502.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
    let life = shared.lives.load(Ordering::Relaxed);
    Router::new().fallback(answer).with_state((shared, life))
}

/// Kind, namespace and name that a request path refers to.
struct Target {
    place: Place,
    namespace: Option<String>,
    name: Option<String>,
    part: Option<String>,
}

fn target(path: &str) -> Option<Target> {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let prefix_length = if parts.first() == Some(&"api") { 2 } else { 3 };
    if parts.len() <= prefix_length {
        return None;
    }
    let rest = parts.split_off(prefix_length);
    let prefix = parts.join("/");
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let own = |at: usize| rest.get(at).map(|part| (*part).to_owned());
    Some(Target { place: (prefix, own(0)?), namespace, name: own(1), part: own(2) })
}

async fn answer(
    State((shared, life)): State<(Arc<Shared>, u64)>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    if shared.lives.load(Ordering::Relaxed) != life {
        let closed = Response::builder().status(StatusCode::BAD_GATEWAY).header(header::CONNECTION, "close");
        return closed.body(Body::empty()).unwrap();
    }
    shared.heard.fetch_add(1, Ordering::Relaxed);
    let mood = *shared.mood.lock().unwrap();
    match mood {
        Mood::Unavailable => return refused(&Refusal::new(503, "ServiceUnavailable", "not now")),
        Mood::Starting => {
            return refused(&Refusal::new(403, "Forbidden", "services is forbidden: not allowed yet"));
        }
        Mood::Well | Mood::Torn => {}
    }
    let Some(target) = target(uri.path()) else {
        return refused(&Refusal::new(404, "NotFound", "no such path"));
    };
    let query: BTreeMap<String, String> = client::Url::parse(&format!("http://x{uri}"))
        .unwrap()
        .query_pairs()
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect();
    let is_watch = query.get("watch").is_some_and(|word| matches!(word.as_str(), "true" | "1"));
    note(&shared, &method, &target, is_watch);
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answered = match (method.as_str(), &target.name) {
        ("GET", None) if is_watch => return follow(shared, &target, &query),
        ("GET", None) => list(&shared, &target, &query, mood),
        (_, _) => one(&shared, method.as_str(), &target, body),
    };
    match answered {
        Ok(value) => json_answer(StatusCode::OK, &value),
        Err(refusal) => refused(&refusal),
    }
}

/// Records a request in the form `verb group resource`, for comparison with RBAC rules.
fn note(shared: &Shared, method: &Method, target: &Target, is_watch: bool) {
    let verb = match (method.as_str(), &target.name) {
        ("GET", _) if is_watch => "watch",
        ("GET", None) => "list",
        ("GET", Some(_)) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        (other, _) => panic!("nobody asks with {other}"),
    };
    let group =
        target.place.0.strip_prefix("apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let part = target.part.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
    shared.asked.lock().unwrap().insert(format!("{verb} {group:?} {}{part}", target.place.1));
}

fn one(shared: &Shared, method: &str, target: &Target, body: Value) -> Result<Value, Refusal> {
    let namespace = target.namespace.clone().unwrap_or_default();
    let id: Id = (namespace.clone(), target.name.clone().unwrap_or_default());
    let mut store = shared.store.lock().unwrap();
    let done = match method {
        "GET" => return store.get(&target.place, &id).cloned(),
        "POST" => {
            let mut body = body;
            if !namespace.is_empty() {
                body["metadata"]["namespace"] = json!(namespace);
            }
            store.create(&target.place, body)
        }
        "PUT" => store.replace(&target.place, &id, body),
        "PATCH" => store.patch(&target.place, &id, &body, target.part.as_deref() == Some("status")),
        "DELETE" => store.delete(&target.place, &id),
        _ => Err(Refusal::new(405, "MethodNotAllowed", "not with this method")),
    };
    drop(store);
    shared.news.send_modify(|count| *count += 1);
    done
}

fn list(
    shared: &Shared,
    target: &Target,
    query: &BTreeMap<String, String>,
    mood: Mood,
) -> Result<Value, Refusal> {
    let store = shared.store.lock().unwrap();
    let limit = query.get("limit").and_then(|text| text.parse::<usize>().ok());
    let page = limit.map_or(usize::MAX, |limit| limit.min(PAGE_MAX));
    // A token contains the version of the listing and the last object; expired versions end it.
    let token = query.get("continue").map(|text| text.split_once('|').unwrap_or_default());
    let (version, after) = match token {
        Some((version, after)) => {
            let version = version.parse::<u64>().unwrap_or_default();
            if mood == Mood::Torn || version < store.forgotten {
                return Err(Refusal::new(410, "Expired", "The provided continue parameter is too old"));
            }
            (version, Some(after.to_owned()))
        }
        None => (store.version(), None),
    };
    let all = store
        .kind(&target.place)?
        .iter()
        .filter(|((namespace, _), _)| target.namespace.as_ref().is_none_or(|wanted| wanted == namespace));
    let key = |id: &Id| format!("{}/{}", id.0, id.1);
    let rest: Vec<_> = all.filter(|(id, _)| after.as_ref().is_none_or(|after| key(id) > *after)).collect();
    let items: Vec<Value> = rest.iter().take(page).map(|(_, object)| untyped(object)).collect();
    let next = rest.get(page.wrapping_sub(1)).filter(|_| rest.len() > page);
    let next = next.map(|(id, _)| format!("{version}|{}", key(id))).unwrap_or_default();
    *shared.pages.lock().unwrap().entry(target.place.1.clone()).or_default() += 1;
    Ok(json!({
        "kind": "List", "apiVersion": "v1", "items": items,
        "metadata": { "resourceVersion": version.to_string(), "continue": next },
    }))
}

/// Returns an object without `kind` and `apiVersion`, as in the entries of a Kubernetes list.
fn untyped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

/// Returns the stream of changes after a resource version.
fn follow(shared: Arc<Shared>, target: &Target, query: &BTreeMap<String, String>) -> Response {
    if let Err(refusal) = shared.store.lock().unwrap().kind(&target.place) {
        return refused(&refusal);
    }
    let from = query.get("resourceVersion").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let (sender, receiver) = mpsc::channel::<Result<String, std::io::Error>>(64);
    // A stream requested before a cut is cut, even if it starts afterwards.
    let cut = *shared.cuts.borrow();
    tokio::spawn(watch(shared, target.place.clone(), from, cut, sender));
    let stream =
        futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let body = Body::from_stream(stream.map(|line| line.map(Bytes::from)));
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

async fn watch(
    shared: Arc<Shared>,
    place: Place,
    mut at: u64,
    cut: u64,
    lines: mpsc::Sender<Result<String, std::io::Error>>,
) {
    let (mut news, mut cuts) = (shared.news.subscribe(), shared.cuts.subscribe());
    news.mark_unchanged();
    loop {
        let (gone, told, version) = {
            let store = shared.store.lock().unwrap();
            let told: Vec<Told> =
                store.log.iter().filter(|told| told.version > at && told.place == place).cloned().collect();
            (at < store.forgotten, told, store.version())
        };
        if gone {
            let refusal = Refusal::new(410, "Expired", format!("too old resource version: {at}"));
            let _sent = lines.send(Ok(line("ERROR", &refusal.status()))).await;
            return;
        }
        for Told { word, object, .. } in told {
            if lines.send(Ok(line(word, &object))).await.is_err() {
                return;
            }
        }
        at = version;
        tokio::select! {
            _ = news.changed() => {}
            () = async { drop(cuts.wait_for(|count| *count != cut).await) } => {
                // In the middle of a line, as connections break.
                let _sent = lines.send(Ok("{\"type\":\"MODI".to_owned())).await;
                let _sent = lines.send(Err(std::io::Error::other("cut"))).await;
                return;
            }
            () = tokio::time::sleep(BOOKMARK) => {
                let bookmark = json!({ "kind": "Bookmark", "apiVersion": "v1", "metadata": { "resourceVersion": at.to_string() } });
                if lines.send(Ok(line("BOOKMARK", &bookmark))).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn line(word: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": word, "object": object }))
}

fn refused(refusal: &Refusal) -> Response {
    // The path of a kind that is not installed does not exist, and the error is not a Status object.
    if refusal.code == 404 && refusal.message == store::NO_SUCH_KIND {
        let body = Body::from("404 page not found\n");
        let plain = Response::builder()
            .status(StatusCode::NOT_FOUND)
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        return plain.body(body).unwrap();
    }
    json_answer(StatusCode::from_u16(refusal.code).unwrap(), &refusal.status())
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    let body =
        Body::from_stream(futures::stream::once(std::future::ready(Ok::<_, Infallible>(value.to_string()))));
    Response::builder().status(status).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
