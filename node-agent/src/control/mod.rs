//! Control servers of this agent and their shared HTTP client.
//!
//! Each request must fetch the client anew, because the client is replaced when the certificate of this node
//! is renewed. Open streams keep their connections.
//!
//! ```text
//!            ┌─ one of them: state and queries ─▶ feed                  (selected by control/choice.rs)
//! servers ───┼─ the others: queries only ───────▶ feed/questions.rs
//!            └─ all of them ◀─────────── reports, and the replies to their queries
//! ```

pub mod board;
pub mod choice;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::client::socket;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};
use tls_trust::Trust;
use tokio::sync::{Notify, watch};

use self::board::Board;

/// Timeout for connecting to the control server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Index of a control server in [`Control::urls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(usize);

/// Control servers of this agent, with the HTTP client and the observed state of the servers. All parts of
/// the agent share this object.
#[derive(Debug)]
pub struct Control {
    /// URLs of the servers, at least one; or the URL of one socket ([`socket`]).
    pub urls: Vec<Url>,
    /// Client for all servers; replaced when the certificate of this node is renewed.
    pub client: ArcSwap<Client>,
    /// Socket that is used instead of `client` while it exists, with its client.
    preferred: Option<(PathBuf, Arc<Client>)>,
    /// Server that currently sends the state of this node; `None` while no such stream is open.
    pub serving: watch::Sender<Option<ServerId>>,
    /// Observed state of each server.
    pub board: Board,
    /// Signal that a server does not accept the certificate of this node.
    pub rejected: Notify,
}

impl Control {
    /// Creates the connections for the servers at these URLs, which share one client.
    ///
    /// # Panics
    ///
    /// Panics if there is no server.
    #[must_use]
    pub fn new(urls: Vec<Url>, client: Client) -> Self {
        assert!(!urls.is_empty(), "an agent has at least one control server");
        let board = Board::new(&urls);
        let (client, serving) = (ArcSwap::from_pointee(client), watch::Sender::new(None));
        Self { urls, client, preferred: None, serving, board, rejected: Notify::new() }
    }

    /// Prefers the socket at `path` over the URL of the server while the socket exists: the server may start, or be
    /// installed, after the agent.
    ///
    /// # Errors
    /// Returns an error if the client of the socket cannot be created.
    pub fn prefer_socket(&mut self, path: &Path) -> anyhow::Result<()> {
        self.preferred = Some((path.to_owned(), Arc::new(socket_client(path)?)));
        Ok(())
    }

    /// Returns the current client, to be used for one request only.
    #[must_use]
    pub fn client(&self) -> Arc<Client> {
        match &self.preferred {
            Some((path, client)) if path.exists() => Arc::clone(client),
            Some(_) | None => self.client.load_full(),
        }
    }

    /// Returns all servers in configuration order.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.urls.len()).map(ServerId)
    }

    /// Returns true if there is more than one server.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.urls.len() > 1
    }

    /// Returns the base URL of a server.
    ///
    /// # Panics
    /// Panics if the server belongs to another `Control`.
    #[must_use]
    pub fn base(&self, server: ServerId) -> &Url {
        self.urls.get(server.0).expect("a server ID is a valid index of its Control")
    }

    /// Returns the URL of a path at a server. The path must begin with `/`.
    #[must_use]
    pub fn url(&self, server: ServerId, path: &str) -> Url {
        let mut url = socket::request_base(self.base(server));
        url.set_path(path);
        url
    }
}

/// Creates a client that trusts these CAs for `https` URLs and has no client certificate. Proxy settings of
/// the environment are ignored.
///
/// # Errors
/// Returns an error if the TLS configuration or the client cannot be created.
pub fn client(roots: RootCertStore) -> anyhow::Result<Client> {
    let tls = Trust::Roots(roots).client().context("TLS 1.3 is not available")?;
    client_with(tls.with_no_client_auth())
}

/// Creates a client with this TLS configuration. Redirects are not followed.
///
/// # Errors
/// Returns an error if the client cannot be created.
pub fn client_with(tls: ClientConfig) -> anyhow::Result<Client> {
    let builder = ::client::http::builder(tls).connect_timeout(CONNECT_TIMEOUT);
    builder.build().context("cannot create the HTTP client")
}

/// Creates a client that connects to a Unix socket for any host in the URL.
///
/// # Errors
/// Returns an error if the client cannot be created.
pub fn socket_client(path: &Path) -> anyhow::Result<Client> {
    let tls = ::client::http::no_tls().context("TLS 1.3 is not available")?;
    let builder = ::client::http::builder(tls).connect_timeout(CONNECT_TIMEOUT).unix_socket(path.to_owned());
    builder.build().context("cannot create the HTTP client")
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixListener,
    };

    use super::*;

    /// Accepts one request at a socket and answers it. Returns the head of the request.
    async fn answer(path: &Path) -> String {
        let (mut stream, _) = UnixListener::bind(path).unwrap().accept().await.unwrap();
        let mut head = [0; 1024];
        let length = stream.read(&mut head).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell").await.unwrap();
        String::from_utf8_lossy(&head[..length]).into_owned()
    }

    async fn get(control: &Control) -> Result<String, reqwest::Error> {
        let server = control.servers().next().unwrap();
        control.client().get(control.url(server, "/healthz")).send().await?.text().await
    }

    #[tokio::test]
    async fn requests_to_a_unix_url_use_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let url = socket::parse(&format!("unix:{}", path.display())).unwrap().unwrap();
        let control = Control::new(vec![url], socket_client(&path).unwrap());
        let (head, body) = tokio::join!(answer(&path), get(&control));
        assert_eq!(body.unwrap(), "well");
        assert!(head.starts_with("GET /healthz HTTP/1.1\r\n"), "{head}");
    }

    #[tokio::test]
    async fn a_preferred_socket_is_used_while_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        // Nobody listens at the port of a listener that has been dropped.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let mut control = Control::new(vec![url], client(RootCertStore::empty()).unwrap());
        control.prefer_socket(&path).unwrap();
        get(&control).await.unwrap_err();
        let (head, body) = tokio::join!(answer(&path), get(&control));
        assert_eq!(body.unwrap(), "well");
        assert!(head.contains(&format!("\r\nhost: 127.0.0.1:{port}\r\n")), "{head}");
        std::fs::remove_file(&path).unwrap();
        get(&control).await.unwrap_err();
    }
}
