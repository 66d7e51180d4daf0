//! Clients that connect as fast as they are served, and one that reads as fast as it is sent.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use lab::host::netns::Namespace;

use super::backend::{ASK, FLOW};

/// After this a connection has failed; a segment that is lost is sent again after one second.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of one read of a flow.
const CHUNK: usize = 256 * 1024;

/// What clients saw in a span of time.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// From the call that connects to the answer of the backend, in microseconds, for every connection that was answered.
    pub(crate) latencies_us: Vec<f64>,
    /// Connections that were not.
    pub(crate) failed: u64,
    /// Why the first of them was not.
    pub(crate) first_failure: Option<String>,
    /// How long it took: the last connection of each client ends after the span does.
    pub(crate) elapsed: Duration,
}

/// Connects from a namespace again and again, so many clients at once.
///
/// # Errors
/// A thread cannot be started.
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

/// One connection: a byte, its answer, the end of the other side, and the end of ours. Gives when the answer was there.
fn ask(to: SocketAddr) -> std::io::Result<Instant> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut answer = [0];
    stream.write_all(&[ASK])?;
    stream.read_exact(&mut answer)?;
    let answered = Instant::now();
    // Whoever closes first keeps the port for a minute; that is the backend, not the client.
    let _nothing_more = stream.read(&mut answer)?;
    Ok(answered)
}

/// Bytes that came in a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    bytes: u64,
    elapsed: Duration,
}

impl Received {
    /// Bytes per second.
    pub(super) fn per_second(self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Reads one flow for a span of time.
///
/// # Errors
/// It breaks off.
pub(super) fn receive(from: &Namespace, to: SocketAddr, span: Duration) -> Result<Received> {
    from.inside(|| {
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).context("the long flow")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&[FLOW])?;
        let mut chunk = vec![0; CHUNK];
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < span {
            let read = stream.read(&mut chunk).context("the long flow broke off")?;
            anyhow::ensure!(read > 0, "the long flow was ended");
            bytes += read as u64;
        }
        Ok(Received { bytes, elapsed: begun.elapsed() })
    })
}
