//! Certificate: an X.509 certificate chain and its private key, with which gateways terminate TLS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{hostname_pattern::HostnamePattern, quantity::Timestamp, secret::Secret};

/// Maximum size of a certificate chain in PEM, in bytes.
pub const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of certificates in a chain.
pub const CERTIFICATES_MAX: usize = 10;
/// Maximum size of a private key in PEM, in bytes.
pub const PRIVATE_KEY_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of DNS names of a certificate from an ACME server.
pub const ACME_NAMES_MAX: usize = 100;
/// Maximum number of contacts of an account at an ACME server.
pub const ACME_CONTACTS_MAX: usize = 10;
/// Maximum size of other texts for an ACME server in bytes.
pub const ACME_TEXT_BYTES_MAX: usize = 1024;
/// ACME server of Certificates that name none.
pub const ACME_DIRECTORY_DEFAULT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Desired state of a Certificate: a certificate chain and its private key, which listeners of Gateways in the same
/// namespace may name. They are given by the user, or the control servers order them from an ACME server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateSpec {
    /// Certificate chain in PEM, from 1 to 10 certificates and at most 64 KiB. The certificate of the server is the first
    /// one, and each other one signs the one before it. With `acme`, the control servers set it, and a write without this
    /// field keeps it; otherwise it is required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 65_536)]
    pub certificate: String,
    /// Private key of the first certificate in PEM (PKCS #8, PKCS #1 or SEC 1) without a passphrase, at most 16 KiB: RSA,
    /// ECDSA with P-256 or P-384, or Ed25519. Required when the object is created without `acme`. Write-only: responses do
    /// not contain it, and a write without this field keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, max_length = 16_384)]
    pub private_key: Option<Secret>,
    /// Order of the certificate from an ACME server (RFC 8555), which is renewed before it expires. Default: the user gives
    /// the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeSettings>,
    /// State of the orders, which only the control servers set. A write may leave it out or repeat the present value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuance: Option<IssuanceRecord>,
}

/// Settings with which the control servers order a certificate from an ACME server. It verifies each DNS name by a request
/// to port 80 (HTTP-01), which the gateways answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcmeSettings {
    /// URL of the directory of the ACME server, which the settings of the control servers must permit. Default: the
    /// production server of Let's Encrypt.
    #[serde(default = "default_directory")]
    #[schema(max_length = 1024, default = "https://acme-v02.api.letsencrypt.org/directory")]
    pub directory: String,
    /// DNS names of the certificate, from 1 to 100, without wildcards.
    #[schema(min_items = 1, max_items = 100)]
    pub dns_names: Vec<HostnamePattern>,
    /// Email addresses at which the ACME server may contact the operator, at most 10. Used when the account is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10, example = json!(["hostmaster@example.org"]))]
    pub contacts: Vec<String>,
    /// Key by which an ACME server recognizes a customer. Default: the ACME server requires none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_account: Option<ExternalAccount>,
}

/// Key by which an ACME server recognizes a customer when the account is created (external account binding, RFC 8555
/// §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalAccount {
    /// Identifier of the key, from 1 to 1024 characters.
    #[schema(min_length = 1, max_length = 1024)]
    pub key_id: String,
    /// HMAC key in base64url, as the operator of the ACME server provides it. Required when `externalAccount` is added or
    /// `keyId` changes. Write-only: responses do not contain it, and a write without this field keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, max_length = 1024)]
    pub key: Option<Secret>,
}

/// State of the orders of a Certificate at an ACME server, which the control servers maintain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuanceRecord {
    /// Answers of the gateways to requests of the ACME server (key authorizations), by the token in the path of the
    /// request. Present only during an order; they are not secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub challenges: BTreeMap<String, String>,
    /// Number of consecutive orders that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Reason for which the last order failed, at most 1024 bytes; empty if it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1024)]
    pub error: String,
    /// Time before which no order is repeated (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_after: Option<Timestamp>,
    /// Time from which the certificate is renewed (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub renew_at: Option<Timestamp>,
}

impl CertificateSpec {
    /// Returns the spec without the private key and without other secrets, for responses.
    #[must_use]
    pub fn without_secret(&self) -> Self {
        let Self { certificate, private_key: _, acme, issuance } = self.clone();
        let acme = acme.map(|mut acme| {
            acme.external_account = acme.external_account.map(|one| ExternalAccount { key: None, ..one });
            acme
        });
        Self { certificate, private_key: None, acme, issuance }
    }

    /// Returns the secret key of the external account.
    #[must_use]
    pub fn external_key(&self) -> Option<&Secret> {
        self.acme.as_ref()?.external_account.as_ref()?.key.as_ref()
    }
}

fn default_directory() -> String {
    ACME_DIRECTORY_DEFAULT.to_owned()
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
