//! HTTP client of the control API. Every response is limited in size and time and becomes data or a
//! [`Failure`] with a remedy.

use std::{
    cell::{Cell, RefCell},
    error::Error,
    time::{Duration, Instant},
};

use model::{
    cluster::history::AUTHOR_LENGTH_MAX, kinds::resource::ObjectKey, primitives::quantity::Position,
};
use reqwest::{Method, Response, Url, header};
use serde_json::Value;

use crate::{
    connection::{Connection, Token, origin},
    error::{Failure, Problem},
    lenient_json::clean,
    parse::Language,
};

/// Maximum size of a response in bytes; the server's largest page with a margin.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of an error response in bytes; a rejected apply lists every violation.
const REFUSAL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum length of a watch line in bytes; the largest object with a margin.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of objects in a listing; more than the store is designed for.
const LIST_OBJECTS_MAX: usize = 500_000;
/// Maximum number of times a listing restarts because its snapshot expired between two pages.
const LIST_RESTARTS_MAX: usize = 3;
/// Request header with the author of a write.
const AUTHOR: &str = "x-tidegate-author";
/// Request header with the reason for a write.
const MESSAGE: &str = "x-change-message";
/// Request header with the minimum position of the response.
const MIN_POSITION: &str = "x-tidegate-min-position";
/// Response header with the revision created by a write.
const REVISION: &str = "x-revision";
/// Maximum number of characters quoted from an unexpected response.
const QUOTE_CHARS_MAX: usize = 160;

/// Connect timeout if another server can be tried instead.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(3);

/// Connection to the control servers. A server is used until it fails, then the next one is.
pub(crate) struct Client {
    http: reqwest::Client,
    /// Server URLs, at least one.
    urls: Vec<Url>,
    /// Index of the current server.
    at: Cell<usize>,
    token: Option<Token>,
    curl_trust: Option<String>,
    timeout: Duration,
    show_requests: bool,
    /// Author recorded in the history.
    author: Option<String>,
    /// Minimum state of reads on any server: a position, or the revision of the client's own last write.
    at_least: RefCell<Option<String>>,
}

/// A request to be sent.
pub(crate) struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    if_match: Option<String>,
    body: Option<Body>,
    message: Option<String>,
}

/// A request body, and its form as a `curl` argument.
struct Body {
    language: Language,
    bytes: Vec<u8>,
    curl_data: String,
}

impl Request {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, query: Vec::new(), if_match: None, message: None, body: None }
    }

    /// Creates a GET request.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into())
    }

    /// Creates a request that deletes an object.
    pub(crate) fn delete(key: &ObjectKey) -> Self {
        Self::new(Method::DELETE, key.path())
    }

    /// Creates a POST request without a body, for an action.
    pub(crate) fn act(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path.into())
    }

    /// Creates a POST request with a body; `curl_data` is the argument of `--data-binary`.
    pub(crate) fn post(path: &str, language: Language, bytes: Vec<u8>, curl_data: String) -> Self {
        let body = Some(Body { language, bytes, curl_data });
        Self { body, ..Self::new(Method::POST, path.to_owned()) }
    }

    /// Creates a POST request with a small JSON body.
    pub(crate) fn post_json(path: &str, body: &Value) -> Self {
        let text = body.to_string();
        let curl_data = shell_quoted(&text);
        Self::post(path, Language::Json, text.into_bytes(), curl_data)
    }

    /// Creates a PUT request that replaces the resource at `path`; `curl_data` is the argument of
    /// `--data-binary`.
    pub(crate) fn put(path: &str, language: Language, bytes: Vec<u8>, curl_data: String) -> Self {
        Self { method: Method::PUT, ..Self::post(path, language, bytes, curl_data) }
    }

    /// Creates a DELETE request for a resource that is not an object.
    pub(crate) fn remove(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path.into())
    }

    /// Creates a JSON merge patch request (RFC 7396).
    pub(crate) fn patch(path: &str, changes: &Value) -> Self {
        let text = changes.to_string();
        let curl_data = shell_quoted(&text);
        Self { method: Method::PATCH, ..Self::post(path, Language::Json, text.into_bytes(), curl_data) }
    }

    /// Makes the request conditional on the entity tag of the object.
    pub(crate) fn if_match(self, tag: String) -> Self {
        Self { if_match: Some(tag), ..self }
    }

    /// Request header with the reason for a write.
    pub(crate) fn because(mut self, message: Option<&String>) -> Self {
        self.message = message.cloned();
        self
    }

    /// Returns true if the request changes nothing: a GET or a dry run.
    fn is_read(&self) -> bool {
        let is_dry = self.query.iter().any(|(key, value)| *key == "dryRun" && value == "true");
        self.method == Method::GET || is_dry
    }

    /// Adds a query parameter if there is a value.
    pub(crate) fn query(mut self, key: &'static str, value: Option<impl Into<String>>) -> Self {
        self.query.extend(value.map(|value| (key, value.into())));
        self
    }
}

impl Client {
    /// Creates a client for the servers of `connection`.
    pub(crate) fn new(
        connection: Connection,
        timeout: Duration,
        min_position: Option<Position>,
        show_requests: bool,
    ) -> Result<Self, Failure> {
        let Connection { urls, tls, token, curl_trust, warnings: _ } = connection;
        let connect_timeout = if urls.len() > 1 { timeout.min(CONNECT_TIMEOUT_OF_SEVERAL) } else { timeout };
        // Control servers are contacted directly: proxy variables are meant for external hosts, and a
        // redirect would mean that something other than the control API responds.
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(connect_timeout)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = http.map_err(|error| Failure::Usage { message: innermost(&error), hint: None })?;
        let at_least = RefCell::new(min_position.map(|position| position.to_string()));
        let (at, author) = (Cell::new(0), author());
        Ok(Self { http, urls, at, token, curl_trust, timeout, show_requests, author, at_least })
    }

    /// Returns the URL of the current server, for messages.
    pub(crate) fn url(&self) -> String {
        self.url_of(self.at.get())
    }

    /// Returns the number of servers.
    pub(crate) fn count(&self) -> usize {
        self.urls.len()
    }

    /// Returns the URL of a server, for messages.
    pub(crate) fn url_of(&self, number: usize) -> String {
        self.urls.get(number).map(origin).unwrap_or_default()
    }

    /// Makes the next server the current one.
    fn go_on(&self) {
        self.at.set((self.at.get() + 1) % self.urls.len());
    }

    /// Sends a request and parses its JSON response. If a server fails, tries the next one as far as
    /// [`may_go_elsewhere`] allows.
    pub(crate) async fn send(&self, request: Request) -> Result<Value, Failure> {
        let (is_read, begun) = (request.is_read(), Instant::now());
        for _ in 1..self.urls.len() {
            let limit = self.share(is_read);
            match self.exchange(&request, limit).await {
                Err(failure) if may_go_elsewhere(is_read, &failure) => self.go_on(),
                outcome => return outcome,
            }
        }
        let rest = self.timeout.saturating_sub(begun.elapsed());
        self.exchange(&request, rest.max(self.share(is_read))).await
    }

    /// Sends a request to one server without failover.
    pub(crate) async fn send_to(&self, number: usize, request: &Request) -> Result<Value, Failure> {
        let before = self.at.replace(number);
        let outcome = self.exchange(request, self.share(true)).await;
        self.at.set(before);
        outcome
    }

    /// Returns the time limit for one server: a read that other servers could answer gets an equal share of
    /// the timeout.
    fn share(&self, is_read: bool) -> Duration {
        let servers = u32::try_from(self.urls.len()).unwrap_or(u32::MAX);
        if is_read { self.timeout / servers } else { self.timeout }
    }

    async fn exchange(&self, request: &Request, limit: Duration) -> Result<Value, Failure> {
        let exchange = async {
            let mut response = self.start(request, "application/json").await?;
            let bytes = self.read(&mut response, ANSWER_BYTES_MAX).await?;
            let bytes =
                bytes.ok_or_else(|| Failure::AnswerTooLarge { url: self.url(), limit: ANSWER_BYTES_MAX })?;
            serde_json::from_slice(&bytes).map_err(|_| self.foreign(&response, &bytes))
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| Err(self.timed_out(limit)))
    }

    /// Reads every page of a listing; `request` creates the request of a page.
    pub(crate) async fn list(&self, request: impl Fn() -> Request) -> Result<Listing, Failure> {
        let mut restarts = 0;
        'listing: loop {
            let (mut items, mut token) = (Vec::new(), None::<String>);
            loop {
                let page = self.send(request().query("continue", token.clone())).await;
                let mut page = match page {
                    Err(failure)
                        if failure.problem_code() == Some("PageExpired") && restarts < LIST_RESTARTS_MAX =>
                    {
                        restarts += 1;
                        continue 'listing;
                    }
                    page => page?,
                };
                let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) else {
                    return Err(self.bad_answer("a listing without `items`"));
                };
                items.extend(more);
                if items.len() > LIST_OBJECTS_MAX {
                    return Err(
                        self.bad_answer(&format!("a listing of more than {LIST_OBJECTS_MAX} objects"))
                    );
                }
                let next = page
                    .pointer("/metadata/continue")
                    .and_then(Value::as_str)
                    .filter(|next| !next.is_empty());
                match next.map(str::to_owned) {
                    // A repeated token would repeat the page forever.
                    Some(next) if token.as_ref() == Some(&next) => {
                        return Err(self.bad_answer("a listing whose pages repeat"));
                    }
                    Some(next) => token = Some(next),
                    None => {
                        page["items"] = Value::Array(items);
                        if let Some(metadata) = page.get_mut("metadata").and_then(Value::as_object_mut) {
                            metadata.remove("remainingItemCount");
                        }
                        return Ok(Listing { envelope: page });
                    }
                }
            }
        }
    }

    /// Opens a stream of JSON lines on the first server that accepts it. When the stream ends, the next
    /// server becomes current.
    pub(crate) async fn stream(&self, request: Request) -> Result<Lines<'_>, Failure> {
        let (mut tried, limit) = (1, self.share(true));
        let response = loop {
            let start = self.start(&request, "application/x-ndjson");
            let started = tokio::time::timeout(limit, start).await;
            match started.unwrap_or_else(|_| Err(self.timed_out(limit))) {
                Err(failure) if tried < self.urls.len() && may_go_elsewhere(true, &failure) => {
                    tried += 1;
                    self.go_on();
                }
                outcome => break outcome?,
            }
        };
        Ok(Lines { client: self, response, buffer: Vec::new(), searched: 0 })
    }

    /// Passes the bytes of a response of any size to `keep` as they arrive. Silence longer than the client's
    /// timeout is an error.
    pub(crate) async fn download(
        &self,
        request: &Request,
        mut keep: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let start = self.start(request, "application/x-ndjson");
        let started = tokio::time::timeout(self.timeout, start).await;
        let mut response = started.unwrap_or_else(|_| Err(self.timed_out(self.timeout)))?;
        loop {
            let chunk = tokio::time::timeout(self.timeout, response.chunk()).await;
            let chunk = chunk.map_err(|_| self.timed_out(self.timeout))?;
            match chunk.map_err(|error| self.transport(&error))? {
                Some(chunk) => keep(&chunk)?,
                None => return Ok(()),
            }
        }
    }

    /// Sends a request and reads the head of its response; an error response is read completely.
    async fn start(&self, request: &Request, accept: &str) -> Result<Response, Failure> {
        let mut url = self.urls.get(self.at.get()).expect("one of the servers has its turn").clone();
        url.set_path(&request.path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        if self.show_requests {
            let _nobody_listens =
                std::io::Write::write_all(&mut std::io::stderr(), self.curl(request, &url).as_bytes());
        }
        let is_write = request.method != Method::GET;
        let mut builder = self.http.request(request.method.clone(), url).header(header::ACCEPT, accept);
        if let Some(token) = &self.token {
            builder = builder.header(header::AUTHORIZATION, &token.header);
        }
        if let Some(tag) = &request.if_match {
            builder = builder.header(header::IF_MATCH, tag);
        }
        if let Some(author) = self.author.as_ref().filter(|_| is_write) {
            builder = builder.header(AUTHOR, author.as_bytes());
        }
        let at_least = self.at_least.borrow().clone().filter(|_| request.is_read());
        if let Some(at_least) = at_least {
            builder = builder.header(MIN_POSITION, at_least);
        }
        if let Some(message) = &request.message {
            builder = builder.header(MESSAGE, message.as_bytes());
        }
        if let Some(body) = &request.body {
            builder =
                builder.header(header::CONTENT_TYPE, body.language.media_type()).body(body.bytes.clone());
        }
        let mut response = builder.send().await.map_err(|error| self.transport(&error))?;
        if response.status().is_success() {
            if let Some(revision) = response.headers().get(REVISION).filter(|_| !request.is_read()) {
                let revision = revision.to_str().ok().map(str::to_owned);
                self.at_least.replace(revision.or_else(|| self.at_least.take()));
            }
            return Ok(response);
        }
        let bytes = self.read(&mut response, REFUSAL_BYTES_MAX).await?;
        let bytes =
            bytes.ok_or_else(|| Failure::AnswerTooLarge { url: self.url(), limit: REFUSAL_BYTES_MAX })?;
        let is_problem = content_type(&response).starts_with("application/problem+json");
        match serde_json::from_slice(&bytes) {
            Ok(document @ Value::Object(_)) if is_problem => {
                let status = response.status().as_u16();
                Err(Failure::Refused(Box::new(Problem { status, document, items: Vec::new() })))
            }
            Ok(_) | Err(_) => Err(self.foreign(&response, &bytes)),
        }
    }

    /// Reads the body of a response. Returns `None` if it exceeds `limit` bytes.
    async fn read(&self, response: &mut Response, limit: usize) -> Result<Option<Vec<u8>>, Failure> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport(&error))? {
            if bytes.len() + chunk.len() > limit {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    fn transport(&self, error: &reqwest::Error) -> Failure {
        // Without a connection the request was not sent.
        let is_unsent = error.is_connect();
        if error.is_timeout() && (!is_unsent || self.urls.len() == 1) {
            return self.timed_out(self.timeout);
        }
        Failure::Unreachable { url: self.url(), cause: innermost(error), is_unsent }
    }

    fn timed_out(&self, after: Duration) -> Failure {
        Failure::TimedOut { url: self.url(), after }
    }

    /// Returns an equivalent `curl` command. Secrets are referenced by file or variable.
    fn curl(&self, request: &Request, url: &Url) -> String {
        let token = self.token.as_ref().map(|token| token.curl.as_str());
        let at_least = self.at_least.borrow().clone().filter(|_| request.is_read());
        let at_least =
            at_least.map(|at_least| format!("-H {}", shell_quoted(&format!("{MIN_POSITION}: {at_least}"))));
        let words = [self.curl_trust.as_deref(), token, at_least.as_deref()];
        curl(request, url, &words.into_iter().flatten().collect::<Vec<_>>())
    }

    fn bad_answer(&self, what: &str) -> Failure {
        Failure::BadAnswer { url: self.url(), what: what.to_owned() }
    }

    fn foreign(&self, response: &Response, bytes: &[u8]) -> Failure {
        let head = bytes.get(..bytes.len().min(QUOTE_CHARS_MAX * 4)).unwrap_or(bytes);
        let quote: String = clean(&String::from_utf8_lossy(head)).chars().take(QUOTE_CHARS_MAX).collect();
        let kind = Some(content_type(response)).filter(|kind| !kind.is_empty()).unwrap_or("no content type");
        let quote =
            if quote.trim().is_empty() { "an empty body".to_owned() } else { format!("`{}`", quote.trim()) };
        self.bad_answer(&format!("{}, {}, {quote}", response.status(), clean(kind)))
    }
}

/// Returns true if the request may be retried on another server. Reads always may. Writes may only if the
/// first server cannot have received them: a write whose response was lost may have been applied, and must
/// not be applied twice. `If-Match` does not change that: after a successful first write the second server
/// would report a conflict that the user did not cause.
fn may_go_elsewhere(is_read: bool, failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { is_unsent, .. } => is_read || *is_unsent,
        Failure::TimedOut { .. } => is_read,
        // The server is starting, shutting down or without its store.
        Failure::Refused(problem) => is_read && problem.status == 503,
        Failure::Usage { .. }
        | Failure::BadAnswer { .. }
        | Failure::AnswerTooLarge { .. }
        | Failure::File { .. }
        | Failure::Some { .. }
        | Failure::NotReached { .. }
        | Failure::StillOpen { .. }
        | Failure::Output(_) => false,
    }
}

/// A complete listing.
pub(crate) struct Listing {
    /// Envelope of the last page with the items of all pages.
    pub(crate) envelope: Value,
}

/// Line reader of a stream.
pub(crate) struct Lines<'a> {
    client: &'a Client,
    response: Response,
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer already searched for a line end.
    searched: usize,
}

impl Lines<'_> {
    /// Returns the next line as JSON, or `None` if the server closed the stream. Silence longer than the
    /// client's timeout is an error, because the server sends heartbeats.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                self.searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let parsed = serde_json::from_slice(&line);
                return parsed.map(Some).map_err(|_| self.client.foreign(&self.response, &line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(Failure::AnswerTooLarge { url: self.client.url(), limit: LINE_BYTES_MAX });
            }
            let chunk = tokio::time::timeout(self.client.timeout, self.response.chunk()).await;
            let chunk = match chunk {
                Ok(chunk) => chunk.map_err(|error| self.client.transport(&error)),
                Err(_elapsed) => Err(self.client.timed_out(self.client.timeout)),
            };
            match chunk {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                end => {
                    self.client.go_on();
                    return end.map(|_| None);
                }
            }
        }
    }
}

/// Returns the local user as `user@host`, as far as either is known.
fn author() -> Option<String> {
    let known = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let user = known("USER").or_else(|| known("LOGNAME"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let author = match (user, host) {
        (Some(user), Some(host)) => format!("{user}@{host}"),
        (Some(one), None) => one,
        (None, Some(host)) => format!("@{host}"),
        (None, None) => return None,
    };
    Some(clean(&author).trim().chars().take(AUTHOR_LENGTH_MAX).collect())
}

fn content_type(response: &Response) -> &str {
    response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the root cause, the last of the error chain and usually the most specific.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Returns an equivalent `curl` command.
fn curl(request: &Request, url: &Url, connection: &[&str]) -> String {
    let mut words = vec!["curl -sS".to_owned()];
    words.extend(connection.iter().map(ToString::to_string));
    if request.method != Method::GET {
        words.push(format!("-X {}", request.method));
    }
    if let Some(tag) = &request.if_match {
        words.push(format!("-H {}", shell_quoted(&format!("If-Match: {tag}"))));
    }
    if let Some(body) = &request.body {
        words.push(format!(
            "-H 'Content-Type: {}' --data-binary {}",
            body.language.media_type(),
            body.curl_data
        ));
    }
    if let Some(message) = &request.message {
        words.push(format!("-H {}", shell_quoted(&format!("X-Change-Message: {message}"))));
    }
    if request.path == "/v1/watch" {
        words.push("-N".to_owned());
    }
    words.push(shell_quoted(url.as_str()));
    words.join(" ") + "\n"
}

/// Quotes a word for a shell.
pub(crate) fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
