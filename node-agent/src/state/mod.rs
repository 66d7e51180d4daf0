//! State received from the control server: the last complete and consistent version, in memory. Does no I/O.

pub mod defaults;
pub mod desired;
pub mod workload_networks;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use imbl::OrdMap;
use ipnet::IpNet;
use model::{
    cluster::compiled::CompiledService,
    kinds::{attachment::WorkloadKey, resource::ServiceKey},
    policy::{node_policy::NodePolicy, set::ContentId},
    primitives::{name::Name, quantity::Position},
    wire::{
        feed::{AddressState, NetworkState, NodeState, StartMode},
        workload_network::{BlockState, WorkloadNetworkState},
    },
};

use crate::feed::machine::{self, Batch, NetworkChanges, PolicyUpdates, ServiceChange, StreamFault};

/// Compiled Services (with resolved endpoints) by key. Clones share all data.
pub type Services = OrdMap<ServiceKey, Arc<CompiledService>>;
/// Load balancer addresses with their state. Clones share all data.
pub type Addresses = OrdMap<IpAddr, Arc<AddressState>>;
/// WorkloadNetworks by name. Clones share all data.
pub type WorkloadNetworks = OrdMap<Name, Arc<WorkloadNetworkState>>;
/// Blocks that nodes have, by their addresses. Clones share all data.
pub type Blocks = OrdMap<IpNet, Arc<BlockState>>;

/// Last complete state from the control server. Clones are cheap, so the journal can write one out while the
/// agent continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    position: Option<Position>,
    network: NetworkState,
    node: NodeState,
    services: Services,
    addresses: Addresses,
    workload_networks: WorkloadNetworks,
    blocks: Blocks,
    has_workload_networks: bool,
    policy: NodePolicy,
    has_network_policy: bool,
}

/// Objects that a batch of state changes added, changed or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedObjects {
    /// Services that changed or were removed.
    pub services: BTreeSet<ServiceKey>,
    /// Load balancer addresses that changed or were removed.
    pub addresses: BTreeSet<IpAddr>,
    /// WorkloadNetworks that changed or were removed.
    pub workload_networks: BTreeSet<Name>,
    /// Blocks that changed or were removed.
    pub blocks: BTreeSet<IpNet>,
    /// Sets of network policy that were added or removed.
    pub policy_sets: BTreeSet<ContentId>,
    /// Workloads whose network policy changed or was removed.
    pub policy_workloads: BTreeSet<WorkloadKey>,
    /// True if the cluster-wide settings changed.
    pub network: bool,
    /// True if the settings of this node changed, BGP and declared interfaces excepted.
    pub node: bool,
    /// True if the interfaces that Workloads declare on this node changed.
    pub interfaces: bool,
    /// True if the BGP settings of this node changed.
    pub bgp: bool,
}

impl State {
    /// Returns the position (epoch and revision) of the state, or `None` before the first complete state.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns the cluster-wide settings.
    #[must_use]
    pub const fn network(&self) -> &NetworkState {
        &self.network
    }

    /// Returns the settings of this node.
    #[must_use]
    pub const fn node(&self) -> &NodeState {
        &self.node
    }

    /// Returns the Services.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the load balancer addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the WorkloadNetworks.
    #[must_use]
    pub const fn workload_networks(&self) -> &WorkloadNetworks {
        &self.workload_networks
    }

    /// Returns the blocks of all nodes.
    #[must_use]
    pub const fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns true if the WorkloadNetworks and blocks are those at the position of the state. False before the first
    /// state, and if the control server does not send them; they are then those of an earlier state.
    #[must_use]
    pub const fn has_workload_networks(&self) -> bool {
        self.has_workload_networks
    }

    /// Returns the network policy of all workloads.
    #[must_use]
    pub const fn policy(&self) -> &NodePolicy {
        &self.policy
    }

    /// Returns true if the network policy is that at the position of the state. False before the first state, and if the
    /// control server does not send it; it is then that of an earlier state.
    #[must_use]
    pub const fn has_network_policy(&self) -> bool {
        self.has_network_policy
    }

    /// Applies a whole batch and returns the changed objects. A full state removes everything that it does
    /// not contain.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if the batch leads to an older position (epoch and revision) or
    /// is a delta that does not start from the current one.
    pub fn apply(&mut self, batch: Batch) -> Result<ChangedObjects, StreamFault> {
        let Batch { mode, network, node, services, addresses, networks, policy, position, traces: _ } = batch;
        machine::check(self.position, mode, position)?;
        let mut touched = ChangedObjects::default();
        self.apply_networks(mode, networks, &mut touched);
        self.apply_policy(mode, policy, &mut touched);
        let (network, node) = match mode {
            StartMode::Full => {
                let gone = self.services.keys().filter(|key| !services.contains_key(*key));
                touched.services.extend(gone.cloned());
                let gone = self.addresses.keys().filter(|address| !addresses.contains_key(*address));
                touched.addresses.extend(gone.copied());
                (Some(network.unwrap_or_default()), Some(node.unwrap_or_default()))
            }
            StartMode::Delta => (network, node),
        };
        for key in &touched.services {
            self.services.remove(key);
        }
        for address in &touched.addresses {
            self.addresses.remove(address);
        }
        for (address, change) in addresses {
            let differs = self.addresses.get(&address) != change.as_ref();
            match change {
                Some(state) => self.addresses.insert(address, state),
                None => self.addresses.remove(&address),
            };
            if differs {
                touched.addresses.insert(address);
            }
        }
        for (key, change) in services {
            if self.change(&key, change) {
                touched.services.insert(key);
            }
        }
        touched.network = network.is_some_and(|network| replace(&mut self.network, network));
        if let Some(node) = node {
            let former = std::mem::take(&mut self.node);
            touched.bgp = former.bgp != node.bgp;
            touched.interfaces = former.interfaces != node.interfaces;
            let rest = |node: NodeState| NodeState { bgp: None, interfaces: BTreeMap::new(), ..node };
            touched.node = rest(former) != rest(node.clone());
            self.node = node;
        }
        self.position = Some(position);
        Ok(touched)
    }

    /// Applies the changes of WorkloadNetworks and blocks. A full state without them changes none, so that traffic between
    /// workloads does not depend on the version of the control server.
    fn apply_networks(&mut self, mode: StartMode, changes: NetworkChanges, touched: &mut ChangedObjects) {
        let NetworkChanges { networks, blocks, are_included } = changes;
        if mode == StartMode::Full && are_included == Some(true) {
            let gone = self.workload_networks.keys().filter(|name| !networks.contains_key(*name));
            touched.workload_networks.extend(gone.cloned());
            let gone = self.blocks.keys().filter(|cidr| !blocks.contains_key(*cidr));
            touched.blocks.extend(gone.copied());
        }
        for name in &touched.workload_networks {
            self.workload_networks.remove(name);
        }
        for cidr in &touched.blocks {
            self.blocks.remove(cidr);
        }
        touched.workload_networks.extend(change(&mut self.workload_networks, networks));
        touched.blocks.extend(change(&mut self.blocks, blocks));
        self.has_workload_networks = are_included.unwrap_or(self.has_workload_networks);
    }

    /// Applies the changes of network policy. A full state without it changes nothing, so that the isolation of workloads does
    /// not depend on the version of the control server.
    fn apply_policy(&mut self, mode: StartMode, updates: PolicyUpdates, touched: &mut ChangedObjects) {
        let PolicyUpdates { sets, workloads, is_included } = updates;
        if mode == StartMode::Full && is_included == Some(true) {
            let gone = self.policy.workloads().keys().filter(|key| !workloads.contains_key(*key));
            touched.policy_workloads.extend(gone.cloned());
            let gone = self.policy.sets().keys().filter(|id| !sets.contains_key(*id));
            touched.policy_sets.extend(gone.copied());
        }
        for key in &touched.policy_workloads {
            self.policy.remove_workload(key);
        }
        for id in &touched.policy_sets {
            self.policy.remove_set(*id);
        }
        for (id, set) in sets {
            let differs = match set {
                Some(set) => self.policy.put_set(set),
                None => self.policy.remove_set(id).is_some(),
            };
            if differs {
                touched.policy_sets.insert(id);
            }
        }
        for (key, workload) in workloads {
            let differs = match workload {
                Some(workload) => self.policy.put_workload(workload),
                None => self.policy.remove_workload(&key).is_some(),
            };
            if differs {
                touched.policy_workloads.insert(key);
            }
        }
        self.has_network_policy = is_included.unwrap_or(self.has_network_policy);
    }

    /// Converts the state into a full batch, which any agent state can apply to become this state.
    ///
    /// # Panics
    /// Panics if no state has been received yet.
    #[must_use]
    pub fn into_batch(self) -> Batch {
        let Self {
            position,
            network,
            node,
            services,
            addresses,
            workload_networks,
            blocks,
            has_workload_networks,
            policy,
            has_network_policy,
        } = self;
        let services = services.into_iter().map(|(key, service)| (key, ServiceChange::Set(service)));
        Batch {
            mode: StartMode::Full,
            network: Some(network),
            node: Some(node),
            services: services.collect(),
            addresses: addresses.into_iter().map(|(address, state)| (address, Some(state))).collect(),
            networks: NetworkChanges {
                networks: workload_networks.into_iter().map(|(name, state)| (name, Some(state))).collect(),
                blocks: blocks.into_iter().map(|(cidr, state)| (cidr, Some(state))).collect(),
                are_included: Some(has_workload_networks),
            },
            policy: PolicyUpdates {
                sets: policy.sets().iter().map(|(id, set)| (*id, Some(Arc::clone(set)))).collect(),
                workloads: policy
                    .workloads()
                    .iter()
                    .map(|(key, workload)| (key.clone(), Some(Arc::clone(workload))))
                    .collect(),
                is_included: Some(has_network_policy),
            },
            position: position.expect("a state that applied a batch has a position"),
            traces: Vec::new(),
        }
    }

    fn change(&mut self, key: &ServiceKey, change: ServiceChange) -> bool {
        match change {
            ServiceChange::Set(service) if self.services.get(key) == Some(&service) => false,
            ServiceChange::Set(service) => {
                self.services.insert(key.clone(), service);
                true
            }
            ServiceChange::Removed(_) => self.services.remove(key).is_some(),
        }
    }
}

/// Applies changes to a map, and returns the keys whose values differ afterwards.
fn change<K: Ord + Clone, V: PartialEq>(
    map: &mut OrdMap<K, Arc<V>>,
    changes: BTreeMap<K, Option<Arc<V>>>,
) -> Vec<K> {
    let mut changed = Vec::new();
    for (key, value) in changes {
        if map.get(&key) == value.as_ref() {
            continue;
        }
        match value {
            Some(value) => map.insert(key.clone(), value),
            None => map.remove(&key),
        };
        changed.push(key);
    }
    changed
}

/// Assigns `value` to `place` and returns true if it differs from the previous value.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let differs = *place != value;
    *place = value;
    differs
}

#[cfg(test)]
mod tests {
    use model::wire::feed::Frame;
    use serde_json::json;

    use super::*;
    use crate::{feed::machine::Assembler, journal::wire};

    fn frames(lines: &[serde_json::Value]) -> Vec<Frame> {
        lines.iter().map(|line| serde_json::from_value(line.clone()).unwrap()).collect()
    }

    fn start(mode: &str, position: &str) -> serde_json::Value {
        json!({ "type": "start", "mode": mode, "position": position })
    }

    fn network(mtu: u16) -> serde_json::Value {
        json!({
            "type": "workloadNetwork",
            "network": {
                "name": "pods", "revision": 1, "cidrs": ["10.64.0.0/16"], "encapsulation": "Vxlan", "when": "CrossSubnet",
                "mtu": mtu,
            },
        })
    }

    fn block(cidr: &str, node: &str) -> serde_json::Value {
        json!({ "type": "block", "block": { "cidr": cidr, "revision": 1, "network": "pods", "node": node } })
    }

    fn synced(position: &str, has_networks: bool) -> serde_json::Value {
        json!({ "type": "synced", "position": position, "workloadNetworks": has_networks })
    }

    /// Applies the frames of one batch.
    fn take(state: &mut State, lines: &[serde_json::Value]) -> ChangedObjects {
        let mut assembler = Assembler::new(state.position());
        let batches = frames(lines).into_iter().filter_map(|frame| assembler.push(frame).unwrap());
        state.apply(batches.last().unwrap()).unwrap()
    }

    fn cidrs(state: &State) -> Vec<String> {
        state.blocks().keys().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_follow_the_feed_and_stay_with_a_server_that_sends_none() {
        let mut state = State::default();
        let all = [
            start("full", "7-1"),
            network(1400),
            block("10.64.0.0/26", "n1"),
            block("10.64.0.64/26", "n2"),
            synced("7-1", true),
        ];
        let touched = take(&mut state, &all);
        assert_eq!((touched.workload_networks.len(), touched.blocks.len()), (1, 2));
        assert!(state.has_workload_networks());
        let removed = json!({ "type": "blockRemoved", "cidr": "10.64.0.0/26", "revision": 2 });
        let touched = take(&mut state, &[start("delta", "7-1"), removed, network(1400), synced("7-2", true)]);
        assert_eq!((touched.workload_networks.len(), touched.blocks.len()), (0, 1), "only changes count");
        assert_eq!(cidrs(&state), ["10.64.0.64/26"]);
        // A control server of an older version.
        let touched = take(&mut state, &[start("full", "7-3"), synced("7-3", false)]);
        assert!(touched.blocks.is_empty() && !state.has_workload_networks());
        assert_eq!(cidrs(&state), ["10.64.0.64/26"]);
        // A full state with other blocks replaces them.
        take(
            &mut state,
            &[start("full", "7-4"), network(1500), block("10.64.1.0/26", "n3"), synced("7-4", true)],
        );
        assert_eq!(cidrs(&state), ["10.64.1.0/26"]);
        assert_eq!(state.workload_networks().values().next().unwrap().mtu, Some(1500));
    }

    fn policy_set() -> serde_json::Value {
        json!({ "type": "policySet", "set": { "id": "0123456789abcdef", "isolated": true, "rules": [] } })
    }

    fn policy_workload(address: &str) -> serde_json::Value {
        json!({
            "type": "policyWorkload",
            "workload": {
                "workload": "shop/web", "revision": 1, "addresses": [address], "ingress": "0123456789abcdef",
            },
        })
    }

    /// Input: network policy in a full state and in deltas, also of a control server that sends none. Output: the state has it
    /// after each batch, and after a restart from the journal.
    #[test]
    fn network_policy_follows_the_feed_and_is_in_the_journal() {
        let with_policy =
            |position: &str| json!({ "type": "synced", "position": position, "networkPolicy": true });
        let (mut state, node) = (State::default(), Name::parse("n1").unwrap());
        let all = [start("full", "7-1"), policy_set(), policy_workload("10.1.0.1"), with_policy("7-1")];
        let touched = take(&mut state, &all);
        assert_eq!((touched.policy_sets.len(), touched.policy_workloads.len()), (1, 1));
        assert!(state.has_network_policy());
        let mut file = Vec::new();
        wire::write_state(&mut file, &node, &state, state.position().unwrap()).unwrap();
        let moved = [start("delta", "7-1"), policy_set(), policy_workload("10.1.0.2"), with_policy("7-2")];
        let touched = take(&mut state, &moved);
        assert_eq!((touched.policy_sets.len(), touched.policy_workloads.len()), (0, 1), "only changes count");
        assert!(state.policy().lookup("10.1.0.2".parse().unwrap()).is_some());
        assert!(state.policy().lookup("10.1.0.1".parse().unwrap()).is_none());
        file.extend(wire::encode_change(&state, &touched, state.position().unwrap()));
        let (mut reader, mut read) = (wire::JournalReader::new(node), State::default());
        for line in file.split_inclusive(|byte| *byte == b'\n') {
            if let Some(batch) = reader.push(line).unwrap() {
                read.apply(batch).unwrap();
            }
        }
        assert_eq!(read, state);
        // A control server of an older version.
        take(&mut state, &[start("full", "7-3"), synced("7-3", true)]);
        assert!(!state.has_network_policy() && state.policy().workloads().len() == 1);
        let removed = json!({ "type": "policyWorkloadRemoved", "workload": "shop/web", "revision": 4 });
        take(&mut state, &[start("delta", "7-3"), removed, with_policy("7-4")]);
        assert!(state.policy().workloads().is_empty());
        take(&mut state, &[start("full", "7-5"), with_policy("7-5")]);
        assert!(state.policy().is_empty());
    }

    #[test]
    fn the_journal_keeps_blocks() {
        let (mut state, node) = (State::default(), Name::parse("n1").unwrap());
        take(
            &mut state,
            &[start("full", "7-1"), network(1400), block("10.64.0.0/26", "n1"), synced("7-1", true)],
        );
        let mut file = Vec::new();
        wire::write_state(&mut file, &node, &state, state.position().unwrap()).unwrap();
        let touched =
            take(&mut state, &[start("delta", "7-1"), block("10.64.0.64/26", "n2"), synced("7-2", true)]);
        file.extend(wire::encode_change(&state, &touched, state.position().unwrap()));
        let (mut reader, mut read) = (wire::JournalReader::new(node), State::default());
        for line in file.split_inclusive(|byte| *byte == b'\n') {
            if let Some(batch) = reader.push(line).unwrap() {
                read.apply(batch).unwrap();
            }
        }
        assert_eq!(read, state);
        assert!(read.has_workload_networks());
    }
}
