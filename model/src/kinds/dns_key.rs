//! Keys of a DnsZone, with which other programs sign zone transfers and updates (TSIG, RFC 8945).

use std::{collections::BTreeSet, ops::RangeInclusive};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{domain_name::DomainName, secret::Secret};

/// Maximum number of keys of a DnsZone.
pub const DNS_KEYS_MAX: usize = 16;
/// Valid lengths of the secret of a key in bytes. Shorter secrets are weaker than the signatures.
pub const DNS_SECRET_BYTES: RangeInclusive<usize> = 16..=128;

/// Key that the DNS servers share with another program: a secondary name server that transfers the zone, or a program
/// that changes its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsKey {
    /// Name of the key, which both programs must know. Each key of the zone has another name.
    #[schema(value_type = DomainName, example = "secondary.example.org")]
    pub name: DomainName,
    /// Operations that the key permits, at least one.
    #[schema(min_items = 1)]
    pub operations: BTreeSet<DnsOperation>,
    /// Secret of the key in base64, from 16 to 128 bytes, such as `tsig-keygen` of BIND prints it. Required when the
    /// key is added. Write-only: responses do not contain it, and a write without this field keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, min_length = 24, max_length = 172)]
    pub secret: Option<Secret>,
}

/// Operation that the key of a DnsZone permits: `Transfer` of the whole zone, or `Update` of its static records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum DnsOperation {
    /// Transfer of the whole zone to a secondary name server (RFC 5936).
    Transfer,
    /// Changes of the static records of the zone (RFC 2136).
    Update,
}

impl DnsKey {
    /// Returns the key without its secret, for responses.
    #[must_use]
    pub fn without_secret(&self) -> Self {
        Self { secret: None, ..self.clone() }
    }
}

/// Decodes the secret of a key. Returns `None` if it is not base64 or has an invalid length.
#[must_use]
pub fn secret_bytes(secret: &Secret) -> Option<Vec<u8>> {
    let bytes = BASE64_STANDARD.decode(secret.reveal()).ok()?;
    DNS_SECRET_BYTES.contains(&bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_base64_of_16_to_128_bytes() {
        let bytes = |text: &str| secret_bytes(&Secret::new(text.to_owned())).map(|bytes| bytes.len());
        assert_eq!(bytes("MDEyMzQ1Njc4OWFiY2RlZg=="), Some(16));
        assert_eq!(bytes("MDEyMzQ1Njc4OWFiY2Rl"), None);
        assert_eq!(bytes("hunter2"), None);
        assert_eq!(bytes(&BASE64_STANDARD.encode([7; 129])), None);
    }
}
