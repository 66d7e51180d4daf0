//! A client that connects again and again until it is answered.

use std::{
    io::Read,
    net::{SocketAddr, TcpStream},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use lab::host::netns::Namespace;

/// Time between two attempts: nothing is measured finer.
const INTERVAL: Duration = Duration::from_micros(200);
/// How long an attempt may wait to be connected. A refusal is told at once, but the address of a Service that is still to come is
/// silent, and what was sent to it before then is lost: nothing that begins so is measured finer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2);
/// How long an address is silent that counts as silent.
const SILENCE: Duration = Duration::from_millis(25);
/// How long whoever took a connection may be silent.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
/// When a change counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client at work.
#[derive(Debug)]
pub(super) struct Asking {
    answered: Receiver<Result<Instant>>,
    thread: JoinHandle<()>,
}

impl Asking {
    /// When the first answer was there.
    ///
    /// # Errors
    /// None ever was.
    pub(super) fn answered(self) -> Result<Instant> {
        let answered = self.answered.recv().context("the client has ended without a word")?;
        self.thread.join().map_err(|_| anyhow!("the client has panicked"))?;
        answered
    }
}

/// Starts to ask. It returns after the first attempt was refused, so that the asking is under way.
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
                    break Err(error.context(format!("no answer of {to} in {PATIENCE:?}")));
                }
                Err(_) => thread::sleep(INTERVAL),
            }
            if let Some(begun) = begun.take() {
                // Nobody waits for it only when the benchmark has failed.
                let _ = begun.send(());
            }
        };
        let _ = tell.send(result);
    })?;
    // When the first attempt is answered, the channel closes: the latency will say so.
    let _ = begun.recv();
    Ok(Asking { answered, thread })
}

/// Whether nobody answers.
pub(super) fn is_refused(from: &Namespace, to: SocketAddr) -> bool {
    from.inside(|| attempt(to, SILENCE).is_err())
}

/// Connects and reads the beginning of the answer: of a relay, the connection alone proves nothing.
fn attempt(to: SocketAddr, patience: Duration) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.read_exact(&mut [0])?;
    Ok(())
}
