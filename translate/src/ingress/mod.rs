//! Import of Ingress objects of Kubernetes, with the annotations of ingress-nginx, as Gateways, HttpRoutes and
//! Certificates.
//!
//! All Ingresses of one class in a namespace share a Gateway with the name of the class, as they share the ports of an
//! Ingress controller. Invariant: an Ingress with a restriction that cannot be translated is left out and reported, and rules that
//! refuse requests for its paths precede all others, so that no other rule serves them without the restriction.

mod annotations;
mod controllers;
pub(crate) mod refusal;
mod routes;
pub(crate) mod settings;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use model::kinds::resource::{API_VERSION, Kind};
use serde_json::{Value, json};

use self::{annotations::IngressOptions, routes::IngressRoutes};
use crate::{
    draft::Draft,
    json::{items, text},
};

/// Annotation with the class of an Ingress, which `spec.ingressClassName` replaced.
const CLASS_ANNOTATION: &str = "/metadata/annotations/kubernetes.io~1ingress.class";
/// Name of the Gateway for Ingresses without a class.
const CLASS_DEFAULT: &str = "ingress";
/// Type of the Secrets with a certificate.
const TLS_SECRET: &str = "kubernetes.io/tls";
/// Maximum number of TLS host names of one Gateway: one listener is for plain HTTP.
const TLS_HOSTS_MAX: usize = 63;

/// Namespace and name of the Gateway of an Ingress.
type GatewayId = (String, String);

/// TLS host names of a Gateway with their Secrets, in the order of the listeners. An empty host name stands for all.
type TlsHosts = Vec<(String, String)>;

/// Data of the input on which the translation of an Ingress depends.
struct IngressInput<'a> {
    /// Ports of each Service by namespace and name.
    services: BTreeMap<(String, String), &'a [Value]>,
    /// Annotation of each Service to which gateways cannot send requests, by namespace and name.
    unusable_services: BTreeMap<(String, String), String>,
    /// Host names whose paths ingress-nginx compares as regular expressions, because one of their Ingresses demands it.
    regex_hosts: BTreeSet<String>,
    gateways: BTreeMap<GatewayId, TlsHosts>,
}

/// Returns true if a document is translated by this module.
pub(crate) fn is_ingress(document: &Value) -> bool {
    text(document, "/kind") == "Ingress"
}

/// Returns true if a document is a Secret with a certificate.
pub(crate) fn is_certificate(document: &Value) -> bool {
    text(document, "/kind") == "Secret" && text(document, "/type") == TLS_SECRET
}

/// Translates the Ingresses among the documents, each with the name of its file.
pub(crate) fn all(draft: &mut Draft, documents: &[(&str, &Value)]) {
    let mut input = IngressInput {
        services: BTreeMap::new(),
        unusable_services: BTreeMap::new(),
        regex_hosts: BTreeSet::new(),
        gateways: BTreeMap::new(),
    };
    for (_, document) in documents {
        if text(document, "/kind") == "Service" {
            let key = (namespace(document), text(document, "/metadata/name"));
            if let Some(annotation) = annotations::service_restriction(document) {
                input.unusable_services.insert(key.clone(), annotation);
            }
            input.services.insert(key, items(document, "/spec/ports"));
        }
    }
    let of_all = settings::restrictions(documents.iter().map(|(_, document)| *document));
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    let ingresses: Vec<_> = documents.iter().filter(|(_, document)| is_ingress(document)).collect();
    let classes: BTreeSet<_> = ingresses.iter().map(|(_, document)| gateway_id(document).1).collect();
    for (file, document) in ingresses {
        let title = format!("{file}: Ingress {}", text(document, "/metadata/name"));
        draft.report.begin(&title);
        note_class(draft, &classes, document);
        if annotations::raw(document, "use-regex") == "true"
            || !annotations::raw(document, "rewrite-target").is_empty()
        {
            input.regex_hosts.extend(items(document, "/spec/rules").iter().map(host_of));
        }
        match IngressOptions::read(document, &of_all, &mut draft.report) {
            Ok(options) => {
                note_tls(draft, &mut input, document);
                read.push((title, *document, options));
            }
            // Requests that would reach the canary reach the other backend of the path.
            Err(_) if annotations::raw(document, "canary") == "true" => {
                draft.report.note("spec.rules", "the canary is left out; its paths have the other backend");
            }
            Err(restrictions) => {
                input.gateways.entry(gateway_id(document)).or_default();
                refused.push((title, *document, restrictions));
            }
        }
    }
    let mut routes = IngressRoutes::default();
    for (title, document, restrictions) in &refused {
        draft.report.begin(title);
        routes.refuse(draft, &input, document, restrictions);
    }
    // A canary changes the routes of another Ingress.
    read.sort_by_key(|(_, _, options)| options.is_on("canary"));
    for (title, document, options) in &read {
        draft.report.begin(title);
        routes.add(draft, &input, document, options);
    }
    let routes = routes.finish();
    let parents = routes.iter().map(|route| (namespace(route), text(route, "/spec/parentRefs/0/name")));
    let used: BTreeSet<GatewayId> = parents.collect();
    for (id, hosts) in input.gateways.iter().filter(|(id, _)| used.contains(*id)) {
        draft.add(Kind::Gateway, gateway(&id.0, &id.1, hosts));
    }
    for route in routes {
        draft.add(Kind::HttpRoute, route);
    }
}

/// Returns the certificate chain and the private key of a Secret, or `None` if one of them is absent or not text in base64.
pub(crate) fn certificate_parts(secret: &Value) -> Option<(String, String)> {
    let part = |key: &str| {
        let plain = text(secret, &format!("/stringData/{key}"));
        if !plain.is_empty() {
            return Some(plain);
        }
        let encoded = text(secret, &format!("/data/{key}"));
        let bytes = BASE64_STANDARD.decode(encoded.split_whitespace().collect::<String>()).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    Some((part("tls.crt")?, part("tls.key")?))
}

/// Translates a Secret with a certificate.
pub(crate) fn certificate(draft: &mut Draft, secret: &Value) {
    let Some((certificate, key)) = certificate_parts(secret) else {
        draft.report.ignored("data", "left out: it needs `tls.crt` and `tls.key` in base64");
        return;
    };
    let (namespace, name) = (namespace(secret), text(secret, "/metadata/name"));
    draft.report.mapped("data", &format!("certificate/{name}"));
    let spec = json!({ "certificate": certificate, "privateKey": key });
    draft.add(Kind::Certificate, object("Certificate", &namespace, &name, spec));
}

/// Reports that the classes of the input share their ports. Controllers of several classes often have different networks of
/// clients.
fn note_class(draft: &mut Draft, classes: &BTreeSet<String>, ingress: &Value) {
    let (_, class) = gateway_id(ingress);
    let others: Vec<_> = classes.iter().filter(|other| **other != class).map(String::as_str).collect();
    if !others.is_empty() {
        let words = format!(
            "gateway/{class}: a gateway serves all classes ({}) at the same addresses and ports, to clients of \
             each of them, unless `--serve` names the Gateways of one class",
            others.join(", ")
        );
        draft.report.approximated("spec.ingressClassName", &words);
    }
}

/// Returns the host name of a rule in lower case; empty if it is for all host names.
fn host_of(rule: &Value) -> String {
    text(rule, "/host").to_ascii_lowercase()
}

/// Records the TLS host names of an Ingress for the listeners of its Gateway.
fn note_tls(draft: &mut Draft, input: &mut IngressInput<'_>, ingress: &Value) {
    let (namespace, name) = gateway_id(ingress);
    let hosts = input.gateways.entry((namespace.clone(), name.clone())).or_default();
    for (index, tls) in items(ingress, "/spec/tls").iter().enumerate() {
        let (at, secret) = (format!("spec.tls[{index}]"), text(tls, "/secretName"));
        if secret.is_empty() {
            let reason = "without secretName; the default certificate of the controller is not imported";
            draft.report.ignored(&at, reason);
            continue;
        }
        let mut names: Vec<_> = items(tls, "/hosts").iter().filter_map(Value::as_str).collect();
        if names.is_empty() {
            names.push("");
        }
        for host in names {
            let host = host.to_ascii_lowercase();
            match hosts.iter().find(|(known, _)| *known == host) {
                Some((_, known)) if *known == secret => {}
                Some((_, known)) => {
                    let reason = format!("{host} has the certificate {known} of another Ingress");
                    draft.report.ignored(&at, &reason);
                }
                None if hosts.len() == TLS_HOSTS_MAX => {
                    let reason =
                        format!("{host}: more than {TLS_HOSTS_MAX} host names with TLS in a Gateway");
                    draft.report.ignored(&at, &reason);
                }
                None => hosts.push((host, secret.clone())),
            }
        }
        let target = format!("gateway/{name}");
        if draft.has_other_certificates || draft.has(Kind::Certificate, &namespace, &secret) {
            draft.report.mapped(&at, &target);
        } else {
            let words = format!("{target}; create the Certificate {secret}, which is not in the input");
            draft.report.approximated(&at, &words);
        }
    }
}

fn gateway(namespace: &str, class: &str, hosts: &TlsHosts) -> Value {
    let mut listeners = vec![json!({ "name": "http", "port": 80, "protocol": "HTTP" })];
    for (index, (host, secret)) in hosts.iter().enumerate() {
        let tls = json!({ "certificateRefs": [{ "name": secret }] });
        let name = listener_name(index);
        let mut listener = json!({ "name": name, "port": 443, "protocol": "HTTPS", "tls": tls });
        if !host.is_empty() {
            listener["hostname"] = host.as_str().into();
        }
        listeners.push(listener);
    }
    object("Gateway", namespace, class, json!({ "listeners": listeners }))
}

/// Returns the name of the listener for the TLS host name with an index.
fn listener_name(index: usize) -> String {
    format!("https-{}", index + 1)
}

/// Returns the namespace and name of the Gateway for an Ingress.
fn gateway_id(ingress: &Value) -> GatewayId {
    let class = text(ingress, "/spec/ingressClassName");
    let class = if class.is_empty() { text(ingress, CLASS_ANNOTATION) } else { class };
    (namespace(ingress), if class.is_empty() { CLASS_DEFAULT.to_owned() } else { class })
}

fn namespace(document: &Value) -> String {
    let namespace = text(document, "/metadata/namespace");
    if namespace.is_empty() { "default".to_owned() } else { namespace }
}

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "namespace": namespace });
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec })
}

impl IngressInput<'_> {
    /// Returns the names of the listeners with TLS of a Gateway that serve a host name (empty: all host names).
    fn listeners(&self, gateway: &GatewayId, host: &str) -> BTreeSet<String> {
        let hosts = self.gateways.get(gateway).into_iter().flatten().enumerate();
        let serves = |tls: &str| {
            tls.is_empty()
                || tls == host
                || tls.strip_prefix("*.").is_some_and(|base| {
                    host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == base)
                })
        };
        hosts.filter(|(_, (tls, _))| serves(tls)).map(|(index, _)| listener_name(index)).collect()
    }

    /// Returns the number of a Service port that an Ingress names.
    fn port(&self, namespace: &str, service: &str, name: &str) -> Option<u64> {
        let ports = self.services.get(&(namespace.to_owned(), service.to_owned()))?;
        ports.iter().find(|port| text(port, "/name") == name)?.get("port")?.as_u64()
    }
}
