//! Streaming responses with backpressure: a client that does not read is disconnected, never buffered for.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of pieces queued for one client. With pieces of 64 KiB, a stream buffers at most 512 KiB.
const PIECES_MAX: usize = 8;
/// Number of bytes that a stream collects before it sends a piece.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// Time that a piece may stay unread: three missed heartbeats.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of heartbeats on an idle stream. The API promises at most 10 s.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// The client went away, or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Sender of the body of a streaming response; the receiver is the HTTP body.
#[derive(Debug)]
pub(crate) struct Pieces(mpsc::Sender<Bytes>);

impl Pieces {
    /// Queues a piece, waiting for room in the queue. Returns an error if the client is gone or does not read
    /// in time.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), Gone> {
        match tokio::time::timeout(SEND_TIMEOUT, self.0.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Waits until the client has gone away, that is, until the body is dropped.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Creates the sender of a streaming response and the body that carries its pieces.
pub(crate) fn pieces() -> (Pieces, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    (Pieces(sender), Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>)))
}
