//! Explanation of a whole Service or address: the conditions of the Service, and the path of a sample packet
//! to each frontend (address, protocol and port).

use std::net::IpAddr;

use super::{
    About, Explanation, PATHS_MAX, Step,
    destination::{self, announcers, holders},
    nodes::{address_of, spec_of},
    path::path,
};
use crate::{
    cluster::compiled::{CompiledPort, CompiledService},
    kinds::resource::ServiceKey,
    observed::{
        rollup::{AnnouncementInputs, NodeViews, ServiceObservations, service_announced, service_status},
        status::{Condition, ConditionType},
    },
    primitives::{
        name::Name,
        net::{IpFamily, from_number, to_number},
    },
    wire::trace::Packet,
};

/// Maximum number of frontends of a Service to which paths are explained on each node. Further ones are only
/// counted.
const FRONTENDS_MAX: usize = 8;

/// Explains a Service, on the node `at` or on all nodes. Returns `None` if the Service does not exist.
#[must_use]
pub fn service(of: &AnnouncementInputs<'_>, key: &ServiceKey, at: Option<&Name>) -> Option<Explanation> {
    of.scene.snapshot.service(key)?;
    let mut explanation = Explanation {
        subject: format!("Service {key}"),
        steps: service_steps(of, key),
        ..Explanation::default()
    };
    let nodes = || of.scene.nodes.iter().map(|view| view.name.clone());
    let nodes: Vec<_> = at.map_or_else(|| nodes().collect(), |node| vec![node.clone()]);
    if let Some(compiled) = (of.scene.compiled)(key) {
        let nodes = nodes.into_iter().map(|node| (node, "every node has the Service".to_owned())).collect();
        follow(of, &compiled, None, nodes, &mut explanation);
    }
    Some(explanation.concluded())
}

/// Explains the reachability of an address: its announcement, and the paths to the Services that have it.
#[must_use]
pub fn address(of: &AnnouncementInputs<'_>, address: IpAddr, at: Option<&Name>) -> Explanation {
    let mut explanation = Explanation {
        subject: address.to_string(),
        steps: destination::steps(of, address),
        ..Explanation::default()
    };
    let nodes = match at {
        Some(node) => vec![(node.clone(), "it was asked for".to_owned())],
        None => announcers(of, address),
    };
    let all = || of.scene.nodes.iter().map(|view| (view.name.clone(), "every node answers at it".to_owned()));
    let nodes = if nodes.is_empty() { all().collect() } else { nodes };
    for key in holders(of.scene.snapshot, address, None) {
        let is_new = |step: &Step| step.about != About::Announced;
        explanation.steps.extend(service_steps(of, &key).into_iter().filter(is_new));
        if let Some(compiled) = (of.scene.compiled)(&key) {
            follow(of, &compiled, Some(address), nodes.clone(), &mut explanation);
        }
    }
    explanation.concluded()
}

/// Returns the steps that correspond to the conditions of a Service.
fn service_steps(of: &AnnouncementInputs<'_>, key: &ServiceKey) -> Vec<Step> {
    let scene = &of.scene;
    let Some(spec) = scene.snapshot.service(key).and_then(|object| object.as_service()) else {
        return vec![Step::broken(About::Accepted, format!("there is no Service {key}"))];
    };
    let compiled = (scene.compiled)(key);
    let nodes = NodeViews::new(scene.nodes.to_vec());
    let announced = service_announced(of, key);
    let observed = ServiceObservations { announced_on_record: announced, health: None, resolvable: None };
    let status =
        service_status(scene.snapshot, key, spec, compiled.as_deref(), scene.epoch, &nodes, observed);
    let about = |condition: &Condition| match condition.condition_type {
        ConditionType::Accepted => Some(About::Accepted),
        ConditionType::AddressAssigned => Some(About::AddressAssigned),
        ConditionType::EndpointsAvailable => Some(About::EndpointsAvailable),
        ConditionType::Programmed => Some(About::Programmed),
        ConditionType::Announced => Some(About::Announced),
        ConditionType::Ready
        | ConditionType::Connected
        | ConditionType::Converged
        | ConditionType::Used
        | ConditionType::Enforced
        | ConditionType::HasRoom
        | ConditionType::Resolvable
        | ConditionType::ResolvedRefs
        | ConditionType::Issued => None,
    };
    status.conditions.iter().filter_map(|condition| Some(Step::of(about(condition)?, condition))).collect()
}

/// Adds paths of sample packets to an explanation: one for each frontend of a Service on each of the given
/// nodes, up to the limits. With `only`, adds paths only to the frontends at this address.
fn follow(
    of: &AnnouncementInputs<'_>,
    service: &CompiledService,
    only: Option<IpAddr>,
    nodes: Vec<(Name, String)>,
    explanation: &mut Explanation,
) {
    for (node, chosen) in nodes {
        let packets = packets(of, service, only, &node);
        let room = PATHS_MAX.saturating_sub(explanation.paths.len()).min(FRONTENDS_MAX);
        let omitted = packets.len().saturating_sub(room);
        explanation.paths_omitted += u64::try_from(omitted).unwrap_or(u64::MAX);
        let paths = packets.iter().take(room).map(|packet| path(of, packet, &node, chosen.clone()));
        explanation.paths.extend(paths);
    }
}

/// Returns a sample packet for each frontend of a Service on a node; with `only`, for the frontends at this
/// address. The source of a packet is a typical one that the source ranges of the Service allow.
fn packets(
    of: &AnnouncementInputs<'_>,
    service: &CompiledService,
    only: Option<IpAddr>,
    node: &Name,
) -> Vec<Packet> {
    let mut packets = Vec::new();
    for port in &service.ports {
        let inside = service.cluster_ips.iter().map(|address| (*address, true));
        let outside =
            service.load_balancer_ips.iter().chain(&service.external_ips).map(|address| (*address, false));
        let exact = inside.chain(outside).filter(|(address, _)| only.is_none_or(|only| only == *address));
        for (destination, is_inside) in exact {
            let source = source(of, service, node, IpFamily::of(destination), is_inside);
            packets.push(Packet { source, destination, protocol: port.protocol, port: port.port });
        }
        if only.is_none() {
            packets.extend(node_ports(of, service, port, node));
        }
    }
    packets
}

fn node_ports<'a>(
    of: &'a AnnouncementInputs<'_>,
    service: &'a CompiledService,
    port: &'a CompiledPort,
    node: &'a Name,
) -> impl Iterator<Item = Packet> + 'a {
    service.ip_families.iter().filter_map(move |family| {
        let (destination, number) = (address_of(of, node, *family)?, port.node_port?);
        let source = source(of, service, node, *family, false);
        Some(Packet { source, destination, protocol: port.protocol, port: number })
    })
}

/// Returns a sample source address. For a cluster IP, it is a workload of the node. Otherwise, it is an address of
/// the first source range or, without source ranges, an address for documentation (RFC 5737).
fn source(
    of: &AnnouncementInputs<'_>,
    service: &CompiledService,
    node: &Name,
    family: IpFamily,
    is_inside: bool,
) -> IpAddr {
    // Documentation addresses (RFC 5737, RFC 3849) stand for any client.
    let anybody: IpAddr = match family {
        IpFamily::V4 => IpAddr::from([198, 51, 100, 1]),
        IpFamily::V6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    };
    let spec = spec_of(of.scene.snapshot, node);
    let workloads = spec.map(|spec| spec.workload_cidrs.as_slice()).unwrap_or_default();
    let of_family = |net: &&ipnet::IpNet| IpFamily::of_net(net) == family;
    let net = if is_inside {
        workloads.iter().find(of_family)
    } else {
        service.source_ranges.iter().find(of_family).filter(|net| !net.contains(&anybody))
    };
    let Some(net) = net else { return anybody };
    // The last address but one, because the first ones are often gateways.
    let (first, last) = (to_number(net.network()), to_number(net.broadcast()));
    from_number(family, last.saturating_sub(1).max(first)).unwrap_or(anybody)
}
