//! Explanation of one packet: the object with its destination address, the nodes through which it may enter, and
//! its path through each node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    About, Explanation, PATHS_MAX, Path, Step, StepState,
    candidates::Choice,
    destination::{self, holders, is_of_service},
    nodes::{nodes_for, spec_of},
};
use crate::{
    cluster::compiled::CompiledService,
    compile::network,
    kinds::{
        node::{NodeSpec, ProxyMode},
        resource::ServiceKey,
        service::{SourceRangesScope, TrafficPolicy},
    },
    observed::{
        rollup::{AnnouncementInputs, NodeView, is_served, progress},
        status::Phase,
    },
    primitives::{name::Name, net::IpFamily, quantity::Position},
    program::{
        self as program, Frontend, Masquerade, NodeLocation, Owners, Program, Role, Route, Verdict,
        lower::lower,
        oracle::{Admission, Class, Connection, Fate, FrontendMatch, Networks, OracleDecision, decide},
        survival,
    },
    wire::{
        feed::NodeState,
        networks::networks,
        report::{Failure, FailureReason},
        trace::{Packet, ends, words},
    },
};

/// Explains the path of a packet through the node `at` or, if `None`, through each node at which the packet
/// may enter the cluster.
#[must_use]
pub fn packet(of: &AnnouncementInputs<'_>, packet: &Packet, at: Option<&Name>) -> Explanation {
    let nodes = nodes_for(of, packet, at);
    let omitted = u64::try_from(nodes.len().saturating_sub(PATHS_MAX)).unwrap_or(u64::MAX);
    let paths = nodes.into_iter().take(PATHS_MAX).map(|(node, chosen)| path(of, packet, &node, chosen));
    let explanation = Explanation {
        subject: packet.to_string(),
        steps: destination::steps(of, packet.destination),
        paths: paths.collect(),
        paths_omitted: omitted,
        ..Explanation::default()
    };
    explanation.concluded()
}

/// Explains the path of a packet through a node.
pub(super) fn path(of: &AnnouncementInputs<'_>, packet: &Packet, node: &Name, chosen: String) -> Path {
    let context = NodeContext::of(of, packet, node);
    let (programs, mut steps) = context.programs(of, packet);
    let lowered = programs.iter().map(|(key, (program, _))| (key, program));
    let decision = decide(lowered, &context.networks, &context.connection);
    let (mut candidates, mut candidates_omitted, mut service, mut silent) = (Vec::new(), 0, None, None);
    steps.push(frontend_step(&decision, &programs, packet));
    if let FrontendMatch::Frontend { of: key, frontend, route } = &decision.matched {
        service = Some((*key).clone());
        if let Some((_, compiled)) = programs.get(*key) {
            steps.extend(admission_step(&decision, route, compiled, packet));
            let targets = match &decision.fate {
                Fate::Forward { targets, .. } => targets.clone(),
                Fate::Untouched | Fate::Reject | Fate::Drop | Fate::Relay(_) => BTreeMap::new(),
            };
            let port = compiled.ports.iter().find(|port| is_port(port, frontend));
            if let Some(port) = port.filter(|_| decision.admission != Admission::Denied) {
                let family = IpFamily::of(packet.destination);
                let (class, role) = (decision.class, route.role);
                let health = of.scene.snapshot.endpoint_health(key);
                let choice = Choice {
                    service: compiled,
                    port,
                    place: &context.place,
                    family,
                    targets: &targets,
                    role,
                    class,
                    health,
                };
                (candidates, candidates_omitted) = choice.listed();
                silent = choice.silent();
            }
            steps.extend(policy_steps(&decision, route, compiled, &context));
            steps.extend(silent);
        }
    }
    let ends =
        ends(&decision.fate, context.connection.is_from_node, |address| context.is_endpoint_here(address));
    Path {
        node: node.clone(),
        chosen,
        mode: context.mode,
        packet: *packet,
        service,
        steps,
        candidates,
        candidates_omitted,
        fate: words(&ends),
        ends,
        kernel: None,
    }
}

type Programs<'a> = BTreeMap<ServiceKey, (Program, Arc<CompiledService>)>;

/// Node through which the path of a packet is explained, with the data of the node that determine the path.
struct NodeContext<'a> {
    view: Option<&'a NodeView<'a>>,
    place: NodeLocation,
    mode: Option<ProxyMode>,
    networks: Networks,
    connection: Connection,
    /// Addresses of the node, without those of Services.
    own: BTreeSet<IpAddr>,
}

impl<'a> NodeContext<'a> {
    fn of(of: &'a AnnouncementInputs<'_>, packet: &Packet, node: &Name) -> Self {
        let snapshot = of.scene.snapshot;
        let spec = spec_of(snapshot, node).cloned().unwrap_or_default();
        let view = of.scene.nodes.iter().find(|view| view.name == node);
        let report = view.and_then(|view| view.report);
        let NodeSpec { addresses, zone, mode, proxy, workload_cidrs, .. } = spec;
        let reported = report.into_iter().flat_map(|report| &report.facts.addresses);
        let own: BTreeSet<IpAddr> = addresses
            .iter()
            .chain(reported)
            .copied()
            .filter(|address| !is_of_service(snapshot, *address))
            .collect();
        let Packet { source, destination, protocol, port } = *packet;
        let connection = Connection {
            source,
            is_from_node: own.contains(&source),
            destination,
            is_node_address: own.contains(&destination),
            protocol,
            port,
        };
        let workload_cidrs = Some(workload_cidrs.into_iter().collect());
        let state = NodeState { mode, zone: zone.clone(), proxy, workload_cidrs, ..NodeState::default() };
        Self {
            view,
            place: NodeLocation { node: node.clone(), zone },
            mode: report.map(|report| report.mode).or(mode),
            networks: networks(&network(snapshot), &state),
            connection,
            own,
        }
    }

    /// Returns true if the node delivers packets to an endpoint at `address` locally, which no rule masquerades.
    /// The relay of userspace mode connects from the node's address to any endpoint.
    fn is_endpoint_here(&self, address: IpAddr) -> bool {
        self.mode != Some(ProxyMode::Userspace) && self.own.contains(&address)
    }

    /// Returns the packet programs that may match the packet, and the steps that show the state of the node
    /// and of each of these Services on the node.
    fn programs(&self, of: &AnnouncementInputs<'_>, packet: &Packet) -> (Programs<'a>, Vec<Step>) {
        let mut steps = vec![self.node_step()];
        let mut programs = Programs::new();
        let at = Some((packet.protocol, packet.port));
        for key in holders(of.scene.snapshot, packet.destination, at) {
            let Some(compiled) = (of.scene.compiled)(&key) else { continue };
            let program = program::program(&compiled, &self.place).map_err(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
                fields.join("; ")
            });
            let program = program.map(|mut program| {
                self.divide(&mut program, &compiled);
                program
            });
            match program.and_then(|program| lower(&program, self.mode.unwrap_or_default())) {
                Ok(program) => {
                    steps.extend(self.programmed_step(of, &compiled));
                    programs.insert(key, (program, compiled));
                }
                Err(why) => {
                    let outcome = format!("Service {key} is not programmed");
                    steps.push(Step::broken(About::Programmed, outcome).because(why));
                }
            }
        }
        (programs, steps)
    }

    /// Puts the Service on the two-stage path, as the agent of the node does.
    fn divide(&self, program: &mut Program, service: &CompiledService) {
        if self.mode != Some(ProxyMode::Nftables) {
            return;
        }
        let report = self.view.and_then(|view| view.report);
        let subnets = report.into_iter().flat_map(|report| report.facts.subnets.values().flatten());
        let networks = subnets.copied().collect();
        // The agent reports obstacles; the step `Programmed` has them.
        let _obstacles = survival::divide(program, service, &self.place.node, &networks);
    }

    fn node_step(&self) -> Step {
        let Some(view) = self.view else {
            let step = Step::broken(About::Node, format!("there is no Node {}", self.place.node));
            return step.hint("start tidegate-agent on the machine, or ask about another one");
        };
        let name = view.name;
        match (view.report, view.is_connected, view.last_report) {
            (Some(report), true, _) => Step::fine(
                About::Node,
                format!("the agent of {name} reports, in mode {}", report.mode.as_str()),
            ),
            (_, _, Some(at)) => {
                let step =
                    Step::new(About::Node, StepState::Unknown, format!("the agent of {name} is silent"));
                step.because(format!("it has not reported since {at}; its kernel keeps the last state"))
            }
            (_, _, None) => {
                let step = Step::broken(About::Node, format!("the agent of {name} has never reported"));
                step.hint("check that tidegate-agent runs there and can reach this server")
            }
        }
    }

    fn programmed_step(&self, of: &AnnouncementInputs<'_>, service: &CompiledService) -> Option<Step> {
        let view = self.view?;
        let key = &service.service;
        let wanted = Position { epoch: of.scene.epoch, revision: service.revision };
        let (phase, failure) = progress(view, key, wanted);
        let about = About::Programmed;
        Some(match (phase, failure) {
            (Phase::Verified, _) => {
                Step::fine(about, format!("it has Service {key}, read back from the kernel"))
            }
            (_, Some(Failure { reason: FailureReason::SurvivalUnavailable, message, .. }))
                if is_served(view, key, wanted) =>
            {
                let outcome = format!("it has Service {key}, whose connections do not survive");
                Step::fine(about, outcome).because(message.clone())
            }
            (_, Some(Failure { message, .. })) => {
                Step::broken(about, format!("Service {key} failed there")).because(message.clone())
            }
            (phase, None) => {
                let outcome = format!("it has not verified Service {key} yet");
                let why = format!("it is {phase:?} of revision {}", service.revision);
                Step::new(about, StepState::Unknown, outcome).because(why)
            }
        })
    }
}

fn is_port(port: &crate::cluster::compiled::CompiledPort, frontend: &Frontend) -> bool {
    port.protocol == frontend.protocol
        && (port.range() == frontend.ports || port.node_port.map(Into::into) == Some(frontend.ports))
}

fn frontend_step(
    decision: &OracleDecision<'_, &ServiceKey>,
    programs: &Programs<'_>,
    packet: &Packet,
) -> Step {
    let about = About::Frontend;
    match &decision.matched {
        FrontendMatch::Frontend { of, frontend, route } => {
            let name =
                route.port_name.as_ref().map(|name| format!(" `{}`", name.as_str())).unwrap_or_default();
            let role = match route.role {
                Role::ClusterIp => "cluster IP",
                Role::ExternalIp => "external IP",
                Role::LoadBalancer => "load balancer address",
                Role::NodePort => "node port",
            };
            let protocol = frontend.protocol.as_str();
            Step::fine(
                about,
                format!("it meets port{name} {}/{protocol} of Service {of}, at its {role}", frontend.ports),
            )
        }
        FrontendMatch::VirtualAddress { of } => {
            let compiled = programs.get(*of).map(|(_, compiled)| compiled);
            let ports = compiled.into_iter().flat_map(|service| &service.ports);
            let known: Vec<_> =
                ports.map(|port| format!("{}/{}", port.range(), port.protocol.as_str())).collect();
            let outcome =
                format!("Service {of} has no port {}/{}: refused", packet.port, packet.protocol.as_str());
            Step::broken(about, outcome).because(format!("its ports are {}", known.join(", ")))
        }
        FrontendMatch::Nothing if decision.fate == Fate::Drop => {
            Step::broken(about, "no Service has this address of the Service range: it is dropped")
        }
        FrontendMatch::Nothing if programs.is_empty() => {
            Step::fine(about, "no Service is programmed for this destination: it is left to the node")
        }
        FrontendMatch::Nothing => {
            let step = Step::broken(about, "no frontend is for this destination: it is left to the node");
            step.because(
                "node ports are open at the node's own addresses that spec.proxy.nodePortAddresses permits",
            )
        }
    }
}

/// Returns the step of a frontend that the scope of the source ranges leaves open; `None` if the Service has no
/// source ranges, and for cluster IPs.
fn unrestricted_step(route: &Route, service: &CompiledService, packet: &Packet) -> Option<Step> {
    if service.source_ranges.is_empty() || service.source_ranges_scope == SourceRangesScope::AllExternal {
        return None;
    }
    let family = IpFamily::of(packet.destination);
    let why = match route.role {
        Role::ClusterIp => return None,
        Role::ExternalIp | Role::NodePort => {
            "the source ranges restrict load balancer addresses only (spec.sourceRangesScope: LoadBalancerOnly)"
                .to_owned()
        }
        Role::LoadBalancer if service.source_ranges.iter().any(|net| IpFamily::of_net(net) == family) => {
            return None;
        }
        Role::LoadBalancer => format!(
            "no source range is of family {} (spec.sourceRangesScope: LoadBalancerOnly)",
            family.as_str()
        ),
    };
    Some(Step::fine(About::SourceRanges, "every source may connect").because(why))
}

fn admission_step(
    decision: &OracleDecision<'_, &ServiceKey>,
    route: &Route,
    service: &CompiledService,
    packet: &Packet,
) -> Option<Step> {
    let about = About::SourceRanges;
    let Some(allowed) = &route.allowed_sources else { return unrestricted_step(route, service, packet) };
    Some(match decision.admission {
        Admission::Open => Step::fine(about, "every source may connect"),
        Admission::Within(net) => {
            Step::fine(about, format!("{} may connect: it lies in {net}", packet.source))
        }
        Admission::Node => Step::fine(about, "the node itself may always connect"),
        Admission::Denied => {
            let listed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            let step = Step::broken(about, format!("{} may not connect: it is dropped", packet.source));
            let step = step.because(format!("the Service lets in {}", listed.join(", ")));
            step.hint("add its network to spec.loadBalancerSourceRanges")
        }
    })
}

fn policy_steps(
    decision: &OracleDecision<'_, &ServiceKey>,
    route: &Route,
    service: &CompiledService,
    context: &NodeContext<'_>,
) -> Vec<Step> {
    let Some(verdict) = decision.verdict else { return Vec::new() };
    let is_internal = route.role == Role::ClusterIp;
    let (name, policy) = if is_internal {
        ("internalTrafficPolicy", service.internal_traffic_policy)
    } else {
        ("externalTrafficPolicy", service.external_traffic_policy)
    };
    let class = match decision.class {
        Class::Workload => "a workload of this node",
        Class::Node => "the node itself",
        Class::Elsewhere => "outside",
    };
    let why = match (policy, is_internal, decision.class) {
        (TrafficPolicy::Cluster, _, _) => "endpoints of all nodes are used".to_owned(),
        (TrafficPolicy::Local, false, Class::Workload | Class::Node) => {
            "connections of the node and of its workloads may use the endpoints of all nodes".to_owned()
        }
        (TrafficPolicy::Local, ..) => format!("only endpoints on {} are used", context.place.node),
    };
    let outcome = format!("it comes from {class}, and {name} is {policy:?}");
    let mut steps = vec![Step::fine(About::Policy, outcome).because(why)];
    match verdict {
        Verdict::Reject => {
            let step = Step::broken(About::Candidates, "no endpoint accepts new connections: it is refused");
            steps.push(step.hint(
                "`tidegate describe service` lists the endpoints and the reason for which each is not used",
            ));
        }
        Verdict::Drop => {
            let outcome = "no endpoint is on this node, and others have some: it is dropped";
            let hint = "nodes without an endpoint should get no such traffic; see who announces the address";
            steps.push(Step::broken(About::Candidates, outcome).hint(hint));
        }
        Verdict::Relay { port } => {
            steps.push(Step::fine(About::Candidates, format!("a listener at port {port} takes it")));
        }
        Verdict::Forward { masquerade, targets } => {
            steps.push(affinity_step(route));
            steps.push(Step::fine(About::Candidates, format!("{} endpoints can get it", targets.len())));
            match route.owners.as_ref().filter(|_| decision.class == Class::Elsewhere) {
                Some(owners) => steps.extend(survival_steps(owners, &context.place.node)),
                None => steps.extend(translation_steps(decision, *masquerade, context)),
            }
        }
    }
    steps
}

fn affinity_step(route: &Route) -> Step {
    let how = route.scheduler.as_ref().map_or_else(
        || "at random, in proportion to the weights".to_owned(),
        |scheduler| format!("by scheduler {}", scheduler.0.as_str()),
    );
    match route.affinity_seconds {
        None => Step::fine(About::Affinity, format!("each connection is scheduled anew, {how}")),
        Some(seconds) => {
            let outcome = format!("a client stays on its endpoint for {seconds} s after its last connection");
            Step::fine(About::Affinity, outcome).because(format!("new clients are scheduled {how}"))
        }
    }
}

/// Describes the two-stage path of a connection that survives the loss of the node.
fn survival_steps(owners: &Owners, node: &Name) -> [Step; 2] {
    let hops: BTreeSet<IpAddr> = owners.0.values().copied().collect();
    let hops: Vec<String> = hops.iter().map(IpAddr::to_string).collect();
    let why = if hops.is_empty() {
        format!("all endpoints are on {node}")
    } else {
        format!(
            "{node} forwards packets for endpoints elsewhere unchanged to {}, by a hash of the client",
            hops.join(", ")
        )
    };
    let outcome = "the node of the endpoint translates its destination: the endpoint sees the client";
    let answers = format!(
        "the node of the endpoint translates back and replies to the client directly: other connections than those to \
         endpoints on {node} survive its loss"
    );
    [Step::fine(About::Translation, outcome).because(why), Step::fine(About::ReturnPath, answers)]
}

fn translation_steps(
    decision: &OracleDecision<'_, &ServiceKey>,
    masquerade: Masquerade,
    context: &NodeContext<'_>,
) -> Vec<Step> {
    let Fate::Forward { targets, is_masqueraded, hairpins } = &decision.fate else { return Vec::new() };
    let (about, back) = (About::Translation, About::ReturnPath);
    let node = &context.place.node;
    if context.mode == Some(ProxyMode::Userspace) {
        let outcome = "the relay connects to the endpoint, which sees the node";
        return vec![Step::fine(about, outcome), Step::fine(back, "the relay carries the answers back")];
    }
    let (here, away): (Vec<IpAddr>, Vec<IpAddr>) =
        targets.keys().map(|(address, _)| *address).partition(|address| context.is_endpoint_here(*address));
    if *is_masqueraded && away.is_empty() && !here.is_empty() {
        let outcome = "its destination is translated: the endpoint sees the client";
        let why =
            format!("the endpoint has an address of {node}, and what stays on the node is not masqueraded");
        let answers = format!("the endpoint answers on {node} itself, which translates back");
        return vec![Step::fine(about, outcome).because(why), Step::fine(back, answers)];
    }
    if *is_masqueraded {
        let why = match masquerade {
            Masquerade::Always => "the answer has to come back through this node",
            Masquerade::OffCluster => "its source lies outside the workload networks, or all is masqueraded",
            Masquerade::Never => "it is asked for",
        };
        let outcome = if here.is_empty() {
            "its destination and its source are translated: the endpoint sees the node".to_owned()
        } else {
            format!(
                "its destination and its source are translated: the endpoint sees the node, except at an address of {node}"
            )
        };
        let answers = format!("the endpoint answers to {node}, which translates back");
        return vec![Step::fine(about, outcome).because(why), Step::fine(back, answers)];
    }
    let outcome = if hairpins.is_empty() {
        "its destination is translated: the endpoint sees the client"
    } else {
        "its destination is translated: the endpoint sees the client, and where it is the client itself, the node"
    };
    let answers =
        format!("the endpoint answers to the client, and that has to come by {node}, which translates back");
    let count = targets.len();
    let why = if count > 0 { "the source is kept" } else { "" };
    vec![Step::fine(about, outcome).because(why), Step::fine(back, answers)]
}
