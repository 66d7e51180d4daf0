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

use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};
use tls_trust::Trust;
use tokio::sync::watch;

use self::board::Board;

/// Timeout for connecting to the control server.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Index of a control server in [`Control::urls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(usize);

/// Control servers of this agent, with the HTTP client and the observed state of the servers. All parts of
/// the agent share this object.
#[derive(Debug)]
pub struct Control {
    /// Base URLs of the servers, at least one.
    pub urls: Vec<Url>,
    /// Client for all servers; replaced when the certificate of this node is renewed.
    pub client: ArcSwap<Client>,
    /// Server that currently sends the state of this node; `None` while no such stream is open.
    pub serving: watch::Sender<Option<ServerId>>,
    /// Observed state of each server.
    pub board: Board,
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
        Self { urls, client: ArcSwap::from_pointee(client), serving: watch::Sender::new(None), board }
    }

    /// Returns the current client, to be used for one request only.
    #[must_use]
    pub fn client(&self) -> Arc<Client> {
        self.client.load_full()
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
        let mut url = self.base(server).clone();
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
