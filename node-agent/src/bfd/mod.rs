//! BFD on the wire: sockets, and a thread of its own that sends and watches (RFC 5881, RFC 5883 for several hops).
//!
//! ```text
//!   owner ──set_peers, admin_down──▶ engine (one lock) ◀──packets, deadlines── thread "bfd": ppoll until the next deadline
//!   owner ◀──states, news──────────────┘
//! ```
//! What a session does is decided in the crate `bfd`, which knows no sockets. What must not happen here: waiting for
//! anything but the kernel's `ppoll`, work that grows with anything but packets and due deadlines, and an answer to
//! somebody who is no peer.
//!
//! The thread drains its sockets before it looks at the clock: packets that waited while this machine was busy count as
//! heard.
//!
//! Between agents of ours, `AdminDown` has two meanings, told apart by its diagnostic:
//!
//! - 7, [`HANDOVER`]: "I hand over, take my addresses now".
//! - 0, [`RESTART`]: "I restart or leave, keep what I have for a while". A session that is not wanted any more says so too.
//!
//! To other speakers both mean that the session is held down and the path has not failed (RFC 5882 §3.2).

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

/// The diagnostic of an `AdminDown` that says: I hand over, take my addresses now.
pub const HANDOVER: Diagnostic = Diagnostic::AdministrativelyDown;
/// The diagnostic of an `AdminDown` that says: I restart or leave, keep what I have for a while.
pub const RESTART: Diagnostic = Diagnostic::None;

/// The BFD of this node, as one owner of peers sees it; [`Self::share`] makes another. Dropping one of several ends the
/// sessions that nobody else wants, saying [`RESTART`]. Dropping the last one ends all sessions without a word: peers then
/// find a failed path, so say [`Self::admin_down`] first where that is not meant.
#[derive(Debug)]
pub struct Bfd {
    running: Arc<Running>,
    owner: Owner,
}

/// The thread, which ends with the last owner.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    owners: AtomicU32,
}

/// What the thread and its owners have in common.
#[derive(Debug)]
struct Shared {
    engine: Mutex<Engine>,
    /// Wakes the thread from its sleep.
    waker: UnixDatagram,
}

impl Shared {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect("no holder of the lock panics")
    }

    fn wake(&self) {
        // A full queue wakes as well.
        let _ = self.waker.send(&[0]);
    }
}

impl Bfd {
    /// Starts the thread, in the network namespace of the calling thread. Nothing is opened before there are peers.
    ///
    /// # Errors
    /// The kernel gives no thread or no sockets.
    pub fn start() -> io::Result<Self> {
        let (waker, wakes) = UnixDatagram::pair()?;
        waker.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        let shared = Arc::new(Shared { engine: Mutex::new(Engine::new()), waker });
        let thread = thread::spawn(Arc::clone(&shared), wakes)?;
        // The first one is number 0.
        let running = Running { shared, thread: Some(thread), owners: AtomicU32::new(1) };
        Ok(Self { running: Arc::new(running), owner: Owner(0) })
    }

    /// The same BFD for another owner of peers. A peer that several want has one session, with the intervals of the one
    /// that notices a failure sooner; its reach and its key are those that the elder owner says.
    #[must_use]
    pub fn share(&self) -> Self {
        let owner = Owner(self.running.owners.fetch_add(1, Ordering::Relaxed));
        Self { running: Arc::clone(&self.running), owner }
    }

    fn shared(&self) -> &Shared {
        &self.running.shared
    }

    /// Says with whom this owner wants sessions. Those that are wanted as they are go on untouched; those with other intervals
    /// renegotiate them without falling; those that are not wanted any more say [`RESTART`] and end.
    ///
    /// A peer that cannot be had, because of its addresses or because the local one is not on this node yet, fails alone:
    /// see [`PeerState::fault`]. What may change is tried again every second.
    ///
    /// # Errors
    /// More than [`PEERS_MAX`] with those of other owners; then nothing has changed.
    pub fn set_peers(&self, wanted: BTreeMap<PeerKey, SessionConfig>) -> Result<(), TooManyPeers> {
        self.shared().engine().set_peers(self.owner, wanted, Instant::now())?;
        self.shared().wake();
        Ok(())
    }

    /// Every session of this owner as it is.
    #[must_use]
    pub fn states(&self) -> BTreeMap<PeerKey, PeerState> {
        self.shared().engine().states(self.owner)
    }

    /// How many packets belonged to no session and were dropped.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        self.shared().engine().strangers()
    }

    /// A bell that rings at once when something other than counters and intervals has changed in [`Self::states`] of any
    /// owner.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.shared().engine().news()
    }

    /// Holds all sessions down, of all owners, also those that are set later. Several packets with the diagnostic have been given to the
    /// kernel for every peer when this returns.
    pub fn admin_down(&self, diagnostic: Diagnostic) {
        self.shared().engine().hold_down(diagnostic, Instant::now());
        self.shared().wake();
    }

    /// Lets sessions come up again after [`Self::admin_down`].
    pub fn enable(&self) {
        self.shared().engine().enable(Instant::now());
        self.shared().wake();
    }

    /// Ends this owner's part, as dropping it does.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Bfd {
    fn drop(&mut self) {
        // The last one goes without a word.
        if Arc::strong_count(&self.running) > 1 {
            let nothing = self.set_peers(BTreeMap::new());
            debug_assert!(nothing.is_ok(), "no peers are not too many");
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
