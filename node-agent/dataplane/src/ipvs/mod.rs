//! ipvs backend: virtual servers in the kernel's IPVS, their addresses on a dummy link, ipsets for the differences
//! between Services, and a fixed number of iptables rules that match these sets.
//!
//! `lower` replaces features of a packet program (a Service's frontends with their verdicts) that IPVS lacks,
//! `wants` contains the kernel objects that the programs need, and the mirror contains these objects as last
//! read or written.
//! ```text
//! desired ─▶ lower ─▶ wants ─▶ plan ─▶ sets, addresses, virtual servers, sets ─▶ read back ─▶ outcomes
//!                                ▲                       │
//!                                └──────── mirror ◀──────┘  ◀── observe
//! ```
//! A starting process recognizes the backend's objects as follows: the link, the chains and the sets by name;
//! a virtual server if the set `…IPVS-SERVERS` contains it or its address is on the link. The set entry is
//! added before the virtual server is created and removed after it is deleted, so foreign virtual servers are
//! never touched. If a foreign one uses the address and port of a frontend, the Service fails.
//!
//! The backend uses netlink directly. A process (`iptables-restore`) is started only for the fixed rules, never
//! for a Service. There is deliberately no rule per Service.

mod claim;
mod commit;
mod cut;
pub mod desired;
mod drain;
pub mod ipset;
mod iptables;
pub mod link;
pub mod listing;
pub mod mirror;
mod observe;
pub mod parse;
pub mod plan;
mod preview;
pub mod render;
pub mod rules;
pub mod server;
pub mod sets;
mod sysctls;
mod trace;
pub mod uapi;
mod verify;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Instant,
};

use kernel::{
    conntrack::nudge::wire::Nudge,
    netlink::socket::{Netlink, Protocol},
};
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    primitives::net::IpFamily,
    wire::{
        plan::LineChange,
        trace::{Packet, PacketTrace},
    },
};

pub use model::program::lower::ipvs as lower;

use self::{
    claim::ApplyResult,
    commit::failed,
    desired::{DirtyObjects, Wants},
    iptables::Iptables,
    mirror::IpvsMirror,
    server::{Destination, Socket},
};
use super::{
    BackendOptions, Dataplane, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals,
    RejectedServices, Scope, Traffic, trace::Subject,
};

/// Backend of ipvs mode in one network namespace.
pub struct IpvsBackend {
    generic: Netlink,
    netfilter: Netlink,
    route: Netlink,
    iptables: Iptables,
    /// Number that the kernel assigned to the generic netlink family `IPVS`.
    family: u16,
    options: BackendOptions,
    /// Mirror (copy in memory) of the backend's kernel objects; `None` if the kernel state is unknown.
    mirror: Option<IpvsMirror>,
    wants: Wants,
    /// Draining destinations, each with the deadline of its connections; `None` for no deadline.
    draining: BTreeMap<(Socket, Destination), Option<Instant>>,
    /// Elements of the ipset that records the original values of the changed sysctls.
    former_sysctls: BTreeSet<sets::IpsetElement>,
    /// Position in the list of virtual servers from which the next check for changes by other programs
    /// starts.
    watch: watch::Position,
    is_retiring: bool,
    /// Clients of connections that the kernel terminated because their destination was removed, until
    /// `take_cut` returns them.
    cut: Vec<Nudge>,
    counters: KernelCounters,
}

impl IpvsBackend {
    /// Opens sockets in the network namespace of the calling thread and finds the tools. Writes nothing.
    ///
    /// # Errors Returns an error if the kernel has no IPVS, denies a socket, or if no iptables tool works.
    pub fn open(options: &BackendOptions) -> Result<Self, KernelError> {
        let mut generic = Netlink::open(Protocol::Generic).map_err(failed("opening a netlink socket"))?;
        let family = observe::find_family(&mut generic).map_err(failed("looking for IPVS"))?;
        let family = family.ok_or_else(|| {
            let missing =
                "kernel module ip_vs is not loaded; load it (modprobe ip_vs) or use another proxy mode";
            failed("looking for IPVS")(io::Error::new(io::ErrorKind::NotFound, missing))
        })?;
        Ok(Self {
            generic,
            netfilter: Netlink::open(Protocol::Netfilter).map_err(failed("opening a netfilter socket"))?,
            route: Netlink::open(Protocol::Route).map_err(failed("opening a netlink socket"))?,
            iptables: Iptables::find().map_err(failed("looking for iptables"))?,
            family,
            options: options.clone(),
            mirror: None,
            wants: Wants::default(),
            draining: BTreeMap::new(),
            former_sysctls: BTreeSet::new(),
            watch: watch::Position::default(),
            is_retiring: false,
            cut: Vec::new(),
            counters: KernelCounters::default(),
        })
    }

    const fn rule_options(&self) -> rules::Options {
        rules::Options {
            naming: self.options.naming,
            masquerade_mark: self.options.masquerade_mark,
            drop_invalid: self.options.drop_invalid,
        }
    }

    fn run(&mut self, desired: &DesiredState, scope: &Scope, pass: &mut Pass) -> Result<(), KernelError> {
        let is_fresh = self.mirror.is_none();
        if is_fresh {
            self.observe()?;
        }
        self.is_retiring = false;
        self.ensure_structure(is_fresh || *scope == Scope::Everything, pass)?;
        let mut touched = DirtyObjects::default();
        let mirror = self.mirror.get_or_insert_default();
        let ApplyResult { possible, impossible } = self.wants.take_over(desired, scope, mirror, &mut touched);
        pass.outcomes.extend(impossible);
        let mut affected = possible;
        let refused = self.carry_out(&mut touched, pass)?;
        let owners = touched.sockets.values().filter_map(|(owner, _)| owner.clone());
        affected.extend(owners.filter(|owner| desired.programs.contains_key(&**owner)));
        self.conclude(&affected, refused, pass);
        Ok(())
    }

    /// Plans and commits the changes of the dirty objects (those to plan again). If the kernel rejects any
    /// object of a Service, all objects of the Service are removed.
    fn carry_out(
        &mut self,
        touched: &mut DirtyObjects,
        pass: &mut Pass,
    ) -> Result<RejectedServices, KernelError> {
        let refused = self.carry_out_once(touched, pass)?;
        let withdrawn: Vec<_> =
            refused.keys().filter(|service| self.wants.claims.program(service).is_some()).cloned().collect();
        if withdrawn.is_empty() {
            return Ok(refused);
        }
        let mut again = DirtyObjects::default();
        for service in &withdrawn {
            self.wants.replace(service, None, &mut again);
        }
        let mut all = self.carry_out_once(&again, pass)?;
        // The first rejection is the cause.
        all.extend(refused);
        for (socket, owner) in again.sockets {
            touched.sockets.entry(socket).or_insert(owner);
        }
        Ok(all)
    }

    fn carry_out_once(
        &mut self,
        touched: &DirtyObjects,
        pass: &mut Pass,
    ) -> Result<RejectedServices, KernelError> {
        let mirror = self.mirror.get_or_insert_default();
        let plan = plan::plan(mirror, &self.wants, touched);
        let ends = self.ends(&plan.commands)?;
        self.note_clients(&ends);
        let refused = self.commit(&plan, pass)?;
        self.recall(&plan);
        self.settle(&plan.draining, pass)?;
        self.release_addresses(touched.addresses.keys().copied(), pass)?;
        Ok(refused)
    }

    /// Records in `pass` an outcome for each Service in `affected`, unless the Service already has one.
    fn conclude(&self, affected: &BTreeSet<Arc<ServiceKey>>, mut refused: RejectedServices, pass: &mut Pass) {
        for service in affected {
            let outcome = match refused.remove(service) {
                Some(outcome) => outcome,
                None => self.wants.claims.conflict(service).unwrap_or(Outcome::Verified),
            };
            pass.outcomes.entry(ServiceKey::clone(service)).or_insert(outcome);
        }
    }
}

impl Dataplane for IpvsBackend {
    fn mode(&self) -> ProxyMode {
        ProxyMode::Ipvs
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        // Virtual servers still belong to the backend even if the set that contains them was flushed.
        let known: BTreeSet<_> =
            self.mirror.take().map(|mirror| mirror.servers.into_keys().collect()).unwrap_or_default();
        let mut mirror = self.read().map_err(failed("reading our part of the kernel"))?;
        let ours: Vec<_> = mirror.foreign.intersection(&known).copied().collect();
        self.adopt(&ours, &mut mirror).map_err(failed("reading virtual servers"))?;
        self.mirror = Some(mirror);
        Ok(())
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        self.look().map_err(failed("checking for changes by other programs"))
    }

    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        let mut pass = Pass::default();
        if let Err(error) = self.run(desired, scope, &mut pass) {
            self.mirror = None;
            pass.failed = Some(error);
        }
        pass
    }

    fn upkeep(&mut self) -> Result<(), KernelError> {
        let mut pass = Pass::default();
        let outcome = self.follow_addresses(&mut pass).and_then(|()| {
            let waiting: BTreeSet<_> = self.draining.keys().map(|(socket, _)| *socket).collect();
            let waiting: Vec<_> = waiting.into_iter().map(|socket| (socket, Default::default())).collect();
            self.settle(&waiting, &mut pass)
        });
        if outcome.is_err() {
            self.mirror = None;
        }
        outcome
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        std::mem::take(&mut self.cut)
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        if self.is_retiring {
            if self.has_connections()? {
                return Ok(false);
            }
        } else {
            self.quiesce()?;
            self.is_retiring = true;
            if self.has_connections()? {
                return Ok(false);
            }
        }
        self.cleanup().map(|_| true)
    }

    fn abandon(&mut self) {}

    fn is_tracked(&self) -> bool {
        true
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        self.read_traffic().map_err(failed("reading the counters of virtual servers"))
    }

    fn sees_refusals(&self) -> bool {
        false
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        Ok(Vec::new())
    }

    fn is_counted_by_flows(&self) -> bool {
        false
    }

    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        self.previewed(desired, scope).map(Some)
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        let read = self.read().and_then(|mirror| Ok((mirror, Subject::all_here(packets)?)));
        let (mirror, subjects) = read.map_err(failed("reading our part of the kernel"))?;
        let held = trace::TraceState { mirror: &mirror, known: self.mirror.as_ref() };
        let follow = |subject: &Subject<'_>| trace::trace(held, self.options.naming, subject).finish();
        Ok(Some(subjects.iter().map(follow).collect()))
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.observe()?;
        let removed = self.remove_all().map_err(failed("removing our part of the kernel"));
        self.mirror = None;
        self.wants = Wants::default();
        self.draining.clear();
        self.former_sysctls.clear();
        self.is_retiring = false;
        removed
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}

impl IpvsBackend {
    /// Applies changes of the node's addresses: serves node ports on new addresses, and plans those virtual
    /// addresses again that have appeared on another link or vanished from it.
    fn follow_addresses(&mut self, pass: &mut Pass) -> Result<(), KernelError> {
        let Some(mut mirror) = self.mirror.take() else { return Ok(()) };
        let before = mirror.other_addresses.clone();
        let held = mirror.link.clone();
        let read = self.read_addresses(&mut mirror);
        // Changes of the dummy link are detected by `is_disturbed`; here the known state is kept.
        mirror.link = held;
        let changed: Vec<_> = before.symmetric_difference(&mirror.other_addresses).copied().collect();
        self.mirror = Some(mirror);
        read.map_err(failed("reading addresses"))?;
        if changed.is_empty() {
            return Ok(());
        }
        let mut touched = DirtyObjects::default();
        let wanted = changed.into_iter().filter(|address| self.wants.wants_address(*address));
        touched.addresses.extend(wanted.map(|address| (address, None)));
        if let Some(mirror) = &self.mirror {
            self.wants.renew_node_addresses(mirror, &mut touched);
        }
        let refused = self.carry_out(&mut touched, pass)?;
        for (service, outcome) in refused {
            tracing::warn!(%service, ?outcome, "a node port is not served on a new address");
        }
        Ok(())
    }

    fn adopt(&mut self, sockets: &[Socket], mirror: &mut IpvsMirror) -> io::Result<()> {
        let services = self.read_some(sockets)?;
        for (socket, service) in sockets.iter().zip(services) {
            let Some(service) = service else { continue };
            let loads = self.read_loads(socket)?;
            let destinations = loads.into_iter().map(|(name, (held, _))| (name, held)).collect();
            mirror.foreign.remove(socket);
            mirror.servers.insert(*socket, server::Server { service, destinations });
        }
        Ok(())
    }

    fn remove_all(&mut self) -> io::Result<u64> {
        let mirror = self.mirror.clone().unwrap_or_default();
        let mut removed = mirror.objects();
        for family in IpFamily::ALL {
            for table in rules::tables(family, self.rule_options()) {
                let listing = self.iptables.list(family, table.name)?;
                if let Some(script) = rules::remove(&listing, &table) {
                    self.iptables.restore(family, &script)?;
                    removed += 1;
                }
            }
        }
        let servers: Vec<_> =
            mirror.servers.keys().map(|socket| render::IpvsCommand::RemoveServer(*socket)).collect();
        let messages: Vec<_> = servers.iter().map(|command| command.message(self.family)).collect();
        self.generic.ask(&messages, |_, _| Ok(()))?;
        for element in mirror.elements.iter().filter(|element| element.set.kind == sets::SetKind::Sysctls) {
            sysctls::restore(element)?;
        }
        let naming = self.options.naming;
        let destructions: Vec<_> = mirror.sets.keys().map(|set| ipset::destroy(*set, naming)).collect();
        let errnos = self.netfilter.ask(&destructions, |_, _| Ok(()))?;
        if let Some(errno) = errnos.into_iter().find(|errno| *errno != 0) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if let Some(link) = &mirror.link {
            self.route.ask(&[link::remove(link.index)], |_, _| Ok(()))?;
        }
        Ok(removed)
    }
}
