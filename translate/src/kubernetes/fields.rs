//! Every field that is read, and what becomes of it: the one list that findings and `docs/kubernetes-fields.md` are made from.

use std::{collections::BTreeMap, fmt::Write, sync::LazyLock};

use serde_json::Value;

pub use super::table::TABLE;
use super::{Finding, Severity};

/// The kinds of objects that are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `v1`.
    Service,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `v1`.
    Endpoints,
    /// `v1`.
    Node,
    /// `metallb.io/v1beta1`.
    IpAddressPool,
    /// `metallb.io/v1beta1`.
    L2Advertisement,
    /// `metallb.io/v1beta1`.
    BgpAdvertisement,
    /// `metallb.io/v1beta2`, and `metallb.io/v1beta1` where there is no other.
    BgpPeer,
    /// `metallb.io/v1beta1`.
    BfdProfile,
    /// `metallb.io/v1beta1`.
    Community,
}

impl Kind {
    /// Every kind, in the order of the page.
    pub const ALL: [Self; 10] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Endpoints,
        Self::Node,
        Self::IpAddressPool,
        Self::L2Advertisement,
        Self::BgpAdvertisement,
        Self::BgpPeer,
        Self::BfdProfile,
        Self::Community,
    ];

    /// The word in `kind:`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::Node => "Node",
            Self::IpAddressPool => "IPAddressPool",
            Self::L2Advertisement => "L2Advertisement",
            Self::BgpAdvertisement => "BGPAdvertisement",
            Self::BgpPeer => "BGPPeer",
            Self::BfdProfile => "BFDProfile",
            Self::Community => "Community",
        }
    }
}

/// What becomes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It means here what it means there.
    Mapped,
    /// In proxy mode it is mapped; in load-balancer mode it is the business of the cluster's own proxy.
    ProxyOnly,
    /// It means something a little different.
    Approximated,
    /// It is left out, which is said of every object that uses it.
    NotSupported,
    /// It says nothing about traffic, or something that is learned otherwise.
    NotNeeded,
}

impl Fate {
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

/// A line of the list.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Whose field.
    pub kind: Kind,
    /// Where it stands, with `[]` for entries of lists and `*` for any key; with all that is in it.
    pub path: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// The same in words.
    pub words: &'static str,
}

static INDEX: LazyLock<BTreeMap<(Kind, &'static str), &'static Field>> =
    LazyLock::new(|| TABLE.iter().map(|field| ((field.kind, field.path), field)).collect());

/// Longest key that is looked at, in bytes: those of labels, with their prefix (RFC 1123) and their name.
const KEY_BYTES_MAX: usize = 253 + 1 + 63;
/// Deepest nesting that is looked into; nothing that the list names is deeper.
const DEPTH_MAX: usize = 16;
/// Findings of one object; more of them say nothing more.
const FINDINGS_MAX: usize = 32;
/// Fields of one object that are looked at: those of the endpoints of the largest slice, a thousand, and its envelope.
const USES_MAX: usize = 20_000;

/// What an object uses that is not carried out, or that nobody knows.
#[must_use]
pub fn check(kind: Kind, object: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(kind, object, "", "", DEPTH_MAX, &mut |field, at| {
        findings.extend(finding(field, at));
        findings.len() < FINDINGS_MAX
    });
    findings
}

/// Every field that an object uses, in its order, with the line of the list; without one where nothing here has it.
#[must_use]
pub fn uses(kind: Kind, object: &Value) -> Vec<(String, Option<&'static Field>)> {
    let mut uses = Vec::new();
    walk(kind, object, "", "", DEPTH_MAX, &mut |field, at| {
        uses.push((at.to_owned(), field));
        uses.len() < USES_MAX
    });
    uses
}

/// Tells `found` of every field that is used, until it has enough; the answer is whether it has not.
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

/// Whether a value is as good as left out.
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
        let message = "nothing here has this setting".to_owned();
        return Some(Finding { severity: Severity::NotSupported, field: at.to_owned(), message });
    };
    let severity = match field.fate {
        Fate::NotSupported => Severity::NotSupported,
        // What is approximated for every user of the field is in the list; what depends on the value is found by who maps it.
        Fate::Mapped | Fate::ProxyOnly | Fate::Approximated | Fate::NotNeeded => return None,
    };
    Some(Finding { severity, field: at.to_owned(), message: field.words.to_owned() })
}

/// The list as a page.
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

What becomes of every field of the objects that `tidegate-sync kubernetes` and [`tidegate import`](import.md) read. This page is
made from the list that both go by. Endpoints are read by `tidegate import` only; the cluster makes EndpointSlices of them.

- *mapped*: it means here what it means there;
- *mapped (proxy)*: so with `--mode proxy`; with `--mode load-balancer` it is the business of the cluster's own proxy;
- *approximated*: it means something a little different, which the last column says;
- *not supported*: it is left out. An object that uses it gets a warning event that names it; so does one with a field that is
  not in this list;
- *not needed*: it says nothing about traffic, or something that is learned in another way.

A field stands for all that is in it.
";
