//! Computes the new status of an object of HTTP routing from the state of its objects in Tidegate. Does no I/O.

use std::sync::Arc;

use imbl::OrdMap;
use model::kinds::resource::Kind;
use serde_json::{Map, Value, json};
use translate::json::{items, text};

use crate::{
    kubernetes::{
        resource::Resource,
        state::{Entry, HttpEntry, Id},
        translate::{
            Severity,
            gateway_api::{
                GATEWAY_GROUP, HTTP_CONTROLLER, RouteProblem, supported_kinds, unaccepted, unresolved,
            },
        },
    },
    wanted::ObservedObjects,
};

/// Maximum length of a condition message in characters; the API server's limit is 32,768.
const MESSAGE_MAX: usize = 1024;

/// Data from which statuses are computed, besides the object itself.
#[derive(Debug, Clone, Copy)]
pub struct HttpSources<'a> {
    /// State of the objects in Tidegate.
    pub observed: &'a ObservedObjects,
    /// Services of the cluster, whose load balancer addresses Gateways and Ingresses have.
    pub services: &'a OrdMap<Id, Arc<Entry>>,
}

/// Condition of an object, without the fields that depend on its current status.
struct NewCondition {
    of: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

/// Returns the merge patch for the `status` of an object, or `None` if nothing changes. `now` is the time in Kubernetes
/// format.
#[must_use]
pub fn plan(resource: Resource, entry: &HttpEntry, sources: HttpSources<'_>, now: &str) -> Option<Value> {
    let object = &entry.object;
    let status = match resource {
        Resource::GatewayClass => {
            let accepted = vec![yes("Accepted", "Accepted")];
            json!({ "conditions": merged(object, items(object, "/status/conditions"), accepted, now) })
        }
        Resource::Gateway => gateway(entry, sources, now)?,
        Resource::HttpRoute | Resource::GrpcRoute => {
            json!({ "parents": parents(entry, Kind::HttpRoute, sources, now)? })
        }
        Resource::TlsRoute => json!({ "parents": parents(entry, Kind::TlsRoute, sources, now)? }),
        Resource::Ingress => {
            let addresses = addresses(entry, sources);
            let list: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
            let shown = items(object, "/status/loadBalancer/ingress");
            let ips = |list: &[Value]| list.iter().map(|one| text(one, "/ip")).collect::<Vec<_>>();
            if ips(shown) == ips(&list) {
                return None;
            }
            json!({ "loadBalancer": { "ingress": list } })
        }
        Resource::Service
        | Resource::EndpointSlice
        | Resource::Node
        | Resource::Namespace
        | Resource::Pod
        | Resource::NetworkPolicy
        | Resource::IpAddressPool
        | Resource::L2Advertisement
        | Resource::BgpAdvertisement
        | Resource::BgpPeer
        | Resource::BfdProfile
        | Resource::Community
        | Resource::Secret
        | Resource::IngressClass
        | Resource::ReferenceGrant
        | Resource::CertificateSecret => return None,
    };
    let current = object.get("status").unwrap_or(&Value::Null);
    let changed: Map<_, _> = status
        .as_object()?
        .iter()
        .filter(|(field, value)| current.get(*field).unwrap_or(&json!([])) != *value)
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    // The resource version makes the patch fail after a concurrent change.
    let version = text(object, "/metadata/resourceVersion");
    (!changed.is_empty()).then(|| json!({ "metadata": { "resourceVersion": version }, "status": changed }))
}

fn yes(of: &'static str, reason: &str) -> NewCondition {
    NewCondition { of, status: "True", reason: reason.to_owned(), message: String::new() }
}

fn no(of: &'static str, reason: &str, message: &str) -> NewCondition {
    NewCondition { of, status: "False", reason: reason.to_owned(), message: message.to_owned() }
}

fn of_problem(of: &'static str, true_reason: &str, problem: Option<&RouteProblem>) -> NewCondition {
    problem.map_or_else(|| yes(of, true_reason), |problem| no(of, problem.reason, &problem.message))
}

/// Returns the load balancer addresses of the first Service that has any.
fn addresses(entry: &HttpEntry, sources: HttpSources<'_>) -> Vec<String> {
    let of = |id: &Id| {
        let service = sources.services.get(id)?;
        let list = items(&service.object, "/status/loadBalancer/ingress").iter();
        Some(list.map(|one| text(one, "/ip")).filter(|ip| !ip.is_empty()).collect::<Vec<_>>())
    };
    entry.publishers.iter().filter_map(of).find(|list| !list.is_empty()).unwrap_or_default()
}

/// Returns the stored object in Tidegate that was derived from an object, or the reason for which there is none; `None` while
/// neither is known.
fn stored<'a>(entry: &HttpEntry, kind: Kind, sources: HttpSources<'a>) -> Option<Result<&'a Value, String>> {
    let Some(key) = entry.keys.iter().find(|key| key.kind == kind) else {
        let invalid = entry.findings.iter().filter(|finding| finding.severity > Severity::Approximated);
        let all: Vec<_> = invalid.map(|finding| format!("{}: {}", finding.field, finding.message)).collect();
        return Some(Err(all.join("; ")));
    };
    let refused = sources.observed.refused.get(key).cloned().map(Err);
    refused.or_else(|| sources.observed.objects.get(key).map(Ok))
}

fn gateway(entry: &HttpEntry, sources: HttpSources<'_>, now: &str) -> Option<Value> {
    let object = &entry.object;
    let stored = stored(entry, Kind::Gateway, sources)?;
    let theirs = items(object, "/spec/listeners");
    let unaccepted = |listener| unaccepted(object, listener).is_some();
    let parameters = object.pointer("/spec/infrastructure/parametersRef");
    let (accepted, programmed) = match &stored {
        Ok(stored) => {
            let programmed = of_tidegate(stored, "/status/conditions", "Programmed", "Programmed")?;
            let has_invalid = theirs.iter().any(unaccepted);
            (yes("Accepted", if has_invalid { "ListenersNotValid" } else { "Accepted" }), programmed)
        }
        Err(message) => {
            let reason = match parameters.filter(|parameters| !parameters.is_null()) {
                Some(_) => "InvalidParameters",
                None if theirs.iter().all(unaccepted) => "ListenersNotValid",
                None => "Invalid",
            };
            (no("Accepted", reason, message), no("Programmed", "Invalid", "the Gateway is not accepted"))
        }
    };
    let listeners: Vec<_> = items(object, "/spec/listeners")
        .iter()
        .map(|listener| of_listener(entry, listener, stored.as_ref().ok().copied(), now))
        .collect();
    let conditions = items(object, "/status/conditions");
    let addresses: Vec<_> = addresses(entry, sources)
        .into_iter()
        .map(|address| json!({ "type": "IPAddress", "value": address }))
        .collect();
    Some(json!({
        "conditions": merged(object, conditions, vec![accepted, programmed], now),
        "listeners": listeners,
        "addresses": addresses,
    }))
}

fn of_listener(entry: &HttpEntry, listener: &Value, stored: Option<&Value>, now: &str) -> Value {
    let gateway = &entry.object;
    let name = text(listener, "/name");
    let state = stored.and_then(|stored| stored.pointer("/status/listeners")?.get(&name));
    let conditions = match state {
        Some(state) => {
            let programmed = of_tidegate(state, "/conditions", "Programmed", "Programmed");
            let resolved = match unresolved(gateway, listener, &entry.permitted) {
                Some(problem) => Some(no("ResolvedRefs", problem.reason, &problem.message)),
                None => of_tidegate(state, "/conditions", "ResolvedRefs", "ResolvedRefs"),
            };
            let is_conflict =
                programmed.as_ref().is_some_and(|condition| condition.reason == "ProtocolConflict");
            let conflicted = NewCondition {
                of: "Conflicted",
                status: if is_conflict { "True" } else { "False" },
                reason: if is_conflict { "ProtocolConflict" } else { "NoConflicts" }.to_owned(),
                message: String::new(),
            };
            let all = [Some(yes("Accepted", "Accepted")), programmed, resolved, Some(conflicted)];
            all.into_iter().flatten().collect()
        }
        None => {
            let of_kinds = "the listener allows no kind of routes that gateways have";
            let (accepted, programmed) = match unaccepted(gateway, listener) {
                Some(problem) => (
                    no("Accepted", problem.reason, &problem.message),
                    no("Programmed", "Invalid", "the listener is not accepted"),
                ),
                None => (yes("Accepted", "Accepted"), no("Programmed", "Invalid", of_kinds)),
            };
            let resolved = unresolved(gateway, listener, &entry.permitted);
            vec![accepted, programmed, of_problem("ResolvedRefs", "ResolvedRefs", resolved.as_ref())]
        }
    };
    let shown = items(gateway, "/status/listeners").iter().find(|one| text(one, "/name") == name);
    let current = shown.map_or(&[][..], |shown| items(shown, "/conditions"));
    let attached = stored.and_then(|stored| stored.pointer("/status/attachedRoutes")?.get(&name)?.as_u64());
    let kinds = supported_kinds(listener).into_iter();
    let kinds = kinds.map(|kind| json!({ "group": GATEWAY_GROUP, "kind": kind.as_str() }));
    json!({
        "name": name,
        "supportedKinds": kinds.collect::<Vec<_>>(),
        "attachedRoutes": attached.unwrap_or_default(),
        "conditions": merged(gateway, current, conditions, now),
    })
}

/// Returns a condition of an object in Tidegate as one of the Gateway API, or `None` if Tidegate has not reported it. The
/// reasons of conditions that are not true have the same names.
fn of_tidegate(state: &Value, at: &str, of: &'static str, true_reason: &str) -> Option<NewCondition> {
    let found = items(state, at).iter().find(|condition| text(condition, "/type") == of)?;
    Some(match text(found, "/status").as_str() {
        "True" => yes(of, true_reason),
        "False" => no(of, &text(found, "/reason"), &text(found, "/message")),
        _ => NewCondition {
            of,
            status: "Unknown",
            reason: text(found, "/reason"),
            message: text(found, "/message"),
        },
    })
}

/// Returns the parents of a route in its status: those of other controllers as they are, and those of Tidegate.
fn parents(entry: &HttpEntry, kind: Kind, sources: HttpSources<'_>, now: &str) -> Option<Vec<Value>> {
    let object = &entry.object;
    let shown = items(object, "/status/parents");
    let is_own = |parent: &&Value| text(parent, "/controllerName") == HTTP_CONTROLLER;
    let mut all: Vec<_> = shown.iter().filter(|parent| !is_own(parent)).cloned().collect();
    let stored = stored(entry, kind, sources);
    for parent in &entry.parents {
        let refused = match &stored {
            Some(Err(message)) if parent.refused.is_none() => {
                Some(RouteProblem { reason: "UnsupportedValue", message: message.clone() })
            }
            Some(_) | None => parent.refused.clone(),
        };
        let resolved = match (&entry.unresolved, &stored) {
            (Some(problem), _) => no("ResolvedRefs", problem.reason, &problem.message),
            (None, Some(Ok(stored))) => {
                of_tidegate(stored, "/status/conditions", "ResolvedRefs", "ResolvedRefs")?
            }
            (None, Some(Err(_))) => yes("ResolvedRefs", "ResolvedRefs"),
            (None, None) => return None,
        };
        let own = vec![of_problem("Accepted", "Accepted", refused.as_ref()), resolved];
        let mut same = shown.iter().filter(is_own).filter(|one| one["parentRef"] == parent.reference);
        let current = same.next().map_or(&[][..], |one| items(one, "/conditions"));
        all.push(json!({
            "parentRef": parent.reference, "controllerName": HTTP_CONTROLLER,
            "conditions": merged(object, current, own, now),
        }));
    }
    Some(all)
}

/// Returns the list `current` with the conditions `own` added or replaced. The transition time of a condition changes only
/// with its status.
fn merged(object: &Value, current: &[Value], own: Vec<NewCondition>, now: &str) -> Vec<Value> {
    let is_own = |condition: &&Value| own.iter().any(|one| text(condition, "/type") == one.of);
    let mut merged: Vec<Value> = current.iter().filter(|condition| !is_own(condition)).cloned().collect();
    let generation = object.pointer("/metadata/generation").cloned();
    for NewCondition { of, status, reason, message } in &own {
        let old = current.iter().find(|old| text(old, "/type") == *of && text(old, "/status") == *status);
        let since = old.map(|old| text(old, "/lastTransitionTime")).filter(|time| !time.is_empty());
        let message: String = message.chars().take(MESSAGE_MAX).collect();
        let mut condition = json!({
            "type": of, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| now.to_owned()),
        });
        if let Some(generation) = &generation {
            condition["observedGeneration"] = generation.clone();
        }
        merged.push(condition);
    }
    // The order of an unchanged list stays, so that it is not written again.
    let position = |condition: &Value| {
        current.iter().position(|old| old.get("type") == condition.get("type")).unwrap_or(usize::MAX)
    };
    merged.sort_by_key(position);
    merged
}
