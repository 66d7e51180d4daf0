//! Endpoints of the Service ports that routes name.

use std::{fmt, net::SocketAddr};

use crate::{
    cluster::snapshot::Snapshot,
    compile::compile,
    kinds::{
        resource::ServiceKey,
        service::{Protocol, ServiceSpec},
    },
    primitives::{app_protocol::AppProtocol, quantity::Port},
    program::usable,
};

/// Service port that receives requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendKey {
    /// Service of the port.
    pub service: ServiceKey,
    /// Number of the port.
    pub port: Port,
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service, self.port)
    }
}

/// Endpoint with its share of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpEndpoint {
    /// Address and port of the endpoint.
    pub address: SocketAddr,
    /// Share of the requests relative to the other endpoints, at least 1.
    pub weight: u16,
}

/// Protocol in which endpoints receive requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 without encryption, with prior knowledge (RFC 9113 §3.3).
    H2c,
}

/// Endpoints of a Service port that receive new requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendEndpoints {
    endpoints: Vec<HttpEndpoint>,
    total: u64,
    protocol: BackendProtocol,
}

impl BackendEndpoints {
    /// Creates a list of endpoints with HTTP/1.1.
    #[must_use]
    pub fn new(endpoints: Vec<HttpEndpoint>) -> Self {
        let total = endpoints.iter().map(|endpoint| u64::from(endpoint.weight)).sum();
        Self { endpoints, total, protocol: BackendProtocol::Http1 }
    }

    /// Returns the endpoints with another protocol.
    #[must_use]
    pub fn with_protocol(self, protocol: BackendProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// Returns the protocol of the endpoints.
    #[must_use]
    pub const fn protocol(&self) -> BackendProtocol {
        self.protocol
    }

    /// Returns the endpoints, ordered by address within each IP family.
    #[must_use]
    pub fn list(&self) -> &[HttpEndpoint] {
        &self.endpoints
    }

    /// Returns the endpoint for a number: consecutive or uniform random numbers choose the endpoints in proportion to their
    /// weights. Endpoints in `except` are not chosen unless all are. Returns `None` if there is no endpoint.
    #[must_use]
    pub fn pick(&self, number: u64, except: &[SocketAddr]) -> Option<SocketAddr> {
        let excluded = |one: &&HttpEndpoint| except.contains(&one.address);
        let without: u64 = self.endpoints.iter().filter(excluded).map(|one| u64::from(one.weight)).sum();
        let (total, except) = match self.total - without {
            0 => (self.total, &[][..]),
            rest => (rest, except),
        };
        let mut left = number.checked_rem(total)?;
        let mut usable = self.endpoints.iter().filter(|one| !except.contains(&one.address));
        usable.find_map(|one| match left.checked_sub(one.weight.into()) {
            None => Some(one.address),
            Some(rest) => {
                left = rest;
                None
            }
        })
    }
}

/// Reason for which a backend of a route cannot receive requests, whatever its endpoints are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendProblem {
    /// The Service does not exist.
    NoService,
    /// The Service is of type ExternalName, and has no endpoints.
    ExternalName,
    /// The Service has no single TCP port with the number.
    NoPort,
    /// The endpoints of the Service expect the PROXY protocol, which the gateway does not send.
    ProxyProtocol,
    /// The application protocol of the port includes TLS, which the gateway does not use to endpoints.
    Protocol,
}

/// Returns the endpoints of a backend that receive new requests: the ready ones in service or, if none is ready, those
/// that terminate and still serve. A disabled Service has none.
///
/// # Errors
/// Returns the reason if the backend is not a Service port that the gateway can use.
pub fn resolve_backend(snapshot: &Snapshot, key: &BackendKey) -> Result<BackendEndpoints, BackendProblem> {
    let endpoints = resolve_bytes_backend(snapshot, key)?;
    let spec = snapshot.service(&key.service).and_then(|object| object.as_service());
    let mut ports = spec.into_iter().flat_map(|spec| &spec.ports);
    let port = ports.find(|one| one.port == key.port && one.protocol == Protocol::Tcp);
    // Names of protocols are compared without case (RFC 6335 §5.1), so that `HTTPS` never gets requests in plain text.
    let protocol = port.and_then(|one| one.app_protocol.as_ref()).map(AppProtocol::as_str);
    match protocol.map(str::to_ascii_lowercase).as_deref() {
        Some("kubernetes.io/h2c") => Ok(endpoints.with_protocol(BackendProtocol::H2c)),
        Some("kubernetes.io/wss" | "https") => Err(BackendProblem::Protocol),
        Some(_) | None => Ok(endpoints),
    }
}

/// Returns the endpoints of a backend that receive new connections, whatever their application protocol is, as
/// [`resolve_backend`] does.
///
/// # Errors
/// Returns the reason if the backend is not a Service port that the gateway can use.
pub fn resolve_bytes_backend(
    snapshot: &Snapshot,
    key: &BackendKey,
) -> Result<BackendEndpoints, BackendProblem> {
    let object = snapshot.service(&key.service).and_then(|object| object.as_service());
    if object.is_some_and(ServiceSpec::is_external_name) {
        return Err(BackendProblem::ExternalName);
    }
    let compiled = compile(snapshot, &key.service).ok_or(BackendProblem::NoService)?;
    let is_port = |port: &&crate::cluster::compiled::CompiledPort| {
        port.port == key.port && port.protocol == Protocol::Tcp && port.end_port.is_none()
    };
    let port = compiled.ports.iter().find(is_port).ok_or(BackendProblem::NoPort)?;
    if compiled.proxy_protocol.is_some() {
        return Err(BackendProblem::ProxyProtocol);
    }
    if object.is_none_or(|spec| spec.disabled) {
        return Ok(BackendEndpoints::default());
    }
    let endpoints = usable(port).into_iter().map(|endpoint| HttpEndpoint {
        address: SocketAddr::new(endpoint.address, endpoint.port.get()),
        weight: endpoint.weight.0,
    });
    Ok(BackendEndpoints::new(endpoints.collect()))
}
