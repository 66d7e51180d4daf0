//! Computes the new status of a Kubernetes Service from the state of its object in Tidegate. Does no I/O.

use serde_json::{Map, Value, json};
use translate::json::{items, text};

use crate::kubernetes::{
    state::Entry,
    translate::{Claim, Finding, READY, Severity},
};

/// Condition type: all requested features are supported.
pub const SUPPORTED: &str = "tidegate.io/Supported";
/// Maximum length of a condition message in characters; the API server's limit is 32,768.
const MESSAGE_MAX: usize = 1024;

/// State in Tidegate of the object into which a Kubernetes Service was translated.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServiceState<'a> {
    /// Object as stored by the server; `None` if it does not exist.
    pub published: Option<&'a Value>,
    /// Reason for which the server rejected the object; `None` if it was accepted.
    pub refused: Option<&'a str>,
}

/// Returns the merge patch for the Service's `status`, or `None` if nothing changes. `now` is the time in
/// Kubernetes format.
#[must_use]
pub fn plan(entry: &Entry, said: ServiceState<'_>, now: &str) -> Option<Value> {
    let object = &entry.object;
    let current = items(object, "/status/conditions");
    let is_told = current.iter().any(is_ours);
    let (conditions, ingress) = match entry.claim {
        Claim::Addressed => {
            let own = conditions(entry, said);
            if own.is_empty() {
                return None;
            }
            (own, ingress(said))
        }
        // The Service is no longer handled, so its previous status is removed.
        Claim::Proxied | Claim::None if is_told => (Vec::new(), Some(Vec::new())),
        Claim::Proxied | Claim::None => return None,
    };
    let mut status = Map::new();
    let merged = merged(current, conditions, now);
    if merged != current {
        status.insert("conditions".to_owned(), json!(merged));
    }
    let shown = items(object, "/status/loadBalancer/ingress");
    if let Some(ingress) = ingress.filter(|ingress| ingress != shown) {
        let list = if ingress.is_empty() { Value::Null } else { json!(ingress) };
        status.insert("loadBalancer".to_owned(), json!({ "ingress": list }));
    }
    if status.is_empty() {
        return None;
    }
    // The resource version makes the patch fail after a concurrent change.
    let version = text(object, "/metadata/resourceVersion");
    Some(json!({ "metadata": { "resourceVersion": version }, "status": status }))
}

/// Returns the load balancer addresses for the Service's status, or `None` if Tidegate has not published any
/// state; the status then keeps its addresses.
fn ingress(said: ServiceState<'_>) -> Option<Vec<Value>> {
    let published = said.published?;
    let addresses = items(published, "/status/loadBalancer/ingress").iter();
    Some(addresses.map(|entry| json!({ "ip": text(entry, "/ip"), "ipMode": "VIP" })).collect())
}

fn conditions(entry: &Entry, said: ServiceState<'_>) -> Vec<Value> {
    let supported =
        match entry.findings.iter().filter(|finding| finding.severity > Severity::Approximated).count() {
            0 => condition(SUPPORTED, "True", "Supported", ""),
            _ => condition(SUPPORTED, "False", "NotSupported", &sentence(&entry.findings)),
        };
    let ready = match (entry.key.is_some(), said.refused, said.published) {
        (false, _, _) => condition(READY, "False", "Invalid", &sentence(&entry.findings)),
        (true, Some(why), _) => condition(READY, "False", "Refused", why),
        (true, None, Some(published)) => of_tidegate(published),
        (true, None, None) => return Vec::new(),
    };
    vec![ready, supported]
}

/// Returns the condition [`READY`] for the Service's status. If the Service is not ready, reason and message
/// are those of the first condition in Tidegate's status that is not true.
fn of_tidegate(published: &Value) -> Value {
    let ladder = items(published, "/status/conditions");
    let ready = ladder.iter().find(|condition| text(condition, "/type") == "Ready");
    // For a Service that is not ready, the first unmet condition contains the reason.
    let first = ladder.iter().find(|condition| text(condition, "/status") != "True");
    match (ready, first) {
        (Some(ready), None) => condition(READY, "True", "Ready", &text(ready, "/message")),
        (Some(_), Some(missing)) => {
            let status = if text(missing, "/status") == "False" { "False" } else { "Unknown" };
            condition(READY, status, &text(missing, "/reason"), &text(missing, "/message"))
        }
        (None, _) => condition(READY, "Unknown", "NotReported", "Tidegate has not reported the Service yet"),
    }
}

fn condition(of: &str, status: &str, reason: &str, message: &str) -> Value {
    let word: String = reason.chars().filter(char::is_ascii_alphanumeric).collect();
    let reason =
        if word.starts_with(|c: char| c.is_ascii_alphabetic()) { word } else { "Unknown".to_owned() };
    let message: String = message.chars().take(MESSAGE_MAX).collect();
    json!({ "type": of, "status": status, "reason": reason, "message": message })
}

fn sentence(findings: &[Finding]) -> String {
    let said = findings.iter().filter(|finding| finding.severity > Severity::Approximated);
    said.map(|finding| format!("{}: {}", finding.field, finding.message)).collect::<Vec<_>>().join("; ")
}

fn is_ours(condition: &Value) -> bool {
    matches!(text(condition, "/type").as_str(), READY | SUPPORTED)
}

/// Replaces the adapter's conditions in the list `current` by `own`. The transition time of a condition
/// changes only with its status.
fn merged(current: &[Value], own: Vec<Value>, now: &str) -> Vec<Value> {
    let mut merged: Vec<Value> = current.iter().filter(|condition| !is_ours(condition)).cloned().collect();
    for mut condition in own {
        let old = current.iter().find(|old| old.get("type") == condition.get("type"));
        let since = old.filter(|old| old.get("status") == condition.get("status"));
        let since = since.map(|old| text(old, "/lastTransitionTime")).filter(|time| !time.is_empty());
        condition["lastTransitionTime"] = json!(since.unwrap_or_else(|| now.to_owned()));
        merged.push(condition);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(status: Value) -> Entry {
        let object = json!({ "metadata": { "name": "web", "namespace": "shop", "resourceVersion": "7" }, "status": status });
        let key = model::kinds::resource::ObjectKey::parse_store_key("services/shop/web");
        Entry { object, claim: Claim::Addressed, key, findings: Vec::new() }
    }

    fn published() -> Value {
        json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready" }],
            "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] },
        } })
    }

    /// Returns a copy of the Service entry with the patch applied to the Service's status.
    fn patched(entry: &Entry, patch: &Value) -> Entry {
        let mut status = entry.object["status"].clone();
        for (key, value) in patch["status"].as_object().unwrap() {
            status[key] = value.clone();
        }
        Entry { object: json!({ "metadata": entry.object["metadata"], "status": status }), ..entry.clone() }
    }

    #[test]
    fn f037_the_address_is_written_once_and_then_nothing_more() {
        let other = json!({ "type": "Other", "status": "True" });
        let entry = entry(json!({ "conditions": [other] }));
        let published = published();
        let said = ServiceState { published: Some(&published), refused: None };
        let patch = plan(&entry, said, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(
            patch["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }])
        );
        assert_eq!(patch["status"]["conditions"][0], other, "conditions of others are kept");
        assert_eq!(plan(&patched(&entry, &patch), said, "2026-01-01T00:00:09Z"), None);
    }

    #[test]
    fn what_tidegate_does_not_know_yet_changes_nothing() {
        assert_eq!(
            plan(
                &entry(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } })),
                ServiceState::default(),
                "t"
            ),
            None
        );
    }

    #[test]
    fn a_refusal_is_said_and_leaves_the_addresses() {
        let patch =
            plan(&entry(json!({})), ServiceState { published: None, refused: Some("no") }, "t").unwrap();
        assert_eq!(patch["status"]["conditions"][0]["reason"], "Refused");
        assert!(patch["status"].get("loadBalancer").is_none());
    }

    #[test]
    fn f038_what_waits_for_an_address_says_why() {
        let published = json!({ "status": { "conditions": [
            { "type": "AddressAssigned", "status": "False", "reason": "NoPool", "message": "no pool" },
            { "type": "Ready", "status": "False", "reason": "NoPool" },
        ] } });
        let patch = plan(&entry(json!({})), ServiceState { published: Some(&published), refused: None }, "t")
            .unwrap();
        assert_eq!(patch["status"]["conditions"][0]["reason"], "NoPool");
        assert_eq!(patch["status"]["conditions"][0]["message"], "no pool");
    }

    #[test]
    fn what_ceases_to_be_ours_is_cleared_and_what_never_was_is_left_alone() {
        let ours = json!({ "conditions": [{ "type": READY, "status": "True" }], "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
        let gone = Entry { claim: Claim::None, ..entry(ours) };
        let patch = plan(&gone, ServiceState::default(), "t").unwrap();
        assert_eq!(patch["status"], json!({ "conditions": [], "loadBalancer": { "ingress": null } }));
        let never = Entry {
            claim: Claim::None,
            ..entry(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } }))
        };
        assert_eq!(plan(&never, ServiceState::default(), "t"), None);
    }
}
