//! nftables backend: one table with a fixed set of chains and maps. Services are elements of the maps.
//!
//! Claims are the frontends and addresses that each Service uses; the mirror contains the table as last read
//! or written.
//! ```text
//! desired ─▶ claims ─▶ plan ─▶ render ─▶ commit ─▶ read back ─▶ outcomes
//!                        ▲                  │
//!                        └──── mirror ◀─────┘  ◀── observe (parse)
//! ```
//! Packets from the node itself are translated after routing, so the node needs some route to virtual addresses.
//! The agent keeps one if no other route leads there (`kernel::service_routes`).
//!
//! The backend uses netlink directly; no process is started. The table is recognized by name, no matter which
//! process created it. There is deliberately no chain, set or rule per Service, and no object outside the
//! table.
//!
//! Session affinity is stored only in the kernel, in maps filled by packets; no pass reads or writes them.
//! All frontends of a Service port share the entries of a client ([`group`]).
//! Entries of removed groups are deleted between passes (`forget`). Schedulers that need state per
//! frontend (round robin, least connections) are not supported, because the chains are shared. Established
//! flows continue without the table as long as another program in the network namespace uses NAT, as is the
//! case after a takeover by another mode.

mod commit;
pub mod definition;
pub mod desired;
pub mod element;
mod forget;
pub mod group;
pub mod listing;
pub mod mirror;
mod notes;
mod number;
mod owners;
pub mod parse;
pub mod plan;
mod preview;
pub mod render;
mod rules;
pub mod schema;
pub mod slots;
mod sweep;
mod trace;
mod traffic;
mod verify;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use kernel::{
    conntrack::nudge::wire::Nudge,
    netlink::{
        socket::{Netlink, Protocol},
        wire::ReceivedMessage,
    },
    nftables::{parse::generation as parse_generation, render as request, transaction::RejectedTransaction},
};
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    program::{Frontend, Program},
    wire::{
        plan::LineChange,
        report::FailureReason,
        trace::{Packet, PacketTrace},
    },
};

use self::{mirror::NftablesMirror, parse::Observation, plan::Plan, schema::Pick};
use super::{
    Dataplane, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals, Scope, Traffic,
    claims::{Claims, TouchedObjects},
    trace::Subject,
};

/// Maximum number of attempts to read the whole table without a concurrent change.
const OBSERVE_ATTEMPTS_MAX: u32 = 8;

/// Options of the nftables backend, fixed when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct NftablesOptions {
    /// Packet mark that requests masquerading; exactly one bit.
    pub mark_bit: u32,
    /// True if forwarded packets in the conntrack state INVALID are dropped.
    pub drop_invalid: bool,
    /// Name of the table. A starting process finds the objects of an earlier one by this name.
    pub table: &'static str,
}

impl Default for NftablesOptions {
    fn default() -> Self {
        Self { mark_bit: schema::MARK_BIT_DEFAULT, drop_invalid: true, table: schema::TABLE }
    }
}

/// nftables backend of one network namespace.
pub struct NftablesBackend {
    netlink: Netlink,
    options: NftablesOptions,
    /// Mirror (copy in memory) of the backend's table; `None` if the kernel state is unknown.
    mirror: Option<NftablesMirror>,
    /// Generation of the nf_tables ruleset at which the mirror was correct.
    generation: u32,
    claims: Claims,
    /// Table of the two-stage path.
    owners: owners::OwnerTable,
    /// Pick chains (which pick a target slot) created in this pass, whose rules are read back.
    chains_made: BTreeSet<Pick>,
    tally: traffic::Tally,
    forgetting: forget::Forgetting,
    sweeping: sweep::Sweeping,
    counters: KernelCounters,
}

impl NftablesBackend {
    /// Iterates over the frontends in the table as last observed or written; none before that.
    pub fn observed_frontends(&self) -> impl Iterator<Item = Frontend> {
        self.mirror.iter().flat_map(|mirror| mirror.frontends.keys().copied())
    }

    /// Opens a socket in the network namespace of the calling thread. Reads and writes nothing.
    ///
    /// # Errors
    /// Returns an error if the mark is not exactly one bit, or the kernel denies a socket (`CAP_NET_ADMIN` is
    /// required).
    pub fn open(options: NftablesOptions) -> Result<Self, KernelError> {
        let failed = |source| KernelError { action: "opening a netfilter socket".to_owned(), source };
        if !options.mark_bit.is_power_of_two() {
            let message = format!("the mark must be exactly one bit, not {:#x}", options.mark_bit);
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        Ok(Self {
            netlink: Netlink::open(Protocol::Netfilter).map_err(failed)?,
            options,
            mirror: None,
            generation: 0,
            claims: Claims::default(),
            owners: owners::OwnerTable::default(),
            chains_made: BTreeSet::new(),
            tally: traffic::Tally::default(),
            forgetting: forget::Forgetting::default(),
            sweeping: sweep::Sweeping::default(),
            counters: KernelCounters::default(),
        })
    }

    /// Reads the whole table. Retries if the ruleset generation changed meanwhile, so that the result is
    /// consistent.
    fn read(&mut self) -> io::Result<(NftablesMirror, u32)> {
        for _ in 0..OBSERVE_ATTEMPTS_MAX {
            let before = self.read_generation()?;
            let mirror = match self.read_once() {
                Ok(mirror) => mirror,
                // The table or one of its sets was removed while reading.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if self.read_generation()? == before {
                return Ok((mirror, before));
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the ruleset changed during every attempt to read it",
        ))
    }

    fn read_once(&mut self) -> io::Result<NftablesMirror> {
        let table = self.options.table;
        let mut observation = Observation::new(self.options);
        let errnos = self.netlink.ask(&[request::get_table(table)], |_, answer| observation.table(answer))?;
        match errnos.first().copied().unwrap_or_default() {
            0 => {}
            errno if io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotFound => {
                return Ok(NftablesMirror::default());
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        // An interrupted dump restarts with a new collection, so the parts are joined here.
        let chains = self.netlink.dump(&request::dump_chains(), Vec::new, |chains, answer| {
            chains.push(answer.payload.to_vec());
            Ok(())
        })?;
        let rules = self.netlink.dump(&request::dump_rules(table, None), Vec::new, |rules, answer| {
            rules.push(answer.payload.to_vec());
            Ok(())
        })?;
        let sets = self.netlink.dump(&request::dump_sets(table), Vec::new, |sets, answer| {
            sets.push(answer.payload.to_vec());
            Ok(())
        })?;
        let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
        for payload in &chains {
            observation.chain(&received(payload)).map_err(invalid)?;
        }
        for payload in &rules {
            observation.rule(&received(payload)).map_err(invalid)?;
        }
        for payload in &sets {
            observation.set(&received(payload)).map_err(invalid)?;
        }
        // Elements are processed one by one, because there are many. Elements of an interrupted dump stay in
        // the mirror (copy in memory): if a writer interrupted it, the generation differs and everything is
        // read again; otherwise they are as valid as before.
        for set in observation.sets().into_iter().filter(|set| !set.is_dynamic()) {
            self.netlink.dump(
                &render::dump_elements(table, set),
                || (),
                |(), answer| {
                    parse::for_each_element(set, answer, |element| observation.take_element(set, element))
                },
            )?;
        }
        Ok(observation.finish())
    }

    fn read_generation(&mut self) -> io::Result<u32> {
        let mut generation = None;
        self.netlink.ask(&[request::get_generation()], |_, answer| {
            generation = parse_generation(answer)?;
            Ok(())
        })?;
        generation.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the response contains no \
                                                                             generation",
            )
        })
    }

    fn run(&mut self, desired: &DesiredState, scope: &Scope, pass: &mut Pass) -> Result<(), KernelError> {
        if self.mirror.is_none() {
            self.observe()?;
        }
        let (touched, mut affected) = self.claim(desired, scope, pass);
        let everything = *scope == Scope::Everything;
        let plan = self.plan(desired, &touched, everything);
        self.chains_made.clear();
        let mut failed = self.commit_plan(&plan, pass)?;
        self.verify(desired, &touched, plan, everything, &mut failed)?;
        self.follow_owners(&touched, &desired.networks, everything, pass)?;
        affected.extend(
            touched.frontends.keys().flat_map(|frontend| self.claims.claimants(frontend).iter().cloned()),
        );
        self.conclude(&affected, failed, pass)
    }

    /// Updates the claims of the Services in the scope of a pass (update of the kernel) to their desired
    /// state. Returns the objects to plan again and the affected Services.
    fn claim(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
        pass: &mut Pass,
    ) -> (TouchedObjects, BTreeSet<Arc<ServiceKey>>) {
        let mut touched = TouchedObjects::default();
        let mut affected = BTreeSet::new();
        let mut claim = |claims: &mut Claims, service: &ServiceKey, program: Option<&Arc<Program>>| {
            let checked = program.map(|program| desired::check(program));
            let possible = program.filter(|_| matches!(checked, Some(Ok(()))));
            claims.replace(service, possible.cloned(), &mut touched);
            match checked {
                None => {}
                Some(Ok(())) => {
                    affected.insert(Arc::new(service.clone()));
                }
                Some(Err(message)) => {
                    let outcome = Outcome::Failed { reason: FailureReason::Unsupported, message };
                    pass.outcomes.insert(service.clone(), outcome);
                }
            }
        };
        match scope {
            Scope::Everything => {
                self.claims = Claims::default();
                for (service, desired) in &desired.programs {
                    claim(&mut self.claims, service, Some(&desired.program));
                }
                if let Some(mirror) = &self.mirror {
                    touched.add(
                        mirror.frontends.keys().copied(),
                        mirror.virtual_addresses.keys(),
                        mirror.hairpins.keys(),
                    );
                }
            }
            Scope::Services(services) => {
                for service in services {
                    let program = desired.programs.get(service).map(|desired| &desired.program);
                    claim(&mut self.claims, service, program);
                }
            }
        }
        (touched, affected)
    }

    fn plan(&self, desired: &DesiredState, touched: &TouchedObjects, everything: bool) -> Plan {
        let nothing = NftablesMirror::default();
        let mirror = self.mirror.as_ref().unwrap_or(&nothing);
        plan::plan(mirror, &self.claims, touched, &desired.networks, everything)
    }

    /// Records the outcome of each Service in `affected` in `pass`. Returns an error if `failed` contains
    /// another Service, whose elements could not be removed.
    fn conclude(
        &self,
        affected: &BTreeSet<Arc<ServiceKey>>,
        mut failed: BTreeMap<Arc<ServiceKey>, Outcome>,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        for service in affected {
            let outcome = match failed.remove(service) {
                Some(outcome) => outcome,
                None => self.claims.conflict(service).unwrap_or(Outcome::Verified),
            };
            pass.outcomes.insert(ServiceKey::clone(service), outcome);
        }
        match failed.pop_first() {
            None => Ok(()),
            Some((service, outcome)) => {
                let source = io::Error::other(format!("{outcome:?}"));
                Err(KernelError { action: format!("removing Service {service}"), source })
            }
        }
    }
}

impl Dataplane for NftablesBackend {
    fn mode(&self) -> ProxyMode {
        ProxyMode::Nftables
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        self.mirror = None;
        let read = self.read();
        let (mirror, generation) =
            read.map_err(|source| KernelError { action: "reading our table".into(), source })?;
        self.observe_owners()?;
        (self.mirror, self.generation) = (Some(mirror), generation);
        // The previous process may have ended before its cleanup.
        self.forgetting.note();
        Ok(())
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        let generation = self.read_generation();
        let generation = generation.map_err(|source| KernelError {
            action: "reading the generation of the ruleset".into(),
            source,
        })?;
        Ok(self.mirror.is_none() || generation != self.generation)
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
        let forgotten = self.forget();
        forgotten.map_err(|source| KernelError {
            action: "deleting affinity entries of removed frontends".into(),
            source,
        })?;
        self.keep_owner_routes()?;
        let swept = self.sweep();
        swept.map_err(|source| KernelError { action: "removing unused chains".into(), source })
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        Vec::new()
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        self.cleanup().map(|_| true)
    }

    fn abandon(&mut self) {}

    fn is_tracked(&self) -> bool {
        true
    }

    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        self.previewed(desired, scope)
    }

    fn is_counted_by_flows(&self) -> bool {
        true
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        let read = self.read_traffic();
        read.map_err(|source| KernelError { action: "reading the counters".into(), source })
    }

    fn sees_refusals(&self) -> bool {
        false
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        Ok(Vec::new())
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        let read = self.read().and_then(|(mirror, _)| Ok((mirror, Subject::all_here(packets)?)));
        let failed = |source| KernelError { action: "reading our table".into(), source };
        let (mirror, subjects) = read.map_err(failed)?;
        let follow = |subject: &Subject<'_>| trace::trace(&mirror, self.options.table, subject).finish();
        Ok(Some(subjects.iter().map(follow).collect()))
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.observe()?;
        let objects = self.mirror.take().map_or(0, |mirror| mirror.objects());
        self.claims = Claims::default();
        if objects > 0 {
            let delete = render::NftCommand::DeleteTable;
            let outcome = self.send(&[delete]);
            let outcome = outcome.and_then(|refused| refused.map_err(RejectedTransaction::to_error));
            outcome.map_err(|source| KernelError { action: "deleting our table".into(), source })?;
        }
        Ok(objects + self.clean_owners()?)
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}

const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
    ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
}
