//! IP families of a Service, derived from its spec and the Service ranges of the cluster by the rules of
//! Kubernetes (KEP-563).

use crate::{
    cluster::config::ClusterConfig,
    kinds::service::{IpFamilyPolicy, ServiceSpec},
    primitives::{
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

/// Sets `ipFamilies` and `ipFamilyPolicy` of a Service to their effective values, by the rules of Kubernetes.
/// Adds a violation to `found` if the request is contradictory or the cluster lacks an IP family.
pub(super) fn settle(config: &ClusterConfig, spec: &mut ServiceSpec, found: &mut Vec<Violation>) {
    let configured: Vec<_> = config.families().collect();
    let mut families = asked(spec);
    for (index, family) in families.iter().enumerate().filter(|(_, family)| !configured.contains(family)) {
        let message =
            format!("must be a family that the cluster has a Service range for; {} is not", family.as_str());
        let hint = "start the control server with --service-cidr naming a range of each family";
        let at = format!("/spec/ipFamilies/{index}");
        found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
    }
    let implied =
        if families.len() > 1 { IpFamilyPolicy::RequireDualStack } else { IpFamilyPolicy::SingleStack };
    let policy = spec.ip_family_policy.unwrap_or(implied);
    for family in &configured {
        let wants_more = families.is_empty() || policy != IpFamilyPolicy::SingleStack;
        if wants_more && !families.contains(family) {
            families.push(*family);
        }
    }
    if policy == IpFamilyPolicy::RequireDualStack && families.len() < 2 {
        let message = "must not be RequireDualStack: the cluster has a Service range for one IP family only";
        found.push(Violation::new("/spec/ipFamilyPolicy", ViolationCode::Conflict, message));
    }
    spec.ip_families = families;
    spec.ip_family_policy = Some(policy);
}

/// Returns the IP families that the Service requests by `ipFamilies` or by its cluster IPs.
fn asked(spec: &ServiceSpec) -> Vec<IpFamily> {
    let mut families = spec.ip_families.clone();
    for family in spec.cluster_addresses().map(IpFamily::of) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}
