//! Translation of TLSRoutes, which have backends and no conditions.

use model::{
    kinds::http_route::{PARENT_REFS_MAX, ROUTE_HOSTNAMES_MAX},
    primitives::hostname_pattern::HostnamePattern,
};
use serde_json::{Value, json};

use super::{ABSENT, RouteProblem, RouteSource, RouteTranslation, service_port, unknown};
use crate::{
    json::{items, text},
    kubernetes::{Settings, Severity, document, labels_of},
};

/// Translates a TLSRoute with the given parents. The share of a backend that cannot be used, and all connections of a route
/// that is rejected, are closed, so that no less specific route receives them.
pub(super) fn translate(
    made: &mut RouteTranslation,
    settings: &Settings,
    source: RouteSource<'_>,
    parents: &[Value],
) {
    let route = source.route;
    let (mut rule, absent) = (json!({}), json!({ "name": ABSENT, "port": 1 }));
    let mut backends = Vec::new();
    if let [theirs] = items(route, "/spec/rules") {
        for (index, one) in items(theirs, "/backendRefs").iter().enumerate() {
            let at = format!("spec.rules[0].backendRefs[{index}]");
            let mut backend = service_port(made, source, &at, one);
            backend["weight"] = json!(one.get("weight").and_then(Value::as_u64).unwrap_or(1));
            backends.push(backend);
        }
        unknown(&mut made.result, "spec.rules[0]", theirs, &["name", "backendRefs"]);
        if let Some(name) = theirs.get("name").filter(|name| !name.is_null()) {
            rule["name"] = name.clone();
        }
    } else {
        let message = "TlsRoutes have one rule, so that all connections of the route are closed";
        made.result.find(Severity::NotSupported, "spec.rules", message);
        made.rejected =
            Some(RouteProblem { reason: "UnsupportedValue", message: format!("spec.rules: {message}") });
    }
    if backends.is_empty() {
        backends.push(absent.clone());
    }
    rule["backendRefs"] = json!(backends);
    let spec = route.get("spec").unwrap_or(&Value::Null);
    unknown(&mut made.result, "spec", spec, &["parentRefs", "hostnames", "rules"]);
    let mut spec = json!({ "parentRefs": parents, "rules": [rule] });
    let hostnames = items(route, "/spec/hostnames");
    if !hostnames.is_empty() {
        spec["hostnames"] = json!(hostnames);
    }
    let namespace = settings.name(&text(route, "/metadata/namespace"));
    let (name, labels) = (text(route, "/metadata/name"), labels_of(settings, route));
    let whole = |spec| document("TlsRoute", Some(&namespace), &name, &labels, spec);
    if made.result.finish(&whole(spec)) {
        return;
    }
    let invalid = made.result.findings.iter().find(|finding| finding.severity == Severity::Invalid);
    let message = invalid.map(|one| format!("{}: {}", one.field, one.message)).unwrap_or_default();
    made.rejected = Some(RouteProblem { reason: "UnsupportedValue", message });
    let is_valid = |name: &&Value| name.as_str().is_some_and(|name| HostnamePattern::parse(name).is_ok());
    let valid: Vec<_> = hostnames.iter().filter(is_valid).take(ROUTE_HOSTNAMES_MAX).collect();
    if valid.is_empty() && !hostnames.is_empty() {
        // Without host names, it would close the connections to all others.
        return;
    }
    made.result.find(Severity::NotSupported, "spec.rules", "the connections of the route are closed");
    let parents = parents.get(..PARENT_REFS_MAX).unwrap_or(parents);
    let closing =
        json!({ "parentRefs": parents, "hostnames": valid, "rules": [{ "backendRefs": [absent] }] });
    made.result.finish(&whole(closing));
}
