//! Verification of servers by authorities that the client names in its first message (RFC 8446, 4.2.4), so that a
//! server with several certificates selects one that the client can verify.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Maximum number of authorities that a client names. The first message of a client that trusts all authorities of an
/// operating system would have many kilobytes.
pub(crate) const AUTHORITIES_MAX: usize = 16;

/// Certificate verifier that verifies servers as usual, and names its authorities to them.
#[derive(Debug)]
pub(crate) struct Hinting {
    verifier: Arc<WebPkiServerVerifier>,
    authorities: Vec<DistinguishedName>,
}

impl Hinting {
    /// Creates a verifier that trusts these authorities.
    ///
    /// # Errors
    /// Returns an error if there is no authority.
    pub(crate) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let authorities = roots.subjects();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { verifier, authorities })
    }
}

impl ServerCertVerifier for Hinting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        Some(&self.authorities)
    }
}
