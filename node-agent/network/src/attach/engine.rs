//! Engine of the workload network on one node: keeps routes and attachments. Runs on one thread, which blocks in the kernel.
//!
//! ```text
//!  attach: choose addresses ─▶ journal intent ─▶ interfaces ─▶ routes ─▶ journal done ─▶ answer
//!  detach: journal removing ─▶ interfaces (and with them the routes) ─▶ journal removed ─▶ answer
//! ```

mod declared;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    net::IpAddr,
    path::Path,
    time::Instant,
};

use attach_socket::{
    AttachProblem, AttachRequest, AttachedList, AttachedWorkload, AttachmentKey, CollectRequest,
    DetachedCount, NetworkStatus, ProblemCode,
};
use ipnet::IpNet;
use kernel::netlink::socket::{Netlink, Protocol};
use model::primitives::{name::Name, net::IpFamily};
use nix::net::if_::if_nametoindex;
use tracing::warn;

use self::declared::FixedAddresses;
use super::{
    allocator::{AllocationSource, Allocator},
    declared::{DeclaredInterfaces, file::DeclaredFile},
    gate::AttachGate,
    in_use, inspect,
    journal::{AttachJournal, AttachPhase, AttachRecords, AttachStep},
    names,
    open::{self, Orphan},
    request::{self, check, open_netns, problem, rejected, usable_labels},
    veth,
};
use crate::{
    desired::{DesiredNetwork, NetworkSettings, Uplink},
    filter::{self, FilterNeeds, FilterTable, keeper::FilterKeeper},
    plan::{Hop, workload_mtu},
    routes::{
        diff::RouteChange,
        keeper::{RouteKeeper, RoutePass, TunnelPermit, acknowledge},
        render,
    },
};

/// Maximum number of attachments of a node, which the control server records too.
pub const ATTACHMENTS_MAX: usize = model::wire::attachments::ATTACHMENTS_MAX;
/// Maximum number of free addresses below which a node requests a further block.
pub const LOW_WATER_MAX: usize = 64;

/// Engine of the workload network in one network namespace.
pub struct NetworkEngine {
    own: Name,
    desired: Option<DesiredNetwork>,
    routes: RouteKeeper,
    filter: FilterKeeper,
    netlink: Netlink,
    journal: AttachJournal,
    records: AttachRecords,
    allocator: Allocator,
    /// Indexes of the interfaces on the node.
    indexes: BTreeMap<AttachmentKey, u32>,
    orphans: BTreeMap<String, Orphan>,
    uplinks: Vec<Uplink>,
    /// Reason why the table of nf_tables is not in place; `None` if it is, or is not needed.
    table_failure: Option<String>,
    /// Content of the table at the last pass.
    table: Option<FilterTable>,
    /// Number of changes of the table since the last pass.
    table_changes: u64,
    /// True if the desired state is empty, and the last pass found nothing to remove.
    is_idle: bool,
    gate: AttachGate,
    declared: DeclaredInterfaces,
}

impl NetworkEngine {
    /// Opens the journal in the state directory and completes interrupted steps. Must be called on the thread, in the
    /// network namespace, in which the engine is used. `boot` identifies the running boot of the machine; `now` is the
    /// time in seconds since 1970.
    ///
    /// # Errors
    /// Returns an error if the journal or the kernel cannot be used.
    pub fn open(own: Name, state_dir: &Path, boot: &str, now: u64) -> io::Result<Self> {
        let mut netlink = Netlink::open(Protocol::Route)?;
        let (mut journal, mut records) = AttachJournal::open(state_dir, own.as_str(), boot)?;
        open::complete_steps(&mut netlink, &mut journal, &mut records, now)?;
        let orphans = open::orphans(&mut netlink, &records)?;
        let file = DeclaredFile::open(state_dir, own.as_str(), boot)?;
        let mut allocator = open::allocator(&records, &orphans);
        let claimed = file.claims.values().flat_map(|claim| &claim.addresses);
        claimed.for_each(|address| allocator.hold(*address));
        let declared = DeclaredInterfaces { file, path: state_dir.to_owned(), ..Default::default() };
        let indexes = open::indexes(&records);
        let routes = RouteKeeper::open(own.clone())?;
        let uplinks = Vec::new();
        Ok(Self {
            own,
            desired: None,
            routes,
            filter: FilterKeeper::default(),
            netlink,
            journal,
            records,
            allocator,
            indexes,
            orphans,
            uplinks,
            table_failure: Some(format!("the table {} is not in place yet", filter::TABLE)),
            table: None,
            table_changes: 0,
            is_idle: false,
            gate: AttachGate::default(),
            declared,
        })
    }

    /// Calls `gate` with each new attachment before its interface exists.
    pub fn gate_by(&mut self, gate: AttachGate) {
        self.gate = gate;
    }

    /// Sets the desired state, which the next [`Self::pass`] programs.
    pub fn desire(&mut self, desired: DesiredNetwork) {
        self.is_idle &= desired == DesiredNetwork::default();
        self.desired = Some(desired);
    }

    /// Compares the kernel with the desired state and writes the difference. Returns `None` before the first desired state.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    pub fn pass(&mut self) -> io::Result<Option<RoutePass>> {
        let Some(desired) = &self.desired else { return Ok(None) };
        // A machine without workload networks may have many routes of others, which need not be read.
        if self.is_idle {
            return Ok(None);
        }
        self.indexes.retain(|key, index| {
            let record = self.records.attachments.get(key);
            record.is_some_and(|(attached, _)| if_nametoindex(attached.host_interface.as_str()) == Ok(*index))
        });
        let mut workloads = BTreeMap::new();
        for (key, index) in &self.indexes {
            let found = self.records.attachments.get(key).into_iter();
            workloads.extend(found.flat_map(|(one, _)| &one.addresses).map(|address| (*address, *index)));
        }
        for orphan in self.orphans.values() {
            workloads.extend(orphan.addresses.iter().map(|address| (*address, orphan.index)));
        }
        workloads.extend(&self.declared.routes);
        let observed = self.routes.observe(desired, &workloads)?;
        let interfaces = self.declared.accepted.keys().cloned().collect();
        let needs = FilterNeeds { tunnels: observed.tunnels(), workloads: !workloads.is_empty(), interfaces };
        let table = filter::desired(&self.own, desired, &needs);
        let now = Instant::now();
        let mut passed = if needs.tunnels.is_empty() {
            let mut passed = self.routes.apply(observed, TunnelPermit::Forbidden, now)?;
            passed.writes += keep_table(&mut self.filter, table.as_ref(), &mut self.table_failure).0;
            passed
        } else {
            // A tunnel device accepts packets from every machine, until the table drops them.
            let (changes, permit) = keep_table(&mut self.filter, table.as_ref(), &mut self.table_failure);
            let mut passed = self.routes.apply(observed, permit, now)?;
            passed.writes += changes;
            passed
        };
        passed.writes += std::mem::take(&mut self.table_changes);
        self.table = table;
        passed.failure = self.table_failure.clone().or(passed.failure);
        // A rest that could not be removed is tried again.
        let is_complete = passed.failure.is_none() && passed.rejected.is_empty();
        self.is_idle = *desired == DesiredNetwork::default()
            && workloads.is_empty()
            && passed.writes == 0
            && is_complete;
        self.uplinks.clone_from(&passed.uplinks);
        Ok(Some(passed))
    }

    /// Compares the table, and repairs it. Returns true if it was as the last pass left it. Cheaper than a pass, because the
    /// routes are not read: the kernel reports their changes, but not those of the table.
    pub fn check_table(&mut self) -> bool {
        let (changes, _) = keep_table(&mut self.filter, self.table.as_ref(), &mut self.table_failure);
        self.table_changes += changes;
        changes == 0 && self.table_failure.is_none()
    }

    /// Returns true if the desired state is empty and the kernel has nothing of the workload network.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.desired.is_none() || self.is_idle
    }

    /// Returns the state of the workload network, with the reason why nothing can be attached to the network of this name, or
    /// without a name to the only one.
    #[must_use]
    pub fn status_of(&self, network: Option<&str>) -> NetworkStatus {
        let status = self.status();
        let unusable = self.select(network).err().or_else(|| self.no_open_block(network));
        NetworkStatus { problem: unusable.or(status.problem), ..status }
    }

    /// Returns the reason why a network has no address for this node although it has blocks: all of them are drained.
    fn no_open_block(&self, network: Option<&str>) -> Option<AttachProblem> {
        let network = self.select(network).ok()?;
        let desired = self.desired.as_ref()?;
        let mut own =
            desired.blocks.values().filter(|block| block.node == self.own && block.network == network);
        let is_drained = own.all(|block| block.is_draining);
        is_drained.then(|| {
            let message = format!("all blocks of network `{network}` on this node are drained");
            problem(ProblemCode::NotReady, message)
        })
    }

    /// Returns the state of the workload network. Its problem is one of all networks.
    #[must_use]
    pub fn status(&self) -> NetworkStatus {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let blocks = self.desired.iter().flat_map(|desired| desired.blocks.values());
        let blocks = blocks.filter(|block| block.node == self.own && !block.is_draining).count();
        let problem = if blocks == 0 { Some(self.no_block(None)) } else { self.unprotected() };
        NetworkStatus { problem, attachments: count(self.records.attachments.len()), blocks: count(blocks) }
    }

    /// Returns true if a workload network exists.
    #[must_use]
    pub fn has_networks(&self) -> bool {
        self.desired.as_ref().is_some_and(|desired| !desired.networks.is_empty())
    }

    /// Returns the networks and families of which less than a quarter of the addresses of this node, at most
    /// [`LOW_WATER_MAX`], can be assigned at the time `now`.
    #[must_use]
    pub fn wanted(&self, now: u64) -> BTreeSet<(Name, IpFamily)> {
        let Some(desired) = &self.desired else { return BTreeSet::new() };
        let mut blocks: BTreeMap<_, Vec<IpNet>> = BTreeMap::new();
        for (range, block) in desired.blocks.iter().filter(|(_, block)| block.node == self.own) {
            let own = blocks.entry((block.network.clone(), IpFamily::of_net(range))).or_default();
            own.extend((!block.is_draining).then_some(*range));
        }
        let is_low = |((network, _), blocks): &(_, Vec<IpNet>)| {
            let source = source(desired.networks.get(network), blocks);
            let size =
                |block: &IpNet| 1_usize.checked_shl(u32::from(block.max_prefix_len() - block.prefix_len()));
            let sizes = blocks.iter().map(|block| size(block).unwrap_or(usize::MAX));
            let total = sizes.fold(0_usize, usize::saturating_add);
            let mark = (total / 4).clamp(1, LOW_WATER_MAX);
            self.allocator.free(source, now, mark) < mark
        };
        blocks.into_iter().filter(is_low).map(|(key, _)| key).collect()
    }

    /// Returns all complete attachments.
    #[must_use]
    pub fn list(&self) -> AttachedList {
        let complete = self.records.attachments.values().filter(|(_, phase)| *phase == AttachPhase::Complete);
        AttachedList { attachments: complete.map(|(attached, _)| attached.clone()).collect() }
    }

    /// Attaches a network namespace. A repeated request is answered with the existing attachment. `now` is the time in
    /// seconds since 1970.
    ///
    /// # Errors
    /// Returns the reason if the request is invalid, no address is free, or the kernel rejects a change; nothing of the
    /// attachment is left then. Returns [`ProblemCode::InUse`] if another network namespace or Workload has a running
    /// attachment with the identity, which stays.
    pub fn attach(&mut self, request: AttachRequest, now: u64) -> Result<AttachedWorkload, AttachProblem> {
        self.attach_with(request, None, now)
    }

    /// Attaches as [`Self::attach`] does, with addresses that are chosen already.
    fn attach_with(
        &mut self,
        request: AttachRequest,
        fixed: Option<FixedAddresses>,
        now: u64,
    ) -> Result<AttachedWorkload, AttachProblem> {
        check(&request)?;
        let key = request.key.clone();
        let netns = open_netns(&request.netns)?;
        if let Some((attached, phase)) = self.records.attachments.get(&key) {
            let is_running = *phase == AttachPhase::Complete && self.is_present(attached);
            if let Some(problem) = in_use::conflict(attached, &request, &netns, is_running) {
                return Err(problem);
            }
            let same = *phase == AttachPhase::Complete
                && self.indexes.contains_key(&key)
                && veth::difference(attached, &netns).is_ok_and(|difference| difference.is_none());
            if same {
                return Ok(attached.clone());
            }
            // The attachment has ended with its network namespace, or its interface was changed.
            self.remove(&key, now)?;
        }
        self.remove_orphan(&names::host_interface(&key), now)?;
        if self.records.attachments.len() >= ATTACHMENTS_MAX {
            return Err(problem(
                ProblemCode::Exhausted,
                format!("this node has {ATTACHMENTS_MAX} attachments"),
            ));
        }
        if veth::has_interface(&netns, &key.interface).map_err(|error| rejected(&error))? {
            let message = format!("the network namespace has an interface `{}` already", key.interface);
            return Err(problem(ProblemCode::InterfaceExists, message));
        }
        if let Some(problem) = self.unprotected() {
            return Err(problem);
        }
        let FixedAddresses { network, addresses, mac } = match fixed {
            Some(fixed) => fixed,
            None => {
                let (network, addresses) = self.choose(request.network.as_deref(), now)?;
                FixedAddresses { network, addresses, mac: None }
            }
        };
        let mut attached = self.describe(request, &network, addresses);
        attached.mac = mac.unwrap_or(attached.mac);
        self.gate.pass(&attached);
        let intent = AttachStep::Intent(attached.clone());
        let made = self.step(intent).and_then(|()| self.connect(&attached, &netns)).and_then(|index| {
            self.step(AttachStep::Done { key: key.clone() })?;
            Ok(index)
        });
        match made {
            Ok(index) => {
                self.indexes.insert(key, index);
                Ok(attached)
            }
            Err(problem) => {
                self.undo(&attached, now);
                Err(problem)
            }
        }
    }

    /// Removes an attachment. An absent one is not an error, and the network namespace need not exist.
    ///
    /// # Errors
    /// Returns the reason if the journal cannot be written or the kernel rejects the removal.
    pub fn detach(&mut self, key: &AttachmentKey, now: u64) -> Result<DetachedCount, AttachProblem> {
        if let Some(fault) = key.fault() {
            return Err(problem(ProblemCode::Invalid, fault.to_owned()));
        }
        let was_orphan = self.remove_orphan(&names::host_interface(key), now)?;
        let was_attached = self.records.attachments.contains_key(key);
        if was_attached {
            self.remove(key, now)?;
        }
        Ok(DetachedCount { removed: u64::from(was_attached || was_orphan) })
    }

    /// Removes the attachments of a manager that are not listed as valid.
    ///
    /// # Errors
    /// Returns the first reason why one could not be removed, after an attempt at all.
    pub fn collect(&mut self, request: &CollectRequest, now: u64) -> Result<DetachedCount, AttachProblem> {
        let stale: Vec<_> = self
            .records
            .attachments
            .values()
            .filter(|(attached, _)| {
                attached.manager == request.manager && !request.valid.contains(&attached.key)
            })
            .map(|(attached, _)| attached.key.clone())
            .collect();
        let (mut removed, mut failure) = (0, None);
        for key in stale {
            match self.remove(&key, now) {
                Ok(()) => removed += 1,
                Err(problem) => failure = failure.or(Some(problem)),
            }
        }
        failure.map_or(Ok(DetachedCount { removed }), Err)
    }

    /// Compares an attachment with the kernel.
    ///
    /// # Errors
    /// Returns the first difference, or the reason if the attachment does not exist.
    pub fn check(&mut self, key: &AttachmentKey) -> Result<AttachedWorkload, AttachProblem> {
        let record = self.records.attachments.get(key).filter(|(_, phase)| *phase == AttachPhase::Complete);
        let Some((attached, _)) = record else {
            return Err(problem(ProblemCode::NotFound, format!("the node has no attachment `{key}`")));
        };
        let host = &attached.host_interface;
        if if_nametoindex(host.as_str()).is_err() {
            let message =
                format!("the node has no interface `{host}`; remove the container and create it anew");
            return Err(problem(ProblemCode::Differs, message));
        }
        let netns = open_netns(&attached.netns)?;
        let difference = veth::difference(attached, &netns)
            .and_then(|found| {
                found.map_or_else(|| inspect::inside(attached, &netns), |found| Ok(Some(found)))
            })
            .and_then(|found| {
                found.map_or_else(|| inspect::on_node(&mut self.netlink, attached), |found| Ok(Some(found)))
            });
        match difference.map_err(|error| rejected(&error))? {
            None => Ok(attached.clone()),
            Some(difference) => Err(problem(ProblemCode::Differs, difference)),
        }
    }

    /// Chooses the network and one address of each family of its blocks.
    fn choose(&mut self, network: Option<&str>, now: u64) -> Result<(Name, Vec<IpAddr>), AttachProblem> {
        let network = self.select(network)?;
        let no_block = self.no_block(None);
        let Some(desired) = &self.desired else { return Err(no_block) };
        let own =
            desired.blocks.iter().filter(|(_, block)| block.node == self.own && block.network == network);
        let own: Vec<_> = own.collect();
        let settings = desired.networks.get(&network);
        let mut chosen = Vec::new();
        for family in IpFamily::ALL {
            let of_family = own.iter().filter(|(range, _)| IpFamily::of_net(range) == family);
            let (mut has_blocks, mut blocks) = (false, Vec::<IpNet>::new());
            for (range, block) in of_family {
                has_blocks = true;
                blocks.extend((!block.is_draining).then_some(**range));
            }
            if !has_blocks {
                continue;
            }
            match self.allocator.allocate(source(settings, &blocks), now) {
                Ok(address) => chosen.push(address),
                Err(none) => {
                    for address in chosen {
                        self.allocator.release(address, 0);
                    }
                    let message = format!(
                        "the blocks of network `{network}` on this node have no free {} address; {} are in their \
                         cooldown. The control server assigns further blocks while the network has some",
                        family.as_str(),
                        none.cooling
                    );
                    return Err(problem(ProblemCode::Exhausted, message));
                }
            }
        }
        Ok((network, chosen))
    }

    /// Returns the network of a request: the given one, or the only one that has a block on this node.
    fn select(&self, network: Option<&str>) -> Result<Name, AttachProblem> {
        let blocks = self.desired.iter().flat_map(|desired| desired.blocks.values());
        let own = blocks.filter(|block| block.node == self.own).map(|block| &block.network);
        let networks: BTreeSet<_> =
            own.filter(|own| network.is_none_or(|name| name == own.as_str())).collect();
        match (networks.len(), networks.first()) {
            (1, Some(network)) => Ok((*network).clone()),
            (0, _) | (_, None) => Err(self.no_block(network)),
            _ => {
                let message =
                    format!("this node has blocks of {} networks; name one of them", networks.len());
                Err(problem(ProblemCode::Invalid, message))
            }
        }
    }

    fn no_block(&self, network: Option<&str>) -> AttachProblem {
        let message = match (&self.desired, network) {
            (None, _) => "the agent has received no state of a control server yet".to_owned(),
            (Some(_), Some(name)) => format!("this node has no block of network `{name}`"),
            (Some(_), None) => "this node has no block of a workload network".to_owned(),
        };
        problem(ProblemCode::NotReady, message)
    }

    /// Returns the reason why no workload may be attached although the node has a state: its packets would not be filtered.
    fn unprotected(&self) -> Option<AttachProblem> {
        let failure = self.table_failure.as_ref().filter(|_| self.desired.is_some())?;
        let message = format!("{failure}. Without it, a workload could send packets in the name of others");
        Some(problem(ProblemCode::NotReady, message))
    }

    /// Returns true if the interface of an attachment exists on the node. It ends with the one in the network namespace.
    fn is_present(&self, attached: &AttachedWorkload) -> bool {
        let index = self.indexes.get(&attached.key);
        index.is_some_and(|index| if_nametoindex(attached.host_interface.as_str()) == Ok(*index))
    }

    fn describe(&self, request: AttachRequest, network: &Name, addresses: Vec<IpAddr>) -> AttachedWorkload {
        let AttachRequest { key, netns, network: _, namespace, workload, labels, manager } = request;
        let nothing = DesiredNetwork::default();
        let desired = self.desired.as_ref().unwrap_or(&nothing);
        AttachedWorkload {
            netns,
            network: network.to_string(),
            namespace: namespace.unwrap_or_else(|| request::NAMESPACE_DEFAULT.to_owned()),
            workload: workload.unwrap_or_else(|| request::workload_default(&key)),
            labels: usable_labels(labels),
            manager,
            host_interface: names::host_interface(&key),
            mac: names::workload_mac(&key).to_string(),
            addresses,
            mtu: workload_mtu(&self.own, network, desired, &self.uplinks),
            generation: self.records.generation + 1,
            refusal: None,
            key,
        }
    }

    /// Creates the interfaces and routes of an attachment. Returns the index of the interface on the node.
    fn connect(&mut self, attached: &AttachedWorkload, netns: &File) -> Result<u32, AttachProblem> {
        let mac = names::parse_mac(&attached.mac).unwrap_or_else(|| names::workload_mac(&attached.key));
        let index =
            veth::create(&mut self.netlink, attached, mac, netns).map_err(|error| rejected(&error))?;
        let to_workload = |address: &IpAddr| {
            render::change(
                &RouteChange::Replace(IpNet::from(*address), Hop::Interface(index)),
                &BTreeMap::new(),
            )
        };
        let requests: Vec<_> = attached.addresses.iter().filter_map(to_workload).collect();
        acknowledge(&mut self.netlink, &requests).map_err(|error| rejected(&error))?;
        Ok(index)
    }

    /// Removes the parts of an attachment that failed. If this fails too, the journal has the intent, and the next start
    /// removes them.
    fn undo(&mut self, attached: &AttachedWorkload, now: u64) {
        if let Err(error) = self.remove(&attached.key, now) {
            warn!(attachment = %attached.key, %error, "cannot remove the parts of a failed attachment yet");
        }
    }

    fn remove(&mut self, key: &AttachmentKey, now: u64) -> Result<(), AttachProblem> {
        let Some((attached, _)) = self.records.attachments.get(key) else { return Ok(()) };
        let attached = attached.clone();
        self.step(AttachStep::Removing { key: key.clone(), at: now })?;
        self.indexes.remove(key);
        veth::remove(&mut self.netlink, &attached.host_interface).map_err(|error| rejected(&error))?;
        // The interface is gone, also if the journal cannot be written.
        for address in attached.addresses {
            self.allocator.release(address, now);
        }
        self.step(AttachStep::Removed { key: key.clone(), at: now })
    }

    /// Removes an interface without a record. Returns true if it existed.
    fn remove_orphan(&mut self, host_interface: &str, now: u64) -> Result<bool, AttachProblem> {
        let Some(orphan) = self.orphans.get(host_interface) else { return Ok(false) };
        let addresses = orphan.addresses.clone();
        veth::remove(&mut self.netlink, host_interface).map_err(|error| rejected(&error))?;
        self.orphans.remove(host_interface);
        for address in addresses {
            self.allocator.release(address, now);
        }
        Ok(true)
    }

    fn step(&mut self, step: AttachStep) -> Result<(), AttachProblem> {
        self.records.apply(step.clone());
        self.journal.append(&step, &self.records).map_err(|error| {
            problem(ProblemCode::Journal, format!("the journal of attachments cannot be written: {error}"))
        })
    }
}

/// Writes the table of nf_tables. Returns the number of changes, and the permission for the tunnel device.
fn keep_table(
    keeper: &mut FilterKeeper,
    table: Option<&FilterTable>,
    failure: &mut Option<String>,
) -> (u64, TunnelPermit) {
    match keeper.follow(table) {
        Ok(changes) => {
            *failure = None;
            (changes, TunnelPermit::Allowed)
        }
        // Without nf_tables and without a need for the table, nothing is missing.
        Err(_) if table.is_none() && !keeper.is_present() => {
            *failure = None;
            (0, TunnelPermit::Forbidden)
        }
        Err(error) => {
            *failure = Some(format!("the table {} cannot be kept: {error}", filter::TABLE));
            let is_protected = keeper.still_protects_tunnel();
            (0, if is_protected { TunnelPermit::Existing } else { TunnelPermit::Forbidden })
        }
    }
}

/// Returns the source of the addresses of a network in blocks of this node.
fn source<'a>(settings: Option<&'a NetworkSettings>, blocks: &'a [IpNet]) -> AllocationSource<'a> {
    AllocationSource {
        blocks,
        reserved: settings.map(|settings| settings.reserved.as_slice()).unwrap_or_default(),
        cooldown_secs: settings.map_or(0, |settings| settings.cooldown.as_secs()),
    }
}
