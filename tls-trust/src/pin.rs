//! Certificate pins: SHA-256 hashes of certificates. A server logs the hash of its certificate after `pin=`, and
//! join tokens contain it.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

/// Prefix of a pin in text form, before the hexadecimal hash.
const PIN_PREFIX: &str = "sha256:";

/// SHA-256 hash of a certificate in DER form, which must be in the server's certificate chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl Pin {
    /// Parses the hash from 64 hexadecimal digits; returns `None` for any other text.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pin = text.strip_prefix(PIN_PREFIX).and_then(Self::from_hex);
        pin.ok_or_else(|| {
            format!("must be {PIN_PREFIX} followed by 64 hexadecimal digits, as in the server log")
        })
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(PIN_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Certificate verifier that accepts a server if the pinned certificate is its own certificate or that of its CA.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) pin: Pin,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = |certificate: &CertificateDer<'_>| Sha256::digest(certificate)[..] == self.pin.0;
        if is_pinned(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let authority = intermediates.iter().find(|certificate| is_pinned(certificate));
        let authority =
            authority.ok_or(Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_hashes_and_nothing_else() {
        let good = format!("sha256:{}", "aF".repeat(32));
        assert_eq!(good.parse(), Ok(Pin([0xaf; 32])));
        assert_eq!(Pin([0xaf; 32]).to_string(), good.to_lowercase());
        let bad = [
            String::new(),
            "aF".repeat(32),
            good.replace("aF", "+f"),
            format!("{good}00"),
            good.replace('a', "ä"),
        ];
        for bad in bad {
            assert!(bad.parse::<Pin>().is_err(), "{bad}");
        }
    }
}
