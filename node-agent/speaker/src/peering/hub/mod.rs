//! Hub task: distributes the configuration, incoming connections and BFD states to the tasks of the
//! neighbors. The hub never waits for a neighbor, because it only puts messages into their inboxes.

mod incoming;
mod poll;
mod reflect;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ::bgp::export::Route;
use bfd_runner::{Bfd, PeerKey, SessionConfig};
use ipnet::IpNet;
use kernel::links::Links;
use model::{
    bgp::settings::{BgpNeighbour, BgpRemote, BgpState},
    primitives::name::Name,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    Leave, Wishes,
    linger::Lingering,
    listeners::{self, Listeners},
    mailbox::Mailbox,
    neighbour::{self, End, Inbox},
    reflection::SharedTable,
    routes::DesiredRoutes,
    settings::{self, Identity, Settings},
    signatures,
    status::{NeighborsStatus, NeighbourKey},
};

/// Time for which route changes are collected, so that several changes of one prefix are sent as one change,
/// and changes of several prefixes in one message.
const BATCH_TIME: Duration = Duration::from_millis(10);
/// Interval at which TCP MD5 failure counters are read and failed listening sockets are retried.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Capacity of the queue of accepted connections that are not assigned to a neighbor yet.
const VISITS_MAX: usize = 64;
/// Maximum time to wait for neighbor tasks and closing connections when the speaker stops.
const END_TIME_MAX: Duration = Duration::from_secs(4);

/// Parameters of the hub: its dependencies and channels.
pub(super) struct HubStart {
    pub(super) node: Name,
    pub(super) bfd: Bfd,
    pub(super) links: watch::Receiver<Links>,
    pub(super) wishes: Arc<Mailbox<Wishes>>,
    pub(super) board: watch::Sender<NeighborsStatus>,
}

/// Reports of the neighbor tasks to the hub, merged in the mailbox of the hub.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Path that BFD must monitor for a neighbor; `None` if monitoring must end.
    pub(super) paths: BTreeMap<NeighbourKey, Option<(PeerKey, SessionConfig)>>,
    /// Neighbors whose task has ended.
    pub(super) ended: BTreeSet<NeighbourKey>,
}

/// Running task of a neighbor, with its inbox and settings.
struct Running {
    inbox: Arc<Mailbox<Inbox>>,
    settings: Settings,
    /// True if the task has been requested to end. A new task for the same neighbor starts only after its
    /// end.
    is_ending: bool,
}

struct Hub {
    node: Name,
    bfd: Bfd,
    links: watch::Receiver<Links>,
    board: watch::Sender<NeighborsStatus>,
    reports: Arc<Mailbox<Reports>>,
    lingering: Lingering,
    doors: Listeners,
    state: Option<BgpState>,
    /// True once the first configuration has been applied. Neighbors added later cannot have stale routes
    /// from an earlier process.
    is_settled: bool,
    is_end_held: bool,
    wanted: BTreeMap<Name, DesiredRoutes>,
    running: BTreeMap<NeighbourKey, Running>,
    tasks: JoinSet<()>,
    paths: BTreeMap<NeighbourKey, (PeerKey, SessionConfig)>,
    bad_signatures: Option<u64>,
    table: SharedTable,
    /// Time until which a route reflector delays the End-of-RIB marker; `None` afterwards.
    deferred_until: Option<Instant>,
}

/// Runs the hub until the speaker stops.
pub(super) async fn run(start: HubStart) {
    let HubStart { node, bfd, links, wishes, board } = start;
    let (visits, mut visitors) = mpsc::channel(VISITS_MAX);
    let mut bfd_news = bfd.news();
    let reports = Arc::new(Mailbox::default());
    let table = SharedTable::default();
    let mut hub = Hub {
        node,
        bfd,
        links: links.clone(),
        board,
        reports: Arc::clone(&reports),
        lingering: Lingering::new(),
        doors: Listeners::new(visits),
        state: None,
        is_settled: false,
        is_end_held: false,
        wanted: BTreeMap::new(),
        running: BTreeMap::new(),
        tasks: JoinSet::new(),
        paths: BTreeMap::new(),
        bad_signatures: signatures::failures(),
        table: table.clone(),
        deferred_until: Some(Instant::now() + reflect::DEFERRAL_TIME),
    };
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch_ends = None;
    loop {
        let ends = batch_ends.unwrap_or_else(Instant::now);
        tokio::select! {
            () = wishes.ring(), if batch_ends.is_none() => batch_ends = Some(Instant::now() + BATCH_TIME),
            () = sleep_until(ends), if batch_ends.is_some() => {
                batch_ends = None;
                if let Some((how, done)) = hub.take(wishes.take()) {
                    return hub.leave(how, done).await;
                }
            }
            Some(visit) = visitors.recv() => hub.receive(visit),
            () = reports.ring() => hub.take_reports(reports.take()),
            Ok(()) = bfd_news.changed() => hub.follow_paths(),
            () = table.changed() => hub.reflect(),
            Some(_ended) = hub.tasks.join_next() => {}
            () = sleep_until(hub.deferred_until.unwrap_or_else(Instant::now)), if hub.deferred_until.is_some() => {
                hub.end_deferral();
            }
            _ = looks.tick() => hub.look(),
        }
    }
}

impl Hub {
    fn take(&mut self, wishes: Wishes) -> Option<(Leave, oneshot::Sender<()>)> {
        let Wishes { state, changes, is_end_held, leave } = wishes;
        if let Some(is_held) = is_end_held {
            self.is_end_held = is_held;
            self.tell_end_held();
        }
        if let Some(state) = state {
            self.configure(state);
        }
        self.change(changes);
        leave
    }

    fn configure(&mut self, state: Option<BgpState>) {
        self.state = state;
        let peers = self.state.as_ref().map(|state| state.peers.clone()).unwrap_or_default();
        self.wanted.retain(|name, _| peers.contains_key(name));
        // Keys must be set before neighbors connect.
        self.doors.set(listeners::plan(peers.values()));
        let wanted = self.settings(&peers);
        for (key, running) in &mut self.running {
            match wanted.get(key) {
                None => running.end(End::Removed),
                Some(settings) if *settings == running.settings => {}
                Some(settings) => {
                    running.settings = settings.clone();
                    running.inbox.put(|inbox| inbox.settings = Some(settings.clone()));
                }
            }
        }
        self.start_missing(wanted);
        if self.deferred_until.is_some() {
            // The peers may have become clients of a route reflector, or may have been clients before.
            self.tell_end_held();
        }
        self.is_settled = true;
        self.show_doors();
    }

    fn start_missing(&mut self, wanted: BTreeMap<NeighbourKey, Settings>) {
        for (key, settings) in wanted {
            if !self.running.contains_key(&key) {
                self.start(key, settings);
            }
        }
    }

    /// Returns the settings of all neighbors that should have a task: all static peers, and the dynamic
    /// neighbors that have connected.
    fn settings(&self, peers: &BTreeMap<Name, BgpNeighbour>) -> BTreeMap<NeighbourKey, Settings> {
        let Some(state) = &self.state else { return BTreeMap::new() };
        let mut all = BTreeMap::new();
        for (name, peer) in peers {
            match &peer.remote {
                BgpRemote::Address(_) | BgpRemote::Interface(_) => {
                    let key = NeighbourKey { peer: name.clone(), address: None };
                    let settings = settings::of(peer, self.identity(state, &key), None);
                    all.extend(settings.map(|settings| (key, settings)));
                }
                BgpRemote::Network { network, limit: _ } => {
                    let present =
                        self.running.iter().filter(|(key, running)| key.peer == *name && !running.is_ending);
                    for (key, _) in present {
                        let Some(address) = key.address.filter(|address| network.contains(address)) else {
                            continue;
                        };
                        let settings = settings::of(peer, self.identity(state, key), Some(address));
                        all.extend(settings.map(|settings| (key.clone(), settings)));
                    }
                }
            }
        }
        all
    }

    fn identity<'a>(&'a self, state: &'a BgpState, key: &NeighbourKey) -> Identity<'a> {
        // Keeps the restart flag of a running task: the session clears its own copy once it is established.
        let is_restarted = match self.running.get(key) {
            Some(running) => running.settings.session.is_restarted,
            None => !self.is_settled,
        };
        Identity { node: &self.node, state, is_restarted }
    }

    fn start(&mut self, key: NeighbourKey, settings: Settings) {
        let inbox = Arc::new(Mailbox::default());
        let start = neighbour::NeighborStart {
            wanted: self.wanted.get(&key.peer).cloned().unwrap_or_default(),
            key: key.clone(),
            settings: settings.clone(),
            is_end_held: self.is_end_held(&settings),
            table: self.table.clone(),
            inbox: Arc::clone(&inbox),
            hub: Arc::clone(&self.reports),
            board: self.board.clone(),
            links: self.links.clone(),
            lingering: self.lingering.clone(),
        };
        self.tasks.spawn(neighbour::run(start));
        self.running.insert(key, Running { inbox, settings, is_ending: false });
    }

    fn change(&mut self, changes: BTreeMap<(Name, IpNet), Option<Route>>) {
        let known = self.state.as_ref().map(|state| &state.peers);
        let mut by_peer: BTreeMap<Name, BTreeMap<IpNet, Option<Arc<Route>>>> = BTreeMap::new();
        for ((peer, prefix), route) in changes {
            if known.is_some_and(|known| known.contains_key(&peer)) {
                by_peer.entry(peer).or_default().insert(prefix, route.map(Arc::new));
            }
        }
        for (peer, changes) in by_peer {
            for (_, running) in self.running.iter().filter(|(key, _)| key.peer == peer) {
                running.inbox.put(|inbox| inbox.routes.extend(changes.clone()));
            }
            let wanted = self.wanted.entry(peer).or_default();
            for (prefix, route) in changes {
                match route {
                    Some(route) => wanted.insert(prefix, route),
                    None => wanted.remove(&prefix),
                };
            }
        }
    }

    async fn leave(mut self, how: Leave, done: oneshot::Sender<()>) {
        self.doors.set(BTreeMap::new());
        for running in self.running.values_mut() {
            running.end(End::Leave(how.clone()));
        }
        let Self { mut tasks, lingering, .. } = self;
        let told = async {
            while tasks.join_next().await.is_some() {}
            // With a restart, connections are closed silently, so there is nothing to wait for.
            if how != Leave::Restart {
                lingering.ended().await;
            }
        };
        let _in_time = timeout(END_TIME_MAX, told).await;
        // The caller may have timed out.
        let _gone = done.send(());
    }
}

impl Running {
    fn end(&mut self, end: End) {
        self.is_ending = true;
        self.inbox.put(|inbox| inbox.end = Some(end));
    }
}
