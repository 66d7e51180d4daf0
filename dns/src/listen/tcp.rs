//! Questions over TCP (RFC 7766), with or without TLS: several on one connection, answered in order.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use tokio_rustls::TlsAcceptor;

use super::{source_of, tls::TlsSettings};
use crate::{
    message::Transport,
    responder::{Responder, Step},
};

/// Maximum number of open connections.
const CONNECTIONS_MAX: usize = 1000;
/// Maximum number of open connections of one source.
const SOURCE_CONNECTIONS_MAX: usize = 20;
/// Maximum time to wait for the next question of a connection, and for each part of it.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Delay after an error of the listening socket, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Open connections of all addresses together, by source.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimit(Mutex<ConnectionCounts>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    sources: HashMap<IpAddr, usize>,
}

/// Permission for one open connection, which ends when it is dropped.
#[derive(Debug)]
struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    source: IpAddr,
}

impl ConnectionLimit {
    /// Admits a connection of a client. Returns `None` if too many are open, of all clients or of this source.
    fn admit(self: &Arc<Self>, client: IpAddr) -> Option<ConnectionPermit> {
        let source = source_of(client);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = counts.sources.get(&source).copied().unwrap_or(0);
        if counts.all >= CONNECTIONS_MAX || of_source >= SOURCE_CONNECTIONS_MAX {
            return None;
        }
        counts.all += 1;
        counts.sources.insert(source, of_source + 1);
        Some(ConnectionPermit { limit: Arc::clone(self), source })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.limit.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        if let Some(count) = counts.sources.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.sources.remove(&self.source);
            }
        }
    }
}

/// Accepts connections of one address until the task is cancelled. With `tls`, they are encrypted.
pub(super) async fn serve(
    listener: TcpListener,
    responder: Arc<Responder>,
    limit: Arc<ConnectionLimit>,
    tls: Option<TlsSettings>,
) {
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A connection that has ended meanwhile fails at the first read.
        let _ = stream.set_nodelay(true);
        let Some(permit) = limit.admit(client.ip()) else {
            responder.metrics().connections_refused.inc();
            continue;
        };
        let responder = Arc::clone(&responder);
        let config = tls.as_ref().map(|settings| Arc::clone(&settings.borrow()));
        tokio::spawn(async move {
            responder.metrics().connections.inc();
            let outcome = match config {
                None => answer_all(stream, client.ip(), &responder).await,
                Some(config) => answer_encrypted(stream, config, client.ip(), &responder).await,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection ended");
            }
            responder.metrics().connections.dec();
            drop(permit);
        });
    }
}

/// Answers the questions of an encrypted connection, as [`answer_all`].
async fn answer_encrypted(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    client: IpAddr,
    responder: &Responder,
) -> io::Result<()> {
    let stream = timeout(IDLE_TIME_MAX, TlsAcceptor::from(config).accept(stream)).await??;
    answer_all(stream, client, responder).await
}

/// Answers the questions of a connection until the client closes it or is silent for too long.
async fn answer_all(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    client: IpAddr,
    responder: &Responder,
) -> io::Result<()> {
    loop {
        let size = match timeout(IDLE_TIME_MAX, stream.read_u16()).await? {
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut packet = vec![0; usize::from(size)];
        timeout(IDLE_TIME_MAX, stream.read_exact(&mut packet)).await??;
        let response = match responder.begin(&packet, client, Transport::Tcp) {
            Step::Respond(response) => response,
            Step::Forward(job) => responder.finish(job).await,
            Step::Update(job) => responder.update(*job).await,
            Step::Transfer(job) => {
                let transfer = responder.transfer(*job).await;
                for message in &transfer.messages {
                    send(&mut stream, message).await?;
                }
                continue;
            }
            // The stream is not one of DNS questions.
            Step::Discard => return Ok(()),
        };
        send(&mut stream, &response).await?;
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let size = u16::try_from(message.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let message = [&size.to_be_bytes(), message].concat();
    timeout(IDLE_TIME_MAX, async {
        stream.write_all(&message).await?;
        stream.flush().await
    })
    .await?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source has 20 connections at once and all sources together 1,000. A closed connection makes room.
    #[test]
    fn connections_are_limited_by_source_and_together() {
        let limit = Arc::new(ConnectionLimit::default());
        let admit =
            |host: u16| limit.admit(IpAddr::from([10, 0, host.to_be_bytes()[0], host.to_be_bytes()[1]]));
        let mut open: Vec<_> = (0..20).map(|_| admit(1).unwrap()).collect();
        assert!(admit(1).is_none());
        open.pop();
        open.push(admit(1).unwrap());
        open.extend((0..980).map(|host| admit(100 + host).unwrap()));
        assert!(admit(2).is_none());
        open.clear();
        assert!(admit(2).is_some());
        assert_eq!(limit.0.lock().unwrap().sources.len(), 0);
    }
}
