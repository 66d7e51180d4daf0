//! Translation of HTTPRoutes and GRPCRoutes to HttpRoutes, and of TLSRoutes to TlsRoutes.
//!
//! A call of gRPC is a POST request to `/SERVICE/METHOD`, so that a GRPCRoute is an HttpRoute with conditions for paths. Its name in
//! Tidegate ends with `.grpc`, because an HTTPRoute may have the same name.

mod refuse;
mod tls;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::refuse::reject;
use super::{
    ABSENT, GATEWAY_GROUP, Id, ReferenceGrants, RouteProblem, copy_name, listener::supported_kinds, unknown,
};
use crate::{
    json::{items, text},
    kubernetes::{Settings, Severity, TranslationResult, document, labels_of},
};

/// Kind of a route that gateways have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// HTTPRoute.
    Http,
    /// GRPCRoute.
    Grpc,
    /// TLSRoute.
    Tls,
}

impl RouteKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Tls];

    /// Returns the name of the kind in the Gateway API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Grpc => "GRPCRoute",
            Self::Tls => "TLSRoute",
        }
    }

    /// Returns true if listeners with a protocol have routes of the kind.
    pub(super) fn is_for(self, protocol: &str) -> bool {
        match self {
            Self::Http | Self::Grpc => ["HTTP", "HTTPS"].contains(&protocol),
            Self::Tls => protocol == "TLS",
        }
    }

    /// Returns the ending of the names of routes that are translated from this kind.
    const fn ending(self) -> &'static str {
        match self {
            Self::Http | Self::Tls => "",
            Self::Grpc => ".grpc",
        }
    }
}

/// Types of filters that gateways have, each with the field of its settings.
const FILTERS: [(&str, &str); 5] = [
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
    ("CORS", "cors"),
];
/// Type of a filter that sends copies of requests to a second backend.
const MIRROR: &str = "RequestMirror";

/// Translation of a route.
#[derive(Debug, Clone, Default)]
pub struct RouteTranslation {
    /// HttpRoute or TlsRoute, unless it is rejected or no parent accepts it, and findings.
    pub result: TranslationResult,
    /// Parents that are Gateways of Tidegate.
    pub parents: Vec<ParentTranslation>,
    /// Services that the rules name.
    pub backends: BTreeSet<Id>,
    /// Reason for which the route is left out; the condition `Accepted` is false for each parent.
    pub rejected: Option<RouteProblem>,
    /// Reason for which a backend cannot be used; the condition `ResolvedRefs` is false.
    pub unresolved: Option<RouteProblem>,
}

/// Parent of a route that is a Gateway of Tidegate.
#[derive(Debug, Clone)]
pub struct ParentTranslation {
    /// Reference as in the route.
    pub reference: Value,
    /// References of the translated route, or the reason for which the parent does not accept the route.
    pub translated: Result<Vec<Value>, RouteProblem>,
}

/// Returns the namespace and name of the Gateway that a parent reference of a route names, or `None` if it names another
/// kind of object.
#[must_use]
pub fn parent_gateway(route: &Value, parent: &Value) -> Option<Id> {
    let is = |field: &str, word: &str| {
        let found = parent.get(field).and_then(Value::as_str);
        found.is_none_or(|found| found == word)
    };
    if !is("group", GATEWAY_GROUP) || !is("kind", "Gateway") {
        return None;
    }
    let namespace = text(parent, "/namespace");
    let namespace = if namespace.is_empty() { text(route, "/metadata/namespace") } else { namespace };
    Some(Id { namespace, name: text(parent, "/name") })
}

/// Route that is translated, with its kind and the permissions for its references.
#[derive(Clone, Copy)]
struct RouteSource<'a> {
    kind: RouteKind,
    route: &'a Value,
    grants: &'a ReferenceGrants,
}

/// Translates a route with the parents for which `own` returns a Gateway. Services of other namespaces are the copies of those
/// that `grants` allow.
#[must_use]
pub fn route<'a>(
    settings: &Settings,
    kind: RouteKind,
    grants: &ReferenceGrants,
    route: &Value,
    own: impl Fn(&Id) -> Option<&'a Value>,
) -> RouteTranslation {
    let parents = items(route, "/spec/parentRefs").iter().filter_map(|reference| {
        let id = parent_gateway(route, reference)?;
        let translated = parent_refs(settings, kind, reference, &id, own(&id)?);
        Some(ParentTranslation { reference: reference.clone(), translated })
    });
    let mut made = RouteTranslation { parents: parents.collect(), ..RouteTranslation::default() };
    let parents = made.parents.iter().filter_map(|parent| parent.translated.as_ref().ok()).flatten();
    let parents: Vec<Value> = parents.cloned().collect();
    if parents.is_empty() {
        return made;
    }
    let source = RouteSource { kind, route, grants };
    if kind == RouteKind::Tls {
        tls::translate(&mut made, settings, source, &parents);
        return made;
    }
    let mut rules = Vec::new();
    for (index, theirs) in items(route, "/spec/rules").iter().enumerate() {
        match rule(&mut made, source, &format!("spec.rules[{index}]"), theirs) {
            Ok(rule) => rules.push(rule),
            Err(message) => {
                let (field, words) = message.split_once(": ").unwrap_or(("spec.rules", &message));
                let words = format!(
                    "the route is left out, and requests for its paths are refused with 500: {words}"
                );
                made.result.find(Severity::NotSupported, field, words);
                reject(&mut made, settings, source, &parents, message);
                return made;
            }
        }
    }
    let spec = route.get("spec").unwrap_or(&Value::Null);
    unknown(&mut made.result, "spec", spec, &["parentRefs", "hostnames", "rules"]);
    let document = http_route(settings, source, &parents, rules);
    if !made.result.finish(&document) {
        let invalid = made.result.findings.iter().find(|finding| finding.severity == Severity::Invalid);
        let message = invalid.map(|one| format!("{}: {}", one.field, one.message)).unwrap_or_default();
        let words = "the route is left out, and requests for its paths are refused with 500";
        made.result.find(Severity::NotSupported, "spec.rules", words);
        reject(&mut made, settings, source, &parents, message);
    }
    made
}

/// Returns the HttpRoute of a route with the given parents and rules.
fn http_route(settings: &Settings, source: RouteSource<'_>, parents: &[Value], rules: Vec<Value>) -> Value {
    let RouteSource { kind, route, .. } = source;
    let mut spec = json!({ "parentRefs": parents, "rules": rules });
    let hostnames = items(route, "/spec/hostnames");
    if !hostnames.is_empty() {
        spec["hostnames"] = json!(hostnames);
    }
    let labels = labels_of(settings, route);
    let namespace = settings.name(&text(route, "/metadata/namespace"));
    let name = text(route, "/metadata/name") + kind.ending();
    document("HttpRoute", Some(&namespace), &name, &labels, spec)
}

/// Returns the references to the listeners of a Gateway that a parent of a route names and that allow routes of the kind.
///
/// # Errors
/// Returns the reason if none of the named listeners allows them.
fn parent_refs(
    settings: &Settings,
    kind: RouteKind,
    parent: &Value,
    id: &Id,
    gateway: &Value,
) -> Result<Vec<Value>, RouteProblem> {
    let is_named = |listener: &&Value| {
        let is = |own: &str, field: &str| {
            parent.get(own).is_none_or(|value| value.is_null() || listener.get(field) == Some(value))
        };
        is("sectionName", "name") && is("port", "port")
    };
    let named: Vec<_> = items(gateway, "/spec/listeners").iter().filter(is_named).collect();
    // A route attaches to no listener of another protocol, whatever that one allows.
    let served: Vec<_> = named
        .iter()
        .filter(|one| kind.is_for(&text(one, "/protocol")) && !supported_kinds(one).is_empty())
        .collect();
    let allowed: Vec<_> = served.iter().filter(|one| supported_kinds(one).contains(&kind)).collect();
    let reference = parent_ref(settings, parent, id);
    if named.is_empty() || (allowed.len() == served.len() && !served.is_empty()) {
        return Ok(vec![reference]);
    }
    if allowed.is_empty() {
        let message = format!("the listeners do not allow the kind {}", kind.as_str());
        return Err(RouteProblem { reason: "NotAllowedByListeners", message });
    }
    let sections = allowed.into_iter().map(|listener| {
        let mut reference = reference.clone();
        reference["sectionName"] = json!(text(listener, "/name"));
        reference
    });
    Ok(sections.collect())
}

fn parent_ref(settings: &Settings, parent: &Value, id: &Id) -> Value {
    let mut reference = json!({ "name": id.name, "namespace": settings.name(&id.namespace) });
    for field in ["sectionName", "port"] {
        if let Some(value) = parent.get(field).filter(|value| !value.is_null()) {
            reference[field] = value.clone();
        }
    }
    reference
}

/// Translates a rule.
///
/// # Errors
/// Returns the field and the reason for which the route is left out, as `FIELD: REASON`.
fn rule(
    made: &mut RouteTranslation,
    source: RouteSource<'_>,
    at: &str,
    theirs: &Value,
) -> Result<Value, String> {
    let kind = source.kind;
    let mut rule = Map::new();
    if let Some(name) = theirs.get("name").filter(|name| !name.is_null()) {
        rule.insert("name".to_owned(), name.clone());
    }
    let matches: Vec<Value> = items(theirs, "/matches")
        .iter()
        .enumerate()
        .map(|(index, one)| {
            let at = format!("{at}.matches[{index}]");
            match kind {
                RouteKind::Http | RouteKind::Tls => route_match(&at, one),
                RouteKind::Grpc => call_match(&at, one),
            }
        })
        .collect::<Result<_, _>>()?;
    let matches = match (kind, matches.is_empty()) {
        // Calls of gRPC are POST requests.
        (RouteKind::Grpc, true) => vec![json!({ "method": "POST" })],
        (RouteKind::Grpc | RouteKind::Http | RouteKind::Tls, _) => matches,
    };
    let filters = filters(made, source, at, theirs)?;
    let mut backends = Vec::new();
    for (index, one) in items(theirs, "/backendRefs").iter().enumerate() {
        backends.push(backend(made, source, &format!("{at}.backendRefs[{index}]"), one)?);
    }
    for (field, list) in [("matches", matches), ("filters", filters), ("backendRefs", backends)] {
        if !list.is_empty() {
            rule.insert(field.to_owned(), json!(list));
        }
    }
    let known = ["name", "matches", "filters", "backendRefs", "timeouts", "retry"];
    if kind == RouteKind::Grpc {
        // Streams last as long as client and server want.
        rule.insert("timeouts".to_owned(), json!({ "request": "0s" }));
        unknown(&mut made.result, at, theirs, &known[..4]);
        return Ok(Value::Object(rule));
    }
    for (field, known) in
        [("timeouts", &["request", "backendRequest"][..]), ("retry", &["codes", "attempts", "backoff"])]
    {
        let Some(settings) = theirs.get(field).filter(|settings| settings.is_object()) else { continue };
        unknown(&mut made.result, &format!("{at}.{field}"), settings, known);
        rule.insert(field.to_owned(), only(settings, known));
    }
    unknown(&mut made.result, at, theirs, &known);
    Ok(Value::Object(rule))
}

fn route_match(at: &str, theirs: &Value) -> Result<Value, String> {
    let word = text(theirs, "/path/type");
    if !["", "Exact", "PathPrefix"].contains(&word.as_str()) {
        return Err(format!("{at}.path.type: `{word}` is not supported"));
    }
    for field in ["headers", "queryParams"] {
        for (index, one) in items(theirs, &format!("/{field}")).iter().enumerate() {
            let word = text(one, "/type");
            if !["", "Exact"].contains(&word.as_str()) {
                return Err(format!("{at}.{field}[{index}].type: `{word}` is not supported"));
            }
        }
    }
    Ok(theirs.clone())
}

/// Translates a match of a GRPCRoute. A service is the first element of the path, and its method the second one.
fn call_match(at: &str, theirs: &Value) -> Result<Value, String> {
    let word = text(theirs, "/method/type");
    if !["", "Exact"].contains(&word.as_str()) {
        return Err(format!("{at}.method.type: `{word}` is not supported"));
    }
    let (service, method) = (text(theirs, "/method/service"), text(theirs, "/method/method"));
    let path = match (service.as_str(), method.as_str()) {
        ("", "") => json!({ "type": "PathPrefix", "value": "/" }),
        (service, "") => json!({ "type": "PathPrefix", "value": format!("/{service}") }),
        ("", _) => return Err(format!("{at}.method.service: must be set beside `method`")),
        (service, method) => json!({ "type": "Exact", "value": format!("/{service}/{method}") }),
    };
    let mut call = json!({ "method": "POST", "path": path });
    if let Some(headers) = theirs.get("headers").filter(|headers| !headers.is_null()) {
        call["headers"] = headers.clone();
    }
    route_match(at, &call)
}

/// Translates the filters of a rule or backend.
fn filters(
    made: &mut RouteTranslation,
    source: RouteSource<'_>,
    at: &str,
    theirs: &Value,
) -> Result<Vec<Value>, String> {
    let all = items(theirs, "/filters").iter().enumerate();
    all.map(|(index, one)| filter(made, source, &format!("{at}.filters[{index}]"), one)).collect()
}

fn filter(
    made: &mut RouteTranslation,
    source: RouteSource<'_>,
    at: &str,
    theirs: &Value,
) -> Result<Value, String> {
    let word = text(theirs, "/type");
    if word == MIRROR {
        let Some(mirror) = theirs.get("requestMirror").filter(|mirror| mirror.is_object()) else {
            return Err(format!("{at}.requestMirror: must be set"));
        };
        let at = format!("{at}.requestMirror");
        unknown(&mut made.result, &at, mirror, &["backendRef", "percent", "fraction"]);
        let mut own = only(mirror, &["percent", "fraction"]);
        let reference = mirror.get("backendRef").unwrap_or(&Value::Null);
        own["backendRef"] = service_port(made, source, &format!("{at}.backendRef"), reference);
        return Ok(json!({ "type": word, "requestMirror": own }));
    }
    let Some((_, field)) = FILTERS.iter().find(|(name, _)| *name == word) else {
        return Err(format!("{at}.type: `{word}` is not supported"));
    };
    Ok(json!({ "type": word, *field: theirs.get(*field) }))
}

/// Translates a backend. A reference that cannot be used becomes one to a Service that does not exist.
fn backend(
    made: &mut RouteTranslation,
    source: RouteSource<'_>,
    at: &str,
    theirs: &Value,
) -> Result<Value, String> {
    let filters = filters(made, source, at, theirs)?;
    let mut backend = service_port(made, source, at, theirs);
    backend["weight"] = json!(theirs.get("weight").and_then(Value::as_u64).unwrap_or(1));
    if !filters.is_empty() {
        backend["filters"] = json!(filters);
    }
    Ok(backend)
}

/// Translates the reference of a backend or mirror to a port of a Service. A reference that cannot be used becomes one to a
/// Service that does not exist: a backend keeps its share of the requests, and a mirror receives none.
fn service_port(made: &mut RouteTranslation, source: RouteSource<'_>, at: &str, theirs: &Value) -> Value {
    let own = text(source.route, "/metadata/namespace");
    let (kind, group) = (text(theirs, "/kind"), text(theirs, "/group"));
    let namespace = Some(text(theirs, "/namespace")).filter(|namespace| !namespace.is_empty());
    let id = Id { namespace: namespace.unwrap_or_else(|| own.clone()), name: text(theirs, "/name") };
    let (name, port) = (text(theirs, "/name"), theirs.get("port").and_then(Value::as_u64));
    let problem = if !["", "Service"].contains(&kind.as_str()) || !group.is_empty() {
        Some(RouteProblem { reason: "InvalidKind", message: format!("{at}.kind: `{kind}` is not Service") })
    } else if !source.grants.allow(source.kind.as_str(), &own, "Service", &id) {
        let message =
            format!("{at}.namespace: no ReferenceGrant allows the Service {}/{}", id.namespace, id.name);
        Some(RouteProblem { reason: "RefNotPermitted", message })
    } else if port.is_none() {
        Some(RouteProblem { reason: "InvalidKind", message: format!("{at}.port: must be set for a Service") })
    } else {
        None
    };
    if let Some(problem) = problem {
        let (field, message) = problem.message.split_once(": ").unwrap_or((at, &problem.message));
        made.result.find(Severity::NotSupported, field, message);
        made.unresolved.get_or_insert(problem);
        return json!({ "name": ABSENT, "port": 1 });
    }
    let name = if id.namespace == own { name } else { copy_name(&id) };
    made.backends.insert(id);
    json!({ "name": name, "port": port })
}

/// Returns the fields of an object that are in the list and set.
fn only(object: &Value, known: &[&str]) -> Value {
    let set = known.iter().filter_map(|field| Some((*field, object.get(*field)?)));
    let set = set.filter(|(_, value)| !value.is_null());
    set.map(|(field, value)| (field.to_owned(), value.clone())).collect::<Map<_, _>>().into()
}
