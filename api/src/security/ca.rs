//! One certificate authority (CA): signs certificates of agents, and of control servers without a configured certificate. The
//! key of a CA never leaves this module, except as a record of the vault ([`super::authority`]).

use std::net::IpAddr;

use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;

use super::secrets::digest;
use crate::base::clock_and_random::Source;
use crate::base::hex::hex;

/// Lifetime of the CA certificate in seconds: ten years, longer than most machines are in service.
const CA_LIFE_SECS: i64 = 10 * 365 * 86_400;
/// Lifetime of a server certificate signed by the CA, in seconds. A running server renews it long before it
/// expires.
pub(crate) const SERVER_LIFE_SECS: i64 = 90 * 86_400;
/// Time in seconds by which the start of a certificate's validity is backdated, to tolerate clock differences.
pub(crate) const CLOCK_SKEW_SECS: i64 = 300;
/// Length of a certificate's serial number in bytes: 118 of the 120 bits are random, and RFC 5280, 4.1.2.2
/// permits 20 bytes.
const SERIAL_BYTES: usize = 15;
/// End of the year 9998 in Unix seconds: upper limit for times in certificates, whose format ends with the
/// year 9999.
const UNIX_SECONDS_MAX: u64 = 253_370_764_799;
/// Prefix of the URI (subject alternative name) with the node name in a certificate.
pub(crate) const NODE_URI_PREFIX: &str = "spiffe://tidegate/node/";

/// Certificate authority with its private key.
pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// Name in certificates that the CA signs (issuer), as DER.
    name: Vec<u8>,
    /// SHA-256 of the certificate in hexadecimal.
    fingerprint: String,
    expires: Timestamp,
}

/// Certificate that the CA signed for a node.
#[derive(Debug, Clone)]
pub(crate) struct SignedCertificate {
    /// Node certificate followed by the CA certificate, as PEM.
    pub(crate) chain: String,
    /// Serial number of the certificate in lower-case hexadecimal.
    pub(crate) serial: String,
    /// Time at which the certificate expires.
    pub(crate) expires: Timestamp,
    /// Fingerprint of the CA: SHA-256 of its certificate in hexadecimal.
    pub(crate) authority: String,
}

/// CA as stored in the vault.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredCa {
    key: Secret,
    /// Certificate of the CA as PEM.
    pub(super) certificate: String,
}

impl Ca {
    /// Loads a CA from its record in the vault.
    ///
    /// # Errors
    /// Returns an error if the key or the certificate is damaged. The error contains no key.
    pub(super) fn of(stored: &StoredCa) -> Result<Self, rcgen::Error> {
        let StoredCa { key, certificate: pem } = stored;
        let damaged = || rcgen::Error::CouldNotParseCertificate;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| damaged())?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|_| damaged())?;
        let name = parsed.subject().as_raw().to_vec();
        let expires = Timestamp::from_unix_seconds(parsed.validity().not_after.timestamp());
        let issuer = Issuer::from_ca_cert_pem(pem, KeyPair::from_pem(key.reveal())?)?;
        Ok(Self { issuer, fingerprint: digest(&certificate), certificate, pem: pem.clone(), name, expires })
    }

    /// Returns the CA's own certificate.
    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the CA's own certificate as PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the issuer in certificates that the CA signs, as DER.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the SHA-256 of the CA's own certificate in hexadecimal.
    pub(super) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the end of validity of the CA's own certificate.
    pub(super) fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Signs a certificate for this control server with the given names, and with those of the operator's
    /// certificate, if there is one. Returns the certificate chain and the private key.
    pub(super) fn sign_server(
        &self,
        names: &[ServerName<'static>],
        configured: Option<&CertificateDer<'_>>,
        source: &dyn Source,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = leaf("Tidegate control server", source.now(), SERVER_LIFE_SECS, source);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.iter().filter_map(san).collect();
        for name in configured.map(names_of).unwrap_or_default() {
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key.into()))
    }

    /// Signs a certificate for a node. Only the public key comes from the signing request; the server sets
    /// all other fields.
    pub(super) fn sign_node(
        &self,
        node: &Name,
        key: &impl PublicKeyData,
        (issued, life_secs): (Timestamp, i64),
        source: &dyn Source,
    ) -> Result<SignedCertificate, rcgen::Error> {
        let mut params = leaf(&format!("Tidegate node {node}"), issued, life_secs, source);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI(format!("{NODE_URI_PREFIX}{node}").try_into()?)];
        let serial = params.serial_number.as_ref().map(|serial| hex(serial.as_ref())).unwrap_or_default();
        let certificate = params.signed_by(key, &self.issuer)?;
        let expires = Timestamp::from_unix_seconds(issued.unix_seconds().saturating_add(life_secs));
        let (chain, authority) = (format!("{}{}", certificate.pem(), self.pem), self.fingerprint.clone());
        Ok(SignedCertificate { chain, serial, expires, authority })
    }
}

/// Creates a CA with a new key.
pub(super) fn make(source: &dyn Source) -> Result<StoredCa, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // The CAs of two clusters have different names, so that a client that trusts both selects the right one.
    params.distinguished_name = common_name(&format!("Tidegate authority {}", hex(&source.secret()[..4])));
    params.serial_number = Some(serial(source));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, source.now(), CA_LIFE_SECS);
    let certificate = params.self_signed(&key)?;
    Ok(StoredCa { key: Secret::new(key.serialize_pem()), certificate: certificate.pem() })
}

/// Returns the parameters that all certificates signed by the CA have in common.
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
    // RFC 5280, appendix A.1: a common name has at most 64 characters; node names may be longer.
    names.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    names
}

fn serial(source: &dyn Source) -> SerialNumber {
    let mut bytes = source.secret();
    // Positive and of fixed length (RFC 5280, 4.1.2.2).
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes[..SERIAL_BYTES])
}

fn san(name: &ServerName<'_>) -> Option<SanType> {
    match name {
        ServerName::DnsName(name) => Some(SanType::DnsName(name.as_ref().to_owned().try_into().ok()?)),
        ServerName::IpAddress(address) => Some(SanType::IpAddress(IpAddr::from(*address))),
        // The enum is non-exhaustive; certificates cannot hold other names.
        _ => None,
    }
}

/// Returns the DNS names, some with `*` as the first label, and the addresses in a certificate. Others are left out.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<SanType> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return Vec::new() };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(SanType::DnsName((*name).to_owned().try_into().ok()?)),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            Some(SanType::IpAddress(v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?))
        }
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::URI(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    };
    names.value.general_names.iter().filter_map(name).collect()
}

fn set_validity(params: &mut CertificateParams, issued: Timestamp, life_secs: i64) {
    let instant = |secs: i64| {
        let unix = u64::try_from(issued.unix_seconds().saturating_add(secs)).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(unix.min(UNIX_SECONDS_MAX))
    };
    (params.not_before, params.not_after) = (instant(-CLOCK_SKEW_SECS), instant(life_secs));
}

/// Encodes a certificate as PEM.
pub(super) fn to_pem(certificate: &CertificateDer<'_>) -> String {
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
