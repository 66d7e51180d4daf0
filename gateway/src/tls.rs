//! TLS connections of clients: the certificate, or the TlsRoute that forwards the connection, follows from the server name by
//! the tables of the model.

mod hello;
mod prefixed;
pub(crate) mod relay;

use std::sync::Arc;

use model::{
    http::{HttpObjectKey, HttpState, TlsDecision, TlsProblem, normalize_host, route_tls},
    primitives::quantity::Port,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, server::TlsStream};

use self::{
    hello::{HELLO_BYTES_MAX, HelloState},
    prefixed::PrefixedStream,
    relay::{ForwardedConnection, RelayClient},
};
use crate::{keys::CertificateRing, listen::Front, metrics::ConnectionEnd};

/// Fatal alert `unrecognized_name` in a record of TLS 1.2, which a client of each version can read (RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// Fatal alert `internal_error` in such a record (RFC 8446 §6.2).
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// Number of bytes of a connection that are read at once until the server name is known.
const READ_SIZE: usize = 4096;

/// Connection whose treatment is known.
pub(crate) enum ClientStream {
    /// Connection with HTTP requests.
    Requests(Box<TlsConnection>),
    /// Connection that a TlsRoute forwards.
    Bytes(ForwardedConnection),
}

/// Connection with TLS.
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream<PrefixedStream>,
    /// Server name of the client in lower case; empty if it sent none.
    pub(crate) server_name: String,
}

/// Reads the server name of a client that connected to a port, and performs the handshake unless the connection is forwarded
/// unchanged, within the time for the head of a request.
///
/// # Errors
/// Returns the reason for which the connection ends.
pub(crate) async fn accept(
    stream: TcpStream,
    port: Port,
    state: Option<&HttpState>,
    front: &Front,
) -> Result<ClientStream, ConnectionEnd> {
    let accepted = async {
        match state.filter(|state| state.table().tls.forwards(port)) {
            Some(state) => choose(stream, port, state, front).await,
            None => {
                let connection = shake_hands(stream, port, state, front).await;
                connection.map(|connection| ClientStream::Requests(Box::new(connection)))
            }
        }
    };
    timeout(front.times.head, accepted).await.unwrap_or(Err(ConnectionEnd::Handshake))
}

/// Accepts a connection at a port where each connection may have HTTP requests.
async fn shake_hands(
    stream: TcpStream,
    port: Port,
    state: Option<&HttpState>,
    front: &Front,
) -> Result<TlsConnection, ConnectionEnd> {
    let begun = begin(PrefixedStream::new(Vec::new(), stream)).await?;
    let server_name = begun.client_hello().server_name().and_then(normalize_host).unwrap_or_default();
    let choice = state.ok_or(TlsProblem::NoListener);
    let choice = choice.and_then(|state| state.table().tls.choose(port, &server_name));
    let config =
        choice.and_then(|key| front.certificates.borrow().config(key).ok_or(TlsProblem::NoCertificate));
    match config {
        Ok(config) => {
            let stream = begun.into_stream(config).await.map_err(|error| failed(&error))?;
            Ok(TlsConnection { stream, server_name })
        }
        Err(problem) => Err(refuse(begun.io, port, &server_name, problem).await),
    }
}

/// Accepts a connection at a port where TlsRoutes forward connections.
async fn choose(
    mut stream: TcpStream,
    port: Port,
    state: &HttpState,
    front: &Front,
) -> Result<ClientStream, ConnectionEnd> {
    let (bytes, server_name) = peek(&mut stream).await?;
    let server_name = server_name.as_deref().and_then(normalize_host).unwrap_or_default();
    let stream = PrefixedStream::new(bytes, stream);
    match route_tls(state.table(), port, &server_name, fastrand::u64(..)) {
        Ok(TlsDecision::Serve { certificate }) => {
            let config = CertificateRing::config;
            let stream = terminate(stream, (port, &server_name), certificate, front, config).await?;
            Ok(ClientStream::Requests(Box::new(TlsConnection { stream, server_name })))
        }
        Ok(TlsDecision::Forward { certificate, route, endpoints, .. }) => {
            let client = match certificate {
                None => RelayClient::Encrypted(stream),
                Some(certificate) => {
                    let config = CertificateRing::config_of_bytes;
                    let stream = terminate(stream, (port, &server_name), certificate, front, config).await?;
                    RelayClient::Decrypted(Box::new(stream))
                }
            };
            Ok(ClientStream::Bytes(ForwardedConnection {
                client,
                endpoints: Arc::clone(endpoints),
                route: route.to_string(),
            }))
        }
        Err(problem) => Err(refuse(stream, port, &server_name, problem).await),
    }
}

/// Reads the first message of a connection, and returns the bytes that have been read with the server name.
async fn peek(stream: &mut TcpStream) -> Result<(Vec<u8>, Option<String>), ConnectionEnd> {
    let mut bytes = Vec::with_capacity(READ_SIZE);
    loop {
        match hello::read(&bytes) {
            HelloState::Complete(name) => return Ok((bytes, name)),
            HelloState::Invalid => {
                tracing::debug!("a connection does not begin with TLS");
                return Err(ConnectionEnd::Handshake);
            }
            HelloState::Incomplete => {}
        }
        let room = HELLO_BYTES_MAX.saturating_sub(bytes.len()).min(READ_SIZE);
        bytes.reserve(room);
        let count = (&mut *stream).take(u64::try_from(room).unwrap_or(0)).read_buf(&mut bytes).await;
        if count.map_err(|error| failed(&error))? == 0 {
            return Err(ConnectionEnd::Handshake);
        }
    }
}

/// Decrypts a connection with a Certificate.
async fn terminate(
    stream: PrefixedStream,
    (port, server_name): (Port, &str),
    certificate: &HttpObjectKey,
    front: &Front,
    config: impl Fn(&CertificateRing, &HttpObjectKey) -> Option<Arc<ServerConfig>>,
) -> Result<TlsStream<PrefixedStream>, ConnectionEnd> {
    let found = config(&front.certificates.borrow(), certificate);
    match found {
        Some(config) => begin(stream).await?.into_stream(config).await.map_err(|error| failed(&error)),
        None => Err(refuse(stream, port, server_name, TlsProblem::NoCertificate).await),
    }
}

async fn begin(stream: PrefixedStream) -> Result<StartHandshake<PrefixedStream>, ConnectionEnd> {
    let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await;
    begun.map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> ConnectionEnd {
    tracing::debug!(%error, "a TLS handshake failed");
    ConnectionEnd::Handshake
}

/// Sends the alert for a problem, and returns the reason for which the connection ends.
async fn refuse(
    mut stream: PrefixedStream,
    port: Port,
    server_name: &str,
    problem: TlsProblem,
) -> ConnectionEnd {
    tracing::debug!(port = port.get(), server_name, ?problem, "a connection is refused");
    let (alert, end) = match problem {
        TlsProblem::NoListener | TlsProblem::NoCertificate => {
            (UNRECOGNIZED_NAME, ConnectionEnd::NoCertificate)
        }
        TlsProblem::NoRoute => (UNRECOGNIZED_NAME, ConnectionEnd::NoTlsRoute),
        TlsProblem::NoBackend | TlsProblem::InvalidBackend | TlsProblem::NoEndpoints => {
            (INTERNAL_ERROR, ConnectionEnd::NoEndpoint)
        }
    };
    // The client may have closed the connection.
    let _ = stream.write_all(&alert).await;
    let _ = stream.shutdown().await;
    end
}
