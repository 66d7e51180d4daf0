//! TLS connections of probes, and results for handshake and certificate errors.

use std::sync::{Arc, OnceLock};

use model::kinds::health_check::TlsCheck;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, CryptoProvider},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::verdict::{Outcome, Verdict};

/// Application protocol that the client offers by ALPN (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Creates a TLS connector with the settings of a check.
///
/// # Errors
/// Returns a message if the CA certificate of the check is invalid.
pub(super) fn connector(check: Option<&TlsCheck>, protocol: Protocol) -> Result<TlsConnector, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no TLS: {error}"))?;
    let is_any_taken = check.is_some_and(|check| check.insecure_skip_verify);
    let mut config = if is_any_taken {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        builder.with_root_certificates(roots(check.and_then(|check| check.ca.as_deref()))?)
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    // Without session resumption every check verifies the certificate.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the trusted CAs: those of the check if it has any, otherwise those of the machine.
fn roots(ca: Option<&str>) -> Result<Arc<RootCertStore>, String> {
    let Some(ca) = ca else { return Ok(machine_roots()) };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("cannot parse the CA certificate: {error}"))?;
        store.add(certificate).map_err(|error| format!("the CA certificate is invalid: {error}"))?;
    }
    if store.is_empty() {
        return Err("the certificate authority holds no certificate".to_owned());
    }
    Ok(Arc::new(store))
}

/// Returns the trusted CAs of the machine. They are read once because reading takes milliseconds; later
/// changes require a restart of the agent.
fn machine_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut store = RootCertStore::empty();
        // Unreadable files are skipped: certificates of their CAs are then untrusted, and checks report this.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(store)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

/// Performs the TLS handshake with an endpoint.
///
/// # Errors
/// Returns the verdict if the handshake fails or the certificate is invalid.
pub(super) async fn handshake(
    connector: &TlsConnector,
    name: ServerName<'static>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Verdict> {
    let shown = name.to_str().into_owned();
    connector.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause) => Verdict::new(Outcome::Tls, words(cause, &shown)),
            None => Verdict::of_io(&error),
        }
    })
}

fn words(error: &rustls::Error, name: &str) -> String {
    let rustls::Error::InvalidCertificate(fault) = error else {
        return format!("the TLS handshake failed: {error}");
    };
    if matches!(fault, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) {
        format!("the certificate is not valid for {name}")
    } else if matches!(fault, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        "the certificate has expired".to_owned()
    } else if matches!(fault, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) {
        "the certificate is not valid yet".to_owned()
    } else if matches!(fault, CertificateError::UnknownIssuer | CertificateError::BadSignature) {
        // A bad signature means a CA with the same name as a trusted one.
        "the certificate is not signed by an authority that is trusted".to_owned()
    } else {
        format!("the certificate is not valid: {error}")
    }
}

/// Certificate verifier for checks that do not verify certificates: accepts any certificate, but the server
/// must prove possession of its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_cannot_be_read_is_said_and_trusts_nobody() {
        let connector = |ca: &str| {
            let check = TlsCheck { ca: Some(ca.to_owned()), ..TlsCheck::default() };
            connector(Some(&check), Protocol::Http1).map(|_| ())
        };
        assert!(connector("").is_err());
        assert!(connector("hello").is_err());
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        assert!(connector(&pem("!")).is_err());
        assert!(connector(&pem("AAAA")).is_err());
    }
}
