//! Announces load balancer addresses: decides which of them this node owns, and answers for those.
//!
//! ```text
//!  state, outcomes ──┐
//!  who lives (BFD) ──┼─▶ thread ─▶ owners ─▶ machine (per address) ─▶ announce · withdraw · ask ─▶ the wire
//!  who else was heard┘                └─▶ what is shown and reported
//! ```
//! Nothing here needs control to be reached. What must not happen: an address that is announced while this node does not
//! serve it; it is withdrawn before the kernel pass that takes it away, and announced after the one that brings it.

pub mod adapters;
pub mod bgp;
pub mod l2;
pub mod liveness;
pub mod machine;
pub mod neighbours;
pub mod owners;
pub mod ping;
pub mod ports;
pub mod preview;
mod show;
pub mod shown;
pub mod start;
pub mod terms;
pub mod thread;
pub mod told;
pub mod words;

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

use model::{kinds::resource::ServiceKey, primitives::secret::Secret, wire::feed::AddressState};
use tokio::sync::watch;
use tracing::warn;

use self::{
    machine::Gate,
    ports::OnExit,
    shown::Announcements,
    thread::{Message, Parts},
};

/// Longest wait of the loop for addresses to be withdrawn before it changes the kernel.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the end of the thread, beyond the time that a hand-over takes.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(4);

/// The way to the thread that announces; clones lead to the same one. The default leads nowhere, for agents that announce
/// nothing.
#[derive(Debug, Clone, Default)]
pub struct Announcing(Option<Sender<Message>>);

/// What the agent holds has changed, and the kernel has not followed yet.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// The addresses that are new, different or gone.
    pub addresses: Vec<(IpAddr, Option<Arc<AddressState>>)>,
    /// Whether they were read from the disk.
    pub is_old: bool,
    /// The Services that the kernel will not hold after the next pass.
    pub closing: BTreeSet<ServiceKey>,
    /// The Services that the next pass will change: what is new of their addresses waits for it.
    pub changing: BTreeSet<ServiceKey>,
    /// The key of all nodes.
    pub key: Option<Secret>,
}

/// The thread and what it shows.
pub struct Running {
    /// The thread; ends when it is told to leave, or when nobody can tell it anything any longer.
    pub thread: JoinHandle<()>,
    /// What it does.
    pub shown: watch::Receiver<Announcements>,
}

/// Makes the channel to the thread, before the parts that speak into it are made.
#[must_use]
pub fn channel() -> (Announcing, mpsc::Receiver<Message>) {
    let (sender, receiver) = mpsc::channel();
    (Announcing(Some(sender)), receiver)
}

/// Starts the thread.
///
/// # Errors
/// When no thread can be made.
pub fn spawn(parts: Parts, messages: mpsc::Receiver<Message>) -> io::Result<Running> {
    let (publish, shown) = watch::channel(Announcements::default());
    let thread = std::thread::Builder::new()
        .name("announce".to_owned())
        .spawn(move || thread::run(parts, &messages, publish))?;
    Ok(Running { thread, shown })
}

impl Announcing {
    /// Says that something happened. A thread that has ended does not listen any more.
    pub fn tell(&self, message: Message) {
        if let Some(sender) = &self.0 {
            let _ended = sender.send(message);
        }
    }

    /// Brings changes of the state; returns when what they take away is not answered for any longer.
    pub fn follow(&self, following: Following) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Follow(following, done)).is_ok()
            && is_done.recv_timeout(WITHDRAW_TIME_MAX).is_err()
        {
            warn!("addresses could not be withdrawn in time; the kernel is changed all the same");
        }
    }

    /// Says how Services came out of a pass.
    pub fn programmed(&self, gates: Vec<(ServiceKey, Gate)>) {
        if !gates.is_empty() {
            self.tell(Message::Gates(gates));
        }
    }

    /// Ends the announcing; returns when nothing is answered for any longer.
    pub fn leave(&self, on_exit: OnExit) {
        let (done, is_done) = sync_channel(1);
        let Some(sender) = &self.0 else { return };
        if sender.send(Message::Leave { on_exit, done }).is_ok() {
            // A thread that has ended answers for nothing.
            let _ended = is_done.recv_timeout(LEAVE_TIME_MAX);
        }
    }
}
