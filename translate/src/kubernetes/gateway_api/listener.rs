//! Translation of the listeners of a Gateway, and the reasons for which the cluster's conditions of a listener are false.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ABSENT, GATEWAY_GROUP, Id, ReferenceGrants, RouteKind, RouteProblem, copy_name};
use crate::json::{entries, items, text};

/// Returns the kinds of routes that may attach to a listener: those of its protocol, limited by `allowedRoutes.kinds`.
#[must_use]
pub fn supported_kinds(listener: &Value) -> Vec<RouteKind> {
    let protocol = text(listener, "/protocol");
    if !["HTTP", "HTTPS"].contains(&protocol.as_str()) {
        return Vec::new();
    }
    let kinds = items(listener, "/allowedRoutes/kinds");
    let is_allowed =
        |kind: &RouteKind| kinds.is_empty() || kinds.iter().any(|one| route_kind(one) == Some(*kind));
    RouteKind::ALL.into_iter().filter(is_allowed).collect()
}

/// Returns the kind of an entry of `allowedRoutes.kinds`, or `None` if gateways do not have it.
fn route_kind(entry: &Value) -> Option<RouteKind> {
    let group = entry.get("group").and_then(Value::as_str).unwrap_or(GATEWAY_GROUP);
    let kind = text(entry, "/kind");
    RouteKind::ALL.into_iter().find(|one| group == GATEWAY_GROUP && one.as_str() == kind)
}

/// Returns the reason for which the condition `ResolvedRefs` of a listener is false, whatever Certificates exist. `permitted` are
/// the Secrets of other namespaces to which the Gateway may refer.
#[must_use]
pub fn unresolved(gateway: &Value, listener: &Value, permitted: &BTreeSet<Id>) -> Option<RouteProblem> {
    let kinds = items(listener, "/allowedRoutes/kinds");
    if let Some(index) = kinds.iter().position(|one| route_kind(one).is_none()) {
        let message = format!("allowedRoutes.kinds[{index}] is neither HTTPRoute nor GRPCRoute");
        return Some(RouteProblem { reason: "InvalidRouteKinds", message });
    }
    let namespace = text(gateway, "/metadata/namespace");
    let refs = items(listener, "/tls/certificateRefs").iter();
    let mut ids = refs.map(|one| secret(&namespace, one));
    let id = ids.find(|id| id.namespace != namespace && !permitted.contains(id))?;
    let message = format!("no ReferenceGrant allows the Secret {}/{}", id.namespace, id.name);
    Some(RouteProblem { reason: "RefNotPermitted", message })
}

/// Returns the reason for which the condition `Accepted` of a listener is false: gateways do not serve it.
#[must_use]
pub fn unaccepted(gateway: &Value, listener: &Value) -> Option<RouteProblem> {
    let problem =
        translated(&ReferenceGrants::default(), &text(gateway, "/metadata/namespace"), listener).err()?;
    let (field, message) = problem;
    let reason = if field == "protocol" { "UnsupportedProtocol" } else { "UnsupportedValue" };
    // A listener without any kind of routes is valid, but has no routes.
    (field != "allowedRoutes.kinds").then(|| RouteProblem { reason, message: format!("{field}: {message}") })
}

/// Translates a listener.
///
/// # Errors
/// Returns the field and the reason for which it is left out.
pub(super) fn translated(
    grants: &ReferenceGrants,
    namespace: &str,
    theirs: &Value,
) -> Result<Value, (&'static str, String)> {
    let protocol = text(theirs, "/protocol");
    if !["HTTP", "HTTPS"].contains(&protocol.as_str()) {
        return Err(("protocol", format!("`{protocol}` is neither HTTP nor HTTPS")));
    }
    let mut listener = json!({
        "name": theirs.get("name"), "port": theirs.get("port"), "protocol": protocol,
    });
    let hostname = text(theirs, "/hostname");
    if !hostname.is_empty() {
        listener["hostname"] = json!(hostname);
    }
    let from = text(theirs, "/allowedRoutes/namespaces/from");
    match from.as_str() {
        "" | "Same" => {}
        "All" => listener["allowedRoutes"] = json!({ "namespaces": { "from": "All" } }),
        _ => return Err(("allowedRoutes.namespaces.from", format!("`{from}` is neither Same nor All"))),
    }
    if supported_kinds(theirs).is_empty() {
        return Err(("allowedRoutes.kinds", "it allows neither HTTPRoutes nor GRPCRoutes".to_owned()));
    }
    let Some(tls) = theirs.get("tls").filter(|tls| protocol == "HTTPS" && tls.is_object()) else {
        return Ok(listener);
    };
    let mode = text(tls, "/mode");
    if !["", "Terminate"].contains(&mode.as_str()) {
        return Err(("tls.mode", format!("`{mode}` is not Terminate")));
    }
    let more = entries(tls, "").map(|(field, _)| field);
    if let Some(field) = more.into_iter().find(|field| !["mode", "certificateRefs"].contains(field)) {
        return Err(("tls", format!("`{field}` is not supported")));
    }
    let mut names: Vec<_> = certificates(grants, namespace, tls)
        .into_iter()
        .map(|id| if id.namespace == namespace { id.name } else { copy_name(&id) })
        .collect();
    if names.is_empty() {
        names.push(ABSENT.to_owned());
    }
    let refs: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    listener["tls"] = json!({ "certificateRefs": refs });
    Ok(listener)
}

/// Returns the Secrets that the TLS settings of a listener name, those of other namespaces only if `grants` allow it.
pub(super) fn certificates(grants: &ReferenceGrants, namespace: &str, tls: &Value) -> Vec<Id> {
    let secrets = items(tls, "/certificateRefs").iter().filter(|one| {
        ["", "Secret"].contains(&text(one, "/kind").as_str()) && text(one, "/group").is_empty()
    });
    let ids = secrets.map(|one| secret(namespace, one));
    ids.filter(|id| grants.allow("Gateway", namespace, "Secret", id)).collect()
}

/// Returns the Secret to which a Gateway in a namespace refers.
fn secret(namespace: &str, reference: &Value) -> Id {
    let own = Some(text(reference, "/namespace")).filter(|namespace| !namespace.is_empty());
    Id { namespace: own.unwrap_or_else(|| namespace.to_owned()), name: text(reference, "/name") }
}
