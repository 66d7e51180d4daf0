//! Client that opens one connection after another, for tests of changes that may not lose a packet.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};

use super::client::Connection;
use crate::host::{netns::Namespace, wait};

/// Connect timeout. The kernel sends a SYN segment again after 1 s (RFC 6298 section 2.1), so that a connection whose
/// first SYN segment or its answer is lost is a failure and not only slow.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);

/// Client that opens one TCP connection after another until it is stopped, and records the failed ones.
#[derive(Debug)]
pub struct SteadyClient {
    is_stopped: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl SteadyClient {
    /// Starts a client in a namespace. It opens connections to an echo server ([`crate::network::echo`]).
    #[must_use]
    pub fn start(from: &Namespace, to: SocketAddr) -> Self {
        let from = from.clone();
        Self::start_with(move || Connection::open_within(&from, to, CONNECT_TIMEOUT).map(drop))
    }

    /// Starts a client that makes one attempt after another, each with a connection of its own.
    #[must_use]
    pub fn start_with(attempt: impl Fn() -> Result<()> + Send + 'static) -> Self {
        let (is_stopped, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (Arc::clone(&is_stopped), Arc::clone(&opened));
        let thread = thread::spawn(move || {
            let mut failures = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match attempt() {
                    Ok(()) => _ = count.fetch_add(1, Ordering::Relaxed),
                    Err(error) => failures.push(format!("{error:#}")),
                }
            }
            failures
        });
        Self { is_stopped, opened, thread }
    }

    /// Waits until the client has opened `connections` further connections.
    ///
    /// # Errors
    /// Returns an error if this takes too long.
    pub fn wait(&self, connections: usize) -> Result<()> {
        let until = self.opened.load(Ordering::Relaxed) + connections;
        wait::until_true("further connections", || self.opened.load(Ordering::Relaxed) >= until)
    }

    /// Stops the client, and checks that it lost no packet while the path changed `moves` times.
    ///
    /// # Errors
    /// Returns an error if a connection was refused or timed out, or if more than one connection per change of the
    /// path was reset.
    pub fn end(self, moves: usize) -> Result<()> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let failures = self.thread.join().map_err(|_panic| anyhow!("the client has panicked"))?;
        only_moved(&failures, moves)
    }
}

/// Checks that the failures of a client with at most one connection in progress are resets, at most one for each of
/// `moves` changes of the path: the segments of a connection in progress then reach a node that does not know it.
///
/// # Errors
/// Returns an error with all failures otherwise.
pub fn only_moved(failures: &[String], moves: usize) -> Result<()> {
    let are_resets = failures.iter().all(|failure| failure.contains("reset"));
    ensure!(failures.len() <= moves && are_resets, "lost in {moves} moves: {failures:#?}");
    Ok(())
}
