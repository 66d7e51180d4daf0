//! Declared interfaces in a pass of the engine: decided before the table and the routes are written, configured afterwards.
//!
//! ```text
//!  plan_declared: claims, judged links ─▶ pass: table, routes ─▶ configure_declared: settings, veth pairs ─▶ pass, if changed
//! ```
//! Packets from a link reach the node's routes only after the table that checks their source addresses. At the end of a
//! declaration, the routes go first and the settings of the link last.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use attach_socket::{AttachRequest, AttachedWorkload, AttachmentKey, ProblemCode};
use model::{
    kinds::attachment::{AttachmentKind, InterfaceFault, InterfaceFaultReason, WorkloadKey},
    primitives::name::Name,
    wire::workload_network::DeclaredInterface,
};
use tracing::{info, warn};

use super::NetworkEngine;
use crate::attach::{
    declared::{
        AcceptedLink, Claim, LinkRecord, MANAGER, ShownInterface, fault, key_of,
        link::{self, DeclarableLink},
        settings,
    },
    journal::AttachStep,
    request::problem,
};

/// Directory of the named network namespaces.
const NETNS_DIRECTORY: &str = "/run/netns";

/// Addresses of an attachment that are not chosen by the allocator.
#[derive(Debug, Clone)]
pub(super) struct FixedAddresses {
    pub(super) network: Name,
    pub(super) addresses: Vec<IpAddr>,
    /// Link-layer address of the workload in lower case; `None` for the one derived from the identity.
    pub(super) mac: Option<String>,
}

impl NetworkEngine {
    /// Decides which declared interfaces this node configures with which addresses, before [`Self::pass`] writes the table and
    /// the routes. Changes no settings of links. Returns true if the decision differs from the last one. `now` is the time in
    /// seconds since 1970.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read, or the file of declared interfaces cannot be written.
    pub fn plan_declared(&mut self, now: u64) -> io::Result<bool> {
        let Some(desired) = &self.desired else { return Ok(false) };
        if desired.interfaces.is_empty() && self.declared.is_empty() {
            return Ok(false);
        }
        let interfaces = desired.interfaces.clone();
        let (former, accepted) = (self.declared.file.clone(), self.declared.accepted.clone());
        self.declared.faults.clear();
        self.release_claims(&interfaces, now);
        for (workload, declared) in &interfaces {
            if let Err(fault) = self.claim(workload, declared, now) {
                self.declared.faults.insert(workload.clone(), fault);
            }
        }
        self.judge_links(&interfaces)?;
        if self.declared.file != former {
            self.declared.file.save(&self.declared.path)?;
        }
        Ok(self.declared.accepted != accepted)
    }

    /// Applies the settings of the decided links, creates and removes the veth pairs, and restores the settings of links that
    /// are no longer declared. Returns true if the routes must be compared again.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read, or the file of declared interfaces cannot be written.
    pub fn configure_declared(&mut self, now: u64) -> io::Result<bool> {
        let Some(desired) = &self.desired else { return Ok(false) };
        let interfaces = desired.interfaces.clone();
        let has_veth = |attached: &AttachedWorkload| attached.manager == MANAGER;
        let is_unused = interfaces.is_empty() && self.declared.is_empty();
        if is_unused && !self.records.attachments.values().any(|(attached, _)| has_veth(attached)) {
            return Ok(false);
        }
        let before = (self.declared.routes.clone(), self.indexes.clone(), self.table_changes);
        let links = link::observe(&mut self.netlink)?;
        self.restore_links(&links)?;
        // Without the table, a workload could send packets in the name of others.
        if self.unprotected().is_none() {
            self.configure_links(&links);
        }
        self.follow_veths(&interfaces, now);
        self.route_declared();
        Ok(before != (self.declared.routes.clone(), self.indexes.clone(), self.table_changes))
    }

    /// True if a declared interface is not configured. The end of its fault may have no event of the kernel.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        !self.declared.faults.is_empty()
    }

    /// True if Workloads declare interfaces, whose settings have no events.
    #[must_use]
    pub fn has_declared(&self) -> bool {
        self.desired.as_ref().is_some_and(|desired| !desired.interfaces.is_empty())
    }

    /// Returns the declared interfaces for reports to the control server.
    #[must_use]
    pub fn shown_interfaces(&self) -> BTreeMap<WorkloadKey, ShownInterface> {
        let interfaces = self.desired.iter().flat_map(|desired| &desired.interfaces);
        let shown = |(workload, declared): (&WorkloadKey, &DeclaredInterface)| {
            let key = key_of(workload, declared);
            let claim = self.declared.file.claims.get(workload);
            let attached = self.records.attachments.get(&key).map(|(attached, _)| attached);
            let mut declared = declared.clone();
            if let Some(attached) = attached {
                declared.mac = Some(attached.mac.clone());
            }
            let shown = ShownInterface {
                host_interface: attached
                    .map_or_else(|| declared.name.clone(), |attached| attached.host_interface.clone()),
                key,
                declared,
                addresses: claim.map(|claim| claim.addresses.clone()).unwrap_or_default(),
                generation: claim.map_or(0, |claim| claim.generation),
                fault: self.declared.faults.get(workload).cloned(),
            };
            (workload.clone(), shown)
        };
        interfaces.map(shown).collect()
    }

    /// Ends the claims of Workloads that no longer declare an interface.
    fn release_claims(&mut self, interfaces: &BTreeMap<WorkloadKey, DeclaredInterface>, now: u64) {
        let ended: Vec<_> =
            self.declared.file.claims.keys().filter(|key| !interfaces.contains_key(*key)).cloned().collect();
        for key in ended {
            if let Some(claim) = self.declared.file.claims.remove(&key) {
                self.release_addresses(claim.addresses, now);
            }
        }
    }

    /// Releases addresses, and records the start of their cooldown.
    fn release_addresses(&mut self, addresses: Vec<IpAddr>, now: u64) {
        if addresses.is_empty() {
            return;
        }
        for address in &addresses {
            self.allocator.release(*address, now);
        }
        let addresses = addresses.into_iter().map(|address| (address, now)).collect();
        let step = AttachStep::Released { addresses, generation: self.records.generation };
        if let Err(error) = self.step(step) {
            warn!(%error, "the cooldown of released addresses is not recorded");
        }
    }

    /// Gives a Workload its addresses: those that it states, the ones that it has, or free ones of the blocks of this node.
    fn claim(
        &mut self,
        workload: &WorkloadKey,
        declared: &DeclaredInterface,
        now: u64,
    ) -> Result<(), InterfaceFault> {
        let held = self.declared.file.claims.get(workload).cloned();
        if let Some(claim) = &held
            && (declared.addresses.is_empty() || declared.addresses == claim.addresses)
        {
            claim.addresses.iter().for_each(|address| self.allocator.hold(*address));
            return Ok(());
        }
        let recorded = self.records.attachments.get(&key_of(workload, declared));
        let recorded = recorded.map(|(attached, _)| attached.addresses.clone());
        let held: BTreeSet<IpAddr> =
            held.map(|claim| claim.addresses).into_iter().chain(recorded).flatten().collect();
        let addresses = if declared.addresses.is_empty() {
            let chosen = self.choose(Some(declared.network.as_str()), now);
            chosen.map_err(|problem| fault(InterfaceFaultReason::Failed, problem.message))?.1
        } else if let Some(fault) = self.stated_fault(declared, &held) {
            // The former addresses are not those of the Workload any longer.
            self.declared.file.claims.remove(workload);
            self.release_addresses(held.into_iter().collect(), now);
            return Err(fault);
        } else {
            declared.addresses.clone()
        };
        addresses.iter().for_each(|address| self.allocator.hold(*address));
        let ended: Vec<_> = held.into_iter().filter(|address| !addresses.contains(address)).collect();
        self.release_addresses(ended, now);
        self.records.released.retain(|(address, _)| !addresses.contains(address));
        let claim = Claim { addresses, generation: now };
        self.declared.file.claims.insert(workload.clone(), claim);
        Ok(())
    }

    /// Returns the reason why a Workload cannot have the addresses that it states: they must be of blocks of this node, and no
    /// other workload may have them.
    fn stated_fault(&self, declared: &DeclaredInterface, held: &BTreeSet<IpAddr>) -> Option<InterfaceFault> {
        let blocks = self.desired.iter().flat_map(|desired| &desired.blocks);
        let own: Vec<_> = blocks
            .filter(|(_, block)| block.node == self.own && block.network == declared.network)
            .map(|(range, _)| *range)
            .collect();
        let message = declared.addresses.iter().find_map(|address| {
            if !own.iter().any(|range| range.contains(address)) {
                let network = &declared.network;
                return Some(format!("{address} is of no block of network {network} on this node"));
            }
            let is_taken = self.allocator.is_used(*address) && !held.contains(address);
            is_taken.then(|| format!("another workload of this node has the address {address}"))
        });
        message.map(|message| fault(InterfaceFaultReason::Refused, message))
    }

    /// Decides for each link behind which Workloads are declared if the agent may configure it.
    fn judge_links(&mut self, interfaces: &BTreeMap<WorkloadKey, DeclaredInterface>) -> io::Result<()> {
        let links = link::observe(&mut self.netlink)?;
        let mut groups: BTreeMap<&str, Vec<(&WorkloadKey, &DeclaredInterface)>> = BTreeMap::new();
        for (workload, declared) in interfaces.iter().filter(|(_, one)| one.kind != AttachmentKind::Veth) {
            groups.entry(declared.name.as_str()).or_default().push((workload, declared));
        }
        let is_known = |name: &&str| {
            let (link, record) = (links.get(*name), self.declared.file.links.get(*name));
            link.map(|link| link.index) == record.map(|record| record.index)
        };
        // A machine can have many routes, and an interface that is configured had none of them.
        let default_routes = if groups.keys().all(is_known) {
            BTreeSet::new()
        } else {
            link::default_route_links(&mut self.netlink)?
        };
        self.declared.accepted.clear();
        for (name, workloads) in groups {
            let kind = workloads.first().map_or(AttachmentKind::Host, |(_, declared)| declared.kind);
            let judged = match links.get(name) {
                None => {
                    Err(fault(InterfaceFaultReason::Missing, format!("the node has no interface {name}")))
                }
                Some(link) => match link::refusal(link, kind, default_routes.contains(&link.index)) {
                    Some(reason) => Err(fault(InterfaceFaultReason::Refused, reason)),
                    None => Ok(link),
                },
            };
            match judged {
                Ok(link) => self.accept(name, link, kind, &workloads),
                Err(fault) => {
                    let keys = workloads.iter().map(|(workload, _)| (*workload).clone());
                    self.declared.faults.extend(keys.map(|key| (key, fault.clone())));
                }
            }
        }
        self.route_declared();
        Ok(())
    }

    fn accept(
        &mut self,
        name: &str,
        link: &DeclarableLink,
        kind: AttachmentKind,
        workloads: &[(&WorkloadKey, &DeclaredInterface)],
    ) {
        let mut behind = BTreeMap::new();
        for (workload, declared) in workloads {
            // A Workload whose addresses were refused keeps its former ones until it ends.
            let claim = self.declared.file.claims.get(*workload);
            let addresses = claim.filter(|_| !self.declared.faults.contains_key(*workload));
            let addresses = addresses.iter().flat_map(|claim| &claim.addresses);
            behind.extend(addresses.map(|address| (*address, declared.mac.clone())));
        }
        if !behind.is_empty() {
            let accepted = AcceptedLink { index: link.index, is_up: link.is_up, kind, workloads: behind };
            self.declared.accepted.insert(name.to_owned(), accepted);
        }
    }

    /// Sets the routes to the Workloads for which their links are configured.
    fn route_declared(&mut self) {
        let mut routes = BTreeMap::new();
        for (name, link) in &self.declared.accepted {
            let record = self.declared.file.links.get(name);
            // The kernel rejects a route to a link that is down.
            let record = record.filter(|record| record.index == link.index && link.is_up);
            let ready = |address: &&IpAddr| record.is_some_and(|record| record.workloads.contains(*address));
            routes.extend(link.workloads.keys().filter(ready).map(|address| (*address, link.index)));
        }
        self.declared.routes = routes;
    }

    /// Restores the settings of links that are no longer declared or are refused now. Links that are gone took their settings
    /// with them.
    fn restore_links(&mut self, links: &BTreeMap<String, DeclarableLink>) -> io::Result<()> {
        let is_kept = |(name, record): &(&String, &LinkRecord)| {
            self.declared.accepted.get(*name).is_some_and(|link| link.index == record.index)
        };
        let ended = self.declared.file.links.iter().filter(|entry| !is_kept(entry));
        let ended: Vec<_> = ended.map(|(name, record)| (name.clone(), record.clone())).collect();
        if ended.is_empty() {
            return Ok(());
        }
        for (name, record) in ended {
            // A link keeps its index and its settings under another name.
            let present = links.values().find(|link| link.index == record.index);
            let restored =
                present.map_or(Ok(0), |link| settings::undo(&mut self.netlink, &link.name, &record));
            match restored {
                Ok(_) => {
                    info!(
                        interface = name,
                        "restored the settings of an interface that is no longer declared"
                    );
                    self.declared.file.links.remove(&name);
                }
                Err(error) => {
                    warn!(interface = name, %error, "cannot restore the settings of an interface yet")
                }
            }
        }
        self.declared.file.save(&self.declared.path)
    }

    /// Applies the settings of the accepted links.
    fn configure_links(&mut self, links: &BTreeMap<String, DeclarableLink>) {
        for (name, accepted) in self.declared.accepted.clone() {
            let Some(link) = links.get(&name).filter(|link| link.index == accepted.index) else { continue };
            let accepted = AcceptedLink { is_up: link.is_up, ..accepted };
            if let Err(error) = self.configure_link(&name, &accepted, link) {
                let message = format!("the settings of interface {name} cannot be changed: {error}");
                let fault = fault(InterfaceFaultReason::Failed, message);
                let interfaces = self.desired.iter().flat_map(|desired| &desired.interfaces);
                let behind = interfaces
                    .filter(|(_, declared)| declared.name == name && declared.kind != AttachmentKind::Veth);
                self.declared.faults.extend(behind.map(|(key, _)| (key.clone(), fault.clone())));
            }
        }
    }

    /// Applies the settings of one link. The former ones are on disk first, and the network policy of the Workloads is in the
    /// kernel before the first packet.
    fn configure_link(
        &mut self,
        name: &str,
        accepted: &AcceptedLink,
        link: &DeclarableLink,
    ) -> io::Result<()> {
        let present: BTreeSet<_> = link.addresses.iter().map(ipnet::IpNet::addr).collect();
        let former = self.declared.file.links.get(name).cloned();
        let mut record = match former.clone() {
            Some(record) => record,
            None => settings::record(name, accepted, &present)?,
        };
        let known_neighbors = record.neighbors.clone();
        record.gateways.extend(settings::gateways(accepted).difference(&present));
        record.neighbors.extend(settings::neighbors_of(accepted).into_keys());
        if former.as_ref() != Some(&record) {
            self.declared.file.links.insert(name.to_owned(), record.clone());
            self.declared.file.save(&self.declared.path)?;
        }
        if !accepted.workloads.keys().all(|address| record.workloads.contains(address)) {
            self.pass_gate(name);
        }
        let changes = settings::apply(&mut self.netlink, name, accepted, &present, &known_neighbors)?;
        self.table_changes += changes;
        if let Some(link) = self.declared.accepted.get_mut(name) {
            link.is_up = true;
        }
        record.neighbors = settings::neighbors_of(accepted).into_keys().collect();
        record.workloads = accepted.workloads.keys().copied().collect();
        if self.declared.file.links.get(name) != Some(&record) {
            self.declared.file.links.insert(name.to_owned(), record);
            self.declared.file.save(&self.declared.path)?;
        }
        if former.is_none() {
            info!(interface = name, "configured an interface that Workloads declare");
        }
        Ok(())
    }

    /// Waits for the network policy of the Workloads behind a link.
    fn pass_gate(&self, name: &str) {
        for (workload, shown) in self.shown_interfaces() {
            let ShownInterface { key, declared, host_interface, addresses, generation, fault } = shown;
            if declared.name != name || declared.kind == AttachmentKind::Veth || fault.is_some() {
                continue;
            }
            self.gate.pass(&AttachedWorkload {
                key,
                netns: String::new(),
                network: declared.network.to_string(),
                namespace: workload.namespace.to_string(),
                workload: workload.name.to_string(),
                labels: BTreeMap::new(),
                manager: MANAGER.to_owned(),
                host_interface,
                mac: declared.mac.unwrap_or_default(),
                addresses,
                mtu: 0,
                generation,
                refusal: None,
            });
        }
    }

    /// Creates the veth pairs that Workloads declare, and removes those that none declares any longer.
    fn follow_veths(&mut self, interfaces: &BTreeMap<WorkloadKey, DeclaredInterface>, now: u64) {
        let mut wanted: BTreeSet<AttachmentKey> = BTreeSet::new();
        for (workload, declared) in interfaces.iter().filter(|(_, one)| one.kind == AttachmentKind::Veth) {
            wanted.insert(key_of(workload, declared));
            if self.declared.faults.contains_key(workload) {
                continue;
            }
            if let Err(problem) = self.follow_veth(workload, declared, now) {
                let reason = match problem.code {
                    ProblemCode::NoNamespace => InterfaceFaultReason::Missing,
                    ProblemCode::InterfaceExists | ProblemCode::InUse | ProblemCode::Invalid => {
                        InterfaceFaultReason::Refused
                    }
                    ProblemCode::NotReady
                    | ProblemCode::Exhausted
                    | ProblemCode::NotFound
                    | ProblemCode::Differs
                    | ProblemCode::Kernel
                    | ProblemCode::Journal
                    | ProblemCode::Busy => InterfaceFaultReason::Failed,
                };
                self.declared.faults.insert(workload.clone(), fault(reason, problem.message));
            }
        }
        let declared = self.records.attachments.values().filter(|(attached, _)| attached.manager == MANAGER);
        let stale: Vec<_> =
            declared.map(|(attached, _)| attached.key.clone()).filter(|key| !wanted.contains(key)).collect();
        for key in stale {
            if let Err(error) = self.remove(&key, now) {
                warn!(attachment = %key, %error, "cannot remove an interface that is no longer declared yet");
            }
        }
    }

    fn follow_veth(
        &mut self,
        workload: &WorkloadKey,
        declared: &DeclaredInterface,
        now: u64,
    ) -> Result<(), attach_socket::AttachProblem> {
        let namespace = declared.network_namespace.as_deref().unwrap_or_default();
        let request = AttachRequest {
            key: key_of(workload, declared),
            netns: format!("{NETNS_DIRECTORY}/{namespace}"),
            network: Some(declared.network.to_string()),
            namespace: Some(workload.namespace.to_string()),
            workload: Some(workload.name.to_string()),
            labels: BTreeMap::new(),
            manager: MANAGER.to_owned(),
        };
        let claim = self.declared.file.claims.get(workload).cloned();
        let Some(Claim { addresses, generation: _ }) = claim else {
            return Err(problem(ProblemCode::Exhausted, "the Workload has no addresses".to_owned()));
        };
        let fixed = FixedAddresses {
            network: declared.network.clone(),
            addresses,
            mac: declared.mac.as_deref().map(str::to_ascii_lowercase),
        };
        let is_other = |attached: &AttachedWorkload| {
            attached.netns != request.netns
                || attached.network != fixed.network.as_str()
                || attached.addresses != fixed.addresses
                || fixed.mac.as_ref().is_some_and(|mac| *mac != attached.mac)
        };
        if self.records.attachments.get(&request.key).is_some_and(|(attached, _)| is_other(attached)) {
            self.remove(&request.key.clone(), now)?;
        }
        fixed.addresses.iter().for_each(|address| self.allocator.hold(*address));
        let attached = self.attach_with(request, Some(fixed.clone()), now);
        // A failed attachment has released them.
        fixed.addresses.iter().for_each(|address| self.allocator.hold(*address));
        attached.map(|_| ())
    }
}
