//! The task that decides who announces which address, and which silent Nodes count as gone.
//!
//! ```text
//! commits ──────┐
//! reports ──────┼─▶ which addresses does it concern? ─▶ model::assign, one by one ─▶ Announce, in batches ─▶ writer
//! leases (1 s) ─┘
//! ```
//! It holds no truth: what it knows is derived from the published state, what agents say, and time. After a start it
//! leaves an order alone until the candidates have reported, or a lease has passed, and so adopts what it finds. Of several
//! control servers only the one that leads decides; whoever begins to lead begins as after a start.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use model::{
    admission::admit::{Operation, Request},
    kinds::{
        address::Announcement,
        resource::{Kind, ServiceKey, Spec},
    },
    observed::{
        assign::{Circumstances, Scene, Verdict, assign},
        lease::{ANNOUNCEMENT_LEASE_SECS, ENDPOINT_LEASE_SECS, expired},
    },
    primitives::{
        name::Name,
        quantity::{Position, Timestamp},
    },
};
use tokio::time::MissedTickBehavior;

use crate::{
    context::server_state::ServerState,
    state::{node_reports::Table, published::Published},
    write::writer::WriteError,
};

mod concerns;

/// How often leases are looked at: a fifteenth of the shortest.
const TICK: Duration = Duration::from_secs(1);
/// A difference between both clocks of the machine that is no drift: somebody set one, or the machine slept.
const CLOCK_SET_MIN: Duration = Duration::from_secs(2);
/// How long a first owner waits for nodes that verify the Service later than others, so that the fastest node does not
/// get every address: agents report within milliseconds of a change.
const FIRST_CHOICE_WAIT: Duration = Duration::from_secs(1);
/// Addresses decided about before other tasks get their turn, and in one write.
const BATCH_MAX: usize = 128;
/// How often everything is looked at again, though nothing happened: a net under mistakes of the rules about what
/// concerns what.
const SWEEP: Duration = Duration::from_secs(300);

/// What the task knows.
pub(crate) struct Assigner {
    app: Arc<ServerState>,
    /// When this server began to hear reports, or to lead, if that was later: a server that leads anew may have been cut off
    /// from the agents before.
    listening_since: Timestamp,
    /// The state that the following is derived from.
    seen: Position,
    /// The order of every address that Services have.
    orders: BTreeMap<IpAddr, Announcement>,
    /// How many addresses each node is the first candidate for.
    owned: BTreeMap<Name, usize>,
    /// Addresses to look at, and since when.
    due: BTreeMap<IpAddr, Instant>,
    /// Addresses that wait for nodes to verify.
    waiting: BTreeMap<Name, BTreeSet<IpAddr>>,
    connected: BTreeSet<Name>,
    swept: Instant,
    /// What both clocks of the machine said at the last tick.
    clocks: (SystemTime, Instant),
}

impl Assigner {
    /// A task that knows nothing yet.
    pub(crate) fn new(app: Arc<ServerState>) -> Self {
        let listening_since = app.source.now();
        let seen = Position::default();
        Self {
            app,
            listening_since,
            seen,
            orders: BTreeMap::new(),
            owned: BTreeMap::new(),
            due: BTreeMap::new(),
            waiting: BTreeMap::new(),
            connected: BTreeSet::new(),
            swept: Instant::now(),
            clocks: (SystemTime::now(), Instant::now()),
        }
    }

    /// Works until the server ends.
    pub(crate) async fn run(mut self) {
        let mut bell = self.app.hub.subscribe();
        let mut leadership = self.app.leadership.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut is_tick = false;
            tokio::select! {
                () = leadership.changed() => self = Self::new(Arc::clone(&self.app)),
                changed = bell.changed() => if changed.is_err() { return },
                () = self.app.newsroom.wait() => {}
                _ = tick.tick() => is_tick = true,
            }
            self.note_commits();
            self.note_news();
            let leads = leadership.holds();
            if is_tick {
                self.note_clocks();
                self.note_leases(leads).await;
            }
            if leads {
                self.decide().await;
            } else {
                self.leave();
            }
        }
    }

    /// Leaves what is due to the server that leads.
    fn leave(&mut self) {
        self.due.clear();
        self.waiting.clear();
    }

    /// After the wall clock was set, when nodes were heard last says nothing: each has a whole lease to be heard again.
    fn note_clocks(&mut self) {
        let (wall, steady) = std::mem::replace(&mut self.clocks, (SystemTime::now(), Instant::now()));
        let passed = self.clocks.1.duration_since(steady);
        let (should_be, is) = (wall + passed, self.clocks.0);
        let moved = is.duration_since(should_be).unwrap_or_else(|error| error.duration());
        if moved > CLOCK_SET_MIN {
            tracing::warn!(seconds = moved.as_secs(), "the wall clock was set; leases of Nodes begin anew");
            self.listening_since = self.app.source.now();
        }
    }

    /// Ends or begins leases.
    async fn note_leases(&mut self, leads: bool) {
        let published = self.app.hub.load();
        let now = self.app.source.now();
        let known = self.app.nodes.gone();
        let nodes = || published.snapshot.list(Kind::Node, None, None);
        let names = nodes().map(|node| &node.metadata.name);
        let heard = self.app.nodes.heard(names.map(|name| (name.clone(), known.nodes.contains(name))));
        let gone = expired(&heard, ANNOUNCEMENT_LEASE_SECS, self.listening_since, now);
        if gone != known {
            for node in gone.nodes.symmetric_difference(&known.nodes) {
                let is_gone = gone.nodes.contains(node);
                tracing::info!(%node, is_gone, "the lease for announcements ended or began");
                self.concern_node(&published, node);
            }
            self.app.nodes.set_gone(gone);
        }
        let table = self.app.nodes.table(&published.snapshot, now);
        let connected: BTreeSet<Name> =
            table.views().iter().filter(|view| view.is_connected).map(|view| view.name.clone()).collect();
        for node in connected.symmetric_difference(&self.connected.clone()) {
            self.concern_node(&published, node);
        }
        self.connected = connected;
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.concern_all();
        }
        if leads {
            self.lose_nodes(&published, now).await;
        }
    }

    /// Takes the Workloads of silent Nodes out of the endpoints, and puts those of Nodes that speak again back.
    async fn lose_nodes(&self, published: &Published, now: Timestamp) {
        let lost_since = |spec: &Spec| if let Spec::Node(spec) = spec { spec.lost_since } else { None };
        let nodes = || published.snapshot.list(Kind::Node, None, None);
        let heard = self
            .app
            .nodes
            .heard(nodes().map(|node| (node.metadata.name.clone(), lost_since(&node.spec).is_some())));
        let gone = expired(&heard, ENDPOINT_LEASE_SECS, self.listening_since, now);
        let changed = heard.into_iter().filter(|one| one.is_gone != gone.nodes.contains(&one.node));
        let operations: Vec<_> = changed
            .map(|one| {
                let since = (!one.is_gone).then_some(now);
                tracing::info!(node = %one.node, is_lost = since.is_some(), "the lease of a Node ended or began");
                Operation::Lose { node: one.node, since }
            })
            .collect();
        // What is not written now is found again at the next tick.
        for batch in operations.chunks(BATCH_MAX) {
            let _ = self.write(batch.to_vec()).await;
        }
    }

    async fn write(&self, operations: Vec<Operation>) -> Result<(), WriteError> {
        let request = Request { operations, ..Request::default() };
        let outcome = self.app.writer.write(request, self.app.source.draw(), 0).await;
        match &outcome {
            Ok(_) | Err(WriteError::Busy | WriteError::Contended | WriteError::Unavailable) => {}
            Err(WriteError::Refused(_) | WriteError::Forbidden(_) | WriteError::TooLarge(_)) => {
                tracing::error!(error = ?outcome, "a decision of this server was refused by its own rules");
            }
        }
        outcome.map(|_| ())
    }

    /// Decides about what is due.
    async fn decide(&mut self) {
        let mut left: Vec<IpAddr> = self.due.keys().copied().collect();
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(BATCH_MAX));
            let operations = self.decide_batch(&left);
            if !operations.is_empty() {
                if self.write(operations).await.is_err() {
                    // They stay due; the next tick tries again.
                    return;
                }
                self.note_commits();
            }
            tokio::task::yield_now().await;
            left = rest;
        }
    }

    fn decide_batch(&mut self, addresses: &[IpAddr]) -> Vec<Operation> {
        let app = Arc::clone(&self.app);
        let published = app.hub.load();
        let table = app.nodes.table(&published.snapshot, app.source.now());
        let views = table.views();
        let compiled = |key: &ServiceKey| published.compiled.get(key).map(|entry| Arc::clone(&entry.form));
        let scene = Scene {
            snapshot: &published.snapshot,
            epoch: published.epoch,
            nodes: &views,
            compiled: &compiled,
        };
        // What this batch gives away counts at once; what is committed in the end is counted from the commits.
        let mut owned = self.owned.clone();
        let mut operations = Vec::new();
        let book = app.announcements();
        for address in addresses {
            let Some(record) = published.snapshot.address(*address).and_then(|object| object.as_address())
            else {
                self.due.remove(address);
                continue;
            };
            if self.must_hear_first(&record.announcement, &table) {
                continue;
            }
            let waited = self.due.get(address).map_or(FIRST_CHOICE_WAIT, Instant::elapsed);
            let circumstances =
                Circumstances { book: &book, owned: &owned, may_wait: waited < FIRST_CHOICE_WAIT };
            let decision = assign(&scene, &circumstances, *address);
            for node in decision.waiting {
                self.waiting.entry(node).or_default().insert(*address);
            }
            match decision.verdict {
                Verdict::Wait => {}
                Verdict::Leave => {
                    self.due.remove(address);
                }
                Verdict::Record(announcement) => {
                    let owner =
                        |order: &Announcement| order.candidates.first().map(|first| first.node.clone());
                    let (from, to) = (owner(&record.announcement), owner(&announcement));
                    concerns::count(&mut owned, from.as_ref(), to.as_ref());
                    let if_epoch = record.announcement.epoch;
                    operations.push(Operation::Announce { address: *address, if_epoch, announcement });
                }
            }
        }
        operations
    }

    /// Whether agents have to be heard before anything is changed: this server started a moment ago.
    fn must_hear_first(&self, order: &Announcement, table: &Table) -> bool {
        let age = self.app.source.now().unix_seconds().saturating_sub(self.listening_since.unix_seconds());
        if age > ANNOUNCEMENT_LEASE_SECS {
            return false;
        }
        let is_unheard = |node: &Name| table.view(node).is_some_and(|view| view.report.is_none());
        if order.candidates.is_empty() {
            // Nobody owns it; those that were there before may be the better choice.
            return table.views().iter().any(|view| view.last_report.is_some() && view.report.is_none());
        }
        order.candidates.iter().any(|candidate| is_unheard(&candidate.node))
    }
}
