//! Settings that are typed and checked but not carried out yet: said plainly, never ignored.
//!
//! A setting is *blocking* when programming the Service without it would do something else than what was asked; such a
//! Service is not programmed.

use crate::{
    cluster::compiled::UnsupportedField,
    kinds::service::{ForwardingMethod, ServiceSpec},
};

/// The blocking settings of a Service: those that no proxy mode carries out. What one mode cannot do, its agents report.
#[must_use]
pub fn blocking(spec: &ServiceSpec) -> Vec<UnsupportedField> {
    let forwarding = spec.forwarding_method != ForwardingMethod::Masquerade;
    collect([(
        forwarding,
        "spec.forwardingMethod",
        "only masquerade is carried out: direct routing and tunnels need the virtual address at the endpoints",
    )])
}

fn collect<const N: usize>(settings: [(bool, &str, &str); N]) -> Vec<UnsupportedField> {
    let asked = settings.into_iter().filter(|(is_asked, _, _)| *is_asked);
    asked
        .map(|(_, field, message)| UnsupportedField { field: field.to_owned(), message: message.to_owned() })
        .collect()
}
