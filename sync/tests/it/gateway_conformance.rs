//! Conformance tests of the Gateway API that concern objects of a cluster, as rows: objects go through the translation of the
//! adapter and the status and routing of the model, and back into the conditions that the adapter writes. The page
//! `docs/reference/gateway-api-conformance.md` names this file.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use model::{
    cluster::snapshot::Snapshot,
    http::{Decision, HttpState, RequestHead, TlsDecision, normalize_host, route, route_tls},
    observed::rollup::{gateway_status, http_route_status, tls_route_status},
    primitives::quantity::{Port, Revision},
};
use serde_json::{Value, json};
use sync::{
    kubernetes::{
        resource::Resource,
        state::{CertificateSecrets, Change, ClusterState, Id, needed},
        translate::{Mode, Settings, gateway_api::copy_name},
        write_back::{HttpSources, plan_http},
    },
    wanted::ObservedObjects,
};
use translate::parse::{Language, objects};

use crate::{
    kubernetes_http::{identity, secret},
    kubernetes_translate::{directory, resource},
    kubernetes_watch::{service, slice},
};

const NOW: &str = "2026-11-30T00:00:00Z";
const NAMESPACE: &str = "infra";
/// Number of picks among the backends of a rule.
const PICKS: u64 = 100;

/// Cluster whose objects have been translated, with the statuses that the adapter writes.
struct ConformanceCluster {
    state: ClusterState,
    routing: HttpState,
    statuses: BTreeMap<(Resource, Id), Value>,
}

impl ConformanceCluster {
    /// Creates a cluster with the class `tidegate`, a Gateway `infra`, Services `v1` to `v3`, and the Service `page` of another
    /// namespace.
    fn new(more: &[Value]) -> Self {
        let settings = Settings { cluster: None, mode: Mode::LoadBalancer, class: None };
        let kinds = needed(false, false).into_iter().chain(Resource::HTTP);
        let mut state = ClusterState::new(settings, kinds);
        Resource::HTTP.into_iter().for_each(|kind| state.apply(kind, Change::Listed(Vec::new())));
        let mut put = |object: Value| state.apply(resource(&object), Change::Put(with_defaults(object)));
        put(
            json!({"kind": "GatewayClass", "metadata": {"name": "tidegate"}, "spec": {"controllerName": "tidegate.io/gateway"}}),
        );
        put(
            json!({"kind": "IngressClass", "metadata": {"name": "tidegate"}, "spec": {"controller": "tidegate.io/gateway"}}),
        );
        let everyone = json!({"namespaces": {"from": "All"}});
        let listener = json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everyone});
        put(
            json!({"kind": "Gateway", "metadata": {"name": "infra"}, "spec": {"gatewayClassName": "tidegate", "listeners": [listener]}}),
        );
        for (name, namespace) in [("v1", NAMESPACE), ("v2", NAMESPACE), ("v3", NAMESPACE), ("page", "web")] {
            let mut service = service(name);
            service["metadata"]["namespace"] = json!(namespace);
            service["spec"] = json!({"ports": [{"port": 8080}]});
            put(service);
            let mut slice = slice(name, "10.1.1.2");
            slice["metadata"]["namespace"] = json!(namespace);
            slice["ports"] = json!([{"port": 3000, "protocol": "TCP"}]);
            put(slice);
        }
        more.iter().for_each(|object| put(object.clone()));
        let identity = identity();
        let named = state.certificates().unwrap().iter().cloned();
        let secrets = named.map(|id| (id.clone(), Some(secret_of(&id, &identity)))).collect();
        state.apply(Resource::CertificateSecret, Change::Certificates(CertificateSecrets(secrets)));
        let mut cluster = Self {
            state,
            routing: HttpState::new(Arc::default(), Snapshot::default()),
            statuses: BTreeMap::new(),
        };
        cluster.refresh();
        cluster
    }

    /// Computes routing and statuses as the control server and the adapter do, and stores the statuses in the cluster.
    fn refresh(&mut self) {
        let wanted = self.state.wanted();
        let snapshot = Snapshot::from_objects(Revision(1), wanted.objects.values().cloned().map(Arc::new));
        let mut observed = ObservedObjects::default();
        for (key, object) in &wanted.objects {
            let status = if let Some(spec) = object.as_gateway() {
                serde_json::to_value(gateway_status(&snapshot, &object.metadata, spec))
            } else if let (Some(spec), Some(namespace)) = (object.as_http_route(), &object.metadata.namespace)
            {
                serde_json::to_value(http_route_status(&snapshot, namespace, spec))
            } else if let (Some(spec), Some(namespace)) = (object.as_tls_route(), &object.metadata.namespace)
            {
                serde_json::to_value(tls_route_status(&snapshot, namespace, spec))
            } else {
                continue;
            };
            observed.objects.insert(key.clone(), json!({"status": status.unwrap()}));
        }
        let published = self.state.published();
        let sources = HttpSources { observed: &observed, services: &published.services };
        for ((of, id), entry) in &published.http {
            if let Some(patch) = plan_http(*of, entry, sources, NOW) {
                self.statuses.insert((*of, id.clone()), patch["status"].clone());
            }
        }
        self.routing = HttpState::new(Arc::default(), snapshot);
    }

    fn status(&self, kind: &str, name: &str) -> &Value {
        let of = resource(&json!({"kind": kind}));
        let namespace = if of == Resource::GatewayClass { "" } else { NAMESPACE };
        let id = Id { namespace: namespace.to_owned(), name: name.to_owned() };
        &self.statuses[&(of, id)]
    }

    /// Returns true if a row is met, or its actual value.
    fn check(&self, row: &str) -> Result<(), String> {
        let Some((subject, expected)) = row.split_once(": ") else {
            let (request, expected) = row.split_once(" -> ").unwrap();
            let found = self.respond(request);
            return if found == expected { Ok(()) } else { Err(found) };
        };
        let (kind, name) = subject.split_once(' ').unwrap();
        let (name, listener) = name.split_once('/').map_or((name, None), |(name, one)| (name, Some(one)));
        let status = self.status(kind, name);
        let part = match listener {
            Some(listener) => {
                status["listeners"].as_array().unwrap().iter().find(|one| one["name"] == listener).unwrap()
            }
            None if kind == "Gateway" || kind == "GatewayClass" => status,
            None => &status["parents"][0],
        };
        let kinds = part["supportedKinds"].as_array().into_iter().flatten();
        let kinds: Vec<_> = kinds.map(|kind| kind["kind"].as_str().unwrap()).collect();
        let mut facts =
            vec![format!("kinds={}", kinds.join(",")), format!("routes={}", part["attachedRoutes"])];
        for one in part["conditions"].as_array().unwrap() {
            let word = |field: &str| one[field].as_str().unwrap();
            facts.push(format!("{} {} {}", word("type"), word("status"), word("reason")));
        }
        if facts.iter().any(|fact| fact == expected) { Ok(()) } else { Err(facts.join("; ")) }
    }

    /// Returns the backend of a connection, `TLS NAME:PORT`, or `closed`.
    fn connect(&self, target: &str) -> String {
        let (name, port) = target.split_once(':').unwrap();
        let port = Port::new(port.parse().unwrap()).unwrap();
        match route_tls(self.routing.table(), port, name, 0) {
            Ok(TlsDecision::Forward { backend, certificate, .. }) => {
                let form = if certificate.is_some() { " decrypted" } else { "" };
                format!("{}{form}", own_name(backend.service.name.as_str()))
            }
            Ok(TlsDecision::Serve { .. }) => "requests".to_owned(),
            Err(_) => "closed".to_owned(),
        }
    }

    /// Returns the backends of a request, `METHOD [HOST[:PORT]]/PATH[ HEADER:VALUE]…`, with their share if there are several and
    /// with the changes of headers, or the status code.
    fn respond(&self, request: &str) -> String {
        if let Some(target) = request.strip_prefix("TLS ") {
            return self.connect(target);
        }
        let mut words = request.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (authority, path) = target.split_at(target.find('/').unwrap());
        let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
        let host = if host.is_empty() { "www".to_owned() } else { normalize_host(host).unwrap() };
        let headers: Vec<_> = words.map(|word| word.split_once(':').unwrap()).collect();
        let header = |name: &str| {
            let found = headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
            found.map(|(_, value)| Cow::Borrowed(*value))
        };
        let head = RequestHead {
            port: Port::new(port.parse().unwrap()).unwrap(),
            server_name: (port == "443").then_some(&*host),
            method,
            host: &host,
            path,
            query: None,
            header: &header,
        };
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        let mut changes = String::new();
        for pick in 0..PICKS {
            let outcome = match route(self.routing.table(), &head, pick) {
                Decision::Forward { rule, backend, path, .. } => {
                    let modifier = rule.filters.request_headers.clone().unwrap_or_default();
                    changes =
                        modifier.set.iter().map(|one| format!(" set={}:{}", one.name, one.value)).collect();
                    changes.extend(modifier.add.iter().map(|one| format!(" add={}:{}", one.name, one.value)));
                    changes.extend(modifier.remove.iter().map(|name| format!(" remove={name}")));
                    changes.extend(path.map(|path| format!(" path={path}")));
                    own_name(backend.key.service.name.as_str())
                }
                Decision::Fail { failure, .. } => failure.status().to_string(),
                Decision::Redirect { status, .. } => status.to_string(),
                Decision::Preflight { .. } => "204".to_owned(),
            };
            *shares.entry(outcome).or_default() += 1;
        }
        let texts: Vec<_> = match shares.len() {
            1 => shares.into_keys().collect(),
            _ => shares.into_iter().map(|(name, count)| format!("{name}={count}")).collect(),
        };
        texts.join(" ") + &changes
    }
}

/// Returns the name of a Service, of which the Service of another namespace is a copy.
fn own_name(name: &str) -> String {
    let copy = copy_name(&Id { namespace: "web".to_owned(), name: "page".to_owned() });
    name.replace(&copy, "page.web")
}

/// Returns a Secret with a certificate.
fn secret_of(id: &Id, identity: &(String, String)) -> Value {
    let mut secret = secret(identity, "kubernetes.io/tls");
    secret["metadata"] = json!({"name": id.name, "namespace": id.namespace});
    secret
}

/// Returns an object with the namespace of the cases, unless it has one or needs none.
fn with_defaults(mut object: Value) -> Value {
    let has_namespace = !object["kind"].as_str().unwrap().ends_with("Class");
    if has_namespace && object["metadata"].get("namespace").is_none() {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    object
}

/// F141: each row of each case is met.
#[test]
fn f141_conformance_of_objects_of_a_cluster() {
    let text = std::fs::read(directory().join("gateway_conformance.yaml")).unwrap();
    let mut failures = Vec::new();
    for case in objects(Language::Yaml, &text).unwrap() {
        let cluster = ConformanceCluster::new(case["objects"].as_array().unwrap());
        for row in case["rows"].as_array().unwrap() {
            let row = row.as_str().unwrap();
            if let Err(found) = cluster.check(row) {
                failures.push(format!("{}: {row}: {found}", case["name"]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// F141 (GatewayClassObservedGenerationBump, GatewayObservedGenerationBump, HTTPRouteObservedGenerationBump): all conditions have the
/// generation of the object to which they belong, also after a change.
#[test]
fn f141_conditions_have_the_generation_of_their_object() {
    fn generations(value: &Value) -> Vec<u64> {
        match value {
            Value::Object(fields) if fields.contains_key("lastTransitionTime") => {
                vec![fields["observedGeneration"].as_u64().unwrap_or_default()]
            }
            Value::Object(fields) => fields.values().flat_map(generations).collect(),
            Value::Array(list) => list.iter().flat_map(generations).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        }
    }
    let object = |generation: u64, backend: &str| {
        let rules = json!([{"backendRefs": [{"name": backend, "port": 8080}]}]);
        [
            json!({"kind": "GatewayClass", "metadata": {"name": "own", "generation": generation}, "spec": {"controllerName": "tidegate.io/gateway", "description": backend}}),
            json!({"kind": "Gateway", "metadata": {"name": "bumped", "generation": generation}, "spec": {"gatewayClassName": "own", "listeners": [{"name": backend, "port": 80, "protocol": "HTTP"}]}}),
            json!({"kind": "HTTPRoute", "metadata": {"name": "bumped", "generation": generation}, "spec": {"parentRefs": [{"name": "bumped"}], "rules": rules}}),
            json!({"kind": "TLSRoute", "metadata": {"name": "bumped", "generation": generation}, "spec": {"parentRefs": [{"name": "bumped"}], "rules": rules}}),
        ]
    };
    let mut cluster = ConformanceCluster::new(&object(1, "v1"));
    for (generation, backend) in [(1, "v1"), (2, "v2"), (3, "v3")] {
        for object in object(generation, backend) {
            cluster.state.apply(resource(&object), Change::Put(with_defaults(object)));
        }
        cluster.refresh();
        for (kind, name, count) in [
            ("GatewayClass", "own", 1),
            ("Gateway", "bumped", 6),
            ("HTTPRoute", "bumped", 2),
            ("TLSRoute", "bumped", 2),
        ] {
            let found = generations(cluster.status(kind, name));
            assert_eq!(found, vec![generation; count], "{kind}");
        }
    }
}

/// A deleted ReferenceGrant applies at once: the copies of the Service disappear, and requests fail.
#[test]
fn f141_a_deleted_grant_takes_the_copies_with_it() {
    let rules = json!([{"backendRefs": [{"name": "page", "namespace": "web", "port": 8080}]}]);
    let route = json!({"kind": "HTTPRoute", "metadata": {"name": "granted"}, "spec": {"parentRefs": [{"name": "infra"}], "rules": rules}});
    let from = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": NAMESPACE}]);
    let grant = json!({
        "kind": "ReferenceGrant", "metadata": {"name": "pages", "namespace": "web"},
        "spec": {"from": from, "to": [{"group": "", "kind": "Service"}]},
    });
    let mut cluster = ConformanceCluster::new(&[route, grant.clone()]);
    let copies = |cluster: &ConformanceCluster| {
        let wanted = cluster.state.wanted();
        wanted.objects.keys().filter(|key| key.name.as_str().contains("-web-")).count()
    };
    assert_eq!((cluster.respond("GET /"), copies(&cluster)), ("page.web".to_owned(), 2));
    cluster.state.apply(Resource::ReferenceGrant, Change::Gone(Id::of(&grant)));
    cluster.refresh();
    assert_eq!((cluster.respond("GET /"), copies(&cluster)), ("500".to_owned(), 0));
    assert_eq!(cluster.check("HTTPRoute granted: ResolvedRefs False RefNotPermitted"), Ok(()));
    cluster.state.apply(Resource::ReferenceGrant, Change::Put(grant));
    cluster.refresh();
    assert_eq!((cluster.respond("GET /"), copies(&cluster)), ("page.web".to_owned(), 2));
}

/// Returns the fenced manifests of a page for a cluster.
fn manifests(page: &str) -> Vec<Value> {
    let path = directory().join("../../../docs/how-to").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```yml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(|block| objects(Language::Yaml, block.as_bytes()).unwrap()).collect()
}

/// The manifests of the page "From Traefik" serve the requests that the page promises. An Ingress with a middleware is left out,
/// so that its requests fail instead of being served without it.
#[test]
fn f141_manifests_of_the_guide_from_traefik_work() {
    let (theirs, own): (Vec<_>, Vec<_>) = manifests("traefik.md")
        .into_iter()
        .partition(|object| object["apiVersion"].as_str().unwrap().starts_with("traefik.io/"));
    assert_eq!((theirs.len(), own.len()), (3, 5));
    let backends = ["web", "api", "api-next"].into_iter().flat_map(|name| {
        let mut service = service(name);
        service["spec"] = json!({"ports": [{"port": 80}]});
        [service, slice(name, "10.1.1.3")]
    });
    let mut all: Vec<_> = own.into_iter().chain(backends).collect();
    let cluster = ConformanceCluster::new(&all);
    for row in [
        "GET www.example.org/ -> web",
        "GET www.example.org:443/ -> web",
        "GET www.example.org:443/apis -> web",
        "GET www.example.org:443/api/x -> api=90 api-next=10 set=X-Edge:1 path=/x",
        "GET www.example.org/api/x -> 301",
        "GET blog.example.org:443/ -> web",
        "GET blog.example.org/ -> 308",
    ] {
        assert_eq!(cluster.check(row), Ok(()), "{row}");
    }
    let fields: Vec<_> =
        cluster.state.published().findings.values().flatten().map(|one| one.field.clone()).collect();
    let annotation =
        |name: &str| format!("metadata.annotations[\"traefik.ingress.kubernetes.io/router.{name}\"]");
    assert_eq!(fields, [annotation("entrypoints"), annotation("priority")]);

    let ingress = all.iter_mut().find(|object| object["kind"] == "Ingress").unwrap();
    ingress["metadata"]["annotations"]["traefik.ingress.kubernetes.io/router.middlewares"] =
        json!("shop-auth@kubernetescrd");
    let cluster = ConformanceCluster::new(&all);
    assert_eq!(cluster.respond("GET blog.example.org/"), "500");
}
