//! Tests of the Kubernetes API below `/k8s/` with plain HTTP requests. Tests with the real `kubectl` are in
//! `kubectl.rs`.

mod attacks;
mod authority;
mod pages;
mod seed;
mod watching;

use api::base::config::Settings;
use axum::{body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt;
use model::cluster::config::ClusterConfig;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

/// Value of the `Accept` header in requests of `kubectl get`.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// Returns settings with the documented Service range and an enabled Kubernetes API.
fn settings() -> Settings {
    let ranges = vec!["10.0.0.0/24".parse().unwrap(), "fd00:96::/112".parse().unwrap()];
    let cluster = ClusterConfig::new(ranges, 30000..=32767, Vec::new()).unwrap();
    Settings { cluster, has_kubernetes_view: true, ..support::settings(30000..=32767) }
}

async fn start() -> Server {
    support::start_with(settings()).await
}

async fn ask(server: &Server, path: &str, accept: &str) -> Response {
    let request = Request::builder().uri(format!("/k8s{path}")).header("accept", accept);
    server.send(request.body(Body::empty()).unwrap()).await
}

async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{bytes:?} is no JSON")))
}

/// Reads a path and returns the body. Panics unless the status is 200.
async fn get(server: &Server, path: &str) -> Value {
    let (status, body) = read(ask(server, path, "application/json").await).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Creates a Tidegate object; panics unless the server accepts it.
async fn create(server: &Server, path: &str, name: &str, spec: Value) {
    let body = json!({ "metadata": { "name": name, "labels": { "app": name } }, "spec": spec });
    let (status, answer) = server.call("POST", path, Some(body)).await;
    assert_eq!(status, 201, "{path} {name}: {answer}");
}

/// Creates a Workload with the label that the Service in [`seed`] selects.
async fn workload(server: &Server, namespace: &str, name: &str, spec: Value) {
    let path = format!("/v1/namespaces/{namespace}/workloads");
    let body = json!({ "metadata": { "name": name, "labels": { "app": "nginx" } }, "spec": spec });
    let (status, answer) = server.call("POST", &path, Some(body)).await;
    assert_eq!(status, 201, "{name}: {answer}");
}

/// Creates the objects of the reference documentation: a Node, three Workloads, their Service, and the Service
/// `kubernetes`.
async fn seed(server: &Server) {
    let node = json!({ "addresses": ["172.17.8.101"], "workloadCIDRs": ["10.1.13.0/24"] });
    create(server, "/v1/nodes", "core-v2-01", node).await;
    let named = ["nginx-controller-6bovu", "nginx-controller-iowux", "nginx-controller-o7m6u"];
    for (name, address) in named.into_iter().zip(["10.1.13.3", "10.1.13.2", "10.1.13.4"]) {
        let ports = json!({ "http": { "port": 80 } });
        let spec = json!({ "addresses": [address], "node": "core-v2-01", "ports": ports });
        workload(server, "default", name, spec).await;
    }
    let path = "/v1/namespaces/default/services";
    let kubernetes = json!({ "clusterIP": "10.0.0.1", "ports": [{ "port": 443, "targetPort": 6443 }] });
    create(server, path, "kubernetes", kubernetes).await;
    let set = json!({ "service": "kubernetes", "endpoints": [{ "address": "172.17.8.101" }] });
    create(server, "/v1/namespaces/default/endpointsets", "kubernetes", set).await;
    let nginx = json!({
        "type": "NodePort", "clusterIP": "10.0.0.252", "selector": { "app": "nginx" },
        "ports": [{ "port": 8000, "targetPort": 80, "nodePort": 30802 }],
    });
    create(server, path, "nginx-service", nginx).await;
}

/// Reader of the events of a watch.
struct Events(Lines);

impl Events {
    async fn of(server: &Server, path: &str) -> Self {
        Self::with(server, path, "application/json").await
    }

    async fn with(server: &Server, path: &str, accept: &str) -> Self {
        let response = ask(server, path, accept).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        Self(Lines::new(response.into_body()))
    }

    async fn next(&mut self) -> Value {
        let line = self.0.next().await.expect("the watch goes on");
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the type of the next watch event and the name of its object.
    async fn named(&mut self) -> (String, String) {
        let event = self.next().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    async fn expect(&mut self, word: &str, name: &str) {
        assert_eq!(self.named().await, (word.to_owned(), name.to_owned()));
    }
}

/// Returns the resource version of a list, from which a watch can start.
fn version(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}
