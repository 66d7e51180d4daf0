//! Streaming responses with backpressure: a client that does not read is disconnected, never buffered for.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of pieces in flight per client. With pieces of 64 KiB a stream takes at most half a
/// mebibyte.
const PIECES_MAX: usize = 8;
/// Bytes gathered before a piece is sent.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// Time that a piece may stay unread: three missed heartbeats.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between heartbeats. The contract says 10 s at most.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// The client went away, or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// The writing end of a long answer.
#[derive(Debug)]
pub(crate) struct Pieces(mpsc::Sender<Bytes>);

impl Pieces {
    /// Sends a piece once there is room for it.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), Gone> {
        match tokio::time::timeout(SEND_TIMEOUT, self.0.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Waits until the client has gone away.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Makes both ends of a long answer.
pub(crate) fn pieces() -> (Pieces, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    (Pieces(sender), Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>)))
}
