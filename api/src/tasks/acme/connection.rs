//! HTTP requests to ACME servers.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::Client;
use rustls::RootCertStore;

use crate::base::outgoing;

/// Maximum duration of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes. Certificates are the largest ones.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Connection to ACME servers.
#[derive(Debug, Clone)]
pub(super) struct AcmeConnection(Client);

impl AcmeConnection {
    /// Creates the connection, which verifies servers with `roots`. It sends no request yet.
    ///
    /// # Errors
    /// Returns the reason if the HTTP client cannot be created.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, String> {
        outgoing::client(roots, TIMEOUT).map(Self)
    }
}

impl HttpClient for AcmeConnection {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = client
                .request(parts.method, parts.uri.to_string())
                .headers(parts.headers)
                .body(body.to_bytes());
            let response =
                request.send().await.map_err(|error| Error::Other(outgoing::failure(error).into()))?;
            let mut head = http::Response::builder().status(response.status());
            if let Some(headers) = head.headers_mut() {
                headers.clone_from(response.headers());
            }
            let body =
                outgoing::body(response, BODY_BYTES_MAX).await.map_err(|error| Error::Other(error.into()))?;
            Ok(BytesResponse::from(head.body(Full::new(Bytes::from(body)))?))
        })
    }
}
