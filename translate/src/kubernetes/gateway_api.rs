//! Translation of Gateways and HTTPRoutes of the Gateway API (`gateway.networking.k8s.io/v1`), of Ingresses, and of Secrets
//! with certificates, as a controller of a cluster does it.
//!
//! Invariant: no translated route or listener serves more requests than the object in the cluster. A listener or route with
//! a setting that Tidegate does not have is left out with its reason, and a backend that cannot be used keeps its share of the
//! requests, which then fails with 500 as the Gateway API requires.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Finding, Id, Settings, Severity, TranslationResult, document, labels_of};
use crate::{
    draft::Draft,
    ingress::{self, is_certificate},
    json::{entries, items, text},
    report::Fidelity,
};

/// Name of the controller in GatewayClasses and IngressClasses whose objects Tidegate handles.
pub const HTTP_CONTROLLER: &str = "tidegate.io/gateway";
/// API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// Name of a Service or Certificate that does not exist. The names of Services in a cluster have no dots, and names below
/// `invalid` are reserved for this use (RFC 6761 §6.4).
const ABSENT: &str = "0.invalid";
/// Annotation of an IngressClass for Ingresses without a class.
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// Annotation with the class of an Ingress, which `spec.ingressClassName` replaced.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
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

/// Classes of Tidegate in a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpClasses {
    /// Names of the GatewayClasses.
    pub gateways: BTreeSet<String>,
    /// Names of the IngressClasses.
    pub ingresses: BTreeSet<String>,
    /// True if one of the IngressClasses is that of Ingresses without a class.
    pub has_default: bool,
}

impl HttpClasses {
    /// Collects the classes whose controller is [`HTTP_CONTROLLER`].
    #[must_use]
    pub fn of<'a>(
        gateways: impl Iterator<Item = &'a Value>,
        ingresses: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let gateways =
            gateways.filter(|class| is_own_class(class)).map(|class| text(class, "/metadata/name"));
        let own = ingresses.filter(|class| text(class, "/spec/controller") == HTTP_CONTROLLER);
        let own: Vec<_> = own.collect();
        let annotation = |class: &&Value| {
            let annotations = class.pointer("/metadata/annotations");
            annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
        };
        Self {
            gateways: gateways.collect(),
            has_default: own.iter().any(annotation),
            ingresses: own.into_iter().map(|class| text(class, "/metadata/name")).collect(),
        }
    }

    /// Returns true if Tidegate handles a Gateway.
    #[must_use]
    pub fn own_gateway(&self, gateway: &Value) -> bool {
        self.gateways.contains(&text(gateway, "/spec/gatewayClassName"))
    }

    /// Returns true if Tidegate handles an Ingress.
    #[must_use]
    pub fn own_ingress(&self, ingress: &Value) -> bool {
        let class = text(ingress, "/spec/ingressClassName");
        let annotation = ingress.pointer("/metadata/annotations").and_then(|all| all.get(CLASS_ANNOTATION));
        let class = match annotation.and_then(Value::as_str) {
            Some(annotation) if class.is_empty() => annotation.to_owned(),
            Some(_) | None => class,
        };
        if class.is_empty() { self.has_default } else { self.ingresses.contains(&class) }
    }
}

/// Returns true if the controller of a GatewayClass is [`HTTP_CONTROLLER`].
#[must_use]
pub fn is_own_class(class: &Value) -> bool {
    text(class, "/spec/controllerName") == HTTP_CONTROLLER
}

/// Reason for which a condition of a route is false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteProblem {
    /// Reason of the Gateway API, such as `UnsupportedValue`.
    pub reason: &'static str,
    /// Description with the field.
    pub message: String,
}

/// Translation of an HTTPRoute.
#[derive(Debug, Clone, Default)]
pub struct RouteTranslation {
    /// HttpRoute, unless it is rejected, and findings.
    pub result: TranslationResult,
    /// Services that the rules name.
    pub backends: BTreeSet<Id>,
    /// Reason for which the route is left out; the condition `Accepted` is false for each parent.
    pub rejected: Option<RouteProblem>,
    /// Reason for which a backend cannot be used; the condition `ResolvedRefs` is false.
    pub unresolved: Option<RouteProblem>,
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

/// Translates a Gateway. Listeners with a setting that gateways do not have are left out.
#[must_use]
pub fn gateway(settings: &Settings, gateway: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    let namespace = text(gateway, "/metadata/namespace");
    let mut listeners = Vec::new();
    for (index, theirs) in items(gateway, "/spec/listeners").iter().enumerate() {
        match listener(&namespace, theirs) {
            Ok(listener) => listeners.push(listener),
            Err((field, message)) => {
                let field = format!("spec.listeners[{index}].{field}");
                made.find(Severity::NotSupported, field, format!("the listener is left out: {message}"));
            }
        }
    }
    let spec = gateway.get("spec").unwrap_or(&Value::Null);
    let known = ["gatewayClassName", "listeners", "infrastructure"];
    unknown(&mut made, "spec", spec, &known);
    if listeners.is_empty() {
        made.find(Severity::Invalid, "spec.listeners", "no listener can be served");
        return made;
    }
    let labels = labels_of(settings, gateway);
    let name = text(gateway, "/metadata/name");
    let spec = json!({ "listeners": listeners });
    made.finish(&document("Gateway", Some(&settings.name(&namespace)), &name, &labels, spec));
    made
}

/// Translates a listener.
///
/// # Errors
/// Returns the field and the reason for which it is left out.
fn listener(namespace: &str, theirs: &Value) -> Result<Value, (&'static str, String)> {
    let protocol = text(theirs, "/protocol");
    if !["HTTP", "HTTPS"].contains(&protocol.as_str()) {
        return Err(("protocol", format!("`{protocol}` is neither HTTP nor HTTPS")));
    }
    let mut listener = json!({
        "name": theirs.get("name"), "port": theirs.get("port"), "protocol": protocol,
    });
    let hostname = text(theirs, "/hostname");
    if !hostname.is_empty() {
        listener["hostname"] = json!(hostname);
    }
    let from = text(theirs, "/allowedRoutes/namespaces/from");
    match from.as_str() {
        "" | "Same" => {}
        "All" => listener["allowedRoutes"] = json!({ "namespaces": { "from": "All" } }),
        _ => return Err(("allowedRoutes.namespaces.from", format!("`{from}` is neither Same nor All"))),
    }
    let kinds = items(theirs, "/allowedRoutes/kinds");
    if !kinds.is_empty() && !kinds.iter().any(|kind| text(kind, "/kind") == "HTTPRoute") {
        return Err(("allowedRoutes.kinds", "it does not allow HTTPRoutes".to_owned()));
    }
    let Some(tls) = theirs.get("tls").filter(|tls| protocol == "HTTPS" && tls.is_object()) else {
        return Ok(listener);
    };
    let mode = text(tls, "/mode");
    if !["", "Terminate"].contains(&mode.as_str()) {
        return Err(("tls.mode", format!("`{mode}` is not Terminate")));
    }
    let more = entries(tls, "").map(|(field, _)| field);
    if let Some(field) = more.into_iter().find(|field| !["mode", "certificateRefs"].contains(field)) {
        return Err(("tls", format!("`{field}` is not supported")));
    }
    let mut names: Vec<_> = certificates(namespace, tls).into_iter().map(|id| id.name).collect();
    if names.is_empty() {
        names.push(ABSENT.to_owned());
    }
    let refs: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    listener["tls"] = json!({ "certificateRefs": refs });
    Ok(listener)
}

/// Returns the Secrets in the namespace of a Gateway that the TLS settings of a listener name. References to other
/// namespaces are not permitted without a ReferenceGrant, which is not supported.
fn certificates(namespace: &str, tls: &Value) -> Vec<Id> {
    let own = items(tls, "/certificateRefs").iter().filter(|one| {
        ["", "Secret"].contains(&text(one, "/kind").as_str())
            && text(one, "/group").is_empty()
            && ["", namespace].contains(&text(one, "/namespace").as_str())
    });
    let ids = own.map(|one| Id { namespace: namespace.to_owned(), name: text(one, "/name") });
    ids.collect()
}

/// Returns the Secrets with certificates that a Gateway or Ingress names.
#[must_use]
pub fn named_certificates(object: &Value) -> BTreeSet<Id> {
    let namespace = text(object, "/metadata/namespace");
    let of_listeners = items(object, "/spec/listeners").iter().filter_map(|listener| listener.get("tls"));
    let of_listeners = of_listeners.flat_map(|tls| certificates(&namespace, tls));
    let of_ingress = items(object, "/spec/tls").iter().map(|tls| text(tls, "/secretName"));
    let of_ingress = of_ingress.filter(|name| !name.is_empty());
    of_listeners.chain(of_ingress.map(|name| Id { namespace: namespace.clone(), name })).collect()
}

/// Translates a Secret with a certificate. The result contains no object if the Secret is of another type or malformed.
#[must_use]
pub fn certificate(settings: &Settings, secret: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    if !is_certificate(secret) {
        made.find(Severity::Invalid, "type", "must be kubernetes.io/tls");
        return made;
    }
    let Some((chain, key)) = ingress::certificate_parts(secret) else {
        made.find(Severity::Invalid, "data", "must have `tls.crt` and `tls.key`");
        return made;
    };
    let namespace = settings.name(&text(secret, "/metadata/namespace"));
    let spec = json!({ "certificate": chain, "privateKey": key });
    let labels = labels_of(settings, &Value::Null);
    made.finish(&document("Certificate", Some(&namespace), &text(secret, "/metadata/name"), &labels, spec));
    made
}

/// Translates an HTTPRoute with the parents for which `is_own` returns true.
#[must_use]
pub fn http_route(settings: &Settings, route: &Value, is_own: impl Fn(&Id) -> bool) -> RouteTranslation {
    let mut made = RouteTranslation::default();
    let own = items(route, "/spec/parentRefs").iter();
    let own: Vec<_> =
        own.filter_map(|parent| Some((parent, parent_gateway(route, parent).filter(&is_own)?))).collect();
    if own.is_empty() {
        return made;
    }
    let parents: Vec<_> = own.into_iter().map(|(parent, id)| parent_ref(settings, parent, &id)).collect();
    let mut rules = Vec::new();
    for (index, theirs) in items(route, "/spec/rules").iter().enumerate() {
        match rule(&mut made, &format!("spec.rules[{index}]"), route, theirs) {
            Ok(rule) => rules.push(rule),
            Err(message) => {
                made.rejected = Some(RouteProblem { reason: "UnsupportedValue", message: message.clone() });
                let (field, message) = message.split_once(": ").unwrap_or(("spec.rules", &message));
                made.result.find(Severity::NotSupported, field, format!("the route is left out: {message}"));
                return made;
            }
        }
    }
    let spec = route.get("spec").unwrap_or(&Value::Null);
    unknown(&mut made.result, "spec", spec, &["parentRefs", "hostnames", "rules"]);
    let mut spec = json!({ "parentRefs": parents, "rules": rules });
    let hostnames = items(route, "/spec/hostnames");
    if !hostnames.is_empty() {
        spec["hostnames"] = json!(hostnames);
    }
    let labels = labels_of(settings, route);
    let namespace = settings.name(&text(route, "/metadata/namespace"));
    let name = text(route, "/metadata/name");
    if !made.result.finish(&document("HttpRoute", Some(&namespace), &name, &labels, spec)) {
        let invalid = made.result.findings.iter().find(|finding| finding.severity == Severity::Invalid);
        let message = invalid.map(|one| format!("{}: {}", one.field, one.message)).unwrap_or_default();
        made.rejected = Some(RouteProblem { reason: "UnsupportedValue", message });
    }
    made
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
fn rule(made: &mut RouteTranslation, at: &str, route: &Value, theirs: &Value) -> Result<Value, String> {
    let mut rule = Map::new();
    if let Some(name) = theirs.get("name").filter(|name| !name.is_null()) {
        rule.insert("name".to_owned(), name.clone());
    }
    let matches: Vec<_> = items(theirs, "/matches")
        .iter()
        .enumerate()
        .map(|(index, one)| route_match(&format!("{at}.matches[{index}]"), one))
        .collect::<Result<_, _>>()?;
    let filters = filters(made, at, route, theirs)?;
    let mut backends = Vec::new();
    for (index, one) in items(theirs, "/backendRefs").iter().enumerate() {
        backends.push(backend(made, &format!("{at}.backendRefs[{index}]"), route, one)?);
    }
    for (field, list) in [("matches", matches), ("filters", filters), ("backendRefs", backends)] {
        if !list.is_empty() {
            rule.insert(field.to_owned(), json!(list));
        }
    }
    for (field, known) in
        [("timeouts", &["request", "backendRequest"][..]), ("retry", &["codes", "attempts", "backoff"])]
    {
        let Some(settings) = theirs.get(field).filter(|settings| settings.is_object()) else { continue };
        unknown(&mut made.result, &format!("{at}.{field}"), settings, known);
        rule.insert(field.to_owned(), only(settings, known));
    }
    let known = ["name", "matches", "filters", "backendRefs", "timeouts", "retry"];
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

/// Translates the filters of a rule or backend.
fn filters(
    made: &mut RouteTranslation,
    at: &str,
    route: &Value,
    theirs: &Value,
) -> Result<Vec<Value>, String> {
    let all = items(theirs, "/filters").iter().enumerate();
    all.map(|(index, one)| filter(made, &format!("{at}.filters[{index}]"), route, one)).collect()
}

fn filter(made: &mut RouteTranslation, at: &str, route: &Value, theirs: &Value) -> Result<Value, String> {
    let word = text(theirs, "/type");
    if word == MIRROR {
        let Some(mirror) = theirs.get("requestMirror").filter(|mirror| mirror.is_object()) else {
            return Err(format!("{at}.requestMirror: must be set"));
        };
        let at = format!("{at}.requestMirror");
        unknown(&mut made.result, &at, mirror, &["backendRef", "percent", "fraction"]);
        let mut own = only(mirror, &["percent", "fraction"]);
        let reference = mirror.get("backendRef").unwrap_or(&Value::Null);
        own["backendRef"] = service_port(made, &format!("{at}.backendRef"), route, reference);
        return Ok(json!({ "type": word, "requestMirror": own }));
    }
    let Some((_, field)) = FILTERS.iter().find(|(name, _)| *name == word) else {
        return Err(format!("{at}.type: `{word}` is not supported"));
    };
    Ok(json!({ "type": word, *field: theirs.get(*field) }))
}

/// Translates a backend. A reference that cannot be used becomes one to a Service that does not exist.
fn backend(made: &mut RouteTranslation, at: &str, route: &Value, theirs: &Value) -> Result<Value, String> {
    let filters = filters(made, at, route, theirs)?;
    let mut backend = service_port(made, at, route, theirs);
    backend["weight"] = json!(theirs.get("weight").and_then(Value::as_u64).unwrap_or(1));
    if !filters.is_empty() {
        backend["filters"] = json!(filters);
    }
    Ok(backend)
}

/// Translates the reference of a backend or mirror to a port of a Service. A reference that cannot be used becomes one to a
/// Service that does not exist: a backend keeps its share of the requests, and a mirror receives none.
fn service_port(made: &mut RouteTranslation, at: &str, route: &Value, theirs: &Value) -> Value {
    let own = text(route, "/metadata/namespace");
    let (kind, group) = (text(theirs, "/kind"), text(theirs, "/group"));
    let namespace = text(theirs, "/namespace");
    let (name, port) = (text(theirs, "/name"), theirs.get("port").and_then(Value::as_u64));
    let problem = if !["", "Service"].contains(&kind.as_str()) || !group.is_empty() {
        Some(RouteProblem { reason: "InvalidKind", message: format!("{at}.kind: `{kind}` is not Service") })
    } else if !["", own.as_str()].contains(&namespace.as_str()) {
        let message = format!("{at}.namespace: Services of other namespaces are not permitted");
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
    made.backends.insert(Id { namespace: own, name: name.clone() });
    json!({ "name": name, "port": port })
}

/// Returns the fields of an object that are in the list and set.
fn only(object: &Value, known: &[&str]) -> Value {
    let set = known.iter().filter_map(|field| Some((*field, object.get(*field)?)));
    let set = set.filter(|(_, value)| !value.is_null());
    set.map(|(field, value)| (field.to_owned(), value.clone())).collect::<Map<_, _>>().into()
}

/// Reports the fields of an object that are not in the list.
fn unknown(made: &mut TranslationResult, at: &str, object: &Value, known: &[&str]) {
    let used = entries(object, "").filter(|(field, value)| {
        !known.contains(field) && !value.is_null() && **value != json!([]) && **value != json!({})
    });
    let fields: Vec<_> = used.map(|(field, _)| field.to_owned()).collect();
    for field in fields {
        made.find(Severity::NotSupported, format!("{at}.{field}"), "not supported");
    }
}

/// Translation of the Ingresses of one namespace.
#[derive(Debug, Clone, Default)]
pub struct IngressTranslation {
    /// Gateways and HttpRoutes.
    pub objects: Vec<model::kinds::resource::Object>,
    /// Findings by Ingress.
    pub findings: BTreeMap<Id, Vec<Finding>>,
    /// Services that the rules name.
    pub backends: BTreeSet<Id>,
}

/// Translates all Ingresses of Tidegate in one namespace, which share Gateways, as `tidegate import` does. `services` are the
/// Services of the namespace, for the numbers of named ports.
#[must_use]
pub fn ingresses(settings: &Settings, ingresses: &[&Value], services: &[&Value]) -> IngressTranslation {
    let mut draft = Draft::without_certificates();
    let documents: Vec<_> =
        services.iter().chain(ingresses).map(|document| (IMPORT_FILE, *document)).collect();
    ingress::all(&mut draft, &documents);
    let imported = draft.finish();
    let mut translation = IngressTranslation::default();
    for object in ingresses {
        translation.findings.insert(Id::of(object), findings(&imported.report, object));
    }
    for mut object in imported.objects {
        let namespace = text(&object, "/metadata/namespace");
        let rules = items(&object, "/spec/rules").iter().flat_map(|rule| items(rule, "/backendRefs"));
        let names = rules.map(|backend| Id { namespace: namespace.clone(), name: text(backend, "/name") });
        translation.backends.extend(names);
        object["metadata"]["namespace"] = json!(settings.name(&namespace));
        let labels = labels_of(settings, &Value::Null);
        if labels != json!({}) {
            object["metadata"]["labels"] = labels;
        }
        let mut made = TranslationResult::default();
        made.finish(&object);
        translation.objects.append(&mut made.objects);
    }
    translation
}

/// Prefix of the titles in the report of an import.
const IMPORT_FILE: &str = "cluster";

/// Returns the lines of a report about one Ingress that are not about exact translations.
fn findings(report: &crate::Report, ingress: &Value) -> Vec<Finding> {
    let title = format!("{IMPORT_FILE}: Ingress {}", text(ingress, "/metadata/name"));
    let lines = report.lines().filter(|(of, _, _)| *of == title);
    let lines = lines.filter_map(|(_, fidelity, line)| {
        let severity = match fidelity {
            Fidelity::Approximated => Severity::Approximated,
            Fidelity::Ignored => Severity::NotSupported,
            Fidelity::Mapped | Fidelity::Note => return None,
        };
        let (field, message) = line.split_once(": ").unwrap_or(("spec", line));
        Some(Finding { severity, field: field.to_owned(), message: message.to_owned() })
    });
    let mut all: Vec<_> = lines.collect();
    all.sort();
    all.dedup();
    all
}
