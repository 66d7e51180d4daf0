//! Reports of the agents by node. The reports are kept in memory. Only the time of the last report is stored
//! periodically, because agents repeat all other data.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::base::chain;
use model::{
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, ObjectKey},
    observed::{
        lease::{ANNOUNCEMENT_LEASE_SECS, ExpiredLeases, NodeLease},
        rollup::NodeView,
    },
    primitives::{name::Name, quantity::Timestamp},
    wire::report::Report,
};
use serde::{Deserialize, Serialize};
use store::Store;
use tokio_util::sync::CancellationToken;

/// Time after the last report for which a node counts as connected, in seconds.
pub(crate) const LEASE_SECS: i64 = ANNOUNCEMENT_LEASE_SECS;
/// Time in seconds after the last alternation of two boot ids in which two agents use the name of a node. Both report
/// at least every 5 s, so that their reports alternate within this time.
const CONTEST_SECS: i64 = 6;
/// Minimum interval in seconds between two writes of a node's last report time to the store: accurate enough after
/// a restart, and 17 writes a second for 1,000 nodes.
const LAST_SEEN_STORED_EVERY_SECS: i64 = 60;
/// Prefix of the store keys of the nodes' last report times.
const STATUS_PREFIX: &str = "node-last-seen/";

/// Stored data about the last report of a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastSeen {
    last_report: Timestamp,
}

#[derive(Debug, Default)]
struct NodeEntry {
    report: Option<Arc<Report>>,
    last_report: Option<Timestamp>,
    stored_at: Option<Timestamp>,
    feed: Option<CancellationToken>,
    /// Token that cancels the agent's query-only feed (stream without state), which is open while the agent
    /// receives its state from another control server.
    questions: Option<CancellationToken>,
    /// True if the agent has closed its last feed, and has neither reported nor opened a feed since.
    has_left: bool,
    /// Boot id of the agent process that ran before the current one.
    previous_boot_id: Option<String>,
    /// Time at which an earlier boot id reported again, which means that two agents use the node's name.
    contested_at: Option<Timestamp>,
}

impl NodeEntry {
    /// Detects two agents that use the same node name. After a restart of an agent its old boot id never reports
    /// again, but the reports of two agents alternate.
    fn record_boot(&mut self, boot_id: &str, now: Timestamp) {
        let Some(current) = self.report.as_ref().map(|report| &report.boot_id) else { return };
        if current == boot_id {
            return;
        }
        if self.previous_boot_id.as_deref() == Some(boot_id) {
            self.contested_at = Some(now);
        }
        self.previous_boot_id = Some(current.clone());
    }
}

/// Reports and last report times of all nodes by name.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    entries: Mutex<BTreeMap<Name, NodeEntry>>,
    /// Nodes whose announcement lease has expired. The ones that count as lost are no candidates for
    /// announcing an address.
    gone: Mutex<ExpiredLeases>,
}

/// Data of the previous report of a node.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Previous report, if it arrived after the start of this server.
    pub(crate) report: Option<Arc<Report>>,
    /// Time of the previous report, which may have arrived before the start of this server.
    pub(crate) last_report: Option<Timestamp>,
}

impl Earlier {
    /// Returns true if the node was disconnected before a report at time `now`.
    pub(crate) fn was_silent(&self, now: Timestamp) -> bool {
        self.last_report.is_some_and(|at| now.unix_seconds() - at.unix_seconds() > LEASE_SECS)
    }
}

/// Reported data of one node, and the connection state of the node at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// True if the agent reported within the lease.
    pub(crate) is_connected: bool,
    has_left: bool,
    is_contested: bool,
    is_lost: bool,
    last_report: Option<Timestamp>,
    report: Option<Arc<Report>>,
}

/// Reported data of all Nodes at one moment, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table(BTreeMap<Name, Row>);

impl Table {
    /// Returns the data of all Nodes, in the order of names.
    pub(crate) fn views(&self) -> Vec<NodeView<'_>> {
        self.0.iter().map(|(name, row)| row.view(name)).collect()
    }

    /// Returns the data of one Node, or `None` if the Node does not exist.
    pub(crate) fn view(&self, name: &Name) -> Option<NodeView<'_>> {
        self.0.get_key_value(name).map(|(name, row)| row.view(name))
    }

    /// Returns the number of nodes whose last report is within the lease.
    pub(crate) fn connected(&self) -> usize {
        self.0.values().filter(|row| row.is_connected).count()
    }
}

impl Row {
    fn view<'a>(&'a self, name: &'a Name) -> NodeView<'a> {
        let Self { is_connected, has_left, is_contested, is_lost, last_report, report } = self;
        NodeView {
            name,
            is_connected: *is_connected,
            has_left: *has_left,
            is_contested: *is_contested,
            is_lost: *is_lost,
            last_report: *last_report,
            report: report.as_deref(),
        }
    }
}

impl Nodes {
    /// Creates the registry with the stored last report times.
    pub(crate) fn of(statuses: &BTreeMap<String, Vec<u8>>) -> Self {
        let read = |(key, body): (&String, &Vec<u8>)| {
            let name = Name::parse(key.strip_prefix(STATUS_PREFIX)?).ok()?;
            let LastSeen { last_report } = serde_json::from_slice(body).ok()?;
            let entry = NodeEntry {
                last_report: Some(last_report),
                stored_at: Some(last_report),
                ..NodeEntry::default()
            };
            Some((name, entry))
        };
        Self { entries: Mutex::new(statuses.iter().filter_map(read).collect()), gone: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, NodeEntry>> {
        // Changes are single assignments; a panicking holder leaves a consistent map.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the report of a node. Returns the data of the previous report.
    pub(crate) async fn report(
        &self,
        store: &dyn Store,
        name: &Name,
        report: Arc<Report>,
        now: Timestamp,
    ) -> Earlier {
        let (is_due, earlier) = {
            let mut entries = self.lock();
            let entry = entries.entry(name.clone()).or_default();
            entry.record_boot(&report.boot_id, now);
            entry.has_left = false;
            let earlier =
                Earlier { report: entry.report.replace(report), last_report: entry.last_report.replace(now) };
            let age = entry.stored_at.map(|at| now.unix_seconds() - at.unix_seconds());
            let is_due = age.is_none_or(|age| age >= LAST_SEEN_STORED_EVERY_SECS);
            if is_due {
                entry.stored_at = Some(now);
            }
            (is_due, earlier)
        };
        if is_due {
            store_last_seen(store, name, now).await;
        }
        earlier
    }

    /// Returns the time of the last report of each given Node. The flag of each Node (true: marked as lost)
    /// is copied to the result.
    pub(crate) fn heard(&self, nodes: impl Iterator<Item = (Name, bool)>) -> Vec<NodeLease> {
        let entries = self.lock();
        let last_report = |node: &Name| entries.get(node).and_then(|entry| entry.last_report);
        nodes.map(|(node, is_lost)| NodeLease { last_report: last_report(&node), node, is_lost }).collect()
    }

    /// Returns the Nodes whose announcement lease has expired: the ones that count as lost, and the ones that
    /// do not, because too many Nodes are silent at once.
    pub(crate) fn gone(&self) -> ExpiredLeases {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the Nodes whose announcement lease has expired, as determined by the assigner task.
    pub(crate) fn set_gone(&self, gone: ExpiredLeases) {
        *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = gone;
    }

    /// Returns the reported data of all Nodes of a snapshot at time `now`.
    pub(crate) fn table(&self, snapshot: &Snapshot, now: Timestamp) -> Table {
        let gone = self.gone();
        let entries = self.lock();
        let row = |name: &Name| {
            let entry = entries.get(name);
            let last_report = entry.and_then(|entry| entry.last_report);
            let report = entry.and_then(|entry| entry.report.clone());
            let is_recent = |at: Timestamp| now.unix_seconds() - at.unix_seconds() <= LEASE_SECS;
            let is_connected = report.is_some() && last_report.is_some_and(is_recent);
            let is_alternating = |at: Timestamp| now.unix_seconds() - at.unix_seconds() <= CONTEST_SECS;
            let is_contested = entry.and_then(|entry| entry.contested_at).is_some_and(is_alternating);
            let is_lost = !is_connected && gone.nodes.contains(name);
            let has_left = entry.is_some_and(|entry| entry.has_left);
            Row { is_connected, has_left, is_contested, is_lost, last_report, report }
        };
        let names = snapshot.list(Kind::Node, None, None).map(|object| &object.metadata.name);
        Table(names.map(|name| (name.clone(), row(name))).collect())
    }

    /// Registers a feed (state stream) of a node, and returns the token that cancels it. Older feeds of the
    /// node are cancelled, because its agent has reconnected.
    pub(crate) fn begin_feed(&self, name: &Name, parent: &CancellationToken) -> CancellationToken {
        let token = parent.child_token();
        let mut entries = self.lock();
        let entry = entries.entry(name.clone()).or_default();
        entry.has_left = false;
        // Cancelled under the lock, so that `end_feed` never mistakes a replaced feed for the current one.
        let older = [entry.feed.replace(token.clone()), entry.questions.take()];
        older.into_iter().flatten().for_each(|older| older.cancel());
        token
    }

    /// Registers a query-only feed of a node, and returns the token that cancels it. An older one of the node is
    /// cancelled.
    pub(crate) fn begin_questions(&self, name: &Name, parent: &CancellationToken) -> CancellationToken {
        let token = parent.child_token();
        let mut entries = self.lock();
        let entry = entries.entry(name.clone()).or_default();
        entry.has_left = false;
        if let Some(older) = entry.questions.replace(token.clone()) {
            older.cancel();
        }
        token
    }

    /// Records that an agent has closed the feed or query-only feed with the token `feed`. Ignored if the server
    /// has cancelled the feed, for example because a newer one replaces it. Returns true if this changes the state
    /// of the node.
    pub(crate) fn end_feed(&self, name: &Name, feed: &CancellationToken) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(name).filter(|_| !feed.is_cancelled()) else { return false };
        !std::mem::replace(&mut entry.has_left, true)
    }

    /// Drops the data of Nodes that the snapshot no longer contains, in memory and in the store.
    pub(crate) async fn forget_deleted(&self, store: &dyn Store, snapshot: &Snapshot) {
        let exists = |name: &Name| {
            snapshot.get(&ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() }).is_some()
        };
        let gone: Vec<Name> = {
            let mut entries = self.lock();
            let gone: Vec<_> = entries.keys().filter(|name| !exists(name)).cloned().collect();
            for name in &gone {
                entries.remove(name);
            }
            gone
        };
        for name in gone {
            if let Err(error) = store.remove_status(&format!("{STATUS_PREFIX}{name}")).await {
                tracing::warn!(node = %name, error = chain(&error), "cannot delete the last-seen time \
                                                                      of a deleted node");
            }
        }
    }
}

async fn store_last_seen(store: &dyn Store, name: &Name, last_report: Timestamp) {
    let body = serde_json::to_vec(&LastSeen { last_report }).expect("a timestamp serialises");
    if let Err(error) = store.put_status(&format!("{STATUS_PREFIX}{name}"), &body).await {
        // Only the last-seen time after a restart is lost.
        tracing::warn!(node = %name, error = chain(&error), "cannot store the last-seen time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(boot_id: &str) -> Arc<Report> {
        let json = serde_json::json!({
            "bootId": boot_id, "agentVersion": "0", "mode": "nftables", "received": "1-1", "applied": "1-1", "verified": "1-1",
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_restart_is_no_contest_and_two_agents_are() {
        let now = Timestamp::from_unix_seconds(1_771_000_000);
        let mut entry = NodeEntry::default();
        let mut see = |boot_id: &str| {
            entry.record_boot(boot_id, now);
            entry.report = Some(report(boot_id));
            entry.contested_at
        };
        assert_eq!([see("a"), see("a"), see("b"), see("b"), see("c")], [None; 5], "restarts");
        assert_eq!(see("b"), Some(now), "a start that had been followed speaks again");
    }
}
