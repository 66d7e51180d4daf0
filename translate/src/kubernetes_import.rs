//! Import of Services, Endpoints, EndpointSlices and Nodes from Kubernetes manifests. Fields are translated
//! as by the adapter in proxy mode ([`crate::kubernetes`]), except where the adapter reads the running
//! cluster.

use std::collections::BTreeSet;

use model::kinds::resource::{API_VERSION, Kind};
use serde_json::{Value, json};

use crate::{
    draft::Draft,
    json::{items, text},
    kubernetes::{
        self, Claim, Finding, Mode, SERVICE_NAME_LABEL, Settings, Severity, Surroundings, TranslationResult,
        fields::{self, FieldMapping},
    },
};

/// Namespace of objects without one, as in a cluster.
const NAMESPACE_DEFAULT: &str = "default";

/// Finds the Services for which the input contains EndpointSlices or Endpoints, and records them in the
/// draft.
pub(crate) fn note_endpoints<'a>(draft: &mut Draft, documents: impl Iterator<Item = &'a Value>) {
    for document in documents {
        let namespace = namespace(document);
        match text(document, "/kind").as_str() {
            "EndpointSlice" => drop(draft.sliced.insert((namespace, service_of(document)))),
            "Endpoints" => drop(draft.with_endpoints.insert((namespace, text(document, "/metadata/name")))),
            _ => {}
        }
    }
}

fn namespace(document: &Value) -> String {
    let namespace = text(document, "/metadata/namespace");
    if namespace.is_empty() { NAMESPACE_DEFAULT.to_owned() } else { namespace }
}

/// Returns the name of the Service to which an EndpointSlice belongs.
fn service_of(slice: &Value) -> String {
    let labels = slice.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(SERVICE_NAME_LABEL)?.as_str()).unwrap_or_default().to_owned()
}

/// Translates a document of kind Service, EndpointSlice, Endpoints or Node.
pub(crate) fn document(draft: &mut Draft, document: &Value, kind: &str) {
    if text(document, "/apiVersion") == API_VERSION {
        draft.report.ignored("", "already a Tidegate object: use `tidegate apply`");
        return;
    }
    let mut document = document.clone();
    let is_namespaced = kind != "Node";
    if let (true, Some(metadata)) =
        (is_namespaced, document.pointer_mut("/metadata").and_then(Value::as_object_mut))
    {
        let is_named = metadata.get("namespace").is_some_and(|name| !name.is_null() && *name != json!(""));
        if !is_named {
            metadata.insert("namespace".to_owned(), json!(NAMESPACE_DEFAULT));
        }
    }
    match kind {
        "Service" => service(draft, &document),
        "EndpointSlice" => slice(draft, &document),
        "Endpoints" => endpoints(draft, &document),
        _ => node(draft, &document),
    }
}

/// Returns the settings of an adapter in proxy mode that mirrors a single cluster and handles the class of
/// the given Service.
fn settings(service: Option<&Value>) -> Settings {
    let class = service.and_then(|service| service.pointer("/spec/loadBalancerClass")?.as_str());
    Settings { cluster: None, mode: Mode::Proxy, class: class.map(ToOwned::to_owned) }
}

fn service(draft: &mut Draft, document: &Value) {
    let settings = settings(Some(document));
    if kubernetes::claim(&settings, document) == Claim::None {
        let said =
            "left out: its label `service.kubernetes.io/service-proxy-name` assigns it to another proxy";
        draft.report.ignored("metadata.labels", said);
        return;
    }
    let mut made = kubernetes::service(&settings, &Surroundings::default(), document);
    address_there(document, &mut made);
    // The class selects a load balancer; in an import Tidegate is the only one.
    if text(document, "/spec/type") == "LoadBalancer" && settings.class.is_some() {
        let message = "Tidegate assigns an address regardless of the class";
        made.findings.push(Finding {
            severity: Severity::Approximated,
            field: "spec.loadBalancerClass".to_owned(),
            message: message.to_owned(),
        });
    }
    selector(draft, document, &mut made);
    put(draft, fields::Kind::Service, Kind::Service, document, made);
}

/// Reports the current load balancer addresses of a Service if the translated Service does not request
/// addresses, because any address may then be assigned.
fn address_there(document: &Value, made: &mut TranslationResult) {
    let is_asked =
        made.documents.iter().any(|object| object.pointer("/spec/loadBalancer/addresses").is_some());
    let there = items(document, "/status/loadBalancer/ingress");
    if !there.is_empty() && !is_asked {
        let all = there.iter().map(|entry| text(entry, "/ip")).collect::<Vec<_>>().join(", ");
        made.findings.push(Finding {
            severity: Severity::Approximated,
            field: "status.loadBalancer".to_owned(),
            message: format!(
                "{all} is not requested: any address may be assigned, unless spec.loadBalancer.addresses \
                 requests it"
            ),
        });
    }
}

/// Copies the selector of a Service to the translated Service, so that it selects Workloads. If the input
/// contains endpoints of the Service, the selector is left out and reported.
fn selector(draft: &Draft, document: &Value, made: &mut TranslationResult) {
    let selector = document
        .pointer("/spec/selector")
        .filter(|value| value.as_object().is_some_and(|map| !map.is_empty()));
    let Some(selector) = selector else { return };
    let id = (namespace(document), text(document, "/metadata/name"));
    let (severity, message) = if draft.sliced.contains(&id) || draft.with_endpoints.contains(&id) {
        (Severity::Approximated, "left out: the endpoints of the input are used and are not updated")
    } else {
        for spec in made.documents.iter_mut().filter_map(|object| object.get_mut("spec")) {
            let is_alias = spec.get("type") == Some(&json!("ExternalName"));
            if let (false, Some(spec)) = (is_alias, spec.as_object_mut()) {
                spec.insert("selector".to_owned(), selector.clone());
            }
        }
        (
            Severity::Approximated,
            "selects Workloads, which a source or an operator must create; pods are not Workloads",
        )
    };
    made.findings.push(Finding { severity, field: "spec.selector".to_owned(), message: message.to_owned() });
}

fn slice(draft: &mut Draft, document: &Value) {
    if service_of(document).is_empty() {
        let said = format!("left out: without the label `{SERVICE_NAME_LABEL}` it belongs to no Service");
        draft.report.ignored("metadata.labels", &said);
        return;
    }
    let mut made = kubernetes::endpoint_slice(&settings(None), document);
    // The field `spec.service` replaces the label.
    for metadata in made.documents.iter_mut().filter_map(|object| object.get_mut("metadata")?.as_object_mut())
    {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(SERVICE_NAME_LABEL);
            if labels.is_empty() {
                metadata.remove("labels");
            }
        }
    }
    put(draft, fields::Kind::EndpointSlice, Kind::EndpointSet, document, made);
}

fn endpoints(draft: &mut Draft, document: &Value) {
    let id = (namespace(document), text(document, "/metadata/name"));
    if draft.sliced.contains(&id) {
        draft.report.ignored("", "left out: the input contains EndpointSlices of this Service");
        return;
    }
    if items(document, "/subsets").is_empty() {
        draft.report.note("subsets", "no endpoints, so no EndpointSet is created");
    }
    let made = kubernetes::endpoints(&settings(None), document);
    put(draft, fields::Kind::Endpoints, Kind::EndpointSet, document, made);
}

fn node(draft: &mut Draft, document: &Value) {
    let said = "applying it replaces an existing Node of this name, including its mode and options";
    draft.report.note("metadata.name", said);
    let made = kubernetes::node(&settings(None), document);
    put(draft, fields::Kind::Node, Kind::Node, document, made);
}

/// Adds the translated objects to the draft, and adds a report line for every field of the input object
/// `theirs`.
fn put(draft: &mut Draft, kind: fields::Kind, ours: Kind, theirs: &Value, made: TranslationResult) {
    let TranslationResult { objects: _, documents, findings } = made;
    let target = documents.first().map_or_else(|| "nothing".to_owned(), crate::json::object_name);
    let mut not_needed = Vec::new();
    let said = with_parents(&findings);
    for (at, field) in fields::uses(kind, theirs) {
        // Fields with findings are reported below.
        if said.contains(at.as_str()) {
            continue;
        }
        match field.map(|field| (field.fate, field.words)) {
            Some((FieldMapping::Mapped | FieldMapping::ProxyOnly, _)) if documents.is_empty() => {}
            Some((FieldMapping::Mapped | FieldMapping::ProxyOnly, _)) => draft.report.mapped(&at, &target),
            Some((FieldMapping::Approximated, words)) => draft.report.approximated(&at, words),
            Some((FieldMapping::NotSupported, words)) => draft.report.ignored(&at, words),
            Some((FieldMapping::NotNeeded, _)) => not_needed.push(at),
            None => draft.report.ignored(&at, "not supported"),
        }
    }
    for Finding { severity, field, message } in &findings {
        match severity {
            Severity::Approximated => draft.report.approximated(field, message),
            Severity::NotSupported => draft.report.ignored(field, message),
            Severity::Invalid => draft.report.ignored(field, &format!("left out: {message}")),
        }
    }
    not_needed.retain(|at| !matches!(at.as_str(), "apiVersion" | "kind"));
    if !not_needed.is_empty() {
        draft.report.note("not needed", &not_needed.join(", "));
    }
    for document in documents {
        draft.add(ours, document);
    }
}

/// Returns the path of each field with a finding, and the paths of its parent fields.
fn with_parents(findings: &[Finding]) -> BTreeSet<&str> {
    let mut all = BTreeSet::new();
    for finding in findings {
        let dots = finding.field.match_indices('.').map(|(at, _)| at);
        all.extend(dots.chain([finding.field.len()]).filter_map(|end| finding.field.get(..end)));
    }
    all
}

/// Returns the reason for which a document of an unsupported kind is left out.
pub(crate) fn refusal(kind: &str) -> String {
    match kind {
        "Deployment"
        | "ReplicationController"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "Pod"
        | "Job"
        | "CronJob" => {
            format!(
                "Tidegate does not run workloads, so a {kind} cannot be imported: run it elsewhere; its \
                 endpoints can come from `tidegate-sync`, EndpointSlices or Workloads"
            )
        }
        "NetworkPolicy" => {
            "a NetworkPolicy selects pods of a running cluster, and cannot be imported: use `tidegate-sync \
                            kubernetes --network-policies`, or write a NetworkPolicy of Tidegate"
                .to_owned()
        }
        "Gateway" | "HTTPRoute" => {
            format!("a {kind} configures more than addresses and ports; this kind cannot be imported")
        }
        _ => "this kind cannot be imported".to_owned(),
    }
}
