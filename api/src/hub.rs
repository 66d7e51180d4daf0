//! What is published: one immutable state that every reader shares, and a bell that rings when there is a newer one.
//!
//! Only the writer publishes. Readers load the state once and work on it however long they need.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;
use model::{
    advertisement::AdvertisementType,
    change::{Change, ChangeKind, Commit},
    compile::{affected, network, node_state},
    feed::{NetworkState, NodeState},
    name::Name,
    quantity::{Epoch, Position, Revision},
    resource::{Kind, Object, ObjectKey, ServiceKey},
    secret::Secret,
    snapshot::Snapshot,
};
use store::Loaded;
use tokio::sync::watch;

use crate::{
    compiled_set::{AddressSet, CompiledSet},
    ring::{Before, Ring},
};

/// The state at one revision, with everything that is derived from it.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// The life of the store.
    pub(crate) epoch: Epoch,
    /// The objects.
    pub(crate) snapshot: Snapshot,
    /// The compiled Services.
    pub(crate) compiled: CompiledSet,
    /// The compiled load balancer addresses.
    pub(crate) addresses: AddressSet,
    /// The recent commits.
    pub(crate) recent: Ring,
    /// Facts about the whole cluster.
    pub(crate) network: Arc<NetworkState>,
    network_changed_at: Revision,
    /// When what nodes are told of BGP last changed for others than a changed Node itself.
    bgp_changed_at: Revision,
    /// The AS of Nodes that state none.
    pub(crate) asn: u32,
}

/// One commit with the states around it.
#[derive(Debug)]
pub(crate) struct Step {
    /// The state before.
    pub(crate) before: Snapshot,
    /// The state after.
    pub(crate) after: Snapshot,
    /// What happened.
    pub(crate) commit: Commit,
}

/// Where the published state is kept.
#[derive(Debug)]
pub(crate) struct Hub {
    current: ArcSwap<Published>,
    bell: watch::Sender<Position>,
    peer_key: Secret,
    asn: u32,
}

impl Published {
    /// Derives everything from what a store holds.
    pub(crate) fn of(loaded: Loaded, peer_key: Secret, asn: u32) -> Self {
        let Loaded { position, objects, recent } = loaded;
        let snapshot = Snapshot::from_objects(position.revision, objects);
        Self {
            epoch: position.epoch,
            compiled: CompiledSet::of(&snapshot),
            addresses: AddressSet::of(&snapshot),
            recent: Ring::of(position.revision, &recent),
            network: Arc::new(NetworkState { peer_key: Some(peer_key), ..network(&snapshot) }),
            network_changed_at: position.revision,
            bgp_changed_at: position.revision,
            asn,
            snapshot,
        }
    }

    /// Where this state is in history.
    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, revision: self.snapshot.revision() }
    }

    /// The settings of a node if they may have changed after a revision. Costs a look-up when they have not.
    pub(crate) fn node_state_after(&self, node: &Name, revision: Revision) -> Option<NodeState> {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
        let changed_at = self.snapshot.get(&key).map(|object| object.metadata.revision())?;
        (changed_at.max(self.bgp_changed_at) > revision).then(|| self.node_state(node))
    }

    /// The settings of a node.
    pub(crate) fn node_state(&self, node: &Name) -> NodeState {
        node_state(&self.snapshot, node, self.asn)
    }

    /// Where a node is that has everything.
    pub(crate) fn nodes_head(&self) -> Position {
        let revision =
            self.compiled.changed_at().max(self.addresses.changed_at()).max(self.network_changed_at);
        Position { epoch: self.epoch, revision }
    }

    /// The state after some commits. Costs what the commits changed, not what there is.
    fn advance(&self, steps: Vec<Step>) -> Self {
        let mut next = self.clone();
        let mut touched: Vec<(ServiceKey, Revision)> = Vec::new();
        let mut touched_addresses: Vec<(IpAddr, Revision)> = Vec::new();
        let mut node_changed_at = None;
        for Step { before, after, commit } in steps {
            let mut services = BTreeSet::new();
            for change in &commit.changes {
                services.extend(affected(&before, &after, change));
                if let Some(record) = change.object.as_address() {
                    touched_addresses.push((record.address, commit.revision));
                }
                if change.object.spec.kind() == Kind::Node {
                    node_changed_at = Some(commit.revision);
                }
                if concerns_bgp(&before, change) {
                    next.bgp_changed_at = commit.revision;
                }
            }
            touched.extend(services.into_iter().map(|key| (key, commit.revision)));
            next.recent.push(&commit, |kind, key, _| match kind {
                ChangeKind::Added => Before::Nothing,
                ChangeKind::Modified | ChangeKind::Deleted => {
                    before.get(key).map_or(Before::Unknown, |object| Before::Object(Arc::clone(object)))
                }
            });
            next.snapshot = after;
        }
        // The last commit that touches a Service is the one whose revision its new form carries.
        touched.sort();
        for pair in touched.chunk_by(|a, b| a.0 == b.0) {
            if let Some((key, revision)) = pair.last() {
                next.compiled.recompile(&next.snapshot, key, *revision);
            }
        }
        touched_addresses.sort();
        for pair in touched_addresses.chunk_by(|a, b| a.0 == b.0) {
            if let Some((address, revision)) = pair.last() {
                next.addresses.recompile(&next.snapshot, address, *revision);
            }
        }
        if let Some(revision) = node_changed_at {
            let peer_key = next.network.peer_key.clone();
            let network = NetworkState { peer_key, ..network(&next.snapshot) };
            if network != *next.network {
                next.network = Arc::new(network);
                next.network_changed_at = revision;
            }
        }
        next
    }
}

/// Whether a change may be one of what nodes are told of BGP, beside what a Node says of itself.
fn concerns_bgp(before: &Snapshot, change: &Change) -> bool {
    let is_bgp = |object: &Object| {
        object.as_advertisement().is_some_and(|spec| spec.advertisement_type == AdvertisementType::Bgp)
    };
    match change.object.spec.kind() {
        Kind::BgpPeer | Kind::BfdProfile => true,
        Kind::Advertisement => {
            is_bgp(&change.object) || before.get(&change.object.key()).is_some_and(|object| is_bgp(object))
        }
        Kind::Node
        | Kind::AddressPool
        | Kind::Workload
        | Kind::Service
        | Kind::EndpointSet
        | Kind::Address => false,
    }
}

impl Hub {
    /// Publishes the first state. `asn` is the AS of Nodes that state none.
    pub(crate) fn new(loaded: Loaded, peer_key: Secret, asn: u32) -> Self {
        let published = Published::of(loaded, peer_key.clone(), asn);
        let (bell, _) = watch::channel(published.position());
        Self { current: ArcSwap::from_pointee(published), bell, peer_key, asn }
    }

    /// The newest state.
    pub(crate) fn load(&self) -> Arc<Published> {
        self.current.load_full()
    }

    /// A bell of one's own. Take it before loading the state, so that no change falls between.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Position> {
        self.bell.subscribe()
    }

    /// Publishes the state after some commits. Only the writer calls this.
    pub(crate) fn publish(&self, steps: Vec<Step>) {
        self.replace(self.load().advance(steps));
    }

    /// Publishes what a store holds, from nothing. Only the writer calls this.
    pub(crate) fn reload(&self, loaded: Loaded) {
        self.replace(Published::of(loaded, self.peer_key.clone(), self.asn));
    }

    fn replace(&self, published: Published) {
        let position = published.position();
        self.current.store(Arc::new(published));
        self.bell.send_replace(position);
    }
}
