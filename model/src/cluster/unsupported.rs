//! Settings that the API accepts and validates but that are not implemented yet; all of them are reported.
//!
//! A setting is *blocking* if a Service programmed without it would behave differently from its spec. Such a
//! Service is not programmed.

use crate::{
    cluster::compiled::UnsupportedField,
    kinds::service::{ForwardingMethod, ServiceSpec},
};

/// Returns the blocking settings of a Service: those that no proxy mode implements. Agents report settings that only
/// their mode does not support.
#[must_use]
pub fn blocking(spec: &ServiceSpec) -> Vec<UnsupportedField> {
    let forwarding = spec.forwarding_method != ForwardingMethod::Masquerade;
    collect([(
        forwarding,
        "spec.forwardingMethod",
        "only masquerade is implemented: direct routing and tunnels need the virtual address at the endpoints",
    )])
}

fn collect<const N: usize>(settings: [(bool, &str, &str); N]) -> Vec<UnsupportedField> {
    let used = settings.into_iter().filter(|(is_used, _, _)| *is_used);
    used.map(|(_, field, message)| UnsupportedField { field: field.to_owned(), message: message.to_owned() })
        .collect()
}
