//! Validation rules of TlsRoutes.

use super::{check_attachment, check_weight};
use crate::{
    kinds::{
        http_route::RULE_PARTS_MAX,
        tls_route::{TLS_ROUTE_RULES_MAX, TlsRouteSpec},
    },
    primitives::violation::{Violation, ViolationCode::Required, check_length},
};

/// Adds the violations of the rules between the fields of a TlsRoute.
pub fn validate_tls_route(spec: &TlsRouteSpec, found: &mut Vec<Violation>) {
    check_attachment(&spec.parent_refs, &spec.hostnames, found);
    let at = "/spec/rules";
    if spec.rules.is_empty() {
        found.push(Violation::new(at, Required, "must have one rule"));
    }
    if !check_length(at, spec.rules.len(), TLS_ROUTE_RULES_MAX, found) {
        return;
    }
    for (index, rule) in spec.rules.iter().enumerate() {
        let at = format!("{at}/{index}/backendRefs");
        if rule.backend_refs.is_empty() {
            found.push(Violation::new(at, Required, "must name at least one Service"));
        } else if check_length(&at, rule.backend_refs.len(), RULE_PARTS_MAX, found) {
            for (index, backend) in rule.backend_refs.iter().enumerate() {
                check_weight(&format!("{at}/{index}"), backend.weight, found);
            }
        }
    }
}
