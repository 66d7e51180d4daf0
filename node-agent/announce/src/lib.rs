//! Announcement of load balancer addresses: decides which addresses this node owns, and answers for them.
//!
//! ```text
//!  state, outcomes ──┐
//!  liveness (BFD)  ──┼─▶ thread ─▶ owners ─▶ machine (per address) ─▶ announce · withdraw · probe ─▶ the wire
//!  other announcers ─┘                └─▶ status and reports
//! ```
//! Decisions are in `ownership`; `l2` and `ping` answer for the addresses (ARP, NDP, ICMP echo).
//!
//! Works without a connection to control. Invariant: an address is never announced while this node does not
//! serve it. It is withdrawn before the kernel pass that removes it and announced after the pass that adds
//! it.

pub mod adapters;
pub mod l2;
pub mod neighbours;
pub mod ownership;
pub mod ping;
mod settings;
mod show;
pub mod start;
pub mod status;
pub mod thread;

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{self, Sender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use base::Gate;
use model::{kinds::resource::ServiceKey, primitives::secret::Secret, wire::feed::AddressState};
use tokio::sync::watch;
use tracing::warn;

pub use self::settings::AnnounceConfig;
use self::{
    ownership::io_traits::OnExit,
    status::Announcements,
    thread::{Message, Parts},
};

/// Maximum time the agent waits for addresses to be withdrawn before it changes the kernel.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum time [`Announcing::leave`] waits for the announcing thread to hand over its addresses and to end.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(4);

/// Sender to the announcing thread; clones share the channel. The default is unconnected, for agents that
/// announce nothing.
#[derive(Debug, Clone, Default)]
pub struct Announcing(Option<Sender<Message>>);

/// State change that the announcing thread has to follow before the agent's next pass writes it to the
/// kernel.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// Added, changed and removed load balancer addresses; `None` marks a removed address.
    pub addresses: Vec<(IpAddr, Option<Arc<AddressState>>)>,
    /// True if the addresses come from the journal, so another node may have taken them since they were
    /// written.
    pub is_old: bool,
    /// Services that the kernel will not have after the next pass.
    pub closing: BTreeSet<ServiceKey>,
    /// Services that the next pass changes; their added addresses wait for that pass.
    pub changing: BTreeSet<ServiceKey>,
    /// Secret shared by all nodes, from which the BFD key between them is derived; `None` disables
    /// authentication.
    pub key: Option<Secret>,
}

/// Handles of the announcing thread, returned by [`spawn`].
pub struct Running {
    /// Thread handle. The thread ends after [`Message::Leave`], or when all senders are dropped.
    pub thread: JoinHandle<()>,
    /// Announcement status, updated by the thread after each change.
    pub shown: watch::Receiver<Announcements>,
}

/// Creates the message channel of the announcing thread. Called first, because the layer-2 announcer and BFD
/// send to it.
#[must_use]
pub fn channel() -> (Announcing, mpsc::Receiver<Message>) {
    let (sender, receiver) = mpsc::channel();
    (Announcing(Some(sender)), receiver)
}

/// Starts the announcing thread, which runs until [`Message::Leave`] or until all senders are dropped.
///
/// # Errors
///
/// Returns an I/O error if the thread cannot be created.
pub fn spawn(parts: Parts, messages: mpsc::Receiver<Message>) -> io::Result<Running> {
    let (publish, shown) = watch::channel(Announcements::default());
    let thread = std::thread::Builder::new()
        .name("announce".to_owned())
        .spawn(move || thread::run(parts, &messages, publish))?;
    Ok(Running { thread, shown })
}

impl Announcing {
    /// Sends a message to the announcing thread. A message to an ended or unconnected thread is discarded.
    pub fn tell(&self, message: Message) {
        if let Some(sender) = &self.0 {
            let _ended = sender.send(message);
        }
    }

    /// Sends state changes. Returns when this node no longer answers for the removed addresses, or after one
    /// second.
    pub fn follow(&self, following: Following) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Follow(following, done)).is_ok()
            && is_done.recv_timeout(WITHDRAW_TIME_MAX).is_err()
        {
            warn!("addresses were not withdrawn in time; the kernel is changed anyway");
        }
    }

    /// Sends the gates of the Services that a kernel pass has programmed: open if the kernel serves the
    /// Service.
    pub fn programmed(&self, gates: Vec<(ServiceKey, Gate)>) {
        if !gates.is_empty() {
            self.tell(Message::Gates(gates));
        }
    }

    /// Stops announcing. Returns when this node no longer answers for any address, or after four seconds.
    pub fn leave(&self, on_exit: OnExit) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Leave { on_exit, done }).is_ok() {
            // A thread that has ended answers for no address.
            let _ended = is_done.recv_timeout(LEAVE_TIME_MAX);
        }
    }
}
