//! Minimal Kubernetes API server: paged listings, watches with bookmarks, 410 for expired versions, 409 for
//! conflicts, the `status` subresource, optional kinds, and failures such as error responses, incomplete
//! listings and a lost store. Errors and messages follow the documentation of the real API server. Admission
//! and field validation are not implemented.

mod routes;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use self::store::{Id, Place, Store};

/// Built-in kinds that every cluster has, with API prefix and plural.
const CORE: [(&str, &str); 8] = [
    ("api/v1", "secrets"),
    ("api/v1", "services"),
    ("api/v1", "nodes"),
    ("api/v1", "namespaces"),
    ("api/v1", "pods"),
    ("apis/networking.k8s.io/v1", "networkpolicies"),
    ("apis/discovery.k8s.io/v1", "endpointslices"),
    ("apis/coordination.k8s.io/v1", "leases"),
];
/// Kinds of MetalLB that can be installed and uninstalled, with API prefix and plural.
const METALLB: [(&str, &str); 6] = [
    ("apis/metallb.io/v1beta1", "ipaddresspools"),
    ("apis/metallb.io/v1beta1", "l2advertisements"),
    ("apis/metallb.io/v1beta1", "bgpadvertisements"),
    ("apis/metallb.io/v1beta2", "bgppeers"),
    ("apis/metallb.io/v1beta1", "bfdprofiles"),
    ("apis/metallb.io/v1beta1", "communities"),
];

/// Kinds of HTTP routing, with API prefix and plural.
pub(crate) const HTTP: [(&str, &str); 8] = [
    ("apis/networking.k8s.io/v1", "ingressclasses"),
    ("apis/networking.k8s.io/v1", "ingresses"),
    ("apis/gateway.networking.k8s.io/v1", "gatewayclasses"),
    ("apis/gateway.networking.k8s.io/v1", "gateways"),
    ("apis/gateway.networking.k8s.io/v1", "httproutes"),
    ("apis/gateway.networking.k8s.io/v1", "grpcroutes"),
    ("apis/gateway.networking.k8s.io/v1alpha3", "tlsroutes"),
    ("apis/gateway.networking.k8s.io/v1", "referencegrants"),
];

/// Failure mode of the test API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Normal operation without failures.
    Well,
    /// Responds with 503 to everything.
    Unavailable,
    /// Responds with 403 to everything, like a server that has not loaded its roles yet.
    Starting,
    /// Ends every listing before its second page.
    Torn,
}

struct Shared {
    store: Mutex<Store>,
    /// Counter incremented on every change, which wakes open watches.
    news: watch::Sender<u64>,
    /// Counter whose increment cuts all open streams.
    cuts: watch::Sender<u64>,
    mood: Mutex<Mood>,
    /// Received requests in the form `verb group resource`, for comparison with RBAC rules.
    asked: Mutex<BTreeSet<String>>,
    /// Number of list pages delivered, by plural name of the kind.
    pages: Mutex<BTreeMap<String, u64>>,
    /// Number of requests received.
    heard: AtomicU64,
    /// Number of times the server was stopped. Requests on connections of an earlier run get status 502.
    lives: AtomicU64,
}

/// Test cluster: an API server that the test controls.
pub(crate) struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts an API server on a free loopback port, with or without MetalLB's kinds.
    pub(crate) async fn start(has_metallb: bool) -> Self {
        let mut store = Store::default();
        let extra = [("apis/events.k8s.io/v1", "events")];
        let kinds = CORE.iter().chain(&extra).chain(METALLB.iter().filter(|_| has_metallb));
        for (prefix, plural) in kinds {
            store.kinds.insert(place(prefix, plural), Default::default());
        }
        let shared = Arc::new(Shared {
            store: Mutex::new(store),
            news: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            mood: Mutex::new(Mood::Well),
            asked: Mutex::default(),
            pages: Mutex::default(),
            heard: AtomicU64::new(0),
            lives: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Self { shared, address, task: None };
        server.serve(listener);
        server
    }

    fn serve(&mut self, listener: TcpListener) {
        let routes = routes::routes(Arc::clone(&self.shared));
        self.task = Some(tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() }));
    }

    /// Stops the server; new connections are refused until it is started again.
    pub(crate) async fn stop(&mut self) {
        self.shared.lives.fetch_add(1, Ordering::Relaxed);
        self.cut();
        if let Some(task) = self.task.take() {
            task.abort();
            let _aborted = task.await;
        }
    }

    /// Starts the server again at its previous address with its previous objects.
    pub(crate) async fn start_again(&mut self) {
        for _attempt in 0..100 {
            if let Ok(listener) = TcpListener::bind(self.address).await {
                return self.serve(listener);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} cannot be had again", self.address);
    }

    /// Returns a kubeconfig for this server.
    pub(crate) fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "tidegate" } }],
        });
        config.to_string()
    }

    /// Cuts the connections of all open watches and listings.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Discards the log of changes, so that watches that resume get 410 (expired), and cuts the open watches.
    pub(crate) fn forget(&self) {
        let mut store = self.store();
        store.forget();
        drop(store);
        self.cut();
    }

    /// Sets the failure mode of the server.
    pub(crate) fn set_mood(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Returns all received requests as `verb group resource`.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Returns the number of requests that the server has received.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.heard.load(Ordering::Relaxed)
    }

    /// Installs a kind, as applying a CustomResourceDefinition would.
    pub(crate) fn install(&self, prefix: &str, plural: &str) {
        self.store().kinds.insert(place(prefix, plural), Default::default());
    }

    /// Uninstalls a kind, as deleting its CustomResourceDefinition would.
    pub(crate) fn uninstall(&self, prefix: &str, plural: &str) {
        self.store().kinds.remove(&place(prefix, plural));
        self.cut();
    }

    /// Returns the number of pages of listings of a kind that the server has sent.
    pub(crate) fn pages(&self, plural: &str) -> u64 {
        self.shared.pages.lock().unwrap().get(plural).copied().unwrap_or_default()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock().unwrap()
    }

    fn told(&self) {
        self.shared.news.send_modify(|count| *count += 1);
    }

    /// Creates or replaces an object, keeping its status.
    pub(crate) fn put(&self, object: &Value) {
        let place = place_of(object);
        let id = store::id_of(object);
        let mut store = self.store();
        match store.get(&place, &id).ok().cloned() {
            None => drop(store.create(&place, object.clone()).unwrap()),
            Some(old) => {
                let mut new = object.clone();
                new["metadata"]["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
                if new.get("status").is_none() && old.get("status").is_some() {
                    new["status"] = old["status"].clone();
                }
                drop(store.replace(&place, &id, new).unwrap());
            }
        }
        drop(store);
        self.told();
    }

    /// Deletes an object and notifies the watches.
    pub(crate) fn delete(&self, object: &Value) {
        let removed = self.store().delete(&place_of(object), &store::id_of(object));
        removed.unwrap();
        self.told();
    }

    /// Drops all objects of a kind without watch events, like a server that has lost its store.
    pub(crate) fn lose(&self, prefix: &str, plural: &str) {
        self.store().kinds.insert(place(prefix, plural), Default::default());
        self.forget();
    }

    /// Returns a stored object by kind, namespace and name.
    pub(crate) fn get(&self, prefix: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let id: Id = (namespace.to_owned(), name.to_owned());
        self.store().get(&place(prefix, plural), &id).ok().cloned()
    }

    /// Returns all objects of a kind.
    pub(crate) fn all(&self, prefix: &str, plural: &str) -> Vec<Value> {
        self.store()
            .kind(&place(prefix, plural))
            .map(|kind| kind.values().cloned().collect())
            .unwrap_or_default()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

fn place(prefix: &str, plural: &str) -> Place {
    (prefix.to_owned(), plural.to_owned())
}

/// Returns the API path of an object's kind.
fn place_of(object: &Value) -> Place {
    let version = object["apiVersion"].as_str().unwrap();
    let prefix = if version.contains('/') { format!("apis/{version}") } else { format!("api/{version}") };
    let kind = object["kind"].as_str().unwrap().to_ascii_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) if kind != "gateway" => format!("{stem}ies"),
        Some(_) | None if kind.ends_with('s') => format!("{kind}es"),
        Some(_) | None => format!("{kind}s"),
    };
    (prefix, plural)
}
