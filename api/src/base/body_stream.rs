//! Streaming responses with backpressure: the server queues at most a few pieces (chunks of the response
//! body) for each client, and disconnects a client that does not read them in time.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of pieces of a response body that are queued for one client. With pieces of 64 KiB, a stream
/// buffers at most 512 KiB.
const PIECES_MAX: usize = 8;
/// Number of bytes that a stream collects before it sends them as one piece.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// Maximum time to wait for space in a client's queue of pieces. A client that does not read for so long is
/// disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of heartbeats on an idle stream. The API promises at most 10 s.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Error: the client has disconnected, or has not read for [`SEND_TIMEOUT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Sender of the pieces of a streaming response's body. The HTTP body is the receiver.
#[derive(Debug)]
pub(crate) struct Pieces(mpsc::Sender<Bytes>);

impl Pieces {
    /// Queues a piece of the body, and waits for space in the queue if it is full. Returns an error if the client
    /// is gone or does not read in time.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), Gone> {
        match tokio::time::timeout(SEND_TIMEOUT, self.0.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Waits until the client has disconnected, which drops the body.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Creates the sender of a streaming response and the body that carries its pieces.
pub(crate) fn pieces() -> (Pieces, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    (Pieces(sender), Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>)))
}
