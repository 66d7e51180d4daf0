//! Enrollment of nodes: a machine exchanges a single-use join token and its public key for a short-lived
//! certificate.
//!
//! ```text
//! join token (created by a user, hash in the vault) ─▶ request: token, name, key ─▶ certificate of that name
//!                                                      valid certificate ─────────▶ certificate of the same name
//!                            expired certificate, signed by its key (`expired`) ─────────▶ certificate of the same name
//! ```
//! A token without a node name can be used for any name that was never used. The name of an existing Node, and a
//! name that ever had a certificate, require a token created for the name. Therefore a stolen token for new
//! machines cannot be used to take over an existing, deleted or revoked node.

use model::{
    kinds::metadata::Labels,
    primitives::{
        name::Name,
        quantity::Timestamp,
        secret::Secret,
        violation::{Violation, ViolationCode},
    },
};
use rcgen::PublicKeyData as _;
use serde::{Deserialize, Serialize};
use store::VaultError;

use super::{
    authority::Authority,
    ca::SignedCertificate,
    certificates::{self, AgentRecord, ConnectionCertificate},
    csr,
    expired::{ExpiredCertificate, ExpiredRenewal, RenewalFacts, RenewalRefusal},
    secrets::{digest, is_equal},
    vault::Vault,
};
use crate::base::hex::hex;
use crate::base::{
    clock_and_random::Source,
    error::{Code, Problem},
};

/// Prefix of the text of a join token, by which secret scanners recognize it.
pub(crate) const TOKEN_PREFIX: &str = "tgj";
/// Default lifetime of a join token in seconds: one hour, enough to install a machine.
pub(crate) const TTL_SECS_DEFAULT: u32 = 3600;
/// Maximum lifetime of a join token in seconds: one day, because anybody who finds the token can add a node.
pub(crate) const TTL_SECS_MAX: u32 = 86_400;
/// Maximum number of unused join tokens: twice the number of nodes in the largest supported cluster.
const TOKENS_MAX: usize = 2048;
/// Number of random bytes in the id of a join token.
const ID_BYTES: usize = 8;
/// Maximum length of a join token's text in bytes, enough for prefix, id, secret and certificate pin.
const TOKEN_BYTES_MAX: usize = 256;
/// Prefix of the keys under which the vault stores join tokens.
const PREFIX: &str = "joins/";
/// Maximum number of attempts to redeem a join token if concurrent writes conflict with it.
const TRIES_MAX: usize = 8;

/// Join token as stored in the vault, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinRecord {
    hash: String,
    /// Name of the only node that may use the token; `None` allows any name that was never used.
    pub(crate) node: Option<Name>,
    /// Labels that the Node gets when its agent registers it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) labels: Labels,
    /// Time at which the token was created.
    pub(crate) created: Timestamp,
    /// Time at which the token expires.
    pub(crate) expires: Timestamp,
}

/// CA, vault and clock that are needed to issue node certificates.
#[derive(Clone, Copy)]
pub(crate) struct CertificateIssuer<'a> {
    pub(crate) vault: &'a Vault,
    pub(crate) authority: &'a Authority,
    pub(crate) source: &'a dyn Source,
    /// Lifetime of issued node certificates, in seconds.
    pub(crate) life_secs: i64,
}

/// Creates a join token. Returns its id, the stored record, and the text for the operator, which is not
/// stored.
pub(crate) async fn make_token(
    issuer: CertificateIssuer<'_>,
    (node, labels): (Option<Name>, Labels),
    ttl_secs: u32,
) -> Result<(String, JoinRecord, Secret), Problem> {
    let CertificateIssuer { vault, authority, source, life_secs: _ } = issuer;
    let now = source.now();
    let mut kept = 0;
    for (id, version, record) in vault.list::<JoinRecord>(PREFIX) {
        if record.expires <= now {
            // If the record has changed, another request has used or removed the token.
            let _gone = vault.remove(&format!("{PREFIX}{id}"), version).await;
        } else {
            kept += 1;
        }
    }
    if kept >= TOKENS_MAX {
        let detail = format!("there are {kept} unused join tokens; the maximum is {TOKENS_MAX}");
        return Err(Problem::new(Code::Conflict, detail).hint("DELETE /v1/jointokens/{id} removes one"));
    }
    let id = hex(&source.secret()[..ID_BYTES]);
    let secret = hex(&source.secret());
    let expires = Timestamp::from_unix_seconds(now.unix_seconds().saturating_add(i64::from(ttl_secs)));
    let record = JoinRecord { hash: digest(secret.as_bytes()), node, labels, created: now, expires };
    vault.put(&format!("{PREFIX}{id}"), 0, &record).await.map_err(|error| unwritten(&error))?;
    let text = Secret::new(format!("{TOKEN_PREFIX}_{id}_{secret}_{}", authority.trusted(now).pin));
    Ok((id, record, text))
}

/// Returns the join tokens that have not expired, each with its id.
pub(crate) fn tokens(vault: &Vault, now: Timestamp) -> Vec<(String, JoinRecord)> {
    let all = vault.list::<JoinRecord>(PREFIX).into_iter();
    all.filter(|(_, _, record)| record.expires > now).map(|(id, _, record)| (id, record)).collect()
}

/// Deletes a join token. Returns true if it existed.
pub(crate) async fn remove_token(vault: &Vault, id: &str) -> Result<bool, Problem> {
    let key = format!("{PREFIX}{id}");
    let version = vault.version(&key);
    if version == 0 {
        return Ok(false);
    }
    match vault.remove(&key, version).await {
        Ok(()) => Ok(true),
        Err(VaultError::Stale { .. }) => Ok(false),
        Err(error @ (VaultError::TooLarge { .. } | VaultError::Unavailable(_))) => Err(unwritten(&error)),
    }
}

/// Exchanges a join token for a certificate of the machine's public key. `has_node` states whether the Node
/// exists. The token is consumed only after all other checks have succeeded.
pub(crate) async fn enrol(
    issuer: CertificateIssuer<'_>,
    token: &Secret,
    (node, has_node): (&Name, bool),
    request: &str,
) -> Result<SignedCertificate, Problem> {
    let CertificateIssuer { vault, authority: _, source, life_secs: _ } = issuer;
    let now = source.now();
    let (id, secret) = parse(token).ok_or_else(refused)?;
    let key = format!("{PREFIX}{id}");
    if vault.version(&key) == 0 {
        // Another replica may have created the token a moment ago.
        vault.refresh().await.map_err(|error| unwritten(&VaultError::Unavailable(error)))?;
    }
    let (version, record) = vault.get::<JoinRecord>(&key).ok_or_else(refused)?;
    if !is_equal(&record.hash, &digest(secret.as_bytes())) || record.expires <= now {
        return Err(refused());
    }
    if record.node.as_ref().is_some_and(|only| only != node) {
        return Err(Problem::new(Code::Forbidden, "the join token is for another node")
            .hint("the agent sets the name of the node with --node"));
    }
    let public = csr::key_of(request, node).map_err(unfit)?;
    if has_node && !record.labels.is_empty() {
        return Err(labels_without_effect(node));
    }
    let is_bound = record.node.is_some();
    let is_reserved = |known: &AgentRecord| !is_bound && (has_node || known.is_used());
    if is_reserved(&certificates::record(vault, node).1) {
        return Err(reserved(node));
    }
    match vault.remove(&key, version).await {
        Ok(()) => {}
        Err(VaultError::Stale { .. }) => return Err(refused()),
        Err(error @ (VaultError::TooLarge { .. } | VaultError::Unavailable(_))) => {
            return Err(unwritten(&error));
        }
    }
    let signed = sign(issuer, node, &public, |known| {
        if is_reserved(known) {
            return Err(reserved(node));
        }
        // Revokes the certificates of the previous holder of the name.
        known.revoked_through = known.issued.map(|issued| issued.max(now)).or(known.revoked_through);
        known.labels.clone_from(&record.labels);
        Ok(())
    })
    .await?;
    tracing::info!(%node, token = id, serial = signed.serial, "a node has joined");
    Ok(signed)
}

/// Signs a certificate for a new key of the node that is authenticated by its current certificate.
pub(crate) async fn renew(
    issuer: CertificateIssuer<'_>,
    proven: &ConnectionCertificate,
    request: &str,
) -> Result<SignedCertificate, Problem> {
    let node = &proven.current().ok_or_else(revoked)?.node;
    let public = csr::key_of(request, node).map_err(unfit)?;
    let signed =
        sign(
            issuer,
            node,
            &public,
            |record| {
                if record.counts(proven.issued()) { Ok(()) } else { Err(revoked()) }
            },
        )
        .await?;
    tracing::debug!(%node, serial = signed.serial, "renewed the certificate of a node");
    Ok(signed)
}

/// Signs a certificate for a node whose certificate has expired at most `limit_secs` ago. `has_node` returns true if the Node
/// exists. `on_proof` is called with the name of the node as soon as the sender has proved possession of the
/// certificate's key.
pub(crate) async fn renew_expired(
    issuer: CertificateIssuer<'_>,
    request: ExpiredRenewal<'_>,
    limit_secs: i64,
    has_node: impl Fn(&Name) -> bool,
    on_proof: impl FnOnce(&Name),
) -> Result<SignedCertificate, Problem> {
    let CertificateIssuer { vault: _, authority, source, life_secs: _ } = issuer;
    if limit_secs <= 0 {
        return Err(RenewalRefusal::Disabled.into());
    }
    let expired = ExpiredCertificate::verify(request, &authority.roots(source.now()), source.now())?;
    let node = &expired.node;
    on_proof(node);
    let public = csr::key_of(request.csr, node).map_err(unfit)?;
    let new_key = digest(public.der_bytes());
    let signed = sign(issuer, node, &public, |record| {
        let (now, has_node) = (source.now(), has_node(node));
        expired.check(RenewalFacts { now, limit_secs, record, has_node, new_key: &new_key })?;
        Ok(())
    })
    .await?;
    tracing::info!(%node, serial = signed.serial, expired = %expired.expires, "renewed the expired certificate of a node");
    Ok(signed)
}

/// Signs a certificate and records it in the vault. `check` validates and updates the node's record; it runs again
/// after a conflicting write.
async fn sign(
    issuer: CertificateIssuer<'_>,
    node: &Name,
    public: &rcgen::PublicKey,
    check: impl Fn(&mut AgentRecord) -> Result<(), Problem>,
) -> Result<SignedCertificate, Problem> {
    let CertificateIssuer { vault, authority, source, life_secs } = issuer;
    for _ in 0..TRIES_MAX {
        let (version, mut record) = certificates::record(vault, node);
        check(&mut record)?;
        let now = source.now();
        // Later than the revocation, even within the same second.
        let after = record
            .revoked_through
            .map(|at| Timestamp::from_unix_seconds(at.unix_seconds().saturating_add(1)));
        let issued = after.map_or(now, |after| after.max(now));
        let signed = authority.sign_node(node, public, (issued, life_secs), source).map_err(|error| {
            tracing::error!(%error, %node, "cannot sign a certificate");
            Problem::new(Code::Internal, "the certificate could not be signed; the reason is in the log")
        })?;
        (record.serial, record.key) = (Some(signed.serial.clone()), Some(digest(public.der_bytes())));
        (record.issued, record.expires) = (Some(issued), Some(signed.expires));
        record.authority = Some(signed.authority.clone());
        match vault.put(&certificates::key(node), version, &record).await {
            Ok(_) => return Ok(signed),
            Err(VaultError::Stale { .. }) => {}
            Err(error @ (VaultError::TooLarge { .. } | VaultError::Unavailable(_))) => {
                return Err(unwritten(&error));
            }
        }
    }
    Err(Problem::new(Code::Conflict, format!("Node {node} is being enrolled by another request")))
}

/// Creates the problem response for a name that requires a join token created for it.
fn reserved(node: &Name) -> Problem {
    let detail = format!(
        "Node {node} exists or had a certificate before, and the join token was not created for this node"
    );
    Problem::new(Code::Conflict, detail).hint(format!(
        "create a join token with `tidegate node join-token {node}`, or choose another name with --node"
    ))
}

/// Creates the problem response for labels of a join token that no registration would apply.
pub(crate) fn labels_without_effect(node: &Name) -> Problem {
    let detail = format!("Node {node} exists, and the labels of a join token apply at registration only");
    Problem::new(Code::Conflict, detail)
        .hint("create a join token without labels, and change the labels of the Node")
}

/// Splits the text of a join token into id and secret. Returns `None` if the text is malformed. The
/// certificate pin at the end of the text is for the agent only.
fn parse(token: &Secret) -> Option<(&str, &str)> {
    let text = token.reveal().trim();
    if text.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut parts = text.split('_');
    let (prefix, id, secret, _pin) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_id = id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (prefix == TOKEN_PREFIX && is_id && parts.next().is_none()).then_some((id, secret))
}

/// Creates the problem response for any invalid join token. The same response for all keeps clients from finding
/// valid ids.
fn refused() -> Problem {
    Problem::new(Code::Unauthenticated, "the join token is unknown, already used, or has expired").hint(
        "a join token is valid for one use, and for one hour by default; create another one with \
               POST /v1/jointokens",
    )
}

/// Creates the problem response for a missing or invalid client certificate.
pub(crate) fn revoked() -> Problem {
    Problem::new(Code::Unauthenticated, "the connection has no valid certificate of a node").hint(
        "an agent renews an expired certificate by itself; after a revocation it joins again with a new join \
               token that was created for its name",
    )
}

fn unfit(error: csr::CsrError) -> Problem {
    Problem::invalid(vec![Violation::new("/csr", ViolationCode::Invalid, error.to_string())])
}

/// Converts an error of a write to the vault to a problem response.
pub(crate) fn unwritten(error: &VaultError) -> Problem {
    match error {
        VaultError::Stale { .. } => Problem::new(
            Code::Conflict,
            "the record was changed by another request at the same time; \
                                          try again",
        ),
        VaultError::TooLarge { .. } => {
            Problem::new(Code::Conflict, "the vault of the server is full").hint("delete unused tokens")
        }
        VaultError::Unavailable(_) => {
            tracing::warn!(%error, "the vault cannot be written");
            Problem::new(Code::Unavailable, "the store cannot be reached; whether it was done is unknown")
                .retry_after(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_token_is_taken_apart_whole_or_not_at_all() {
        let parts = |text: &str| {
            parse(&Secret::new(text.to_owned())).map(|(id, secret)| (id.to_owned(), secret.to_owned()))
        };
        let good = "tgj_0011223344556677_secret_pin";
        assert_eq!(parts(good), Some(("0011223344556677".to_owned(), "secret".to_owned())));
        assert!(parts(&format!(" {good}\n")).is_some());
        for bad in [
            "",
            "tgj",
            "tgj_0011223344556677_secret",
            "tgt_0011223344556677_secret_pin",
            "tgj_00_secret_pin",
            "tgj_001122334455667/_secret_pin",
            "tgj_0011223344556677_secret_pin_more",
            &format!("{good}{}", "x".repeat(300)),
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
