//! Relay process: a backend, connections of agents, and the end of the process.
//!
//! ```text
//!            ┌───────── Serve ─────────┐
//!            ▼                         │
//! start ─▶ active ──Resign, Retire──▶ leaving ──no connection left, or half an hour──▶ end
//!            └─────────────────End─────┴──────────────────────────────────────────────▶ end
//! ```
//! `Serve`, `Resign`, `Retire` and `End` are the intents with which an agent connects ([`Intent`]). An active
//! relay accepts new connections; a leaving one only serves established ones. The process does its own upkeep
//! once a second, with or without an agent. Invariants: the process does not end because an agent ends, and
//! touches no rule after another relay has taken over.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, ErrorKind, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{fcntl::Flock, unistd::setsid};
use tracing::{debug, info, warn};

use super::{
    OWN_PROGRAM,
    frames::{self, ANSWER_TIME_MAX, GREETING_TIME_MAX},
    place::{self, RelayDirectory},
    wire::{
        self, Answer, FRAME_BYTES_MAX, Failure, Farewell, GREETING_BYTES_MAX, Greeting, Intent, MAGIC,
        PROTOCOL, Refusal, Reply, Request, Welcome,
    },
};
use crate::{
    Dataplane as _, DesiredProgram, DesiredState, KernelError,
    userspace::{Limits, UserspaceBackend},
};

/// Interval of the periodic work of a relay process.
const TICK: Duration = Duration::from_secs(1);
/// Minimum time from the moment at which a relay stops accepting connections until it ends, for connections
/// that were already redirected to it.
const LEAVE_TIME_MIN: Duration = Duration::from_secs(2);
/// Maximum time for which a relay that accepts no more connections waits for established ones to finish.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Maximum number of connected agents: the current one, and former ones whose connection has not been closed
/// yet.
const AGENTS_MAX: usize = 8;
/// Maximum total size in bytes of the packet programs that one agent may send for one update of the kernel.
const STAGED_BYTES_MAX: usize = 1 << 30;

/// Parameters with which a relay process is started.
#[derive(Debug, Clone)]
pub struct RelayOrders {
    /// State directory of the agent, in which the process creates its socket.
    pub state_dir: PathBuf,
    /// Packet mark used by the rules that redirect connections to the relay; exactly one bit.
    pub mark: u32,
    /// True if another relay is running that will have to resign (accept no more connections), so that the
    /// lock may still be held.
    pub is_successor: bool,
    /// Function that returns the heap memory in use by the process in bytes; `None` if the allocator does not
    /// report it.
    pub heap_in_use_bytes: fn() -> Option<u64>,
}

/// Runs a relay until an agent has requested its end. Established connections may then continue for up to
/// half an hour, unless the agent has requested an end at once. Moves the process into a session of its own,
/// and calls `ready` once agents can connect.
///
/// # Errors
/// Returns an error if another relay is running, or the directory or the kernel cannot be used.
pub fn run(orders: &RelayOrders, ready: impl FnOnce()) -> anyhow::Result<()> {
    // Fails if the parent has already created a session for this process.
    let _is_leader = setsid();
    let RelayOrders { state_dir, mark, is_successor, heap_in_use_bytes } = orders;
    let place = RelayDirectory::of(state_dir);
    place.make().context("the relay's directory cannot be used")?;
    let namespace = place::namespace().context("the network namespace cannot be determined")?;
    let lock = place.lock(namespace, false).context("the relay's lock cannot be acquired")?;
    anyhow::ensure!(lock.is_some() || *is_successor, "another relay runs with this state directory");
    let (end, ended) = mpsc::channel();
    let served = Arc::new(ProcessState {
        backend: Mutex::new(UserspaceBackend::open(*mark, Limits::default())?),
        standing: Mutex::new(Standing { is_active: true, lock }),
        build: place::build(Path::new(OWN_PROGRAM)).context("the program file cannot be read")?,
        namespace,
        mark: *mark,
        heap_in_use_bytes: *heap_in_use_bytes,
        agents: AtomicUsize::new(0),
        end,
    });
    if *is_successor {
        wait_for_lock(&served, &place)?;
    }
    let pid = std::process::id();
    let listener = place.listen(pid).context("the relay's socket cannot be created")?;
    // Otherwise the file system of the initial working directory could not be unmounted.
    std::env::set_current_dir("/")?;
    let accepting = Arc::clone(&served);
    thread::Builder::new().name("agents".to_owned()).spawn(move || accept(&accepting, &listener))?;
    ready();
    info!(pid, "the relay is running");
    wait_for_end(&served, &ended);
    if let Err(error) = place.leave(pid) {
        warn!(%error, "the relay's socket was not removed");
    }
    info!(pid, "the relay ends");
    Ok(())
}

/// State that the threads of a relay process share. A thread that needs several locks takes the backend's
/// lock first.
struct ProcessState {
    backend: Mutex<UserspaceBackend>,
    standing: Mutex<Standing>,
    build: String,
    namespace: u64,
    mark: u32,
    heap_in_use_bytes: fn() -> Option<u64>,
    agents: AtomicUsize,
    end: mpsc::Sender<()>,
}

struct Standing {
    /// True if this relay accepts new connections and owns the rules.
    is_active: bool,
    /// Lock of the network namespace, held while this relay is active; `None` while an older relay still
    /// holds it, and once this relay is no longer active. The value is stored only because dropping it
    /// releases the lock.
    lock: Option<Flock<File>>,
}

impl ProcessState {
    fn backend(&self) -> MutexGuard<'_, UserspaceBackend> {
        self.backend.lock().expect("the lock is not poisoned")
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().expect("the lock is not poisoned")
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            magic: MAGIC,
            protocol: PROTOCOL,
            build: self.build.clone(),
            is_active: self.standing().is_active,
            namespace: self.namespace,
            mark: self.mark,
        }
    }
}

/// Starts a thread that acquires the lock of the network namespace once the older relay releases it.
fn wait_for_lock(served: &Arc<ProcessState>, place: &RelayDirectory) -> io::Result<()> {
    let (served, place) = (Arc::clone(served), place.clone());
    thread::Builder::new().name("lock".to_owned()).spawn(move || {
        match place.lock(served.namespace, true) {
            Ok(lock) => {
                let mut standing = served.standing();
                standing.lock = lock.filter(|_| standing.is_active);
            }
            Err(error) => warn!(%error, "the relay's lock was not acquired"),
        }
    })?;
    Ok(())
}

fn wait_for_end(served: &ProcessState, ended: &mpsc::Receiver<()>) {
    let mut leaving_since = None;
    loop {
        match ended.recv_timeout(TICK) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut backend = served.backend();
        if let Err(error) = backend.upkeep() {
            warn!(%error, "the relay's upkeep failed");
        }
        if served.standing().is_active {
            continue;
        }
        let time = leaving_since.get_or_insert_with(Instant::now).elapsed();
        if time >= LEAVE_TIME_MAX || (time >= LEAVE_TIME_MIN && backend.is_drained()) {
            return;
        }
    }
}

fn accept(served: &Arc<ProcessState>, listener: &UnixListener) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // The most likely cause is that no descriptor is left.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if let Err(error) = place::check_peer(&stream) {
            warn!(%error, "a connection from another user was rejected");
            continue;
        }
        if served.agents.fetch_add(1, Ordering::Relaxed) >= AGENTS_MAX {
            served.agents.fetch_sub(1, Ordering::Relaxed);
            warn!(max = AGENTS_MAX, "too many agents");
            continue;
        }
        let attending = Arc::clone(served);
        let attend = move || {
            if let Err(error) = attend(&attending, &stream) {
                debug!(%error, "a connection of an agent ended");
            }
            attending.agents.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("agent".to_owned()).spawn(attend) {
            served.agents.fetch_sub(1, Ordering::Relaxed);
            warn!(%error, "no thread for an agent");
        }
    }
}

fn attend(served: &ProcessState, mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(GREETING_TIME_MAX))?;
    stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    let Some((greeting, _)) = frames::read::<Greeting>(&mut stream, GREETING_BYTES_MAX)? else {
        return Ok(());
    };
    let Greeting { magic, protocol, intent } = greeting;
    if magic != MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidData, "the greeting does not come from an agent"));
    }
    frames::write(stream, &served.welcome())?;
    match intent {
        Intent::Serve if protocol == PROTOCOL => {
            stream.set_read_timeout(None)?;
            converse(served, stream)
        }
        Intent::Serve => Ok(()),
        Intent::Resign | Intent::Retire => frames::write(stream, &leave(served, intent)),
        Intent::End => {
            let farewell = leave(served, intent);
            let is_over = farewell.failure.is_none();
            frames::write(stream, &farewell)?;
            if is_over && served.end.send(()).is_ok() {
                // The peer detects the end of the process by the end of the connection.
                loop {
                    thread::park();
                }
            }
            Ok(())
        }
    }
}

/// Stops accepting connections, and removes the rules unless another relay owns them.
fn leave(served: &ProcessState, intent: Intent) -> Farewell {
    let mut backend = served.backend();
    let removed = match intent {
        _ if !served.standing().is_active => Ok(0),
        Intent::Serve => Ok(0),
        Intent::Resign => {
            backend.resign();
            Ok(0)
        }
        Intent::Retire => backend.withdraw(),
        Intent::End => backend.cleanup(),
    };
    if removed.is_ok() {
        let mut standing = served.standing();
        (standing.is_active, standing.lock) = (false, None);
        info!(?intent, "the relay accepts no new connections");
    }
    Farewell {
        objects: removed.as_ref().copied().unwrap_or_default(),
        is_drained: backend.is_drained(),
        failure: removed.err().as_ref().map(Failure::from),
    }
}

/// Processes requests of an agent until it disconnects.
fn converse(served: &ProcessState, stream: &UnixStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut staged, mut staged_bytes) = (BTreeMap::new(), 0);
    while let Some((request, length)) = frames::read::<Request>(&mut reader, FRAME_BYTES_MAX)? {
        match request {
            Request::Stage { service, revision, program } => {
                staged_bytes += length;
                if staged_bytes > STAGED_BYTES_MAX {
                    let message = format!("more than {STAGED_BYTES_MAX} bytes were staged");
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
                staged.insert(service, DesiredProgram { revision, program });
            }
            Request::Apply { networks, scope } => {
                let desired = DesiredState { programs: std::mem::take(&mut staged), networks };
                staged_bytes = 0;
                answer(served, stream, true, |backend| Ok(backend.apply(&desired, &scope).into()))?;
            }
            Request::Preview { networks, scope } => {
                let desired = DesiredState { programs: std::mem::take(&mut staged), networks };
                staged_bytes = 0;
                answer(served, stream, true, |it| it.preview(&desired, &scope).map(Reply::Preview))?;
            }
            Request::Observe => answer(served, stream, true, |it| it.observe().map(|()| Reply::Done))?,
            Request::IsDisturbed => {
                answer(served, stream, true, |it| it.is_disturbed().map(Reply::Disturbed))?;
            }
            Request::Traffic => answer(served, stream, false, |it| it.traffic().map(Reply::Traffic))?,
            Request::Refusals => answer(served, stream, false, |it| it.refusals().map(Reply::Refusals))?,
            Request::Trace(packet) => {
                let first = |traced: Option<Vec<_>>| traced.and_then(|traced| traced.into_iter().next());
                answer(served, stream, true, |it| it.trace(&[packet]).map(first).map(Reply::Traced))?;
            }
            Request::Count => answer(served, stream, false, |_| Ok(Reply::Done))?,
        }
    }
    Ok(())
}

/// Processes a request and returns its result. A request that changes or reads the rules (`is_about_rules`)
/// is rejected if this relay no longer owns them.
fn answer(
    served: &ProcessState,
    mut stream: &UnixStream,
    is_about_rules: bool,
    work: impl FnOnce(&mut UserspaceBackend) -> Result<Reply, KernelError>,
) -> io::Result<()> {
    let answer = {
        let mut backend = served.backend();
        let reply = if is_about_rules && !served.standing().is_active {
            Err(Refusal::Left)
        } else {
            work(&mut backend).map_err(|error| Refusal::Failed((&error).into()))
        };
        let heap_in_use_bytes = (served.heap_in_use_bytes)();
        Answer { counters: backend.counters(), heap_in_use_bytes, reply }
    };
    let frame = wire::encode(&answer).or_else(|source| {
        // A reply that exceeds the frame size is replaced by an error, so that the connection stays usable.
        let failure = Failure::from(&KernelError { action: "answering".to_owned(), source });
        wire::encode(&Answer { reply: Err(Refusal::Failed(failure)), ..answer })
    });
    stream.write_all(&frame?)
}
