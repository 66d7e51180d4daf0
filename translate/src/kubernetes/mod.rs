//! What objects of Kubernetes and MetalLB mean here: documents in, objects of ours and findings out. Pure.
//!
//! What must not happen: a setting that is used and not carried out goes unmentioned ([`fields`] lists every field, and what is
//! in no list is mentioned as well), or a restriction is dropped so that more than before is served.

mod annotations;
mod endpoints;
pub mod fields;
mod metallb;
mod names;
mod node;
pub mod passwords;
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
    node::node,
    service::{Claim, claim, service},
    slice::{SERVICE_NAME_LABEL, endpoint_slice},
};

/// The condition of a Service that says whether traffic arrives.
pub const READY: &str = "tidegate.io/Ready";

/// What the adapter is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Services of type LoadBalancer get addresses, which are announced; the cluster's own proxy does the rest.
    LoadBalancer,
    /// All Services, in the place of kube-proxy.
    Proxy,
}

impl Mode {
    /// The words of the modes.
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

/// What translations need to know besides the objects.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the names of this cluster's objects begin with, where several clusters feed one Tidegate.
    pub cluster: Option<ClusterName>,
    /// What the adapter is there for.
    pub mode: Mode,
    /// The `loadBalancerClass` of the Services that get addresses; those without a class when it is left out.
    pub class: Option<String>,
}

/// What of the rest of the cluster a translation looks at.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The IPAddressPools of the cluster, by their names there.
    pub pools: BTreeSet<String>,
    /// The labels of the namespaces, by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// The Secrets that BGPPeers name; nothing where they are not read.
    pub passwords: Option<passwords::Passwords>,
}

/// What somebody should know of an object: a setting that is not carried out as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How much is lost.
    pub severity: Severity,
    /// The field, such as `spec.ports[0].name`.
    pub field: String,
    /// What becomes of it, in words.
    pub message: String,
}

/// How much a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It means something a little different here.
    Approximated,
    /// It is left out.
    NotSupported,
    /// The object, or a part of it, is not valid here and left out.
    Invalid,
}

/// What was made of an object.
#[derive(Debug, Clone, Default)]
pub struct Translated {
    /// Objects of ours, valid in themselves.
    pub objects: Vec<Object>,
    /// The same as they were written, without what is added when they are read.
    pub documents: Vec<Value>,
    /// What somebody should know.
    pub findings: Vec<Finding>,
}

impl Translated {
    /// Nothing yet, but what the list of fields says of an object.
    fn begin(kind: fields::Kind, object: &Value) -> Self {
        Self { findings: fields::check(kind, object), ..Self::default() }
    }

    fn find(&mut self, severity: Severity, field: impl Into<String>, message: impl Into<String>) {
        self.findings.push(Finding { severity, field: field.into(), message: message.into() });
    }

    /// Reads a finished document as the server would; what the server would refuse is left out and said.
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

/// An object of ours on its way.
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

/// The labels of an object, with the mark of its cluster where there are several.
fn labels_of(settings: &Settings, object: &Value) -> Value {
    let mut labels =
        object.pointer("/metadata/labels").cloned().filter(Value::is_object).unwrap_or(json!({}));
    if let Some(cluster) = &settings.cluster {
        labels[CLUSTER_LABEL] = json!(cluster.as_str());
    }
    labels
}

/// A DNS label, where what stands there is one.
fn label(text: &str) -> Option<Label> {
    Label::parse(text).ok()
}
