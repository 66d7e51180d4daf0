//! Status of Certificates, derived from their contents, the time and the Gateways that name them.

use super::{no, yes};
use crate::{
    cluster::snapshot::Snapshot,
    http::{CertificateFacts, certificate_refs, is_issued, renewal_time},
    kinds::{
        certificate::{AcmeSettings, CertificateSpec},
        condition_reason::ConditionReason,
        metadata::Metadata,
        resource::Kind,
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
    let issued = spec.acme.as_ref().map(|settings| issuance(spec, settings));
    if spec.certificate.is_empty() {
        let message = "no certificate has been issued yet".to_owned();
        let ready = no(ConditionType::Ready, ConditionReason::OrderPending, message);
        let conditions = [Some(accepted), Some(ready), issued, Some(used)].into_iter().flatten().collect();
        return CertificateStatus { conditions, ..CertificateStatus::default() };
    }
    match CertificateFacts::read(&spec.certificate) {
        Ok(facts) => CertificateStatus {
            conditions: [Some(accepted), Some(validity(&facts, now, spec)), issued, Some(used)]
                .into_iter()
                .flatten()
                .collect(),
            renew_at: spec.acme.is_some().then(|| renewal(spec, &facts)),
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

/// Returns the first time after `now` at which the passing of time changes the status of a Certificate; `None` if there is
/// none.
#[must_use]
pub fn changes_after(status: &CertificateStatus, now: Timestamp) -> Option<Timestamp> {
    let plus = |time: Timestamp, seconds: i64| {
        Timestamp::from_unix_seconds(time.unix_seconds().saturating_add(seconds))
    };
    let soon = status.not_after.map(|end| plus(end, 1 - EXPIRES_SOON_SECS));
    let end = status.not_after.map(|end| plus(end, 1));
    [status.not_before, status.renew_at, soon, end].into_iter().flatten().filter(|time| *time > now).min()
}

/// Returns the time from which a certificate of an ACME server is renewed.
fn renewal(spec: &CertificateSpec, facts: &CertificateFacts) -> Timestamp {
    let recorded = spec.issuance.as_ref().and_then(|record| record.renew_at);
    recorded.unwrap_or_else(|| renewal_time(facts, 0))
}

/// Returns the condition of the orders at an ACME server.
fn issuance(spec: &CertificateSpec, settings: &AcmeSettings) -> Condition {
    let record = spec.issuance.clone().unwrap_or_default();
    let condition = ConditionType::Issued;
    if record.failures > 0 {
        let again = record.retry_after.map(|time| format!("; the next order follows at {time}"));
        let message =
            format!("{} (failures: {}){}", record.error, record.failures, again.unwrap_or_default());
        return no(condition, ConditionReason::OrderFailed, message).hint(
            "the ACME server requests http://NAME/.well-known/acme-challenge/… of each DNS name: an HTTP listener of a \
             Gateway in this namespace must have the name, and answer at port 80",
        );
    }
    if is_issued(spec, settings) {
        return yes(condition, ConditionReason::Issued);
    }
    let message = format!("the control servers order it from {}", settings.directory);
    no(condition, ConditionReason::OrderPending, message)
}

fn validity(facts: &CertificateFacts, now: Timestamp, spec: &CertificateSpec) -> Condition {
    let left = facts.not_after.unix_seconds().saturating_sub(now.unix_seconds());
    let renew = match spec.acme {
        None => "write a new certificate and its private key to the object",
        Some(_) => "the control servers renew it; see the condition Issued",
    };
    let (ready, until) = (ConditionType::Ready, facts.not_after);
    if now < facts.not_before {
        let message = format!("the validity begins at {}", facts.not_before);
        return no(ready, ConditionReason::NotYetValid, message)
            .hint("check the clocks of the control servers");
    }
    if left < 0 {
        return no(ready, ConditionReason::Expired, format!("expired at {until}")).hint(renew);
    }
    let is_due = spec.acme.is_none() || now >= renewal(spec, facts);
    if left < EXPIRES_SOON_SECS && is_due {
        let mut condition = yes(ready, ConditionReason::ExpiresSoon).hint(renew);
        condition.message = format!("expires at {until}");
        return condition;
    }
    yes(ready, ConditionReason::InValidity)
}
