//! Status of Certificates, derived from their contents, the time and the Gateways that name them.

use super::{no, yes};
use crate::{
    cluster::snapshot::Snapshot,
    http::{CertificateFacts, certificate_refs},
    kinds::{
        certificate::CertificateSpec, condition_reason::ConditionReason, metadata::Metadata, resource::Kind,
    },
    observed::status::{CertificateStatus, Condition, ConditionType},
    primitives::quantity::Timestamp,
};

/// Time before the end of the validity from which a certificate should be renewed, in seconds.
const EXPIRES_SOON_SECS: i64 = 14 * 24 * 3600;

/// Computes the status of a Certificate at a time.
#[must_use]
pub fn certificate_status(
    snapshot: &Snapshot,
    metadata: &Metadata,
    spec: &CertificateSpec,
    now: Timestamp,
) -> CertificateStatus {
    let gateways = snapshot.list(Kind::Gateway, metadata.namespace.as_ref(), None);
    let mut listeners =
        gateways.filter_map(|object| object.as_gateway()).flat_map(|gateway| &gateway.listeners);
    let is_used = listeners.any(|one| certificate_refs(one).any(|one| one.name == metadata.name));
    let used = if is_used {
        yes(ConditionType::Used, ConditionReason::Referenced)
    } else {
        let message = "no listener of a Gateway in the namespace names it".to_owned();
        no(ConditionType::Used, ConditionReason::NotReferenced, message)
            .hint("name it in tls.certificateRefs of a listener")
    };
    let accepted = yes(ConditionType::Accepted, ConditionReason::Valid);
    match CertificateFacts::read(&spec.certificate) {
        Ok(facts) => CertificateStatus {
            conditions: vec![accepted, validity(&facts, now), used],
            dns_names: facts.dns_names,
            issuer: facts.issuer,
            not_before: Some(facts.not_before),
            not_after: Some(facts.not_after),
        },
        // Admission rejects such an object; another version of the server may have admitted it.
        Err(problem) => {
            let message = format!("the certificate {problem}");
            let accepted = no(ConditionType::Accepted, ConditionReason::Unsupported, message);
            CertificateStatus { conditions: vec![accepted, used], ..CertificateStatus::default() }
        }
    }
}

fn validity(facts: &CertificateFacts, now: Timestamp) -> Condition {
    let left = facts.not_after.unix_seconds().saturating_sub(now.unix_seconds());
    let renew = "write a new certificate and its private key to the object";
    let (ready, until) = (ConditionType::Ready, facts.not_after);
    if now < facts.not_before {
        let message = format!("the validity begins at {}", facts.not_before);
        return no(ready, ConditionReason::NotYetValid, message)
            .hint("check the clocks of the control servers");
    }
    if left < 0 {
        return no(ready, ConditionReason::Expired, format!("expired at {until}")).hint(renew);
    }
    if left < EXPIRES_SOON_SECS {
        let mut condition = yes(ready, ConditionReason::ExpiresSoon).hint(renew);
        condition.message = format!("expires at {until}");
        return condition;
    }
    yes(ready, ConditionReason::InValidity)
}
