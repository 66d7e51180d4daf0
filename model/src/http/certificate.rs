//! Certificates: the facts on which their use depends, and the rules for their contents.

use std::sync::Arc;

use rustls::{crypto::ring::sign::any_supported_type, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

use super::acme::validate_acme;
use crate::{
    kinds::certificate::{CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, CertificateSpec, PRIVATE_KEY_BYTES_MAX},
    primitives::{
        quantity::Timestamp,
        secret::Secret,
        violation::{
            Violation,
            ViolationCode::{Conflict, Invalid, TooLong},
        },
    },
};

/// Pointer of the certificate chain in the object.
const CERTIFICATE: &str = "/spec/certificate";
/// Pointer of the private key in the object.
const PRIVATE_KEY: &str = "/spec/privateKey";

/// Facts of the first certificate of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// DNS names of the certificate in lower case, some with `*` as the first label.
    pub dns_names: Vec<String>,
    /// Distinguished name of the issuer.
    pub issuer: String,
    /// Begin of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
}

impl CertificateFacts {
    /// Reads the first certificate of a chain in PEM.
    ///
    /// # Errors
    /// Returns the reason if the chain is malformed.
    pub fn read(pem: &str) -> Result<Self, String> {
        let chain = chain(pem)?;
        let first = chain.first().ok_or("must contain a certificate in PEM")?;
        let certificate = parse(first)?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let dns_names = names.into_iter().flat_map(|names| &names.value.general_names).filter_map(|name| {
            if let GeneralName::DNSName(name) = name { Some(name.to_ascii_lowercase()) } else { None }
        });
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_unix_seconds(time.timestamp());
        Ok(Self {
            dns_names: dns_names.collect(),
            issuer: certificate.issuer().to_string(),
            not_before: time(certificate.validity().not_before),
            not_after: time(certificate.validity().not_after),
        })
    }

    /// Returns the reason for which clients reject the certificate for a host name in lower case at a time; `None` if it is
    /// valid. The issuer is not examined.
    #[must_use]
    pub fn problem(&self, host: &str, now: Timestamp) -> Option<String> {
        let of_name = || {
            (!self.covers(host))
                .then(|| format!("is valid for {}, not for {host}", self.dns_names.join(", ")))
        };
        self.validity_problem(now).or_else(of_name)
    }

    /// Returns the reason for which clients reject the certificate for every host name at a time; `None` if it is valid.
    #[must_use]
    pub fn validity_problem(&self, now: Timestamp) -> Option<String> {
        if now > self.not_after {
            Some(format!("expired at {}", self.not_after))
        } else if now < self.not_before {
            Some(format!("is not valid before {}", self.not_before))
        } else {
            None
        }
    }

    /// Returns true if the certificate is valid for a host name in lower case. A wildcard stands for exactly one label
    /// (RFC 9525 §6.3).
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        self.dns_names.iter().any(|name| match name.strip_prefix("*.") {
            Some(base) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == base),
            None => name == host,
        })
    }
}

/// Returns the certificates of a chain in PEM, at least one.
///
/// # Errors
/// Returns the reason if the chain is malformed or empty.
pub fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| "must be certificates in PEM".to_owned())?;
    if chain.is_empty() {
        return Err("must contain at least one certificate in PEM".to_owned());
    }
    Ok(chain)
}

/// Returns a chain with its private key in the form in which TLS uses it.
///
/// # Errors
/// Returns the reason if the chain or the key is malformed, or if the key does not belong to the first certificate. The
/// reason contains no part of the key.
pub fn certified_key(pem: &str, key: &Secret) -> Result<CertifiedKey, String> {
    let chain = chain(pem)?;
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
        .map_err(|_| "must be a private key in PEM without a passphrase".to_owned())?;
    let key = any_supported_type(&key)
        .map_err(|_| "must be an RSA, ECDSA (P-256 or P-384) or Ed25519 key".to_owned())?;
    let certified = CertifiedKey::new(chain, Arc::clone(&key));
    certified.keys_match().map_err(|_| "must belong to the first certificate".to_owned())?;
    Ok(certified)
}

/// Adds the violations of the rules for a Certificate. The private key may be absent.
pub fn validate_certificate(spec: &CertificateSpec, found: &mut Vec<Violation>) {
    let CertificateSpec { certificate, private_key, acme, issuance: _ } = spec;
    if let Some(settings) = acme {
        validate_acme(settings, found);
        if certificate.is_empty() && private_key.is_none() {
            return;
        }
    }
    let count = found.len();
    check_size(CERTIFICATE, certificate.len(), CERTIFICATE_BYTES_MAX, found);
    let key_bytes = private_key.as_ref().map_or(0, |key| key.reveal().len());
    check_size(PRIVATE_KEY, key_bytes, PRIVATE_KEY_BYTES_MAX, found);
    if found.len() > count {
        return;
    }
    if let Err(message) = check_chain(certificate) {
        let hint = "give the certificate of the server first, then those of the intermediate CAs";
        found.push(Violation::new(CERTIFICATE, Invalid, message).hint(hint));
    } else if let Some(key) = private_key {
        found.extend(key_violation("", certificate, key));
    }
}

/// Returns the violation at `at` if a private key is unusable with a valid chain.
pub(crate) fn key_violation(at: &str, certificate: &str, key: &Secret) -> Option<Violation> {
    let message = certified_key(certificate, key).err()?;
    let hint = "give spec.privateKey together with its certificate";
    Some(Violation::new(format!("{at}{PRIVATE_KEY}"), Conflict, message).hint(hint))
}

fn check_size(at: &str, bytes: usize, limit: usize, found: &mut Vec<Violation>) {
    if bytes > limit {
        let message = format!("must have at most {limit} bytes, not {bytes}");
        found.push(Violation::new(at, TooLong, message));
    }
}

fn check_chain(pem: &str) -> Result<(), String> {
    let chain = chain(pem)?;
    if chain.len() > CERTIFICATES_MAX {
        return Err(format!("must contain at most {CERTIFICATES_MAX} certificates, not {}", chain.len()));
    }
    let parsed: Vec<_> = chain.iter().map(parse).collect::<Result<_, _>>()?;
    for (index, pair) in parsed.windows(2).enumerate() {
        if let [one, next] = pair
            && one.issuer().as_raw() != next.subject().as_raw()
        {
            let (one, next) = (index + 1, index + 2);
            return Err(format!("certificate {next} must be the issuer of certificate {one}"));
        }
    }
    Ok(())
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    let parsed = x509_parser::parse_x509_certificate(der);
    parsed.map(|(_, certificate)| certificate).map_err(|_| "must be X.509 certificates".to_owned())
}
