//! Renewal of an expired certificate, so that nodes return by themselves after an outage of all control servers that
//! lasts longer than the lifetime of the certificates.
//!
//! ```text
//! certificate, CSR, time, signature ─▶ verify: our CA, one node, signature, time        ─▶ ExpiredCertificate
//! ExpiredCertificate, vault record  ─▶ check: expired within the limit, Node exists,
//!                                             not revoked, newest of the node           ─▶ certificate for the CSR's key
//! ```
//! The expired certificate cannot authenticate a TLS connection, so the agent signs its request with the private key of the certificate
//! instead. The state of the node is disclosed only after this proof.
//!
//! An attacker who has recorded a request gains nothing by repeating it: the certificate is issued for the key in
//! the CSR, which the signature covers, and only the agent has the private key. A repeated request does not supersede the
//! agent's certificate either, because the newest certificate is identified by its key.

use std::{sync::Arc, time::Duration};

use model::primitives::{name::Name, quantity::Timestamp};
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls::{RootCertStore, crypto::ring::default_provider, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use tls_trust::expired_renewal_message;
use x509_parser::prelude::X509Certificate;

use super::{
    ca::CLOCK_SKEW_SECS,
    certificates::{AgentRecord, node_of},
    csr::is_p256,
    secrets::digest,
};
use crate::base::{
    error::{Code, Problem},
    hex::hex,
};

/// Maximum difference in seconds between the time in a request and the clock of the server, in both directions.
const CLOCK_DIFFERENCE_SECS_MAX: u64 = 300;
/// Maximum size of the certificate in a request in bytes. Certificates of nodes have less than a kilobyte.
const CERTIFICATE_BYTES_MAX: usize = 16 * 1024;

/// Request for the renewal of an expired certificate, with the proof that the sender has its private key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiredRenewal<'a> {
    /// Expired certificate of the node as PEM. Further certificates after the first one are ignored.
    pub(crate) certificate: &'a str,
    /// Certificate signing request as PEM.
    pub(crate) csr: &'a str,
    /// Time at which the agent signed the request.
    pub(crate) time: Timestamp,
    /// Signature over [`expired_renewal_message`] with the private key of the certificate.
    pub(crate) signature: &'a [u8],
}

/// Certificate of a node whose private key the sender of a request has. It may be valid, expired, revoked or superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpiredCertificate {
    /// Name of the node in the certificate.
    pub(crate) node: Name,
    serial: String,
    /// Digest of the certificate's public key.
    key: String,
    issued: Timestamp,
    /// End of validity of the certificate.
    pub(crate) expires: Timestamp,
}

/// Facts about the node and the server on which the renewal of an expired certificate depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewalFacts<'a> {
    /// Current time.
    pub(crate) now: Timestamp,
    /// Time in seconds after the expiry of a certificate during which it can be renewed; 0 disables these renewals.
    pub(crate) limit_secs: i64,
    /// Record of the node's newest certificate.
    pub(crate) record: &'a AgentRecord,
    /// True if a Node of this name exists.
    pub(crate) has_node: bool,
    /// Digest of the public key in the CSR.
    pub(crate) new_key: &'a str,
}

/// Reason why an expired certificate is not renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RenewalRefusal {
    /// The operator has disabled these renewals.
    #[error("the renewal of expired certificates is disabled on this server")]
    Disabled,
    /// The request contains no certificate that can be parsed.
    #[error("the certificate must be PEM and have at most {CERTIFICATE_BYTES_MAX} bytes")]
    Malformed,
    /// The CA of the cluster did not sign the certificate, or not for a client.
    #[error("the certificate is not one that the CA of this cluster has signed for a node")]
    ForeignIssuer,
    /// The signature does not prove possession of the private key.
    #[error("the request is not signed with the private key of the certificate")]
    Signature,
    /// The time in the request differs too much from the clock of the server.
    #[error(
        "the time of the request differs by more than {CLOCK_DIFFERENCE_SECS_MAX} s from the clock of the server, {now}"
    )]
    Time {
        /// Current time of the server.
        now: Timestamp,
    },
    /// The certificate is still valid.
    #[error("the certificate has not expired: it is valid until {expires}")]
    NotExpired {
        /// End of validity of the certificate.
        expires: Timestamp,
    },
    /// The certificate expired longer ago than the limit.
    #[error("the certificate expired {expires}, longer than {limit_secs} s ago")]
    TooLate {
        /// End of validity of the certificate.
        expires: Timestamp,
        /// Limit of the server in seconds.
        limit_secs: i64,
    },
    /// The certificate was revoked.
    #[error("the certificate was revoked")]
    Revoked,
    /// The Node does not exist.
    #[error("Node {0} does not exist")]
    NoNode(Name),
    /// The node has a newer certificate with another key.
    #[error("the certificate is not the newest one of Node {0}")]
    Superseded(Name),
}

impl ExpiredCertificate {
    /// Verifies the certificate, the signature and the time of a request. Returns the certificate. `authorities` are the trusted CAs.
    ///
    /// # Errors
    /// Returns the first reason why the request proves nothing.
    pub(crate) fn verify(
        request: ExpiredRenewal<'_>,
        authorities: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<Self, RenewalRefusal> {
        let ExpiredRenewal { certificate, csr, time, signature } = request;
        if certificate.len() > CERTIFICATE_BYTES_MAX {
            return Err(RenewalRefusal::Malformed);
        }
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(|_| RenewalRefusal::Malformed)?;
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|_| RenewalRefusal::Malformed)?;
        if !rest.is_empty() {
            return Err(RenewalRefusal::Malformed);
        }
        let expires = parsed.validity().not_after.timestamp();
        if !is_ours(&der, expires, authorities) {
            return Err(RenewalRefusal::ForeignIssuer);
        }
        let node = node_of(&parsed).ok_or(RenewalRefusal::ForeignIssuer)?;
        let message = expired_renewal_message(&der, csr, time.unix_seconds());
        if !is_signed(&parsed, &message, signature) {
            return Err(RenewalRefusal::Signature);
        }
        if time.unix_seconds().abs_diff(now.unix_seconds()) > CLOCK_DIFFERENCE_SECS_MAX {
            return Err(RenewalRefusal::Time { now });
        }
        let issued = parsed.validity().not_before.timestamp().saturating_add(CLOCK_SKEW_SECS);
        Ok(Self {
            node,
            serial: hex(parsed.raw_serial()),
            key: digest(&parsed.public_key().subject_public_key.data),
            issued: Timestamp::from_unix_seconds(issued),
            expires: Timestamp::from_unix_seconds(expires),
        })
    }

    /// Decides if the certificate is renewed.
    ///
    /// # Errors
    /// Returns the first reason against the renewal.
    pub(crate) fn check(&self, facts: RenewalFacts<'_>) -> Result<(), RenewalRefusal> {
        let RenewalFacts { now, limit_secs, record, has_node, new_key } = facts;
        if limit_secs <= 0 {
            return Err(RenewalRefusal::Disabled);
        }
        let since = now.unix_seconds().saturating_sub(self.expires.unix_seconds());
        if since < 0 {
            return Err(RenewalRefusal::NotExpired { expires: self.expires });
        }
        if since > limit_secs {
            return Err(RenewalRefusal::TooLate { expires: self.expires, limit_secs });
        }
        if !record.counts(self.issued) {
            return Err(RenewalRefusal::Revoked);
        }
        if !has_node {
            return Err(RenewalRefusal::NoNode(self.node.clone()));
        }
        if !self.is_newest(record, new_key) {
            return Err(RenewalRefusal::Superseded(self.node.clone()));
        }
        Ok(())
    }

    /// Returns true if the node has no newer certificate, or if the sender has the key of the newer one, too: the
    /// response that contained that certificate was lost.
    fn is_newest(&self, record: &AgentRecord, new_key: &str) -> bool {
        // After the restoration of an older vault the record is missing or describes an earlier certificate.
        if record.issued.is_none_or(|newest| self.issued > newest) {
            return true;
        }
        match &record.key {
            Some(key) => *key == self.key || key == new_key,
            // Records of earlier releases contain no key.
            None => record.serial.as_ref() == Some(&self.serial),
        }
    }
}

/// Returns true if a trusted CA signed the certificate for client authentication. The expiry of the certificate is not considered.
fn is_ours(
    certificate: &CertificateDer<'_>,
    expires_unix_secs: i64,
    authorities: &[CertificateDer<'static>],
) -> bool {
    let Ok(unix) = u64::try_from(expires_unix_secs) else { return false };
    let mut roots = RootCertStore::empty();
    if authorities.iter().any(|authority| roots.add(authority.clone()).is_err()) {
        return false;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let Ok(verifier) = builder.build() else { return false };
    // The same verification as during a TLS handshake in the last second of the certificate's validity.
    let at = UnixTime::since_unix_epoch(Duration::from_secs(unix));
    verifier.verify_client_cert(certificate, &[], at).is_ok()
}

/// Returns true if the private key of the certificate signed the message.
fn is_signed(certificate: &X509Certificate<'_>, message: &[u8], signature: &[u8]) -> bool {
    let key = certificate.public_key();
    let algorithm: &dyn VerificationAlgorithm = if is_p256(key) { &ECDSA_P256_SHA256_ASN1 } else { &ED25519 };
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data).verify(message, signature).is_ok()
}

impl From<RenewalRefusal> for Problem {
    fn from(refusal: RenewalRefusal) -> Self {
        let join = "join again with a new join token that was created for the name of the node \
                    (`tidegate node join-token NAME`)";
        let (code, hint) = match &refusal {
            RenewalRefusal::Disabled => (
                Code::Forbidden,
                format!("{join}, or set --agent-renewal-grace-secs of the server to more than 0"),
            ),
            RenewalRefusal::Malformed => {
                (Code::Unauthenticated, "send the expired certificate of the node as PEM".to_owned())
            }
            RenewalRefusal::ForeignIssuer => (
                Code::Unauthenticated,
                format!("the node joined another cluster, or the CA of this one was replaced: {join}"),
            ),
            RenewalRefusal::Signature => (
                Code::Unauthenticated,
                format!("identity.pem in the state directory of the agent is damaged: {join}"),
            ),
            RenewalRefusal::Time { .. } => (
                Code::Forbidden,
                "set the clocks of the node and of the server, for example by NTP".to_owned(),
            ),
            RenewalRefusal::NotExpired { .. } => (
                Code::Forbidden,
                "renew it with POST /v1/renew; if the agent considers it expired, set the clock of the node"
                    .to_owned(),
            ),
            RenewalRefusal::TooLate { .. } => (
                Code::Forbidden,
                format!("{join}, or set --agent-renewal-grace-secs of the server to a larger value"),
            ),
            RenewalRefusal::Revoked => (
                Code::Forbidden,
                format!(
                    "it was revoked by an operator, by the deletion of the Node, or by another join: {join}"
                ),
            ),
            RenewalRefusal::NoNode(_) => (Code::Forbidden, join.to_owned()),
            RenewalRefusal::Superseded(_) => (
                Code::Forbidden,
                format!(
                    "the state directory is a copy or was restored from a backup; stop the other agent of this name, and {join}"
                ),
            ),
        };
        Self::new(code, refusal.to_string()).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
    use store::Store;

    use super::*;
    use crate::{base::clock_and_random::Source, security::authority::Authority, security::vault::Vault};

    /// Time at which the certificate of the tests was signed.
    const SIGNED: i64 = 1_000_000;
    const LIFE: i64 = 1000;
    const LIMIT: i64 = 500;
    const CSR: &str = "the request";

    /// Clock that shows [`SIGNED`], and random numbers of the operating system.
    struct At;

    impl Source for At {
        fn now(&self) -> Timestamp {
            at(SIGNED)
        }

        fn seed(&self) -> u64 {
            0
        }

        fn secret(&self) -> [u8; 32] {
            crate::base::clock_and_random::System.secret()
        }
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(secs)
    }

    async fn authority() -> Authority {
        let store: Arc<dyn Store> = store::open("memory:", at(SIGNED)).await.unwrap();
        Authority::obtain(&Vault::open(store).await.unwrap(), &At).await.unwrap()
    }

    fn sign(authority: &Authority, key: &KeyPair) -> String {
        authority.sign_node(&Name::parse("n1").unwrap(), key, (at(SIGNED), LIFE), &At).unwrap().chain
    }

    /// Returns the signature of a request sent at `time`.
    fn proof(key: &KeyPair, certificate: &str, time: i64) -> Vec<u8> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        key.sign(&expired_renewal_message(&der, CSR, time)).unwrap()
    }

    fn verify(
        authority: &Authority,
        (certificate, signature): (&str, &[u8]),
        (time, now): (i64, i64),
    ) -> Result<ExpiredCertificate, RenewalRefusal> {
        let request = ExpiredRenewal { certificate, csr: CSR, time: at(time), signature };
        ExpiredCertificate::verify(request, &authority.roots(at(SIGNED)), at(now))
    }

    #[tokio::test]
    async fn a_request_signed_with_the_key_of_the_certificate_proves_its_node() {
        let authority = authority().await;
        let now = SIGNED + LIFE + 10;
        for key in [KeyPair::generate().unwrap(), KeyPair::generate_for(&PKCS_ED25519).unwrap()] {
            let certificate = sign(&authority, &key);
            let signature = proof(&key, &certificate, now);
            let proven = verify(&authority, (&certificate, &signature), (now, now)).unwrap();
            assert_eq!((proven.node.as_str(), proven.expires), ("n1", at(SIGNED + LIFE)));
            assert_eq!((proven.issued, proven.key), (at(SIGNED), digest(key.der_bytes())));
        }
    }

    #[tokio::test]
    async fn requests_that_prove_nothing_are_refused_with_the_reason() {
        let (ours, theirs) = (authority().await, authority().await);
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let now = SIGNED + LIFE + 10;
        let (certificate, foreign) = (sign(&ours, &key), sign(&theirs, &key));
        let good = proof(&key, &certificate, now);
        let refusal = |certificate: &str, signature: &[u8], times| {
            verify(&ours, (certificate, signature), times).unwrap_err()
        };
        for bad in ["", "x", &"x".repeat(CERTIFICATE_BYTES_MAX + 1)] {
            assert_eq!(refusal(bad, &good, (now, now)), RenewalRefusal::Malformed);
        }
        assert_eq!(refusal(&foreign, &proof(&key, &foreign, now), (now, now)), RenewalRefusal::ForeignIssuer);
        // Neither the CA's own certificate nor that of a control server identifies a node.
        let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
        let signed = ours.sign_server(&[name], None, &At).unwrap();
        for der in signed.into_iter().flat_map(|signed| signed.chain) {
            let pem = crate::security::ca::to_pem(&der);
            assert_eq!(refusal(&pem, &good, (now, now)), RenewalRefusal::ForeignIssuer);
        }
        for wrong in [proof(&other, &certificate, now), proof(&key, &certificate, now + 1), Vec::new()] {
            assert_eq!(refusal(&certificate, &wrong, (now, now)), RenewalRefusal::Signature);
        }
        let changed = ExpiredRenewal {
            certificate: &certificate,
            csr: "another request",
            time: at(now),
            signature: &good,
        };
        let error = ExpiredCertificate::verify(changed, &ours.roots(at(SIGNED)), at(now)).unwrap_err();
        assert_eq!(error, RenewalRefusal::Signature, "the signature covers the CSR");
        for (late, is_taken) in [(300, true), (-300, true), (301, false), (-301, false)] {
            let found = verify(&ours, (&certificate, &good), (now, now + late));
            let expected = RenewalRefusal::Time { now: at(now + late) };
            assert_eq!(found.err(), (!is_taken).then_some(expected), "{late}");
        }
    }

    /// Certificate of node `n1` with key `a` and serial number `1`, signed at 100 and valid until 200.
    fn expired() -> ExpiredCertificate {
        ExpiredCertificate {
            node: Name::parse("n1").unwrap(),
            serial: "1".to_owned(),
            key: "a".to_owned(),
            issued: at(100),
            expires: at(200),
        }
    }

    /// Record of a certificate with this key and serial number, signed at `issued`.
    fn newest(key: Option<&str>, serial: &str, issued: i64) -> AgentRecord {
        AgentRecord {
            serial: Some(serial.to_owned()),
            issued: Some(at(issued)),
            key: key.map(str::to_owned),
            ..AgentRecord::default()
        }
    }

    fn facts<'a>(record: &'a AgentRecord, now: i64) -> RenewalFacts<'a> {
        RenewalFacts { now: at(now), limit_secs: LIMIT, record, has_node: true, new_key: "b" }
    }

    #[test]
    fn an_expired_certificate_is_renewed_within_the_limit_only() {
        let record = newest(Some("a"), "1", 100);
        for now in [200, 200 + LIMIT] {
            assert_eq!(expired().check(facts(&record, now)), Ok(()), "{now}");
        }
        let refusal = |now| expired().check(facts(&record, now)).unwrap_err();
        assert_eq!(refusal(199), RenewalRefusal::NotExpired { expires: at(200) });
        assert_eq!(refusal(201 + LIMIT), RenewalRefusal::TooLate { expires: at(200), limit_secs: LIMIT });
        let disabled = RenewalFacts { limit_secs: 0, ..facts(&record, 200) };
        assert_eq!(expired().check(disabled), Err(RenewalRefusal::Disabled));
    }

    #[test]
    fn revoked_certificates_and_those_of_deleted_nodes_are_refused() {
        let mut record = newest(Some("a"), "1", 100);
        let deleted = RenewalFacts { has_node: false, ..facts(&record, 300) };
        assert_eq!(expired().check(deleted), Err(RenewalRefusal::NoNode(expired().node)));
        record.revoked_through = Some(at(100));
        assert_eq!(expired().check(facts(&record, 300)), Err(RenewalRefusal::Revoked));
        record.revoked_through = Some(at(99));
        assert_eq!(expired().check(facts(&record, 300)), Ok(()), "the earlier ones were revoked");
    }

    #[test]
    fn only_the_newest_certificate_is_renewed_unless_its_holder_has_the_newest_key() {
        let superseded = Err(RenewalRefusal::Superseded(expired().node));
        let result =
            |record: &AgentRecord, new_key| expired().check(RenewalFacts { new_key, ..facts(record, 300) });
        assert_eq!(result(&newest(Some("c"), "2", 150), "b"), superseded);
        assert_eq!(result(&newest(Some("c"), "2", 100), "b"), superseded, "signed in the same second");
        assert_eq!(result(&newest(Some("c"), "2", 150), "c"), Ok(()), "the response was lost");
        assert_eq!(result(&newest(Some("a"), "2", 150), "b"), Ok(()), "a repeated request got serial 2");
        assert_eq!(result(&newest(None, "2", 150), "b"), superseded, "record of an earlier release");
        assert_eq!(result(&newest(None, "1", 100), "b"), Ok(()), "record of an earlier release");
        assert_eq!(result(&newest(Some("c"), "0", 99), "b"), Ok(()), "an older vault was restored");
        assert_eq!(result(&AgentRecord::default(), "b"), Ok(()), "an older vault was restored");
    }

    #[test]
    fn every_refusal_names_a_remedy_of_its_own() {
        let node = expired().node;
        let all = [
            RenewalRefusal::Disabled,
            RenewalRefusal::Malformed,
            RenewalRefusal::ForeignIssuer,
            RenewalRefusal::Signature,
            RenewalRefusal::Time { now: at(1) },
            RenewalRefusal::NotExpired { expires: at(1) },
            RenewalRefusal::TooLate { expires: at(1), limit_secs: 1 },
            RenewalRefusal::Revoked,
            RenewalRefusal::NoNode(node.clone()),
            RenewalRefusal::Superseded(node),
        ];
        let texts: std::collections::BTreeSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
        for refusal in all {
            let problem = format!("{:?}", Problem::from(refusal));
            assert!(problem.contains("hint: Some("), "{problem}");
        }
    }
}
