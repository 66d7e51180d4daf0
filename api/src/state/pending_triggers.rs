//! Events in agents' reports that require a new selection of announcing nodes (triggers), collected until the
//! assigner task processes them.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{Facts, PeerReport, Report},
};
use tokio::sync::Notify;

use crate::state::node_reports::{Earlier, LEASE_SECS};

/// Collected triggers, grouped by the decisions that they require.
#[derive(Debug, Default)]
pub(crate) struct Triggers {
    /// Nodes that report again after their lease expired, or whose networks have changed.
    pub(crate) nodes: BTreeSet<Name>,
    /// Nodes that have verified a newer state, which may make them eligible as announcers.
    pub(crate) verified: BTreeSet<Name>,
    /// Services that have begun or ceased to fail on a node.
    pub(crate) services: BTreeSet<ServiceKey>,
    /// Nodes whose state according to the BFD session of another node has changed. The reported states confirm or
    /// refute takeovers.
    pub(crate) monitored: BTreeSet<Name>,
    /// Load balancer addresses whose announcement state has changed.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// Collector of triggers, which wakes the assigner task.
#[derive(Debug, Default)]
pub(crate) struct PendingTriggers {
    news: Mutex<Triggers>,
    bell: Notify,
}

impl PendingTriggers {
    /// Adds the triggers of a report. `addresses` are those with a changed announcement state.
    pub(crate) fn report(
        &self,
        node: &Name,
        earlier: &Earlier,
        report: &Report,
        addresses: BTreeSet<IpAddr>,
        now: Timestamp,
    ) {
        let is_over = |at: Timestamp| now.unix_seconds() - at.unix_seconds() > LEASE_SECS;
        let before = earlier.report.as_deref().filter(|_| !earlier.last_report.is_some_and(is_over));
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let mut anything = !addresses.is_empty();
        news.addresses.extend(addresses);
        match before {
            None => anything |= news.nodes.insert(node.clone()),
            Some(before) => {
                if is_other_network(before, report) {
                    anything |= news.nodes.insert(node.clone());
                }
                if before.verified != report.verified {
                    anything |= news.verified.insert(node.clone());
                }
                for node in changed_peers(&before.peers, &report.peers) {
                    anything |= news.monitored.insert(node.clone());
                }
                let failing = |report: &Report| {
                    let failures = report.failures.iter();
                    failures.map(|(key, failure)| (key.clone(), failure.revision)).collect::<BTreeSet<_>>()
                };
                for (service, _) in failing(before).symmetric_difference(&failing(report)) {
                    anything |= news.services.insert(service.clone());
                }
            }
        }
        drop(news);
        if anything {
            self.bell.notify_one();
        }
    }

    /// Waits until at least one trigger is pending.
    pub(crate) async fn wait(&self) {
        self.bell.notified().await;
    }

    /// Removes and returns all collected triggers.
    pub(crate) fn drain(&self) -> Triggers {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns true if the networks, addresses or the public key of the node differ between two reports.
pub(crate) fn is_other_network(before: &Report, after: &Report) -> bool {
    let Facts { addresses, subnets, peer_public_key, link_layer_addresses: _, kernel: _, capabilities: _ } =
        &before.facts;
    let after = &after.facts;
    (subnets, addresses, peer_public_key) != (&after.subnets, &after.addresses, &after.peer_public_key)
}

/// Returns the nodes that a report states to be in another state than the previous report did.
fn changed_peers<'a>(before: &'a [PeerReport], after: &'a [PeerReport]) -> BTreeSet<&'a Name> {
    let states = |peers: &'a [PeerReport]| -> BTreeSet<_> {
        peers.iter().map(|peer| (&peer.node, peer.address, peer.state)).collect()
    };
    let (before, after) = (states(before), states(after));
    before.symmetric_difference(&after).map(|(node, ..)| *node).collect()
}
