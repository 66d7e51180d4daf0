//! Settings of ingress-nginx for all Ingresses: its ConfigMap.

use serde_json::Value;

use crate::{
    draft::Draft,
    json::{entries, scalar, text},
};

/// Label of the objects of ingress-nginx.
const NAME_LABEL: &str = "/metadata/labels/app.kubernetes.io~1name";
/// Beginnings of the keys that restrict the requests of all Ingresses.
const RESTRICTING_KEYS: &[&str] = &[
    "allowlist-source-range",
    "block-",
    "denylist-source-range",
    "enable-modsecurity",
    "enable-owasp",
    "force-ssl-redirect",
    "global-auth-url",
    "http-snippet",
    "limit-",
    "location-snippet",
    "modsecurity-",
    "server-snippet",
    "whitelist-source-range",
];

/// Returns true if a document is the ConfigMap of an ingress-nginx controller.
pub(crate) fn is_settings(document: &Value) -> bool {
    let name = text(document, "/metadata/name");
    text(document, "/kind") == "ConfigMap"
        && (text(document, NAME_LABEL) == "ingress-nginx"
            || name.contains("ingress-nginx")
            || name == "nginx-configuration")
}

/// Reports the settings, none of which is translated.
pub(crate) fn report(draft: &mut Draft, document: &Value) {
    for (key, value) in entries(document, "/data") {
        let reason = if is_restriction(key, value) {
            "gateways do not have it; the Ingresses of the input are left out, and their paths get 500"
        } else {
            "not translated"
        };
        draft.report.ignored(&format!("data[\"{key}\"]"), reason);
    }
}

/// Returns the settings that restrict the requests of all Ingresses, with the name of the ConfigMap.
pub(super) fn restrictions<'a>(documents: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let settings = documents.filter(|document| is_settings(document));
    let of = |document: &'a Value| {
        let name = text(document, "/metadata/name");
        let keys = entries(document, "/data").filter(|(key, value)| is_restriction(key, value));
        keys.map(move |(key, _)| format!("ConfigMap {name}: {key}")).collect::<Vec<_>>()
    };
    settings.flat_map(of).collect()
}

/// Keys with the status code of a response of a limit, which is none by itself.
const STATUS_KEYS: &[&str] = &["limit-conn-status-code", "limit-req-status-code"];

fn is_restriction(key: &str, value: &Value) -> bool {
    let value = scalar(value);
    let is_set = !["", "false", "0"].contains(&value.trim()) && !STATUS_KEYS.contains(&key);
    is_set && RESTRICTING_KEYS.iter().any(|one| key.starts_with(one))
}
