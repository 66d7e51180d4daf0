//! Task of one neighbor, which processes all events of its session one after another.
//!
//! ```text
//!   inbox ─────────────┐                         ┌──▶ connections: connect, send, close
//!   connections ───────┼──▶ session (crate bgp) ─┼──▶ routes: begin, refresh, end
//!   deadlines, links ──┘                         └──▶ status
//! ```
//! The task waits in a single place, [`next`](Neighbour::next), which returns the next event of any of the
//! sources on the left.

mod session;
mod traffic;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    io,
    net::{SocketAddr, SocketAddrV6},
    os::fd::AsFd as _,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use ::bgp::{
    export::Route,
    session::{ConnectionId, Direction, Input, Session, State, Stop},
};
use bfd_runner::{PeerKey, PeerState, SessionConfig};
use futures::FutureExt as _;
use ipnet::IpNet;
use kernel::links::Links;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant as TokioInstant, sleep_until},
};
use tracing::warn;

use super::{
    Leave,
    connection::{Connection, Ready},
    hub::Reports,
    linger::Lingering,
    mailbox::Mailbox,
    neighbor_status::StatusRecorder,
    reflection::{Reflection, SharedTable},
    routes::{DesiredRoutes, NeighborRoutes},
    settings::{Place, Settings},
    socket,
    status::{NeighborsStatus, NeighbourKey},
    unnumbered_discovery::UnnumberedDiscovery,
};

/// Size of the buffer for reads from a connection, in bytes.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// Maximum time to send the withdrawals of all routes before the session ends.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(3);
/// Time after which a dynamic neighbor without a connection is removed.
const FORGET_TIME: Duration = Duration::from_secs(60);

/// Messages from the hub to the task of a neighbor, merged in the task's mailbox.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) settings: Option<Settings>,
    pub(super) routes: BTreeMap<IpNet, Option<Arc<Route>>>,
    /// Prefixes whose reflected route may have changed.
    pub(super) reflected: BTreeSet<IpNet>,
    /// True if all routes of the neighbor must be requested again.
    pub(super) is_refresh_due: bool,
    pub(super) is_end_held: Option<bool>,
    /// Incoming connection from the neighbor, if any; a newer one replaces it.
    pub(super) visitor: Option<TcpStream>,
    /// New BFD state of the path, if it has changed.
    pub(super) path: Option<PeerState>,
    /// Reason why BFD cannot monitor the path, if it has changed; `Some(None)` if there is no longer such a
    /// reason.
    pub(super) path_fault: Option<Option<String>>,
    /// Reason why the neighbor cannot connect, if it has changed; `Some(None)` if there is no longer such a
    /// reason.
    pub(super) door_fault: Option<Option<String>>,
    /// Number of TCP segments that this node dropped for their MD5 signature since the last message, over all
    /// neighbors.
    pub(super) bad_signatures: u64,
    pub(super) end: Option<End>,
}

/// Reason why the task of a neighbor must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The agent stops, and the speaker ends all sessions.
    Leave(Leave),
    /// The peer was removed from the configuration.
    Removed,
    /// This dynamic neighbor has no connection and must make room for another one.
    Forgotten,
}

/// Parameters of the task of a neighbor: dependencies, settings and initial routes.
pub(super) struct NeighborStart {
    pub(super) key: NeighbourKey,
    pub(super) settings: Settings,
    pub(super) wanted: DesiredRoutes,
    pub(super) is_end_held: bool,
    pub(super) table: SharedTable,
    pub(super) inbox: Arc<Mailbox<Inbox>>,
    pub(super) hub: Arc<Mailbox<Reports>>,
    pub(super) board: watch::Sender<NeighborsStatus>,
    pub(super) links: watch::Receiver<Links>,
    pub(super) lingering: Lingering,
}

/// Event for which the task of a neighbor waits.
enum Happening {
    Inbox,
    Due,
    Links,
    Dialed(io::Result<TcpStream>),
    Found(SocketAddrV6),
    Ready(ConnectionId, Ready),
}

type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

struct Neighbour {
    key: NeighbourKey,
    settings: Settings,
    session: Session,
    routes: NeighborRoutes,
    reflection: Reflection,
    connections: BTreeMap<ConnectionId, Connection>,
    dialing: Option<Dialing>,
    connections_made: u64,
    /// Router discovery on the interface of an unnumbered neighbor; `None` for other neighbors.
    scout: Option<UnnumberedDiscovery>,
    /// Link-local address discovered for an unnumbered neighbor; `None` before the discovery.
    found: Option<SocketAddr>,
    path: Option<PeerState>,
    /// Path that the task last requested BFD to monitor, with the BFD configuration; `None` if it requested
    /// no monitoring.
    watched: Option<(PeerKey, SessionConfig)>,
    face: StatusRecorder,
    links: watch::Receiver<Links>,
    hub: Arc<Mailbox<Reports>>,
    lingering: Lingering,
    /// Deadline for the withdrawal of all routes, and the reason for the end of the session afterwards;
    /// `None` unless the speaker is stopping.
    leaving: Option<(Instant, Stop)>,
    /// Time at which this dynamic neighbor is removed for lack of a connection; `None` while it is
    /// connected, and for a static peer.
    forget_at: Option<Instant>,
    has_ended: bool,
}

/// Runs the task until the hub requests its end, or until a dynamic neighbor has had no connection for
/// [`FORGET_TIME`].
pub(super) async fn run(start: NeighborStart) {
    let NeighborStart { key, settings, wanted, is_end_held, table, inbox, hub, board, links, lingering } =
        start;
    let mut neighbour = Neighbour {
        session: Session::new(settings.session.clone()),
        routes: NeighborRoutes::new(wanted, is_end_held),
        reflection: Reflection::new(key.clone(), table),
        connections: BTreeMap::new(),
        dialing: None,
        connections_made: 0,
        scout: None,
        found: None,
        path: None,
        watched: None,
        face: StatusRecorder::new(key.clone(), &settings, board),
        forget_at: key.address.map(|_| Instant::now() + FORGET_TIME),
        key,
        settings,
        links,
        hub,
        lingering,
        leaving: None,
        has_ended: false,
    };
    neighbour.begin();
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        let is_more = neighbour.turn();
        if neighbour.has_ended {
            break;
        }
        // Yields so that other neighbors get their turn, regardless of the work for this one.
        tokio::task::yield_now().await;
        let happening =
            if is_more { neighbour.next(&inbox).now_or_never() } else { Some(neighbour.next(&inbox).await) };
        let Some(happening) = happening else { continue };
        match happening {
            Happening::Inbox => neighbour.open_mail(inbox.take()),
            Happening::Due => neighbour.due(&mut buffer),
            Happening::Links => neighbour.follow_links(),
            Happening::Dialed(outcome) => neighbour.dialed(outcome),
            Happening::Found(router) => neighbour.find(router),
            Happening::Ready(connection, Ready::Read) => neighbour.read(connection, &mut buffer),
            // Writing is part of every turn.
            Happening::Ready(_, Ready::Write) => {}
        }
    }
    neighbour.end();
}

impl Neighbour {
    fn begin(&mut self) {
        self.watch();
        self.scout = match &self.settings.place {
            Place::Interface(interface) => {
                Some(UnnumberedDiscovery::new(interface.clone(), self.links.clone()))
            }
            Place::Address(_) => None,
        };
        // Without an address no session can be attempted.
        if self.remote().is_some() {
            self.tell(Input::Start);
        } else {
            self.face.wait("no router advertisement was received on the interface");
        }
    }

    /// Waits for the next event: a message in the inbox, a timer, a change of an interface, data on a
    /// connection, or a discovered router.
    async fn next(&mut self, inbox: &Mailbox<Inbox>) -> Happening {
        let due = self.poll_timeout().map(TokioInstant::from_std);
        let (dialing, connections, scout) = (&mut self.dialing, &self.connections, &mut self.scout);
        let found = async {
            match scout {
                Some(scout) => scout.found().await,
                None => std::future::pending().await,
            }
        };
        let dialed = poll_fn(|context| {
            dialing.as_mut().map_or(Poll::Pending, |dialing| dialing.as_mut().poll(context))
        });
        let ready = poll_fn(|context| {
            for connection in connections.values() {
                if let Poll::Ready(ready) = connection.poll_ready(context) {
                    return Poll::Ready((connection.id, ready));
                }
            }
            Poll::Pending
        });
        tokio::select! {
            () = inbox.ring() => Happening::Inbox,
            () = async { sleep_until(due.unwrap_or_else(TokioInstant::now)).await }, if due.is_some() => Happening::Due,
            outcome = dialed => Happening::Dialed(outcome),
            router = found => Happening::Found(router),
            (connection, ready) = ready => Happening::Ready(connection, ready),
            Ok(()) = self.links.changed() => Happening::Links,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let leaving = self.leaving.as_ref().map(|(until, _)| *until);
        let all = [self.session.poll_timeout(), leaving, self.forget_at, self.reflection.poll_timeout()];
        all.into_iter().flatten().min()
    }

    fn open_mail(&mut self, mail: Inbox) {
        let Inbox {
            settings,
            routes,
            reflected,
            is_refresh_due,
            is_end_held,
            visitor,
            path,
            path_fault,
            door_fault,
            bad_signatures,
            end,
        } = mail;
        if let Some(is_held) = is_end_held {
            self.routes.hold_end_of_rib(is_held);
        }
        if let Some(settings) = settings {
            self.configure(settings);
        }
        if !routes.is_empty() && self.leaving.is_none() {
            self.routes.change(routes);
        }
        self.routes.reflect(reflected);
        if is_refresh_due {
            self.reflection.forget_refusals();
            self.request_routes();
        }
        if let Some(stream) = visitor {
            self.welcome(stream);
        }
        if let Some(path) = path {
            self.follow_path(path);
        }
        if let Some(fault) = path_fault.flatten() {
            self.face.bfd = Some(fault);
        }
        if let Some(fault) = door_fault {
            self.face.door_fault = fault;
        }
        if self.session.state() != State::Established {
            self.face.counters.md5_failures += bad_signatures;
        }
        if let Some(end) = end {
            self.leave(end);
        }
    }

    /// Applies changed settings: without interruption if possible, otherwise with a reset of the session.
    fn configure(&mut self, settings: Settings) {
        let password = &settings.way.password;
        let rekey = password.clone().filter(|_| *password != self.settings.way.password);
        let is_established = self.session.state() == State::Established;
        let reset = self.settings.needs_new_connection(&settings);
        // With a new password a pending attempt with the old one would only delay the session.
        let reset = reset.or_else(|| (rekey.is_some() && !is_established).then_some("the password"));
        self.settings = settings;
        let config = Box::new(self.settings.session.clone());
        if let Some(what) = reset {
            if is_established {
                warn!(neighbour = %self.key, what, "resetting a BGP session: a change requires a new \
                                                    connection");
            }
            self.tell(Input::Stop(Stop::ConfigurationChange));
            self.found = None;
            self.unwatch();
            self.tell(Input::Configure(config));
            self.begin();
            return;
        }
        if let Some(what) = self.session.config().needs_reset(&config)
            && is_established
        {
            warn!(neighbour = %self.key, what, "resetting a BGP session: a change requires a new \
                                                negotiation");
        }
        if let Some(password) = rekey {
            for connection in self.connections.values() {
                if let Err(error) = socket::rekey(connection.as_fd(), connection.remote.ip(), &password) {
                    warn!(neighbour = %self.key, %error, "cannot replace the password of a BGP connection");
                }
            }
        }
        self.tell(Input::Configure(config));
        self.watch();
    }

    /// Passes an incoming connection to the session. On an unnumbered link on which no router was discovered,
    /// the remote address becomes the address of the neighbor.
    fn welcome(&mut self, stream: TcpStream) {
        if matches!(self.settings.place, Place::Interface(_))
            && self.found.is_none()
            && let Ok(SocketAddr::V6(visitor)) = stream.peer_addr()
        {
            self.find(visitor);
        }
        self.connected(stream, Direction::Incoming);
    }

    /// Records the router discovered on an unnumbered link, and resets the session if it differs from the
    /// previous router.
    fn find(&mut self, found: SocketAddrV6) {
        let found = SocketAddr::V6(SocketAddrV6::new(*found.ip(), self.settings.port, 0, found.scope_id()));
        if self.found == Some(found) {
            return;
        }
        let is_first = self.found.is_none();
        self.found = Some(found);
        if !is_first {
            warn!(neighbour = %self.key, address = %found, "the router at the other end of the link has \
                                                            changed");
            self.tell(Input::Stop(Stop::ConfigurationChange));
        }
        self.face.address = Some(found.ip());
        self.face.go_on();
        self.tell(Input::Start);
    }

    fn follow_links(&mut self) {
        let next_hops = self.next_hops();
        self.routes.retarget(next_hops);
    }

    /// Handles timers that have expired, after processing the bytes received until then.
    fn due(&mut self, buffer: &mut [u8]) {
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.read(connection, buffer);
        }
        let now = Instant::now();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.tell(Input::Timeout);
        }
        self.reflection.expire(now);
        if self.forget_at.is_some_and(|at| at <= now) {
            self.leave(End::Forgotten);
        }
    }

    /// Ends one iteration of the task: writes as many bytes as the kernel accepts and publishes the status.
    /// Returns true if routes remain that can be sent at once.
    fn turn(&mut self) -> bool {
        let is_more = self.pour();
        if self.leaving.as_ref().is_some_and(|(until, _)| {
            !self.routes.has_news() || self.session.state() != State::Established || *until <= Instant::now()
        }) && let Some((_, stop)) = self.leaving.take()
        {
            self.tell(Input::Stop(stop));
            self.has_ended = true;
        }
        self.face.show(&self.session, &self.settings, &self.routes, &self.reflection);
        is_more
    }

    fn leave(&mut self, end: End) {
        match end {
            End::Leave(Leave::Shutdown(text)) => {
                self.reflection.remove();
                self.routes.withdraw_all();
                self.leaving = Some((Instant::now() + WITHDRAW_TIME_MAX, Stop::Shutdown(text)));
            }
            End::Leave(Leave::Restart) => {
                self.tell(Input::Stop(Stop::Silent));
                self.has_ended = true;
            }
            End::Removed | End::Forgotten => {
                self.tell(Input::Stop(Stop::Deconfigured));
                self.has_ended = true;
            }
        }
    }

    fn end(mut self) {
        self.reflection.remove();
        self.face.remove();
        self.hub.put(|reports| {
            reports.paths.insert(self.key.clone(), None);
            reports.ended.insert(self.key);
        });
    }
}
