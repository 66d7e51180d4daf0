//! HTTP towards the control servers: which of several, believed by what, as whom. Every answer is read up to a limit and
//! within a time. A server that fails is left for the next; whoever calls decides when to try again.

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

/// Bytes of one answer: a batch of objects with their statuses, with room to spare.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of one line of a watch: the largest object with room to spare.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Control servers that are tried: more than any store has members.
const APIS_MAX: usize = 8;
/// Bytes of a token with room to spare.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Longest wait for a connection; another server may be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the whole answer to a request that is no stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest silence of a watch, which speaks at least every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// How much of an answer that nobody expected is quoted.
const QUOTE_CHARS_MAX: usize = 200;

/// Why the way to control cannot be set up; what to do about it is in the text.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    message: String,
}

impl SetupError {
    /// An error with this text.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Where control is, and who asks.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The servers in the order in which they are tried.
    pub urls: Vec<Url>,
    /// The authorities to believe, as PEM; those of the system without.
    pub ca_file: Option<PathBuf>,
    /// The hash of a certificate of the servers' chain, instead.
    pub ca_hash: Option<Pin>,
    /// A file with a token, read for every request, so that it can be replaced.
    pub token_file: Option<PathBuf>,
    /// A token; the file wins.
    pub token: Option<String>,
    /// Who the history says wrote it.
    pub author: String,
}

/// A way to the control servers.
pub struct Control {
    http: reqwest::Client,
    urls: Vec<Url>,
    /// The server whose turn it is.
    turn: AtomicUsize,
    token: Option<HeaderValue>,
    token_file: Option<PathBuf>,
    author: HeaderValue,
}

/// Why a request was in vain.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No server answered, or it answered that it cannot at the moment: the same request can succeed later.
    #[error("{url}: {cause}")]
    Unavailable {
        /// Which server.
        url: String,
        /// In words.
        cause: String,
    },
    /// The server says no.
    #[error("{0}")]
    Refused(Problem),
}

/// A refusal (RFC 9457) in short.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The stable word.
    pub code: String,
    /// What is wrong.
    pub detail: String,
    /// What to do.
    pub hint: Option<String>,
    /// The fields that must change.
    pub errors: Vec<Fault>,
}

/// A field that must change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// Where; begins with `/items/N` in a request about many objects.
    pub pointer: String,
    /// The stable word.
    pub code: String,
    /// What it must be.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.errors.is_empty() {
            write!(f, "{}: {}", self.code, self.detail)?;
        } else {
            // Each field says more than that there are some.
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
    /// A read.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), query: Vec::new(), if_match: None, body: None }
    }

    /// A JSON body.
    #[must_use]
    pub fn post(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }

    /// The removal of an object in the state with this tag.
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
    /// A way to the servers of a place.
    ///
    /// # Errors
    /// Something about the place is wrong; the text names the flag.
    pub fn new(place: Place) -> Result<Self, SetupError> {
        let Place { urls, ca_file, ca_hash, token_file, token, author } = place;
        if urls.is_empty() || urls.len() > APIS_MAX {
            let found = urls.len();
            return Err(SetupError::new(format!("--api must name 1 to {APIS_MAX} servers, names {found}")));
        }
        if ca_file.is_some() && ca_hash.is_some() {
            return Err(SetupError::new("--ca-file and --ca-hash exclude each other: give one of both"));
        }
        let is_secret = token.is_some() || token_file.is_some();
        if let Some(url) = urls.iter().find(|url| is_secret && !is_private(url)) {
            let message = format!(
                "the token would be sent to {url} where others can read it: write https://, or leave it out"
            );
            return Err(SetupError::new(message));
        }
        let is_tls_used = urls.iter().any(|url| url.scheme() == "https");
        let tls = believed(ca_file.as_deref(), ca_hash, is_tls_used)?;
        // A control server is asked directly: proxy variables are meant for the way out, and a redirect would mean that
        // something else answers.
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

    /// Sends a request and reads the JSON of its answer. Every server is asked until one has an answer.
    ///
    /// # Errors
    /// The last server's, or a refusal.
    pub async fn send(&self, request: &Request) -> Result<Value, Failure> {
        let mut last = None;
        for _ in 0..self.urls.len() {
            match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(request)).await {
                Ok(Err(failure @ Failure::Unavailable { .. })) => last = Some(failure),
                Ok(outcome) => return outcome,
                Err(_) => last = Some(self.unavailable(format!("no answer within {REQUEST_TIMEOUT:?}"))),
            }
            self.go_on();
        }
        Err(last.unwrap_or_else(|| self.unavailable("no server".to_owned())))
    }

    /// Opens a stream of JSON lines at the next server that has one.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn lines(&self, request: &Request) -> Result<Lines, Failure> {
        let mut last = None;
        for _ in 0..self.urls.len() {
            match tokio::time::timeout(SILENCE_MAX, self.start(request, "application/x-ndjson")).await {
                Ok(Ok(response)) => {
                    return Ok(Lines { url: self.url(), response, buffer: Vec::new(), searched: 0 });
                }
                Ok(Err(failure @ Failure::Unavailable { .. })) => last = Some(failure),
                Ok(Err(refused)) => return Err(refused),
                Err(_) => last = Some(self.unavailable(format!("no answer within {SILENCE_MAX:?}"))),
            }
            self.go_on();
        }
        Err(last.unwrap_or_else(|| self.unavailable("no server".to_owned())))
    }

    /// The URL of the server whose turn it is.
    #[must_use]
    pub fn url(&self) -> String {
        let at = self.turn.load(Ordering::Relaxed) % self.urls.len();
        self.urls.get(at).map(|url| url.as_str().trim_end_matches('/').to_owned()).unwrap_or_default()
    }

    /// Has the next server asked from now on.
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
        // 401 as well: a token may be about to be replaced. What is too early or too much is no judgement of the request.
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
                return Err(self.unavailable(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
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
        self.unavailable(format!("does not speak the control API: {} {text:?}", response.status()))
    }
}

/// A stream of JSON lines.
pub struct Lines {
    url: String,
    response: Response,
    buffer: Vec<u8>,
    /// How much of the buffer holds no end of a line.
    searched: usize,
}

impl Lines {
    /// The next line; `None` when the server ended the stream.
    ///
    /// # Errors
    /// Silence, a broken connection, or something that is no JSON line.
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
                Err(_) => return Err(self.broken(&format!("nothing was heard for {SILENCE_MAX:?}"))),
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

/// Reads a file that is small or not what it should be.
/// The TLS settings for whom the flags name: `https` URLs lead nowhere but to a server that is believed.
fn believed(ca_file: Option<&Path>, pin: Option<Pin>, is_used: bool) -> Result<ClientConfig, SetupError> {
    let trust = match (pin, ca_file) {
        (Some(pin), _) => Ok(Trust::Pin(pin)),
        (None, Some(path)) => Trust::file(path)
            .map_err(|error| SetupError::new(format!("--ca-file {}: {error}", path.display()))),
        (None, None) if is_used => Ok(Trust::system()),
        // Plain HTTP needs none, and reading those of the system takes longer than the request.
        (None, None) => Ok(Trust::Roots(RootCertStore::empty())),
    };
    let client =
        trust?.client().map_err(|error| SetupError::new(format!("TLS cannot be set up: {error}")))?;
    Ok(client.with_no_client_auth())
}

fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit { Err(format!("it is longer than {limit} bytes")) } else { Ok(bytes) }
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let text = text.trim();
    let wrong = || "holds no token: a token is one line of letters, digits and _".to_owned();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Whether nobody else reads what is sent there.
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
