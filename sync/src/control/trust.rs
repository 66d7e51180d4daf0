//! Whom this process believes to be the control server: the authorities of a file, a pinned certificate, or those of the system.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use sha2::{Digest as _, Sha256};

use super::SetupError;

/// Bytes of a file of authorities: some hundred certificates.
const CA_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// What a pin begins with.
const PIN_PREFIX: &str = "sha256:";

/// The hash of a certificate that the server has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("must be {PIN_PREFIX} and 64 hexadecimal digits, as the log of the server says");
        let digits = text.strip_prefix(PIN_PREFIX).filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = Some(pair)
                .filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(wrong)?;
        }
        Ok(Self(hash))
    }
}

/// The TLS settings of the command: TLS 1.3, and `https` URLs lead nowhere but to a server that is believed.
pub(crate) fn tls(
    ca_file: Option<&Path>,
    pin: Option<Pin>,
    is_used: bool,
) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| SetupError::new(format!("TLS cannot be set up: {error}")))?;
    if let Some(pin) = pin {
        let verifier = Arc::new(Pinned { pin, provider });
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let roots = match ca_file {
        Some(path) => roots_of(path)?,
        None if is_used => {
            let mut roots = RootCertStore::empty();
            let _unusable = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
        // Plain HTTP needs none, and reading those of the system takes longer than the request.
        None => RootCertStore::empty(),
    };
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots_of(path: &Path) -> Result<RootCertStore, SetupError> {
    let unusable = |cause: String| SetupError::new(format!("--ca-file {}: {cause}", path.display()));
    let bytes = super::read_small(path, CA_FILE_BYTES_MAX).map_err(unusable)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable(
            "there is no certificate in it (PEM, `-----BEGIN CERTIFICATE-----`)".to_owned(),
        ));
    }
    Ok(roots)
}

/// Believes a server whose chain has the pinned certificate: it is the server's own, or the authority that vouches for it.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
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
