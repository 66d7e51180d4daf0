//! BGP on the wire: the sockets, keys, timers and tasks that carry the sessions of the crate `bgp`.
//!
//! ```text
//!   agent ──configure, change──▶ wishes ──▶ hub ──▶ inbox of each neighbour ──▶ task of the neighbour:
//!                                            │                                    session ◀─▶ connections ◀─▶ kernel
//!   accepted connections, BFD, MD5 counters ─┘                                    rib ──▶ as fast as the socket drains
//!   agent ◀──shown────────────────────────────────────────────────────────────────┘
//! ```
//! All of it runs on a thread of its own, which stays in the network namespace of whoever starts it. What a session does is
//! decided in the crate `bgp`, which knows no sockets. What must not happen here: a neighbour that waits for another one,
//! a buffer without a limit, and a route that is learned; what neighbours announce is counted and dropped.

mod connection;
mod doors;
mod face;
mod frames;
mod hub;
mod key;
mod linger;
mod neighbour;
mod next_hop;
mod path;
mod post;
mod resets;
mod routes;
mod scout;
mod settings;
mod shown;
mod signatures;
mod socket;
mod thread;
mod words;

use std::{collections::BTreeMap, io, sync::Arc, thread::JoinHandle, time::Duration};

use ::bgp::export::Route;
use ipnet::IpNet;
use model::{bgp::settings::BgpState, primitives::name::Name};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::{bfd::Bfd, links::Links};
use post::Post;
pub use resets::resets;
pub use shown::{NeighbourKey, Shown, ShownNeighbour, Told};

/// Longest wait for neighbours to be told that the speaker leaves.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// How a speaker leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// It comes back at once: connections are closed without a word, so that neighbours with which graceful restart was
    /// agreed on keep its routes (RFC 4724 §4.2).
    Restart,
    /// It leaves: everything is withdrawn, then the sessions are ended for good, with this text (RFC 9003), in a way that
    /// keeps no routes (RFC 8538 §3).
    Shutdown(String),
}

/// The BGP of this node. Dropping it is as leaving with [`Leave::Restart`].
#[derive(Debug)]
pub struct Speaker {
    wishes: Arc<Post<Wishes>>,
    shown: watch::Receiver<Shown>,
    thread: Option<JoinHandle<()>>,
}

/// What the agent wants; what was said and not taken yet counts as said at once.
#[derive(Debug, Default)]
struct Wishes {
    state: Option<Option<BgpState>>,
    changes: BTreeMap<(Name, IpNet), Option<Route>>,
    is_end_held: Option<bool>,
    leave: Option<(Leave, oneshot::Sender<()>)>,
}

impl Speaker {
    /// Starts the thread, in the network namespace of the calling thread. Nothing is opened before there are peers. `node` is
    /// what neighbours are told as its name; `bfd` watches the paths to peers that want it; next hops are found in `links`.
    ///
    /// # Errors
    /// The kernel gives no thread, or the runtime on it cannot be made.
    pub fn start(node: &Name, bfd: Bfd, links: watch::Receiver<Links>) -> io::Result<Self> {
        let wishes = Arc::new(Post::default());
        let (board, shown) = watch::channel(Shown::default());
        let hub = hub::Start { node: node.clone(), bfd, links, wishes: Arc::clone(&wishes), board };
        let thread = thread::spawn(hub)?;
        Ok(Self { wishes, shown, thread: Some(thread) })
    }

    /// Says who this node is and who its peers are. Peers that are the same go on untouched; others are changed in place
    /// where that is possible, else their sessions are reset and say why; sessions with peers that are not there any more
    /// end with Cease/3 (RFC 4486). Routes are wanted for peers that are known; a peer that goes takes its routes along.
    pub fn configure(&self, state: Option<&BgpState>) {
        self.wishes.put(|wishes| wishes.state = Some(state.cloned()));
    }

    /// Says which routes each peer is to be told, by the names of the peers; `None` withdraws. All neighbours of a dynamic
    /// peer are told, also those that come later. What is said within 10 ms is told at once, and what was as it is by then
    /// is not told at all. Peers that are not configured are left out.
    pub fn change(&self, changes: Vec<(Name, IpNet, Option<Route>)>) {
        self.wishes.put(|wishes| {
            let changes = changes.into_iter().map(|(peer, prefix, route)| ((peer, prefix.trunc()), route));
            wishes.changes.extend(changes);
        });
    }

    /// Holds back the End-of-RIB marker towards all neighbours: routes are not complete yet. Without it a neighbour keeps
    /// the routes that it knew before a restart, as long as the restart time that it was told (RFC 4724 §4.2).
    pub fn hold_end_of_rib(&self, is_held: bool) {
        self.wishes.put(|wishes| wishes.is_end_held = Some(is_held));
    }

    /// What is going on. Rings when something other than counters has changed.
    #[must_use]
    pub fn shown(&self) -> watch::Receiver<Shown> {
        self.shown.clone()
    }

    /// Leaves; returns when the neighbours were told, or after some seconds.
    pub async fn leave(mut self, how: Leave) {
        let (done, told) = oneshot::channel();
        self.wishes.put(|wishes| wishes.leave = Some((how, done)));
        if tokio::time::timeout(LEAVE_TIME_MAX, told).await.is_err() {
            warn!("not every BGP neighbour took what it was told at the end");
        }
        // The thread has nothing left to wait for.
        if let Some(thread) = self.thread.take() {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let (done, _unheard) = oneshot::channel();
        self.wishes.put(|wishes| wishes.leave = Some((Leave::Restart, done)));
        let _panicked_already = thread.join();
    }
}
