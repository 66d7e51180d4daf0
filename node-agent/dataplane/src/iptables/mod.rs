//! iptables backend: kube-proxy's chains, written incrementally.
//!
//! Claims are the frontends and addresses that each Service uses; the mirror contains the rules of the
//! backend as last read or written.
//! ```text
//! desired ─▶ claims ─▶ render ─▶ plan ─▶ iptables-restore --noflush ─▶ read back ─▶ outcomes
//!                                  ▲               │
//!                                  └─── mirror ◀───┘  ◀── observe (iptables-save, parse)
//! ```
//! Each address family is written by a run of `iptables-restore`, which is atomic per table. A pass (update
//! of the kernel) without changes runs no tool. Chains are recognized by name, no matter which process
//! created them; foreign rules are never touched.
//!
//! Changes by other programs are detected by the ruleset generation of nf_tables. The legacy tables have no
//! generation, so each check reads them again. If a reading takes longer than 50 ms, checks pause for twenty times
//! its duration, at most five seconds.
//!
//! Each connection goes to one random endpoint, without a retry on another one if the endpoint does not respond,
//! because netfilter decides at the first packet. Session affinity is a list of recent sources per endpoint. The
//! kernel keeps the last 100 by default (`ip_list_tot` of `xt_recent`) and silently drops the oldest.

mod commit;
mod desired;
mod empty;
pub mod layout;
pub mod listing;
pub mod mirror;
pub mod parse;
pub mod plan;
mod preview;
pub mod render;
mod rule;
mod spelled;
mod tools;
mod trace;
mod verify;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use kernel::{
    conntrack::nudge::wire::Nudge,
    netlink::socket::{Netlink, Protocol},
    nftables::{parse::generation as parse_generation, render::get_generation},
};
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    primitives::net::IpFamily,
    wire::{
        plan::LineChange,
        trace::{Packet, PacketTrace},
    },
};

pub use self::tools::Flavour;
use self::{
    desired::DesiredChains,
    layout::{IptablesTable, NamingLayout},
    mirror::IptablesMirror,
    tools::Tools,
};
use super::{
    BackendOptions, Dataplane, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals, Scope,
    Traffic, trace::Subject,
};

/// Maximum number of attempts to read all rules without a concurrent change.
const OBSERVE_ATTEMPTS_MAX: u32 = 8;
/// Maximum duration of a reading of the legacy tables after which the next check reads them as well. After a
/// longer reading, checks pause.
const PROBE_CHEAP: Duration = Duration::from_millis(50);
/// Pause after an expensive check of the legacy tables, as a multiple of the duration of the check.
const PROBE_PAUSE_FACTOR: u32 = 20;
/// Maximum pause between two expensive checks of the legacy tables.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Options of the iptables backend, fixed when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IptablesOptions {
    /// Naming scheme of the chains, and packet marks.
    pub layout: NamingLayout,
    /// Flavor of the iptables programs: nft or legacy. If `None`, the backend selects the flavor that already
    /// holds rules.
    pub flavour: Option<Flavour>,
}

impl IptablesOptions {
    /// Returns the options for the backend options of a Node; the flavor is detected later.
    #[must_use]
    pub const fn of(options: &BackendOptions) -> Self {
        let BackendOptions { masquerade_mark, drop_mark, naming, strict_arp: _, drop_invalid } = *options;
        Self { layout: NamingLayout { naming, masquerade_mark, drop_mark, drop_invalid }, flavour: None }
    }
}

/// Backend of iptables mode in one network namespace.
pub struct IptablesBackend {
    layout: NamingLayout,
    tools: Tools,
    netlink: Netlink,
    /// Mirrors (copies in memory) of the agent's chains and rules, by address family; `None` if the kernel
    /// state is unknown.
    mirrors: Option<BTreeMap<IpFamily, IptablesMirror>>,
    /// Generation of the nf_tables ruleset at which the mirrors were correct.
    generation: Option<u32>,
    /// Time and duration of the last check of the legacy tables.
    probe: Option<(Instant, Duration)>,
    asked: DesiredChains,
    counters: KernelCounters,
}

impl IptablesBackend {
    /// Finds the tools for the network namespace of the calling thread. Writes nothing.
    ///
    /// # Errors
    /// Returns an error if no tools are found, a mark is not exactly one bit, or the kernel denies a socket.
    pub fn open(options: &IptablesOptions) -> Result<Self, KernelError> {
        let failed = |source| KernelError { action: "opening iptables".to_owned(), source };
        let NamingLayout { naming: _, masquerade_mark, drop_mark, drop_invalid: _ } = options.layout;
        if !masquerade_mark.is_power_of_two() || !drop_mark.is_power_of_two() || masquerade_mark == drop_mark
        {
            let message =
                format!("the marks must be two different bits, not {masquerade_mark:#x} and {drop_mark:#x}");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        Ok(Self {
            layout: options.layout,
            tools: Tools::find(&options.layout, options.flavour).map_err(failed)?,
            netlink: Netlink::open(Protocol::Netfilter).map_err(failed)?,
            mirrors: None,
            generation: None,
            probe: None,
            asked: DesiredChains::default(),
            counters: KernelCounters::default(),
        })
    }

    /// Returns the flavor of the tools, which determines the part of the kernel that holds the rules.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.tools.flavour
    }

    fn read(&mut self) -> io::Result<BTreeMap<IpFamily, IptablesMirror>> {
        for _ in 0..OBSERVE_ATTEMPTS_MAX {
            let before = self.own_generation()?;
            let mut mirrors = BTreeMap::new();
            for family in &self.tools.families {
                mirrors.insert(*family, self.read_family(*family)?);
            }
            if self.own_generation()? == before {
                self.generation = before;
                return Ok(mirrors);
            }
        }
        let message = "the rules changed during every attempt to read them";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
    }

    fn read_family(&self, family: IpFamily) -> io::Result<IptablesMirror> {
        self.tools.save(family, false).map(|text| parse::saved(&self.layout, &text))
    }

    /// Returns the generation of the nf_tables ruleset, by which changes are detected. `None` for the legacy
    /// flavor, which has no generation.
    fn own_generation(&mut self) -> io::Result<Option<u32>> {
        match self.tools.flavour {
            Flavour::Legacy => Ok(None),
            Flavour::Nft => self.read_generation(),
        }
    }

    fn read_generation(&mut self) -> io::Result<Option<u32>> {
        let mut generation = None;
        self.netlink.ask(&[get_generation()], |_, answer| {
            generation = parse_generation(answer)?;
            Ok(())
        })?;
        Ok(generation)
    }

    fn mirror(&mut self, family: IpFamily) -> &mut IptablesMirror {
        self.mirrors.get_or_insert_default().entry(family).or_default()
    }

    fn run(&mut self, desired: &DesiredState, scope: &Scope, pass: &mut Pass) -> Result<(), KernelError> {
        if self.mirrors.is_none() {
            self.observe()?;
        }
        let mut looked = self.asked.take_over(&self.tools.families, desired, scope);
        pass.outcomes.append(&mut looked.impossible);
        let mut failed = BTreeMap::new();
        for family in self.tools.families.clone() {
            let mirror = self.mirrors.as_ref().and_then(|mirrors| mirrors.get(&family));
            let parts = self.asked.parts(&self.layout, family, mirror, &looked);
            self.carry_out(family, &parts, looked.everything, &mut failed, pass)?;
            self.asked.remember_chains(family, &parts, &failed);
        }
        self.asked.forget_without_chains();
        self.conclude(&looked.services, failed, pass)
    }

    /// Records the outcome of each affected Service that has a packet program (frontends with their verdicts)
    /// in `pass`. Returns an error if `failed` contains a Service without a packet program, whose chains
    /// could not be removed.
    fn conclude(
        &self,
        services: &BTreeSet<Arc<ServiceKey>>,
        mut failed: BTreeMap<Arc<ServiceKey>, Outcome>,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        for service in services.iter().filter(|service| self.asked.claims.program(service).is_some()) {
            let outcome = match failed.remove(service) {
                Some(outcome) => outcome,
                None => self.asked.claims.conflict(service).unwrap_or(Outcome::Verified),
            };
            pass.outcomes.insert(ServiceKey::clone(service), outcome);
        }
        failed.retain(|service, _| !pass.outcomes.contains_key(&**service));
        match failed.pop_first() {
            None => Ok(()),
            Some((service, outcome)) => {
                let source = io::Error::other(format!("{outcome:?}"));
                Err(KernelError { action: format!("removing Service {service}"), source })
            }
        }
    }

    /// Reads the legacy tables and returns true if they differ from the mirrors (the rules as last read or
    /// written). Returns false without reading if the pause since the last check is not over.
    fn is_legacy_disturbed(&mut self) -> io::Result<bool> {
        let rests = |(at, took): (Instant, Duration)| {
            let pause = took.saturating_mul(PROBE_PAUSE_FACTOR).min(PROBE_PAUSE_MAX);
            took > PROBE_CHEAP && at.elapsed() < pause
        };
        if self.mirrors.is_none() || self.probe.is_some_and(rests) {
            return Ok(self.mirrors.is_none());
        }
        let start = Instant::now();
        let mut is_disturbed = false;
        for family in &self.tools.families {
            let seen = self.read_family(*family)?;
            let known = self.mirrors.as_ref().and_then(|mirrors| mirrors.get(family));
            is_disturbed |= known.is_some_and(|known| *known != seen);
        }
        self.probe = Some((Instant::now(), start.elapsed()));
        Ok(is_disturbed)
    }

    /// Removes nf_tables tables that contain only empty built-in chains with policy ACCEPT. A table that
    /// cannot be removed stays and has no effect on packets.
    fn remove_empty_tables(&mut self, tools: &Tools) -> io::Result<()> {
        for family in &tools.families {
            for table in IptablesTable::ALL {
                let generation = self.read_generation()?;
                let is_empty = parse::is_empty(&tools.save(*family, false)?, table);
                if let Some(generation) = generation.filter(|_| is_empty)
                    && let Err(error) = empty::remove(&mut self.netlink, *family, table, generation)
                {
                    tracing::debug!(%error, table = table.as_str(), "an empty table stays");
                }
            }
        }
        Ok(())
    }

    /// Removes all chains and rules of the agent from the tables of one flavor. Returns the number of removed
    /// kernel objects.
    fn remove_all(&mut self, tools: &Tools) -> Result<u64, KernelError> {
        let failed = |source| KernelError { action: "removing our iptables rules".to_owned(), source };
        let mut objects = 0;
        for family in &tools.families {
            let text = tools.save(*family, false).map_err(failed)?;
            let mirror = parse::saved(&self.layout, &text);
            let script = plan::removal(&mirror);
            if !script.is_empty() {
                let restored = tools.restore(*family, &script.to_string()).map_err(failed)?;
                restored.map_err(|said| failed(io::Error::other(said)))?;
                self.counters.transactions += 1;
                self.counters.messages += u64::try_from(script.lines()).unwrap_or(u64::MAX);
            }
            objects += mirror.objects();
        }
        if objects > 0 && tools.flavour == Flavour::Nft {
            self.remove_empty_tables(tools).map_err(failed)?;
        }
        Ok(objects)
    }
}

impl Dataplane for IptablesBackend {
    fn mode(&self) -> ProxyMode {
        ProxyMode::Iptables
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        (self.mirrors, self.probe) = (None, None);
        let read = self.read();
        let action = || format!("reading the rules of iptables-{}", self.tools.flavour.as_str());
        self.mirrors = Some(read.map_err(|source| KernelError { action: action(), source })?);
        Ok(())
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        let disturbed = match self.tools.flavour {
            Flavour::Nft => {
                let generation = self.own_generation();
                generation.map(|generation| self.mirrors.is_none() || generation != self.generation)
            }
            Flavour::Legacy => self.is_legacy_disturbed(),
        };
        let action = "checking for changes by other programs".to_owned();
        disturbed.map_err(|source| KernelError { action, source })
    }

    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        let mut pass = Pass::default();
        if let Err(error) = self.run(desired, scope, &mut pass) {
            self.mirrors = None;
            pass.failed = Some(error);
        }
        pass
    }

    fn upkeep(&mut self) -> Result<(), KernelError> {
        Ok(())
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

    fn is_counted_by_flows(&self) -> bool {
        true
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        let mut traffic = Vec::new();
        for family in &self.tools.families {
            let text = self.tools.save(*family, true);
            let action = "reading the counters of rules".to_owned();
            let text = text.map_err(|source| KernelError { action, source })?;
            traffic.extend(parse::traffic(&self.layout, *family, &text));
        }
        Ok(traffic)
    }

    fn sees_refusals(&self) -> bool {
        false
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        Ok(Vec::new())
    }

    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        let action = || format!("reading the rules of iptables-{}", self.tools.flavour.as_str());
        let changes = self.previewed(desired, scope);
        changes.map(Some).map_err(|source| KernelError { action: action(), source })
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        let families: BTreeSet<_> = packets.iter().map(|packet| IpFamily::of(packet.destination)).collect();
        let chains = |family| Ok((family, parse::chains(&self.tools.save(family, false)?)));
        let read = families.into_iter().map(chains).collect::<io::Result<BTreeMap<_, _>>>();
        let read = read.and_then(|chains| Ok((chains, Subject::all_here(packets)?)));
        let action = "reading the rules".to_owned();
        let (chains, subjects) = read.map_err(|source| KernelError { action, source })?;
        let follow = |subject: &Subject<'_>| {
            let family = IpFamily::of(subject.packet.destination);
            let known = self.mirrors.as_ref().and_then(|mirrors| mirrors.get(&family));
            let held = trace::KernelState { chains: &chains[&family], known };
            trace::trace(&self.layout, held, subject).finish()
        };
        Ok(Some(subjects.iter().map(follow).collect()))
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.mirrors = None;
        self.asked = DesiredChains::default();
        let failed = |source| KernelError { action: "looking for our rules".to_owned(), source };
        let other = self.tools.other_with_ours(&self.layout).map_err(failed)?;
        let own = self.tools.again().map_err(failed)?;
        let mut objects = 0;
        for tools in [Some(own), other].into_iter().flatten() {
            objects += self.remove_all(&tools)?;
        }
        Ok(objects)
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}
