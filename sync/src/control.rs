//! HTTP client of the control servers with failover, TLS trust and authentication. Every response is limited
//! in size and time. A failing server is left for the next one; the caller decides when to retry.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use reqwest::{
    Method, Response, Url,
    header::{self, HeaderValue},
};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::Value;

pub use tls_trust::Pin;
use tls_trust::Trust;

/// Maximum size of a response in bytes: a batch of objects with their statuses, with a margin.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum length of a watch line in bytes; the largest object with a margin.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of control servers; more than any store has members.
const APIS_MAX: usize = 8;
/// Maximum size of a token in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Connect timeout; another server may be available.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of requests other than streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum silence of a watch; servers send a heartbeat at least every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// Maximum number of characters quoted from an unexpected response.
const QUOTE_CHARS_MAX: usize = 200;

/// Invalid connection settings; the message contains the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    message: String,
}

impl SetupError {
    /// Creates an error with a message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Connection settings.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Servers in the order in which they are tried.
    pub urls: Vec<Url>,
    /// PEM file with trusted CAs; the system's CAs if `None`.
    pub ca_file: Option<PathBuf>,
    /// Hash of a certificate in the servers' chain, as an alternative to `ca_file`.
    pub ca_hash: Option<Pin>,
    /// Token file, read for every request, so that the token can be rotated.
    pub token_file: Option<PathBuf>,
    /// Token; the file takes precedence.
    pub token: Option<String>,
    /// Author recorded in the history.
    pub author: String,
}

/// Connection to the control servers.
pub struct Control {
    http: reqwest::Client,
    urls: Vec<Url>,
    /// Index of the current server.
    turn: AtomicUsize,
    token: Option<HeaderValue>,
    token_file: Option<PathBuf>,
    author: HeaderValue,
}

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No server responded, or the response was a temporary failure: the same request can succeed later.
    #[error("{url}: {cause}")]
    Unavailable {
        /// URL of the server.
        url: String,
        /// Cause of the failure.
        cause: String,
    },
    /// The server rejected the request.
    #[error("{0}")]
    Refused(Problem),
}

/// Summary of a problem document (RFC 9457).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// Stable code.
    pub code: String,
    /// Description of the error.
    pub detail: String,
    /// Remedy.
    pub hint: Option<String>,
    /// Invalid fields.
    pub errors: Vec<Fault>,
}

/// An invalid field.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// JSON pointer; begins with `/items/N` in a request with many objects.
    pub pointer: String,
    /// Stable code.
    pub code: String,
    /// Required value.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.errors.is_empty() {
            write!(f, "{}: {}", self.code, self.detail)?;
        } else {
            // The field errors are more specific than the summary.
            let faults: Vec<String> = self.errors.iter().map(Fault::to_string).collect();
            write!(f, "{}: {}", self.code, faults.join("; "))?;
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let field = self.pointer.strip_prefix("/items/").and_then(|rest| rest.split_once('/'));
        write!(f, "{} {}", field.map_or("the object", |(_, field)| field), self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    if_match: Option<String>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// Creates a GET request.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), query: Vec::new(), if_match: None, body: None }
    }

    /// Creates a POST request with a JSON body.
    #[must_use]
    pub fn post(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }

    /// Creates a DELETE request for an object with the given entity tag.
    #[must_use]
    pub fn delete(path: impl Into<String>, tag: String) -> Self {
        Self { method: Method::DELETE, if_match: Some(tag), ..Self::get(path) }
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }
}

impl Control {
    /// Creates a client.
    ///
    /// # Errors
    /// Returns an error naming the flag if a setting is invalid.
    pub fn new(place: Place) -> Result<Self, SetupError> {
        let Place { urls, ca_file, ca_hash, token_file, token, author } = place;
        if urls.is_empty() || urls.len() > APIS_MAX {
            let found = urls.len();
            return Err(SetupError::new(format!("--api must list 1 to {APIS_MAX} servers, found {found}")));
        }
        if ca_file.is_some() && ca_hash.is_some() {
            return Err(SetupError::new(
                "--ca-file and --ca-hash are mutually exclusive: use only one of \
                                        them",
            ));
        }
        let is_secret = token.is_some() || token_file.is_some();
        if let Some(url) = urls.iter().find(|url| is_secret && !is_private(url)) {
            let message = format!(
                "refusing to send the token to {url} over an unencrypted connection: use https://, or \
                 omit the token"
            );
            return Err(SetupError::new(message));
        }
        let is_tls_used = urls.iter().any(|url| url.scheme() == "https");
        let tls = believed(ca_file.as_deref(), ca_hash, is_tls_used)?;
        // Control servers are contacted directly: proxy variables are meant for external hosts, and a
        // redirect would mean that something other than the control API responds.
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("tidegate-sync/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SetupError::new(innermost(&error)))?;
        let token = token
            .map(|text| bearer(&text).map_err(|cause| SetupError::new(format!("TIDEGATE_TOKEN {cause}"))));
        let author = HeaderValue::from_str(&author).map_err(|error| SetupError::new(error.to_string()))?;
        let control =
            Self { http, urls, turn: AtomicUsize::new(0), token: token.transpose()?, token_file, author };
        control.proof().map_err(SetupError::new)?;
        Ok(control)
    }

    /// Sends a request and parses its JSON response. Tries each server until one responds.
    ///
    /// # Errors
    /// Returns the rejection, or the failure of the last server.
    pub async fn send(&self, request: &Request) -> Result<Value, Failure> {
        let mut last = None;
        for _ in 0..self.urls.len() {
            match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(request)).await {
                Ok(Err(failure @ Failure::Unavailable { .. })) => last = Some(failure),
                Ok(outcome) => return outcome,
                Err(_) => last = Some(self.unavailable(format!("no response within {REQUEST_TIMEOUT:?}"))),
            }
            self.go_on();
        }
        Err(last.unwrap_or_else(|| self.unavailable("no server".to_owned())))
    }

    /// Opens a stream of JSON lines on the first server that accepts it.
    ///
    /// # Errors
    /// Same as [`Self::send`].
    pub async fn lines(&self, request: &Request) -> Result<Lines, Failure> {
        let mut last = None;
        for _ in 0..self.urls.len() {
            match tokio::time::timeout(SILENCE_MAX, self.start(request, "application/x-ndjson")).await {
                Ok(Ok(response)) => {
                    return Ok(Lines { url: self.url(), response, buffer: Vec::new(), searched: 0 });
                }
                Ok(Err(failure @ Failure::Unavailable { .. })) => last = Some(failure),
                Ok(Err(refused)) => return Err(refused),
                Err(_) => last = Some(self.unavailable(format!("no response within {SILENCE_MAX:?}"))),
            }
            self.go_on();
        }
        Err(last.unwrap_or_else(|| self.unavailable("no server".to_owned())))
    }

    /// Returns the URL of the current server.
    #[must_use]
    pub fn url(&self) -> String {
        let at = self.turn.load(Ordering::Relaxed) % self.urls.len();
        self.urls.get(at).map(|url| url.as_str().trim_end_matches('/').to_owned()).unwrap_or_default()
    }

    /// Makes the next server the current one.
    pub fn go_on(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    async fn exchange(&self, request: &Request) -> Result<Value, Failure> {
        let mut response = self.start(request, "application/json").await?;
        let bytes = self.read(&mut response).await?;
        serde_json::from_slice(&bytes).map_err(|_| self.foreign(&response, &bytes))
    }

    async fn start(&self, request: &Request, accept: &str) -> Result<Response, Failure> {
        let at = self.turn.load(Ordering::Relaxed) % self.urls.len();
        let mut url = self.urls.get(at).cloned().ok_or_else(|| self.unavailable("no server".to_owned()))?;
        url.set_path(&request.path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut builder = self.http.request(request.method.clone(), url).header(header::ACCEPT, accept);
        if let Some(token) = self.proof().map_err(|cause| self.unavailable(cause))? {
            builder = builder.header(header::AUTHORIZATION, token);
        }
        if request.method != Method::GET {
            builder = builder.header("x-tidegate-author", &self.author);
        }
        if let Some(tag) = &request.if_match {
            builder = builder.header(header::IF_MATCH, tag);
        }
        if let Some(body) = &request.body {
            builder = builder.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        let mut response = builder.send().await.map_err(|error| self.unavailable(innermost(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = self.read(&mut response).await?;
        let problem =
            serde_json::from_slice::<Problem>(&bytes).ok().filter(|problem| !problem.code.is_empty());
        // 401 counts as temporary, because a token may be about to be rotated; 408 and 429 are no verdict on
        // the request.
        let is_for_now = status.is_server_error() || matches!(status.as_u16(), 401 | 408 | 429);
        match problem {
            Some(problem) if is_for_now => Err(self.unavailable(problem.to_string())),
            Some(problem) => Err(Failure::Refused(Problem { status: status.as_u16(), ..problem })),
            None => Err(self.foreign(&response, &bytes)),
        }
    }

    async fn read(&self, response: &mut Response) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unavailable(innermost(&error)))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(self.unavailable(format!("a response of more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
        Ok(bytes)
    }

    fn proof(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let named = |cause: String| format!("--token-file {}: {cause}", path.display());
        let bytes = read_small(path, TOKEN_BYTES_MAX).map_err(named)?;
        bearer(&String::from_utf8_lossy(&bytes)).map(Some).map_err(named)
    }

    fn unavailable(&self, cause: String) -> Failure {
        Failure::Unavailable { url: self.url(), cause }
    }

    fn foreign(&self, response: &Response, bytes: &[u8]) -> Failure {
        let text: String = String::from_utf8_lossy(bytes).chars().take(QUOTE_CHARS_MAX).collect();
        self.unavailable(format!(
            "unexpected response, which may not be from a control server: {} {text:?}",
            response.status()
        ))
    }
}

/// Line reader of a stream.
pub struct Lines {
    url: String,
    response: Response,
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer already searched for a line end.
    searched: usize,
}

impl Lines {
    /// Returns the next line, or `None` if the server closed the stream.
    ///
    /// # Errors
    /// Returns an error on silence, a broken connection, or invalid JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.searched = 0;
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| self.broken(&error.to_string()));
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES_MAX {
                return Err(self.broken("a line is too long"));
            }
            match tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await {
                Err(_) => return Err(self.broken(&format!("no data for {SILENCE_MAX:?}"))),
                Ok(Err(error)) => return Err(self.broken(&innermost(&error))),
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
            }
        }
    }

    fn broken(&self, cause: &str) -> Failure {
        Failure::Unavailable { url: self.url.clone(), cause: cause.to_owned() }
    }
}

/// Builds the TLS settings: `https` URLs connect only to servers verified by the pin, the CA file or the
/// system's CAs.
fn believed(ca_file: Option<&Path>, pin: Option<Pin>, is_used: bool) -> Result<ClientConfig, SetupError> {
    let trust = match (pin, ca_file) {
        (Some(pin), _) => Ok(Trust::Pin(pin)),
        (None, Some(path)) => Trust::file(path)
            .map_err(|error| SetupError::new(format!("--ca-file {}: {error}", path.display()))),
        (None, None) if is_used => Ok(Trust::system()),
        // Plain HTTP needs no CAs, and loading those of the system takes longer than the request.
        (None, None) => Ok(Trust::Roots(RootCertStore::empty())),
    };
    let client = trust?.client().map_err(|error| SetupError::new(format!("cannot set up TLS: {error}")))?;
    Ok(client.with_no_client_auth())
}

fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit { Err(format!("the file is longer than {limit} bytes")) } else { Ok(bytes) }
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let text = text.trim();
    let wrong = || "contains no valid token: a token is a single line of letters, digits and _".to_owned();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns true if requests to `url` cannot be read on the network: HTTPS or loopback.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || is_loopback
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
