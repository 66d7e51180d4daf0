//! The last moments of a connection: the NOTIFICATION has to arrive.
//!
//! A connection that is closed while bytes wait to be read is reset by the kernel, and what was sent last is lost at the
//! neighbour. So everything is sent, then the end is, then what comes is read until the neighbour closes as well.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::connection::Connection;

/// How long a neighbour may take to hear the last word.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// What is read of a neighbour that goes on speaking, in bytes.
const LINGER_BYTES_MAX: u64 = 8 << 20;
/// Connections that linger at once; more are closed without waiting.
const LINGERING_MAX: usize = 64;

/// Closes connections; clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct Lingering {
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Lingering {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(LINGERING_MAX)), tasks: TaskTracker::new() }
    }

    /// Closes a connection when what waits was sent, or after a short time.
    pub(super) fn close(&self, connection: Connection) {
        let (stream, unsent) = connection.into_parts();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        self.tasks.spawn(async move {
            let _in_time = timeout(LINGER_TIME_MAX, finish(stream, unsent)).await;
            drop(place);
        });
    }

    /// Waits until all are closed.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn finish(mut stream: TcpStream, unsent: Vec<u8>) {
    // Whoever is gone hears nothing more.
    if stream.write_all(&unsent).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(LINGER_BYTES_MAX);
    let mut buffer = [0; 4096];
    while matches!(rest.read(&mut buffer).await, Ok(bytes) if bytes > 0) {}
}
