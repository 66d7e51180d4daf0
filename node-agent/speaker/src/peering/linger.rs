//! Graceful close of a connection, so that the last NOTIFICATION arrives.
//!
//! If a connection is closed with unread received bytes, the kernel resets it and the peer may lose the last
//! message. Therefore, all bytes are sent, the sending direction is shut down, and received bytes are read
//! until the neighbor closes as well.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::connection::Connection;

/// Maximum time for a graceful close.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of bytes read and discarded from a neighbor that continues to send during a close.
const LINGER_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of concurrent graceful closes; further connections are closed at once.
const LINGERING_MAX: usize = 64;

/// Tracker of connections that are being closed gracefully. Clones share the limit [`LINGERING_MAX`].
#[derive(Debug, Clone)]
pub(super) struct Lingering {
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Lingering {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(LINGERING_MAX)), tasks: TaskTracker::new() }
    }

    /// Closes a connection after its unsent bytes have been sent, or after [`LINGER_TIME_MAX`].
    pub(super) fn close(&self, connection: Connection) {
        let (stream, unsent) = connection.into_parts();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        self.tasks.spawn(async move {
            let _in_time = timeout(LINGER_TIME_MAX, finish(stream, unsent)).await;
            drop(place);
        });
    }

    /// Waits until all graceful closes have ended.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn finish(mut stream: TcpStream, unsent: Vec<u8>) {
    // A closed connection needs no further reads.
    if stream.write_all(&unsent).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(LINGER_BYTES_MAX);
    let mut buffer = [0; 4096];
    while matches!(rest.read(&mut buffer).await, Ok(bytes) if bytes > 0) {}
}
