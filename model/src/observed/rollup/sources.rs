//! Status of EndpointSets and Workloads, mainly whether Services use the endpoints that they provide.

use crate::{
    cluster::snapshot::Snapshot,
    compile::{port_of_set, port_of_workload},
    kinds::{
        attachment::WorkloadKey,
        condition_reason::ConditionReason,
        endpoint_health::EndpointVerdict,
        endpoint_set::{EndpointPort, EndpointSetSpec},
        metadata::Metadata,
        resource::ServiceKey,
        service::ServiceSpec,
        workload::{WorkloadInterface, WorkloadSpec},
    },
    observed::status::{Condition, ConditionType, EndpointSetStatus, WorkloadStatus},
    primitives::{name::Namespace, net::IpFamily},
};

use super::{no, yes};

/// Maximum number of Services that are examined for the status of a Workload, and named in a message.
const SERVICES_LISTED_MAX: usize = 10;

/// Computes the status of an EndpointSet from the Service that it names.
#[must_use]
pub fn endpoint_set_status(
    snapshot: &Snapshot,
    namespace: &Namespace,
    spec: &EndpointSetSpec,
) -> EndpointSetStatus {
    let key = ServiceKey { namespace: namespace.clone(), name: spec.service.clone() };
    let service = snapshot.service(&key).and_then(|object| object.as_service());
    let used = match service {
        None => no(ConditionType::Used, ConditionReason::NoService, format!("there is no Service {key}"))
            .hint("create the Service, or correct spec.service; a set serves a Service of its own namespace"),
        Some(service) => set_used(&key, service, spec),
    };
    EndpointSetStatus { conditions: vec![yes(ConditionType::Accepted, ConditionReason::Valid), used] }
}

fn set_used(key: &ServiceKey, service: &ServiceSpec, set: &EndpointSetSpec) -> Condition {
    let at = ConditionType::Used;
    if service.is_external_name() {
        let message = format!("Service {key} is only a DNS name and has no endpoints");
        return no(at, ConditionReason::ExternalName, message)
            .hint("change the type of the Service, or delete this set");
    }
    if service.disabled {
        return no(at, ConditionReason::ServiceDisabled, format!("Service {key} is disabled"))
            .hint("set spec.disabled of the Service to false");
    }
    let unmatched: Vec<_> = set.ports.iter().filter(|port| !is_port_of(service, port)).collect();
    let is_served =
        service.ports.is_empty() || service.ports.iter().any(|port| port_of_set(set, port).is_some());
    if !is_served || !unmatched.is_empty() {
        let names: Vec<_> = unmatched.into_iter().map(describe).collect();
        let message = match names.as_slice() {
            [] => format!("the ports of Service {key} have named target ports, and the set states no ports"),
            names => format!("Service {key} has no port {}", names.join(", nor ")),
        };
        return no(at, ConditionReason::PortsUnmatched, message)
            .hint("a port of the set serves the Service port of the same name and protocol");
    }
    let families = &service.ip_families;
    let usable = |family: IpFamily| families.is_empty() || families.contains(&family);
    let foreign = set.endpoints.iter().filter(|endpoint| !usable(IpFamily::of(endpoint.address))).count();
    if foreign > 0 {
        let total = set.endpoints.len();
        let message =
            format!("{foreign} of {total} endpoints have an IP family that Service {key} does not have");
        return no(at, ConditionReason::FamilyUnmatched, message)
            .hint("compare spec.ipFamilies of the Service");
    }
    if set.endpoints.is_empty() {
        return no(at, ConditionReason::NoEndpoints, "the set is empty".to_owned());
    }
    yes(at, ConditionReason::ServiceFound)
}

fn is_port_of(service: &ServiceSpec, port: &EndpointPort) -> bool {
    service.ports.iter().any(|of| of.name == port.name && of.protocol == port.protocol)
}

fn describe(port: &EndpointPort) -> String {
    let protocol = port.protocol.as_str();
    match &port.name {
        Some(name) => format!("`{name}` with {protocol}"),
        None => format!("without a name with {protocol}"),
    }
}

/// Computes the status of a Workload from its Node and the Services that select it.
#[must_use]
pub fn workload_status(
    snapshot: &Snapshot,
    namespace: &Namespace,
    metadata: &Metadata,
    spec: &WorkloadSpec,
) -> WorkloadStatus {
    let accepted = if spec.lease_seconds.is_some() {
        let message = "spec.leaseSeconds has no effect; the Workload remains until it is deleted";
        no(ConditionType::Accepted, ConditionReason::Unsupported, message.to_owned())
            .hint("remove the field, and delete the Workload when it has stopped")
    } else {
        yes(ConditionType::Accepted, ConditionReason::Valid)
    };
    let mut conditions = vec![accepted, workload_used(snapshot, namespace, metadata, spec)];
    let key = WorkloadKey { namespace: namespace.clone(), name: metadata.name.clone() };
    conditions
        .extend(spec.interface.as_ref().map(|interface| interface_programmed(snapshot, &key, interface)));
    WorkloadStatus { conditions }
}

/// Derives the condition of the interface that a Workload declares from the Attachment that the agent reports.
fn interface_programmed(snapshot: &Snapshot, key: &WorkloadKey, interface: &WorkloadInterface) -> Condition {
    let mut attachments = snapshot.attachments_of_workload(key).filter_map(|object| object.as_attachment());
    match attachments.find(|attachment| attachment.declared) {
        Some(attachment) => super::networks::attachment_programmed(attachment),
        None => {
            let message = format!("the agent of the Node has not reported interface {}", interface.name);
            no(ConditionType::Programmed, ConditionReason::InterfacePending, message)
                .hint("see the warnings of the Node: `tidegate describe node NODE`")
        }
    }
}

fn workload_used(
    snapshot: &Snapshot,
    namespace: &Namespace,
    metadata: &Metadata,
    spec: &WorkloadSpec,
) -> Condition {
    let at = ConditionType::Used;
    let selecting: Vec<ServiceKey> =
        snapshot.services_selecting(namespace, &metadata.labels).take(SERVICES_LISTED_MAX).collect();
    if selecting.is_empty() {
        let message = "no Service of the namespace selects its labels".to_owned();
        return no(at, ConditionReason::NotSelected, message);
    }
    let names: Vec<&str> = selecting.iter().map(|key| key.name.as_str()).collect();
    let services = names.join(", ");
    if !spec.phase.is_alive() {
        let message = format!("selected by {services}, but its phase is {:?}", spec.phase);
        return no(at, ConditionReason::NotRunning, message);
    }
    let lost = spec.node.as_ref().filter(|node| snapshot.is_lost(node));
    if let Some((node, verdict)) = lost.zip(verdict_of_others(snapshot, namespace, metadata, spec)) {
        let message = format!(
            "selected by {services}, but the agent of its Node {node} is silent, and it fails since {}: {}",
            verdict.since, verdict.message
        );
        return no(at, ConditionReason::NodeLost, message).hint(
            "it is an endpoint again when it answers, or at the next report of tidegate-agent on the Node",
        );
    }
    if spec.addresses.is_empty() {
        return no(at, ConditionReason::NoAddress, format!("selected by {services}, but it has no address"))
            .hint("set spec.addresses");
    }
    let gives_port = |key: &ServiceKey| {
        let service = snapshot.service(key).and_then(|object| object.as_service());
        service.is_some_and(|service| {
            service.ports.is_empty()
                || service.ports.iter().any(|port| port_of_workload(spec, port).is_some())
        })
    };
    if !selecting.iter().any(gives_port) {
        return no(
            at,
            ConditionReason::NoPort,
            format!("selected by {services}, but it has none of the named target ports"),
        )
        .hint("add the ports to spec.ports, with their protocol");
    }
    let silent =
        lost.map(|node| format!("; the agent of its Node {node} is silent, and it stays in service"));
    let message = format!("selected by {services}{}", silent.unwrap_or_default());
    Condition { message, ..yes(at, ConditionReason::Selected) }
}

/// Returns the verdict of other Nodes that the endpoint of a Workload on a lost Node is unhealthy, from the first
/// Service that selects the Workload and has one. Returns `None` if no Service has one or the Node is not lost.
#[must_use]
pub fn verdict_of_others<'a>(
    snapshot: &'a Snapshot,
    namespace: &Namespace,
    metadata: &Metadata,
    spec: &WorkloadSpec,
) -> Option<&'a EndpointVerdict> {
    spec.node.as_ref().filter(|node| snapshot.is_lost(node))?;
    let selecting = snapshot.services_selecting(namespace, &metadata.labels).take(SERVICES_LISTED_MAX);
    let verdicts =
        selecting.filter_map(|key| snapshot.endpoint_health(&key)).flat_map(|record| &record.endpoints);
    let mut own = verdicts.filter(|(key, verdict)| spec.addresses.contains(&key.address) && verdict.is_out());
    own.next().map(|(_, verdict)| verdict)
}
