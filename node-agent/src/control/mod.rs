//! The control servers that this agent knows, and the one client for all of them.
//!
//! Whoever sends anything to control takes the client anew for each request: it is replaced when this node's certificate is
//! renewed, and a stream that is open then goes on over the connection it has.
//!
//! ```text
//!            ┌─ one of them: the state, and questions ─▶ feed            (control/choice.rs says which)
//! servers ───┼─ the others: questions only ────────────▶ feed/questions.rs
//!            └─ all of them ◀──────────────── reports, and the answers to what each asked
//! ```

pub mod board;
pub mod choice;

use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::sync::watch;

use self::board::Board;

/// Time to make a connection to control.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// One of the control servers, by its place in [`Control::urls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(usize);

/// The ways to control.
#[derive(Debug)]
pub struct Control {
    /// The base URLs of the servers, at least one.
    pub urls: Vec<Url>,
    /// The client for all of them; whoever renews this node's certificate puts another one here.
    pub client: ArcSwap<Client>,
    /// The server that the state comes from; nothing while there is none.
    pub serving: watch::Sender<Option<ServerId>>,
    /// What is known of each server.
    pub board: Board,
}

impl Control {
    /// Ways to these servers.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn new(urls: Vec<Url>, client: Client) -> Self {
        assert!(!urls.is_empty(), "an agent follows some control server");
        let board = Board::new(&urls);
        Self { urls, client: ArcSwap::from_pointee(client), serving: watch::Sender::new(None), board }
    }

    /// The client of this moment; for one request, not to be kept.
    #[must_use]
    pub fn client(&self) -> Arc<Client> {
        self.client.load_full()
    }

    /// All servers, in the order in which they were given.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.urls.len()).map(ServerId)
    }

    /// Whether there is another server to turn to.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.urls.len() > 1
    }

    /// The base URL of a server.
    ///
    /// # Panics
    /// When it is a server of other ways than these.
    #[must_use]
    pub fn base(&self, server: ServerId) -> &Url {
        self.urls.get(server.0).expect("a server is one of those that it was taken from")
    }

    /// The URL of a path at a server; the path begins with `/`.
    #[must_use]
    pub fn url(&self, server: ServerId, path: &str) -> Url {
        let mut url = self.base(server).clone();
        url.set_path(path);
        url
    }
}

/// A client that trusts these authorities when it is led to `https` URLs, and shows no certificate. Proxies of the environment
/// are for the web, not for the way to control.
///
/// # Errors
/// When the system gives out no resources.
pub fn client(roots: RootCertStore) -> anyhow::Result<Client> {
    let provider = Arc::new(ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("TLS 1.3 cannot be spoken")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client_with(tls)
}

/// A client with all of its TLS settings in the hands of the caller.
///
/// # Errors
/// When the system gives out no resources.
pub fn client_with(tls: ClientConfig) -> anyhow::Result<Client> {
    let builder = Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT);
    builder.tls_backend_preconfigured(tls).build().context("no HTTP client")
}
