//! Translation of the listeners of a Gateway, and the reasons for which the cluster's conditions of a listener are false.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ABSENT, GATEWAY_GROUP, Id, ReferenceGrants, RouteKind, RouteProblem, copy_name};
use crate::json::{entries, items, text};

/// Returns the kinds of routes that may attach to a listener: those of its protocol, limited by `allowedRoutes.kinds`.
#[must_use]
pub fn supported_kinds(listener: &Value) -> Vec<RouteKind> {
    let protocol = text(listener, "/protocol");
    let kinds = items(listener, "/allowedRoutes/kinds");
    let is_allowed =
        |kind: &RouteKind| kinds.is_empty() || kinds.iter().any(|one| route_kind(one) == Some(*kind));
    RouteKind::ALL.into_iter().filter(|kind| kind.is_for(&protocol)).filter(is_allowed).collect()
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
    let (kinds, protocol) = (items(listener, "/allowedRoutes/kinds"), text(listener, "/protocol"));
    let is_known = |one: &Value| route_kind(one).is_some_and(|kind| kind.is_for(&protocol));
    if let Some(index) = kinds.iter().position(|one| !is_known(one)) {
        let known = RouteKind::ALL.into_iter().filter(|kind| kind.is_for(&protocol)).map(RouteKind::as_str);
        let known = known.collect::<Vec<_>>().join(" nor ");
        let either = if known.contains(' ') { "neither" } else { "not" };
        let message = format!("allowedRoutes.kinds[{index}] is {either} {known}");
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
    let grants = ReferenceGrants::default();
    let Err((field, message)) = translated(&grants, gateway, listener) else {
        let name = listener.get("name");
        let index = items(gateway, "/spec/listeners").iter().position(|one| one.get("name") == name)?;
        let (field, message) = conflicts(gateway).remove(&index)?;
        let reason = if field == "protocol" { "ProtocolConflict" } else { "HostnameConflict" };
        return Some(RouteProblem { reason, message: format!("{field}: {message}") });
    };
    let reason = if field == "protocol" { "UnsupportedProtocol" } else { "UnsupportedValue" };
    // A listener without any kind of routes is valid, but has no routes.
    (field != "allowedRoutes.kinds").then(|| RouteProblem { reason, message: format!("{field}: {message}") })
}

/// Returns the listeners of a Gateway that are left out because another one has the port and the host name, or the port with a
/// protocol beside which theirs is not possible: by their indices, the field and the reason. Listeners for requests have
/// precedence over those for connections, and then the first one.
pub(super) fn conflicts(gateway: &Value) -> BTreeMap<usize, (&'static str, String)> {
    let grants = ReferenceGrants::default();
    let is_served = |(_, one): &(usize, &Value)| translated(&grants, gateway, one).is_ok();
    let mut served: Vec<_> = items(gateway, "/spec/listeners").iter().enumerate().filter(is_served).collect();
    served.sort_by_key(|(_, one)| text(one, "/protocol") == "TLS");
    let (mut protocols, mut names) = (BTreeMap::new(), BTreeSet::new());
    let mut found = BTreeMap::new();
    for (index, one) in served {
        let (protocol, port) = (text(one, "/protocol"), one.get("port").and_then(Value::as_u64));
        let first: &String = protocols.entry(port).or_insert_with(|| protocol.clone());
        if (first == "HTTP") != (protocol == "HTTP") {
            let message =
                format!("`{protocol}` cannot share a port with the protocol {first} of another listener");
            found.insert(index, ("protocol", message));
        } else if !names.insert((port, text(one, "/hostname"))) {
            found.insert(index, ("hostname", "another listener has the port and the host name".to_owned()));
        }
    }
    found
}

/// Translates a listener of a Gateway.
///
/// # Errors
/// Returns the field and the reason for which it is left out.
pub(super) fn translated(
    grants: &ReferenceGrants,
    gateway: &Value,
    theirs: &Value,
) -> Result<Value, (&'static str, String)> {
    let namespace = text(gateway, "/metadata/namespace");
    let protocol = text(theirs, "/protocol");
    if !["HTTP", "HTTPS", "TLS"].contains(&protocol.as_str()) {
        return Err(("protocol", format!("`{protocol}` is not HTTP, HTTPS or TLS")));
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
        return Err(("allowedRoutes.kinds", format!("it allows no routes that {protocol} has")));
    }
    if protocol == "HTTP" {
        return Ok(listener);
    }
    let Some(tls) = theirs.get("tls").filter(|tls| tls.is_object()) else {
        return Err(("tls", format!("must be set for the protocol {protocol}")));
    };
    let mode = text(tls, "/mode");
    if protocol == "TLS" && mode == "Passthrough" {
        listener["tls"] = json!({ "mode": mode });
        return Ok(listener);
    }
    if !["", "Terminate"].contains(&mode.as_str()) {
        return Err(("tls.mode", format!("`{mode}` is not supported for {protocol}")));
    }
    let more = entries(tls, "").map(|(field, _)| field);
    if let Some(field) = more.into_iter().find(|field| !["mode", "certificateRefs"].contains(field)) {
        return Err(("tls", format!("`{field}` is not supported")));
    }
    if protocol == "HTTPS" && asks_for_client_certificates(gateway, theirs) {
        let message = "`spec.tls.frontend` of the Gateway asks for certificates of clients, which gateways do not verify";
        return Err(("tls", message.to_owned()));
    }
    let mut names: Vec<_> = certificates(grants, &namespace, tls)
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

/// Returns true if a Gateway verifies certificates of clients on the port of a listener, in any mode: an entry for the port in
/// `spec.tls.frontend.perPort` replaces `spec.tls.frontend.default`.
fn asks_for_client_certificates(gateway: &Value, listener: &Value) -> bool {
    let port = listener.get("port").and_then(Value::as_u64);
    let per_port = items(gateway, "/spec/tls/frontend/perPort").iter();
    let mut own = per_port.filter(|one| one.get("port").and_then(Value::as_u64) == port);
    let validation = match own.next() {
        Some(own) => own.pointer("/tls/validation"),
        None => gateway.pointer("/spec/tls/frontend/default/validation"),
    };
    validation.is_some_and(|validation| !validation.is_null())
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
