//! HTTP client for requests of the control server to other servers: webhooks and issuers of ID tokens.

use std::{error::Error as _, sync::Arc, time::Duration};

use reqwest::{Client, Response, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Returns the reason for which a request failed, with its cause and without the URL, which may contain a secret.
pub(crate) fn failure(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

/// Creates an HTTP client that verifies servers with `roots`, with a maximum duration of each request. It follows no redirects,
/// so that a server cannot direct requests to other machines, and uses no proxy.
pub(crate) fn client(roots: RootCertStore, timeout: Duration) -> Result<Client, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(timeout)
        .user_agent("tidegate")
        .build()
        .map_err(|error| error.to_string())
}

/// Reads the body of a response. Returns a message if it has more than `bytes_max` bytes or ends early.
pub(crate) async fn body(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(format!("more than {bytes_max} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Encodes fields in the format of forms and of queries (`application/x-www-form-urlencoded`).
pub(crate) fn encode_form(fields: &[(&str, &str)]) -> String {
    // The query of a URL has this format.
    let mut url = Url::parse("http://localhost").expect("this constant is a URL");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}
