//! Columns of Certificates, Gateways and routes. Pure functions.

use std::collections::BTreeSet;

use model::{
    kinds::{gateway::GatewayListener, http_route::ParentRef},
    primitives::{hostname_pattern::HostnamePattern, quantity::Timestamp},
};

use crate::{
    terminal::table::Cell,
    views::columns::{addresses::status, age_cell},
    views::typed::{Certificate, Gateway, HttpRoute, TlsRoute},
};

/// Column headings of Certificates: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const CERTIFICATE: (&[&str], &[&str]) =
    (&["NAME", "DNS NAMES", "EXPIRES", "STATUS", "AGE"], &["ISSUER"]);
/// Column headings of Gateways.
pub(crate) const GATEWAY: (&[&str], &[&str]) = (&["NAME", "LISTENERS", "ROUTES", "STATUS", "AGE"], &[]);
/// Column headings of HttpRoutes: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ROUTE: (&[&str], &[&str]) =
    (&["NAME", "HOSTNAMES", "GATEWAYS", "STATUS", "AGE"], &["RULES", "BACKENDS"]);

/// Column headings of TlsRoutes: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const TLS_ROUTE: (&[&str], &[&str]) =
    (&["NAME", "HOSTNAMES", "GATEWAYS", "STATUS", "AGE"], &["BACKENDS"]);

pub(crate) fn certificate(object: &Certificate, wide: bool, now: Timestamp) -> Vec<Cell> {
    let expires = object.status.not_after.map(|time| time.to_string()).unwrap_or_default();
    let mut names = object.status.dns_names.clone();
    if let Some(settings) = object.spec.acme.as_ref().filter(|_| names.is_empty()) {
        names = settings.dns_names.iter().map(ToString::to_string).collect();
    }
    let mut row: Vec<Cell> = vec![
        names.join(",").into(),
        expires.into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(object.status.issuer.clone().into());
    }
    row
}

pub(crate) fn gateway(object: &Gateway, now: Timestamp) -> Vec<Cell> {
    let routes = object.status.attached_routes.values().max().copied().unwrap_or_default();
    vec![
        listeners(&object.spec.listeners).into(),
        routes.to_string().into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ]
}

/// Returns the listeners as `HOST:PORT`, separated by commas.
pub(crate) fn listeners(all: &[GatewayListener]) -> String {
    let texts = all.iter().map(|listener| {
        let host = listener.hostname.as_ref().map_or("*", HostnamePattern::as_str);
        format!("{host}:{}", listener.port)
    });
    texts.collect::<Vec<_>>().join(",")
}

pub(crate) fn route(object: &HttpRoute, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row = vec![
        hostnames(&spec.hostnames).into(),
        parents(&spec.parent_refs).into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs);
        row.push(spec.rules.len().to_string().into());
        row.push(listed(backends.map(|backend| format!("{}:{}", backend.name, backend.port))).into());
    }
    row
}

pub(crate) fn tls_route(object: &TlsRoute, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row = vec![
        hostnames(&spec.hostnames).into(),
        parents(&spec.parent_refs).into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs);
        row.push(listed(backends.map(|backend| format!("{}:{}", backend.name, backend.port))).into());
    }
    row
}

fn hostnames(all: &[HostnamePattern]) -> String {
    let names: Vec<_> = all.iter().map(HostnamePattern::as_str).collect();
    if names.is_empty() { "*".to_owned() } else { names.join(",") }
}

fn parents(all: &[ParentRef]) -> String {
    all.iter().map(parent).collect::<Vec<_>>().join(",")
}

/// Returns different texts in their order, separated by commas.
fn listed(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
}

/// Returns a parent as `[NAMESPACE/]NAME[.LISTENER][:PORT]`.
pub(crate) fn parent(parent: &ParentRef) -> String {
    let ParentRef { name, namespace, section_name, port } = parent;
    let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let section = section_name.as_ref().map(|section| format!(".{section}")).unwrap_or_default();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{namespace}{name}{section}{port}")
}
