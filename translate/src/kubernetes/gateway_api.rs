//! Translation of Gateways, HTTPRoutes, GRPCRoutes and TLSRoutes of the Gateway API (`gateway.networking.k8s.io`), of Ingresses, and of
//! Secrets with certificates, as a controller of a cluster does it.
//!
//! Invariant: no translated route or listener serves more requests than the object in the cluster. A listener or route with
//! a setting that Tidegate does not have is left out with its reason, and a backend that cannot be used keeps its share of the
//! requests, which then fails with 500 as the Gateway API requires.

mod grant;
mod listener;
mod route;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::listener::{certificates, translated};
pub use self::{
    grant::{ReferenceGrants, copy_name, copy_of},
    listener::{supported_kinds, unaccepted, unresolved},
    route::{ParentTranslation, RouteKind, RouteTranslation, parent_gateway, route},
};
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

/// Translates a Gateway. Listeners with a setting that gateways do not have, or in conflict with another one, are left out. Certificates of other namespaces
/// are the copies of those that `grants` allow.
#[must_use]
pub fn gateway(settings: &Settings, grants: &ReferenceGrants, gateway: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    let parameters = gateway.pointer("/spec/infrastructure/parametersRef");
    if parameters.is_some_and(|parameters| !parameters.is_null()) {
        let message = "Gateways of Tidegate have no parameters";
        made.find(Severity::Invalid, "spec.infrastructure.parametersRef", message);
        return made;
    }
    let namespace = text(gateway, "/metadata/namespace");
    let mut listeners = Vec::new();
    let mut conflicts = listener::conflicts(gateway);
    for (index, theirs) in items(gateway, "/spec/listeners").iter().enumerate() {
        let translated = translated(grants, gateway, theirs);
        match translated.and_then(|listener| conflicts.remove(&index).map_or(Ok(listener), Err)) {
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

/// Returns the Secrets with certificates that a Gateway or Ingress names, those of other namespaces only if `grants` allow it.
#[must_use]
pub fn named_certificates(grants: &ReferenceGrants, object: &Value) -> BTreeSet<Id> {
    let namespace = text(object, "/metadata/namespace");
    let of_listeners = items(object, "/spec/listeners").iter().filter_map(|listener| listener.get("tls"));
    let of_listeners = of_listeners.flat_map(|tls| certificates(grants, &namespace, tls));
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
