//! TLS handshakes of clients: the certificate follows from the server name by the table of the model.

use model::{
    http::{HttpState, TlsProblem, normalize_host},
    primitives::quantity::Port,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, server::TlsStream};

use crate::{listen::Front, metrics::ConnectionEnd};

/// Fatal alert `unrecognized_name` in a record of TLS 1.2, which a client of each version can read (RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Connection with TLS.
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Server name of the client in lower case; empty if it sent none.
    pub(crate) server_name: String,
}

/// Performs the handshake of a client that connected to a port, within the time for the head of a request.
///
/// # Errors
/// Returns the reason for which the connection ends.
pub(crate) async fn accept(
    stream: TcpStream,
    port: Port,
    state: Option<&HttpState>,
    front: &Front,
) -> Result<TlsConnection, ConnectionEnd> {
    timeout(front.times.head, shake_hands(stream, port, state, front))
        .await
        .unwrap_or(Err(ConnectionEnd::Handshake))
}

async fn shake_hands(
    stream: TcpStream,
    port: Port,
    state: Option<&HttpState>,
    front: &Front,
) -> Result<TlsConnection, ConnectionEnd> {
    let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await;
    let begun: StartHandshake<TcpStream> = begun.map_err(|error| failed(&error))?;
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
        Err(problem) => {
            tracing::debug!(port = port.get(), server_name, ?problem, "no certificate for a connection");
            refuse(begun).await;
            Err(ConnectionEnd::NoCertificate)
        }
    }
}

fn failed(error: &std::io::Error) -> ConnectionEnd {
    tracing::debug!(%error, "a TLS handshake failed");
    ConnectionEnd::Handshake
}

/// Sends the alert for an unknown server name.
async fn refuse(begun: StartHandshake<TcpStream>) {
    let mut stream = begun.io;
    // The client may have closed the connection.
    let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
    let _ = stream.shutdown().await;
}
