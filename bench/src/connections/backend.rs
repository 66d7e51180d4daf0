//! Backend server: echoes one byte and closes, or sends zeros until the client closes.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use lab::host::netns::Namespace;

/// Request byte of a client that expects a one-byte reply.
pub(super) const ASK: u8 = b'a';
/// Request byte of a client that expects an endless stream.
pub(super) const FLOW: u8 = b'f';

/// Number of threads that accept connections. Each waits for the request byte of one connection; the other
/// threads accept further connections meanwhile.
const THREADS: usize = 4;
/// Timeout for the request byte and for writes to the client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which an idle thread checks for the stop flag.
const IDLE: Duration = Duration::from_millis(200);
/// Write size of a stream in bytes.
const CHUNK: usize = 256 * 1024;

/// Running server that ends when dropped.
#[derive(Debug)]
pub(crate) struct Backend {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Backend {
    /// Listens on every IPv4 address of a namespace.
    pub(crate) fn start(namespace: &Namespace, port: u16) -> Result<Self> {
        let listener = namespace
            .inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
            .with_context(|| format!("cannot listen on port {port} of {}", namespace.name()))?;
        nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::ReceiveTimeout, &timeout(IDLE))?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            let (listener, stop) = (listener.try_clone()?, Arc::clone(&stop));
            threads.push(
                thread::Builder::new().name("backend".to_owned()).spawn(move || serve(&listener, &stop))?,
            );
        }
        Ok(Self { stop, threads })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn timeout(duration: Duration) -> nix::sys::time::TimeVal {
    nix::sys::time::TimeVal::new(0, i64::from(duration.subsec_micros()))
}

fn serve(listener: &TcpListener, stop: &Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        // An error is the timeout, or a client that is gone already.
        let Ok((mut connection, _)) = listener.accept() else { continue };
        let _client_may_be_gone = answer(&mut connection, stop);
    }
}

fn answer(connection: &mut TcpStream, stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    connection.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    connection.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut wanted = [0];
    connection.read_exact(&mut wanted)?;
    if wanted[0] != FLOW {
        connection.write_all(&wanted)?;
        return connection.shutdown(Shutdown::Write);
    }
    let (mut flow, stop) = (connection.try_clone()?, Arc::clone(stop));
    // The thread ends when the client closes.
    thread::Builder::new().name("flow".to_owned()).spawn(move || {
        let zeros = vec![0; CHUNK];
        while !stop.load(Ordering::Relaxed) && flow.write_all(&zeros).is_ok() {}
    })?;
    Ok(())
}
