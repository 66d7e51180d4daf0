//! Lookup of fields in [`TABLE`], which contains all Kubernetes and MetalLB fields with their translation.
//! The reports on unsupported fields and the page `docs/reference/kubernetes-fields.md` are generated from
//! the table.

use std::{collections::BTreeMap, fmt::Write, sync::LazyLock};

use serde_json::Value;

pub use super::table::TABLE;
use super::{Finding, Severity};

/// Kubernetes or MetalLB kind that can be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Service (`v1`).
    Service,
    /// EndpointSlice (`discovery.k8s.io/v1`).
    EndpointSlice,
    /// Endpoints (`v1`), which the importer reads and the adapter does not.
    Endpoints,
    /// Node (`v1`).
    Node,
    /// Pod (`v1`), which the importer does not read.
    Pod,
    /// NetworkPolicy (`networking.k8s.io/v1`), which the importer does not read.
    NetworkPolicy,
    /// IPAddressPool (`metallb.io/v1beta1`).
    IpAddressPool,
    /// L2Advertisement (`metallb.io/v1beta1`).
    L2Advertisement,
    /// BGPAdvertisement (`metallb.io/v1beta1`).
    BgpAdvertisement,
    /// BGPPeer (`metallb.io/v1beta2`, or `metallb.io/v1beta1` where that is the latest).
    BgpPeer,
    /// BFDProfile (`metallb.io/v1beta1`).
    BfdProfile,
    /// Community (`metallb.io/v1beta1`).
    Community,
}

impl Kind {
    /// All kinds, in the order of the reference page.
    pub const ALL: [Self; 12] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Endpoints,
        Self::Node,
        Self::Pod,
        Self::NetworkPolicy,
        Self::IpAddressPool,
        Self::L2Advertisement,
        Self::BgpAdvertisement,
        Self::BgpPeer,
        Self::BfdProfile,
        Self::Community,
    ];

    /// Returns the name of the kind, as in the field `kind` of a manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::IpAddressPool => "IPAddressPool",
            Self::L2Advertisement => "L2Advertisement",
            Self::BgpAdvertisement => "BGPAdvertisement",
            Self::BgpPeer => "BGPPeer",
            Self::BfdProfile => "BFDProfile",
            Self::Community => "Community",
        }
    }
}

/// Translation of one field of a Kubernetes or MetalLB kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldMapping {
    /// Translated with the same meaning.
    Mapped,
    /// Translated with the same meaning in proxy mode. Not translated in load-balancer mode, because the
    /// cluster's own proxy handles the field.
    ProxyOnly,
    /// Translated with a slightly different meaning.
    Approximated,
    /// Left out, and reported for every object that uses it.
    NotSupported,
    /// Not translated, because the field is irrelevant to traffic or its value is determined in another way.
    NotNeeded,
}

impl FieldMapping {
    const fn word(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::ProxyOnly => "mapped (proxy)",
            Self::Approximated => "approximated",
            Self::NotSupported => "not supported",
            Self::NotNeeded => "not needed",
        }
    }
}

/// Entry of [`TABLE`]: a Kubernetes or MetalLB field with its translation.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Kind of the object that has the field.
    pub kind: Kind,
    /// Path of the field, with `[]` for list entries and `*` for any key. The entry also applies to all
    /// fields below this path.
    pub path: &'static str,
    /// Translation of the field.
    pub fate: FieldMapping,
    /// Description of the translation for the reference page.
    pub words: &'static str,
}

static INDEX: LazyLock<BTreeMap<(Kind, &'static str), &'static Field>> =
    LazyLock::new(|| TABLE.iter().map(|field| ((field.kind, field.path), field)).collect());

/// Maximum length in bytes of a map key: a label key with prefix (RFC 1123) and name.
const KEY_BYTES_MAX: usize = 253 + 1 + 63;
/// Maximum nesting depth; all listed fields are less deep.
const DEPTH_MAX: usize = 16;
/// Maximum number of reported fields per object.
const FINDINGS_MAX: usize = 32;
/// Maximum number of fields per object: those of the thousand endpoints of the largest slice, and of the
/// slice itself.
const USES_MAX: usize = 20_000;

/// Returns a [`Finding`] for each unsupported or unknown field that an object uses, up to `FINDINGS_MAX` of
/// them.
#[must_use]
pub fn check(kind: Kind, object: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(kind, object, "", "", DEPTH_MAX, &mut |field, at| {
        findings.extend(finding(field, at));
        findings.len() < FINDINGS_MAX
    });
    findings
}

/// Returns the path of each field that an object uses, in order, with the field's entry in [`TABLE`] (`None`
/// if the field is unknown).
#[must_use]
pub fn uses(kind: Kind, object: &Value) -> Vec<(String, Option<&'static Field>)> {
    let mut uses = Vec::new();
    walk(kind, object, "", "", DEPTH_MAX, &mut |field, at| {
        uses.push((at.to_owned(), field));
        uses.len() < USES_MAX
    });
    uses
}

/// Calls `found` for every field that an object uses, with the field's entry in [`TABLE`] (`None` if the
/// field is unknown) and its path. Stops and returns false as soon as `found` returns false; otherwise
/// returns true.
fn walk(
    kind: Kind,
    value: &Value,
    rule: &str,
    at: &str,
    depth: usize,
    found: &mut impl FnMut(Option<&'static Field>, &str) -> bool,
) -> bool {
    if is_empty(value) {
        return true;
    }
    if let Some(field) = INDEX.get(&(kind, rule)) {
        return found(Some(field), at);
    }
    match value {
        Value::Object(fields) if depth > 0 => {
            for (key, value) in fields {
                if key.len() > KEY_BYTES_MAX {
                    if !found(None, &format!("{at} (a key of {} bytes)", key.len())) {
                        return false;
                    }
                    continue;
                }
                let named = if rule.is_empty() { key.clone() } else { format!("{rule}.{key}") };
                let any = format!("{rule}.*");
                let is_any =
                    !INDEX.contains_key(&(kind, named.as_str())) && INDEX.contains_key(&(kind, any.as_str()));
                let place = if is_any {
                    format!("{at}[\"{key}\"]")
                } else if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                if !walk(kind, value, if is_any { &any } else { &named }, &place, depth - 1, found) {
                    return false;
                }
            }
            true
        }
        Value::Array(entries) if depth > 0 => {
            let mut entries = entries.iter().enumerate();
            entries.all(|(number, value)| {
                walk(kind, value, &format!("{rule}[]"), &format!("{at}[{number}]"), depth - 1, found)
            })
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => found(None, at),
    }
}

/// Returns true if a value has the same meaning as an absent field.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn finding(field: Option<&Field>, at: &str) -> Option<Finding> {
    let Some(field) = field else {
        let message = "not supported".to_owned();
        return Some(Finding { severity: Severity::NotSupported, field: at.to_owned(), message });
    };
    let severity = match field.fate {
        FieldMapping::NotSupported => Severity::NotSupported,
        // Approximations of all values are documented in the table; those of specific values are reported by
        // the translation.
        FieldMapping::Mapped
        | FieldMapping::ProxyOnly
        | FieldMapping::Approximated
        | FieldMapping::NotNeeded => return None,
    };
    Some(Finding { severity, field: at.to_owned(), message: field.words.to_owned() })
}

/// Renders the table as the reference page of Kubernetes fields.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(PREFACE);
    for kind in Kind::ALL {
        let _infallible = writeln!(text, "\n## {}\n\n| field | here | |\n|---|---|---|", kind.as_str());
        for Field { path, fate, words, .. } in TABLE.iter().filter(|field| field.kind == kind) {
            let _infallible = writeln!(text, "| `{path}` | {} | {words} |", fate.word());
        }
    }
    text
}

const PREFACE: &str = "# Fields of Kubernetes and MetalLB

Translation of every field of the objects that `tidegate-sync kubernetes` and [`tidegate import`](../how-to/import-export.md) read. This page is
generated from the field table of both. Endpoints are read by `tidegate import` only; the cluster makes EndpointSlices of them. Pods and NetworkPolicies are
read by `tidegate-sync kubernetes` only: both with `--network-policies`, and Pods also with `--pods`.

- *mapped*: the field has the same meaning;
- *mapped (proxy)*: so with `--mode proxy`; with `--mode load-balancer` the cluster's own proxy handles it;
- *approximated*: the meaning differs slightly, as described in the last column;
- *not supported*: the field is left out. An object that uses it gets a warning event that names it; so does one with a field that is
  not in this list;
- *not needed*: the field is irrelevant to traffic, or its value is determined in another way.

A field includes everything below it.
";
