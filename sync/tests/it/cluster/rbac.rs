//! Permissions that the roles of the Kubernetes manifests grant, for comparison with the requests of a test.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::Value;
use translate::parse::{Language, objects};

/// Returns the permissions of all roles in a manifest, each as `verb group resource`.
pub(crate) fn allowed(manifest: &str) -> BTreeSet<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes").join(manifest);
    let text = std::fs::read(&path).unwrap();
    let mut allowed = BTreeSet::new();
    for object in objects(Language::Yaml, &text).unwrap() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let words = |key: &str| rule[key].as_array().unwrap().iter().map(word).collect::<Vec<_>>();
            for group in words("apiGroups") {
                for resource in words("resources") {
                    allowed.extend(words("verbs").iter().map(|verb| format!("{verb} {group:?} {resource}")));
                }
            }
        }
    }
    allowed
}

fn word(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
