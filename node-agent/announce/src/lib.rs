//! Announcement of load balancer addresses: decides which addresses this node owns (that is, announces), and
//! replies to ARP, NDP and ping requests for them.
//!
//! Inputs are the candidate nodes of each address (state from the control server), the outcomes of kernel
//! updates, the liveness of the other nodes, and the announcements of other stations.
//! ```text
//!  state, outcomes ──┐
//!  liveness (BFD)  ──┼─▶ thread ─▶ owners ─▶ machine (per address) ─▶ announce · withdraw · probe ─▶ the wire
//!  other announcers ─┘                └─▶ status and reports
//! ```
//! Decisions are in `ownership`; `l2` and `ping` answer for the addresses (ARP, NDP, ICMP echo).
//!
//! Works without a connection to the control server. Invariant: an address is never announced while this node
//! does not serve it. The address is withdrawn before the kernel update that removes its rules, and announced
//! after the update that adds them.

pub mod adapters;
mod failures;
pub mod l2;
pub mod neighbours;
pub mod ownership;
pub mod peer_keys;
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

/// Maximum time for which the agent waits until addresses are withdrawn, before it changes the kernel.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum time for which [`Announcing::leave`] waits until the announcing thread has handed over its
/// addresses and ended.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(4);

/// Sender of messages to the announcing thread; clones share the channel. The default value is unconnected,
/// for agents that announce nothing.
#[derive(Debug, Clone, Default)]
pub struct Announcing(Option<Sender<Message>>);

/// Addresses and Services that the next update of the kernel changes. The announcing thread must process them
/// before that update, so that the node never announces an address that its kernel no longer serves.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// Added, changed and removed load balancer addresses; `None` marks a removed address.
    pub addresses: Vec<(IpAddr, Option<Arc<AddressState>>)>,
    /// True if the addresses come from the agent's journal on disk (state stored before its restart), so that
    /// another node may have taken them since they were written.
    pub is_old: bool,
    /// Services that the kernel will no longer serve after its next update.
    pub closing: BTreeSet<ServiceKey>,
    /// Services that the next kernel update changes. Addresses added to these Services are announced only
    /// after that update.
    pub changing: BTreeSet<ServiceKey>,
    /// Secret shared by all nodes, from which the BFD authentication key of pairs of nodes without keys of their
    /// own is derived; `None` disables authentication of these pairs.
    pub key: Option<Secret>,
}

/// Handles of the announcing thread, returned by [`spawn`].
pub struct Running {
    /// Handle of the thread, which ends after [`Message::Leave`], or when all senders are dropped.
    pub thread: JoinHandle<()>,
    /// Announcement status, updated by the thread after each change.
    pub shown: watch::Receiver<Announcements>,
}

/// Creates the message channel of the announcing thread. Must be called before the layer-2 announcer and BFD
/// are created, because both send to the channel.
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

    /// Sends state changes to the announcing thread. Returns when this node no longer replies to requests for
    /// the removed addresses, or after one second.
    pub fn follow(&self, following: Following) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Follow(following, done)).is_ok()
            && is_done.recv_timeout(WITHDRAW_TIME_MAX).is_err()
        {
            warn!("addresses were not withdrawn in time; the kernel is changed anyway");
        }
    }

    /// Sends the Services of a finished kernel update to the announcing thread, each with a [`Gate`] that is
    /// open if the kernel serves the Service.
    pub fn programmed(&self, gates: Vec<(ServiceKey, Gate)>) {
        if !gates.is_empty() {
            self.tell(Message::Gates(gates));
        }
    }

    /// Stops announcing. Returns when this node no longer replies to requests for any address, or after four
    /// seconds.
    pub fn leave(&self, on_exit: OnExit) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Leave { on_exit, done }).is_ok() {
            // A thread that has ended answers for no address.
            let _ended = is_done.recv_timeout(LEAVE_TIME_MAX);
        }
    }
}
