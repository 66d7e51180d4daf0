//! Assigner task: selects the announcer of each load balancer address and detects Nodes whose lease has
//! expired.
//!
//! ```text
//! commits ──────┐
//! reports ──────┼─▶ affected addresses ─▶ decisions, one by one ─▶ SetAnnouncer, in batches ─▶ writer
//! leases (1 s) ─┘
//! ```
//! The function `assign` of the crate `model` decides about one address. The operation `SetAnnouncer` stores
//! the decision.
//!
//! After a start the task keeps existing assignments until their candidates have reported or a lease has
//! passed, so that the current announcers remain. The loop of the task is in `leader_task`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use model::{
    admission::admit::Operation,
    kinds::{
        address::Announcement,
        resource::{Kind, ServiceKey, Spec},
    },
    observed::{
        assign::{AssignmentAction, AssignmentInputs, ClusterView, assign},
        lease::{ANNOUNCEMENT_LEASE_SECS, expired},
    },
    primitives::{
        name::Name,
        quantity::{Position, Revision, Timestamp},
    },
};

use super::leader_task::{LeaderTask, apply_commits, write};
use crate::{
    context::server_state::ServerState,
    state::{compiled_set::Delta, node_reports::Table, published::Published},
};

mod affected;

/// Minimum difference between the progress of the wall clock and of the monotonic clock that counts as a clock
/// change (clock set, or machine suspended) and not as drift.
const CLOCK_SET_MIN: Duration = Duration::from_secs(2);
/// Maximum time for which the first assignment of an address waits for further nodes to verify the Service, so
/// that the fastest node does not get every address. Agents report within milliseconds of a change.
const FIRST_CHOICE_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of addresses whose announcer is set in one write. After a write the task yields to other tasks.
const BATCH_MAX: usize = 128;
/// Interval at which the announcers of all addresses are selected again, in case an affected address was missed.
const SWEEP: Duration = Duration::from_secs(300);

/// State of the assigner task.
pub(crate) struct Assigner {
    app: Arc<ServerState>,
    /// Time from which this server receives reports as the leader. No lease expires earlier than one lease
    /// after this time, because the agents may not have reached a new leader before.
    listening_since: Timestamp,
    /// Position of the published state from which the following fields are derived.
    seen: Position,
    /// Recorded announcement of every load balancer address.
    orders: BTreeMap<IpAddr, Announcement>,
    /// Number of addresses for which each node is the first candidate.
    owned: BTreeMap<Name, usize>,
    /// Addresses whose announcer must be selected again, with the time at which they were marked.
    due: BTreeMap<IpAddr, Instant>,
    /// For each node, the addresses whose announcer is selected again as soon as the node has verified their
    /// Service.
    waiting: BTreeMap<Name, BTreeSet<IpAddr>>,
    connected: BTreeSet<Name>,
    swept: Instant,
    /// Wall clock and monotonic clock at the previous tick.
    clocks: (SystemTime, Instant),
}

impl LeaderTask for Assigner {
    fn new(app: Arc<ServerState>) -> Self {
        let listening_since = app.source.now();
        Self {
            app,
            listening_since,
            seen: Position::default(),
            orders: BTreeMap::new(),
            owned: BTreeMap::new(),
            due: BTreeMap::new(),
            waiting: BTreeMap::new(),
            connected: BTreeSet::new(),
            swept: Instant::now(),
            clocks: (SystemTime::now(), Instant::now()),
        }
    }

    fn seen(&mut self) -> &mut Position {
        &mut self.seen
    }

    async fn triggered(app: &ServerState) {
        app.observations.triggers.wait().await;
    }

    fn apply_changes(&mut self, published: &Published, since: Revision) -> Option<()> {
        let commits: Vec<_> = published.recent.since(since)?.map(Arc::clone).collect();
        let addresses: Vec<_> = published.addresses.since(since)?.collect();
        let services: Vec<_> = published.compiled.since(since)?.collect();
        for delta in addresses {
            match delta {
                Delta::Changed(entry) => {
                    self.apply_order(entry.form.address, Some(&entry.form.announcement));
                }
                Delta::Removed(address, _) => self.apply_order(address, None),
            }
        }
        for object in commits.iter().flat_map(|commit| &commit.changes).map(|change| &change.object) {
            self.mark_object(published, object);
        }
        for delta in services {
            if let Delta::Changed(entry) = delta {
                self.mark_form(published, &entry.form);
            }
        }
        Some(())
    }

    fn begin_anew(&mut self, published: &Published) {
        self.orders.clear();
        self.owned.clear();
        self.due.clear();
        self.waiting.clear();
        for (address, entry) in published.addresses.after(None) {
            self.apply_order(*address, Some(&entry.form.announcement));
        }
    }

    fn apply_triggers(&mut self) {
        self.mark_triggered();
    }

    async fn tick(&mut self, leads: bool) {
        self.check_clocks();
        self.update_leases(leads).await;
    }

    async fn decide(&mut self) {
        let mut left: Vec<IpAddr> = self.due.keys().copied().collect();
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(BATCH_MAX));
            let operations = self.decide_batch(&left);
            if !operations.is_empty() {
                if write(&self.app, operations).await.is_err() {
                    // The addresses stay marked for a decision; the next tick (after 1 s) retries.
                    return;
                }
                let app = Arc::clone(&self.app);
                apply_commits(self, &app);
            }
            tokio::task::yield_now().await;
            left = rest;
        }
    }

    fn discard(&mut self) {
        self.due.clear();
        self.waiting.clear();
    }
}

impl Assigner {
    /// Detects a change of the wall clock. The times of the last reports are then not comparable with it, so that
    /// every node gets a new full lease.
    fn check_clocks(&mut self) {
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

    /// Updates the announcement leases of the nodes. If a lease has expired or was renewed, marks the
    /// addresses that it concerns, so that their announcer is selected again. Marks all addresses once per
    /// interval [`SWEEP`]. On the leader (`leads`), also updates the marks of lost Nodes.
    async fn update_leases(&mut self, leads: bool) {
        let published = self.app.hub.load();
        let now = self.app.source.now();
        let known = self.app.observations.nodes.gone();
        let nodes = || published.snapshot.list(Kind::Node, None, None);
        let names = nodes().map(|node| &node.metadata.name);
        let heard =
            self.app.observations.nodes.heard(names.map(|name| (name.clone(), known.nodes.contains(name))));
        let gone = expired(&heard, ANNOUNCEMENT_LEASE_SECS, self.listening_since, now);
        if gone != known {
            for node in gone.nodes.symmetric_difference(&known.nodes) {
                let is_gone = gone.nodes.contains(node);
                tracing::info!(%node, is_gone, "the announcement lease of a Node changed");
                self.mark_node(&published, node);
            }
            self.app.observations.nodes.set_gone(gone);
        }
        let table = self.app.observations.nodes.table(&published.snapshot, now);
        let connected: BTreeSet<Name> =
            table.views().iter().filter(|view| view.is_connected).map(|view| view.name.clone()).collect();
        for node in connected.symmetric_difference(&self.connected.clone()) {
            self.mark_node(&published, node);
        }
        self.connected = connected;
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.mark_all();
        }
        if leads {
            self.lose_nodes(&published, now).await;
        }
    }

    /// Marks Nodes that do not report as lost, so that other nodes check their Workloads, and unmarks Nodes that
    /// report again. With `--node-lost-after never`, no Node is lost.
    async fn lose_nodes(&self, published: &Published, now: Timestamp) {
        let lost_since = |spec: &Spec| if let Spec::Node(spec) = spec { spec.lost_since } else { None };
        let nodes = || published.snapshot.list(Kind::Node, None, None);
        let heard = self
            .app
            .observations
            .nodes
            .heard(nodes().map(|node| (node.metadata.name.clone(), lost_since(&node.spec).is_some())));
        let lease = self.app.settings.node_lost_after.lease_secs();
        let gone = lease.map(|lease| expired(&heard, lease, self.listening_since, now)).unwrap_or_default();
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
            let _ = write(&self.app, batch.to_vec()).await;
        }
    }

    fn decide_batch(&mut self, addresses: &[IpAddr]) -> Vec<Operation> {
        let app = Arc::clone(&self.app);
        let published = app.hub.load();
        let table = app.observations.nodes.table(&published.snapshot, app.source.now());
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
        let book = app.observations.announcements();
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
                    affected::count(&mut owned, from.as_ref(), to.as_ref());
                    let if_epoch = record.announcement.epoch;
                    operations.push(Operation::SetAnnouncer { address: *address, if_epoch, announcement });
                }
            }
        }
        operations
    }

    /// Returns true if the decision about an address must wait for reports of agents, because this server started
    /// or became the leader less than a lease ago.
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
