//! Assigner task: selects the announcer of each load balancer address and detects Nodes whose lease has
//! expired.
//!
//! ```text
//! commits ──────┐
//! reports ──────┼─▶ affected addresses ─▶ model::assign, one by one ─▶ Announce, in batches ─▶ writer
//! leases (1 s) ─┘
//! ```
//! The task is stateless: everything is derived from the published state, agent reports and time. After a
//! start it keeps an existing assignment until its candidates have reported or a lease has passed, and so
//! adopts the current announcers. Among several control servers only the leader decides; a new leader behaves
//! as after a start.

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
        assign::{AssignmentAction, AssignmentInputs, ClusterView, assign},
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

/// Interval of lease checks: a fifteenth of the shortest lease.
const TICK: Duration = Duration::from_secs(1);
/// Minimum divergence of wall clock and monotonic clock that counts as a clock change (clock set, or machine
/// suspended) and not as drift.
const CLOCK_SET_MIN: Duration = Duration::from_secs(2);
/// Time the first assignment of an address waits for nodes that verify the Service later, so that the fastest
/// node does not get every address. Agents report within milliseconds of a change.
const FIRST_CHOICE_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of addresses decided in one write and before the task yields.
const BATCH_MAX: usize = 128;
/// Interval of a full re-evaluation: a safety net against errors in the rules that select affected addresses.
const SWEEP: Duration = Duration::from_secs(300);

/// State of the assigner task.
pub(crate) struct Assigner {
    app: Arc<ServerState>,
    /// Time since which this server has received reports as the leader. A new leader may have been cut off
    /// from the agents before.
    listening_since: Timestamp,
    /// Position of the published state that the following fields are derived from.
    seen: Position,
    /// Current announcement of every load balancer address.
    orders: BTreeMap<IpAddr, Announcement>,
    /// Number of addresses for which each node is the first candidate.
    owned: BTreeMap<Name, usize>,
    /// Addresses to re-evaluate, with the time at which they were marked.
    due: BTreeMap<IpAddr, Instant>,
    /// Addresses that wait for a node to verify their Service.
    waiting: BTreeMap<Name, BTreeSet<IpAddr>>,
    connected: BTreeSet<Name>,
    swept: Instant,
    /// Wall clock and monotonic clock at the last tick.
    clocks: (SystemTime, Instant),
}

impl Assigner {
    /// Creates a task without derived state.
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

    /// Runs until the server stops.
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

    /// Discards pending work; the leader does it.
    fn leave(&mut self) {
        self.due.clear();
        self.waiting.clear();
    }

    /// Detects a change of the wall clock. Last-seen times are meaningless then, so every node gets a full
    /// new lease.
    fn note_clocks(&mut self) {
        let (wall, steady) = std::mem::replace(&mut self.clocks, (SystemTime::now(), Instant::now()));
        let passed = self.clocks.1.duration_since(steady);
        let (should_be, is) = (wall + passed, self.clocks.0);
        let moved = is.duration_since(should_be).unwrap_or_else(|error| error.duration());
        if moved > CLOCK_SET_MIN {
            tracing::warn!(
                seconds = moved.as_secs(),
                "the wall clock was changed; the leases of Nodes \
                                                       start over"
            );
            self.listening_since = self.app.source.now();
        }
    }

    /// Updates the announcement leases and marks the addresses of nodes whose lease state changed.
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
                tracing::info!(%node, is_gone, "the announcement lease of a Node changed");
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

    /// Removes the Workloads of silent Nodes from the endpoints and restores them when the Node reports
    /// again.
    async fn lose_nodes(&self, published: &Published, now: Timestamp) {
        let lost_since = |spec: &Spec| if let Spec::Node(spec) = spec { spec.lost_since } else { None };
        let nodes = || published.snapshot.list(Kind::Node, None, None);
        let heard = self
            .app
            .nodes
            .heard(nodes().map(|node| (node.metadata.name.clone(), lost_since(&node.spec).is_some())));
        let gone = expired(&heard, ENDPOINT_LEASE_SECS, self.listening_since, now);
        let changed = heard.into_iter().filter(|one| one.is_lost != gone.nodes.contains(&one.node));
        let operations: Vec<_> = changed
            .map(|one| {
                let since = (!one.is_lost).then_some(now);
                tracing::info!(node = %one.node, is_lost = since.is_some(), "the endpoint lease of a \
                                                                             Node changed");
                Operation::SetNodeLost { node: one.node, since }
            })
            .collect();
        // A failed write is repeated at the next tick.
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
                tracing::error!(error = ?outcome, "a decision of this server was rejected by its own \
                                                   validation");
            }
        }
        outcome.map(|_| ())
    }

    /// Decides all due addresses.
    async fn decide(&mut self) {
        let mut left: Vec<IpAddr> = self.due.keys().copied().collect();
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(BATCH_MAX));
            let operations = self.decide_batch(&left);
            if !operations.is_empty() {
                if self.write(operations).await.is_err() {
                    // The addresses stay due; the next tick retries.
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
        let scene = ClusterView {
            snapshot: &published.snapshot,
            epoch: published.epoch,
            nodes: &views,
            compiled: &compiled,
        };
        // Assignments of this batch count immediately; the final count comes from the commits.
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
            let inputs =
                AssignmentInputs { book: &book, owned: &owned, may_wait: waited < FIRST_CHOICE_WAIT };
            let decision = assign(&scene, &inputs, *address);
            for node in decision.waiting {
                self.waiting.entry(node).or_default().insert(*address);
            }
            match decision.action {
                AssignmentAction::Wait => {}
                AssignmentAction::Leave => {
                    self.due.remove(address);
                }
                AssignmentAction::Record(announcement) => {
                    let owner =
                        |order: &Announcement| order.candidates.first().map(|first| first.node.clone());
                    let (from, to) = (owner(&record.announcement), owner(&announcement));
                    concerns::count(&mut owned, from.as_ref(), to.as_ref());
                    let if_epoch = record.announcement.epoch;
                    operations.push(Operation::SetAnnouncer { address: *address, if_epoch, announcement });
                }
            }
        }
        operations
    }

    /// True if the decision must wait for reports of agents because this server started recently.
    fn must_hear_first(&self, order: &Announcement, table: &Table) -> bool {
        let age = self.app.source.now().unix_seconds().saturating_sub(self.listening_since.unix_seconds());
        if age > ANNOUNCEMENT_LEASE_SECS {
            return false;
        }
        let is_unheard = |node: &Name| table.view(node).is_some_and(|view| view.report.is_none());
        if order.candidates.is_empty() {
            // The address has no owner; nodes that were connected before the restart may be better
            // candidates.
            return table.views().iter().any(|view| view.last_report.is_some() && view.report.is_none());
        }
        order.candidates.iter().any(|candidate| is_unheard(&candidate.node))
    }
}
