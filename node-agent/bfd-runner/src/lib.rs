//! BFD transport: sockets and a dedicated thread that sends and receives packets (RFC 5881, and RFC 5883 for
//! multihop paths). An owner is a user of BFD with its own set of peers, such as the BGP speaker.
//!
//! ```text
//!   owner ──set_peers, admin_down──▶ engine (one lock) ◀──packets, deadlines── thread "bfd": ppoll until the next deadline
//!   owner ◀──states, news──────────────┘
//! ```
//! The state machine is in the crate `bfd`, which has no I/O. Invariants: the thread blocks only in `ppoll`,
//! its work grows only with the packets received and the deadlines passed, and packets from unknown senders
//! get no reply.
//!
//! The thread drains its sockets before it reads the clock: packets that waited while this machine was busy
//! count as received in time.
//!
//! Between Tidegate agents, `AdminDown` has two meanings, distinguished by the diagnostic:
//!
//! - 7, [`HANDOVER`]: the sender hands over its addresses, which another node may take over at once.
//! - 0, [`RESTART`]: the sender restarts or leaves and keeps its addresses for a while. Also sent when a
//!   session is removed.
//!
//! For other BFD implementations both mean that the session is administratively down and the path has not
//! failed (RFC 5882 §3.2).

mod engine;
mod peer;
mod peers;
mod socket;
mod thread;
mod wants;

use std::{
    collections::BTreeMap,
    io,
    os::unix::net::UnixDatagram,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use ::bfd::Diagnostic;
use tokio::sync::watch;

use engine::Engine;
pub use peers::{
    Counters, Fault, PEERS_MAX, PeerKey, PeerState, Reach, RemoteState, SessionConfig, TooManyPeers,
};
use wants::Owner;

/// Diagnostic sent with `AdminDown` when this node hands over its addresses, so that another node takes over
/// at once.
pub const HANDOVER: Diagnostic = Diagnostic::AdministrativelyDown;
/// Diagnostic sent with `AdminDown` when this node restarts or a session is removed: other nodes wait before
/// they take over the addresses.
pub const RESTART: Diagnostic = Diagnostic::None;

/// Handle to the BFD sessions of this node for one owner, a user of BFD with its own set of peers.
/// [`Self::share`] creates a handle for a further owner. Dropping one of several handles ends the sessions
/// that no other owner wants, with the diagnostic [`RESTART`]. Dropping the last handle ends all sessions
/// silently, so that peers detect a path failure. Call [`Self::admin_down`] first to avoid that.
#[derive(Debug)]
pub struct Bfd {
    running: Arc<Running>,
    owner: Owner,
}

/// Handle of the BFD thread, shared by all [`Bfd`] handles; the thread ends with the last one.
#[derive(Debug)]
struct Running {
    shared: Arc<RunnerShared>,
    thread: Option<JoinHandle<()>>,
    owners: AtomicU32,
}

/// State shared by the BFD thread and all [`Bfd`] handles.
#[derive(Debug)]
struct RunnerShared {
    engine: Mutex<Engine>,
    /// Datagram socket that wakes the thread from `ppoll`.
    waker: UnixDatagram,
}

impl RunnerShared {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect("the lock is not poisoned")
    }

    fn wake(&self) {
        // A send to a full queue fails, but the thread wakes up anyway.
        let _ = self.waker.send(&[0]);
    }
}

impl Bfd {
    /// Starts the thread in the network namespace of the calling thread. No session socket is opened before
    /// there are peers.
    ///
    /// # Errors
    /// Returns an I/O error if the thread or its wake-up socket cannot be created.
    pub fn start() -> io::Result<Self> {
        let (waker, wakes) = UnixDatagram::pair()?;
        waker.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        let shared = Arc::new(RunnerShared { engine: Mutex::new(Engine::new()), waker });
        let thread = thread::spawn(Arc::clone(&shared), wakes)?;
        // The first owner has number 0.
        let running = Running { shared, thread: Some(thread), owners: AtomicU32::new(1) };
        Ok(Self { running: Arc::new(running), owner: Owner(0) })
    }

    /// Returns a handle for a further owner (user of BFD). If several owners want the same peer, there is one
    /// session. The session has the intervals of the owner with the shorter detection time, and the path type
    /// (single-hop or multihop) and the key of the oldest owner.
    #[must_use]
    pub fn share(&self) -> Self {
        let owner = Owner(self.running.owners.fetch_add(1, Ordering::Relaxed));
        Self { running: Arc::clone(&self.running), owner }
    }

    fn shared(&self) -> &RunnerShared {
        &self.running.shared
    }

    /// Sets the peers of this handle. Unchanged sessions continue, and changed intervals are renegotiated
    /// without an interruption. Sessions of removed peers send AdminDown with [`RESTART`] and end.
    ///
    /// If a session cannot be opened, for example because the local address is not on this node yet, only
    /// this peer fails: see [`PeerState::fault`]. Temporary failures are retried every second.
    ///
    /// # Errors
    /// Returns [`TooManyPeers`], and changes nothing, if the peers of all handles exceed [`PEERS_MAX`].
    pub fn set_peers(&self, wanted: BTreeMap<PeerKey, SessionConfig>) -> Result<(), TooManyPeers> {
        self.shared().engine().set_peers(self.owner, wanted, Instant::now())?;
        self.shared().wake();
        Ok(())
    }

    /// Returns the state of the session with each peer of this handle.
    #[must_use]
    pub fn states(&self) -> BTreeMap<PeerKey, PeerState> {
        self.shared().engine().states(self.owner)
    }

    /// Returns the number of packets that were dropped because they belong to no session.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        self.shared().engine().strangers()
    }

    /// Returns a receiver that is notified after every change of [`Self::states`] of any handle, except for
    /// changes of counters and intervals.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.shared().engine().news()
    }

    /// Puts all sessions of all handles, including later ones, into AdminDown. When the function returns,
    /// several packets with the diagnostic have been sent to every peer.
    pub fn admin_down(&self, diagnostic: Diagnostic) {
        self.shared().engine().hold_down(diagnostic, Instant::now());
        self.shared().wake();
    }

    /// Ends the AdminDown state that [`Self::admin_down`] has set, so that sessions can come up again.
    pub fn enable(&self) {
        self.shared().engine().enable(Instant::now());
        self.shared().wake();
    }

    /// Drops this handle, with the effects described for [`Bfd`].
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Bfd {
    fn drop(&mut self) {
        // The last handle ends its sessions silently.
        if Arc::strong_count(&self.running) > 1 {
            let nothing = self.set_peers(BTreeMap::new());
            debug_assert!(nothing.is_ok(), "an empty set of peers is within the limit");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.engine().stop();
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked_already = thread.join();
        }
    }
}
