//! Client of several control servers that sends requests to another server after a failure.

use std::{
    fmt, io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base::one_line;
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{self, HeaderValue},
};
use serde_json::Value;

use crate::{
    connection::{Connection, SetupError, origin},
    error::{Error, root_cause},
    http,
    lines::Lines,
    problem::Problem,
    request::{Body, LATEST, MIN_POSITION, Request},
    socket,
    stream::Stream,
    token::TokenSource,
};

/// Maximum number of objects in a listing; a longer one is an error. The store is designed for fewer.
const LIST_OBJECTS_MAX: usize = 500_000;
/// Maximum number of times a listing restarts because its snapshot expired between two pages.
const LIST_RESTARTS_MAX: usize = 3;
/// Maximum number of characters that an error message quotes from an unexpected response.
const QUOTE_CHARS_MAX: usize = 160;
/// Request header with the author of a write.
const AUTHOR: &str = "x-tidegate-author";
/// Request header with the trace context (W3C Trace Context §3.2).
const TRACE_PARENT: &str = "traceparent";
/// Request header with the reason for a write.
const MESSAGE: &str = "x-change-message";
/// Response header with the revision created by a write.
const REVISION: &str = "x-revision";

/// Media type of JSON responses.
const JSON: &str = "application/json";
/// Media type of streams: one JSON object per line.
const NDJSON: &str = "application/x-ndjson";

/// Rules for sending a failed request again to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failover {
    /// Reads may be sent again if a server is unreachable, silent or not ready (503). Writes may only be sent
    /// again if the first server certainly did not receive them: a write whose response was lost may have
    /// been applied, and must not be applied twice. `If-Match` does not change that: after a successful first
    /// write the second server would report a conflict that the user did not cause. The timeout covers all
    /// servers: a read that other servers could answer gets an equal share of it.
    Safe,
    /// Every request may be sent again after any failure that is not a final rejection, because the program
    /// declares its writes to be repeatable. A rejected token (401) is not final, because it may be about to
    /// be rotated. The timeout applies to each server.
    Repeatable,
}

/// Maximum sizes of responses in bytes; larger ones are errors.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of a successful response. The default is the size of the largest page that a server sends,
    /// with a margin.
    pub response: usize,
    /// Maximum size of an error response. A rejected `apply` request lists every violation.
    pub rejection: usize,
    /// Maximum size of one line of a stream. The default is the size of the largest object, with a margin.
    pub line: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { response: 64 * 1024 * 1024, rejection: 4 * 1024 * 1024, line: 8 * 1024 * 1024 }
    }
}

/// Callback that is called before each request is sent. Its arguments are the request, its URL, and the
/// minimum position (epoch and revision) that the response must reflect.
pub type OnSend = Box<dyn Fn(&Request, &Url, Option<&str>) + Send + Sync>;

/// Options of a client that do not depend on the servers.
pub struct Options {
    /// Value of the `User-Agent` header.
    pub user_agent: &'static str,
    /// Author of writes, recorded in the history.
    pub author: Option<String>,
    /// Maximum time to establish a TCP and TLS connection.
    pub connect_timeout: Duration,
    /// Maximum duration of a request that is not a stream.
    pub timeout: Duration,
    /// Maximum time without data on a stream, including the time until its first byte.
    pub idle_timeout: Duration,
    /// Rules for sending a failed request again to another server.
    pub failover: Failover,
    /// Minimum position (epoch and revision) or minimum revision of the state that reads return; `None` accepts
    /// any state.
    pub min_position: Option<String>,
    /// True if reads must return a state that includes the client's own last write, on any server.
    pub reads_own_writes: bool,
    /// Size limits of successful responses, error responses and stream lines, in bytes.
    pub limits: Limits,
    /// Value of the header `traceparent` (W3C Trace Context) of each request; `None` sends none.
    pub trace_parent: Option<String>,
    /// Function that is called before each request is sent, if any.
    pub on_send: Option<OnSend>,
}

/// Client of the control servers. Requests go to the current server; if it fails, the next server of the list
/// becomes the current one.
pub struct Client {
    http: reqwest::Client,
    urls: Vec<Url>,
    /// Index in `urls` of the server that receives the next request.
    current: AtomicUsize,
    token: TokenSource,
    author: Option<HeaderValue>,
    min_position: Mutex<Option<String>>,
    options: Options,
}

/// Complete listing of objects, assembled from all of its pages.
#[derive(Debug)]
pub struct Listing {
    /// Last page of the listing, with `items` replaced by the items of all pages.
    pub envelope: Value,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client of the servers in `connection`.
    ///
    /// # Errors
    /// Returns an error if a connection setting or the author is invalid.
    pub fn new(connection: Connection, options: Options) -> Result<Self, SetupError> {
        connection.check()?;
        let builder = http::builder(connection.tls()?)
            .connect_timeout(options.connect_timeout)
            .user_agent(options.user_agent);
        let builder = match connection.urls.first().and_then(socket::path_of) {
            Some(path) => builder.unix_socket(path),
            None => builder,
        };
        let http = builder.build().map_err(|error| SetupError::Tls(root_cause(&error)))?;
        let author = options.author.as_ref().map(|author| HeaderValue::from_bytes(author.as_bytes()));
        let author = author.transpose().map_err(|_| SetupError::Author)?;
        let Connection { urls, token, ca_file: _, pin: _, identity: _ } = connection;
        let min_position = Mutex::new(options.min_position.clone());
        Ok(Self { http, urls, current: AtomicUsize::new(0), token, author, min_position, options })
    }

    /// Returns the URL of the current server, for use in messages.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(self.current())
    }

    /// Returns the number of configured control servers.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.urls.len()
    }

    /// Returns the URL of the server with index `number`, for use in messages; empty if there is no such server.
    #[must_use]
    pub fn url_of(&self, number: usize) -> String {
        self.urls.get(number).map(origin).unwrap_or_default()
    }

    /// Makes the next server in the list the current one.
    pub fn use_next(&self) {
        self.leave(self.current());
    }

    /// Makes the server after index `number` the current one, unless a concurrent request has already
    /// switched away from `number`.
    fn leave(&self, number: usize) {
        let next = (number + 1) % self.urls.len();
        let _already = self.current.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Sends a request and parses its JSON response, which is null without content (204). If a server fails, the request is sent to the next one,
    /// provided that the failover rules allow this.
    ///
    /// # Errors
    /// Returns the server's rejection of the request, or the failure of the last server that was tried.
    pub async fn send(&self, request: &Request) -> Result<Value, Error> {
        let begun = Instant::now();
        let share = self.share(self.options.timeout, request);
        for _ in 1..self.urls.len() {
            let number = self.current();
            match self.exchange(number, request, share).await {
                Err(error) if self.may_fail_over(request, &error) => self.leave(number),
                outcome => return outcome,
            }
        }
        // The last server gets the rest of the time.
        let rest = self.options.timeout.saturating_sub(begun.elapsed());
        self.exchange(self.current(), request, rest.max(share)).await
    }

    /// Sends a request to the server with index `number`, without trying another one.
    ///
    /// # Errors
    /// Returns the server's rejection, or the error of the connection.
    pub async fn send_to(&self, number: usize, request: &Request) -> Result<Value, Error> {
        self.exchange(number, request, self.share(self.options.timeout, request)).await
    }

    /// Returns the part of `timeout` for the attempt at one server. A read that may fail over gets an equal
    /// share for each server.
    fn share(&self, timeout: Duration, request: &Request) -> Duration {
        let servers = u32::try_from(self.urls.len()).unwrap_or(u32::MAX);
        match self.options.failover {
            Failover::Safe if request.is_read() => timeout / servers,
            Failover::Safe | Failover::Repeatable => timeout,
        }
    }

    fn may_fail_over(&self, request: &Request, error: &Error) -> bool {
        let is_safe = self.options.failover == Failover::Safe;
        match error {
            Error::Unreachable { is_unsent, .. } => !is_safe || request.is_read() || *is_unsent,
            Error::TimedOut { .. } => !is_safe || request.is_read(),
            // The server is starting, shutting down or without its store.
            Error::Rejected(problem) if is_safe => request.is_read() && problem.status == 503,
            Error::Rejected(problem) => problem.is_transient() || problem.status == 401,
            Error::Unexpected { .. } | Error::TooLarge { .. } => !is_safe,
            Error::Token(_) | Error::Output(_) => false,
        }
    }

    async fn exchange(&self, number: usize, request: &Request, limit: Duration) -> Result<Value, Error> {
        let exchange = async {
            let mut response = self.start(number, request, JSON).await?;
            let bytes = self.read(number, &mut response, self.options.limits.response).await?;
            if response.status() == StatusCode::NO_CONTENT {
                return Ok(Value::Null);
            }
            serde_json::from_slice(&bytes).map_err(|_| self.unexpected(number, &response, &bytes))
        };
        let exchange = tokio::time::timeout(limit, exchange).await;
        exchange.unwrap_or_else(|_elapsed| Err(self.timed_out(number, limit)))
    }

    /// Reads every page of a listing. `request` creates the request of each page, without the continue token.
    ///
    /// # Errors
    /// Returns the errors of [`Self::send`], and an error if the pages repeat or contain too many objects.
    pub async fn list(&self, request: impl Fn() -> Request) -> Result<Listing, Error> {
        let mut restarts = 0;
        loop {
            match self.pages(&request).await {
                Err(error) if error.code() == Some("PageExpired") && restarts < LIST_RESTARTS_MAX => {
                    restarts += 1;
                }
                listing => return listing,
            }
        }
    }

    async fn pages(&self, request: impl Fn() -> Request) -> Result<Listing, Error> {
        let (mut items, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut page = self.send(&request().query("continue", token.clone())).await?;
            let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) else {
                return Err(self.bad_page("a listing without `items`"));
            };
            items.extend(more);
            if items.len() > LIST_OBJECTS_MAX {
                return Err(self.bad_page(&format!("a listing of more than {LIST_OBJECTS_MAX} objects")));
            }
            let next = page.pointer("/metadata/continue").and_then(Value::as_str);
            let next = next.filter(|next| !next.is_empty()).map(str::to_owned);
            if next.is_none() {
                page["items"] = Value::Array(items);
                if let Some(metadata) = page.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("remainingItemCount");
                }
                return Ok(Listing { envelope: page });
            }
            // A repeated token would repeat the page forever.
            if token == next {
                return Err(self.bad_page("a listing whose pages repeat"));
            }
            token = next;
        }
    }

    /// Opens a stream of JSON lines on the first server that accepts it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::send`].
    pub async fn stream(&self, request: &Request) -> Result<Stream, Error> {
        let mut tried = 1;
        loop {
            let number = self.current();
            match self.open(number, request).await {
                Err(error) if tried < self.urls.len() && self.may_fail_over(request, &error) => {
                    tried += 1;
                    self.leave(number);
                }
                outcome => return outcome,
            }
        }
    }

    async fn open(&self, number: usize, request: &Request) -> Result<Stream, Error> {
        let limit = self.share(self.options.idle_timeout, request);
        let started = tokio::time::timeout(limit, self.start(number, request, NDJSON)).await;
        let response = started.unwrap_or_else(|_elapsed| Err(self.timed_out(number, limit)))?;
        let lines = Lines::new(response, self.options.limits.line, self.options.idle_timeout);
        Ok(Stream::new(self.url_of(number), lines))
    }

    /// Sends a request to the current server and passes the response body, of any size, to `keep` in chunks
    /// as they arrive. If no data arrives for the idle timeout, the download fails.
    ///
    /// # Errors
    /// Returns the server's rejection, the failure of the connection, or the error of `keep`. No other server
    /// is tried.
    pub async fn download(
        &self,
        request: &Request,
        mut keep: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Error> {
        let (number, limit) = (self.current(), self.options.idle_timeout);
        let silent = |_elapsed| self.timed_out(number, limit);
        let started = tokio::time::timeout(limit, self.start(number, request, NDJSON)).await;
        let mut response = started.map_err(silent)??;
        loop {
            let chunk = tokio::time::timeout(limit, response.chunk()).await.map_err(silent)?;
            match chunk.map_err(|error| self.transport(number, &error))? {
                Some(chunk) => keep(&chunk)?,
                None => return Ok(()),
            }
        }
    }

    /// Sends a request to the server with index `number` and reads the head of its response. `accept` is the
    /// requested media type. An error response is read completely and returned as an error.
    async fn start(&self, number: usize, request: &Request, accept: &str) -> Result<Response, Error> {
        let token = self.token.token()?;
        let mut url = socket::request_base(self.urls.get(number).unwrap_or(&self.urls[0]));
        url.set_path(&request.path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let min_position = if request.is_latest {
            Some(LATEST.to_owned())
        } else {
            self.lock_min_position().clone().filter(|_| request.is_read())
        };
        if let Some(on_send) = &self.options.on_send {
            on_send(request, &url, min_position.as_deref());
        }
        let mut builder = self.http.request(request.method.clone(), url).header(header::ACCEPT, accept);
        if let Some(token) = &token {
            builder = builder.header(header::AUTHORIZATION, token.header());
        }
        if let Some(tag) = &request.if_match {
            builder = builder.header(header::IF_MATCH, tag);
        }
        if let Some(author) = &request.author {
            builder = builder.header(AUTHOR, author.as_bytes());
        } else if let Some(author) = self.author.as_ref().filter(|_| request.method != Method::GET) {
            builder = builder.header(AUTHOR, author);
        }
        if let Some(min_position) = min_position {
            builder = builder.header(MIN_POSITION, min_position);
        }
        if let Some(parent) = &self.options.trace_parent {
            builder = builder.header(TRACE_PARENT, parent);
        }
        if let Some(message) = &request.message {
            builder = builder.header(MESSAGE, message.as_bytes());
        }
        if let Some(Body { media_type, bytes, label: _ }) = &request.body {
            builder = builder.header(header::CONTENT_TYPE, *media_type).body(bytes.clone());
        }
        let response = builder.send().await.map_err(|error| self.transport(number, &error))?;
        if !response.status().is_success() {
            return Err(self.rejection(number, response).await);
        }
        self.remember(request, &response);
        Ok(response)
    }

    /// If `reads_own_writes` is set, stores the revision of a write, so that later reads return a state that
    /// includes the write.
    fn remember(&self, request: &Request, response: &Response) {
        let revision = response.headers().get(REVISION).and_then(|revision| revision.to_str().ok());
        if let Some(revision) = revision.filter(|_| self.options.reads_own_writes && !request.is_read()) {
            *self.lock_min_position() = Some(revision.to_owned());
        }
    }

    /// Locks the minimum position, which the responses to later reads must reflect. A poisoned lock is
    /// ignored, because each change is a single assignment.
    fn lock_min_position(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.min_position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn rejection(&self, number: usize, mut response: Response) -> Error {
        let bytes = match self.read(number, &mut response, self.options.limits.rejection).await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        match Problem::parse(response.status().as_u16(), http::content_type(&response), &bytes) {
            Some(problem) => Error::Rejected(Box::new(problem)),
            None => self.unexpected(number, &response, &bytes),
        }
    }

    async fn read(&self, number: usize, response: &mut Response, limit: usize) -> Result<Vec<u8>, Error> {
        let read = http::read(response, limit).await.map_err(|error| self.transport(number, &error))?;
        read.ok_or_else(|| Error::TooLarge { url: self.url_of(number), limit })
    }

    fn transport(&self, number: usize, error: &reqwest::Error) -> Error {
        let is_unsent = http::is_definitely_unsent(error);
        // A connect timeout that is as long as the timeout is the latter; it also applies to one server only.
        let is_last = self.urls.len() == 1 && self.options.connect_timeout >= self.options.timeout;
        if error.is_timeout() && (!is_unsent || is_last) {
            return self.timed_out(number, self.options.timeout);
        }
        Error::Unreachable { url: self.url_of(number), cause: root_cause(error), is_unsent }
    }

    fn timed_out(&self, number: usize, after: Duration) -> Error {
        Error::TimedOut { url: self.url_of(number), after }
    }

    fn bad_page(&self, found: &str) -> Error {
        Error::Unexpected { url: self.url(), found: found.to_owned() }
    }

    fn unexpected(&self, number: usize, response: &Response, bytes: &[u8]) -> Error {
        Error::Unexpected { url: self.url_of(number), found: description(response, bytes) }
    }
}

/// Describes a response that does not come from the control API: status, content type and the start of the body.
pub(crate) fn description(response: &Response, bytes: &[u8]) -> String {
    let head = bytes.get(..bytes.len().min(QUOTE_CHARS_MAX * 4)).unwrap_or(bytes);
    let quote: String = one_line(&String::from_utf8_lossy(head)).chars().take(QUOTE_CHARS_MAX).collect();
    let quote = match quote.trim() {
        "" => "an empty body".to_owned(),
        quote => format!("`{quote}`"),
    };
    let kind = match http::content_type(response) {
        "" => "no content type".to_owned(),
        kind => one_line(kind),
    };
    format!("{}, {kind}, {quote}", response.status())
}
