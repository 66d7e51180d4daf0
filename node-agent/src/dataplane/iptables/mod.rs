//! The iptables backend: kube-proxy's chains, of which only those are written that differ.
//!
//! ```text
//! desired ─▶ claims ─▶ render ─▶ plan ─▶ iptables-restore --noflush ─▶ read back ─▶ outcomes
//!                                  ▲               │
//!                                  └─── mirror ◀───┘  ◀── observe (iptables-save, parse)
//! ```
//! Each family is one run of `iptables-restore`, which the kernel takes whole per table. Nothing is run on a pass that
//! changes nothing. Chains are recognised by their names, whoever made them; foreign rules are never named.
//!
//! Somebody else's changes are noticed by the generation of nf_tables. The legacy tables have none, so there they are
//! read again: at each question while that is cheap, else after a pause of twenty times its cost, of five seconds at most.
//!
//! A connection is given to one endpoint at random, and to no other when that one does not answer: netfilter decides at
//! the first packet. Stickiness is a list of recent sources per endpoint, of which the kernel keeps the last 100 by
//! default (`ip_list_tot` of `xt_recent`); the oldest are forgotten without a word.

mod commit;
mod empty;
pub mod layout;
pub mod mirror;
pub mod parse;
pub mod plan;
pub mod render;
mod rule;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    net::IpFamily,
    node::ProxyMode,
    program::{Program, oracle::Networks},
    report::FailureReason,
    resource::ServiceKey,
};

pub use self::tools::Flavour;
use self::{
    commit::Part,
    layout::{ChainId, Layout, Table},
    mirror::Mirror,
    plan::Wanted,
    render::{Context, Rendered},
    tools::Tools,
};
use super::{
    BackendOptions, Dataplane, Desired, KernelCounters, KernelError, Outcome, Pass, Scope, Traffic,
    claims::{Claims, Touched},
    nftables,
};
use crate::netlink::socket::{Netlink, Protocol};

/// Attempts at an undisturbed look at all rules.
const OBSERVE_ATTEMPTS_MAX: u32 = 8;
/// A look at the legacy tables that takes longer than this is made more rarely.
const PROBE_CHEAP: Duration = Duration::from_millis(50);
/// How many times longer than such a look the time to the next one is.
const PROBE_PAUSE_FACTOR: u32 = 20;
/// The longest time between such looks, however long they take.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the backend programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IptablesOptions {
    /// Names of chains, and the mark bits.
    pub layout: Layout,
    /// Which flavour; found out when `None`.
    pub flavour: Option<Flavour>,
}

impl IptablesOptions {
    /// What the options of a Node mean here.
    #[must_use]
    pub const fn of(options: &BackendOptions) -> Self {
        let BackendOptions { masquerade_mark, drop_mark, naming, strict_arp: _ } = *options;
        Self { layout: Layout { naming, masquerade_mark, drop_mark }, flavour: None }
    }
}

/// The iptables backend of one network namespace.
pub struct IptablesBackend {
    layout: Layout,
    tools: Tools,
    netlink: Netlink,
    /// What the kernel has, as far as is known.
    mirrors: Option<BTreeMap<IpFamily, Mirror>>,
    /// The generation of nf_tables that the mirrors show.
    generation: Option<u32>,
    /// When the legacy tables were last looked at for others' changes, and how long that took.
    probe: Option<(Instant, Duration)>,
    claims: Claims,
    /// The networks that everything was last rendered for.
    networks: Networks,
    /// The chains of each Service.
    chains: BTreeMap<Arc<ServiceKey>, BTreeMap<IpFamily, BTreeSet<ChainId>>>,
    counters: KernelCounters,
}

/// What a pass looks at.
struct Looked {
    touched: Touched,
    services: BTreeSet<Arc<ServiceKey>>,
    everything: bool,
}

impl IptablesBackend {
    /// Finds the programs for the network namespace of the calling thread. Writes nothing.
    ///
    /// # Errors
    /// When there are none, a mark is not exactly one bit, or the kernel gives no socket.
    pub fn open(options: &IptablesOptions) -> Result<Self, KernelError> {
        let failed = |source| KernelError { action: "opening iptables".to_owned(), source };
        let Layout { naming: _, masquerade_mark, drop_mark } = options.layout;
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
            claims: Claims::default(),
            networks: Networks::default(),
            chains: BTreeMap::new(),
            counters: KernelCounters::default(),
        })
    }

    /// In which part of the kernel the rules are.
    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.tools.flavour
    }

    fn read(&mut self) -> io::Result<BTreeMap<IpFamily, Mirror>> {
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

    fn read_family(&self, family: IpFamily) -> io::Result<Mirror> {
        self.tools.save(family, false).map(|text| parse::saved(&self.layout, &text))
    }

    /// The generation of nf_tables, if that is where our rules are.
    fn own_generation(&mut self) -> io::Result<Option<u32>> {
        match self.tools.flavour {
            Flavour::Legacy => Ok(None),
            Flavour::Nft => self.read_generation(),
        }
    }

    fn read_generation(&mut self) -> io::Result<Option<u32>> {
        let mut generation = None;
        self.netlink.ask(&[nftables::render::get_generation()], |_, answer| {
            generation = nftables::parse::generation(answer)?;
            Ok(())
        })?;
        Ok(generation)
    }

    fn mirror(&mut self, family: IpFamily) -> &mut Mirror {
        self.mirrors.get_or_insert_default().entry(family).or_default()
    }

    fn run(&mut self, desired: &Desired, scope: &Scope, pass: &mut Pass) -> Result<(), KernelError> {
        if self.mirrors.is_none() {
            self.observe()?;
        }
        let looked = self.claim(desired, scope, pass);
        let mut failed = BTreeMap::new();
        for family in self.tools.families.clone() {
            let parts = self.parts(family, &looked);
            self.carry_out(family, &parts, looked.everything, &mut failed, pass)?;
            self.remember_chains(family, &parts, &failed);
        }
        self.chains.retain(|_, families| families.values().any(|chains| !chains.is_empty()));
        self.conclude(&looked.services, failed, pass)
    }

    /// Takes over what the Services in scope ask for. Answers what that touches.
    fn claim(&mut self, desired: &Desired, scope: &Scope, pass: &mut Pass) -> Looked {
        let mut touched = Touched::default();
        let is_renamed = self.networks != desired.networks;
        self.networks.clone_from(&desired.networks);
        let mut services = BTreeSet::new();
        match scope {
            Scope::Everything => {
                self.claims = Claims::default();
                self.chains = BTreeMap::new();
                for service in desired.programs.keys() {
                    services.insert(self.claim_one(desired, service, &mut touched, pass));
                }
            }
            Scope::Services(keys) => {
                for service in keys {
                    services.insert(self.claim_one(desired, service, &mut touched, pass));
                }
                // The networks are part of many Services' rules.
                let others = desired.programs.keys().filter(|key| is_renamed && !keys.contains(*key));
                for service in others {
                    if self.claims.program(service).is_some() {
                        services.insert(self.claim_one(desired, service, &mut touched, pass));
                    }
                }
            }
        }
        let claimants = touched.frontends.keys().flat_map(|frontend| self.claims.claimants(frontend));
        services.extend(claimants.cloned());
        Looked { touched, services, everything: *scope == Scope::Everything }
    }

    fn claim_one(
        &mut self,
        desired: &Desired,
        service: &ServiceKey,
        touched: &mut Touched,
        pass: &mut Pass,
    ) -> Arc<ServiceKey> {
        let program = desired.programs.get(service).map(|desired| &desired.program);
        let checked = program.map(|program| self.check(service, program));
        let possible = program.filter(|_| matches!(checked, Some(Ok(()))));
        self.claims.replace(service, possible.cloned(), touched);
        if let Some(Err(message)) = checked {
            let outcome = Outcome::Failed { reason: FailureReason::Unsupported, message };
            pass.outcomes.insert(service.clone(), outcome);
        }
        Arc::new(service.clone())
    }

    fn check(&self, service: &ServiceKey, program: &Program) -> Result<(), String> {
        let families = program.frontends.keys().map(|frontend| frontend.destination.family());
        if let Some(family) = families.into_iter().find(|family| !self.tools.families.contains(family)) {
            return Err(format!("iptables cannot be used for {} here", family.as_str()));
        }
        render::check(service, program)
    }

    /// What should become of the Services looked at, each by itself, and of what belongs to none.
    fn parts(&self, family: IpFamily, looked: &Looked) -> Vec<Part> {
        let context = self.context(family);
        let mut parts: BTreeMap<Option<Arc<ServiceKey>>, Part> = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for service in &looked.services {
            let mut rendered = Rendered::default();
            if let Some(program) = self.claims.program(service) {
                let has = |frontend: &_| self.claims.owner(frontend) == Some(service);
                rendered = render::service(&context, service, program, has);
            }
            let part = parts.entry(Some(Arc::clone(service))).or_insert_with(|| Part::of(Some(service)));
            part.wanted.chains =
                rendered.chains.into_iter().map(|(chain, rules)| (chain, Some(rules))).collect();
            let before = self.chains.get(service).and_then(|families| families.get(&family));
            let gone = before.into_iter().flatten().filter(|chain| !part.wanted.chains.contains_key(chain));
            part.removals = gone.cloned().collect();
            lines.extend(rendered.lines);
        }
        for (frontend, noted) in &looked.touched.frontends {
            if frontend.destination.family() != family {
                continue;
            }
            let service = self.claims.owner(frontend).or(noted.as_ref());
            let part = parts.entry(service.cloned()).or_insert_with(|| Part::of(service));
            let mut held = lines.remove(frontend).unwrap_or_default();
            for chain in render::dispatch_chains(&self.layout, frontend) {
                let found = held.iter().position(|(other, _)| *other == chain);
                let lines = found.map(|index| held.swap_remove(index).1).unwrap_or_default();
                part.wanted.lines.insert((chain, rule::frontend_key(*frontend)), lines);
            }
        }
        for (address, service) in &looked.touched.virtual_addresses {
            if IpFamily::of(*address) == family {
                let part = parts.entry(service.clone()).or_insert_with(|| Part::of(service.as_ref()));
                let (chain, key, line) = render::virtual_address(&self.layout, *address);
                let is_wanted = self.claims.wants_virtual_address(*address);
                part.wanted.lines.insert((chain, key), if is_wanted { vec![line] } else { Vec::new() });
            }
        }
        let mut parts: Vec<_> = parts.into_values().collect();
        if looked.everything {
            parts.extend(self.strays(family, &parts));
        }
        parts
    }

    /// What is in the kernel under our names and nobody wants.
    fn strays(&self, family: IpFamily, parts: &[Part]) -> Option<Part> {
        let mirror = self.mirrors.as_ref()?.get(&family)?;
        let fixed = self.layout.fixed(family, &self.networks);
        let Wanted { chains, lines } = plan::strays(mirror, &fixed, parts.iter().map(|part| &part.wanted));
        let removals = chains.into_keys().collect();
        Some(Part { service: None, wanted: Wanted { chains: BTreeMap::new(), lines }, removals })
    }

    fn context(&self, family: IpFamily) -> Context {
        Context {
            layout: self.layout,
            family,
            workloads: layout::of_family(&self.networks.workloads, family).collect(),
            off_cluster: Layout::off_cluster(family, &self.networks),
        }
    }

    fn remember_chains(
        &mut self,
        family: IpFamily,
        parts: &[Part],
        failed: &BTreeMap<Arc<ServiceKey>, Outcome>,
    ) {
        for Part { service, wanted, removals } in parts {
            let Some(service) = service else { continue };
            let mut chains: BTreeSet<_> = wanted.chains.keys().cloned().collect();
            if failed.contains_key(service) {
                chains.extend(removals.iter().cloned());
            }
            self.chains.entry(Arc::clone(service)).or_default().insert(family, chains);
        }
    }

    /// Says of each Service that this pass could have changed how it stands.
    fn conclude(
        &self,
        services: &BTreeSet<Arc<ServiceKey>>,
        mut failed: BTreeMap<Arc<ServiceKey>, Outcome>,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        for service in services.iter().filter(|service| self.claims.program(service).is_some()) {
            let outcome = match failed.remove(service) {
                Some(outcome) => outcome,
                None => self.claims.conflict(service).unwrap_or(Outcome::Verified),
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

    /// Whether the legacy tables show something else than we left there.
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

    /// Removes the tables of nf_tables that hold nothing any more. What fails stays, and harms nobody.
    fn remove_empty_tables(&mut self, tools: &Tools) -> io::Result<()> {
        for family in &tools.families {
            for table in Table::ALL {
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

    /// Removes everything of ours that one flavour holds.
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
        let action = "looking for changes of others".to_owned();
        disturbed.map_err(|source| KernelError { action, source })
    }

    fn apply(&mut self, desired: &Desired, scope: &Scope) -> Pass {
        let mut pass = Pass::default();
        if let Err(error) = self.run(desired, scope, &mut pass) {
            self.mirrors = None;
            pass.failed = Some(error);
        }
        pass
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

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.mirrors = None;
        self.claims = Claims::default();
        self.chains = BTreeMap::new();
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
}
