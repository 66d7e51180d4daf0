//! Tests of HTTP routing of a cluster (F141, F142, F144): the translation of Gateways, HTTPRoutes and Ingresses as a golden file,
//! and the statuses that are written back to a minimal API server. `UPDATE_GOLDEN=1 cargo test -p sync` rewrites the file.

use std::{collections::BTreeMap, time::Duration};

use model::kinds::resource::ObjectKey;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use sync::{
    kubernetes::{
        resource::Resource,
        state::{CertificateSecrets, Change, ClusterState, Id, needed},
        translate::{Mode, Settings},
    },
    wanted::ObservedObjects,
};
use translate::parse::{Language, objects};

use crate::{
    cluster::{
        self,
        apiserver::{ApiServer, HTTP},
    },
    kubernetes_translate::{check, directory, read, resource, shown},
    kubernetes_watch::{Adapter, eventually, service, slice},
};

const GATEWAY_API: &str = "apis/gateway.networking.k8s.io/v1";
/// Prefix of the version of TLSRoutes that the cluster has.
const TLS_API: &str = "apis/gateway.networking.k8s.io/v1alpha3";

fn state(cluster: Option<&str>, all: &[Value]) -> ClusterState {
    let cluster = cluster.map(|name| name.parse().unwrap());
    let settings = Settings { cluster, mode: Mode::LoadBalancer, class: None };
    let kinds = needed(false, false).into_iter().chain(Resource::HTTP);
    let mut state = ClusterState::new(settings, kinds);
    for object in all {
        state.apply(resource(object), Change::Put(object.clone()));
    }
    state
}

/// Own classes decide which objects are translated; Services and slices of backends come along, in any order of arrival.
#[test]
fn f141_http_routing_of_a_cluster_is_translated() {
    let all = read("http.yaml");
    let whole = shown(&state(None, &all));
    check(&directory().join("golden/http.yaml"), &whole);
    let backwards: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(shown(&state(None, &backwards)), whole);
    // Without its classes, a cluster has no objects of Tidegate.
    let mut state = state(None, &all);
    for object in all.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Class")) {
        state.apply(resource(object), Change::Gone(Id::of(object)));
    }
    assert_eq!(
        state.wanted().objects.keys().map(ObjectKey::to_store_key).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

/// With a cluster name, all references lead to the objects of this cluster.
#[test]
fn names_of_a_cluster_are_in_all_references() {
    let state = state(Some("east"), &read("http.yaml"));
    let keys: Vec<_> = state.wanted().objects.keys().map(ObjectKey::to_store_key).collect();
    assert!(keys.contains(&"httproutes/east--shop/www".to_owned()), "{keys:?}");
    let key = ObjectKey::parse_store_key("httproutes/east--shop/www").unwrap();
    let route = state.wanted().objects[&key].to_json();
    assert_eq!(route["spec"]["parentRefs"][0]["namespace"], "east--shop");
    assert_eq!(route["metadata"]["labels"]["tidegate.io/cluster"], "east");
}

/// A Secret becomes a Certificate with its private key, also after a renewal; one of another type, or a deleted one, does not.
#[test]
fn f144_certificates_follow_their_secrets() {
    let mut state = state(None, &read("http.yaml"));
    let names: Vec<_> = state.certificates().into_iter().flatten().cloned().collect();
    let id = |namespace: &str, name: &str| Id { namespace: namespace.to_owned(), name: name.to_owned() };
    assert_eq!(names, []);
    for kind in Resource::HTTP {
        state.apply(kind, Change::Listed(Vec::new()));
    }
    let names: Vec<_> = state.certificates().unwrap().iter().cloned().collect();
    assert_eq!(names, [id("news", "blog"), id("shop", "www")]);
    let key = ObjectKey::parse_store_key("certificates/shop/www").unwrap();
    let mut send = |secret: Option<Value>| {
        let all = BTreeMap::from([(id("shop", "www"), secret)]);
        state.apply(Resource::CertificateSecret, Change::Certificates(CertificateSecrets(all)));
        let object = state.wanted().objects.get(&key).cloned()?;
        Some(object.as_certificate()?.private_key.as_ref()?.reveal().to_owned())
    };
    let (one, two) = (identity(), identity());
    assert_eq!(send(Some(secret(&one, "kubernetes.io/tls"))), Some(one.1.clone()));
    assert_eq!(send(Some(secret(&two, "kubernetes.io/tls"))), Some(two.1.clone()));
    assert_eq!(send(Some(secret(&two, "Opaque"))), None);
    assert_eq!(send(Some(secret(&one, "kubernetes.io/tls"))), Some(one.1.clone()));
    assert_eq!(send(None), None);
}

/// Returns a certificate and its private key in PEM.
pub(crate) fn identity() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["www.example.org".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

pub(crate) fn secret(identity: &(String, String), of_type: &str) -> Value {
    let encode = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    let data = json!({ "tls.crt": encode(&identity.0), "tls.key": encode(&identity.1) });
    json!({ "apiVersion": "v1", "kind": "Secret", "type": of_type, "metadata": { "name": "www", "namespace": "shop" }, "data": data })
}

fn stored(conditions: &Value, more: &Value) -> Value {
    let mut status = json!({ "conditions": conditions });
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "status": status })
}

/// Returns the state in Tidegate of the Gateway `shop/edge` and of the HttpRoute `shop/www`.
fn observed(has_backend: bool) -> ObservedObjects {
    let key = |text: &str| ObjectKey::parse_store_key(text).unwrap();
    let condition = |of: &str, status: &str, reason: &str| json!({ "type": of, "status": status, "reason": reason, "message": "m" });
    let (resolved, programmed) = (
        condition("ResolvedRefs", "True", "CertificatesFound"),
        condition("Programmed", "True", "Programmed"),
    );
    let listeners = json!({ "http": { "conditions": [resolved, programmed] } });
    let gateway =
        stored(&json!([programmed]), &json!({ "listeners": listeners, "attachedRoutes": { "http": 1 } }));
    let found = if has_backend {
        condition("ResolvedRefs", "True", "BackendsFound")
    } else {
        condition("ResolvedRefs", "False", "BackendNotFound")
    };
    let route = stored(&json!([found]), &json!({}));
    let objects = [
        (key("gateways/shop/edge"), gateway),
        (key("httproutes/shop/calls.grpc"), route.clone()),
        (key("httproutes/shop/www"), route),
    ];
    ObservedObjects { objects: objects.into_iter().collect(), ..ObservedObjects::default() }
}

fn conditions(list: &Value) -> Vec<String> {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let one = |one: &Value| format!("{} {} {}", text(one, "type"), text(one, "status"), text(one, "reason"));
    list.as_array().into_iter().flatten().map(one).collect()
}

/// Installs the kinds and the classes of the manifests, with a Gateway, a route and an Ingress. Returns the reference of the route
/// to the Gateway, and its status by another controller.
fn install(server: &ApiServer) -> [Value; 2] {
    for (prefix, plural) in HTTP {
        server.install(prefix, plural);
    }
    let manifest = std::fs::read(directory().join("../../../packaging/kubernetes/gateways.yaml")).unwrap();
    let classes = objects(Language::Yaml, &manifest).unwrap();
    classes
        .iter()
        .filter(|one| one["kind"].as_str().unwrap().ends_with("Class"))
        .for_each(|one| server.put(one));
    let listener = json!({ "name": "http", "port": 80, "protocol": "HTTP" });
    let tls = json!({ "name": "https", "port": 443, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "www" }] } });
    let gateway = |name: &str, class: &str, listeners: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": name, "namespace": "shop", "generation": 3 },
            "spec": { "gatewayClassName": class, "listeners": listeners },
        })
    };
    let pem = identity();
    server.put(&secret(&pem, "kubernetes.io/tls"));
    server.put(&gateway("edge", "tidegate", json!([listener, tls])));
    server.put(&gateway("foreign", "other", json!([listener])));
    let (own, lost, foreign) = (
        json!({ "name": "edge" }),
        json!({ "name": "edge", "sectionName": "none" }),
        json!({ "name": "foreign" }),
    );
    let theirs = json!({ "parentRef": foreign, "controllerName": "example.org/other", "conditions": [] });
    server.put(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": { "name": "www", "namespace": "shop" },
        "spec": { "parentRefs": [foreign, own, lost], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] },
        "status": { "parents": [theirs] },
    }));
    server.put(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute", "metadata": { "name": "calls", "namespace": "shop" },
        "spec": { "parentRefs": [own], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] },
    }));
    server.put(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1alpha3", "kind": "TLSRoute", "metadata": { "name": "mail", "namespace": "shop" },
        "spec": { "parentRefs": [own], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] },
    }));
    server.put(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "blog", "namespace": "news" },
        "spec": { "ingressClassName": "tidegate", "defaultBackend": { "service": { "name": "blog", "port": { "number": 80 } } } },
    }));
    [own, theirs]
}

fn check_gateway(edge: &Value) {
    assert_eq!(conditions(&edge["conditions"]), ["Accepted True Accepted", "Programmed True Programmed"]);
    assert_eq!(edge["conditions"][0]["observedGeneration"], 3);
    assert_eq!(
        (&edge["listeners"][0]["name"], &edge["listeners"][0]["attachedRoutes"]),
        (&json!("http"), &json!(1))
    );
    assert_eq!(
        conditions(&edge["listeners"][0]["conditions"]),
        [
            "Accepted True Accepted",
            "Programmed True Programmed",
            "ResolvedRefs True ResolvedRefs",
            "Conflicted False NoConflicts"
        ]
    );
}

/// Gateways name the Service of `--publish-service`, with whose addresses `tidegate-dns` answers their host names.
fn expect_publisher(adapter: &Adapter) {
    let published_by = json!({ "namespace": "shop", "name": "web" });
    for gateway in ["gateways/news/tidegate", "gateways/shop/edge"] {
        let key = ObjectKey::parse_store_key(gateway).unwrap();
        let spec = adapter.wanted.borrow().objects[&key].to_json()["spec"].clone();
        assert_eq!(spec["publishedBy"], published_by, "{gateway}");
    }
}

/// A TLSRoute whose parent has no listener with TLS is not accepted.
async fn check_tls_route(server: &ApiServer) {
    let mail = eventually("the parent of the TLSRoute", || {
        let mail = server.get(TLS_API, "tlsroutes", "shop", "mail").unwrap();
        mail.pointer("/status/parents/0/conditions").cloned()
    })
    .await;
    assert_eq!(conditions(&mail), ["Accepted False NotAllowedByListeners", "ResolvedRefs True ResolvedRefs"]);
}

/// A cluster without the Gateway API, and then with it: objects of Tidegate's class get their statuses per parent and the
/// addresses of their Service, those of others stay, and the Role of the manifests allows exactly the requests of the test.
#[tokio::test]
async fn statuses_of_http_routing_are_written_per_parent() {
    let server = ApiServer::start(false).await;
    server.put(&service("web"));
    server.put(&slice("web", "10.1.1.2"));
    let mut adapter = Adapter::start(
        &server,
        &["--no-metallb", "--no-nodes", "--gateways", "--publish-service", "shop/web"],
    );
    adapter.wants(&["services/shop/web", "endpointsets/shop/web-1"]).await;
    let [own, theirs] = install(&server);
    adapter
        .wants(&[
            "certificates/shop/www",
            "gateways/news/tidegate",
            "gateways/shop/edge",
            "httproutes/news/blog",
            "httproutes/shop/calls.grpc",
            "httproutes/shop/www",
            "services/shop/web",
            "endpointsets/shop/web-1",
        ])
        .await;
    expect_publisher(&adapter);
    adapter.observed.send_replace(observed(false));
    let mut web = server.get("api/v1", "services", "shop", "web").unwrap();
    web["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } });
    server.put(&web);
    let status =
        |plural: &str, name: &str| server.get(GATEWAY_API, plural, "shop", name).unwrap()["status"].clone();
    eventually("the address of the Gateway", || {
        (status("gateways", "edge")["addresses"] == json!([{ "type": "IPAddress", "value": "192.0.2.9" }]))
            .then_some(())
    })
    .await;
    eventually("the address of the Ingress", || {
        let ingress = server.get("apis/networking.k8s.io/v1", "ingresses", "news", "blog").unwrap();
        (ingress["status"]["loadBalancer"]["ingress"] == json!([{ "ip": "192.0.2.9" }])).then_some(())
    })
    .await;
    let edge = status("gateways", "edge");
    check_gateway(&edge);
    let parents = eventually("the parents of the route", || {
        let parents = status("httproutes", "www")["parents"].as_array().cloned().unwrap_or_default();
        (parents.len() == 3).then_some(parents)
    })
    .await;
    assert_eq!(parents[0], theirs);
    assert_eq!(
        (&parents[1]["parentRef"], &parents[1]["controllerName"]),
        (&own, &json!("tidegate.io/gateway"))
    );
    assert_eq!(
        conditions(&parents[1]["conditions"]),
        ["Accepted True Accepted", "ResolvedRefs False BackendNotFound"]
    );
    assert_eq!(
        conditions(&parents[2]["conditions"]),
        ["Accepted False NoMatchingParent", "ResolvedRefs False BackendNotFound"]
    );
    adapter.observed.send_replace(observed(true));
    eventually("the backend is found", || {
        (conditions(&status("httproutes", "www")["parents"][1]["conditions"])[1]
            == "ResolvedRefs True ResolvedRefs")
            .then_some(())
    })
    .await;
    eventually("the parent of the calls", || {
        (conditions(&status("grpcroutes", "calls")["parents"][0]["conditions"])
            == ["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"])
        .then_some(())
    })
    .await;
    check_tls_route(&server).await;
    let class = eventually("the class", || {
        server
            .get(GATEWAY_API, "gatewayclasses", "", "tidegate")
            .filter(|class| class.get("status").is_some())
    })
    .await;
    assert_eq!(conditions(&class["status"]["conditions"]), ["Accepted True Accepted"]);
    assert_eq!(status("gateways", "foreign"), Value::Null);
    // No further write is needed.
    let versions = || {
        let all = HTTP.iter().flat_map(|(prefix, plural)| server.all(prefix, plural));
        all.map(|one| one["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = versions();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(versions(), before);
    let of_http = |rule: &&String| {
        rule.contains("\"networking") || rule.contains("\"gateway.networking") || rule.ends_with(" secrets")
    };
    let asked = server.asked();
    let asked: Vec<_> = asked.iter().filter(of_http).collect();
    let allowed = cluster::rbac::allowed("gateways.yaml");
    assert_eq!(asked, allowed.iter().collect::<Vec<_>>());
}
