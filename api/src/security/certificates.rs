//! Client certificates of agents: they identify the node of a connection, and can be revoked.
//!
//! ```text
//! signed by our CA, not expired (TLS) ─▶ names one node (parsed) ─▶ not revoked (vault) ─▶ ClientCertificate
//! ```
//! A certificate without a record in the vault is accepted, so that agents keep their access after an older
//! vault is restored.

use std::{sync::Arc, time::Duration};

use model::{
    kinds::metadata::Labels,
    primitives::{name::Name, quantity::Timestamp},
};
use serde::{Deserialize, Serialize};
use store::VaultError;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

use super::{
    authority::Authority,
    ca::{CLOCK_SKEW_SECS, NODE_URI_PREFIX},
    identity::ClientCertificate,
    vault::Vault,
};
use crate::base::clock_and_random::Source;
use crate::base::hex::hex;

/// Maximum time between two checks whether the certificate of an open connection has expired. A single wait
/// until the expiry would end too late if the system clock is set forward during the wait.
const LOOK: Duration = Duration::from_secs(60);

/// Record in the vault about the newest certificate of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentRecord {
    /// Serial number of the node's newest certificate.
    pub(crate) serial: Option<String>,
    /// Time at which the newest certificate was signed.
    pub(crate) issued: Option<Timestamp>,
    /// Time at which the newest certificate expires.
    pub(crate) expires: Option<Timestamp>,
    /// Time of the last revocation: certificates signed up to and including this time are invalid.
    #[serde(default)]
    pub(crate) revoked_through: Option<Timestamp>,
    /// Labels of the join token with which the node joined; its agent may register the Node with them.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) labels: Labels,
    /// Digest of the public key of the newest certificate; `None` in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Fingerprint of the CA that signed the newest certificate; `None` in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
}

impl AgentRecord {
    /// Returns true if the name ever had a certificate, or was reserved by a revocation.
    pub(crate) fn is_used(&self) -> bool {
        self.issued.is_some() || self.revoked_through.is_some()
    }

    /// Returns true if the newest certificate of the node is neither expired nor revoked.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        let lives = self.expires.is_some_and(|expires| expires > now);
        lives && self.issued.is_some_and(|issued| self.counts(issued))
    }

    /// Returns true if a certificate of the node that was signed at `issued` has not been revoked.
    pub(crate) fn counts(&self, issued: Timestamp) -> bool {
        self.revoked_through.is_none_or(|through| issued > through)
    }
}

/// Returns the key of the vault record about a node's certificate.
pub(crate) fn key(node: &Name) -> String {
    format!("{PREFIX}{node}")
}

/// Prefix of the keys of vault records about nodes' certificates.
pub(crate) const PREFIX: &str = "agents/";

/// Returns the certificate record of a node with its version in the vault; an empty record and version 0 if none
/// is stored.
pub(crate) fn record(vault: &Vault, node: &Name) -> (u64, AgentRecord) {
    vault.get(&key(node)).unwrap_or_else(|| (vault.version(&key(node)), AgentRecord::default()))
}

/// Revokes every certificate signed for a node until now.
///
/// # Errors
/// Returns the errors of [`Vault::put`], except [`VaultError::Stale`].
pub(crate) async fn revoke(vault: &Vault, node: &Name, now: Timestamp) -> Result<(), VaultError> {
    loop {
        let (version, mut record) = record(vault, node);
        record.revoked_through = Some(record.issued.map_or(now, |issued| issued.max(now)));
        match vault.put(&key(node), version, &record).await {
            Err(VaultError::Stale { .. }) => {}
            Ok(_) => return Ok(()),
            Err(error @ (VaultError::TooLarge { .. } | VaultError::Unavailable(_))) => return Err(error),
        }
    }
}

/// Client certificate of a connection. TLS has verified that the cluster CA signed it and that the client has its
/// private key.
#[derive(Clone)]
pub(crate) struct ConnectionCertificate {
    certificate: ClientCertificate,
    /// Name of the CA that signed the certificate, as DER.
    issuer: Vec<u8>,
    issued: Timestamp,
    expires: Timestamp,
    authority: Arc<Authority>,
    vault: Arc<Vault>,
    source: Arc<dyn Source>,
}

impl ConnectionCertificate {
    /// Parses the client certificate of a connection. Returns `None` if it does not contain exactly one node name.
    pub(crate) fn read(
        der: &[u8],
        authority: &Arc<Authority>,
        vault: &Arc<Vault>,
        source: &Arc<dyn Source>,
    ) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let node = node_of(&certificate)?;
        let serial = hex(certificate.raw_serial());
        let validity = certificate.validity();
        let begins = validity.not_before.timestamp().saturating_add(CLOCK_SKEW_SECS);
        Some(Self {
            certificate: ClientCertificate { node, serial },
            issuer: certificate.issuer().as_raw().to_vec(),
            issued: Timestamp::from_unix_seconds(begins),
            expires: Timestamp::from_unix_seconds(validity.not_after.timestamp()),
            authority: Arc::clone(authority),
            vault: Arc::clone(vault),
            source: Arc::clone(source),
        })
    }

    /// Returns the certificate, or `None` if it has expired or been revoked, or if its CA is no longer trusted.
    pub(crate) fn current(&self) -> Option<&ClientCertificate> {
        let now = self.source.now();
        let is_current = self.expires > now
            && self.authority.trusts(&self.issuer, now)
            && record(&self.vault, &self.certificate.node).1.counts(self.issued);
        is_current.then_some(&self.certificate)
    }

    /// Returns the time at which the certificate was signed.
    pub(crate) fn issued(&self) -> Timestamp {
        self.issued
    }

    /// Waits until the certificate expires or is revoked, or its CA is no longer trusted.
    pub(crate) async fn ended(&self) {
        let mut changes = self.vault.changes();
        while self.current().is_some() {
            let left = self.expires.unix_seconds().saturating_sub(self.source.now().unix_seconds());
            let left = Duration::from_secs(u64::try_from(left).unwrap_or_default())
                .clamp(Duration::from_secs(1), LOOK);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

/// Returns the node name in a certificate, or `None` unless it contains exactly one.
pub(super) fn node_of(certificate: &X509Certificate<'_>) -> Option<Name> {
    let names = certificate.subject_alternative_name().ok()??;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => Name::parse(uri.strip_prefix(NODE_URI_PREFIX)?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(secs)
    }

    #[test]
    fn what_was_signed_until_the_revocation_does_not_count_and_what_is_signed_later_does() {
        let mut record =
            AgentRecord { issued: Some(at(100)), expires: Some(at(200)), ..AgentRecord::default() };
        assert!(record.counts(at(100)) && record.is_held(at(150)) && !record.is_held(at(200)));
        record.revoked_through = Some(at(100));
        assert!(!record.counts(at(100)) && record.counts(at(101)) && !record.is_held(at(150)));
    }
}
