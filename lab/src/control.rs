//! Speaks to the control API from inside its network, as any HTTP client would.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;

use crate::netns::Namespace;

/// How long one request may take on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP client in a namespace, for one server.
#[derive(Debug, Clone)]
pub struct Http {
    namespace: Namespace,
    base: String,
    token: Option<String>,
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `ETag`, if there is one.
    pub etag: Option<String>,
    /// The revision that the write made, if it was one.
    pub revision: Option<u64>,
    /// The body.
    pub text: String,
}

impl Answer {
    /// The body as JSON; `null` when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The answer, if the request succeeded.
    ///
    /// # Errors
    /// With status and body, when it did not.
    pub fn success(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            Ok(self)
        } else {
            bail!("answered {}: {}", self.status, self.text)
        }
    }

    /// The answer's JSON, if the status is the expected one.
    ///
    /// # Errors
    /// With status and body, when it is not.
    pub fn expect(self, status: u16) -> Result<Value> {
        if self.status == status {
            Ok(self.json())
        } else {
            bail!("expected {status}, got {}: {}", self.status, self.text)
        }
    }
}

impl Http {
    /// A client in `namespace` for the server at `address`.
    #[must_use]
    pub fn new(namespace: &Namespace, address: SocketAddr) -> Self {
        Self { namespace: namespace.clone(), base: format!("http://{address}"), token: None }
    }

    /// A client in `namespace` for the server at `address` that speaks TLS and asks for a token. Nobody else is in a network of
    /// the laboratory, so any certificate is as good as the right one.
    #[must_use]
    pub fn secured(namespace: &Namespace, address: SocketAddr, token: &str) -> Self {
        let token = Some(token.to_owned());
        Self { namespace: namespace.clone(), base: format!("https://{address}"), token }
    }

    /// The server's URL as seen from inside.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// GET.
    ///
    /// # Errors
    /// The server cannot be reached; an error status is an answer.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], String::new())
    }

    /// GET, as JSON.
    ///
    /// # Errors
    /// The server cannot be reached or answers with an error status.
    pub fn get_json(&self, path: &str) -> Result<Value> {
        Ok(self.get(path)?.success().with_context(|| format!("GET {path}"))?.json())
    }

    /// Sends a JSON body.
    ///
    /// # Errors
    /// The server cannot be reached; an error status is an answer.
    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        self.send(method, path, &[("content-type", "application/json")], body.to_string())
    }

    /// Sends anything.
    ///
    /// # Errors
    /// The server cannot be reached; an error status is an answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: String) -> Result<Answer> {
        let url = format!("{}{path}", self.base);
        self.namespace.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
            let own = authorization.as_ref().map(|value| ("authorization", value.as_str()));
            let headers: Vec<_> = headers.iter().copied().chain(own).collect();
            runtime.block_on(request(method, &url, &headers, body)).with_context(|| format!("{method} {url}"))
        })
    }
}

/// TLS with whoever answers; the library wants it also where plain HTTP is spoken.
pub(crate) fn any_tls() -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let tls = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let tls = tls.with_protocol_versions(&[&rustls::version::TLS13])?.dangerous();
    Ok(tls.with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth())
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn request(method: &str, url: &str, headers: &[(&str, &str)], body: String) -> Result<Answer> {
    let client = reqwest::Client::builder().tls_backend_preconfigured(any_tls()?);
    let client = client.timeout(REQUEST_TIMEOUT).no_proxy().build()?;
    let method = reqwest::Method::from_bytes(method.as_bytes())?;
    let mut request = client.request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.body(body).send().await?;
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (etag, revision) = (header("etag"), header("x-revision"));
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok(Answer { status, etag, revision: revision.and_then(|text| text.parse().ok()), text })
}

/// Reads an unsigned number at a JSON pointer.
///
/// # Errors
/// There is none; the document is in the error.
pub fn number(document: &Value, pointer: &str) -> Result<u64> {
    document
        .pointer(pointer)
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("no number at {pointer} in {document:#}"))
}

/// Reads a string at a JSON pointer.
///
/// # Errors
/// There is none; the document is in the error.
pub fn string(document: &Value, pointer: &str) -> Result<String> {
    let text = document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| anyhow!("no string at {pointer} in {document:#}"))
}
