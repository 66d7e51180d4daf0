//! Certificate authorities (CAs) of the cluster. One CA signs; after a rotation, the former one stays trusted for a time, so that
//! agents and control servers keep their access.
//!
//! ```text
//! rotation ─▶ new CA is trusted ─▶ 10 s later it signs ─▶ agents renew and get both CAs ─▶ end of the transition: old CA is removed
//! ```
//! The keys are stored in the vault, so that all control servers share the CAs. Each server presents, besides the certificate
//! signed by the new CA, one that the former CA has signed: clients that know only the former CA verify it with that one.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use model::primitives::{name::Name, quantity::Timestamp};
use rcgen::PublicKeyData;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::{Deserialize, Serialize};
use store::{StoreError, VaultError};

use super::{
    ca::{Ca, SignedCertificate, StoredCa, make, to_pem},
    secrets::digest,
    vault::Vault,
};
use crate::base::clock_and_random::Source;

/// Key of the vault record with the certificate and private key of the CA that signs.
const CURRENT: &str = "ca/current";
/// Key of the vault record with the former CA, until the end of the transition.
const FORMER: &str = "ca/former";
/// Time in seconds after a rotation in which the former CA continues to sign: each control server trusts the new CA within about
/// three seconds, and must do so before the first agent presents a certificate of the new CA.
const SETTLE_SECS: i64 = 10;
/// Remaining lifetime of the current CA in seconds below which it is rotated without a request.
const AUTOMATIC_SECS: i64 = 365 * 86_400;
/// Minimum length of a transition in seconds.
pub(crate) const TRANSITION_SECS_MIN: u32 = 60;
/// Maximum length of a transition in seconds: a year, before which the lifetime of no CA ends.
pub(crate) const TRANSITION_SECS_MAX: u32 = 365 * 86_400;

/// Certificate authorities of the cluster.
pub(crate) struct Authority {
    vault: Arc<Vault>,
    known: ArcSwap<KnownCas>,
    /// Last certificate of the chain that an operator has configured for this server.
    presented: ArcSwapOption<CertificateDer<'static>>,
}

/// CAs as read from the vault.
struct KnownCas {
    /// Versions of the records of the current and of the former CA.
    versions: [u64; 2],
    current: Arc<Ca>,
    former: Option<FormerCa>,
}

/// CA that signed before the last rotation.
#[derive(Clone)]
struct FormerCa {
    ca: Arc<Ca>,
    since: Timestamp,
    until: Timestamp,
}

/// Former CA as stored in the vault.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredFormerCa {
    ca: StoredCa,
    since: Timestamp,
    until: Timestamp,
}

/// CA certificates, and the pin (hash of one certificate), by which agents verify a control server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControlTrust {
    /// SHA-256, in hexadecimal, of a certificate that every control server presents in its chain to clients that name no CA.
    pub(crate) pin: String,
    /// Trusted CA certificates, concatenated as PEM.
    pub(crate) bundle: String,
}

/// Certificate of this control server that one of the CAs has signed.
pub(crate) struct ServerCertificate {
    /// Certificate of the CA.
    pub(crate) authority: CertificateDer<'static>,
    /// Certificate of the server, followed by that of the CA.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Private key of the server certificate.
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Value that changes when the trusted CAs change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrustVersion {
    versions: [u64; 2],
    has_former: bool,
}

/// CA for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownCa {
    /// SHA-256 of the certificate in hexadecimal.
    pub(crate) fingerprint: String,
    /// End of validity of the certificate.
    pub(crate) expires: Timestamp,
}

/// Former CA for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownFormerCa {
    pub(crate) ca: ShownCa,
    /// Time of the rotation.
    pub(crate) since: Timestamp,
    /// End of the transition, from which the CA is no longer trusted.
    pub(crate) until: Timestamp,
}

/// Reason why the CAs are not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotationError {
    /// The former CA of the last rotation is still trusted.
    #[error("a rotation is in progress: the former CA is trusted until {0}")]
    InProgress(Timestamp),
    /// There is no former CA.
    #[error("no rotation is in progress: there is no former CA")]
    NoFormer,
    /// The new CA cannot be created.
    #[error("the new CA cannot be created")]
    Create(#[source] rcgen::Error),
    /// The vault cannot be written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl KnownCas {
    /// Reads the CAs from the vault.
    ///
    /// # Errors
    /// Returns an error if the record of the current CA is unusable. An unusable former CA is left out.
    fn read(vault: &Vault) -> Result<Self, StoreError> {
        let (version, stored) = vault
            .get::<StoredCa>(CURRENT)
            .ok_or_else(|| unusable("it does not have the format of a CA record"))?;
        let current = Ca::of(&stored).map_err(|error| unusable(&error.to_string()))?;
        let former_version = vault.version(FORMER);
        let former =
            vault.get::<StoredFormerCa>(FORMER).and_then(|(_, StoredFormerCa { ca, since, until })| {
                // A rotation that did not come to its end has left the current CA here.
                let is_other = ca.certificate != stored.certificate;
                let ca = Ca::of(&ca).inspect_err(
                    |error| tracing::error!(%error, "the former CA in the vault cannot be used"),
                );
                ca.ok().filter(|_| is_other).map(|ca| FormerCa { ca: Arc::new(ca), since, until })
            });
        Ok(Self { versions: [version, former_version], current: Arc::new(current), former })
    }

    /// Returns the former CA during the transition.
    fn former(&self, now: Timestamp) -> Option<&FormerCa> {
        self.former.as_ref().filter(|former| now < former.until)
    }

    /// Returns the CA that signs certificates of nodes.
    fn signer(&self, now: Timestamp) -> &Ca {
        let settles =
            |former: &&FormerCa| now.unix_seconds() < former.since.unix_seconds().saturating_add(SETTLE_SECS);
        self.former(now).filter(settles).map_or(&*self.current, |former| &*former.ca)
    }

    /// Returns the CA whose certificate clients get that name no CA: the former one during the transition, because such clients
    /// may know only this one.
    fn general(&self, now: Timestamp) -> &Ca {
        self.former(now).map_or(&*self.current, |former| &*former.ca)
    }

    /// Returns the trusted CAs, the current one first.
    fn trusted(&self, now: Timestamp) -> impl Iterator<Item = &Ca> {
        std::iter::once(&*self.current).chain(self.former(now).map(|former| &*former.ca))
    }
}

impl Authority {
    /// Returns the CAs of the cluster from the vault. If there is none, creates and stores one; of several servers
    /// that start at once, the first one's CA is used by all.
    ///
    /// # Errors
    /// Returns an error if the vault cannot be read or written, or if the stored CA is unusable. A stored CA
    /// is replaced by a rotation only.
    pub(crate) async fn obtain(vault: &Arc<Vault>, source: &dyn Source) -> Result<Self, StoreError> {
        while vault.version(CURRENT) == 0 {
            let made = make(source).map_err(|error| unusable(&error.to_string()))?;
            match vault.put(CURRENT, 0, &made).await {
                Ok(_) => tracing::info!("created the CA of this cluster"),
                Err(VaultError::Stale { .. }) => {}
                Err(VaultError::Unavailable(error)) => return Err(error),
                Err(error @ VaultError::TooLarge { .. }) => return Err(unusable(&error.to_string())),
            }
        }
        let known = ArcSwap::from_pointee(KnownCas::read(vault)?);
        Ok(Self { vault: Arc::clone(vault), known, presented: ArcSwapOption::empty() })
    }

    /// Returns the CAs of the present copy of the vault. If a record has become unusable, the CAs stay as they were.
    fn known(&self) -> Arc<KnownCas> {
        let known = self.known.load_full();
        let versions = [CURRENT, FORMER].map(|key| self.vault.version(key));
        if known.versions == versions {
            return known;
        }
        let read = KnownCas::read(&self.vault).unwrap_or_else(|error| {
            tracing::error!(%error, "the CA in the vault cannot be used; the last known one stays in use");
            KnownCas { versions, current: Arc::clone(&known.current), former: known.former.clone() }
        });
        let read = Arc::new(read);
        self.known.store(Arc::clone(&read));
        read
    }

    /// Returns the certificates of the trusted CAs, the current one first.
    pub(crate) fn roots(&self, now: Timestamp) -> Vec<CertificateDer<'static>> {
        self.known().trusted(now).map(|ca| ca.certificate().clone()).collect()
    }

    /// Returns true if a certificate with this issuer (DER) was signed by a trusted CA. The names of all CAs differ.
    pub(crate) fn trusts(&self, issuer: &[u8], now: Timestamp) -> bool {
        self.known().trusted(now).any(|ca| ca.name() == issuer)
    }

    /// Returns a value that changes when the trusted CAs change.
    pub(crate) fn version(&self, now: Timestamp) -> TrustVersion {
        let known = self.known();
        TrustVersion { versions: known.versions, has_former: known.former(now).is_some() }
    }

    /// Returns the CAs and the pin by which agents verify control servers.
    pub(crate) fn trusted(&self, now: Timestamp) -> ControlTrust {
        let (known, presented) = (self.known(), self.presented.load());
        let pin = match &*presented {
            Some(presented) => digest(presented),
            None => known.general(now).fingerprint().to_owned(),
        };
        let own = known.trusted(now).map(|ca| ca.pem().to_owned());
        let bundle = own.chain(presented.iter().map(|presented| to_pem(presented))).collect();
        ControlTrust { pin, bundle }
    }

    /// Adds `presented` to the CA certificates by which agents verify control servers, and makes it the pin.
    /// `presented` is the last certificate of the chain that an operator has configured.
    pub(crate) fn trust_also(&self, presented: &CertificateDer<'_>) {
        self.presented.store(Some(Arc::new(presented.clone().into_owned())));
    }

    /// Signs a certificate for this control server by each trusted CA. The last one is for clients that name no CA.
    pub(crate) fn sign_server(
        &self,
        names: &[ServerName<'static>],
        configured: Option<&CertificateDer<'_>>,
        source: &dyn Source,
    ) -> Result<Vec<ServerCertificate>, rcgen::Error> {
        let sign = |ca: &Ca| {
            let (chain, key) = ca.sign_server(names, configured, source)?;
            Ok(ServerCertificate { authority: ca.certificate().clone(), chain, key })
        };
        self.known().trusted(source.now()).map(sign).collect()
    }

    /// Signs a certificate for a node. Only the public key comes from the signing request; the server sets
    /// all other fields.
    pub(crate) fn sign_node(
        &self,
        node: &Name,
        key: &impl PublicKeyData,
        issued: (Timestamp, i64),
        source: &dyn Source,
    ) -> Result<SignedCertificate, rcgen::Error> {
        self.known().signer(source.now()).sign_node(node, key, issued, source)
    }

    /// Returns the current CA, and during a transition the former one.
    pub(crate) fn shown(&self, now: Timestamp) -> (ShownCa, Option<ShownFormerCa>) {
        let known = self.known();
        let shown = |ca: &Ca| ShownCa { fingerprint: ca.fingerprint().to_owned(), expires: ca.expires() };
        let former = known.former(now).map(|FormerCa { ca, since, until }| ShownFormerCa {
            ca: shown(ca),
            since: *since,
            until: *until,
        });
        (shown(&known.current), former)
    }

    /// Replaces the current CA by a new one. The former CA is trusted for `transition_secs`, but not beyond its end of validity.
    ///
    /// # Errors
    /// Returns an error if a rotation is in progress, or if the vault cannot be written; nothing has changed then, or the vault
    /// has the current CA as the former one, too, which has no effect.
    pub(crate) async fn rotate(
        &self,
        transition_secs: i64,
        source: &dyn Source,
    ) -> Result<(), RotationError> {
        let (known, now) = (self.known(), source.now());
        if let Some(former) = known.former(now) {
            return Err(RotationError::InProgress(former.until));
        }
        let Some((version, ca)) = self.vault.get::<StoredCa>(CURRENT) else {
            return Err(
                VaultError::Unavailable(unusable("it does not have the format of a CA record")).into()
            );
        };
        let made = make(source).map_err(RotationError::Create)?;
        let until =
            now.unix_seconds().saturating_add(transition_secs).min(known.current.expires().unix_seconds());
        let former = StoredFormerCa { ca, since: now, until: Timestamp::from_unix_seconds(until) };
        // The former CA first: without its record, no server would trust certificates that are in use.
        self.vault.put(FORMER, known.versions[1], &former).await?;
        self.vault.put(CURRENT, version, &made).await?;
        tracing::info!(transition_secs, "the CA of this cluster was rotated");
        Ok(())
    }

    /// Ends the transition: the former CA is no longer trusted.
    ///
    /// # Errors
    /// Returns an error if no rotation is in progress, or if the vault cannot be written.
    pub(crate) async fn retire(&self, now: Timestamp) -> Result<(), RotationError> {
        let known = self.known();
        if known.former(now).is_none() {
            return Err(RotationError::NoFormer);
        }
        self.vault.remove(FORMER, known.versions[1]).await?;
        tracing::info!("the former CA of this cluster is no longer trusted");
        Ok(())
    }

    /// Removes the former CA after the end of its transition, and rotates a CA that expires within a year. Each control server
    /// tries to; the vault accepts the first one.
    pub(crate) async fn tend(&self, transition_secs: i64, source: &dyn Source) {
        let (known, now) = (self.known(), source.now());
        if known.former.as_ref().is_some_and(|former| former.until <= now) {
            match self.vault.remove(FORMER, known.versions[1]).await {
                Ok(()) => tracing::info!("the former CA of this cluster was removed after its transition"),
                Err(error) => tracing::debug!(%error, "the former CA was not removed"),
            }
        }
        let left = known.current.expires().unix_seconds().saturating_sub(now.unix_seconds());
        if left < AUTOMATIC_SECS && known.former(now).is_none() {
            match self.rotate(transition_secs, source).await {
                Ok(()) => tracing::warn!(
                    "the CA of this cluster expires within a year, and was replaced by a new one"
                ),
                Err(error) => tracing::debug!(%error, "the CA was not rotated"),
            }
        }
    }
}

/// Returns the default length of a transition in seconds: the time in which a node that was just cut off can still renew its
/// certificate, and at least a day.
pub(crate) fn default_transition_secs(agent_life_secs: i64, agent_renewal_grace_secs: i64) -> i64 {
    let total = agent_life_secs.saturating_add(agent_renewal_grace_secs);
    total.clamp(86_400, i64::from(TRANSITION_SECS_MAX))
}

fn unusable(reason: &str) -> StoreError {
    StoreError::Unreadable { key: CURRENT.to_owned(), reason: reason.to_owned() }
}
