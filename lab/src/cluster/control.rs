//! HTTP client of the control API that connects from inside a network namespace.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::host::netns::Namespace;

/// Timeout of a request, long enough for a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP client of one control server. Connects from inside a network namespace.
#[derive(Debug, Clone)]
pub struct Http {
    namespace: Namespace,
    base: String,
}

/// An HTTP response with any status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code of the response.
    pub status: u16,
    /// `ETag` header, if present.
    pub etag: Option<String>,
    /// Revision of the write, if the request was a write.
    pub revision: Option<u64>,
    /// Body of the response as text.
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON, or `null` if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// Returns the response if its status is a success (2xx).
    ///
    /// # Errors
    /// Returns the status and the body for any other status.
    pub fn success(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            Ok(self)
        } else {
            bail!("answered {}: {}", self.status, self.text)
        }
    }

    /// Returns the JSON body of the response if its status is `status`.
    ///
    /// # Errors
    /// Returns the status and the body if the status is a different one.
    pub fn expect(self, status: u16) -> Result<Value> {
        if self.status == status {
            Ok(self.json())
        } else {
            bail!("expected {status}, got {}: {}", self.status, self.text)
        }
    }
}

impl Http {
    /// Creates a client in `namespace` for the server at `address`.
    #[must_use]
    pub fn new(namespace: &Namespace, address: SocketAddr) -> Self {
        Self { namespace: namespace.clone(), base: format!("http://{address}") }
    }

    /// Returns the URL of the server as seen from the namespace.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached. An error status is not an error here.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], String::new())
    }

    /// Sends a GET request and returns the JSON body.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or returns an error status.
    pub fn get_json(&self, path: &str) -> Result<Value> {
        Ok(self.get(path)?.success().with_context(|| format!("GET {path}"))?.json())
    }

    /// Sends a request with a JSON body.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached. An error status is not an error here.
    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        self.send(method, path, &[("content-type", "application/json")], body.to_string())
    }

    /// Sends a request with the given method, path, headers and body.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached. An error status is not an error here.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: String) -> Result<Answer> {
        let url = format!("{}{path}", self.base);
        self.namespace.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(request(method, &url, headers, body)).with_context(|| format!("{method} {url}"))
        })
    }
}

/// Returns a builder of HTTP clients that use no TLS and no proxy.
pub(crate) fn http_builder() -> Result<reqwest::ClientBuilder> {
    Ok(client::http::builder(client::http::no_tls()?))
}

async fn request(method: &str, url: &str, headers: &[(&str, &str)], body: String) -> Result<Answer> {
    let client = http_builder()?.timeout(REQUEST_TIMEOUT).build()?;
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

/// Returns the unsigned number at a JSON pointer (RFC 6901) in a document.
///
/// # Errors
/// Returns an error with the whole document if the value is missing or not an unsigned number.
pub fn number(document: &Value, pointer: &str) -> Result<u64> {
    document
        .pointer(pointer)
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("no number at {pointer} in {document:#}"))
}

/// Returns the string at a JSON pointer (RFC 6901) in a document.
///
/// # Errors
/// Returns an error with the whole document if the value is missing or not a string.
pub fn string(document: &Value, pointer: &str) -> Result<String> {
    let text = document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| anyhow!("no string at {pointer} in {document:#}"))
}
