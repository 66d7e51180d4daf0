//! HTTP routing: decisions as a table whose parts have the names of conformance tests of the Gateway API, the comparison
//! with an ordered scan by the rules of precedence, endpoint changes, and the validation of Gateways and HttpRoutes.

mod conformance;
mod refusal;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    cluster::{change::ObjectChange, snapshot::Snapshot},
    http::{
        AttachProblem, Decision, HttpObjectKey, HttpObjects, HttpState, HttpTable, RequestHead, RouteObject,
        attach, normalize_host, route, validate_gateway, validate_route,
    },
    kinds::{
        gateway::GatewaySpec,
        http_route::{HttpRouteMatch, HttpRouteSpec, PathMatchType},
        resource::{Kind, Object, ServiceKey},
    },
    primitives::{
        hostname_pattern::HostnamePattern,
        name::{Name, Namespace},
        quantity::{Port, Revision, Timestamp},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use self::conformance::{TestRequest, http_route};
use crate::support::Cluster;

const OBJECTS: &str = include_str!("../http/objects.json");
const CASES: &str = include_str!("../http/cases.json");

/// Services and endpoints, and the Gateways and routes beside them.
struct RouteStage {
    cluster: Cluster,
    gateways: BTreeMap<HttpObjectKey, GatewaySpec>,
    routes: BTreeMap<HttpObjectKey, (Timestamp, HttpRouteSpec)>,
}

impl RouteStage {
    fn new() -> Self {
        let mut stage = Self { cluster: Cluster::new(), gateways: BTreeMap::new(), routes: BTreeMap::new() };
        for object in serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap() {
            stage.apply(object);
        }
        stage
    }

    fn apply(&mut self, mut object: Value) {
        self.cluster.now += 1;
        let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let key = HttpObjectKey {
            namespace: Namespace::parse(&text("namespace")).unwrap(),
            name: Name::parse(&text("name")).unwrap(),
        };
        let mut found = Vec::new();
        let kind = object["kind"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "Gateway" => {
                let spec = serde_json::from_value(object["spec"].take()).unwrap();
                validate_gateway(&spec, &mut found);
                self.gateways.insert(key, spec);
            }
            "HttpRoute" => {
                let spec = serde_json::from_value(object["spec"].take()).unwrap();
                validate_route(&spec, &mut found);
                self.routes.insert(key, (Timestamp::from_unix_seconds(self.cluster.now), spec));
            }
            _ => {
                object["apiVersion"] = "tidegate/v1".into();
                self.cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
            }
        }
        assert!(found.is_empty(), "{object}: {found:?}");
    }

    fn objects(&self) -> HttpObjects<'_> {
        let routes = self.routes.iter();
        HttpObjects {
            gateways: self.gateways.iter().map(|(key, spec)| (key.clone(), spec)).collect(),
            routes: routes
                .map(|(key, (created, spec))| (key.clone(), RouteObject { created: Some(*created), spec }))
                .collect(),
            tls_routes: BTreeMap::new(),
        }
    }

    fn table(&self) -> HttpTable {
        HttpTable::compile(&self.objects(), &self.cluster.snapshot)
    }
}

/// A listener accepts routes of other namespaces only if it allows them; a route may name one of several listeners.
#[test]
fn routes_attach_where_they_are_allowed() {
    let mut stage = RouteStage::new();
    let foreign = |name: &str, section: &str| {
        json!({
            "kind": "HttpRoute", "metadata": { "name": name, "namespace": "other" },
            "spec": {
                "parentRefs": [{ "name": "isolation", "namespace": "infra", "sectionName": section }],
                "rules": [{ "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": "other.example" } }] }],
            },
        })
    };
    stage.apply(foreign("allowed", "empty-hostname"));
    stage.apply(foreign("refused", "abc-foo-example-com"));
    stage.apply(foreign("absent", "none"));
    let table = stage.table();
    let decide = |text| TestRequest::parse(text).decide(&table, 82, 0);
    assert_eq!(decide("x.net/"), "302 http://other.example:82/");
    assert_eq!(decide("abc.foo.example.com/"), "404");
    let problem = |name: &str| {
        let mut routes = stage.routes.iter().filter(|(key, _)| key.name.as_str() == name);
        let (key, (_, spec)) = routes.next().unwrap();
        attach(&stage.objects(), &key.namespace, spec, &spec.parent_refs[0]).err()
    };
    assert_eq!(problem("allowed"), None);
    assert_eq!(problem("refused"), Some(AttachProblem::NotAllowedByListeners));
    assert_eq!(problem("absent"), Some(AttachProblem::NoMatchingParent));
}

fn endpoint_set(address: &str, ready: bool) -> Value {
    json!({
        "kind": "EndpointSet", "metadata": { "name": "v1", "namespace": "infra" },
        "spec": { "service": "infra-backend-v1", "endpoints": [{ "address": address, "conditions": { "ready": ready } }] },
    })
}

/// A change of endpoints changes the endpoints of the backend alone, and the result is that of a new compilation.
#[test]
fn a_change_of_endpoints_keeps_the_routes() {
    let mut stage = RouteStage::new();
    let spec = json!({ "rules": [{ "backendRefs": [{ "name": "infra-backend-v1", "port": 8080 }] }] });
    stage.apply(http_route("web", "same-namespace", &spec));
    let first = stage.table();
    let endpoints = |table: &HttpTable| {
        let backends: Vec<_> = table.backends.values().cloned().collect();
        let list: Vec<_> =
            backends[0].as_ref().unwrap().list().iter().map(|one| one.address.to_string()).collect();
        list.join(",")
    };
    assert_eq!(endpoints(&first), "10.1.0.1:8080");
    let services = ["infra/infra-backend-v1", "infra/unknown"];
    let services = services.map(|key| ServiceKey::try_from(key.to_owned()).unwrap());
    for (address, ready, expected) in [("10.1.0.9", true, "10.1.0.9:8080"), ("10.1.0.9", false, "")] {
        stage.apply(endpoint_set(address, ready));
        let next = first.refresh(&stage.cluster.snapshot, &services);
        assert_eq!(endpoints(&next), expected);
        assert!(Arc::ptr_eq(&next.routes, &first.routes));
        assert_eq!(next, stage.table());
    }
    assert_eq!(TestRequest::parse("/").decide(&stage.table(), 80, 0), "503");
}

/// Endpoints are chosen by their weights, and a failed endpoint is not chosen again while there is another one.
/// After each addition and removal of an object, the table is that of a state with the same objects, and each Gateway
/// finds its routes by the index.
#[test]
fn a_changed_state_has_the_table_of_its_objects() {
    let mut cluster = Cluster::new();
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let specs = cases.iter().flat_map(|case| {
        let parent = case["parent"].as_str().unwrap_or("same-namespace");
        case["routes"].as_array().unwrap().iter().map(move |spec| (parent, spec))
    });
    let routes =
        specs.enumerate().map(|(index, (parent, spec))| http_route(&format!("route-{index}"), parent, spec));
    let infrastructure = serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap();
    for mut object in infrastructure.into_iter().chain(routes) {
        cluster.now += 1;
        object["apiVersion"] = "tidegate/v1".into();
        cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
    }
    // Routes before their backends, so that additions and removals of endpoints change the table.
    let kinds = [Kind::Gateway, Kind::HttpRoute, Kind::Service, Kind::EndpointSet];
    let objects: Vec<_> =
        kinds.iter().flat_map(|kind| cluster.snapshot.list(*kind, None, None)).cloned().collect();
    let additions = objects.iter().map(|object| ObjectChange::Put(Arc::clone(object)));
    let removals = objects.iter().rev().map(|object| ObjectChange::Removed(object.key()));
    let mut state = HttpState::new(Arc::default(), Snapshot::default());
    for (number, change) in additions.chain(removals).enumerate() {
        state = state.update(Revision(number as u64), [change]);
        let snapshot = state.snapshot();
        let table = HttpTable::compile(&HttpObjects::of(snapshot, |_| true), snapshot);
        assert_eq!(*state.table(), table, "{number}");
        for gateway in snapshot.list(Kind::Gateway, None, None) {
            let names = |route: &&Arc<Object>| {
                let (own, spec) = (&route.metadata.namespace, route.as_http_route().unwrap());
                spec.parent_refs.iter().any(|parent| {
                    let namespace = parent.namespace.as_ref().or(own.as_ref());
                    parent.name == gateway.metadata.name && namespace == gateway.metadata.namespace.as_ref()
                })
            };
            let all = snapshot.list(Kind::HttpRoute, None, None).filter(names).count();
            assert_eq!(snapshot.routes_naming(&gateway.key()).count(), all, "{number}");
        }
        if number + 1 == objects.len() {
            assert!(table.routes.backends().count() > 0);
        }
    }
    assert_eq!(*state.table(), HttpTable::default());
}

/// A change of one route compiles only this route: the rules of the others are the same objects as before.
#[test]
fn a_change_of_one_route_shares_the_others() {
    let mut cluster = Cluster::new();
    let listeners = json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]);
    let gateway =
        json!({ "kind": "Gateway", "metadata": { "name": "edge" }, "spec": { "listeners": listeners } });
    cluster.apply(&gateway).unwrap();
    let route_of = |number: usize, service: &str| {
        let rules = json!([{ "backendRefs": [{ "name": service, "port": 80 }] }]);
        let parents = json!([{ "name": "edge" }]);
        let spec =
            json!({ "parentRefs": parents, "hostnames": [format!("h{number}.example.org")], "rules": rules });
        json!({ "kind": "HttpRoute", "metadata": { "name": format!("r{number}") }, "spec": spec })
    };
    for number in 0..20 {
        cluster.apply(&route_of(number, "web")).unwrap();
    }
    let first = HttpState::new(Arc::default(), cluster.snapshot.clone());
    cluster.apply(&route_of(7, "other")).unwrap();
    let changed = Arc::new(cluster.get("httproutes/default/r7").clone());
    let next = first.update(Revision(100), [ObjectChange::Put(changed)]);
    let rule = |state: &HttpState, number: usize| {
        let host = format!("h{number}.example.org");
        let header = |_: &str| None;
        let port = Port::new(80).unwrap();
        let head = RequestHead {
            port,
            server_name: None,
            method: "GET",
            host: &host,
            path: "/",
            query: None,
            header: &header,
        };
        match route(state.table(), &head, 0) {
            Decision::Fail { rule, .. } => Arc::clone(rule.unwrap()),
            Decision::Redirect { rule, .. }
            | Decision::Preflight { rule, .. }
            | Decision::Forward { rule, .. } => Arc::clone(rule),
        }
    };
    for number in 0..20 {
        let is_same = Arc::ptr_eq(&rule(&first, number), &rule(&next, number));
        assert_eq!(is_same, number != 7, "{number}");
    }
    assert_eq!(rule(&next, 7).backends[0].key.to_string(), "default/other:80");
    assert_eq!(next.table().backends.len(), 2);
}

#[test]
fn endpoints_are_chosen_by_weight() {
    use model::http::{BackendEndpoints, HttpEndpoint};
    let endpoint = |text: &str, weight| HttpEndpoint { address: text.parse().unwrap(), weight };
    let (one, two) = (endpoint("10.0.0.1:80", 1), endpoint("10.0.0.2:80", 3));
    let endpoints = BackendEndpoints::new(vec![one, two]);
    let picks =
        |except: &[_]| (0..4).filter(|number| endpoints.pick(*number, except) == Some(two.address)).count();
    assert_eq!((picks(&[]), picks(&[one.address]), picks(&[two.address])), (3, 4, 0));
    assert_eq!(picks(&[one.address, two.address]), 3);
    assert_eq!(BackendEndpoints::default().pick(7, &[]), None);
}

#[test]
fn host_names_are_normalized() {
    for (text, expected) in [
        ("Example.ORG", Some("example.org")),
        ("example.org.:8080", Some("example.org")),
        ("192.0.2.1:80", Some("192.0.2.1")),
        ("[2001:DB8::1]:80", Some("[2001:db8::1]")),
        ("", None),
        ("a b", None),
        ("example.org:80:80", None),
        ("example.org:x", None),
        ("[::1", None),
        ("[::1]x", None),
        ("user@example.org", None),
        ("..", None),
    ] {
        assert_eq!(normalize_host(text).as_deref(), expected, "{text}");
    }
}

/// Returns the fields that are refused, or the error of the decoder.
fn violations(kind: &str, spec: Value) -> Vec<String> {
    let mut found = Vec::new();
    let decoded = match kind {
        "Gateway" => serde_json::from_value(spec).map(|spec| validate_gateway(&spec, &mut found)),
        _ => serde_json::from_value(spec).map(|spec| validate_route(&spec, &mut found)),
    };
    match decoded {
        Ok(()) => found.into_iter().map(|violation| violation.pointer).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Settings that are not supported are refused at their field, not ignored.
#[test]
fn unsupported_and_invalid_settings_are_refused() {
    let listener = |more: Value| {
        let mut listener = json!({ "name": "http", "port": 80, "protocol": "HTTP" });
        listener.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        violations("Gateway", json!({ "listeners": [listener] }))
    };
    assert_eq!(listener(json!({})), Vec::<String>::new());
    assert!(listener(json!({ "protocol": "SCTP" }))[0].contains("SCTP"));
    assert_eq!(listener(json!({ "protocol": "TLS" })), ["/spec/listeners/0/tls"]);
    assert!(listener(json!({ "protocol": "HTTPS", "tls": {} }))[0].contains("certificateRefs"));
    assert!(listener(json!({ "hostname": "192.0.2.1" }))[0].contains("IP address"));
    let two = json!({ "name": "http", "port": 80, "protocol": "HTTP" });
    let found = violations("Gateway", json!({ "listeners": [two, two] }));
    assert_eq!(found, ["/spec/listeners/1/name", "/spec/listeners/1/hostname"]);
    assert_eq!(violations("Gateway", json!({ "listeners": [] })), ["/spec/listeners"]);
    let rule = |rule: Value| {
        let found = violations("HttpRoute", json!({ "parentRefs": [{ "name": "edge" }], "rules": [rule] }));
        let found = found.into_iter().map(|one| one.replace("/spec/rules/0", ""));
        found.collect::<Vec<_>>().join(" ")
    };
    let path = |path: Value| rule(json!({ "matches": [{ "path": path }] }));
    assert_eq!(path(json!({ "value": "/a" })), "");
    assert!(path(json!({ "type": "RegularExpression", "value": "/a" })).contains("RegularExpression"));
    for bad in ["a", "/a//b", "/a/../b", "/a/%2E%2e", "/a%2fb", "/a?b", "/a%zz", "/ä"] {
        assert!(path(json!({ "value": bad })).contains("/matches/0/path/value"), "{bad}");
    }
    let regular = json!({ "headers": [{ "type": "RegularExpression", "name": "a", "value": "b" }] });
    assert!(rule(json!({ "matches": [regular] })).contains("RegularExpression"));
    let twice = json!({ "headers": [{ "name": "a", "value": "b" }, { "name": "A", "value": "c" }] });
    assert_eq!(rule(json!({ "matches": [twice] })), "/matches/0/headers/1/name");
    assert!(rule(json!({ "sessionPersistence": {} })).contains("sessionPersistence"));
    assert!(rule(json!({ "filters": [{ "type": "ExtensionRef" }] })).contains("ExtensionRef"));
    assert_eq!(rule(json!({ "filters": [{ "type": "URLRewrite" }] })), "/filters/0/urlRewrite");
    let modifier = |modifier: Value| {
        rule(json!({ "filters": [{ "type": "RequestHeaderModifier", "requestHeaderModifier": modifier }] }))
    };
    assert_eq!(modifier(json!({ "set": [{ "name": "a", "value": "b" }], "remove": ["c"] })), "");
    assert!(modifier(json!({ "set": [{ "name": "Host", "value": "b" }] })).contains("/set/0/name"));
    assert!(modifier(json!({ "set": [{ "name": "a", "value": "b\r\nc: d" }] })).contains("/set/0/value"));
    assert!(modifier(json!({ "remove": ["transfer-encoding"] })).contains("/remove/0"));
    let redirect = json!({ "type": "RequestRedirect", "requestRedirect": { "statusCode": 200 } });
    assert!(rule(json!({ "filters": [redirect] })).contains("/statusCode"));
    let prefix = json!({ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } });
    let exact = json!({ "path": { "type": "Exact", "value": "/a" } });
    assert!(rule(json!({ "matches": [exact], "filters": [prefix] })).contains("/urlRewrite/path/type"));
    assert!(
        rule(json!({ "backendRefs": [{ "name": "a", "port": 80, "namespace": "b" }] })).contains("namespace")
    );
    assert_eq!(
        rule(json!({ "backendRefs": [{ "name": "a", "port": 80, "weight": 1_000_001 }] })),
        "/backendRefs/0/weight"
    );
}

/// Mirrors, CORS filters, timeouts and filters of backends are checked at their fields.
#[test]
fn invalid_mirrors_origins_and_timeouts_are_refused() {
    let rule = |rule: Value| {
        let found = violations("HttpRoute", json!({ "parentRefs": [{ "name": "edge" }], "rules": [rule] }));
        let found = found.into_iter().map(|one| one.replace("/spec/rules/0", ""));
        found.collect::<Vec<_>>().join(" ")
    };
    let mirror = |more: Value| {
        let mut mirror = json!({ "backendRef": { "name": "a", "port": 80 } });
        mirror.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "RequestMirror", "requestMirror": mirror })
    };
    let of_mirror = |more: Value| rule(json!({ "filters": [mirror(more)] }));
    assert_eq!(of_mirror(json!({ "percent": 100 })), "");
    assert_eq!(of_mirror(json!({ "percent": 101 })), "/filters/0/requestMirror/percent");
    assert_eq!(
        of_mirror(json!({ "percent": 1, "fraction": { "numerator": 1 } })),
        "/filters/0/requestMirror"
    );
    let fraction = |numerator: u32, denominator: u32| {
        of_mirror(json!({ "fraction": { "numerator": numerator, "denominator": denominator } }))
    };
    assert_eq!(fraction(1, 1), "");
    assert_eq!(fraction(2, 1), "/filters/0/requestMirror/fraction/numerator");
    assert_eq!(fraction(0, 0), "/filters/0/requestMirror/fraction/denominator");
    // Several mirrors are allowed, and one filter of each other type.
    assert_eq!(rule(json!({ "filters": [mirror(json!({})), mirror(json!({}))] })), "");
    let cors = |policy: Value| json!({ "type": "CORS", "cors": policy });
    let of_cors = |policy: Value| rule(json!({ "filters": [cors(policy)] }));
    for good in ["*", "https://www.example.org", "http://*.example.org:8080", "app://local"] {
        assert_eq!(of_cors(json!({ "allowOrigins": [good] })), "", "{good}");
    }
    for bad in
        ["", "www.example.org", "https://", "https://a/b", "https://*", "https://a:0", "https://a\r\nb: c"]
    {
        let found = of_cors(json!({ "allowOrigins": [bad] }));
        assert_eq!(found, "/filters/0/cors/allowOrigins/0", "{bad}");
    }
    assert_eq!(of_cors(json!({ "allowOrigins": [] })), "/filters/0/cors/allowOrigins");
    let methods = |list: Value| of_cors(json!({ "allowOrigins": ["*"], "allowMethods": list }));
    assert_eq!(methods(json!(["GET", "PURGE"])), "");
    assert_eq!(methods(json!(["GET,PUT"])), "/filters/0/cors/allowMethods/0");
    assert_eq!(methods(json!(["*", "PUT"])), "/filters/0/cors/allowMethods");
    let any = json!({ "allowOrigins": ["*"] });
    assert_eq!(rule(json!({ "filters": [cors(any.clone()), cors(any.clone())] })), "/filters/1/type");
    let backend =
        |filter: Value| rule(json!({ "backendRefs": [{ "name": "a", "port": 80, "filters": [filter] }] }));
    assert_eq!(backend(cors(any)), "/backendRefs/0/filters/0/type");
    assert_eq!(backend(json!({ "type": "URLRewrite" })), "/backendRefs/0/filters/0/urlRewrite");
    assert_eq!(backend(json!({ "type": "RequestRedirect", "requestRedirect": {} })), "");
    let timeouts = |request: &str, backend: &str| {
        rule(json!({ "timeouts": { "request": request, "backendRequest": backend } }))
    };
    assert_eq!(timeouts("2s", "2s"), "");
    assert_eq!(timeouts("0s", "1h"), "");
    assert_eq!(timeouts("2s", "3s"), "/timeouts/backendRequest");
    assert!(timeouts("2", "1s").contains("must be a duration"));
    let retry = |retry: Value| rule(json!({ "retry": retry }));
    assert_eq!(retry(json!({ "attempts": 10, "codes": [400, 599], "backoff": "100ms" })), "");
    assert_eq!(retry(json!({ "attempts": 11, "codes": [399] })), "/retry/attempts /retry/codes/0");
}

/// Route of the random comparison.
fn random_route() -> impl Strategy<Value = Value> {
    let host = prop::sample::subsequence(
        vec!["a.example.org", "b.a.example.org", "*.example.org", "*.a.example.org", "example.org"],
        0..3,
    );
    let path = (
        prop::sample::select(vec!["Exact", "PathPrefix"]),
        prop::sample::select(vec!["/", "/a", "/a/", "/a/b", "/ab"]),
    );
    let method = prop::option::of(prop::sample::select(vec!["GET", "POST"]));
    let fields = || prop::sample::subsequence(vec!["x", "y"], 0..=2);
    let one = (path, method, fields(), fields()).prop_map(|((kind, value), method, headers, query)| {
        let list = |names: Vec<&str>| names.into_iter().map(|name| json!({ "name": name, "value": "1" })).collect::<Vec<_>>();
        let mut one = json!({ "path": { "type": kind, "value": value }, "headers": list(headers), "queryParams": list(query) });
        if let Some(method) = method {
            one["method"] = method.into();
        }
        one
    });
    let rules = prop::collection::vec(prop::collection::vec(one, 0..3), 1..4);
    (host, rules).prop_map(|(hostnames, rules)| json!({ "hostnames": hostnames, "rules": rules }))
}

/// Decides a request by comparing all matches of all routes, in the order of the specification. Returns the route and rule.
fn scan(stage: &RouteStage, request: &TestRequest<'_>) -> Option<String> {
    let mut found = Vec::new();
    for (key, (created, spec)) in &stage.routes {
        let hosts: Vec<_> = spec.hostnames.iter().filter(|one| one.matches(&request.host)).collect();
        let host = hosts.iter().map(|one| (one.wildcard_base().is_none(), one.as_str().len())).max();
        if host.is_none() && !spec.hostnames.is_empty() {
            continue;
        }
        let host = host.unwrap_or((false, 0));
        let all = [HttpRouteMatch::default()];
        for (index, rule) in spec.rules.iter().enumerate() {
            let matches = if rule.matches.is_empty() { &all[..] } else { &rule.matches };
            for (position, one) in matches.iter().enumerate() {
                if !is_met(one, request) {
                    continue;
                }
                let is_prefix = one.path.match_type == PathMatchType::PathPrefix;
                let length = one.path.value.trim_end_matches('/').len();
                let path = (is_prefix, Reverse(length), one.method.is_none());
                let counts = (Reverse(one.headers.len()), Reverse(one.query_params.len()));
                let age = (created, key, index, position);
                let name = format!("{}-{index}", key.name);
                found.push(((Reverse(host), path, counts, age), name));
            }
        }
    }
    found.into_iter().min().map(|(_, name)| name)
}

fn is_met(one: &HttpRouteMatch, request: &TestRequest<'_>) -> bool {
    let path = match one.path.match_type {
        PathMatchType::Exact => request.path == one.path.value,
        PathMatchType::PathPrefix => {
            let elements =
                |path: &str| path.trim_end_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>();
            elements(request.path).starts_with(&elements(&one.path.value))
        }
    };
    let query = request.query.unwrap_or_default();
    path && one.method.is_none_or(|method| method.to_string() == request.method)
        && one.headers.iter().all(|field| request.header(&field.name).is_some())
        && one
            .query_params
            .iter()
            .all(|field| query.split('&').any(|pair| pair == format!("{}=1", field.name)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The compiled table gives the same decision as an ordered scan of all matches.
    #[test]
    fn the_table_decides_like_an_ordered_scan(
        routes in prop::collection::vec(random_route(), 0..5),
        requests in prop::collection::vec((
            prop::sample::select(vec!["GET", "POST"]),
            prop::sample::select(vec!["a.example.org", "b.a.example.org", "c.b.a.example.org", "example.org", "x.example.org", "example.net"]),
            prop::sample::select(vec!["/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/abc", "/a/b/c"]),
            prop::sample::select(vec!["", "?x=1", "?x=1&y=1", "?y=2"]),
            prop::sample::select(vec!["", " x:1", " x:1 y:1"]),
        ), 20),
    ) {
        let mut stage = RouteStage::new();
        let mut names = BTreeSet::new();
        for (index, spec) in routes.iter().enumerate() {
            let rules: Vec<_> = spec["rules"].as_array().unwrap().iter().enumerate().map(|(rule, matches)| {
                let name = format!("route-{index}-{rule}");
                names.insert(name.clone());
                json!({ "matches": matches, "backendRefs": [{ "name": name, "port": 80 }] })
            }).collect();
            let spec = json!({ "hostnames": spec["hostnames"], "rules": rules });
            // Some routes have the same age.
            stage.cluster.now -= i64::from(index % 2 == 0);
            stage.apply(http_route(&format!("route-{index}"), "same-namespace", &spec));
        }
        for name in names {
            stage.apply(json!({ "kind": "Service", "metadata": { "name": name, "namespace": "infra" }, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }));
            stage.apply(json!({ "kind": "EndpointSet", "metadata": { "name": name, "namespace": "infra" }, "spec": { "service": name, "endpoints": [{ "address": "10.1.0.1" }] } }));
        }
        let table = stage.table();
        for (method, host, path, query, headers) in requests {
            let text = format!("{method} {host}{path}{query}{headers}");
            let request = TestRequest::parse(&text);
            let expected = scan(&stage, &request).unwrap_or_else(|| "404".to_owned());
            prop_assert_eq!(request.decide(&table, 80, 0), expected, "{}", text);
        }
    }

    /// A pattern matches the names that both of two patterns match exactly if the pattern is their intersection.
    #[test]
    fn an_intersection_matches_the_common_names(
        one in prop::sample::select(vec!["a.b", "*.b", "*.a.b", "c.a.b", "b"]),
        other in prop::sample::select(vec!["a.b", "*.b", "*.a.b", "c.a.b", "b"]),
        host in prop::sample::select(vec!["a.b", "b", "c.a.b", "d.c.a.b", "x.b", "ab"]),
    ) {
        let (one, other) = (HostnamePattern::parse(one).unwrap(), HostnamePattern::parse(other).unwrap());
        let both = one.matches(host) && other.matches(host);
        prop_assert_eq!(one.intersection(&other).is_some_and(|common| common.matches(host)), both);
    }
}
