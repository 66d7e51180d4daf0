//! Streaming responses with backpressure: the server queues a limited number of bytes for each client, and
//! disconnects a client that does not read them in time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of bytes that a stream queues for its client, until the connection takes them. A larger piece is
/// queued alone. With the maximum number of watches, clients that do not read cause 128 MiB.
const QUEUED_BYTES_MAX: u32 = 128 * 1024;
/// Maximum number of pieces in the queue, for pieces of a few bytes.
const PIECES_MAX: usize = 64;
/// Number of bytes that a stream collects before it sends them as one piece.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// Maximum time to wait for space in a client's queue. A client that does not read for so long is
/// disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of heartbeats on an idle stream. The API promises at most 10 s.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Error: the client has disconnected, or has not read for [`SEND_TIMEOUT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Sender of the pieces of a streaming response's body. The HTTP body is the receiver.
#[derive(Debug)]
pub(crate) struct Pieces {
    queue: mpsc::Sender<QueuedPiece>,
    /// Space in the queue, one permit for each byte.
    space: Arc<Semaphore>,
}

/// Piece in the queue, with the space that it occupies there.
#[derive(Debug)]
struct QueuedPiece {
    bytes: Bytes,
    _space: OwnedSemaphorePermit,
}

impl Pieces {
    /// Queues a piece of the body, and waits for space in the queue if it is full. Returns an error if the client
    /// is gone or does not read in time.
    pub(crate) async fn send(&self, piece: Bytes) -> Result<(), Gone> {
        let size = u32::try_from(piece.len()).map_or(QUEUED_BYTES_MAX, |size| size.min(QUEUED_BYTES_MAX));
        let queued = async {
            let space = tokio::select! {
                space = Arc::clone(&self.space).acquire_many_owned(size) => space.map_err(|_| Gone)?,
                () = self.queue.closed() => return Err(Gone),
            };
            self.queue.send(QueuedPiece { bytes: piece, _space: space }).await.map_err(|_| Gone)
        };
        tokio::time::timeout(SEND_TIMEOUT, queued).await.unwrap_or(Err(Gone))
    }

    /// Waits until the client has disconnected, which drops the body.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }
}

/// Creates the sender of a streaming response and the body that carries its pieces.
pub(crate) fn pieces() -> (Pieces, Body) {
    let (queue, receiver) = mpsc::channel(PIECES_MAX);
    let space = Arc::new(Semaphore::new(QUEUED_BYTES_MAX as usize));
    let pieces = ReceiverStream::new(receiver).map(|piece: QueuedPiece| Ok::<_, Infallible>(piece.bytes));
    (Pieces { queue, space }, Body::from_stream(pieces))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn bytes_count_until_the_connection_takes_them() {
        let (pieces, mut body) = pieces();
        let piece = |size: usize| Bytes::from(vec![0; size]);
        let free = || pieces.space.available_permits();
        pieces.send(piece(QUEUED_BYTES_MAX as usize - 10)).await.unwrap();
        pieces.send(piece(10)).await.unwrap();
        assert_eq!(free(), 0);
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(free(), QUEUED_BYTES_MAX as usize - 10);
        let second = body.frame().await.unwrap().unwrap();
        assert_eq!(free(), QUEUED_BYTES_MAX as usize);
        drop((first, second));
        pieces.send(piece(10 * QUEUED_BYTES_MAX as usize)).await.unwrap();
        assert_eq!(free(), 0, "a large piece is queued alone");
        let (sent, ()) = tokio::join!(pieces.send(piece(1)), async { drop(body) });
        assert_eq!(sent, Err(Gone));
    }
}
