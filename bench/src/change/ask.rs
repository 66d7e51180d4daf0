//! TCP client that connects in a loop until a backend replies.

use std::{
    io::Read,
    net::{SocketAddr, TcpStream},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use lab::host::netns::Namespace;

/// Interval between connection attempts, which is the resolution of the measurement.
const INTERVAL: Duration = Duration::from_micros(200);
/// Connect timeout of an attempt. A Service without endpoints refuses at once, but packets to a Service that
/// does not exist yet are dropped. An attempt that begins before the Service exists therefore fails only
/// after this time, which is the resolution of measurements of a new Service.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2);
/// Time without any reply after which an address counts as not responding.
const SILENCE: Duration = Duration::from_millis(25);
/// Read timeout on an established connection.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
/// Timeout after which a change counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// Client running in its own thread.
#[derive(Debug)]
pub(super) struct Asking {
    answered: Receiver<Result<Instant>>,
    thread: JoinHandle<()>,
}

impl Asking {
    /// Waits for the first reply and returns its time.
    ///
    /// # Errors
    /// Returns an error if there was no reply in time.
    pub(super) fn answered(self) -> Result<Instant> {
        let answered = self.answered.recv().context("the client ended without a result")?;
        self.thread.join().map_err(|_| anyhow!("the client panicked"))?;
        answered
    }
}

/// Starts a client. Returns after its first attempt has failed, so that it is certainly running.
pub(super) fn until_answered(from: &Namespace, to: SocketAddr) -> Result<Asking> {
    let (tell, answered) = mpsc::channel();
    let (tell_begun, begun) = mpsc::channel();
    let thread = from.spawn("asking", move || {
        let deadline = Instant::now() + PATIENCE;
        let mut begun = Some(tell_begun);
        let result = loop {
            match attempt(to, CONNECT_TIMEOUT) {
                Ok(()) => break Ok(Instant::now()),
                Err(error) if Instant::now() > deadline => {
                    break Err(error.context(format!("no reply of {to} within {PATIENCE:?}")));
                }
                Err(_) => thread::sleep(INTERVAL),
            }
            if let Some(begun) = begun.take() {
                // The receiver is gone only if the benchmark has failed.
                let _ = begun.send(());
            }
        };
        let _ = tell.send(result);
    })?;
    // If the first attempt succeeds, the channel closes; the latency then shows it.
    let _ = begun.recv();
    Ok(Asking { answered, thread })
}

/// Returns true if connections to an address are refused or get no reply.
pub(super) fn is_refused(from: &Namespace, to: SocketAddr) -> bool {
    from.inside(|| attempt(to, SILENCE).is_err())
}

/// Connects and reads the beginning of the reply, because with a relay an established connection alone does not
/// prove that a backend is reached.
fn attempt(to: SocketAddr, patience: Duration) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.read_exact(&mut [0])?;
    Ok(())
}
