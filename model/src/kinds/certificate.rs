//! Certificate: an X.509 certificate chain and its private key, with which gateways terminate TLS.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::secret::Secret;

/// Maximum size of a certificate chain in PEM, in bytes.
pub const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of certificates in a chain.
pub const CERTIFICATES_MAX: usize = 10;
/// Maximum size of a private key in PEM, in bytes.
pub const PRIVATE_KEY_BYTES_MAX: usize = 16 * 1024;

/// Desired state of a Certificate: a certificate chain and its private key, which listeners of Gateways in the same
/// namespace may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateSpec {
    /// Certificate chain in PEM, from 1 to 10 certificates and at most 64 KiB. The certificate of the server is the first
    /// one, and each other one signs the one before it.
    #[schema(min_length = 1, max_length = 65_536)]
    pub certificate: String,
    /// Private key of the first certificate in PEM (PKCS #8, PKCS #1 or SEC 1) without a passphrase, at most 16 KiB: RSA,
    /// ECDSA with P-256 or P-384, or Ed25519. Required when the object is created. Write-only: responses do not contain
    /// it, and a write without this field keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, max_length = 16_384)]
    pub private_key: Option<Secret>,
}

impl CertificateSpec {
    /// Returns the spec without the private key, for responses.
    #[must_use]
    pub fn without_secret(&self) -> Self {
        Self { certificate: self.certificate.clone(), private_key: None }
    }
}
