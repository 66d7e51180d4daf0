//! Admission of Certificates: the values that users leave out and the server keeps, and the results of orders at ACME
//! servers.

use std::sync::Arc;

use super::staged_object::StagedObject;
use crate::{
    cluster::snapshot::Snapshot,
    http::{HttpObjectKey, key_violation},
    kinds::{
        certificate::{AcmeSettings, CertificateSpec, IssuanceRecord},
        resource::{Kind, Object, ObjectKey, Spec},
    },
    primitives::{
        secret::Secret,
        violation::{Violation, ViolationCode},
    },
};

/// Returns the staged Certificate after an order; `None` if it does not exist or has other settings.
pub(super) fn record(
    snapshot: &Snapshot,
    key: &HttpObjectKey,
    settings: &AcmeSettings,
    record: &IssuanceRecord,
    issued: Option<&(String, Secret)>,
) -> Option<StagedObject> {
    let HttpObjectKey { namespace, name } = key.clone();
    let key = ObjectKey { kind: Kind::Certificate, namespace: Some(namespace), name };
    let old = snapshot.get(&key)?;
    let spec = old.as_certificate().filter(|spec| spec.acme.as_ref() == Some(settings))?;
    let mut spec = CertificateSpec { issuance: Some(record.clone()), ..spec.clone() };
    if let Some((certificate, private_key)) = issued {
        spec.certificate.clone_from(certificate);
        spec.private_key = Some(private_key.clone());
    }
    let new = Object { metadata: old.metadata.clone(), spec: Spec::Certificate(Box::new(spec)) };
    Some(StagedObject::of_record(key, Some(Arc::clone(old)), Some(new)))
}

/// Keeps the stored values of a Certificate that the request body leaves out: secrets, because responses never contain them,
/// and the results of orders. A private key must belong to the new certificate.
pub(super) fn keep(new: &mut Object, old: Option<&Object>, at: &str, violations: &mut Vec<Violation>) {
    let Spec::Certificate(spec) = &mut new.spec else { return };
    let old = old.and_then(Object::as_certificate);
    keep_external_key(spec, old, at, violations);
    keep_record(spec, old, at, violations);
    if spec.private_key.is_some() {
        return;
    }
    spec.private_key = old.and_then(|old| old.private_key.clone());
    if spec.certificate.is_empty() && spec.acme.is_some() {
        spec.certificate = old.map(|old| old.certificate.clone()).unwrap_or_default();
        return;
    }
    match &spec.private_key {
        Some(key) => violations.extend(key_violation(at, &spec.certificate, key)),
        None => violations.push(
            Violation::new(
                format!("{at}/spec/privateKey"),
                ViolationCode::Required,
                "must be set: the Certificate is new",
            )
            .hint("give the private key of the first certificate in PEM"),
        ),
    }
}

/// Replaces a restored state of a Certificate by the results of its newest orders: an older certificate may have been
/// revoked, and would expire sooner.
pub(super) fn keep_newest(restored: &mut Object, current: Option<&Object>) {
    let current = current.and_then(Object::as_certificate).filter(|current| current.acme.is_some());
    let (Spec::Certificate(spec), Some(current)) = (&mut restored.spec, current) else { return };
    if spec.acme.is_some() {
        spec.certificate.clone_from(&current.certificate);
        spec.private_key.clone_from(&current.private_key);
        spec.issuance.clone_from(&current.issuance);
    }
}

/// Keeps the stored key of the external account if it has the same identifier.
fn keep_external_key(
    spec: &mut CertificateSpec,
    old: Option<&CertificateSpec>,
    at: &str,
    violations: &mut Vec<Violation>,
) {
    let account = spec.acme.as_mut().and_then(|acme| acme.external_account.as_mut());
    let Some(account) = account.filter(|account| account.key.is_none()) else { return };
    let known = old.and_then(|old| old.acme.as_ref()?.external_account.as_ref());
    account.key = known.filter(|known| known.key_id == account.key_id).and_then(|known| known.key.clone());
    if account.key.is_none() {
        let message = format!("must be set: the external account `{}` is new", account.key_id);
        let at = format!("{at}/spec/acme/externalAccount/key");
        violations.push(
            Violation::new(at, ViolationCode::Required, message)
                .hint("give the HMAC key from the operator of the ACME server"),
        );
    }
}

/// Keeps the state of the orders, which only the server may change. Other settings start without pauses from failures of
/// the former ones.
fn keep_record(
    spec: &mut CertificateSpec,
    old: Option<&CertificateSpec>,
    at: &str,
    violations: &mut Vec<Violation>,
) {
    let known = old.and_then(|old| old.issuance.as_ref());
    if spec.issuance.is_some() && spec.issuance.as_ref() != known {
        let message = "must not be set: the server records here the state of its orders";
        violations.push(
            Violation::new(format!("{at}/spec/issuance"), ViolationCode::Invalid, message)
                .hint("leave the field out"),
        );
    }
    let is_same = old.is_some_and(|old| old.acme == spec.acme);
    spec.issuance = known.filter(|_| is_same && spec.acme.is_some()).cloned();
}
