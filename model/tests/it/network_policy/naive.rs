//! Independent evaluator of NetworkPolicies: reads the objects of each decision anew, and uses nothing of the compiler.

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    cluster::snapshot::Snapshot,
    kinds::{
        network_policy::{NetworkPolicySpec, PolicyPeer, PolicyPort, PolicyType},
        resource::{Kind, Object},
        service::TargetPort,
        workload::{WorkloadPhase, WorkloadSpec},
    },
    policy::node_policy::{Attempt, AttemptProtocol},
};

/// Returns true if the policies of a snapshot accept a connection.
pub(crate) fn accepts(snapshot: &Snapshot, attempt: &Attempt) -> bool {
    let Attempt { source, destination, .. } = *attempt;
    let (from, to) = (workload_at(snapshot, source), workload_at(snapshot, destination));
    let egress = || side(snapshot, PolicyType::Egress, from, to, destination, to, attempt);
    let ingress = || side(snapshot, PolicyType::Ingress, to, from, source, to, attempt);
    source == destination || egress() && ingress()
}

fn workload_at(snapshot: &Snapshot, address: IpAddr) -> Option<&Object> {
    let mut all = snapshot.list(Kind::Workload, None, None).map(AsRef::as_ref);
    all.find(|object| {
        let spec = object.as_workload().unwrap();
        let is_finished = matches!(spec.phase, WorkloadPhase::Succeeded | WorkloadPhase::Failed);
        !is_finished && spec.addresses.contains(&address)
    })
}

/// Returns true if the policies that select the workload `own` accept the connection in one direction.
fn side(
    snapshot: &Snapshot,
    direction: PolicyType,
    own: Option<&Object>,
    peer: Option<&Object>,
    peer_address: IpAddr,
    target: Option<&Object>,
    attempt: &Attempt,
) -> bool {
    // No node enforces the policies of a workload without one.
    let Some(own) = own.filter(|own| own.as_workload().unwrap().node.is_some()) else { return true };
    let all = snapshot.list(Kind::NetworkPolicy, own.metadata.namespace.as_ref(), None);
    let specs = all.map(|object| object.as_network_policy().unwrap());
    let selecting: Vec<&NetworkPolicySpec> = specs
        .filter(|spec| spec.selector.matches(&own.metadata.labels))
        .filter(|spec| match (spec.policy_types.is_empty(), direction) {
            (false, _) => spec.policy_types.contains(&direction),
            (true, PolicyType::Ingress) => true,
            (true, PolicyType::Egress) => !spec.egress.is_empty(),
        })
        .collect();
    let rules = selecting.iter().flat_map(|spec| -> Vec<(&[PolicyPeer], &[PolicyPort])> {
        match direction {
            PolicyType::Ingress => spec.ingress.iter().map(|rule| (&*rule.from, &*rule.ports)).collect(),
            PolicyType::Egress => spec.egress.iter().map(|rule| (&*rule.to, &*rule.ports)).collect(),
        }
    });
    let mut matching = rules.filter(|(peers, ports)| {
        (peers.is_empty() || peers.iter().any(|one| is_peer(one, own, peer, peer_address)))
            && (ports.is_empty() || ports.iter().any(|port| is_port(port, target, attempt)))
    });
    selecting.is_empty() || matching.next().is_some()
}

fn is_peer(rule: &PolicyPeer, own: &Object, peer: Option<&Object>, address: IpAddr) -> bool {
    if let Some(block) = &rule.ip_block {
        return block.cidr.contains(&address) && block.except.iter().all(|except| !except.contains(&address));
    }
    let Some(peer) = peer else { return false };
    let namespace = peer.metadata.namespace.clone().unwrap();
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_string())]);
    let is_namespace = match &rule.namespace_selector {
        Some(selector) => selector.matches(&labels),
        None => peer.metadata.namespace == own.metadata.namespace,
    };
    is_namespace && rule.workload_selector.as_ref().is_none_or(|one| one.matches(&peer.metadata.labels))
}

fn is_port(port: &PolicyPort, target: Option<&Object>, attempt: &Attempt) -> bool {
    if AttemptProtocol::from(port.protocol) != attempt.protocol {
        return false;
    }
    match (&port.port, port.end_port) {
        (None, _) => true,
        (Some(TargetPort::Number(first)), last) => {
            (first.get()..=last.unwrap_or(*first).get()).contains(&attempt.port)
        }
        (Some(TargetPort::Name(name)), _) => {
            let spec: Option<&WorkloadSpec> = target.and_then(|object| object.as_workload());
            let served = spec.and_then(|spec| spec.ports.get(name));
            served.is_some_and(|found| found.protocol == port.protocol && found.port.get() == attempt.port)
        }
    }
}
