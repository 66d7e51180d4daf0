//! Translation of Kubernetes and MetalLB documents to Tidegate objects, with a finding (report) for each
//! setting that is not translated exactly. Does no I/O.
//!
//! Invariants: every used but unsupported setting is reported ([`fields`] lists every field; unlisted ones
//! are reported too), and no Tidegate object serves more than the Kubernetes or MetalLB object it is
//! translated from, because a restriction that cannot be translated is never ignored.

mod annotations;
mod endpoints;
pub mod fields;
pub mod gateway_api;
mod metallb;
mod names;
mod network_policy;
mod node;
pub mod passwords;
mod pod;
mod service;
mod slice;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use crate::json::field_path;
use model::{
    admission::decode::{Expect, decode},
    kinds::{
        metadata::Labels,
        resource::{API_VERSION, Object},
    },
    primitives::{name::Label, violation::Violation},
};
use serde_json::{Value, json};

pub use self::{
    endpoints::endpoints,
    metallb::metallb,
    names::{CLUSTER_LABEL, ClusterName, Id},
    network_policy::{isolating_policy, network_policy, selects_namespaces_by_labels},
    node::node,
    pod::{ISOLATED_LABEL, POD_LABEL, pod, reduced_pod},
    service::{Claim, backend_service, claim, service},
    slice::{SERVICE_NAME_LABEL, endpoint_slice},
};

/// Type of the Service condition that is true if traffic reaches the Service.
pub const READY: &str = "tidegate.io/Ready";

/// Annotation of ExternalDNS with the host names of a Service, separated by commas.
pub const HOSTNAMES: &str = "external-dns.alpha.kubernetes.io/hostname";

/// Role of the adapter in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Services of type LoadBalancer get addresses, which are announced; the cluster's own proxy does the
    /// rest.
    LoadBalancer,
    /// Tidegate proxies all Services, replacing kube-proxy.
    Proxy,
}

impl Mode {
    /// Names of the modes on the command line, in the order of the variants.
    pub const WORDS: [&str; 2] = ["load-balancer", "proxy"];
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "load-balancer" => Ok(Self::LoadBalancer),
            "proxy" => Ok(Self::Proxy),
            other => Err(format!("must be one of {}, not `{other}`", Self::WORDS.join(", "))),
        }
    }
}

/// Settings for translating the objects of one cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Prefix of this cluster's object names, if several clusters are mirrored to one Tidegate.
    pub cluster: Option<ClusterName>,
    /// Role of the adapter.
    pub mode: Mode,
    /// `loadBalancerClass` of the handled Services; `None` means Services without a class.
    pub class: Option<String>,
}

/// Data of the cluster on which the translation of an object depends, in addition to the object itself.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Names of the cluster's IPAddressPools.
    pub pools: BTreeSet<String>,
    /// Labels of each namespace, by namespace name. They include `kubernetes.io/metadata.name`, which every namespace has.
    pub namespaces: BTreeMap<String, Labels>,
    /// Secrets referenced by BGPPeers; `None` if they are not read.
    pub passwords: Option<passwords::Passwords>,
}

/// Problem to report: a setting that is not translated exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Severity of the difference.
    pub severity: Severity,
    /// Field path, such as `spec.ports[0].name`.
    pub field: String,
    /// Description of the difference and its effect.
    pub message: String,
}

/// Severity of a [`Finding`]: the degree to which a setting was not translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Translated with a slightly different meaning.
    Approximated,
    /// Left out, because Tidegate has no such setting.
    NotSupported,
    /// The object, or a part of it, is invalid and left out.
    Invalid,
}

/// Tidegate objects translated from one cluster object, with the findings on settings that were not
/// translated exactly.
#[derive(Debug, Clone, Default)]
pub struct TranslationResult {
    /// Valid Tidegate objects, after defaulting.
    pub objects: Vec<Object>,
    /// Manifests of the objects in [`Self::objects`], before defaulting.
    pub documents: Vec<Value>,
    /// Report about settings that are not translated exactly.
    pub findings: Vec<Finding>,
}

impl TranslationResult {
    /// Creates a result without objects. Its findings are the unsupported fields of the object, according to
    /// the table of fields.
    fn begin(kind: fields::Kind, object: &Value) -> Self {
        Self { findings: fields::check(kind, object), ..Self::default() }
    }

    fn find(&mut self, severity: Severity, field: impl Into<String>, message: impl Into<String>) {
        self.findings.push(Finding { severity, field: field.into(), message: message.into() });
    }

    /// Adds a finished manifest to the result, after decoding and validating it as the control server does.
    /// An invalid manifest is left out and reported. Returns true if the manifest is valid.
    fn finish(&mut self, document: &Value) -> bool {
        match decode(document, &Expect::default()) {
            Ok(object) => {
                self.objects.push(object);
                self.documents.push(document.clone());
                true
            }
            Err(violations) => {
                self.refuse(&violations);
                false
            }
        }
    }

    fn refuse(&mut self, violations: &[Violation]) {
        for violation in violations {
            self.find(Severity::Invalid, field_path(&violation.pointer), violation.message.clone());
        }
    }
}

/// Builds a Tidegate manifest from its kind, name, labels and spec.
fn document(kind: &str, namespace: Option<&str>, name: &str, labels: &Value, spec: Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        metadata["labels"] = labels.clone();
    }
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec })
}

/// Returns the labels of a cluster object, with the label that names the cluster added if several clusters
/// are mirrored.
fn labels_of(settings: &Settings, object: &Value) -> Value {
    let mut labels =
        object.pointer("/metadata/labels").cloned().filter(Value::is_object).unwrap_or(json!({}));
    add_own_labels(settings, &mut labels);
    labels
}

/// Returns the labels that the translation gives to all objects of a cluster.
fn own_labels(settings: &Settings) -> Value {
    let mut labels = json!({});
    add_own_labels(settings, &mut labels);
    labels
}

fn add_own_labels(settings: &Settings, labels: &mut Value) {
    if let Some(cluster) = &settings.cluster {
        labels[CLUSTER_LABEL] = json!(cluster.as_str());
    }
}

/// Returns the text as a DNS label, if it is valid.
fn label(text: &str) -> Option<Label> {
    Label::parse(text).ok()
}
