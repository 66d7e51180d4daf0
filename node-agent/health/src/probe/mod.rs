//! Probe of an endpoint: opens one connection, sends one request, and judges the response.

mod grpc;
mod http;
mod tls;
mod udp;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use model::kinds::{
    endpoint_health::CheckKey,
    health_check::{HealthCheck, HealthCheckType},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    pinned::ProbeTarget,
    verdict::{Outcome, Verdict},
};

/// Probe parameters shared by all endpoints of a Service, prepared once per configuration.
pub(super) struct Recipe {
    check: Arc<HealthCheck>,
    speech: Speech,
    tls: Option<TlsConnector>,
}

/// Protocol of the probe, with the parameters of the request.
#[derive(Clone)]
enum Speech {
    Tcp,
    Http(Arc<http::Request>),
    Grpc(Arc<str>),
    Udp(Arc<model::kinds::health_check::UdpCheck>),
}

/// Probe of one endpoint, with all its parameters.
pub(super) struct Probe {
    target: ProbeTarget,
    patience: Duration,
    speech: Speech,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Value of the `Host` header (HTTP/1.1) or the `:authority` pseudo-header (HTTP/2).
    authority: String,
}

impl Recipe {
    /// Prepares the probe parameters from the configuration of a check.
    ///
    /// # Errors
    /// Returns a message if the check cannot be run at all, for example because its CA certificate is
    /// invalid.
    pub(super) fn new(check: Arc<HealthCheck>) -> Result<Self, String> {
        let speech = match check.check_type {
            HealthCheckType::Tcp => Speech::Tcp,
            HealthCheckType::Http | HealthCheckType::Https => {
                Speech::Http(Arc::new(http::Request::new(check.http.clone().unwrap_or_default())?))
            }
            HealthCheckType::Grpc => {
                let service = check.grpc.as_ref().and_then(|grpc| grpc.service.as_deref());
                Speech::Grpc(service.unwrap_or_default().into())
            }
            HealthCheckType::Udp => {
                let udp = check.udp.clone().ok_or("the UDP check does not define the payload to send")?;
                Speech::Udp(Arc::new(udp))
            }
        };
        let has_tls = match check.check_type {
            HealthCheckType::Https => true,
            HealthCheckType::Grpc => check.grpc.as_ref().is_some_and(|grpc| grpc.tls),
            HealthCheckType::Tcp | HealthCheckType::Http | HealthCheckType::Udp => false,
        };
        let protocol =
            if matches!(speech, Speech::Grpc(_)) { tls::Protocol::Http2 } else { tls::Protocol::Http1 };
        let tls = match has_tls {
            true => Some(tls::connector(check.tls.as_ref(), protocol)?),
            false => None,
        };
        Ok(Self { check, speech, tls })
    }

    /// Creates the probe of one endpoint.
    ///
    /// # Errors
    /// Returns a message if the endpoint must not be probed.
    pub(super) fn probe(&self, key: CheckKey) -> Result<Probe, String> {
        let target =
            ProbeTarget::new(key.address, key.port).map_err(|reason| format!("the address is {reason}"))?;
        let host = self.check.http.as_ref().and_then(|http| http.host.as_ref());
        let asked = self.check.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        let tls = match &self.tls {
            Some(connector) => {
                let name = match asked.or(host) {
                    Some(name) => ServerName::try_from(name.as_str().to_owned())
                        .map_err(|_invalid| format!("`{name}` is not a name that a certificate can have"))?,
                    None => ServerName::IpAddress(key.address.into()),
                };
                Some((connector.clone(), name))
            }
            None => None,
        };
        // gRPC servers are addressed by their TLS server name, as by other gRPC clients.
        let name = match self.speech {
            Speech::Grpc(_) => asked,
            Speech::Tcp | Speech::Http(_) | Speech::Udp(_) => host,
        };
        Ok(Probe {
            target,
            patience: Duration::from_millis(self.check.timeout_ms.into()),
            speech: self.speech.clone(),
            tls,
            authority: name.map_or_else(|| target.address().to_string(), ToString::to_string),
        })
    }
}

impl Probe {
    /// Runs the probe and returns the verdict, at the latest when the timeout of the check expires.
    pub(super) async fn run(self) -> Verdict {
        let patience = self.patience;
        let silent =
            |_elapsed| Verdict::new(Outcome::Silent, format!("no answer within {} ms", patience.as_millis()));
        timeout(patience, self.ask()).await.unwrap_or_else(silent)
    }

    async fn ask(self) -> Verdict {
        let Self { target, patience: _, speech, tls, authority } = self;
        if let Speech::Udp(check) = &speech {
            return udp::ask(target.address(), check).await.unwrap_or_else(|error| Verdict::of_io(&error));
        }
        let stream = match connect(target.address()).await {
            Ok(stream) => stream,
            Err(error) => return Verdict::of_io(&error),
        };
        match tls {
            None => speak(stream, &speech, "http", &authority).await,
            Some((connector, name)) => match tls::handshake(&connector, name, stream).await {
                Ok(stream) => speak(stream, &speech, "https", &authority).await,
                Err(verdict) => verdict,
            },
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Small requests are sent without delay.
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn speak<S>(stream: S, speech: &Speech, scheme: &str, authority: &str) -> Verdict
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match speech {
        // UDP checks do not use a stream.
        Speech::Tcp | Speech::Udp(_) => Verdict::new(Outcome::Good, "accepted the connection"),
        Speech::Http(request) => request.ask(stream, authority).await,
        Speech::Grpc(service) => grpc::ask(stream, service, scheme, authority).await,
    }
}
