//! Compiled policy of the whole cluster, kept beside the snapshot of the objects.
//!
//! A change of a workload costs the policies that may select it and the selectors that may match it: both are found by
//! the namespace and by one label. A change of a policy costs the workloads that it selects, before and after, and those
//! that its new or removed selectors of peers match. All maps are persistent, so that clones share their data.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};

use super::{
    compile::{CompiledPolicy, NamespaceMatch, PeerSelector, RuleTemplate, with_number},
    node_policy::{Direction, NodePolicy},
    set::{ContentId, PolicyKey, PolicySet, PolicyWorkload},
};
use crate::{
    cluster::{
        change::{Change, ChangeKind, Commit},
        snapshot::Snapshot,
    },
    kinds::{
        attachment::WorkloadKey,
        network_policy::NetworkPolicySpec,
        resource::{Kind, Object, ObjectKey},
        selector::Selector,
        workload::{WorkloadPhase, WorkloadSpec},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::Revision,
    },
};

/// Maximum number of rules of a set, because nodes receive a set as one line and evaluate all its rules. A workload with more
/// rules accepts no connections in the direction.
pub const SET_RULES_MAX: usize = 5_000;

/// Compiled NetworkPolicies of the whole cluster: sets of rules, and workloads with their sets and peers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyIndex {
    policies: OrdMap<PolicyKey, Arc<CompiledPolicy>>,
    /// Policies by their selectors of workloads.
    subjects: OrdMap<SelectorKey, OrdSet<PolicyKey>>,
    /// Selectors of peers by their ids.
    peers: OrdMap<ContentId, PeerEntry>,
    /// Ids of the selectors of peers.
    peers_by_key: OrdMap<SelectorKey, OrdSet<ContentId>>,
    /// Workloads that a policy selects or a selector of peers matches.
    workloads: OrdMap<WorkloadKey, Arc<WorkloadEntry>>,
    /// Keys of `workloads` by the addresses of the workloads.
    by_address: OrdMap<IpAddr, OrdSet<WorkloadKey>>,
    sets: OrdMap<ContentId, SetEntry>,
    /// Workloads that each policy selects.
    selected: OrdMap<PolicyKey, OrdSet<WorkloadKey>>,
}

/// Workloads and sets that a commit changed, added or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyChanges {
    /// Workloads whose policy may differ.
    pub workloads: BTreeSet<WorkloadKey>,
    /// Sets that were added or removed.
    pub sets: BTreeSet<ContentId>,
}

/// Condition that all workloads satisfy that a selector matches: a namespace, and a label with its value. Absent parts
/// are no condition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SelectorKey {
    namespace: Option<Namespace>,
    label: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PeerEntry {
    selector: Arc<PeerSelector>,
    /// Policies with the selector.
    users: OrdSet<PolicyKey>,
    /// Numbers of the named port of the selector, with the number of matching workloads that have it.
    numbers: OrdMap<u16, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SetEntry {
    set: Arc<PolicySet>,
    /// Number of directions of workloads that have the set.
    users: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct WorkloadEntry {
    membership: Membership,
    /// Policies that select the workload.
    policies: BTreeSet<PolicyKey>,
    /// All addresses of the workload.
    addresses: Vec<IpAddr>,
    /// Data for nodes; `None` if the workload has no address of its own, so that nodes cannot distinguish it.
    form: Option<Arc<PolicyWorkload>>,
}

/// Selectors of peers that match a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Membership {
    peers: BTreeSet<ContentId>,
    /// Selectors with a named port, with the number of the port at this workload.
    numbers: BTreeSet<(ContentId, u16)>,
}

impl PolicyIndex {
    /// Compiles all policies of a snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let (mut index, mut touched) = (Self::default(), BTreeSet::new());
        for object in snapshot.list(Kind::NetworkPolicy, None, None) {
            if let (Some(key), Some(spec)) = (PolicyKey::of(object), object.as_network_policy()) {
                index.replace_policy(snapshot, &key, Some(spec), &mut touched);
            }
        }
        index.update(snapshot, touched);
        index
    }

    /// Updates the index by a commit, between the snapshots before and after it. Returns the workloads and sets that may
    /// differ.
    pub fn apply(&mut self, before: &Snapshot, after: &Snapshot, commit: &Commit) -> PolicyChanges {
        let mut touched = BTreeSet::new();
        for Change { kind, object } in &commit.changes {
            if object.as_workload().is_some() {
                touched.extend(workload_key(object).filter(|_| differs(before, after, object)));
            }
            if let Some(node) = object.as_node() {
                let old = before.get(&object.key()).and_then(|old| old.as_node());
                if old.is_none_or(|old| old.addresses != node.addresses) || *kind == ChangeKind::Deleted {
                    let both = old.into_iter().flat_map(|old| &old.addresses).chain(&node.addresses);
                    let with = both.filter_map(|address| self.by_address.get(address));
                    touched.extend(with.flatten().cloned());
                }
            }
            if let (Some(key), Some(spec)) = (PolicyKey::of(object), object.as_network_policy()) {
                let spec = Some(spec).filter(|_| *kind != ChangeKind::Deleted);
                self.replace_policy(after, &key, spec, &mut touched);
            }
        }
        self.update(after, touched)
    }

    /// Returns a workload as nodes receive it, with revision zero; `None` if nodes do not receive it.
    #[must_use]
    pub fn workload(&self, key: &WorkloadKey) -> Option<&Arc<PolicyWorkload>> {
        self.workloads.get(key)?.form.as_ref()
    }

    /// Returns the keys of the workloads that nodes receive.
    pub fn workload_keys(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.workloads.iter().filter(|(_, entry)| entry.form.is_some()).map(|(key, _)| key)
    }

    /// Returns a set, or `None` if no workload has it.
    #[must_use]
    pub fn set(&self, id: ContentId) -> Option<&Arc<PolicySet>> {
        self.sets.get(&id).map(|entry| &entry.set)
    }

    /// Returns the ids of the sets that workloads have.
    pub fn set_ids(&self) -> impl Iterator<Item = ContentId> {
        self.sets.keys().copied()
    }

    /// Returns the workloads that a policy selects, in the order of their keys.
    pub fn selected_by(&self, policy: &PolicyKey) -> impl Iterator<Item = &WorkloadKey> {
        self.selected.get(policy).into_iter().flatten()
    }

    /// Returns the policies that select a workload on some of the nodes `on`, in the order of their keys. The cost is that of all
    /// workloads which a policy selects.
    #[must_use]
    pub fn policies_on(&self, on: &BTreeSet<&Name>) -> BTreeSet<&PolicyKey> {
        let is_on = |entry: &&Arc<WorkloadEntry>| {
            let node = entry.form.as_ref().and_then(|form| form.node.as_ref());
            node.is_some_and(|node| on.contains(node))
        };
        self.workloads.values().filter(is_on).flat_map(|entry| &entry.policies).collect()
    }

    /// Returns the policies that select a workload for a direction, in the order of their keys.
    #[must_use]
    pub fn policies_for(&self, workload: &WorkloadKey, direction: Direction) -> Vec<PolicyKey> {
        let applies = |key: &&PolicyKey| {
            self.policies.get(*key).is_some_and(|policy| match direction {
                Direction::Ingress => policy.ingress.is_some(),
                Direction::Egress => policy.egress.is_some(),
            })
        };
        let all = self.workloads.get(workload).into_iter().flat_map(|entry| &entry.policies);
        all.filter(applies).cloned().collect()
    }

    /// Returns the workloads with an address that a policy selects or a selector of peers matches, in the order of their keys.
    pub fn holders(&self, address: IpAddr) -> impl Iterator<Item = &WorkloadKey> {
        self.by_address.get(&address).into_iter().flatten()
    }

    /// Returns the policy of some workloads, with the sets that they have.
    #[must_use]
    pub fn node_policy<'a>(&self, keys: impl IntoIterator<Item = &'a WorkloadKey>) -> NodePolicy {
        let mut policy = NodePolicy::default();
        for workload in keys.into_iter().filter_map(|key| self.workload(key)) {
            let sets = workload.ingress.into_iter().chain(workload.egress);
            for set in sets.filter_map(|id| self.set(id)) {
                policy.put_set(Arc::clone(set));
            }
            policy.put_workload(Arc::clone(workload));
        }
        policy
    }

    /// Replaces or removes a policy. Adds the workloads whose policies or peers may change.
    fn replace_policy(
        &mut self,
        snapshot: &Snapshot,
        key: &PolicyKey,
        spec: Option<&NetworkPolicySpec>,
        touched: &mut BTreeSet<WorkloadKey>,
    ) {
        let new = spec.map(|spec| Arc::new(CompiledPolicy::of(key, spec)));
        let peers = |policy: &Option<Arc<CompiledPolicy>>| -> BTreeMap<ContentId, PeerSelector> {
            let peers = policy.iter().flat_map(|policy| policy.peers());
            peers.map(|(id, selector)| (id, selector.clone())).collect()
        };
        let old = match &new {
            Some(policy) => self.policies.insert(key.clone(), Arc::clone(policy)),
            None => self.policies.remove(key),
        };
        if let Some(old) = &old {
            touched.extend(self.selected_by(key).cloned());
            remove(&mut self.subjects, &subject_key(key, &old.subject), key);
        }
        let (had, has) = (peers(&old), peers(&new));
        for (id, selector) in &had {
            if !has.contains_key(id) {
                self.release_peer(snapshot, *id, selector, key, touched);
            }
        }
        for (id, selector) in has {
            self.acquire_peer(snapshot, id, selector, key, touched);
        }
        if let Some(new) = new {
            let at = subject_key(key, &new.subject);
            self.subjects.entry(at).or_default().insert(key.clone());
            touched.extend(workloads_in(snapshot, &key.namespace, &new.subject));
        }
    }

    fn acquire_peer(
        &mut self,
        snapshot: &Snapshot,
        id: ContentId,
        selector: PeerSelector,
        user: &PolicyKey,
        touched: &mut BTreeSet<WorkloadKey>,
    ) {
        if let Some(entry) = self.peers.get_mut(&id) {
            entry.users.insert(user.clone());
            return;
        }
        touched.extend(matching(snapshot, &selector));
        for at in peer_keys(&selector) {
            self.peers_by_key.entry(at).or_default().insert(id);
        }
        let (selector, users) = (Arc::new(selector), OrdSet::unit(user.clone()));
        self.peers.insert(id, PeerEntry { selector, users, numbers: OrdMap::new() });
    }

    fn release_peer(
        &mut self,
        snapshot: &Snapshot,
        id: ContentId,
        selector: &PeerSelector,
        user: &PolicyKey,
        touched: &mut BTreeSet<WorkloadKey>,
    ) {
        let Some(entry) = self.peers.get_mut(&id) else { return };
        entry.users.remove(user);
        if !entry.users.is_empty() {
            return;
        }
        self.peers.remove(&id);
        for at in peer_keys(selector) {
            remove(&mut self.peers_by_key, &at, &id);
        }
        touched.extend(matching(snapshot, selector));
    }

    /// Derives the touched workloads again, and those whose rules name ports that other workloads have changed.
    fn update(&mut self, snapshot: &Snapshot, touched: BTreeSet<WorkloadKey>) -> PolicyChanges {
        let mut changed_ports = BTreeMap::new();
        let mut memberships = BTreeMap::new();
        // All old numbers are removed before new ones are added, because the entry of a selector may be new.
        for key in &touched {
            let old = self.workloads.get(key).map(|entry| entry.membership.numbers.clone());
            self.count(&old.unwrap_or_default(), Count::Remove, &mut changed_ports);
        }
        for key in touched {
            let new = live_workload(snapshot, &key).map(|(object, spec)| self.membership(&key, object, spec));
            let numbers = new.as_ref().map(|new| new.numbers.clone());
            self.count(&numbers.unwrap_or_default(), Count::Add, &mut changed_ports);
            memberships.insert(key, new);
        }
        for (id, before) in changed_ports {
            let Some(entry) = self.peers.get(&id).filter(|entry| !before.iter().eq(entry.numbers.keys()))
            else {
                continue;
            };
            for key in entry.users.iter().flat_map(|user| self.selected_by(user)) {
                let known = || self.workloads.get(key).map(|entry| entry.membership.clone());
                memberships.entry(key.clone()).or_insert_with(known);
            }
        }
        let mut changes = PolicyChanges::default();
        for (key, membership) in memberships {
            self.replace_workload(snapshot, &key, membership, &mut changes);
        }
        changes
    }

    /// Counts the numbers of named ports, and records those of each selector before its first change.
    fn count(
        &mut self,
        numbers: &BTreeSet<(ContentId, u16)>,
        by: Count,
        changed: &mut BTreeMap<ContentId, Vec<u16>>,
    ) {
        for (id, port) in numbers {
            let Some(entry) = self.peers.get_mut(id) else { continue };
            changed.entry(*id).or_insert_with(|| entry.numbers.keys().copied().collect());
            let count = entry.numbers.get(port).copied().unwrap_or_default();
            match (by, count) {
                (Count::Add, count) => entry.numbers.insert(*port, count + 1),
                (Count::Remove, 0 | 1) => entry.numbers.remove(port),
                (Count::Remove, count) => entry.numbers.insert(*port, count - 1),
            };
        }
    }

    fn membership(&self, key: &WorkloadKey, object: &Object, spec: &WorkloadSpec) -> Membership {
        let mut found = Membership::default();
        for id in lookup(&self.peers_by_key, key, object) {
            let Some(entry) = self.peers.get(id) else { continue };
            match entry.selector.matches(&key.namespace, &object.metadata.labels, spec) {
                Some(None) => {
                    found.peers.insert(*id);
                }
                Some(Some(port)) => {
                    found.peers.insert(with_number(*id, port));
                    found.numbers.insert((*id, port));
                }
                None => {}
            }
        }
        found
    }

    fn replace_workload(
        &mut self,
        snapshot: &Snapshot,
        key: &WorkloadKey,
        membership: Option<Membership>,
        changes: &mut PolicyChanges,
    ) {
        let old = self.workloads.get(key).map(Arc::clone).unwrap_or_default();
        let live = live_workload(snapshot, key);
        let policies: BTreeSet<PolicyKey> = live
            .into_iter()
            .flat_map(|(object, _)| {
                let labels = &object.metadata.labels;
                let candidates = lookup(&self.subjects, key, object);
                candidates.filter(|policy| {
                    self.policies.get(*policy).is_some_and(|policy| policy.subject.matches(labels))
                })
            })
            .cloned()
            .collect();
        for gone in old.policies.difference(&policies) {
            remove(&mut self.selected, gone, key);
        }
        for new in policies.difference(&old.policies) {
            self.selected.entry(new.clone()).or_default().insert(key.clone());
        }
        let membership = membership.unwrap_or_default();
        let form = live.and_then(|(_, spec)| self.form(snapshot, key, spec, &membership, &policies, changes));
        for set in old.form.iter().flat_map(|form| form.ingress.into_iter().chain(form.egress)) {
            self.release_set(set, changes);
        }
        if old.form != form {
            changes.workloads.insert(key.clone());
        }
        for address in &old.addresses {
            remove(&mut self.by_address, address, key);
        }
        if policies.is_empty() && membership == Membership::default() {
            self.workloads.remove(key);
            return;
        }
        let addresses = live.map(|(_, spec)| spec.addresses.clone()).unwrap_or_default();
        for address in &addresses {
            self.by_address.entry(*address).or_default().insert(key.clone());
        }
        let entry = WorkloadEntry { membership, policies, addresses, form };
        self.workloads.insert(key.clone(), Arc::new(entry));
    }

    /// Returns the data of a workload for nodes, and acquires its sets.
    fn form(
        &mut self,
        snapshot: &Snapshot,
        key: &WorkloadKey,
        spec: &WorkloadSpec,
        membership: &Membership,
        policies: &BTreeSet<PolicyKey>,
        changes: &mut PolicyChanges,
    ) -> Option<Arc<PolicyWorkload>> {
        let addresses = own_addresses(snapshot, spec);
        // Without a Node, every node would have to drop packets to the address that it forwards, whoever has the address.
        let policies = policies.iter().filter(|_| spec.node.is_some());
        let policies: Vec<_> = policies.filter_map(|key| self.policies.get(key)).cloned().collect();
        if addresses.is_empty() || policies.is_empty() && membership.peers.is_empty() {
            return None;
        }
        let ingress = self.set_of(spec, policies.iter().filter_map(|policy| policy.ingress.as_deref()));
        let egress = self.set_of(spec, policies.iter().filter_map(|policy| policy.egress.as_deref()));
        let mut acquire = |set: Option<PolicySet>| set.map(|set| self.acquire_set(set, changes));
        let (ingress, egress) = (acquire(ingress), acquire(egress));
        Some(Arc::new(PolicyWorkload {
            workload: key.clone(),
            revision: Revision(0),
            addresses,
            node: spec.node.clone(),
            peers: membership.peers.clone(),
            ingress,
            egress,
        }))
    }

    /// Returns the set of one direction of a workload; `None` if no policy selects it for the direction. With more than
    /// [`SET_RULES_MAX`] rules, the set accepts nothing.
    fn set_of<'a>(
        &self,
        workload: &WorkloadSpec,
        policies: impl Iterator<Item = &'a [RuleTemplate]>,
    ) -> Option<PolicySet> {
        let numbers = |id: ContentId| -> Vec<u16> {
            self.peers.get(&id).into_iter().flat_map(|entry| entry.numbers.keys().copied()).collect()
        };
        let mut policies = policies.peekable();
        policies.peek()?;
        let mut rules = Vec::new();
        for template in policies.flatten() {
            template.expand(workload, numbers, &mut rules);
            if rules.len() > SET_RULES_MAX {
                return Some(PolicySet::new(true, Vec::new()));
            }
        }
        Some(PolicySet::new(true, rules))
    }

    fn acquire_set(&mut self, set: PolicySet, changes: &mut PolicyChanges) -> ContentId {
        let id = set.id;
        match self.sets.get_mut(&id) {
            Some(entry) => entry.users += 1,
            None => {
                self.sets.insert(id, SetEntry { set: Arc::new(set), users: 1 });
                changes.sets.insert(id);
            }
        }
        id
    }

    fn release_set(&mut self, id: ContentId, changes: &mut PolicyChanges) {
        let Some(entry) = self.sets.get_mut(&id) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            self.sets.remove(&id);
            changes.sets.insert(id);
        }
    }
}

#[derive(Clone, Copy)]
enum Count {
    Add,
    Remove,
}

fn workload_key(object: &Object) -> Option<WorkloadKey> {
    Some(WorkloadKey { namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone() })
}

/// Returns a workload that has not finished.
fn live_workload<'a>(snapshot: &'a Snapshot, key: &WorkloadKey) -> Option<(&'a Object, &'a WorkloadSpec)> {
    let WorkloadKey { namespace, name } = key.clone();
    let object = snapshot.get(&ObjectKey { kind: Kind::Workload, namespace: Some(namespace), name })?;
    let spec = object.as_workload()?;
    match spec.phase {
        WorkloadPhase::Pending | WorkloadPhase::Running | WorkloadPhase::Terminating => Some((object, spec)),
        WorkloadPhase::Succeeded | WorkloadPhase::Failed => None,
    }
}

/// Returns true if a change of a workload may affect policy.
fn differs(before: &Snapshot, after: &Snapshot, object: &Object) -> bool {
    let Some(key) = workload_key(object) else { return false };
    let relevant = |(object, spec): (&Object, &WorkloadSpec)| {
        let WorkloadSpec { addresses, node, ports, .. } = spec.clone();
        (object.metadata.labels.clone(), addresses, node, ports)
    };
    live_workload(before, &key).map(relevant) != live_workload(after, &key).map(relevant)
}

/// Returns the addresses of a workload that no Node has. The traffic of such a workload cannot be distinguished from that
/// of the Node, which its policies must not isolate.
fn own_addresses(snapshot: &Snapshot, spec: &WorkloadSpec) -> Vec<IpAddr> {
    let is_own = |address: &IpAddr| snapshot.node_with_address(*address).is_none();
    spec.addresses.iter().copied().filter(is_own).collect()
}

/// Returns the workloads of a namespace that a selector matches, finished ones included.
fn workloads_in(snapshot: &Snapshot, namespace: &Namespace, selector: &Selector) -> Vec<WorkloadKey> {
    let matches = |object: &&Arc<Object>| selector.matches(&object.metadata.labels);
    let keys: Vec<_> = if selector.match_labels.is_empty() {
        snapshot.list(Kind::Workload, Some(namespace), None).filter(matches).collect()
    } else {
        snapshot.workloads_matching(namespace, &selector.match_labels).filter(matches).collect()
    };
    keys.into_iter().filter_map(|object| workload_key(object)).collect()
}

/// Returns the workloads that a selector of peers matches, not considering its port.
fn matching(snapshot: &Snapshot, selector: &PeerSelector) -> Vec<WorkloadKey> {
    let namespaces: Vec<Namespace> = match &selector.namespaces {
        NamespaceMatch::Listed(names) => names.iter().cloned().collect(),
        NamespaceMatch::Except(_) => {
            let all = snapshot.namespaces().map(|(namespace, _)| namespace);
            all.filter(|namespace| selector.namespaces.contains(namespace)).cloned().collect()
        }
    };
    let found =
        namespaces.iter().flat_map(|namespace| workloads_in(snapshot, namespace, &selector.workloads));
    found.collect()
}

fn first_label(selector: &Selector) -> Option<(String, String)> {
    selector.match_labels.first_key_value().map(|(key, value)| (key.clone(), value.clone()))
}

fn subject_key(policy: &PolicyKey, selector: &Selector) -> SelectorKey {
    SelectorKey { namespace: Some(policy.namespace.clone()), label: first_label(selector) }
}

fn peer_keys(selector: &PeerSelector) -> Vec<SelectorKey> {
    let label = first_label(&selector.workloads);
    let key =
        |namespace: Option<&Namespace>| SelectorKey { namespace: namespace.cloned(), label: label.clone() };
    match &selector.namespaces {
        NamespaceMatch::Listed(names) => names.iter().map(|name| key(Some(name))).collect(),
        NamespaceMatch::Except(_) => vec![key(None)],
    }
}

/// Returns the values of all keys that a workload satisfies.
fn lookup<'a, V: Ord + Clone>(
    index: &'a OrdMap<SelectorKey, OrdSet<V>>,
    key: &WorkloadKey,
    object: &Object,
) -> impl Iterator<Item = &'a V> {
    let labels = object.metadata.labels.iter().map(|(key, value)| Some((key.clone(), value.clone())));
    let labels: Vec<_> = std::iter::once(None).chain(labels).collect();
    let namespaces = [Some(key.namespace.clone()), None];
    let keys = namespaces.into_iter().flat_map(move |namespace| {
        labels.clone().into_iter().map(move |label| SelectorKey { namespace: namespace.clone(), label })
    });
    keys.filter_map(|key| index.get(&key)).flatten()
}

/// Removes a value from the set of a key, and the key with its last value.
fn remove<K: Ord + Clone, V: Ord + Clone>(index: &mut OrdMap<K, OrdSet<V>>, key: &K, value: &V) {
    let emptied = index.get_mut(key).is_some_and(|set| {
        set.remove(value);
        set.is_empty()
    });
    if emptied {
        index.remove(key);
    }
}
