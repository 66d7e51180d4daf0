//! Clients that open connections in a closed loop, and a client that reads one stream.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use lab::host::netns::Namespace;

use super::backend::{ASK, FLOW};

/// Read and connect timeout of a connection; longer than the first retransmission of a lost segment, which is
/// sent after one second.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Read size of a stream in bytes.
const CHUNK: usize = 256 * 1024;

/// Results of the clients over one measuring period.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Time from the connect call to the reply of the backend in microseconds, for each successful
    /// connection.
    pub(crate) latencies_us: Vec<f64>,
    /// Number of connections that failed.
    pub(crate) failed: u64,
    /// Cause of the first failed connection.
    pub(crate) first_failure: Option<String>,
    /// Actual duration of the period; each client finishes its last connection after the planned end.
    pub(crate) elapsed: Duration,
}

/// Connects from a namespace in a closed loop with this number of concurrent clients.
///
/// # Errors
/// Returns an error if a thread cannot be started.
pub(crate) fn connect(from: &Namespace, to: SocketAddr, clients: u16, span: Duration) -> Result<Slice> {
    from.inside(|| {
        let begun = Instant::now();
        let mut whole = Slice::default();
        thread::scope(|scope| {
            // Threads started here inherit the namespace.
            let clients: Vec<_> =
                (0..clients).map(|_| scope.spawn(|| connect_until(to, begun + span))).collect();
            for client in clients {
                let slice = client.join().map_err(|_| anyhow!("a client panicked"))?;
                whole.latencies_us.extend(slice.latencies_us);
                whole.failed += slice.failed;
                whole.first_failure = whole.first_failure.take().or(slice.first_failure);
            }
            Ok::<_, anyhow::Error>(())
        })?;
        whole.elapsed = begun.elapsed();
        Ok(whole)
    })
}

fn connect_until(to: SocketAddr, end: Instant) -> Slice {
    let mut slice = Slice::default();
    loop {
        let begun = Instant::now();
        if begun >= end {
            return slice;
        }
        match ask(to) {
            Ok(answered) => slice.latencies_us.push((answered - begun).as_secs_f64() * 1e6),
            Err(error) => {
                slice.failed += 1;
                slice.first_failure.get_or_insert(error.to_string());
            }
        }
    }
}

/// Opens one connection, sends a byte, reads the reply, and waits until both ends have closed. Returns the
/// time of the reply.
fn ask(to: SocketAddr) -> std::io::Result<Instant> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut answer = [0];
    stream.write_all(&[ASK])?;
    stream.read_exact(&mut answer)?;
    let answered = Instant::now();
    // The side that closes first keeps the port for a minute; this is the backend, not the client.
    let _nothing_more = stream.read(&mut answer)?;
    Ok(answered)
}

/// Bytes of one stream received over one measuring period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    bytes: u64,
    elapsed: Duration,
}

impl Transfer {
    /// Returns the rate in bytes per second.
    pub(super) fn per_second(self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Reads one stream for a measuring period.
///
/// # Errors
/// Returns an error if the stream breaks.
pub(super) fn receive(from: &Namespace, to: SocketAddr, span: Duration) -> Result<Transfer> {
    from.inside(|| {
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).context("connecting the long stream")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&[FLOW])?;
        let mut chunk = vec![0; CHUNK];
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < span {
            let read = stream.read(&mut chunk).context("the long stream broke off")?;
            anyhow::ensure!(read > 0, "the backend closed the long stream");
            bytes += read as u64;
        }
        Ok(Transfer { bytes, elapsed: begun.elapsed() })
    })
}
