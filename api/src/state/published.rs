//! Published state: one immutable state that all readers share, with notification of changes.
//!
//! Only the writer publishes. Readers load the state once and may keep it for any time.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use imbl::OrdMap;
use ipnet::IpNet;
use model::{
    cluster::{
        change::{Change, ChangeKind, Commit},
        config::ClusterConfig,
        snapshot::Snapshot,
    },
    compile::{affected, network, node_state},
    kinds::attachment::WorkloadKey,
    kinds::{
        advertisement::AdvertisementType,
        resource::{Kind, Object, ObjectKey, ServiceKey},
        workload::WorkloadInterface,
    },
    policy::{index::PolicyIndex, set::ContentId},
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision},
    },
    wire::feed::{Frame, NetworkState, NodeState},
};
use store::StoredState;
use tokio::sync::watch;
use uuid::Uuid;

use crate::state::{
    change_ring::{Before, Ring},
    compiled_set::{
        AddressSet, BlockSet, CompiledForm, CompiledSet, FormSet, PolicySets, PolicyWorkloads, Span,
        WorkloadNetworkSet, line,
    },
    frame_batch::Chunk,
};

/// State at one revision that all readers share: the objects, and all data derived from them.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// Epoch of the store.
    pub(crate) epoch: Epoch,
    /// Objects and their indices.
    pub(crate) snapshot: Snapshot,
    /// Compiled form of every Service.
    pub(crate) compiled: CompiledSet,
    /// Compiled form of every load balancer address.
    pub(crate) addresses: AddressSet,
    /// Compiled form of every WorkloadNetwork.
    pub(crate) workload_networks: WorkloadNetworkSet,
    /// Compiled form of every block.
    pub(crate) blocks: BlockSet,
    /// Compiled NetworkPolicies.
    pub(crate) policy: PolicyIndex,
    /// Sets of rules of network policy, as agents receive them.
    pub(crate) policy_sets: PolicySets,
    /// Workloads with their network policy, as agents receive them.
    pub(crate) policy_workloads: PolicyWorkloads,
    /// Recent commits, from which watches send the changes.
    pub(crate) recent: Ring,
    /// Cluster-wide settings that every agent receives.
    pub(crate) network: Arc<NetworkState>,
    /// Line of the feed (state stream to agents) with the cluster-wide settings, serialized once for all
    /// agents.
    pub(crate) network_line: Arc<Chunk>,
    network_changed_at: Revision,
    /// Revision of the last change that may affect the BGP settings of Nodes, not counting changes of the Nodes
    /// themselves.
    bgp_changed_at: Revision,
    /// Revision of the last change of the blocks and declared interfaces of each Node, since the start of the server.
    node_networks_changed_at: OrdMap<Name, Revision>,
    /// Default AS number, for Nodes that set none.
    pub(crate) asn: u32,
}

/// Commit with the snapshots of the objects before and after it.
#[derive(Debug)]
pub(crate) struct Step {
    /// Objects before the commit.
    pub(crate) before: Snapshot,
    /// Objects after the commit.
    pub(crate) after: Snapshot,
    /// Changes of the commit, with its revision and time.
    pub(crate) commit: Commit,
}

/// Holder of the newest published state, which notifies subscribers of changes.
#[derive(Debug)]
pub(crate) struct Hub {
    current: ArcSwap<Published>,
    bell: watch::Sender<Position>,
    constants: NetworkState,
    cluster: Arc<ClusterConfig>,
}

impl Published {
    /// Derives the published state from the contents of a store. `constants` are the cluster-wide settings that do
    /// not depend on objects, `cluster` has the settings on which compiled forms depend.
    pub(crate) fn of(loaded: StoredState, constants: &NetworkState, cluster: &ClusterConfig) -> Self {
        let StoredState { position, objects, recent } = loaded;
        let snapshot =
            Snapshot::from_objects(position.revision, objects).with_default_checks(cluster.default_checks());
        let network = with_constants(network(&snapshot), constants);
        let policy = PolicyIndex::of(&snapshot);
        let revision = position.revision;
        Self {
            epoch: position.epoch,
            compiled: CompiledSet::of(&snapshot, revision),
            addresses: AddressSet::of(&snapshot, revision),
            workload_networks: WorkloadNetworkSet::of(&snapshot, revision),
            blocks: BlockSet::of(&snapshot, revision),
            policy_sets: PolicySets::of(&policy, revision),
            policy_workloads: PolicyWorkloads::of(&policy, revision),
            policy,
            recent: Ring::of(position.revision, &recent),
            network_line: network_line(&network),
            network: Arc::new(network),
            network_changed_at: position.revision,
            bgp_changed_at: position.revision,
            node_networks_changed_at: OrdMap::new(),
            asn: cluster.asn(),
            snapshot,
        }
    }

    /// Returns the epoch and revision of the state.
    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, revision: self.snapshot.revision() }
    }

    /// Returns the settings of a Node if a change after `revision` may have affected them, otherwise `None`.
    pub(crate) fn node_state_after(&self, node: &Name, revision: Revision) -> Option<NodeState> {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
        let changed_at = self.snapshot.get(&key).map(|object| object.metadata.revision())?;
        let networks_changed_at = self.node_networks_changed_at.get(node).copied().unwrap_or_default();
        let changed_at = changed_at.max(self.bgp_changed_at).max(networks_changed_at);
        (changed_at > revision).then(|| self.node_state(node))
    }

    /// Returns the settings of a Node in this state.
    pub(crate) fn node_state(&self, node: &Name) -> NodeState {
        node_state(&self.snapshot, node, self.asn)
    }

    /// Returns the epoch and revision of the last change that all agents receive. An agent that has verified
    /// this position is fully synchronized.
    pub(crate) fn nodes_head(&self) -> Position {
        let revision = self
            .compiled
            .changed_at()
            .max(self.addresses.changed_at())
            .max(self.workload_networks.changed_at())
            .max(self.blocks.changed_at())
            .max(self.policy_sets.changed_at())
            .max(self.policy_workloads.changed_at())
            .max(self.network_changed_at);
        Position { epoch: self.epoch, revision }
    }

    /// Returns the state after further commits. The cost depends on the size of the change, not of the state.
    pub(crate) fn advance(&self, steps: Vec<Step>) -> Self {
        let mut next = self.clone();
        let mut touched: Vec<(ServiceKey, Revision)> = Vec::new();
        let mut touched_addresses: Vec<(IpAddr, Revision)> = Vec::new();
        let mut touched_networks = TouchedNetworks::default();
        let mut touched_policy = TouchedPolicy::default();
        let mut network_input_at = None;
        for Step { before, after, commit } in steps {
            let mut services = BTreeSet::new();
            for change in &commit.changes {
                services.extend(affected(&before, &after, change));
                if let Some(record) = change.object.as_address() {
                    touched_addresses.push((record.address, commit.revision));
                }
                touched_networks.extend(&before, &after, change, commit.revision);
                if matches!(change.object.spec.kind(), Kind::Node | Kind::WorkloadNetwork) {
                    network_input_at = Some(commit.revision);
                }
                if concerns_bgp(&before, change) {
                    next.bgp_changed_at = commit.revision;
                }
            }
            touched_policy.extend(&mut next.policy, &before, &after, &commit);
            touched.extend(services.into_iter().map(|key| (key, commit.revision)));
            next.recent.push(&commit, |kind, key, _| match kind {
                ChangeKind::Added => Before::Nothing,
                ChangeKind::Modified | ChangeKind::Deleted => {
                    before.get(key).map_or(Before::Unknown, |object| Before::Object(Arc::clone(object)))
                }
            });
            next.snapshot = after;
        }
        let TouchedNetworks { networks, blocks, nodes } = touched_networks;
        recompile(&mut next.compiled, &next.snapshot, touched);
        recompile(&mut next.addresses, &next.snapshot, touched_addresses);
        recompile(&mut next.workload_networks, &next.snapshot, networks);
        recompile(&mut next.blocks, &next.snapshot, blocks);
        recompile(&mut next.policy_sets, &next.policy, touched_policy.sets);
        recompile(&mut next.policy_workloads, &next.policy, touched_policy.workloads);
        next.node_networks_changed_at.extend(nodes);
        if let Some(revision) = network_input_at {
            let network = with_constants(network(&next.snapshot), &next.network);
            if network != *next.network {
                next.network_line = network_line(&network);
                next.network = Arc::new(network);
                next.network_changed_at = revision;
            }
        }
        next
    }
}

/// WorkloadNetworks and blocks that commits affect, with the revisions of the commits.
#[derive(Default)]
struct TouchedNetworks {
    networks: Vec<(Name, Revision)>,
    blocks: Vec<(IpNet, Revision)>,
    /// Nodes whose own blocks or declared interfaces have changed.
    nodes: Vec<(Name, Revision)>,
}

impl TouchedNetworks {
    fn extend(&mut self, before: &Snapshot, after: &Snapshot, change: &Change, revision: Revision) {
        let object = &change.object;
        if object.as_workload_network().is_some() {
            self.networks.push((object.metadata.name.clone(), revision));
        }
        if let Some(block) = object.as_block() {
            self.blocks.push((block.cidr, revision));
            self.nodes.push((block.node.clone(), revision));
            let old = before.get(&object.key()).and_then(|old| old.as_block());
            self.nodes.extend(old.map(|old| (old.node.clone(), revision)));
        }
        if object.as_workload().is_some() {
            let key = object.key();
            let [old, new] =
                [before, after].map(|state| state.get(&key).and_then(|object| declared_interface(object)));
            if old != new {
                let nodes = [old, new].into_iter().flatten().map(|(node, ..)| (node.clone(), revision));
                self.nodes.extend(nodes);
            }
        }
        if let Some(node) = object.as_node() {
            let old = before.get(&object.key()).and_then(|old| old.as_node());
            if old.is_none_or(|old| old.addresses != node.addresses) {
                let blocks = after.blocks_of(&object.metadata.name);
                self.blocks.extend(blocks.map(|cidr| (*cidr, revision)));
            }
        }
    }
}

/// Returns the part of a Workload that its Node receives with the interfaces: the Node, the interface, the addresses and the
/// identifier.
fn declared_interface(object: &Object) -> Option<(&Name, &WorkloadInterface, &[IpAddr], Option<Uuid>)> {
    let spec = object.as_workload()?;
    let (node, interface) = (spec.node.as_ref()?, spec.interface.as_deref()?);
    Some((node, interface, spec.addresses.as_slice(), object.metadata.uid))
}

/// Workloads and sets of network policy that commits affect, with the revisions of the commits.
#[derive(Default)]
struct TouchedPolicy {
    workloads: Vec<(WorkloadKey, Revision)>,
    sets: Vec<(ContentId, Revision)>,
}

impl TouchedPolicy {
    /// Updates the index by a commit.
    fn extend(&mut self, index: &mut PolicyIndex, before: &Snapshot, after: &Snapshot, commit: &Commit) {
        let changes = index.apply(before, after, commit);
        self.workloads.extend(changes.workloads.into_iter().map(|key| (key, commit.revision)));
        self.sets.extend(changes.sets.into_iter().map(|id| (id, commit.revision)));
    }
}

/// Compiles the touched objects again. Their new forms carry the revision of the last commit that touches them.
fn recompile<F: CompiledForm>(
    set: &mut FormSet<F>,
    source: &F::Source,
    mut touched: Vec<(F::Key, Revision)>,
) {
    touched.sort();
    for pair in touched.chunk_by(|a, b| a.0 == b.0) {
        if let (Some((key, _)), Some(span)) = (pair.last(), Span::of(pair)) {
            set.recompile(source, key, span);
        }
    }
}

/// Returns the cluster-wide settings `network` with the parts of `constants` that do not depend on objects.
fn with_constants(network: NetworkState, constants: &NetworkState) -> NetworkState {
    let NetworkState { peer_key, service_cidrs, workload_cidrs: _, default_check: _, checkers: _ } =
        constants.clone();
    NetworkState { peer_key, service_cidrs, ..network }
}

/// Serializes the cluster-wide settings as a feed frame, once for all agents.
fn network_line(network: &NetworkState) -> Arc<Chunk> {
    Arc::new(Chunk::of(vec![line(&Frame::Network(network.clone()))]))
}

/// Returns true if a change may affect the BGP settings of Nodes and is not a change of a Node itself.
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
        | Kind::DnsZone
        | Kind::Certificate
        | Kind::Gateway
        | Kind::HttpRoute
        | Kind::TlsRoute
        | Kind::WorkloadNetwork
        | Kind::NetworkPolicy
        | Kind::Workload
        | Kind::Service
        | Kind::EndpointSet
        | Kind::EndpointHealth
        | Kind::Address
        | Kind::Block
        | Kind::Attachment => false,
    }
}

impl Hub {
    /// Creates the hub with the first state. `constants` are the cluster-wide settings that do not depend on
    /// objects, `cluster` has the settings on which compiled forms depend.
    pub(crate) fn new(loaded: StoredState, constants: NetworkState, cluster: Arc<ClusterConfig>) -> Self {
        let published = Published::of(loaded, &constants, &cluster);
        let (bell, _) = watch::channel(published.position());
        Self { current: ArcSwap::from_pointee(published), bell, constants, cluster }
    }

    /// Returns the newest published state.
    pub(crate) fn load(&self) -> Arc<Published> {
        self.current.load_full()
    }

    /// Subscribes to the positions of published states. A caller must subscribe before it loads a state, so that
    /// it misses no change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Position> {
        self.bell.subscribe()
    }

    /// Waits until the published state has reached `position` (epoch and revision), for at most the time
    /// `patience`. Returns false on timeout.
    pub(crate) async fn reach(&self, position: Position, patience: Duration) -> bool {
        let mut bell = self.subscribe();
        let is_reached = bell.wait_for(|published| *published >= position);
        matches!(tokio::time::timeout(patience, is_reached).await, Ok(Ok(_)))
    }

    /// Publishes the state after further commits. Only the writer calls this.
    pub(crate) fn publish(&self, steps: Vec<Step>) {
        self.replace(self.load().advance(steps));
    }

    /// Replaces the published state by the contents of a store. Only the writer calls this.
    pub(crate) fn reload(&self, loaded: StoredState) {
        self.replace(Published::of(loaded, &self.constants, &self.cluster));
    }

    fn replace(&self, published: Published) {
        let position = published.position();
        self.current.store(Arc::new(published));
        self.bell.send_replace(position);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::state::compiled_set::Delta;
    use model::{
        admission::{
            admit::{AdmittedWrite, Entropy, Operation, Request, admit},
            decode::{Expect, decode},
        },
        cluster::config::ClusterConfig,
        primitives::{name::Label, quantity::Timestamp},
    };
    use serde_json::{Value, json};

    use super::*;

    /// Generator of deterministic pseudo-random numbers (Knuth's constants).
    struct RandomStream(u64);

    impl RandomStream {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }
    }

    fn object(kind: &str, name: String, spec: Value) -> Operation {
        let value = json!({ "kind": kind, "metadata": { "name": name }, "spec": spec });
        Operation::Apply(decode(&value, &Expect::default()).unwrap())
    }

    fn node(dice: &mut RandomStream, name: &str) -> Operation {
        let spec = json!({ "unschedulable": dice.roll(4) == 0, "bgp": { "asn": 65_000 + dice.roll(2) } });
        let labels = json!({ "rack": dice.roll(3).to_string() });
        let value = json!({ "kind": "Node", "metadata": { "name": name, "labels": labels }, "spec": spec });
        Operation::Apply(decode(&value, &Expect::default()).unwrap())
    }

    /// Returns a random write, usually of an object that affects the BGP settings of nodes.
    fn operation(dice: &mut RandomStream) -> Operation {
        let number = dice.roll(3);
        let in_rack = json!([{ "matchLabels": { "rack": dice.roll(3).to_string() } }]);
        let gone = |kind, name: String| Operation::Delete {
            key: ObjectKey { kind, namespace: None, name: Name::parse(&name).unwrap() },
            if_revision: None,
        };
        match dice.roll(12) {
            0..=2 => {
                let mut spec = json!({
                    "peerAddress": format!("10.0.0.{}", dice.roll(4)), "peerASN": 65_001, "holdTime": 3 + dice.roll(3),
                    "nodeSelectors": in_rack, "disabled": dice.roll(4) == 0,
                });
                if dice.roll(2) == 0 {
                    spec["bfdProfile"] = json!(format!("f{}", dice.roll(2)));
                }
                object("BgpPeer", format!("p{number}"), spec)
            }
            3 => gone(Kind::BgpPeer, format!("p{number}")),
            4..=5 => object(
                "BfdProfile",
                format!("f{}", dice.roll(2)),
                json!({ "receiveInterval": 100 + dice.roll(3) }),
            ),
            6..=7 => {
                let mut spec = json!({ "type": "BGP", "nodeSelectors": in_rack, "med": 1 });
                if dice.roll(2) == 0 {
                    spec = json!({ "type": "L2" });
                }
                object("Advertisement", format!("a{number}"), spec)
            }
            8 => gone(Kind::Advertisement, format!("a{number}")),
            9..=10 => {
                let name = if dice.roll(2) == 0 { "n0" } else { "n1" };
                node(dice, name)
            }
            _ => object(
                "AddressPool",
                "lab".to_owned(),
                json!({ "addresses": ["198.51.100.0/28"], "priority": 1 + dice.roll(5) }),
            ),
        }
    }

    /// After random writes, a feed that uses [`Published::node_state_after`] has sent the same settings as one
    /// that always reads them.
    #[test]
    fn a_feed_misses_nothing_by_looking_only_where_something_changed() {
        let config =
            ClusterConfig::new(vec!["10.96.0.0/16".parse().unwrap()], 30000..=32767, Vec::new()).unwrap();
        let mut dice = RandomStream(7);
        let position = Position { epoch: Epoch(1), revision: Revision(1) };
        let loaded = StoredState { position, objects: Vec::new(), recent: Vec::new() };
        let mut published = Published::of(loaded, &NetworkState::default(), &config);
        let names = ["n0", "n1"].map(|name| Name::parse(name).unwrap());
        let mut operations: Vec<_> = names.iter().map(|name| node(&mut dice, name.as_str())).collect();
        let mut sent: BTreeMap<Name, (Revision, NodeState)> = BTreeMap::new();
        let (mut changes, mut told) = (0, 0);
        for seed in 0..4000 {
            operations.push(operation(&mut dice));
            let request = Request { operations: vec![operations.remove(0)], ..Request::default() };
            let entropy = Entropy { now: Timestamp::from_unix_seconds(1_771_000_000), seed };
            let Ok(AdmittedWrite { snapshot, changes: done, .. }) =
                admit(&published.snapshot, &config, &request, &entropy)
            else {
                continue;
            };
            if !done.is_empty() {
                let commit = Commit { revision: snapshot.revision(), at: entropy.now, changes: done };
                let before = published.snapshot.clone();
                assert_eq!(
                    before.apply(&commit).as_ref(),
                    Some(&snapshot),
                    "what another server makes of it"
                );
                assert_eq!(snapshot.apply(&commit), None, "once");
                published = published.advance(vec![Step { before, after: snapshot, commit }]);
            }
            for name in &names {
                // A feed does not see every state.
                if dice.roll(3) == 0 {
                    continue;
                }
                let whole = published.node_state(name);
                let revision = published.snapshot.revision();
                let (seen, state) = sent.entry(name.clone()).or_insert_with(|| (revision, whole.clone()));
                changes += u32::from(*state != whole);
                if let Some(new) = published.node_state_after(name, *seen) {
                    told += 1;
                    *state = new;
                }
                *seen = revision;
                assert_eq!(*state, whole, "{name} at {revision}");
            }
        }
        assert!(
            changes > 300 && told >= changes,
            "the writes say something: {changes} changes, {told} looks"
        );
    }

    /// One server publishes random writes of two Services one by one, another server several at a time. A
    /// client that continues at the second server from a state of the first receives every difference,
    /// including those from forms that only the first server has published.
    #[test]
    fn who_goes_on_at_a_server_that_publishes_several_commits_at_once_misses_nothing() {
        let config =
            ClusterConfig::new(vec!["10.96.0.0/16".parse().unwrap()], 30000..=32767, Vec::new()).unwrap();
        let mut dice = RandomStream(11);
        let position = Position { epoch: Epoch(1), revision: Revision(1) };
        let loaded = || StoredState { position, objects: Vec::new(), recent: Vec::new() };
        let mut one = Published::of(loaded(), &NetworkState::default(), &config);
        let mut other = one.clone();
        let forms = |published: &Published| -> BTreeMap<ServiceKey, Value> {
            let all = published.compiled.after(None);
            // The revision of a form may differ between servers; its contents may not.
            all.map(|(key, entry)| (key.clone(), json!(entry.form.cluster_ips))).collect()
        };
        let (mut waiting, mut seen) = (Vec::new(), vec![(one.snapshot.revision(), forms(&one))]);
        for seed in 0..3000 {
            let name = format!("s{}", dice.roll(2));
            let operation = if dice.roll(2) == 0 {
                let key = ObjectKey {
                    kind: Kind::Service,
                    namespace: Some(Label::parse("default").unwrap()),
                    name: Name::parse(&name).unwrap(),
                };
                Operation::Delete { key, if_revision: None }
            } else {
                let address = format!("10.96.1.{}", 2 * dice.roll(2) + u64::from(name == "s1"));
                let spec = json!({ "clusterIP": address, "ports": [{ "port": 80 }] });
                object("Service", name, spec)
            };
            let request = Request { operations: vec![operation], ..Request::default() };
            let entropy = Entropy { now: Timestamp::from_unix_seconds(1_771_000_000), seed };
            let Ok(AdmittedWrite { snapshot, changes, .. }) =
                admit(&one.snapshot, &config, &request, &entropy)
            else {
                continue;
            };
            if changes.is_empty() {
                continue;
            }
            let commit = Commit { revision: snapshot.revision(), at: entropy.now, changes };
            let before = one.snapshot.clone();
            let step = || Step { before: before.clone(), after: snapshot.clone(), commit: commit.clone() };
            waiting.push(step());
            one = one.advance(vec![step()]);
            seen.push((one.snapshot.revision(), forms(&one)));
            if dice.roll(4) != 0 {
                continue;
            }
            other = other.advance(std::mem::take(&mut waiting));
            for (revision, mut state) in std::mem::take(&mut seen) {
                for delta in other.compiled.since(revision).expect("few are gone") {
                    match delta {
                        Delta::Changed(entry) => {
                            state.insert(entry.form.service.clone(), json!(entry.form.cluster_ips));
                        }
                        Delta::Removed(key, _) => drop(state.remove(&key)),
                    }
                }
                assert_eq!(state, forms(&other), "from {revision} to {}", other.snapshot.revision());
            }
            seen.push((one.snapshot.revision(), forms(&one)));
        }
        assert!(one.snapshot.revision().0 > 500, "only {} commits", one.snapshot.revision());
    }
}
