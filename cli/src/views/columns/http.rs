//! Columns of Certificates, Gateways and HttpRoutes. Pure functions.

use model::{
    kinds::{gateway::GatewayListener, http_route::ParentRef},
    primitives::{hostname_pattern::HostnamePattern, quantity::Timestamp},
};

use crate::{
    terminal::table::Cell,
    views::columns::{addresses::status, age_cell},
    views::typed::{Certificate, Gateway, HttpRoute},
};

/// Column headings of Certificates: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const CERTIFICATE: (&[&str], &[&str]) =
    (&["NAME", "DNS NAMES", "EXPIRES", "STATUS", "AGE"], &["ISSUER"]);
/// Column headings of Gateways.
pub(crate) const GATEWAY: (&[&str], &[&str]) = (&["NAME", "LISTENERS", "ROUTES", "STATUS", "AGE"], &[]);
/// Column headings of HttpRoutes: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ROUTE: (&[&str], &[&str]) =
    (&["NAME", "HOSTNAMES", "GATEWAYS", "STATUS", "AGE"], &["RULES", "BACKENDS"]);

pub(crate) fn certificate(object: &Certificate, wide: bool, now: Timestamp) -> Vec<Cell> {
    let expires = object.status.not_after.map(|time| time.to_string()).unwrap_or_default();
    let mut row: Vec<Cell> = vec![
        object.status.dns_names.join(",").into(),
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
    let hostnames: Vec<_> = spec.hostnames.iter().map(HostnamePattern::as_str).collect();
    let hostnames = if hostnames.is_empty() { "*".to_owned() } else { hostnames.join(",") };
    let parents: Vec<_> = spec.parent_refs.iter().map(parent).collect();
    let mut row: Vec<Cell> = vec![
        hostnames.into(),
        parents.join(",").into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs);
        let mut backends: Vec<_> =
            backends.map(|backend| format!("{}:{}", backend.name, backend.port)).collect();
        backends.sort();
        backends.dedup();
        row.push(spec.rules.len().to_string().into());
        row.push(backends.join(",").into());
    }
    row
}

/// Returns a parent as `[NAMESPACE/]NAME[.LISTENER][:PORT]`.
pub(crate) fn parent(parent: &ParentRef) -> String {
    let ParentRef { name, namespace, section_name, port } = parent;
    let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let section = section_name.as_ref().map(|section| format!(".{section}")).unwrap_or_default();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{namespace}{name}{section}{port}")
}
