//! The task of one neighbour: everything that happens to its session goes through here, one thing after the other.
//!
//! ```text
//!   inbox ─────────────┐                        ┌──▶ connections: connect, send, close
//!   connections ───────┼──▶ session (crate bgp) ─┼──▶ routes: begin, refresh, end
//!   deadlines, links ──┘                        └──▶ what is shown
//! ```
//! It waits in one place, [`next`](Neighbour::next), and for all of these together.

mod session;
mod traffic;

use std::{
    collections::BTreeMap,
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
use futures::FutureExt as _;
use ipnet::IpNet;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant as TokioInstant, sleep_until},
};
use tracing::warn;

use super::{
    Leave,
    connection::{Connection, Ready},
    face::Face,
    hub::Reports,
    linger::Lingering,
    post::Post,
    routes::{Routes, Wanted},
    scout::Scout,
    settings::{Place, Settings},
    shown::{NeighbourKey, Shown},
    socket,
};
use crate::{
    bfd::{PeerKey, PeerState, SessionConfig},
    links::Links,
};

/// Room for one reading.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long a neighbour may take to be told that everything is withdrawn.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a dynamic neighbour without a connection is remembered.
const FORGET_TIME: Duration = Duration::from_secs(60);

/// What a neighbour is told by the hub.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) settings: Option<Settings>,
    pub(super) routes: BTreeMap<IpNet, Option<Arc<Route>>>,
    pub(super) is_end_held: Option<bool>,
    /// It has connected; the last one counts.
    pub(super) visitor: Option<TcpStream>,
    /// How BFD sees the path.
    pub(super) path: Option<PeerState>,
    /// Why BFD cannot watch it.
    pub(super) path_fault: Option<Option<String>>,
    /// Why nobody can connect to us.
    pub(super) door_fault: Option<Option<String>>,
    /// Segments that had wrong signatures, or none, since the last time.
    pub(super) bad_signatures: u64,
    pub(super) end: Option<End>,
}

/// Why the task is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The speaker leaves.
    Leave(Leave),
    /// The peer is not configured any longer.
    Removed,
    /// Another dynamic neighbour needs the place.
    Forgotten,
}

/// What a task begins with.
pub(super) struct Start {
    pub(super) key: NeighbourKey,
    pub(super) settings: Settings,
    pub(super) wanted: Wanted,
    pub(super) is_end_held: bool,
    pub(super) inbox: Arc<Post<Inbox>>,
    pub(super) hub: Arc<Post<Reports>>,
    pub(super) board: watch::Sender<Shown>,
    pub(super) links: watch::Receiver<Links>,
    pub(super) lingering: Lingering,
}

/// What has happened.
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
    routes: Routes,
    connections: BTreeMap<ConnectionId, Connection>,
    dialing: Option<Dialing>,
    connections_made: u64,
    /// Looks for an unnumbered neighbour.
    scout: Option<Scout>,
    /// Where an unnumbered neighbour is.
    found: Option<SocketAddr>,
    path: Option<PeerState>,
    /// What BFD was asked to watch.
    watched: Option<(PeerKey, SessionConfig)>,
    face: Face,
    links: watch::Receiver<Links>,
    hub: Arc<Post<Reports>>,
    lingering: Lingering,
    /// Everything is being withdrawn, until then, to be followed by this.
    leaving: Option<(Instant, Stop)>,
    /// When a dynamic neighbour without a connection is forgotten.
    forget_at: Option<Instant>,
    has_ended: bool,
}

/// Runs until it is told to end.
pub(super) async fn run(start: Start) {
    let Start { key, settings, wanted, is_end_held, inbox, hub, board, links, lingering } = start;
    let mut neighbour = Neighbour {
        session: Session::new(settings.session.clone()),
        routes: Routes::new(wanted, is_end_held),
        connections: BTreeMap::new(),
        dialing: None,
        connections_made: 0,
        scout: None,
        found: None,
        path: None,
        watched: None,
        face: Face::new(key.clone(), &settings, board),
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
        // However much there is to do for this neighbour, the others have their turns in between.
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
            Place::Interface(interface) => Some(Scout::new(interface.clone(), self.links.clone())),
            Place::Address(_) => None,
        };
        // Without a place there is nobody to have a session with.
        if self.remote().is_some() {
            self.tell(Input::Start);
        } else {
            self.face.wait("no router advertisement was heard on the interface");
        }
    }

    /// Waits for whatever happens first.
    async fn next(&mut self, inbox: &Post<Inbox>) -> Happening {
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
        [self.session.poll_timeout(), leaving, self.forget_at].into_iter().flatten().min()
    }

    fn open_mail(&mut self, mail: Inbox) {
        let Inbox {
            settings,
            routes,
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

    /// Takes other settings over, in place if that is possible.
    fn configure(&mut self, settings: Settings) {
        let password = &settings.way.password;
        let rekey = password.clone().filter(|_| *password != self.settings.way.password);
        let is_established = self.session.state() == State::Established;
        let reset = self.settings.needs_new_connection(&settings);
        // With another password there is nothing to wait for: what was begun with the old one would go on for long.
        let reset = reset.or_else(|| (rekey.is_some() && !is_established).then_some("the password"));
        self.settings = settings;
        let config = Box::new(self.settings.session.clone());
        if let Some(what) = reset {
            if is_established {
                warn!(neighbour = %self.key, what, "a BGP session is reset, because something has changed that it cannot take over");
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
            warn!(neighbour = %self.key, what, "a BGP session is reset, because something has changed that both agree on at its start");
        }
        if let Some(password) = rekey {
            for connection in self.connections.values() {
                if let Err(error) = socket::rekey(connection.as_fd(), connection.remote.ip(), &password) {
                    warn!(neighbour = %self.key, %error, "the password of a BGP connection cannot be replaced");
                }
            }
        }
        self.tell(Input::Configure(config));
        self.watch();
    }

    /// Takes a connection that the neighbour has made, and whoever made it as the one at the other end of the interface,
    /// where nobody was found yet.
    fn welcome(&mut self, stream: TcpStream) {
        if matches!(self.settings.place, Place::Interface(_))
            && self.found.is_none()
            && let Ok(SocketAddr::V6(visitor)) = stream.peer_addr()
        {
            self.find(visitor);
        }
        self.connected(stream, Direction::Incoming);
    }

    /// The neighbour of an unnumbered link was found.
    fn find(&mut self, found: SocketAddrV6) {
        let found = SocketAddr::V6(SocketAddrV6::new(*found.ip(), self.settings.port, 0, found.scope_id()));
        if self.found == Some(found) {
            return;
        }
        let is_first = self.found.is_none();
        self.found = Some(found);
        if !is_first {
            warn!(neighbour = %self.key, address = %found, "another router is at the other end of the link");
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

    /// Bytes that have come count before time that has passed.
    fn due(&mut self, buffer: &mut [u8]) {
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.read(connection, buffer);
        }
        let now = Instant::now();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.tell(Input::Timeout);
        }
        if self.forget_at.is_some_and(|at| at <= now) {
            self.leave(End::Forgotten);
        }
    }

    /// What every turn ends with: as much as the kernel takes is on its way, and what is so is shown.
    /// Answers whether there is more of it.
    fn turn(&mut self) -> bool {
        let is_more = self.pour();
        if self.leaving.as_ref().is_some_and(|(until, _)| {
            !self.routes.has_news() || self.session.state() != State::Established || *until <= Instant::now()
        }) && let Some((_, stop)) = self.leaving.take()
        {
            self.tell(Input::Stop(stop));
            self.has_ended = true;
        }
        self.face.show(&self.session, &self.settings, &self.routes);
        is_more
    }

    fn leave(&mut self, end: End) {
        match end {
            End::Leave(Leave::Shutdown(text)) => {
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

    fn end(self) {
        self.face.remove();
        self.hub.put(|reports| {
            reports.paths.insert(self.key.clone(), None);
            reports.ended.insert(self.key);
        });
    }
}
