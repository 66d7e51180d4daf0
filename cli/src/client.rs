//! Client of the control API, which returns errors as [`Failure`] and can print requests as `curl` commands.

use std::time::Duration;

use ::client::{
    Body, Error, Failover, Limits, Listing, MIN_POSITION, Method, OnSend, Options, SERVERS_MAX, SetupError,
    Stream, TOKEN_REMEDY, TokenError, Url,
};
use model::{cluster::history::AUTHOR_LENGTH_MAX, primitives::quantity::Position};
use nix::unistd::{Uid, User};
use serde_json::Value;

pub(crate) use ::client::Request;

use crate::{
    args::Global,
    connection::Connection,
    error::{Failure, Problem},
    terminal::clean,
};

/// Connect timeout if several servers are configured; short, so that the next server is tried soon.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(3);

/// Parses the minimum position of reads: a position, or `latest` for every write accepted before the read.
pub(crate) fn parse_min_position(text: &str) -> Result<String, String> {
    if text == ::client::LATEST {
        return Ok(text.to_owned());
    }
    let position: Result<Position, String> = text.parse();
    position.map(|position| position.to_string()).map_err(|error| format!("{error}; or `latest`"))
}

/// Client of the control servers. Requests go to the current server; if it fails, the next server of the list
/// becomes the current one.
pub(crate) struct Client {
    servers: ::client::Client,
    timeout: Duration,
}

impl Client {
    /// Creates a client for the servers of `connection`. A failed write is sent to the next server only if
    /// the first one certainly did not receive it.
    pub(crate) fn new(
        connection: Connection,
        timeout: Duration,
        min_position: Option<String>,
        show_requests: bool,
    ) -> Result<Self, Failure> {
        Self::in_trace(connection, timeout, min_position, show_requests, None)
    }

    /// Creates the client of a command, with the options of its command line and its trace context.
    pub(crate) fn of_command(connection: Connection, global: &Global) -> Result<Self, Failure> {
        let min_position = global.min_position.clone();
        let trace = global.trace.map(|trace| trace.to_string());
        Self::in_trace(connection, global.timeout, min_position, global.show_request, trace)
    }

    fn in_trace(
        connection: Connection,
        timeout: Duration,
        min_position: Option<String>,
        show_requests: bool,
        trace_parent: Option<String>,
    ) -> Result<Self, Failure> {
        let Connection { control, curl, warnings: _ } = connection;
        let is_one = control.urls.len() == 1;
        let options = Options {
            user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")),
            author: author(),
            connect_timeout: if is_one { timeout } else { timeout.min(CONNECT_TIMEOUT_OF_SEVERAL) },
            timeout,
            idle_timeout: timeout,
            failover: Failover::Safe,
            min_position,
            reads_own_writes: true,
            limits: Limits::default(),
            trace_parent,
            on_send: show_requests.then(|| show(curl)),
        };
        Ok(Self { servers: ::client::Client::new(control, options)?, timeout })
    }

    /// Returns the maximum time to wait for a response.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the URL of the current server, for messages.
    pub(crate) fn url(&self) -> String {
        self.servers.url()
    }

    /// Returns the number of configured control servers.
    pub(crate) const fn count(&self) -> usize {
        self.servers.count()
    }

    /// Returns the URL of server `number` of the list, for messages.
    pub(crate) fn url_of(&self, number: usize) -> String {
        self.servers.url_of(number)
    }

    /// Sends a request and parses its JSON response; tries the next server if one fails.
    pub(crate) async fn send(&self, request: Request) -> Result<Value, Failure> {
        Ok(self.servers.send(&request).await?)
    }

    /// Sends a request only to server `number` of the list, without failover.
    pub(crate) async fn send_to(&self, number: usize, request: &Request) -> Result<Value, Failure> {
        Ok(self.servers.send_to(number, request).await?)
    }

    /// Reads every page of a listing. `request` creates the request for each page.
    pub(crate) async fn list(&self, request: impl Fn() -> Request) -> Result<Listing, Failure> {
        Ok(self.servers.list(request).await?)
    }

    /// Opens a stream of JSON lines on the first server that accepts it. When the stream ends, the next
    /// server becomes current.
    pub(crate) async fn stream(&self, request: Request) -> Result<Lines<'_>, Failure> {
        Ok(Lines { client: self, stream: self.servers.stream(&request).await? })
    }

    /// Passes the bytes of a response of any size to `keep` as they arrive.
    pub(crate) async fn download(
        &self,
        request: &Request,
        keep: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        Ok(self.servers.download(request, keep).await?)
    }
}

/// Reader of a response that is a stream of JSON lines.
pub(crate) struct Lines<'a> {
    client: &'a Client,
    stream: Stream,
}

impl Lines<'_> {
    /// Returns the next line as JSON, or `None` if the server closed the stream. Silence longer than the
    /// timeout is an error, because the server sends heartbeats.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        let next = self.stream.next().await;
        if matches!(next, Ok(None) | Err(Error::Unreachable { .. } | Error::TimedOut { .. })) {
            self.client.servers.use_next();
        }
        Ok(next?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Rejected(rejection) => {
                Self::Refused(Box::new(Problem { rejection: *rejection, items: Vec::new() }))
            }
            Error::Token(error) => error.into(),
            Error::Output(error) => Self::Output(error),
            error @ (Error::Unreachable { .. }
            | Error::TimedOut { .. }
            | Error::Unexpected { .. }
            | Error::TooLarge { .. }) => Self::Control(error),
        }
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::ServerCount(found) => {
                Self::usage(format!("--api lists {found} servers"), format!("use at most {SERVERS_MAX}"))
            }
            SetupError::SocketAmongServers => Self::usage(
                "--api lists a socket among other servers",
                "use either one socket or several servers",
            ),
            SetupError::TwoTrusts => {
                Self::usage("both a CA file and a pinned hash are given", "use only one of them")
            }
            SetupError::CaFile { path, cause } => Self::File { path, cause: cause.to_string() },
            SetupError::UnencryptedToken(url) => Self::usage(
                format!("refusing to send the token to {url} over an unencrypted connection"),
                "use https://, or omit the token",
            ),
            SetupError::Token(error) => error.into(),
            SetupError::Author | SetupError::Tls(_) => Self::Usage { message: error.to_string(), hint: None },
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Unreadable { path, cause } => Self::File { path, cause },
            TokenError::Invalid { place } => {
                Self::usage(format!("{place} contains no valid token"), TOKEN_REMEDY)
            }
        }
    }
}

/// Returns the local user as `user@host`, or only the part that is known; `None` if neither is. Requests name this
/// author.
pub(crate) fn author() -> Option<String> {
    let known = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let user = known("USER").or_else(|| known("LOGNAME")).or_else(user_of_process);
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

/// Returns the name of the process's user in the user database, or its number if the database has no entry.
fn user_of_process() -> Option<String> {
    let uid = Uid::effective();
    let entry = User::from_uid(uid).ok().flatten();
    Some(entry.map_or_else(|| format!("uid-{uid}"), |user| user.name))
}

/// Returns an observer that prints each request as a `curl` command to stderr. `connection` contains the `curl`
/// options for TLS and the token.
fn show(connection: Vec<String>) -> OnSend {
    Box::new(move |request, url, min_position| {
        let line = curl(request, url, min_position, &connection);
        // Ignored if stderr is closed.
        let _closed = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    })
}

/// Returns the `curl` command that is equivalent to a request. `connection` contains the options for TLS and
/// the token, which refer to secrets by file or variable.
fn curl(request: &Request, url: &Url, min_position: Option<&str>, connection: &[String]) -> String {
    let mut words = vec!["curl -sS".to_owned()];
    words.extend(connection.iter().cloned());
    let header = |text: String| format!("-H {}", shell_quoted(&text));
    words.extend(min_position.map(|position| header(format!("{MIN_POSITION}: {position}"))));
    if request.method != Method::GET {
        words.push(format!("-X {}", request.method));
    }
    words.extend(request.if_match.as_ref().map(|tag| header(format!("If-Match: {tag}"))));
    if let Some(Body { media_type, bytes, label }) = &request.body {
        let data = label.clone().unwrap_or_else(|| shell_quoted(&String::from_utf8_lossy(bytes)));
        words.push(format!("-H 'Content-Type: {media_type}' --data-binary {data}"));
    }
    words.extend(request.message.as_ref().map(|message| header(format!("X-Change-Message: {message}"))));
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

#[cfg(test)]
mod tests {
    use super::parse_min_position;

    #[test]
    fn a_minimum_position_is_a_position_or_the_latest() {
        assert_eq!(parse_min_position("latest").as_deref(), Ok("latest"));
        assert_eq!(parse_min_position("1771000000-42").as_deref(), Ok("1771000000-42"));
        for bad in ["", "Latest", "42", "1771000000-"] {
            assert!(parse_min_position(bad).is_err(), "{bad}");
        }
    }
}
