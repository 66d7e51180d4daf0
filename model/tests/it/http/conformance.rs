//! Rows of the conformance tests of the Gateway API: the decision for each request, and the conditions of each route.
//! `gateway/src/proxy/tests/conformance.rs` sends the same requests through sockets.

use std::borrow::Cow;

use model::observed::rollup::http_route_status;

use super::*;

/// Request of a row: `[METHOD ][https://][HOST]/PATH[?QUERY][ port=PORT][ sni=NAME][ HEADER:VALUE]…`.
pub(super) struct TestRequest<'a> {
    pub(super) method: &'a str,
    /// Port of the listener; `None` if it is that of the case.
    port: Option<u16>,
    server_name: Option<String>,
    pub(super) host: String,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    headers: Vec<(String, &'a str)>,
}

impl<'a> TestRequest<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let mut words = text.split(' ').peekable();
        let has_method = words.peek().is_some_and(|word| word.bytes().all(|c| c.is_ascii_uppercase()));
        let method = if has_method { words.next().unwrap() } else { "GET" };
        let target = words.next().unwrap();
        let (is_tls, target) = match target.strip_prefix("https://") {
            Some(target) => (true, target),
            None => (false, target),
        };
        let (host, rest) = target.split_at(target.find('/').unwrap());
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let host = if host.is_empty() { String::new() } else { normalize_host(host).unwrap() };
        let mut request = Self {
            method,
            port: is_tls.then_some(443),
            server_name: is_tls.then(|| host.clone()),
            host,
            path,
            query,
            headers: Vec::new(),
        };
        for word in words {
            if let Some(port) = word.strip_prefix("port=") {
                request.port = Some(port.parse().unwrap());
            } else if let Some(name) = word.strip_prefix("sni=") {
                request.server_name = Some(name.to_owned());
            } else {
                let (name, value) = word.split_once(':').unwrap();
                request.headers.push((name.to_ascii_lowercase(), value));
            }
        }
        request
    }

    pub(super) fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| Cow::Borrowed(*value))
    }

    pub(super) fn decide(&self, table: &HttpTable, port: u16, pick: u64) -> String {
        let header = |name: &str| self.header(name);
        let head = RequestHead {
            port: Port::new(self.port.unwrap_or(port)).unwrap(),
            server_name: self.server_name.as_deref(),
            method: self.method,
            host: &self.host,
            path: self.path,
            query: self.query,
            header: &header,
        };
        match route(table, &head, pick) {
            Decision::Fail { failure, .. } => failure.status().to_string(),
            Decision::Redirect { status, location, .. } => format!("{status} {location}"),
            Decision::Preflight { .. } => "204".to_owned(),
            Decision::Forward { backend, path, host, mirrors, .. } => {
                let path = path.map(|path| format!(" path={path}")).unwrap_or_default();
                let host = host.map(|host| format!(" host={host}")).unwrap_or_default();
                let mirrors = mirrors.iter().map(|(key, _)| format!(" mirror={}", key.service.name));
                format!("{}{path}{host}{}", backend.key.service.name, mirrors.collect::<String>())
            }
        }
    }
}

/// Returns the HttpRoute of a case, which names the Gateway `parent` unless it has parents of its own.
pub(super) fn http_route(name: &str, parent: &str, spec: &Value) -> Value {
    let mut reference = json!({ "name": parent });
    if let Some(section) = spec.get("section") {
        reference["sectionName"] = section.clone();
    }
    let parents = spec.get("parents").cloned().unwrap_or_else(|| json!([reference]));
    let namespace = spec.get("namespace").and_then(Value::as_str).unwrap_or("infra");
    let mut object = json!({
        "kind": "HttpRoute", "metadata": { "name": name, "namespace": namespace },
        "spec": { "parentRefs": parents, "rules": spec["rules"] },
    });
    if let Some(hostnames) = spec.get("hostnames") {
        object["spec"]["hostnames"] = hostnames.clone();
    }
    object
}

/// Returns the routes of a case.
fn routes_of(case: &Value) -> impl Iterator<Item = Value> {
    let parent = case["parent"].as_str().unwrap_or("same-namespace");
    let routes = case["routes"].as_array().unwrap().iter().enumerate();
    routes.map(move |(index, spec)| http_route(&format!("route-{index}"), parent, spec))
}

/// Each row of the table gets its backend, its status code or its redirection. Words that begin with `>` or `<` are headers
/// of the forwarded request and of the response, which only a gateway has.
#[test]
fn requests_get_the_decisions_of_the_table() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut failures = Vec::new();
    for case in &cases {
        let mut stage = RouteStage::new();
        routes_of(case).for_each(|route| stage.apply(route));
        let table = stage.table();
        let port = u16::try_from(case["port"].as_u64().unwrap_or(80)).unwrap();
        for row in case["rows"].as_array().unwrap() {
            let (text, expected) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
            let words = expected.split(' ').filter(|word| !word.starts_with(['<', '>']));
            let expected = words.collect::<Vec<_>>().join(" ");
            let pick = row.get(2).and_then(Value::as_u64).unwrap_or_default();
            let found = TestRequest::parse(text).decide(&table, port, pick);
            if found != expected {
                failures.push(format!("{}: {text} ({pick}): {found}, not {expected}", case["name"]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Routes of the cases with a status have its reasons, by the types of the conditions.
#[test]
fn routes_get_the_conditions_of_the_table() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    for case in cases.iter().filter(|case| case.get("status").is_some()) {
        let mut cluster = Cluster::new();
        let infrastructure = serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap();
        for mut object in infrastructure.into_iter().chain(routes_of(case)) {
            object["apiVersion"] = "tidegate/v1".into();
            cluster.apply(&object).unwrap_or_else(|refusal| panic!("{object}: {refusal:?}"));
        }
        for (name, expected) in case["status"].as_object().unwrap() {
            let is_named = |object: &&Arc<Object>| object.metadata.name.as_str() == name;
            let route = cluster.snapshot.list(Kind::HttpRoute, None, None).find(is_named).unwrap();
            let namespace = route.metadata.namespace.as_ref().unwrap();
            let status = http_route_status(&cluster.snapshot, namespace, route.as_http_route().unwrap());
            for word in expected.as_str().unwrap().split(' ') {
                let (of, reason) = word.split_once('=').unwrap();
                let mut conditions = status.conditions.iter();
                let condition = conditions.find(|one| format!("{:?}", one.condition_type) == of).unwrap();
                assert_eq!(format!("{:?}", condition.reason), reason, "{}", case["name"]);
            }
        }
    }
}
