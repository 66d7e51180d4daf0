//! HTTP connections to control servers, for programs that choose the server of each request themselves.

mod web;

use std::sync::Arc;

use reqwest::{ClientBuilder, Response, header, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

pub use self::web::{WebClient, WebResponse};

/// Returns an HTTP client builder that ignores proxy variables, which are meant for external hosts, and follows no
/// redirects, which the control API never sends.
pub fn builder(tls: ClientConfig) -> ClientBuilder {
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
    builder.no_proxy().redirect(redirect::Policy::none())
}

/// Returns a TLS configuration that trusts no server. Clients of plain HTTP use it, because the HTTP library
/// requires a TLS configuration.
///
/// # Errors
/// Returns an error if TLS 1.3 is not available.
pub fn no_tls() -> Result<ClientConfig, rustls::Error> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Returns true if the request certainly did not arrive, because there was no connection.
#[must_use]
pub fn is_definitely_unsent(error: &reqwest::Error) -> bool {
    error.is_connect()
}

/// Reads the complete body of a response. Returns `None` if it is longer than `limit` bytes.
///
/// # Errors
/// Returns an error if the connection breaks.
pub async fn read(response: &mut Response, limit: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// Reads up to `limit` bytes of an error response as text, for logs. If reading fails, returns the text received
/// so far.
pub async fn read_start(mut response: Response, limit: usize) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > limit {
            body.truncate(limit);
            break;
        }
    }
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// Returns the `Content-Type` of a response, or an empty string if it has none.
#[must_use]
pub fn content_type(response: &Response) -> &str {
    response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
