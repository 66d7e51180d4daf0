//! Translation of MetalLB resources. The importer (`crate::metallb`) translates the settings; this module
//! resolves namespace selectors and separates the objects of several clusters.

use crate::{Fidelity, json::text};
use model::kinds::selector::Selector;
use serde_json::{Map, Value, json};

use super::{CLUSTER_LABEL, Finding, Settings, Severity, Surroundings, TranslationResult, fields, passwords};

/// MetalLB kinds that are translated together.
const KINDS: [fields::Kind; 6] = [
    fields::Kind::IpAddressPool,
    fields::Kind::L2Advertisement,
    fields::Kind::BgpAdvertisement,
    fields::Kind::BgpPeer,
    fields::Kind::BfdProfile,
    fields::Kind::Community,
];

/// Translates all MetalLB resources of a cluster together, because they refer to each other. Also returns
/// each [`Finding`] with the title (`KIND NAME`) of its object.
#[must_use]
pub fn metallb(
    settings: &Settings,
    around: &Surroundings,
    documents: &[Value],
) -> (TranslationResult, Vec<(String, Finding)>) {
    let mut findings = Vec::new();
    let mut known = Vec::new();
    for document in documents {
        let title = format!("{} {}", text(document, "/kind"), text(document, "/metadata/name"));
        if let Some(kind) = KINDS.into_iter().find(|kind| kind.as_str() == text(document, "/kind")) {
            let found = fields::check(kind, document);
            findings.extend(found.into_iter().map(|finding| (title.clone(), finding)));
        }
        let mut document = document.clone();
        resolve_namespaces(settings, around, &mut document);
        if text(&document, "/kind") == fields::Kind::BgpPeer.as_str() {
            let found = passwords::resolve(around.passwords.as_ref(), &mut document);
            findings.extend(found.map(|finding| (title, finding)));
        }
        known.push(document);
    }
    let imported = crate::translate(&[(String::new(), known)]);
    for (title, fidelity, line) in imported.report.lines() {
        let severity = match fidelity {
            Fidelity::Ignored => Severity::NotSupported,
            Fidelity::Approximated => Severity::Approximated,
            Fidelity::Mapped | Fidelity::Note => continue,
        };
        let (field, message) = line.split_once(": ").unwrap_or(("", line));
        let finding = Finding { severity, field: field.to_owned(), message: message.to_owned() };
        let title = title.trim_start_matches(": ").to_owned();
        // Already reported by the field table.
        let is_said = findings.iter().any(|(of, said)| *of == title && said.field == finding.field);
        if !is_said {
            findings.push((title, finding));
        }
    }
    let mut made = TranslationResult::default();
    for mut object in imported.objects {
        among_clusters(settings, &mut object);
        made.finish(&object);
    }
    findings.extend(made.findings.drain(..).map(|finding| (String::new(), finding)));
    (made, findings)
}

/// Replaces the namespace selectors of a pool by the names of the matching namespaces. If no namespace
/// matches, the selectors stay, and the pool gets `autoAssign: false`: an empty list would mean all
/// namespaces.
fn resolve_namespaces(settings: &Settings, around: &Surroundings, pool: &mut Value) {
    let Some(allocation) = pool.pointer_mut("/spec/serviceAllocation").and_then(Value::as_object_mut) else {
        return;
    };
    let selectors: Option<Vec<Selector>> =
        allocation.get("namespaceSelectors").and_then(|value| serde_json::from_value(value.clone()).ok());
    let selectors = selectors.unwrap_or_default();
    let matching =
        around.namespaces.iter().filter(|(_, labels)| selectors.iter().any(|one| one.matches(labels)));
    let mut names: Vec<String> = matching.map(|(name, _)| name.clone()).collect();
    if !names.is_empty() {
        allocation.remove("namespaceSelectors");
    }
    names.extend(
        allocation.get("namespaces").and_then(Value::as_array).into_iter().flatten().map(crate::json::scalar),
    );
    names.sort();
    names.dedup();
    if !names.is_empty() {
        let here: Vec<String> = names.iter().map(|name| settings.name(name)).collect();
        allocation.insert("namespaces".to_owned(), json!(here));
    }
}

/// Prefixes the name of an object with its cluster, and restricts the object to Services and Nodes of the
/// cluster.
fn among_clusters(settings: &Settings, object: &mut Value) {
    let Some(cluster) = &settings.cluster else { return };
    let kind = text(object, "/kind");
    let name = settings.name(&text(object, "/metadata/name"));
    object["metadata"]["name"] = json!(name);
    object["metadata"]["labels"][CLUSTER_LABEL] = json!(cluster.as_str());
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for key in ["addressPools", "peers"] {
        for entry in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            *entry = json!(settings.name(&crate::json::scalar(entry)));
        }
    }
    if let Some(profile) = spec.get_mut("bfdProfile") {
        *profile = json!(settings.name(&crate::json::scalar(profile)));
    }
    let selectors: &[&str] = match kind.as_str() {
        "AddressPool" => &["serviceSelectors"],
        "Advertisement" => &["serviceSelectors", "nodeSelectors"],
        "BgpPeer" => &["nodeSelectors"],
        _ => &[],
    };
    for key in selectors {
        only_of(cluster.as_str(), spec, key);
    }
}

/// Adds the cluster label to every selector in the list `key`, or a selector with this label to an empty
/// list.
fn only_of(cluster: &str, spec: &mut Map<String, Value>, key: &str) {
    let list = spec.entry(key).or_insert_with(|| json!([]));
    if list.as_array().is_some_and(Vec::is_empty) {
        *list = json!([{}]);
    }
    for selector in list.as_array_mut().into_iter().flatten() {
        selector["matchLabels"][CLUSTER_LABEL] = json!(cluster);
    }
}
