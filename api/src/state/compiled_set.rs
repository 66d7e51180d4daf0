//! Compiled forms of one type: the data about Services, or about addresses, that agents receive. Each form is
//! stored with its serialized line of the feed, the stream of state to an agent. An index by revision finds
//! the changes since an earlier state (a delta).
//!
//! ```text
//! entries   key ─▶ { compiled form, serialized line, revision }
//! removed   key ─▶ revision                       (bounded; older positions need a full sync)
//! log       (revision, key), for each key of the two maps ─▶ the delta after a revision is one range
//! ```
//! All maps are persistent: a reader keeps its snapshot while the writer builds the next one, and one change
//! costs O(log n).

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use ipnet::{IpNet, Ipv4Net};
use model::{
    cluster::{compiled::CompiledService, snapshot::Snapshot},
    compile::{compile, compile_address},
    kinds::{
        attachment::WorkloadKey,
        resource::{Kind, ServiceKey},
    },
    policy::{
        index::PolicyIndex,
        set::{ContentId, PolicySet, PolicyWorkload},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::Revision,
    },
    wire::{
        feed::{AddressState, Frame},
        workload_network::{BlockState, WorkloadNetworkState, compile_block, compile_network},
    },
};

/// Maximum number of removals that the set records. An agent that has missed more gets the full state
/// instead, which is cheaper.
const TOMBSTONES_MAX: usize = 10_000;

/// Compiled forms of all Services.
pub(crate) type CompiledSet = FormSet<CompiledService>;
/// Compiled forms of all load balancer addresses.
pub(crate) type AddressSet = FormSet<AddressState>;
/// Compiled forms of all WorkloadNetworks.
pub(crate) type WorkloadNetworkSet = FormSet<WorkloadNetworkState>;
/// Compiled forms of all blocks that Nodes have.
pub(crate) type BlockSet = FormSet<BlockState>;
/// Sets of compiled rules of network policy.
pub(crate) type PolicySets = FormSet<PolicySet>;
/// Workloads with their network policy.
pub(crate) type PolicyWorkloads = FormSet<PolicyWorkload>;

/// Compiled form: data derived from an object and sent to agents.
pub(crate) trait CompiledForm: Sized + PartialEq {
    /// Key of the object that a form is derived from.
    type Key: Ord + Clone;
    /// State that contains the objects.
    type Source;

    /// Returns the keys of all objects that may have a compiled form.
    fn keys(source: &Self::Source) -> Vec<Self::Key>;
    /// Compiles the object with this key, or returns `None` if it has no form. The caller sets the revision.
    fn compile(source: &Self::Source, key: &Self::Key) -> Option<Self>;
    /// Sets the revision field of the form, if it has one.
    fn set_revision(&mut self, revision: Revision);
    /// Returns the feed frame that sends the form to agents.
    fn frame(form: Arc<Self>) -> Frame;
    /// Returns the feed frame that removes the form from agents.
    fn removal(key: Self::Key, revision: Revision) -> Frame;
    /// Returns the smallest possible key: every other key sorts after it.
    fn first_key() -> Self::Key;
}

impl CompiledForm for CompiledService {
    type Key = ServiceKey;
    type Source = Snapshot;

    fn keys(snapshot: &Snapshot) -> Vec<ServiceKey> {
        let key = |namespace: &Namespace, name: &Name| ServiceKey {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let services = snapshot.list(Kind::Service, None, None).map(|object| &object.metadata);
        services.filter_map(|at| Some(key(at.namespace.as_ref()?, &at.name))).collect()
    }

    fn compile(snapshot: &Snapshot, key: &ServiceKey) -> Option<Self> {
        compile(snapshot, key)
    }

    fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    fn frame(service: Arc<Self>) -> Frame {
        Frame::Service { service }
    }

    fn removal(service: ServiceKey, revision: Revision) -> Frame {
        Frame::Removed { service, revision }
    }

    /// Returns the smallest Service key. Names start with a letter or a digit, so `0` is the smallest name.
    fn first_key() -> ServiceKey {
        let name = Name::parse("0").expect("a digit is a name");
        ServiceKey { namespace: Namespace::parse("0").expect("a digit is a namespace"), name }
    }
}

impl CompiledForm for AddressState {
    type Key = IpAddr;
    type Source = Snapshot;

    fn keys(snapshot: &Snapshot) -> Vec<IpAddr> {
        let records = snapshot.list(Kind::Address, None, None).filter_map(|object| object.as_address());
        records.map(|record| record.address).collect()
    }

    fn compile(snapshot: &Snapshot, address: &IpAddr) -> Option<Self> {
        compile_address(snapshot, *address)
    }

    fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    fn frame(address: Arc<Self>) -> Frame {
        Frame::Address { address }
    }

    fn removal(address: IpAddr, revision: Revision) -> Frame {
        Frame::AddressRemoved { address, revision }
    }

    /// Returns the smallest address; IPv4 sorts before IPv6.
    fn first_key() -> IpAddr {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }
}

impl CompiledForm for WorkloadNetworkState {
    type Key = Name;
    type Source = Snapshot;

    fn keys(snapshot: &Snapshot) -> Vec<Name> {
        let networks = snapshot.list(Kind::WorkloadNetwork, None, None);
        networks.map(|object| object.metadata.name.clone()).collect()
    }

    fn compile(snapshot: &Snapshot, name: &Name) -> Option<Self> {
        compile_network(snapshot, name)
    }

    fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    fn frame(network: Arc<Self>) -> Frame {
        Frame::WorkloadNetwork { network }
    }

    fn removal(network: Name, revision: Revision) -> Frame {
        Frame::WorkloadNetworkRemoved { network, revision }
    }

    fn first_key() -> Name {
        Name::parse("0").expect("a digit is a name")
    }
}

impl CompiledForm for BlockState {
    type Key = IpNet;
    type Source = Snapshot;

    fn keys(snapshot: &Snapshot) -> Vec<IpNet> {
        let blocks = snapshot.list(Kind::Block, None, None).filter_map(|object| object.as_block());
        blocks.map(|block| block.cidr).collect()
    }

    fn compile(snapshot: &Snapshot, cidr: &IpNet) -> Option<Self> {
        compile_block(snapshot, cidr)
    }

    fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    fn frame(block: Arc<Self>) -> Frame {
        Frame::Block { block }
    }

    fn removal(cidr: IpNet, revision: Revision) -> Frame {
        Frame::BlockRemoved { cidr, revision }
    }

    /// Returns the smallest network: `0.0.0.0/0`. IPv4 sorts before IPv6.
    fn first_key() -> IpNet {
        IpNet::V4(Ipv4Net::default())
    }
}

impl CompiledForm for PolicySet {
    type Key = ContentId;
    type Source = PolicyIndex;

    fn keys(index: &PolicyIndex) -> Vec<ContentId> {
        index.set_ids().collect()
    }

    fn compile(index: &PolicyIndex, id: &ContentId) -> Option<Self> {
        index.set(*id).map(|set| set.as_ref().clone())
    }

    /// Does nothing: the content of a set determines its id, so that a set never changes.
    fn set_revision(&mut self, _: Revision) {}

    fn frame(set: Arc<Self>) -> Frame {
        Frame::PolicySet { set }
    }

    fn removal(set: ContentId, revision: Revision) -> Frame {
        Frame::PolicySetRemoved { set, revision }
    }

    fn first_key() -> ContentId {
        ContentId::MIN
    }
}

impl CompiledForm for PolicyWorkload {
    type Key = WorkloadKey;
    type Source = PolicyIndex;

    fn keys(index: &PolicyIndex) -> Vec<WorkloadKey> {
        index.workload_keys().cloned().collect()
    }

    fn compile(index: &PolicyIndex, key: &WorkloadKey) -> Option<Self> {
        index.workload(key).map(|workload| workload.as_ref().clone())
    }

    fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    fn frame(workload: Arc<Self>) -> Frame {
        Frame::PolicyWorkload { workload }
    }

    fn removal(workload: WorkloadKey, revision: Revision) -> Frame {
        Frame::PolicyWorkloadRemoved { workload, revision }
    }

    fn first_key() -> WorkloadKey {
        let name = Name::parse("0").expect("a digit is a name");
        WorkloadKey { namespace: Namespace::parse("0").expect("a digit is a namespace"), name }
    }
}

/// Compiled form with its revision and its feed line.
#[derive(Debug)]
pub(crate) struct Entry<F> {
    /// Compiled form that agents receive.
    pub(crate) form: Arc<F>,
    /// Revision of the commit that last changed the form.
    revision: Revision,
    /// Feed line that sends the form, serialized once for all agents.
    line: Bytes,
}

/// Change of one form between two revisions.
#[derive(Debug)]
pub(crate) enum Delta<F: CompiledForm> {
    /// The form was added or changed. Contains the new form with its feed line.
    Changed(Arc<Entry<F>>),
    /// The form with this key was removed at this revision.
    Removed(F::Key, Revision),
}

impl<F> Entry<F> {
    /// Returns the feed line that sends the form.
    pub(crate) fn line(&self) -> Bytes {
        self.line.clone()
    }
}

impl<F: CompiledForm> Delta<F> {
    /// Returns the feed line that sends or removes the form.
    pub(crate) fn line(self) -> Bytes {
        match self {
            Self::Changed(entry) => entry.line(),
            Self::Removed(key, revision) => line(&F::removal(key, revision)),
        }
    }
}

/// All compiled forms of one type, with the removals that feeds may still have to send.
#[derive(Debug)]
pub(crate) struct FormSet<F: CompiledForm> {
    entries: OrdMap<F::Key, Arc<Entry<F>>>,
    removed: OrdMap<F::Key, Revision>,
    log: OrdSet<(Revision, F::Key)>,
    tombstones: OrdSet<(Revision, F::Key)>,
    floor: Revision,
}

// Written by hand, because a derive would require `F: Clone`, and only the maps need to be clonable.
impl<F: CompiledForm> Clone for FormSet<F> {
    fn clone(&self) -> Self {
        let Self { entries, removed, log, tombstones, floor } = self;
        Self {
            entries: entries.clone(),
            removed: removed.clone(),
            log: log.clone(),
            tombstones: tombstones.clone(),
            floor: *floor,
        }
    }
}

/// Revisions of the first and the last of several commits that change one object and are published together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Revision of the first commit that changes the object.
    pub(crate) first: Revision,
    /// Revision of the last commit that changes the object.
    pub(crate) last: Revision,
}

impl Span {
    /// Returns the span of a single commit.
    pub(crate) const fn at(revision: Revision) -> Self {
        Self { first: revision, last: revision }
    }

    /// Returns the span of the commits that change one object, given in commit order; `None` without a commit.
    pub(crate) fn of<K>(touches: &[(K, Revision)]) -> Option<Self> {
        Some(Self { first: touches.first()?.1, last: touches.last()?.1 })
    }
}

impl<F: CompiledForm> FormSet<F> {
    /// Compiles all objects of a state at a revision. All forms get this revision, because their own is unknown.
    pub(crate) fn of(source: &F::Source, revision: Revision) -> Self {
        let mut set = Self {
            entries: OrdMap::new(),
            removed: OrdMap::new(),
            log: OrdSet::new(),
            tombstones: OrdSet::new(),
            floor: revision,
        };
        for key in F::keys(source) {
            set.recompile(source, &key, Span::at(revision));
        }
        set
    }

    /// Compiles one object again after the commits of `span`. An unchanged form keeps its revision, unless the
    /// span has several commits: an agent may have received an intermediate form from another control server.
    pub(crate) fn recompile(&mut self, source: &F::Source, key: &F::Key, span: Span) {
        let Span { first, last: revision } = span;
        let was_seen_whole = first == revision;
        let before = self.entries.get(key).map(Arc::clone);
        match (before, F::compile(source, key)) {
            (None, None) if was_seen_whole => {}
            (None, None) => self.bury(key, revision),
            (Some(entry), None) => self.remove(key, entry.revision, revision),
            (before, Some(mut form)) => {
                if let Some(entry) = &before {
                    form.set_revision(entry.revision);
                    if form == *entry.form && was_seen_whole {
                        return;
                    }
                    self.log.remove(&(entry.revision, key.clone()));
                }
                form.set_revision(revision);
                self.insert(key, form, revision);
            }
        }
    }

    fn insert(&mut self, key: &F::Key, form: F, revision: Revision) {
        if let Some(removed_at) = self.removed.remove(key) {
            self.log.remove(&(removed_at, key.clone()));
            self.tombstones.remove(&(removed_at, key.clone()));
        }
        self.log.insert((revision, key.clone()));
        let form = Arc::new(form);
        let line = line(&F::frame(Arc::clone(&form)));
        self.entries.insert(key.clone(), Arc::new(Entry { form, revision, line }));
    }

    fn remove(&mut self, key: &F::Key, changed_at: Revision, revision: Revision) {
        self.log.remove(&(changed_at, key.clone()));
        self.entries.remove(key);
        self.bury(key, revision);
    }

    /// Records the removal of a form, so that it is sent to agents that may have received the form. Beyond
    /// [`TOMBSTONES_MAX`] drops the oldest removals.
    fn bury(&mut self, key: &F::Key, revision: Revision) {
        if let Some(earlier) = self.removed.insert(key.clone(), revision) {
            self.log.remove(&(earlier, key.clone()));
            self.tombstones.remove(&(earlier, key.clone()));
        }
        self.log.insert((revision, key.clone()));
        self.tombstones.insert((revision, key.clone()));
        while self.tombstones.len() > TOMBSTONES_MAX {
            let Some(oldest) = self.tombstones.remove_min() else { return };
            self.removed.remove(&oldest.1);
            self.log.remove(&oldest);
            self.floor = self.floor.max(oldest.0);
        }
    }

    /// Returns the compiled form with this key and its feed line, or `None` if there is none.
    pub(crate) fn get(&self, key: &F::Key) -> Option<&Arc<Entry<F>>> {
        self.entries.get(key)
    }

    /// Returns the compiled forms in key order, starting after `key` if given.
    pub(crate) fn after(&self, key: Option<&F::Key>) -> impl Iterator<Item = (&F::Key, &Arc<Entry<F>>)> {
        let start = key.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        self.entries.range((start, Bound::Unbounded))
    }

    /// Returns the changes after revision `position`, oldest first, or `None` if the set no longer contains all of
    /// them.
    pub(crate) fn since(&self, position: Revision) -> Option<impl Iterator<Item = Delta<F>> + '_> {
        if position < self.floor {
            return None;
        }
        let first = (position.next(), F::first_key());
        Some(self.log.range(first..).filter_map(|(revision, key)| match self.entries.get(key) {
            Some(entry) => Some(Delta::Changed(Arc::clone(entry))),
            None => self.removed.get(key).map(|_| Delta::Removed(key.clone(), *revision)),
        }))
    }

    /// Returns the revision of the last change of any form.
    pub(crate) fn changed_at(&self) -> Revision {
        self.log.get_max().map_or(self.floor, |(revision, _)| *revision)
    }

    /// Returns the number of compiled forms.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Serializes a feed frame as one line, including the line end.
pub(crate) fn line(frame: &Frame) -> Bytes {
    let mut text = serde_json::to_vec(frame).expect("frames have string keys only");
    text.push(b'\n');
    // The line lives as long as its form, so excess capacity is released.
    Bytes::from(text.into_boxed_slice())
}
