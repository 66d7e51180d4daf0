//! Export of Tidegate objects as Kubernetes or MetalLB documents, with a report on unsupported settings.
//! [`crate::import`] of the result restores the same objects.
//!
//! Invariant: exported objects never assign, announce or serve more than the Tidegate objects do. If the
//! format lacks a restriction that an object has, the object is left out.

mod bgp;
mod endpoints;
mod metallb;
mod service;

use std::{collections::BTreeMap, fmt, str::FromStr};

use model::{
    admission::decode::{Expect, decode},
    kinds::{
        metadata::Metadata,
        resource::{Kind, Object, ServiceKey, Spec},
    },
};
use serde_json::{Map, Value, json};

use crate::{
    json::{field_path, object_name},
    report::Report,
};

/// Format to which objects are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Kubernetes Service and EndpointSlice.
    Kubernetes,
    /// MetalLB resources of the API group `metallb.io`.
    Metallb,
}

impl Target {
    /// Every export format.
    pub const ALL: [Self; 2] = [Self::Kubernetes, Self::Metallb];

    /// Returns the name of the format, as used on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Metallb => "metallb",
        }
    }

    /// Returns the kinds of Tidegate objects that the format supports.
    #[must_use]
    pub const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Kubernetes => &[Kind::Service, Kind::EndpointSet],
            Self::Metallb => &[Kind::AddressPool, Kind::BfdProfile, Kind::BgpPeer, Kind::Advertisement],
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|target| target.as_str() == word);
        found
            .ok_or_else(|| format!("must be one of {}, not `{word}`", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// Documents of an export, with the report on unsupported settings.
#[derive(Debug, Default)]
pub struct ExportResult {
    /// Documents, in the order of the objects.
    pub documents: Vec<Value>,
    /// Report on every setting with a non-default value.
    pub report: Report,
}

/// Exports Tidegate objects, given as responses of the API or as manifests, to the format `target`.
#[must_use]
pub fn export(target: Target, objects: &[Value]) -> ExportResult {
    let mut made = ExportResult::default();
    let decoded: Vec<(&Value, Object)> =
        objects.iter().filter_map(|value| read(value, &mut made.report)).collect();
    let services: BTreeMap<ServiceKey, &Object> = decoded
        .iter()
        .filter_map(|(_, object)| Some((ServiceKey::of_object_key(&object.key())?, object)))
        .collect();
    for (value, object) in &decoded {
        made.report.begin(&object_name(value));
        let metadata = &object.metadata;
        match (target, &object.spec) {
            (Target::Kubernetes, Spec::Service(spec)) => service::service(&mut made, metadata, spec),
            (Target::Kubernetes, Spec::EndpointSet(spec)) => {
                endpoints::endpoint_set(&mut made, metadata, spec, &services);
            }
            (Target::Metallb, Spec::AddressPool(spec)) => metallb::pool(&mut made, metadata, spec),
            (Target::Metallb, Spec::Advertisement(spec)) => metallb::advertisement(&mut made, metadata, spec),
            (Target::Metallb, Spec::BgpPeer(spec)) => bgp::peer(&mut made, metadata, spec, value),
            (Target::Metallb, Spec::BfdProfile(spec)) => bgp::profile(&mut made, metadata, spec),
            (target, spec) => made.report.ignored("", elsewhere(target, spec.kind())),
        }
    }
    made
}

fn read<'a>(value: &'a Value, report: &mut Report) -> Option<(&'a Value, Object)> {
    match decode(value, &Expect::default()) {
        Ok(object) => Some((value, object)),
        Err(violations) => {
            report.begin(&object_name(value));
            for violation in violations {
                let said = format!("left out: not a valid Tidegate object: {}", violation.message);
                report.ignored(&field_path(&violation.pointer), &said);
            }
            None
        }
    }
}

/// Returns the reason why objects of a kind that the format does not support are left out.
fn elsewhere(target: Target, kind: Kind) -> &'static str {
    match (target, kind) {
        (_, Kind::Node) => "left out: nodes of a cluster register themselves",
        (_, Kind::Workload) => "left out: Kubernetes Services select pods",
        (_, Kind::DnsZone) => "left out: the format has no DNS zones",
        (_, Kind::Certificate) => "left out: private keys are not exported",
        (_, Kind::Gateway | Kind::HttpRoute | Kind::TlsRoute) => "left out: routes are not exported",
        (_, Kind::WorkloadNetwork) => "left out: the format has no workload networks",
        (_, Kind::NetworkPolicy) => "left out: network policies are not exported",
        (_, Kind::Address | Kind::EndpointHealth | Kind::Block | Kind::Attachment) => {
            "left out: managed by the control server"
        }
        (Target::Kubernetes, Kind::AddressPool | Kind::BfdProfile | Kind::BgpPeer | Kind::Advertisement) => {
            "left out: use the format metallb for this kind"
        }
        (Target::Metallb, Kind::Service | Kind::EndpointSet) => {
            "left out: use the format kubernetes for this kind"
        }
        (Target::Kubernetes, Kind::Service | Kind::EndpointSet)
        | (Target::Metallb, Kind::AddressPool | Kind::BfdProfile | Kind::BgpPeer | Kind::Advertisement) => {
            "left out"
        }
    }
}

/// Builds a Kubernetes document from its type, metadata and spec.
fn document(api_version: &str, kind: &str, metadata: Value, spec: Map<String, Value>) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec })
}

/// Returns the metadata of an exported document: name, labels and annotations of the object, and the given
/// namespace.
fn metadata_of(metadata: &Metadata, namespace: Option<&str>) -> Value {
    // Server-managed fields are set by the cluster itself.
    let Metadata {
        name,
        namespace: _,
        uid: _,
        resource_version: _,
        generation: _,
        creation_timestamp: _,
        self_link: _,
        apply_set: _,
        apply_set_limited: _,
        labels,
        annotations,
    } = metadata;
    let mut made = json!({ "name": name });
    if let Some(namespace) = namespace {
        made["namespace"] = json!(namespace);
    }
    if !labels.is_empty() {
        made["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        made["annotations"] = json!(annotations);
    }
    made
}

/// Spec of an exported document under construction, with the result that contains the report.
struct DocumentDraft<'a> {
    made: &'a mut ExportResult,
    spec: Map<String, Value>,
}

impl<'a> DocumentDraft<'a> {
    fn new(made: &'a mut ExportResult) -> Self {
        Self { made, spec: Map::new() }
    }

    /// Sets the spec field `theirs` of the document to a value with the same meaning as the Tidegate field
    /// `ours`, and reports the field as translated. Absent, empty and null values are skipped.
    fn put(&mut self, ours: &str, theirs: &str, value: Value) {
        let is_empty = match &value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !is_empty {
            self.made.report.mapped(&format!("spec.{ours}"), &format!("spec.{theirs}"));
            self.spec.insert(theirs.to_owned(), value);
        }
    }

    /// Copies the value of a Tidegate field to the document's field of the same name, if the field is set.
    fn same(&mut self, name: &str, value: Value, is_set: bool) {
        if is_set {
            self.put(name, name, value);
        }
    }

    /// Reports the Tidegate field `ours` as left out for the given reason, if the field is set.
    fn lost(&mut self, ours: &str, is_set: bool, reason: &str) {
        if is_set {
            self.made.report.ignored(&format!("spec.{ours}"), reason);
        }
    }
}
