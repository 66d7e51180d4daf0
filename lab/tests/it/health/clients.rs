//! Client that connects in a loop while an endpoint fails and recovers, and the results that are acceptable
//! in each phase of the test. The phases are `Whole` (the endpoint works), `Broken` (it fails), `Out` (it is
//! out of service) and `Back` (it is in service again).
//!
//! ```text
//!  Whole ──▶ Broken ──▶ Out ──▶ Back
//!    │         │          │       └ every connection succeeds, at any endpoint
//!    │         │          └ every connection succeeds, and none at the removed endpoint
//!    │         └ a connection may fail
//!    └ every connection succeeds
//! ```
//! Each client records the phases at the start and at the end of a connection. The results therefore do not depend
//! on a clock.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::host::netns::Namespace;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::answering::server_name;

/// Timeout of a reply while every endpoint that may be used works.
const PATIENCE: Duration = Duration::from_secs(20);
/// Timeout of a reply while the endpoint may be broken; short, so that the client soon detects the endpoint's
/// removal.
const IMPATIENCE: Duration = Duration::from_millis(150);
/// Interval at which a waiting connection checks its time limit.
const SLICE: Duration = Duration::from_millis(50);

/// Progress of a test with one failing endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Whole,
    Broken,
    Out,
    Back,
}

/// Current phase of the test, shared with the clients.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU8);

impl Clock {
    pub(crate) fn turn(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::SeqCst);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::SeqCst) {
            0 => Phase::Whole,
            1 => Phase::Broken,
            2 => Phase::Out,
            _ => Phase::Back,
        }
    }
}

/// Completed connection of a client: phases at its start and end, and outcome.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) began: Instant,
    pub(crate) begun_in: Phase,
    pub(crate) ended_in: Phase,
    /// Name of the backend that replied, or the error.
    pub(crate) outcome: Result<String, String>,
}

impl Made {
    /// Returns true if the result of the connection is not acceptable: a failure in a phase in which none is
    /// allowed, or a reply of the endpoint `victim` while that is out of service.
    pub(crate) fn is_wrong(&self, victim: &str) -> bool {
        let may_fail = self.begun_in <= Phase::Broken && self.ended_in >= Phase::Broken;
        match &self.outcome {
            Ok(name) => self.begun_in == Phase::Out && name == victim,
            Err(_) => !may_fail,
        }
    }
}

/// Client that connects in a loop until it is dropped.
pub(crate) struct Client {
    made: Arc<Mutex<Vec<Made>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    pub(crate) fn start(
        from: &Namespace,
        to: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        pause: Duration,
        clock: &Arc<Clock>,
    ) -> Self {
        let (made, stop) = (Arc::<Mutex<Vec<Made>>>::default(), Arc::<AtomicBool>::default());
        let (noted, stopped, clock) = (Arc::clone(&made), Arc::clone(&stop), Arc::clone(clock));
        let thread = from
            .spawn("client", move || {
                while !stopped.load(Ordering::SeqCst) {
                    let (began, begun_in) = (Instant::now(), clock.phase());
                    let patience = Patience { clock: &clock, began, begun_in };
                    let outcome = ask(to, tls.as_ref(), patience).map_err(|error| error.to_string());
                    let one = Made { began, begun_in, ended_in: clock.phase(), outcome };
                    noted.lock().unwrap().push(one);
                    thread::sleep(pause);
                }
            })
            .unwrap();
        Self { made, stop, thread: Some(thread) }
    }

    /// Returns the names of the backends that replied to connections that began in a phase.
    pub(crate) fn answers(&self, phase: Phase) -> Vec<String> {
        let made = self.made.lock().unwrap();
        made.iter().filter(|one| one.begun_in == phase).filter_map(|one| one.outcome.clone().ok()).collect()
    }

    /// Returns the number of failed connections.
    pub(crate) fn failures(&self) -> usize {
        self.made.lock().unwrap().iter().filter(|one| one.outcome.is_err()).count()
    }

    /// Stops the client and returns all connections that it has made.
    pub(crate) fn finish(mut self) -> Vec<Made> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.made.lock().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Time limit of a client's attempts: short if the endpoint may be broken in the current phase of the test,
/// otherwise long.
#[derive(Clone, Copy)]
struct Patience<'a> {
    clock: &'a Clock,
    began: Instant,
    begun_in: Phase,
}

impl Patience<'_> {
    fn is_over(self) -> bool {
        let may_fail = self.begun_in <= Phase::Broken && self.clock.phase() >= Phase::Broken;
        self.began.elapsed() > if may_fail { IMPATIENCE } else { PATIENCE }
    }

    /// Repeats an attempt whose I/O timed out until it succeeds, fails in a different way, or the time limit
    /// is reached.
    fn with<T>(self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(error) if is_early(&error) && !self.is_over() => {}
                outcome => return outcome,
            }
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn ask(to: SocketAddr, tls: Option<&Arc<ClientConfig>>, patience: Patience<'_>) -> io::Result<String> {
    // A connection in progress when the endpoint breaks must be given up eventually too.
    let longest = match patience.begun_in {
        Phase::Whole => Duration::from_secs(5),
        Phase::Broken => 2 * IMPATIENCE,
        Phase::Out | Phase::Back => PATIENCE,
    };
    let mut stream = TcpStream::connect_timeout(&to, longest)?;
    stream.set_read_timeout(Some(SLICE))?;
    let Some(config) = tls else { return request(&mut stream, patience) };
    let tls = ClientConnection::new(Arc::clone(config), server_name()).map_err(io::Error::other)?;
    request(&mut StreamOwned::new(tls, stream), patience)
}

/// Requests a page and returns its text.
fn request(stream: &mut (impl Read + Write), patience: Patience<'_>) -> io::Result<String> {
    let mut left: &[u8] = b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n";
    while !left.is_empty() {
        let written = patience.with(|| stream.write(left))?;
        left = &left[written..];
    }
    patience.with(|| stream.flush())?;
    let mut answer = String::new();
    let mut buffer = [0; 512];
    loop {
        let length = patience.with(|| stream.read(&mut buffer))?;
        answer.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if let Some((head, name)) = answer.split_once("\r\n\r\n")
            && let Some(name) = name.strip_suffix('\n')
        {
            let is_ok = head.starts_with("HTTP/1.1 200 ");
            let status = head.lines().next().unwrap_or_default();
            return if is_ok { Ok(name.to_owned()) } else { Err(io::Error::other(status.to_owned())) };
        }
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}
