//! Metrics of the gateway, and its readiness.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use model::{
    primitives::quantity::{Revision, Timestamp},
    wire::http_gateway::{GATEWAY_SOCKETS_MAX, GatewayCodeCount, GatewaySocket},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::sync::watch;

/// Maximum number of routes with metrics of their own. Requests of further routes are counted as [`OTHER`].
const ROUTES_MAX: usize = 1000;
/// Label of the routes beyond [`ROUTES_MAX`].
const OTHER: &str = "other";
/// Lowest status code.
const CODE_MIN: u16 = 100;
/// Number of status codes: from 100 to 599.
const CODES: usize = 500;
/// Upper bounds of the durations of requests in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// Reason for which a connection is closed before its request reaches a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum ConnectionEnd {
    /// Too many connections were open.
    TooMany,
    /// A request was malformed or could be read in two ways.
    Malformed,
    /// The head of a request took too long.
    SlowHead,
    /// The client did not complete the TLS handshake.
    Handshake,
    /// No listener has the server name of the client, or its listener has no usable certificate.
    NoCertificate,
    /// No TlsRoute has the server name of the client, or the client sent none.
    NoTlsRoute,
    /// No endpoint of a TlsRoute accepted the connection.
    NoEndpoint,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    reason: ConnectionEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: String,
}

/// Counters of the gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    ends: Family<EndLabels, Counter>,
    forwarded: Family<RouteLabels, Counter>,
    expiry: Family<CertificateLabels, Gauge>,
    routes: Mutex<BTreeSet<String>>,
    revision: Gauge,
    /// 1 while a control server sends the state.
    pub(crate) connected: Gauge,
    /// Open connections of clients.
    pub(crate) connections: Gauge,
    /// Connections that were switched to another protocol, such as WebSocket.
    pub(crate) tunnels: Gauge,
    sockets: Gauge,
    sockets_failed: Gauge,
    /// Listening sockets that are open or cannot be opened.
    listening: watch::Sender<Vec<GatewaySocket>>,
    /// Number of requests for each status code, from [`CODE_MIN`].
    codes: [AtomicU64; CODES],
    /// Attempts to forward a request that failed.
    pub(crate) upstream_failures: Counter,
    /// Requests that were sent to another endpoint after a failed attempt.
    pub(crate) retries: Counter,
    /// Copies of requests that mirrors have answered.
    pub(crate) mirrors: Counter,
    /// Copies of requests that were not sent or not answered.
    pub(crate) mirrors_failed: Counter,
    is_ready: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tidegate_gateway");
        let requests = Family::<RequestLabels, Counter>::default();
        let durations = Family::<RouteLabels, Histogram>::new_with_constructor(|| Histogram::new(BOUNDS));
        let ends = Family::<EndLabels, Counter>::default();
        registry.register("requests", "Requests by their route and status code", requests.clone());
        registry.register(
            "request_duration_seconds",
            "Time from the head of a request to the end of its response",
            durations.clone(),
        );
        registry.register(
            "connections_closed",
            "Connections of clients that the gateway closed, by the reason",
            ends.clone(),
        );
        let forwarded = Family::<RouteLabels, Counter>::default();
        registry.register(
            "tls_connections",
            "Connections of clients that TlsRoutes forwarded, by the route",
            forwarded.clone(),
        );
        let expiry = Family::<CertificateLabels, Gauge>::default();
        registry.register(
            "certificate_not_after_seconds",
            "End of the validity of each certificate, in seconds since 1970",
            expiry.clone(),
        );
        let gauges = [(); 6].map(|()| Gauge::default());
        let texts = [
            ("revision", "Revision of the state from which requests are decided"),
            ("control_connected", "1 while a control server sends the state"),
            ("connections", "Open connections of clients"),
            ("tunnels", "Connections that were switched to another protocol, such as WebSocket"),
            ("sockets", "Open listening sockets"),
            ("sockets_failed", "Listening sockets that cannot be opened"),
        ];
        for ((name, help), gauge) in texts.into_iter().zip(&gauges) {
            registry.register(name, help, gauge.clone());
        }
        let (upstream_failures, retries) = (Counter::default(), Counter::default());
        registry.register(
            "upstream_failures",
            "Failed attempts to forward a request to an endpoint",
            upstream_failures.clone(),
        );
        registry.register(
            "retries",
            "Requests that were sent to another endpoint after a failed attempt",
            retries.clone(),
        );
        let (mirrors, mirrors_failed) = (Counter::default(), Counter::default());
        registry.register("mirrors", "Copies of requests that mirrors have answered", mirrors.clone());
        registry.register(
            "mirrors_failed",
            "Copies of requests that were not sent or not answered",
            mirrors_failed.clone(),
        );
        let [revision, connected, connections, tunnels, sockets, sockets_failed] = gauges;
        Self {
            registry,
            requests,
            durations,
            ends,
            forwarded,
            expiry,
            routes: Mutex::default(),
            revision,
            connected,
            connections,
            tunnels,
            sockets,
            sockets_failed,
            listening: watch::Sender::default(),
            codes: [const { AtomicU64::new(0) }; CODES],
            upstream_failures,
            retries,
            mirrors,
            mirrors_failed,
            is_ready: AtomicBool::new(false),
        }
    }
}

impl Metrics {
    /// Counts a request at the end of its response. `route` is that of its rule, or empty if none matched.
    pub(crate) fn count(&self, route: &str, code: u16, duration: Duration) {
        let route = self.label_of(route);
        self.durations.get_or_create(&RouteLabels { route: route.clone() }).observe(duration.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { route, code }).inc();
        if let Some(count) = self.codes.get(usize::from(code.saturating_sub(CODE_MIN))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of requests by status code since the start.
    pub(crate) fn codes(&self) -> Vec<GatewayCodeCount> {
        let codes = (CODE_MIN..).zip(&self.codes);
        let codes =
            codes.map(|(code, count)| GatewayCodeCount { code, count: count.load(Ordering::Relaxed) });
        codes.filter(|one| one.count > 0).collect()
    }

    /// Records the listening sockets that are open, and those that cannot be opened with the kind of the error.
    pub(crate) fn set_sockets<'a>(
        &self,
        open: impl Iterator<Item = &'a SocketAddr>,
        failed: &BTreeMap<SocketAddr, io::ErrorKind>,
    ) {
        let open = open.map(|address| GatewaySocket { address: *address, error: None });
        let failed = failed
            .iter()
            .map(|(address, kind)| GatewaySocket { address: *address, error: Some(kind.to_string()) });
        let mut sockets: Vec<_> = open.chain(failed).take(GATEWAY_SOCKETS_MAX).collect();
        sockets.sort_by_key(|socket| socket.address);
        let count = |is_wanted: fn(&&GatewaySocket) -> bool| {
            i64::try_from(sockets.iter().filter(is_wanted).count()).unwrap_or(i64::MAX)
        };
        self.sockets.set(count(|one| one.error.is_none()));
        self.sockets_failed.set(count(|one| one.error.is_some()));
        self.listening.send_if_modified(|before| {
            let has_changed = *before != sockets;
            *before = sockets;
            has_changed
        });
    }

    /// Returns the listening sockets, which are received again when they change.
    pub(crate) fn sockets_changed(&self) -> watch::Receiver<Vec<GatewaySocket>> {
        self.listening.subscribe()
    }

    /// Returns the ports of listeners of which no socket could be opened.
    pub(crate) fn closed_ports(&self) -> BTreeSet<u16> {
        let sockets = self.listening.borrow();
        let ports = |is_open: bool| {
            let found = sockets.iter().filter(move |socket| socket.error.is_none() == is_open);
            found.map(|socket| socket.address.port()).collect::<BTreeSet<_>>()
        };
        &ports(false) - &ports(true)
    }

    /// Counts a connection that a TlsRoute forwards.
    pub(crate) fn forward(&self, route: &str) {
        self.forwarded.get_or_create(&RouteLabels { route: self.label_of(route) }).inc();
    }

    /// Counts a connection that the gateway closes.
    pub(crate) fn end(&self, reason: ConnectionEnd) {
        self.ends.get_or_create(&EndLabels { reason }).inc();
    }

    /// Sets the ends of the validity of all certificates.
    pub(crate) fn set_expiry(&self, ends: &BTreeMap<String, Timestamp>) {
        self.expiry.clear();
        for (certificate, end) in ends {
            let labels = CertificateLabels { certificate: certificate.clone() };
            self.expiry.get_or_create(&labels).set(end.unix_seconds());
        }
    }

    fn label_of(&self, route: &str) -> String {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if !routes.contains(route) {
            if routes.len() >= ROUTES_MAX {
                return OTHER.to_owned();
            }
            routes.insert(route.to_owned());
        }
        route.to_owned()
    }

    /// Records that the state of a revision is known, from a control server or from disk.
    pub(crate) fn set_revision(&self, revision: Revision) {
        self.revision.set(i64::try_from(revision.0).unwrap_or(i64::MAX));
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Returns true if requests can be decided.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Returns the metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Metrics {
        /// Returns metrics with a sample of each label.
        pub(crate) fn with_samples() -> Self {
            let metrics = Self::default();
            metrics.count("shop/web/0", 200, Duration::from_millis(3));
            metrics.end(ConnectionEnd::Malformed);
            metrics.forward("shop/mail");
            let end = Timestamp::from_unix_seconds(1_800_000_000);
            metrics.set_expiry(&BTreeMap::from([("shop/www".to_owned(), end)]));
            metrics
        }
    }

    /// A port is closed if none of its sockets is open.
    #[test]
    fn ports_without_an_open_socket_are_closed() {
        let metrics = Metrics::default();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let open = [address("0.0.0.0:80"), address("0.0.0.0:8080")];
        let in_use = |text: &str| (address(text), io::ErrorKind::AddrInUse);
        let failed = BTreeMap::from([in_use("[::]:80"), in_use("0.0.0.0:443"), in_use("[::]:443")]);
        metrics.set_sockets(open.iter(), &failed);
        assert_eq!(metrics.closed_ports(), BTreeSet::from([443]));
        assert_eq!((metrics.sockets.get(), metrics.sockets_failed.get()), (2, 3));
        let sockets = metrics.sockets_changed().borrow().clone();
        assert_eq!(sockets[1].error.as_deref(), Some("address in use"), "{sockets:?}");
        metrics.set_sockets([].iter(), &BTreeMap::new());
        assert!(metrics.closed_ports().is_empty());
    }

    /// After 1,000 routes, further ones share a label.
    #[test]
    fn the_number_of_labels_is_limited() {
        let metrics = Metrics::default();
        for number in 0..ROUTES_MAX {
            assert_eq!(metrics.label_of(&number.to_string()), number.to_string());
        }
        assert_eq!(metrics.label_of("new"), OTHER);
        assert_eq!(metrics.label_of("5"), "5");
    }
}
