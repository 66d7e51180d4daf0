//! Questions over TCP (RFC 7766): several on one connection, answered in order.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    message::Transport,
    responder::{Responder, Step},
};

/// Maximum number of open connections.
const CONNECTIONS_MAX: usize = 1000;
/// Maximum time to wait for the next question of a connection, and for each part of it.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Delay after an error of the listening socket, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limit on open connections of all addresses together.
#[derive(Debug)]
pub(super) struct Limit(Arc<Semaphore>);

impl Default for Limit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS_MAX)))
    }
}

/// Accepts connections of one address until the task is cancelled.
pub(super) async fn serve(listener: TcpListener, responder: Arc<Responder>, limit: Arc<Limit>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&limit.0).try_acquire_owned() else {
            responder.metrics().connections_refused.inc();
            continue;
        };
        let responder = Arc::clone(&responder);
        tokio::spawn(async move {
            responder.metrics().connections.inc();
            if let Err(error) = answer_all(stream, &responder).await {
                tracing::debug!(%error, "a connection ended");
            }
            responder.metrics().connections.dec();
            drop(permit);
        });
    }
}

/// Answers the questions of a connection until the client closes it or is silent for too long.
async fn answer_all(mut stream: TcpStream, responder: &Responder) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let size = match timeout(IDLE_TIME_MAX, stream.read_u16()).await? {
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut packet = vec![0; usize::from(size)];
        timeout(IDLE_TIME_MAX, stream.read_exact(&mut packet)).await??;
        let response = match responder.begin(&packet, Transport::Tcp) {
            Step::Respond(response) => response,
            Step::Forward(job) => responder.finish(job).await,
            // The stream is not one of DNS questions.
            Step::Discard => return Ok(()),
        };
        let size = u16::try_from(response.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        timeout(IDLE_TIME_MAX, stream.write_all(&[&size.to_be_bytes(), &response[..]].concat())).await??;
    }
}
