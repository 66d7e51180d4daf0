//! Types of responses about join tokens, certificates of agents and certificate authorities. As in [`super::documents`], every
//! field has a default.

use std::collections::BTreeMap;

use model::primitives::quantity::Timestamp;
use serde::Deserialize;

/// Join token: an item of `GET /v1/jointokens`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JoinTokenRow {
    /// Id of the token.
    pub(crate) id: String,
    /// Name of the only node that may use the token.
    pub(crate) node: Option<String>,
    /// Labels that the Node gets.
    pub(crate) labels: BTreeMap<String, String>,
    /// Time of creation.
    pub(crate) created: Option<Timestamp>,
    /// End of validity.
    pub(crate) expires: Option<Timestamp>,
}

/// Newest certificate of a node: an item of `GET /v1/agents`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CertificateRow {
    /// Name of the node.
    pub(crate) node: String,
    /// Serial number in hexadecimal; empty if there is none.
    pub(crate) serial: String,
    /// Time at which the certificate was signed.
    pub(crate) issued: Option<Timestamp>,
    /// End of validity.
    pub(crate) expires: Option<Timestamp>,
    /// True if the certificate is neither expired nor revoked.
    pub(crate) is_valid: bool,
}

/// Certificate authorities: the response of `GET /v1/authority`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthorityInfo {
    /// Authority that signs certificates.
    pub(crate) current: AuthorityRow,
    /// Authority before the last rotation, while it is still trusted.
    pub(crate) former: Option<AuthorityRow>,
    /// Number of nodes with a certificate of the current authority.
    pub(crate) nodes_current: u64,
    /// Number of nodes with a valid certificate of another authority.
    pub(crate) nodes_former: u64,
    /// Names of some of the nodes with a certificate of another authority.
    pub(crate) nodes_to_renew: Vec<String>,
}

/// Certificate authority.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthorityRow {
    /// SHA-256 of the certificate in hexadecimal.
    pub(crate) fingerprint: String,
    /// End of validity of the certificate.
    pub(crate) expires: Option<Timestamp>,
    /// Time of the rotation; former authorities only.
    pub(crate) rotated: Option<Timestamp>,
    /// End of the transition; former authorities only.
    pub(crate) trusted_until: Option<Timestamp>,
}
