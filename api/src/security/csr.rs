//! Certificate signing requests of agents: PKCS #10 (RFC 2986), of which only the key is used.

use model::primitives::name::Name;
use rcgen::{CertificateSigningRequestParams, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKey};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519, Oid},
    prelude::FromDer,
    x509::SubjectPublicKeyInfo,
};

/// Maximum size of a signing request in bytes. Requests with supported keys have a few hundred.
const CSR_BYTES_MAX: usize = 8 * 1024;

/// Reason why a certificate signing request is rejected. The message continues the words "the request".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CsrError {
    /// The request is longer than permitted.
    #[error("must be at most {CSR_BYTES_MAX} bytes")]
    TooLong,
    /// The request is not one PEM block with a PKCS #10 request.
    #[error("must be one PEM block `CERTIFICATE REQUEST` (RFC 2986)")]
    Malformed,
    /// The key has an unsupported type.
    #[error("must be of a key on P-256, signed with SHA-256, or of an Ed25519 key")]
    Key,
    /// The signature does not prove possession of the key.
    #[error("is not signed by its own key")]
    Signature,
    /// The request contains extensions, which only the server sets.
    #[error("must have no extensions: the server sets names and usages")]
    Extensions,
    /// The subject of the request is not the node's name.
    #[error("must have an empty subject, or the node as its only common name")]
    Subject,
}

/// Validates a certificate signing request for a node and returns its public key.
///
/// # Errors
///
/// Returns the rule that the request violates.
pub(crate) fn key_of(csr: &str, node: &Name) -> Result<PublicKey, CsrError> {
    if csr.len() > CSR_BYTES_MAX {
        return Err(CsrError::TooLong);
    }
    let der =
        CertificateSigningRequestDer::from_pem_slice(csr.as_bytes()).map_err(|_| CsrError::Malformed)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| CsrError::Malformed)?;
    if !rest.is_empty() {
        return Err(CsrError::Malformed);
    }
    let info = &request.certification_request_info;
    if !info.attributes().is_empty() {
        return Err(CsrError::Extensions);
    }
    let mut names = info.subject.iter_attributes();
    match (names.next(), names.next()) {
        (None, _) => {}
        (Some(only), None) if only.as_str() == Ok(node.as_str()) => {
            let mut common = info.subject.iter_common_name();
            common.next().ok_or(CsrError::Subject)?;
        }
        (Some(_), _) => return Err(CsrError::Subject),
    }
    // The signing library derives the key type from the signature algorithm, so both must be supported ones.
    let is_p256 = is_p256(&info.subject_pki);
    let is_ed25519 = info.subject_pki.algorithm.algorithm == OID_SIG_ED25519;
    if !(is_p256 || is_ed25519) {
        return Err(CsrError::Key);
    }
    let checked = CertificateSigningRequestParams::from_der(&der).map_err(|_| CsrError::Signature)?;
    let expected = if is_p256 { &PKCS_ECDSA_P256_SHA256 } else { &PKCS_ED25519 };
    if checked.public_key.algorithm() != expected {
        return Err(CsrError::Key);
    }
    Ok(checked.public_key)
}

/// Returns true for an elliptic-curve key on P-256.
pub(super) fn is_p256(key: &SubjectPublicKeyInfo<'_>) -> bool {
    let curve = key.algorithm.parameters.as_ref().and_then(|curve| Oid::try_from(curve).ok());
    key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_EC_P256)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, SanType};

    use super::*;

    fn node() -> Name {
        Name::parse("n1").unwrap()
    }

    fn request(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        change(&mut params);
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn keys_on_p256_and_ed25519_are_taken_and_no_others() {
        for (kind, is_taken) in
            [(&PKCS_ECDSA_P256_SHA256, true), (&PKCS_ED25519, true), (&PKCS_ECDSA_P384_SHA384, false)]
        {
            let key = KeyPair::generate_for(kind).unwrap();
            let taken = key_of(&request(&key, |_| {}), &node());
            assert_eq!(taken.is_ok(), is_taken, "{taken:?}");
        }
    }

    #[test]
    fn names_and_usages_are_not_the_askers_to_choose() {
        let key = KeyPair::generate().unwrap();
        let named =
            |name: &str| request(&key, |params| params.distinguished_name.push(DnType::CommonName, name));
        assert!(key_of(&named("n1"), &node()).is_ok());
        assert_eq!(key_of(&named("n2"), &node()).unwrap_err(), CsrError::Subject);
        let organised =
            request(&key, |params| params.distinguished_name.push(DnType::OrganizationName, "n1"));
        assert_eq!(key_of(&organised, &node()).unwrap_err(), CsrError::Subject);
        let foreign = "spiffe://tidegate/node/n2".to_owned();
        let asked = request(&key, |params| {
            params.subject_alt_names = vec![SanType::URI(foreign.try_into().unwrap())];
        });
        assert_eq!(key_of(&asked, &node()).unwrap_err(), CsrError::Extensions);
        let authority = request(&key, |params| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        });
        assert_eq!(key_of(&authority, &node()).unwrap_err(), CsrError::Extensions);
    }

    #[test]
    fn whatever_else_is_sent_is_refused() {
        let key = KeyPair::generate().unwrap();
        let good = request(&key, |_| {});
        for bad in ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
        {
            assert_eq!(key_of(bad, &node()).unwrap_err(), CsrError::Malformed, "{bad}");
        }
        assert_eq!(key_of(&" ".repeat(CSR_BYTES_MAX + 1), &node()).unwrap_err(), CsrError::TooLong);
        // Changing any byte causes neither a panic nor another accepted key. The signature does not cover the
        // encoding.
        let original = key_of(&good, &node()).unwrap();
        let der = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0x11;
            if let Ok(key) = key_of(&to_pem(&changed), &node()) {
                assert_eq!(key, original, "byte {at}");
            }
        }
    }

    fn to_pem(der: &[u8]) -> String {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let text = BASE64_STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }
}
