//! Certificates with their private keys, with which the gateway terminates TLS.
//!
//! They are read from a control server when a Certificate or Gateway changes, and kept on disk for restarts. A certificate
//! and its key are replaced together, so that no connection sees one without the other. Open connections keep the
//! certificate with which they began.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::Arc,
};

use client::{Client, Request};
use model::{
    http::{CertificateFacts, HttpObjectKey, certified_key},
    kinds::resource::Kind,
    primitives::quantity::Revision,
    wire::certificate_keys::{CertificateKey, CertificateKeyList},
};
use replica::{PrivateFile, SecretFollower, SecretSink};
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, ProducesTickets},
    sign::SingleCertAndKey,
    version::{TLS12, TLS13},
};
use tokio::sync::watch;

use crate::{metrics::Metrics, state::SharedState};

/// Path of the certificates on control servers.
const PATH: &str = "/v1/http/keys";
/// Name of the file in the state directory.
const FILE: &str = "keys.json";
/// Protocols over TLS, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS settings of each Certificate. `Debug` does not print keys.
#[derive(Default)]
pub(crate) struct CertificateRing(BTreeMap<HttpObjectKey, ServerConfigs>);

/// TLS settings of one Certificate.
struct ServerConfigs {
    /// Settings of connections with HTTP requests.
    requests: Arc<ServerConfig>,
    /// Settings of connections whose bytes are forwarded: the endpoints determine the protocol, so that none is negotiated.
    bytes: Arc<ServerConfig>,
}

impl fmt::Debug for CertificateRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl CertificateRing {
    /// Returns the TLS settings of a Certificate for connections with HTTP requests.
    pub(crate) fn config(&self, key: &HttpObjectKey) -> Option<Arc<ServerConfig>> {
        self.0.get(key).map(|configs| Arc::clone(&configs.requests))
    }

    /// Returns the TLS settings of a Certificate for connections whose bytes are forwarded.
    pub(crate) fn config_of_bytes(&self, key: &HttpObjectKey) -> Option<Arc<ServerConfig>> {
        self.0.get(key).map(|configs| Arc::clone(&configs.bytes))
    }
}

/// Certificates at the newest revision.
pub(crate) type Certificates = watch::Receiver<Arc<CertificateRing>>;

/// Receiver of the certificates.
pub(crate) struct CertificateSink {
    states: watch::Receiver<SharedState>,
    ring: watch::Sender<Arc<CertificateRing>>,
    builder: RingBuilder,
    served: Arc<BTreeSet<HttpObjectKey>>,
}

/// Source of the rings, whose connections resume with the same tickets.
pub(crate) struct RingBuilder {
    tickets: Option<Arc<dyn ProducesTickets>>,
    metrics: Arc<Metrics>,
}

impl RingBuilder {
    /// Creates the key of the session tickets, which never leaves the process.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let tickets = rustls::crypto::ring::Ticketer::new();
        if let Err(error) = &tickets {
            tracing::warn!(%error, "no session tickets: clients cannot resume TLS sessions");
        }
        Self { tickets: tickets.ok(), metrics }
    }

    /// Returns the ring of a list. Unusable entries, which a newer server may have admitted, are left out.
    pub(crate) fn ring(&self, list: &CertificateKeyList) -> CertificateRing {
        let mut expiry = BTreeMap::new();
        let mut ring = BTreeMap::new();
        for one in &list.keys {
            let key = HttpObjectKey { namespace: one.namespace.clone(), name: one.name.clone() };
            match self.config(one) {
                Ok(config) => {
                    let facts = CertificateFacts::read(&one.certificate);
                    expiry.extend(facts.ok().map(|facts| (key.to_string(), facts.not_after)));
                    let mut bytes = config.clone();
                    bytes.alpn_protocols.clear();
                    ring.insert(key, ServerConfigs { requests: Arc::new(config), bytes: Arc::new(bytes) });
                }
                Err(problem) => tracing::warn!(certificate = %key, problem, "a certificate is unusable"),
            }
        }
        self.metrics.set_expiry(&expiry);
        CertificateRing(ring)
    }

    fn config(&self, one: &CertificateKey) -> Result<ServerConfig, String> {
        let certified = certified_key(&one.certificate, &one.private_key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?;
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if let Some(tickets) = &self.tickets {
            config.ticketer = Arc::clone(tickets);
        }
        Ok(config)
    }
}

/// Creates the task that reads the certificates, which begins with those in the state directory, if there are some.
pub(crate) fn follow(
    client: Client,
    states: watch::Receiver<SharedState>,
    served: Arc<BTreeSet<HttpObjectKey>>,
    directory: Option<PathBuf>,
    builder: RingBuilder,
) -> (SecretFollower<CertificateSink>, Certificates) {
    let file = directory.map(|directory| PrivateFile { directory, file: FILE });
    let (ring, certificates) = watch::channel(Arc::default());
    (SecretFollower::new(client, file, CertificateSink { states, ring, builder, served }), certificates)
}

impl SecretSink for CertificateSink {
    type List = CertificateKeyList;
    type Key = (Kind, HttpObjectKey);

    const SUBJECT: &'static str = "keys of certificates";

    fn request(&self) -> Request {
        let served: Vec<_> = self.served.iter().map(ToString::to_string).collect();
        Request::get(PATH).query("gateways", (!served.is_empty()).then(|| served.join(",")))
    }

    /// Returns the Certificates of the listeners and the Gateways that name them.
    fn wanted(&mut self) -> Option<BTreeMap<Self::Key, Revision>> {
        let state = self.states.borrow_and_update().clone()?;
        let mut wanted = BTreeMap::new();
        for kind in [Kind::Gateway, Kind::Certificate] {
            for object in state.snapshot().list(kind, None, None) {
                let is_relevant = object
                    .as_gateway()
                    .is_none_or(|spec| spec.listeners.iter().any(|listener| listener.tls.is_some()));
                if let Some(namespace) = object.metadata.namespace.clone().filter(|_| is_relevant) {
                    let key = HttpObjectKey { namespace, name: object.metadata.name.clone() };
                    wanted.insert((kind, key), object.metadata.revision());
                }
            }
        }
        Some(wanted)
    }

    async fn changed(&mut self) -> bool {
        self.states.changed().await.is_ok()
    }

    fn receive(&mut self, list: &CertificateKeyList) -> bool {
        self.ring.send_replace(Arc::new(self.builder.ring(list)));
        true
    }
}
