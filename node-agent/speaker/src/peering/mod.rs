//! BGP transport: sockets, keys, timers and tasks that drive the sessions of the crate `bgp`.
//!
//! ```text
//!   agent ──configure, change──▶ wishes ──▶ hub ──▶ inbox of each neighbor ──▶ task of the neighbor:
//!                                            │                                   session ◀─▶ connections ◀─▶ kernel
//!   accepted connections, BFD, MD5 counters ─┘                                   rib ──▶ as fast as the socket drains
//!   agent ◀──shown───────────────────────────────────────────────────────────────┘
//! ```
//! `wishes` holds the requests of the agent until the hub takes them. Everything runs on a dedicated thread
//! in the network namespace of the caller. The session state machine is in the crate `bgp`, which has no
//! I/O. Invariants: no neighbor waits for another one, the size of every buffer is limited, and received
//! routes are not used by this node; a route reflector passes them on to other internal neighbors.

mod connection;
mod frames;
mod hub;
mod key;
mod linger;
mod listeners;
mod mailbox;
mod neighbor_status;
mod neighbour;
mod next_hop;
mod path;
mod reflection;
mod resets;
mod routes;
mod settings;
mod signatures;
mod socket;
mod status;
mod thread;
mod unnumbered_discovery;
mod words;

use std::{collections::BTreeMap, io, sync::Arc, thread::JoinHandle, time::Duration};

use ::bgp::export::Route;
use bfd_runner::Bfd;
use ipnet::IpNet;
use kernel::links::Links;
use model::{bgp::settings::BgpState, primitives::name::Name};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use mailbox::Mailbox;
pub use resets::resets;
pub use status::{AdvertisedRoute, NeighborStatus, NeighborsStatus, NeighbourKey};

/// Maximum time to inform the neighbors that the speaker stops.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Behavior of the speaker toward its neighbors when the agent stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// Restart: connections are closed without a NOTIFICATION, so that neighbors with negotiated Graceful
    /// Restart keep the routes (RFC 4724 §4.2).
    Restart,
    /// Shutdown: all routes are withdrawn, then the sessions end with this Shutdown Communication text (RFC
    /// 9003), so that neighbors keep no stale routes (RFC 8538 §3).
    Shutdown(String),
}

/// BGP speaker of this node. Dropping it is equivalent to [`Leave::Restart`].
#[derive(Debug)]
pub struct Speaker {
    wishes: Arc<Mailbox<Wishes>>,
    shown: watch::Receiver<NeighborsStatus>,
    thread: Option<JoinHandle<()>>,
}

/// Requests of the agent that the hub has not processed yet. Several requests are merged.
#[derive(Debug, Default)]
struct Wishes {
    state: Option<Option<BgpState>>,
    changes: BTreeMap<(Name, IpNet), Option<Route>>,
    is_end_held: Option<bool>,
    leave: Option<(Leave, oneshot::Sender<()>)>,
}

impl Speaker {
    /// Starts the thread in the network namespace of the calling thread. No socket is opened before there are
    /// peers. `node` is the host name sent to neighbors; `bfd` monitors the paths of peers that request it;
    /// next hops are taken from `links`.
    ///
    /// # Errors
    /// Returns an I/O error if the thread or its runtime cannot be created.
    pub fn start(node: &Name, bfd: Bfd, links: watch::Receiver<Links>) -> io::Result<Self> {
        let wishes = Arc::new(Mailbox::default());
        let (board, shown) = watch::channel(NeighborsStatus::default());
        let hub = hub::HubStart { node: node.clone(), bfd, links, wishes: Arc::clone(&wishes), board };
        let thread = thread::spawn(hub)?;
        Ok(Self { wishes, shown, thread: Some(thread) })
    }

    /// Sets the configuration of this node and its peers. Sessions of unchanged peers continue. Changes are
    /// applied in place if possible; otherwise the session is reset with a reason. Sessions of removed peers
    /// end with Cease/3, Peer De-configured (RFC 4486), and their routes are removed.
    pub fn configure(&self, state: Option<&BgpState>) {
        self.wishes.put(|wishes| wishes.state = Some(state.cloned()));
    }

    /// Sets the routes to advertise to peers; `None` withdraws a route. The routes of a dynamic peer are sent
    /// to all its neighbors, including those that connect later. Changes within 10 ms are sent together, and
    /// a change that is reverted within that time is not sent. Unknown peers are ignored.
    pub fn change(&self, changes: Vec<(Name, IpNet, Option<Route>)>) {
        self.wishes.put(|wishes| {
            let changes = changes.into_iter().map(|(peer, prefix, route)| ((peer, prefix.trunc()), route));
            wishes.changes.extend(changes);
        });
    }

    /// Delays the End-of-RIB marker for all neighbors while `is_held` is true, that is, while the routes are
    /// incomplete. Without the marker a neighbor keeps stale routes until the advertised Restart Time
    /// expires (RFC 4724 §4.2).
    pub fn hold_end_of_rib(&self, is_held: bool) {
        self.wishes.put(|wishes| wishes.is_end_held = Some(is_held));
    }

    /// Returns a receiver for the status of all neighbors. The receiver is not notified if only counters have
    /// changed.
    #[must_use]
    pub fn shown(&self) -> watch::Receiver<NeighborsStatus> {
        self.shown.clone()
    }

    /// Ends all sessions as requested by `how`. Returns when the neighbors have been informed, or after five
    /// seconds.
    pub async fn leave(mut self, how: Leave) {
        let (done, told) = oneshot::channel();
        self.wishes.put(|wishes| wishes.leave = Some((how, done)));
        if tokio::time::timeout(LEAVE_TIME_MAX, told).await.is_err() {
            warn!("some BGP neighbors did not receive the last messages in time");
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
