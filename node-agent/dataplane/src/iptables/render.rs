//! Renders the packet program of one Service (its frontends with their verdicts) as chains and rules of one
//! address family, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use model::{
    kinds::{node::Naming, resource::ServiceKey, service::Protocol},
    primitives::net::IpFamily,
    program::{Destination, Frontend, Masquerade, Program, Role, Route, Target, Targets, Verdict},
};

use super::{
    layout::{
        ChainId, ChainKind, IptablesTable, MARK_DROP, MARK_MASQ, NODEPORTS, NamingLayout, OFF_CLUSTER,
        OffCluster, RANGES, REJECT, SERVICES,
    },
    rule::{self, Match, SourceMatch},
};

/// Maximum length in bytes of a rule comment in the kernel. A Service whose names could exceed it is not
/// supported.
const COMMENT_LENGTH_MAX: usize = 255;
/// Maximum length in bytes of the text that follows the Service's label in a comment.
const COMMENT_SUFFIX_LENGTH_MAX: usize = 32;
/// Maximum number of equally weighted endpoints for which the probabilities in `statistic` matches are
/// rounded to five decimals, if chains have the names that kube-proxy uses. In all other cases, they are
/// rounded to ten.
const FIVE_DECIMALS_ENDPOINTS_MAX: usize = 100;

/// Node settings that influence the rules of a Service in one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Naming scheme of the chains, and packet marks.
    pub layout: NamingLayout,
    /// Address family of the rendered rules.
    pub family: IpFamily,
    /// Networks of the workloads on this node, in this family.
    pub workloads: Vec<IpNet>,
    /// Sources whose connections to virtual addresses are masqueraded.
    pub off_cluster: OffCluster,
}

/// Rules of one Service in one address family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderedService {
    /// Chains of the Service, all in the table `nat`.
    pub chains: BTreeMap<ChainId, Vec<String>>,
    /// Rules of the Service in shared chains, each with its chain, by frontend.
    pub lines: BTreeMap<Frontend, Vec<(ChainId, Vec<String>)>>,
}

/// Checks that this backend supports a packet program (frontends with their verdicts).
///
/// # Errors
/// Returns the unsupported feature as a message.
pub fn check(service: &ServiceKey, program: &Program) -> Result<(), String> {
    for (frontend, route) in &program.frontends {
        if let Some(scheduler) = &route.scheduler {
            let name = scheduler.0.as_str();
            return Err(format!(
                "proxy mode iptables chooses at random by weight and has no scheduler {name}"
            ));
        }
        if !route.scheduler_flags.is_empty() {
            return Err("proxy mode iptables has no scheduler flags".to_owned());
        }
        if route.proxy_protocol.is_some() {
            return Err("proxy mode iptables cannot send a PROXY protocol header".to_owned());
        }
        if route.verdicts().into_iter().any(|verdict| matches!(verdict, Verdict::Relay { .. })) {
            return Err(format!("port {} requires a relay", frontend.ports));
        }
        let length = label(service, route).len() + COMMENT_SUFFIX_LENGTH_MAX;
        if length > COMMENT_LENGTH_MAX {
            return Err(format!(
                "the names of the Service and its port are too long for a comment in a rule by {} characters",
                length - COMMENT_LENGTH_MAX
            ));
        }
    }
    Ok(())
}

/// Renders the chains and rules of the frontends that the Service owns.
#[must_use]
pub fn service(
    context: &Context,
    service: &ServiceKey,
    program: &Program,
    has: impl Fn(&Frontend) -> bool,
) -> RenderedService {
    let mut rendered = RenderedService::default();
    let mut ports: BTreeMap<(String, Protocol), Vec<(Frontend, &Route)>> = BTreeMap::new();
    for (frontend, route) in &program.frontends {
        if frontend.destination.family() == context.family && has(frontend) {
            let port = ports.entry((label(service, route), frontend.protocol)).or_default();
            port.push((*frontend, route));
        }
    }
    for ((label, protocol), mut routes) in ports {
        // Cluster IPs come last, so that the main chain of the port is the one that external clients use.
        routes.sort_by_key(|(frontend, route)| (route.role == Role::ClusterIp, *frontend));
        let mut port = Port {
            context,
            label: &label,
            protocol,
            program,
            sets: Vec::new(),
            entries: Vec::new(),
            rendered: &mut rendered,
        };
        for (_, route) in &routes {
            for targets in route.verdicts().into_iter().filter_map(Verdict::targets) {
                port.balance(targets, route.affinity_seconds);
            }
        }
        for (frontend, route) in routes {
            port.frontend(frontend, route);
        }
    }
    rendered
}

/// Returns the shared chains in which a frontend can have rules.
#[must_use]
pub fn dispatch_chains(layout: &NamingLayout, frontend: &Frontend) -> [ChainId; 2] {
    let (nat, filter) = match frontend.destination {
        Destination::AnyLocal(_) => (NODEPORTS, NODEPORTS),
        // Single ports are matched before ranges that may contain them.
        Destination::Address(_) if frontend.ports.single().is_none() => (RANGES, SERVICES),
        Destination::Address(_) => (SERVICES, SERVICES),
    };
    [layout.chain(IptablesTable::Nat, nat), layout.chain(IptablesTable::Filter, filter)]
}

/// Returns the rule that rejects connections to those ports of a virtual address that have no frontend: the
/// shared chain, the key of the rule in this chain, and the text of the rule.
#[must_use]
pub fn virtual_address(layout: &NamingLayout, address: std::net::IpAddr) -> (ChainId, String, String) {
    let comment = "not a port of this virtual address";
    let line = Match { destination: Some(address), comment, ..Match::default() };
    let line = line.rule(&format!("-j {}", layout.name(REJECT)));
    (layout.chain(IptablesTable::Filter, SERVICES), rule::address_key(address), line)
}

fn label(service: &ServiceKey, route: &Route) -> String {
    let port = route.port_name.as_ref().map_or("", model::primitives::name::Label::as_str);
    format!("{}/{}:{port}", service.namespace.as_str(), service.name.as_str())
}

/// Chains rendered so far for one Service port in one address family.
struct Port<'a> {
    context: &'a Context,
    /// Name of the Service port in comments and hashes: `namespace/name:port-name`.
    label: &'a str,
    protocol: Protocol,
    program: &'a Program,
    /// Sets of targets that already have a load-balancing chain: targets, affinity timeout in seconds, and
    /// name of the chain.
    sets: Vec<((Targets, Option<u32>), String)>,
    /// Chains that precede the load-balancing ones (firewall and source dispatch), by kind and rules, with
    /// their names. Frontends with equal rules share a chain.
    entries: Vec<((ChainKind, Vec<String>), String)>,
    rendered: &'a mut RenderedService,
}

impl Port<'_> {
    fn layout(&self) -> &NamingLayout {
        &self.context.layout
    }

    fn put(&mut self, name: &str, rules: Vec<String>) {
        let chain = ChainId { table: IptablesTable::Nat, name: name.to_owned() };
        self.rendered.chains.insert(chain, rules);
    }

    /// Returns the name for the next chain of `kind` that is created for the port. `siblings` is the number
    /// of chains of this kind that the port already has.
    fn chain_name(&self, kind: ChainKind, siblings: usize) -> String {
        let rest = if siblings == 0 { String::new() } else { format!("#{siblings}") };
        self.layout().service_chain(kind, self.label, self.protocol, &rest)
    }

    /// Adds the chain that balances connections over the targets, unless it exists, and returns its name.
    fn balance(&mut self, targets: &Targets, affinity: Option<u32>) -> String {
        let same = |((other, seconds), _): &&((Targets, Option<u32>), String)| {
            *seconds == affinity && **other == **targets
        };
        if let Some((_, name)) = self.sets.iter().find(same) {
            return name.clone();
        }
        let kind = if self.sets.is_empty() { ChainKind::Service } else { ChainKind::Local };
        let name = self.chain_name(kind, self.sets.len().saturating_sub(1));
        self.sets.push(((targets.clone(), affinity), name.clone()));
        let family = self.context.family;
        let endpoints: Vec<_> =
            targets.iter().map(|(target, weight)| (self.endpoint(*target, affinity), *weight)).collect();
        let line = Match { comment: self.label, ..Match::default() };
        let stuck = affinity.into_iter().flat_map(|seconds| {
            endpoints.iter().map(move |(chain, _)| {
                let seen = rule::recent(family, chain, &format!("--rcheck --seconds {seconds} --reap"));
                line.rule(&format!("{seen}-j {chain}"))
            })
        });
        let mut rules: Vec<_> = stuck.collect();
        let first = endpoints.first().map(|(_, weight)| *weight);
        let is_equal = endpoints.iter().all(|(_, weight)| Some(*weight) == first);
        let is_short = is_equal && endpoints.len() <= FIVE_DECIMALS_ENDPOINTS_MAX;
        let decimals = if self.layout().naming == Naming::Kube && is_short { 5 } else { 10 };
        let mut remaining = endpoints.iter().map(|(_, weight)| u64::from(weight.0)).sum();
        for (chain, weight) in &endpoints {
            let share = rule::share(*weight, remaining, decimals).unwrap_or_default();
            rules.push(line.rule(&format!("{share}-j {chain}")));
            remaining -= u64::from(weight.0);
        }
        self.put(&name, rules);
        name
    }

    /// Adds the chain that translates connections to one target, unless it exists, and returns its name.
    fn endpoint(&mut self, target: Target, affinity: Option<u32>) -> String {
        let place = rule::place(target.address, target.port);
        let rest = if affinity.is_some_and(|_| self.has_other_affinity(affinity)) {
            format!("{place}#{}", affinity.unwrap_or_default())
        } else {
            place.clone()
        };
        let name = self.layout().service_chain(ChainKind::Endpoint, self.label, self.protocol, &rest);
        let line = Match { comment: self.label, ..Match::default() };
        let mut rules = Vec::new();
        if self.program.hairpins.contains(&target.address) {
            let itself = Match { source: SourceMatch::In(IpNet::from(target.address)), ..line };
            rules.push(itself.rule(&format!("-j {}", self.layout().name(MARK_MASQ))));
        }
        let seen = affinity.map(|_| rule::recent(self.context.family, &name, "--set")).unwrap_or_default();
        let protocol = super::layout::protocol_word(self.protocol);
        let translate = Match { transport: Some((self.protocol, None)), ..line };
        rules.push(translate.rule(&format!("{seen}-m {protocol} -j DNAT --to-destination {place}")));
        self.put(&name, rules);
        name
    }

    /// Returns true if the port already has a chain with a different session affinity, so that another chain
    /// is needed for the same targets.
    fn has_other_affinity(&self, affinity: Option<u32>) -> bool {
        self.sets.iter().any(|((_, other), _)| *other != affinity)
    }

    fn frontend(&mut self, frontend: Frontend, route: &Route) {
        let comment = match route.role {
            Role::ClusterIp => format!("{} cluster IP", self.label),
            Role::ExternalIp => format!("{} external IP", self.label),
            Role::LoadBalancer => format!("{} loadbalancer IP", self.label),
            Role::NodePort => self.label.to_owned(),
        };
        let is_plain = route.allowed_sources.is_none();
        let lines = match route.uniform() {
            Some(verdict) if is_plain && !is_firewalled(route, verdict) => {
                let line = Match::frontend(frontend, &comment);
                self.carry_out(&line, verdict, route.affinity_seconds)
            }
            Some(_) | None => {
                let chain = match route.uniform() {
                    None if is_plain && route.role != Role::LoadBalancer => self.external(route),
                    Some(_) | None => self.firewall(route, &comment),
                };
                vec![Match::frontend(frontend, &comment).rule(&format!("-j {chain}"))]
            }
        };
        let [nat, filter] = dispatch_chains(self.layout(), &frontend);
        let mut places = vec![(nat, lines)];
        if route.verdicts().into_iter().any(|verdict| *verdict == Verdict::Reject) {
            let comment = format!("{} has no endpoints", self.label);
            let refuse = format!("-j {}", self.layout().name(REJECT));
            places.push((filter, vec![Match::frontend(frontend, &comment).rule(&refuse)]));
        }
        self.rendered.lines.insert(frontend, places);
    }

    /// Returns the rules that apply a verdict to the matching packets.
    fn carry_out(&mut self, line: &Match<'_>, verdict: &Verdict, affinity: Option<u32>) -> Vec<String> {
        match verdict {
            Verdict::Forward { masquerade, targets } => {
                let chain = self.balance(targets, affinity);
                let mut rules = self.masquerade(line, *masquerade);
                rules.push(line.rule(&format!("-j {chain}")));
                rules
            }
            // Rejected in the `filter` table, which the packet reaches without DNAT if no other rule matches
            // it.
            Verdict::Reject => {
                let comment = format!("{} has no endpoints", self.label);
                vec![Match { comment: &comment, ..*line }.rule("-j ACCEPT")]
            }
            Verdict::Drop => {
                let comment = format!("{} has no local endpoints", self.label);
                let drop = format!("-j {}", self.layout().name(MARK_DROP));
                vec![Match { comment: &comment, ..*line }.rule(&drop)]
            }
            // Rejected by `check`.
            Verdict::Relay { .. } => Vec::new(),
        }
    }

    fn masquerade(&self, line: &Match<'_>, masquerade: Masquerade) -> Vec<String> {
        let mark = format!("-j {}", self.layout().name(MARK_MASQ));
        let by_chain = format!("-j {}", self.layout().name(OFF_CLUSTER));
        match (masquerade, &self.context.off_cluster) {
            (Masquerade::Never, _) | (Masquerade::OffCluster, OffCluster::Nobody) => Vec::new(),
            (Masquerade::Always, _) | (Masquerade::OffCluster, OffCluster::Everybody) => {
                vec![line.rule(&mark)]
            }
            (Masquerade::OffCluster, OffCluster::OutsideOf(net))
                if matches!(line.source, SourceMatch::Any) =>
            {
                vec![Match { source: SourceMatch::NotIn(*net), ..*line }.rule(&mark)]
            }
            (Masquerade::OffCluster, OffCluster::OutsideOf(_) | OffCluster::Chain) => {
                vec![line.rule(&by_chain)]
            }
        }
    }

    /// Adds the chain that accepts the allowed source ranges and the node itself, and drops other sources.
    /// Returns its name.
    fn firewall(&mut self, route: &Route, comment: &str) -> String {
        let line = Match { comment, ..Match::default() };
        let (mut rules, actions) = match route.uniform() {
            Some(Verdict::Forward { masquerade, targets }) => {
                let chain = self.balance(targets, route.affinity_seconds);
                (self.masquerade(&line, *masquerade), Some(format!("-j {chain}")))
            }
            Some(Verdict::Reject) => (Vec::new(), Some("-j ACCEPT".to_owned())),
            Some(Verdict::Drop | Verdict::Relay { .. }) => (Vec::new(), None),
            None => (Vec::new(), Some(format!("-j {}", self.external(route)))),
        };
        if let Some(action) = actions {
            match &route.allowed_sources {
                None => rules.push(line.rule(&action)),
                Some(allowed) => {
                    let allowed = allowed.iter().map(|net| SourceMatch::In(*net)).chain([SourceMatch::Node]);
                    rules.extend(allowed.map(|source| Match { source, ..line }.rule(&action)));
                }
            }
        }
        rules.push(line.rule(&format!("-j {}", self.layout().name(MARK_DROP))));
        self.entry(ChainKind::Firewall, rules)
    }

    /// Adds the chain that applies different verdicts to workloads, the node and other sources. Returns its
    /// name.
    fn external(&mut self, route: &Route) -> String {
        let line = Match { comment: self.label, ..Match::default() };
        let mut rules = Vec::new();
        let workloads =
            self.context.workloads.iter().map(|net| (SourceMatch::In(*net), &route.from_workloads));
        let classes = workloads
            .chain([(SourceMatch::Node, &route.from_node), (SourceMatch::Any, &route.from_elsewhere)])
            .collect::<Vec<_>>();
        for (source, verdict) in classes {
            rules.extend(self.carry_out(&Match { source, ..line }, verdict, route.affinity_seconds));
        }
        self.entry(ChainKind::External, rules)
    }

    /// Adds a chain that precedes the load-balancing ones, and returns its name. Frontends with equal rules
    /// share the chain.
    fn entry(&mut self, kind: ChainKind, rules: Vec<String>) -> String {
        let key = (kind, without_comments(&rules));
        if let Some((_, name)) = self.entries.iter().find(|(other, _)| *other == key) {
            return name.clone();
        }
        let siblings = self.entries.iter().filter(|((other, _), _)| *other == kind).count();
        let name = self.chain_name(kind, siblings);
        self.entries.push((key, name.clone()));
        self.put(&name, rules);
        name
    }
}

/// Returns true if connections pass a firewall chain before the verdict: as in kube-proxy, connections to
/// load balancer addresses with targets.
fn is_firewalled(route: &Route, verdict: &Verdict) -> bool {
    route.role == Role::LoadBalancer && verdict.targets().is_some()
}

/// Returns the rules without their comments, to compare rules of different frontends.
fn without_comments(rules: &[String]) -> Vec<String> {
    let bare = |rule: &String| rule.split('"').step_by(2).collect::<String>();
    rules.iter().map(bare).collect()
}

/// Returns the names of the chains that belong to this Service only.
#[must_use]
pub fn chain_names(rendered: &RenderedService) -> BTreeSet<ChainId> {
    rendered.chains.keys().cloned().collect()
}
