//! Node under test: its desired state, its real backend, and the claims of scenarios about connections. Each
//! claim is compared with the result of the oracle (pure interpreter of packet programs) and with the results
//! of real connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use model::{
    cluster::compiled::CompiledService,
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{net::IpFamily, quantity::Revision},
    program::{self as program, Program, oracle::Fate},
    wire::{
        feed::{NetworkState, NodeState},
        report::FailureReason,
    },
};
use node_agent::{
    dataplane::{BackendOptions, Dataplane, DesiredProgram, DesiredState, OpenError, Outcome, Pass, Scope},
    networks::networks,
};

use super::{
    Ask, Build, Heard, Hosts, Lane, Spot,
    ask::{PATIENCE, SILENCE},
    hosts::{LOCAL_WORKLOAD_NETWORKS, WORKLOAD_NETWORKS},
    judge::{self, Expected, Seen},
    lane::family_word,
    say,
};
use crate::support::process::Home;

pub const TCP: &[Protocol] = &[Protocol::Tcp];
pub const UDP: &[Protocol] = &[Protocol::Udp];
pub const BOTH: &[Protocol] = &[Protocol::Tcp, Protocol::Udp];

/// Expectation of a scenario about the results of connections.
#[derive(Debug, Clone, Copy)]
pub enum Claim<'a> {
    /// Connections reach each of the contained hosts, and no other host.
    Reach(&'a [Spot]),
    /// Connections reach each of the contained hosts, and no other host. The hosts observe the client's address.
    Keep(&'a [Spot]),
    /// Connections reach each of the contained hosts, and no other host. The hosts observe an address of the node.
    Mask(&'a [Spot]),
    /// The daemon that runs on the node replies.
    Daemon,
    Refused,
    Silence,
}

/// Panic payload that ends a scenario whose Service the backend rejects. Contains the reason.
pub struct Unsupported(pub String);

pub struct Bench {
    pub lane: Lane,
    pub family: IpFamily,
    pub backend: Box<dyn Dataplane>,
    /// State directory, in which a later backend finds the relay process of userspace mode.
    pub home: Home,
    pub hosts: Hosts,
    pub desired: DesiredState,
    pub place: program::NodeLocation,
    /// Descriptions of the proxy mode's deliberate deviations from the packet program that occurred in the
    /// scenario.
    pub differences: BTreeSet<&'static str>,
    serial: u8,
}

impl Bench {
    pub fn open(suite: &str, lane: Lane, family: IpFamily) -> Result<Self, OpenError> {
        let name = format!("{suite}-{}{}", short(lane), family_word(family));
        let (hosts, home) = (Hosts::new(&name), Home::new(&name));
        let mut backend = hosts.at(Spot::Node).run(|| open(lane, &home))?;
        hosts.at(Spot::Node).run(|| backend.observe()).expect("a fresh node can be observed");
        let mut bench = Self {
            lane,
            family,
            backend,
            home,
            hosts,
            desired: DesiredState::default(),
            place: say::place(),
            differences: BTreeSet::new(),
            serial: 0,
        };
        bench.networks(&NodeState::default(), &WORKLOAD_NETWORKS);
        Ok(bench)
    }

    /// Begins a scenario: removes all Services from the node. The addresses of the scenario are derived from
    /// `serial`.
    pub fn begin(&mut self, serial: u8) {
        self.serial = serial;
        self.differences.clear();
        self.place = say::place();
        self.networks(&NodeState::default(), &WORKLOAD_NETWORKS);
        self.desired.programs.clear();
        let pass = self.apply(&Scope::Everything);
        assert!(pass.failed.is_none(), "the node is emptied: {:?}", pass.failed);
        self.forget_flows();
    }

    /// Flushes the conntrack table. Scenarios share node ports, so that a reused client port would continue a
    /// connection of an earlier scenario. In production, the agent deletes such entries; the backend under
    /// test does not.
    fn forget_flows(&self) {
        let status = self.conntrack(&["-F"]);
        assert!(status.success(), "the flows are not forgotten");
    }

    /// Deletes the UDP entries of an IP family from the conntrack table, because a reused port would continue a
    /// flow of an earlier step to a removed endpoint. New TCP connections are not affected by old entries.
    pub fn forget_datagrams(&self, family: IpFamily) {
        let family = match family {
            IpFamily::V4 => "ipv4",
            IpFamily::V6 => "ipv6",
        };
        // Fails if there are no flows.
        let _deleted = self.conntrack(&["-D", "-f", family, "-p", "udp"]);
    }

    fn conntrack(&self, arguments: &[&str]) -> ExitStatus {
        let mut command = Command::new("conntrack");
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.hosts.at(Spot::Node).run(|| command.status()).expect("conntrack starts")
    }

    /// Returns a cluster IP of this scenario.
    pub fn vip(&self, number: u8) -> IpAddr {
        self.own(["10.96", "fd96:"], number)
    }

    /// Returns an external address of this scenario that is routed to the node.
    pub fn outer(&self, number: u8) -> IpAddr {
        self.own(["198.18", "2001:db8:18:"], number)
    }

    fn own(&self, [v4, v6]: [&str; 2], number: u8) -> IpAddr {
        let serial = self.serial;
        let text = match self.family {
            IpFamily::V4 => format!("{v4}.{serial}.{number}"),
            IpFamily::V6 => format!("{v6}{serial:x}::{number:x}"),
        };
        text.parse().unwrap()
    }

    /// Returns the node's addresses in an address family: the one towards the client, a second one on the
    /// same link, and one towards a workload.
    pub fn node_addresses(&self) -> [IpAddr; 3] {
        self.node_addresses_of(self.family)
    }

    pub fn node_addresses_of(&self, family: IpFamily) -> [IpAddr; 3] {
        match family {
            IpFamily::V4 => ["192.0.2.1", "192.0.2.11", "10.1.1.1"],
            IpFamily::V6 => ["2001:db8::1", "2001:db8::11", "fd01:1::1"],
        }
        .map(|text| text.parse().unwrap())
    }

    pub fn node_address(&self) -> IpAddr {
        Spot::Node.address(self.family)
    }

    /// Builds a Service without a cluster IP.
    pub fn bare(&self, name: &str) -> Build {
        Build::new(name, self.family)
    }

    /// Builds a Service with the cluster IP that has this number in the scenario.
    pub fn service(&self, name: &str, number: u8) -> Build {
        self.bare(name).cluster_ip(self.vip(number))
    }

    /// Replaces the cluster networks: `workloads` are the networks of the workloads on all nodes, and `node`
    /// contains the settings of the node. The change takes effect with the next update of the kernel.
    pub fn networks(&mut self, node: &NodeState, workloads: &[&str]) {
        let parse = |cidr: &&str| cidr.parse().unwrap();
        let is_local = |cidr: &&&str| LOCAL_WORKLOAD_NETWORKS.contains(*cidr);
        let local = workloads.iter().filter(is_local).map(parse).collect();
        let node = NodeState { workload_cidrs: Some(local), ..node.clone() };
        let cidrs = workloads.iter().map(parse).collect();
        self.desired.networks =
            networks(&NetworkState { workload_cidrs: cidrs, ..NetworkState::default() }, &node);
    }

    /// Programs Services, asserts that the kernel update succeeded, and returns the number of kernel writes.
    pub fn set(&mut self, services: &[&Build]) -> u64 {
        let pass = self.try_set(services);
        verified(&pass)
    }

    /// Programs Services and returns the result of the kernel update, which may be a failure.
    pub fn try_set(&mut self, services: &[&Build]) -> Pass {
        for build in services {
            self.want(build);
        }
        self.apply(&Scope::Services(services.iter().map(|build| build.key()).collect()))
    }

    /// Removes all Services and all kernel objects of the backend. Otherwise, draining connections of earlier
    /// Services would end during later steps.
    pub fn begin_anew(&mut self) {
        let node = self.hosts.at(Spot::Node);
        let backend = &mut self.backend;
        node.run(|| backend.cleanup()).unwrap();
        self.desired.programs.clear();
        verified(&self.apply(&Scope::Everything));
    }

    pub fn want(&mut self, build: &Build) {
        self.want_compiled(&build.service);
    }

    /// Adds the packet program of a Service to the desired state, or removes it if nodes do not program the
    /// Service.
    pub fn want_compiled(&mut self, service: &CompiledService) {
        let key = service.service.clone();
        if service.is_programmable() {
            let program = program::program(service, &self.place).expect("everything is carried out");
            let program = DesiredProgram { revision: Revision(1), program: Arc::new(program) };
            self.desired.programs.insert(key, program);
        } else {
            self.desired.programs.remove(&key);
        }
    }

    pub fn remove(&mut self, service: &Build) {
        self.desired.programs.remove(&service.key());
        verified(&self.apply(&Scope::Services([service.key()].into())));
    }

    pub fn apply(&mut self, scope: &Scope) -> Pass {
        let (backend, desired) = (&mut self.backend, &self.desired);
        self.hosts.at(Spot::Node).run(|| backend.apply(desired, scope))
    }

    /// Replaces the backend by a new one, as an upgrade of the agent does, and returns the number of kernel
    /// writes of the new backend.
    pub fn restart(&mut self) -> u64 {
        let (lane, home) = (self.lane, &self.home);
        let mut backend = self.hosts.at(Spot::Node).run(|| open(lane, home)).expect("it opens again");
        // The old backend is dropped before the new one reads the kernel, like the memory of a process.
        std::mem::swap(&mut self.backend, &mut backend);
        drop(backend);
        let (backend, node) = (&mut self.backend, self.hosts.at(Spot::Node));
        node.run(|| backend.observe()).expect("what another process left can be observed");
        verified(&self.apply(&Scope::Everything))
    }

    /// Opens connections from each host over each protocol and asserts that their results match the claim.
    /// Skips a workload of another node if it is an endpoint of the Service, because in a real cluster its
    /// own node would handle the connection.
    pub fn expect(&mut self, from: &[Spot], over: &[Protocol], to: IpAddr, port: u16, claim: Claim<'_>) {
        for protocol in over {
            let asks: Vec<_> = from
                .iter()
                .map(|spot| {
                    let is_self = *spot == Spot::Node;
                    let source = (!is_self).then(|| spot.address(IpFamily::of(to)));
                    Ask { from: *spot, source, to, protocol: *protocol, port }
                })
                .filter(|ask| !self.is_elsewhere(*ask))
                .collect();
            self.expect_each(&asks, claim);
        }
    }

    /// Opens connections from these source addresses of the client and asserts that their results match the
    /// claim.
    pub fn expect_from(&mut self, sources: &[IpAddr], to: IpAddr, port: u16, claim: Claim<'_>) {
        let ask = |source: &IpAddr| Ask {
            from: Spot::Client,
            source: Some(*source),
            to,
            protocol: Protocol::Tcp,
            port,
        };
        self.expect_each(&sources.iter().map(ask).collect::<Vec<_>>(), claim);
    }

    fn is_elsewhere(&self, ask: Ask) -> bool {
        let own = ask.from.address(IpFamily::of(ask.to));
        matches!(ask.from, Spot::D | Spot::E)
            && matches!(self.intended(ask), Fate::Forward { targets, hairpins, .. }
                if hairpins.is_empty() && targets.keys().any(|(address, _)| *address == own))
    }

    fn expect_each(&mut self, asks: &[Ask], claim: Claim<'_>) {
        assert!(!asks.is_empty(), "somebody has to ask");
        let targets = match claim {
            Claim::Reach(spots) | Claim::Keep(spots) | Claim::Mask(spots) => spots.len(),
            Claim::Daemon | Claim::Refused | Claim::Silence => 1,
        };
        for ask in asks {
            check_claim(claim, *ask, &judge::expected(&self.intended(*ask), *ask));
        }
        // Each of k targets is missed by chance once in 10^8 runs, or in 10^5 where connections are
        // expensive.
        let enough = targets * if self.lane.in_guest() { 10 } else { 16 };
        let times = if targets > 1 { enough.div_ceil(asks.len()).max(2) } else { 1 };
        let asks: Vec<_> = asks.iter().flat_map(|ask| std::iter::repeat_n(*ask, times)).collect();
        let mut met: BTreeSet<String> = BTreeSet::new();
        for heard in self.ask(&asks) {
            if let Heard::Answer { name, .. } = heard {
                met.insert(name);
            }
        }
        let by_mode = self.lowered(asks[0]);
        if let Expected::Answer(targets) = judge::expected(&by_mode, asks[0]) {
            let names = targets.keys().filter_map(|(address, _)| Spot::of(*address));
            let names: BTreeSet<_> = names.map(|spot| spot.name().to_owned()).collect();
            assert!(targets.len() == 1 || met == names, "{asks:?} should meet {names:?}, met {met:?}");
        }
    }

    /// Opens connections, asserts that each result is the one that the oracle (pure interpreter of packet
    /// programs) computes for this mode, and returns the results.
    pub fn ask(&mut self, asks: &[Ask]) -> Vec<Heard> {
        // IPVS has its own connection table, which drops entries without a destination.
        if self.lane != Lane::Ipvs && asks.iter().any(|ask| ask.protocol == Protocol::Udp) {
            self.forget_datagrams(self.family);
        }
        let judged: Vec<_> = asks.iter().map(|ask| judge::expected(&self.lowered(*ask), *ask)).collect();
        let timed: Vec<_> = asks.iter().copied().zip(judged.iter().map(patience)).collect();
        let heard = self.hosts.ask(&timed);
        for ((ask, expected), heard) in asks.iter().zip(&judged).zip(&heard) {
            if self.lane == Lane::Ipvs && *expected == Expected::Nobody {
                self.differences.insert("what a Service had may refuse until its connections have ended");
                if *heard == Heard::Refused {
                    continue;
                }
            }
            assert!(
                judge::agrees(expected, *ask, heard),
                "{ask:?}\n  must be {expected:?}\n  but was {heard:?}"
            );
            let intended = judge::expected(&self.intended(*ask), *ask);
            if let Some(difference) = difference(&intended, expected) {
                self.differences.insert(difference);
            }
        }
        heard
    }

    /// Returns the result that the oracle computes for a connection from the packet programs.
    fn intended(&self, ask: Ask) -> Fate {
        let programs: Vec<_> = self.desired.programs.values().map(|desired| &*desired.program).collect();
        judge::fate(programs.into_iter(), &self.desired.networks, ask)
    }

    /// Returns the result that the oracle computes for a connection from the packet programs as the mode
    /// carries them out, with its deliberate deviations.
    pub fn lowered(&self, ask: Ask) -> Fate {
        let programs: BTreeMap<&ServiceKey, Program> = self
            .desired
            .programs
            .iter()
            .filter_map(|(key, desired)| Some((key, self.lane.lower(&desired.program)?)))
            .collect();
        judge::fate(programs.values(), &self.desired.networks, ask)
    }
}

/// Opens the dataplane backend for a proxy mode variant, in the same way as the agent does.
pub fn open(lane: Lane, home: &Home) -> Result<Box<dyn Dataplane>, OpenError> {
    home.relays().opener()(lane.mode(), &BackendOptions::default())
}

/// Returns the time to wait for the result of a connection: long if a reply is expected, else short.
pub fn patience(expected: &Expected) -> Duration {
    match expected {
        Expected::Answer(_) | Expected::Daemon | Expected::Refused => PATIENCE,
        Expected::Silence | Expected::Nobody => SILENCE,
    }
}

/// Asserts that a kernel update succeeded for every Service, and returns the number of kernel writes. Panics
/// with [`Unsupported`] if the backend rejects a Service.
pub fn verified(pass: &Pass) -> u64 {
    assert!(pass.failed.is_none(), "{:?}", pass.failed);
    for (service, outcome) in &pass.outcomes {
        match outcome {
            Outcome::Verified | Outcome::Failed { reason: FailureReason::PartlyUnsupported, .. } => {}
            Outcome::Failed { reason: FailureReason::Unsupported, message } => {
                std::panic::panic_any(Unsupported(message.clone()));
            }
            Outcome::Failed { reason, message } => panic!("{service}: {reason:?}: {message}"),
        }
    }
    pass.writes
}

/// Asserts that a kernel update did not fail as a whole, and returns the number of kernel writes. Single
/// Services may have failed.
pub fn verified_writes(pass: &Pass) -> u64 {
    assert!(pass.failed.is_none(), "{:?}", pass.failed);
    pass.writes
}

/// Describes the effect of the mode's deliberate deviations on a connection: `intended` is the result
/// according to the packet program, `by_mode` the one with the deviations. Returns `None` if both are equal.
pub fn difference(intended: &Expected, by_mode: &Expected) -> Option<&'static str> {
    match (intended, by_mode) {
        _ if intended == by_mode => None,
        (Expected::Answer(wanted), Expected::Answer(found)) if wanted.keys().eq(found.keys()) => {
            Some("endpoints see the node's address")
        }
        _ => Some("the source is not told apart"),
    }
}

/// Asserts that the claim of a scenario about a connection agrees with the result that the oracle computed,
/// before any packet is sent.
fn check_claim(claim: Claim<'_>, ask: Ask, expected: &Expected) {
    let reach = |spots: &[Spot], wanted: Option<Seen>| match expected {
        Expected::Answer(targets) => {
            let family = IpFamily::of(ask.to);
            let named: BTreeSet<_> = spots.iter().map(|spot| spot.address(family)).collect();
            let found: BTreeSet<_> = targets.keys().map(|(address, _)| *address).collect();
            named == found && targets.values().all(|seen| wanted.is_none_or(|wanted| wanted == *seen))
        }
        Expected::Daemon | Expected::Refused | Expected::Silence | Expected::Nobody => false,
    };
    let holds = match claim {
        Claim::Reach(spots) => reach(spots, None),
        Claim::Keep(spots) => reach(spots, Some(Seen::Client)),
        Claim::Mask(spots) => reach(spots, Some(Seen::Node)),
        Claim::Daemon => *expected == Expected::Daemon,
        Claim::Refused => *expected == Expected::Refused,
        Claim::Silence => matches!(expected, Expected::Silence | Expected::Nobody),
    };
    assert!(holds, "the scenario says {claim:?} of {ask:?}, the oracle {expected:?}");
}

const fn short(lane: Lane) -> &'static str {
    match lane {
        Lane::Nftables => "n",
        Lane::Iptables => "t",
        Lane::IptablesLegacy => "l",
        Lane::Ipvs => "v",
        Lane::Userspace => "u",
    }
}
