//! The cluster's own authority: it signs the certificates of agents, and of control servers that are given none.
//!
//! Its key is made at the first start and kept in the vault, so that all replicas sign as one. It is never shown: what
//! leaves this module are certificates.

use arc_swap::ArcSwap;
use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use store::{StoreError, VaultError};

use super::{secrets::digest, vault::Vault};
use crate::base::clock_and_random::Source;
use crate::base::hex::hex;

/// Where it is kept.
const VAULT_KEY: &str = "ca/current";
/// Life of the authority: longer than machines last.
const CA_LIFE_SECS: i64 = 10 * 365 * 86_400;
/// Life of a server certificate that the authority signs: a server that runs has it renewed long before.
pub(crate) const SERVER_LIFE_SECS: i64 = 90 * 86_400;
/// How far a certificate reaches back before it was signed, because clocks differ.
pub(crate) const CLOCK_SKEW_SECS: i64 = 300;
/// Time before the end of the authority from which each start warns of it.
const CA_WARNING_SECS: i64 = 365 * 86_400;
/// Bytes of a serial number: 120 random bits cannot be guessed, and fit the 20 bytes of RFC 5280, 4.1.2.2.
const SERIAL_BYTES: usize = 15;
/// The end of the year 9998, beyond which dates cannot be written.
const UNIX_SECONDS_MAX: u64 = 253_370_764_799;
/// What names a node in its certificate, before the name.
pub(crate) const NODE_URI_PREFIX: &str = "spiffe://tidegate/node/";

/// The authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// What shows that a server is one of ours.
    trusted: ArcSwap<Trusted>,
}

/// What shows to agents that a control server is one of this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trusted {
    /// The SHA-256 of a certificate that every server presents, in hexadecimal.
    pub(crate) pin: String,
    /// The authorities, as PEM.
    pub(crate) bundle: String,
}

/// A certificate that was signed for a node.
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    /// The certificate and the authority's, as PEM.
    pub(crate) chain: String,
    /// The serial number, in hexadecimal.
    pub(crate) serial: String,
    /// When it ends.
    pub(crate) expires: Timestamp,
}

/// The record of the vault.
#[derive(Serialize, Deserialize)]
struct Stored {
    key: Secret,
    certificate: String,
}

impl Authority {
    /// The authority of this cluster: the stored one, or a new one that is stored now. Of several replicas that begin at
    /// once, the first decides.
    ///
    /// # Errors
    /// The vault cannot be read or written, or holds an authority that cannot be used: that one is never replaced.
    pub(crate) async fn obtain(vault: &Vault, source: &dyn Source) -> Result<Self, StoreError> {
        loop {
            if vault.version(VAULT_KEY) > 0 {
                let stored = vault.get::<Stored>(VAULT_KEY);
                let (_, stored) = stored.ok_or_else(|| unusable("it has not the form of an authority"))?;
                let authority = Self::of(&stored).map_err(|error| unusable(&error.to_string()))?;
                authority.warn_of_end(source.now());
                return Ok(authority);
            }
            let made = make(source).map_err(|error| unusable(&error.to_string()))?;
            match vault.put(VAULT_KEY, 0, &made).await {
                Ok(_) => tracing::info!("made the authority of this cluster"),
                Err(VaultError::Stale { .. }) => {}
                Err(VaultError::Unavailable(error)) => return Err(error),
                Err(error @ VaultError::TooLarge { .. }) => return Err(unusable(&error.to_string())),
            }
        }
    }

    fn of(stored: &Stored) -> Result<Self, rcgen::Error> {
        let Stored { key, certificate: pem } = stored;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
        let issuer = Issuer::from_ca_cert_pem(pem, KeyPair::from_pem(key.reveal())?)?;
        let trusted = Trusted { pin: digest(&certificate), bundle: pem.clone() };
        Ok(Self { issuer, certificate, pem: pem.clone(), trusted: ArcSwap::from_pointee(trusted) })
    }

    fn warn_of_end(&self, now: Timestamp) {
        let ends = x509_parser::parse_x509_certificate(&self.certificate)
            .map(|(_, certificate)| certificate.validity().not_after.timestamp());
        if ends.is_ok_and(|ends| ends - now.unix_seconds() < CA_WARNING_SECS) {
            tracing::warn!("the authority of this cluster ends within a year");
        }
    }

    /// Its certificate.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// What shows to agents that a server is one of ours.
    pub(crate) fn trusted(&self) -> Trusted {
        Trusted::clone(&self.trusted.load())
    }

    /// Says what else servers present: the last certificate of a chain that the operator gave.
    pub(crate) fn trust_also(&self, presented: &CertificateDer<'_>) {
        let bundle = format!("{}{}", self.pem, to_pem(presented));
        self.trusted.store(Trusted { pin: digest(presented), bundle }.into());
    }

    /// Signs a certificate for this server, with these names; answers the chain and its key.
    pub(crate) fn sign_server(
        &self,
        names: &[ServerName<'static>],
        source: &dyn Source,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = leaf("Tidegate control server", source.now(), SERVER_LIFE_SECS, source);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.iter().filter_map(san).collect();
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key.into()))
    }

    /// Signs a certificate for a node. Nothing in it but the key is the asker's word.
    pub(crate) fn sign_node(
        &self,
        node: &Name,
        key: &impl PublicKeyData,
        (issued, life_secs): (Timestamp, i64),
        source: &dyn Source,
    ) -> Result<Signed, rcgen::Error> {
        let mut params = leaf(&format!("Tidegate node {node}"), issued, life_secs, source);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI(format!("{NODE_URI_PREFIX}{node}").try_into()?)];
        let serial = params.serial_number.as_ref().map(|serial| hex(serial.as_ref())).unwrap_or_default();
        let certificate = params.signed_by(key, &self.issuer)?;
        let expires = Timestamp::from_unix_seconds(issued.unix_seconds().saturating_add(life_secs));
        Ok(Signed { chain: format!("{}{}", certificate.pem(), self.pem), serial, expires })
    }
}

fn make(source: &dyn Source) -> Result<Stored, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Two clusters of one operator have authorities with two names: whoever trusts both finds the right one.
    params.distinguished_name = common_name(&format!("Tidegate authority {}", hex(&source.secret()[..4])));
    params.serial_number = Some(serial(source));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, source.now(), CA_LIFE_SECS);
    let certificate = params.self_signed(&key)?;
    Ok(Stored { key: Secret::new(key.serialize_pem()), certificate: certificate.pem() })
}

/// What all certificates have that are not the authority's.
fn leaf(name: &str, issued: Timestamp, life_secs: i64, source: &dyn Source) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.serial_number = Some(serial(source));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, issued, life_secs);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    // RFC 5280, appendix A.1: a common name has at most 64 characters, the name of a node may have more.
    names.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    names
}

fn serial(source: &dyn Source) -> SerialNumber {
    let mut bytes = source.secret();
    // Positive, and the same length as its hexadecimal form says (RFC 5280, 4.1.2.2).
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes[..SERIAL_BYTES])
}

fn san(name: &ServerName<'_>) -> Option<SanType> {
    match name {
        ServerName::DnsName(name) => Some(SanType::DnsName(name.as_ref().to_owned().try_into().ok()?)),
        ServerName::IpAddress(address) => Some(SanType::IpAddress(std::net::IpAddr::from(*address))),
        // The type is open; there are no others that a certificate can hold.
        _ => None,
    }
}

fn set_validity(params: &mut CertificateParams, issued: Timestamp, life_secs: i64) {
    let instant = |secs: i64| {
        let unix = u64::try_from(issued.unix_seconds().saturating_add(secs)).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(unix.min(UNIX_SECONDS_MAX))
    };
    (params.not_before, params.not_after) = (instant(-CLOCK_SKEW_SECS), instant(life_secs));
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let text = BASE64_STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, further) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = further;
    }
    pem + "-----END CERTIFICATE-----\n"
}

fn unusable(reason: &str) -> StoreError {
    StoreError::Unreadable { key: VAULT_KEY.to_owned(), reason: reason.to_owned() }
}
