//! Translates the state of an engine into objects: a Workload for each container that requests it, and the
//! Services that containers declare. Does no I/O. Addresses are never guessed: a container with several
//! possible addresses is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    admission::decode::{Expect, decode},
    kinds::{
        metadata::{CHECKED_BY, LABELS_MAX, check_key, check_value},
        resource::{Object, ObjectKey},
        service::Protocol,
        workload::WORKLOAD_PORTS_MAX,
    },
    primitives::name::{Label, Name, Namespace},
};
use serde_json::{Map, Value, json};

use super::{
    container::{Attachment, Container, Life, Network, NetworkMode},
    parse::{AddressKind, DeclaredService, Wish, wish},
};

/// Label of Workloads that contains the name of their Service.
pub(super) const SERVICE_LABEL: &str = "tidegate.io/service";
/// Label of Workloads that are containers, used by adapters on other machines.
pub(super) const ENGINE_LABEL: &str = "tidegate.io/engine";
/// Annotations of Workloads: the network that contains the container's address, and the subnets of that
/// network.
pub(super) const NETWORK_ANNOTATION: &str = "tidegate.io/network";
pub(super) const SUBNETS_ANNOTATION: &str = "tidegate.io/subnets";
/// First engine version that blocks other machines from container addresses by default.
const ISOLATING_ENGINE: u32 = 28;
/// Maximum length of a chain of containers that join each other's network.
const JOINED_MAX: usize = 8;

/// Settings of the machine on which the engine runs.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) node: Name,
    /// Addresses of the machine at which published ports are reachable.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) namespace: Namespace,
    pub(super) network: Option<String>,
    pub(super) address: AddressKind,
}

/// Last known state of the engine: containers, networks and pending stops.
#[derive(Debug, Clone, Default)]
pub(super) struct EngineState {
    /// Major version of the engine; 0 if unknown.
    pub(super) major: u32,
    /// Containers by id.
    pub(super) containers: BTreeMap<String, Container>,
    /// Networks by id.
    pub(super) networks: BTreeMap<String, Network>,
    /// Ids of containers that received a stop signal.
    pub(super) ending: BTreeSet<String>,
}

/// Addresses and subnets of containers on other machines. Those that this machine also uses are ambiguous.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Addresses of containers on other machines, each with the name of the container's Node.
    pub(super) addresses: BTreeMap<IpAddr, String>,
    /// Subnets of containers on other machines, each with the names of the Nodes that use it.
    pub(super) subnets: BTreeMap<String, BTreeSet<String>>,
}

/// Objects translated from an engine, and the problems to report.
#[derive(Debug, Default)]
pub(super) struct Translation {
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    pub(super) complaints: Vec<String>,
}

/// Translates the state of an engine into Workloads, and into the Services that containers declare.
/// Containers that cannot be translated are reported as problems. `elsewhere` describes the containers of
/// other machines.
pub(super) fn translate(host: &Host, engine: &EngineState, elsewhere: &Elsewhere) -> Translation {
    let mut translation = Translation::default();
    let mut declared = BTreeMap::<(Namespace, Label), (String, DeclaredService)>::new();
    for container in engine.containers.values() {
        let translated = wish(&container.labels).and_then(|wish| {
            let Some(wish) = wish else { return Ok(()) };
            if let (Some(service), Some(new)) = (&wish.service, &wish.declared) {
                let namespace = wish.namespace.clone().unwrap_or_else(|| host.namespace.clone());
                let first = declared.entry((namespace, service.clone()));
                let (name, first) = first.or_insert_with(|| (container.name.clone(), new.clone()));
                if first != new {
                    let message = format!(
                        "declares Service {service} differently from {name}, whose \
                                           declaration is used"
                    );
                    translation.complaints.push(format!("container {}: {message}", container.name));
                }
            }
            let object = workload(host, engine, elsewhere, container, &wish, &mut translation.complaints)?;
            translation.objects.insert(object.key(), object);
            Ok(())
        });
        if let Err(wrong) = translated {
            translation.complaints.push(format!("container {}: {wrong}", container.name));
        }
    }
    for ((namespace, name), (by, declared)) in declared {
        match service(&namespace, &name, &declared) {
            Ok(object) => {
                translation.objects.insert(object.key(), object);
            }
            Err(wrong) => translation.complaints.push(format!("container {by}: Service {name}: {wrong}")),
        }
    }
    translation.complaints.extend(equal_subnets(host, engine, elsewhere));
    translation
}

/// Addresses and ports at which other machines reach a container.
struct Reach<'a> {
    addresses: Vec<IpAddr>,
    /// Port at which other machines reach each container port, by container port and protocol.
    ports: BTreeMap<(u16, Protocol), u16>,
    network: Option<(&'a str, &'a Network)>,
}

fn workload(
    host: &Host,
    engine: &EngineState,
    elsewhere: &Elsewhere,
    container: &Container,
    wish: &Wish,
    complaints: &mut Vec<String>,
) -> Result<Object, String> {
    let is_ending = engine.ending.contains(&container.id);
    let (phase, is_ready) = match container.life {
        Life::Running if is_ending => ("Terminating", false),
        Life::Running => ("Running", container.is_healthy.unwrap_or(true)),
        Life::Paused => ("Running", false),
        Life::Ending => ("Terminating", false),
        Life::Waiting => ("Pending", false),
        Life::Ended => ("Succeeded", false),
        Life::Failed => ("Failed", false),
    };
    let is_alive = matches!(phase, "Running" | "Terminating");
    let reach = if is_alive { Some(reach(host, engine, container, wish, complaints)?) } else { None };
    let reach = reach.unwrap_or(Reach { addresses: Vec::new(), ports: BTreeMap::new(), network: None });
    for address in &reach.addresses {
        if let (Some(node), Some((network, _))) = (elsewhere.addresses.get(address), reach.network) {
            return Err(format!(
                "its address {address} in network {network} is also used by a container on Node {node}; \
                 configure different subnets (`bip` and `default-address-pools` in daemon.json), or \
                 publish its ports and label it tidegate.address=published"
            ));
        }
    }
    let mut labels = carried(&container.labels);
    labels.insert(ENGINE_LABEL.to_owned(), "docker".into());
    if let Some(service) = &wish.service {
        labels.insert(SERVICE_LABEL.to_owned(), service.as_str().into());
    }
    let mut annotations = Map::new();
    if let Some((name, network)) = reach.network {
        annotations.insert(NETWORK_ANNOTATION.to_owned(), name.into());
        annotations.insert(SUBNETS_ANNOTATION.to_owned(), network.subnets.join(",").into());
    }
    if container.is_healthy.is_some() {
        annotations.insert(CHECKED_BY.to_owned(), "docker".into());
    }
    let ports = reach.ports.iter().take(WORKLOAD_PORTS_MAX).map(|((port, protocol), there)| {
        (port_name(*port, *protocol), json!({ "port": there, "protocol": protocol }))
    });
    let mut spec = json!({
        "addresses": reach.addresses, "node": host.node.as_str(), "phase": phase, "ready": is_ready,
        "ports": ports.collect::<Map<_, _>>(),
    });
    if let Some(weight) = wish.weight {
        spec["weight"] = weight.into();
    }
    let namespace = wish.namespace.as_ref().unwrap_or(&host.namespace);
    object(&json!({
        "kind": "Workload",
        "metadata": {
            "name": workload_name(&host.node, &container.name), "namespace": namespace.as_str(),
            "labels": labels, "annotations": annotations,
        },
        "spec": spec,
    }))
}

fn reach<'a>(
    host: &Host,
    engine: &'a EngineState,
    container: &'a Container,
    wish: &Wish,
    complaints: &mut Vec<String>,
) -> Result<Reach<'a>, String> {
    let owner = network_owner(engine, container)?;
    // Ports belong to the owner of the network; the joining container's exposed ports count as well.
    let declared = wish.declared.iter().flat_map(|declared| declared.ports.values());
    let declared = declared.map(|port| (port.target, port.protocol));
    let exposed = owner.ports.keys().chain(container.ports.keys()).copied();
    let all: BTreeSet<_> = exposed.chain(declared).collect();
    let own: BTreeMap<_, _> = all.into_iter().map(|port| (port, port.0)).collect();
    if owner.mode == NetworkMode::Host {
        return Ok(Reach { addresses: of_machine(host)?, ports: own, network: None });
    }
    let kind = wish.address.unwrap_or(host.address);
    if kind == AddressKind::Published {
        return published(host, owner);
    }
    let (name, attachment) = attachment(owner, wish.network.as_deref().or(host.network.as_deref()))?;
    let network = engine.networks.get(&attachment.network_id);
    let is_kept_apart = engine.major >= ISOLATING_ENGINE && network.is_some_and(|network| !network.is_open);
    if is_kept_apart && kind == AddressKind::Auto {
        if let Ok(published) = published(host, owner)
            && published.ports.len() == own.len()
        {
            return Ok(published);
        }
        complaints.push(format!(
            "container {}: this engine (version {} or newer) drops traffic from other machines to \
             addresses in network {name}; publish its ports, or create the network with \
             gateway_mode_ipv4=routed or nat-unprotected, or with trusted_host_interfaces, or start the \
             engine with allow-direct-routing and label the container tidegate.address=container",
            container.name, ISOLATING_ENGINE
        ));
    }
    let addresses: Vec<_> =
        attachment.addresses.iter().copied().filter(|address| !address.is_unspecified()).collect();
    Ok(Reach { addresses, ports: own, network: network.map(|network| (name, network)) })
}

/// Returns the container that owns the network namespace of a given container: the container itself, or one
/// that it joins.
pub(super) fn network_owner<'a>(
    engine: &'a EngineState,
    container: &'a Container,
) -> Result<&'a Container, String> {
    let mut owner = container;
    for _ in 0..JOINED_MAX {
        let NetworkMode::Of(other) = &owner.mode else {
            return match owner.mode {
                NetworkMode::None => Err("it has no network (network_mode: none)".to_owned()),
                NetworkMode::Own | NetworkMode::Host | NetworkMode::Of(_) => Ok(owner),
            };
        };
        let by_id = engine.containers.get(other);
        let by_name = || engine.containers.values().find(|container| container.name == *other);
        owner = by_id
            .or_else(by_name)
            .ok_or_else(|| format!("it uses the network of container {other}, which does not exist"))?;
    }
    Err(format!(
        "it uses the network of another container through a chain of more than {JOINED_MAX} containers"
    ))
}

fn attachment<'a>(owner: &'a Container, network: Option<&str>) -> Result<(&'a str, &'a Attachment), String> {
    let names = || owner.networks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut all = owner.networks.iter();
    let found = match (network, all.next(), all.next()) {
        (Some(name), _, _) => owner.networks.get_key_value(name),
        (None, only, None) => only,
        (None, Some(_), Some(_)) => {
            return Err(format!(
                "it is in several networks ({}); label it tidegate.network=NAME, or start with --network NAME",
                names()
            ));
        }
        (None, None, Some(_)) => None,
    };
    let found = found.map(|(name, attachment)| (name.as_str(), attachment));
    found.ok_or_else(|| match network {
        Some(network) => format!("it is not in network {network}, only in: {}", names()),
        None => "it is in no network".to_owned(),
    })
}

fn published(host: &Host, owner: &Container) -> Result<Reach<'static>, String> {
    let mut ports = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for (port, bindings) in &owner.ports {
        let usable = bindings.iter().find(|binding| !binding.address.is_loopback());
        if let Some(binding) = usable {
            ports.insert(*port, binding.port);
            addresses.insert(binding.address);
        }
    }
    if ports.is_empty() {
        return Err(
            "none of its ports is published (`ports:` or --publish) at an address that other machines \
             can reach"
                .to_owned(),
        );
    }
    let everywhere = addresses.iter().any(IpAddr::is_unspecified);
    addresses.retain(|address| !address.is_unspecified());
    let addresses = match (everywhere, addresses.pop_first(), addresses.is_empty()) {
        (true, None, _) => of_machine(host)?,
        (false, Some(only), true) => vec![only],
        _ => {
            return Err(
                "its ports are published at several addresses of the machine; publish them all at one"
                    .to_owned(),
            );
        }
    };
    Ok(Reach { addresses, ports, network: None })
}

fn of_machine(host: &Host) -> Result<Vec<IpAddr>, String> {
    if host.addresses.is_empty() {
        return Err(
            "it needs the machine's address, which is not configured; start with --node-address".to_owned()
        );
    }
    Ok(host.addresses.clone())
}

/// Returns the container labels to copy to the Workload: those that are valid Kubernetes labels. Others are
/// skipped, such as Compose's labels with paths and lists.
fn carried(labels: &BTreeMap<String, String>) -> Map<String, Value> {
    let is_usable = |(key, value): &(&String, &String)| {
        check_key(key).is_ok() && check_value(value).is_ok() && !key.starts_with("tidegate.io/")
    };
    let usable = labels.iter().filter(is_usable).take(LABELS_MAX - 4);
    usable.map(|(key, value)| (key.clone(), value.as_str().into())).collect()
}

fn service(namespace: &Namespace, name: &Label, declared: &DeclaredService) -> Result<Object, String> {
    let port = |(name, port): (&String, &super::parse::DeclaredPort)| {
        let mut json = json!({
            "port": port.port, "protocol": port.protocol, "targetPort": port_name(port.target, port.protocol),
        });
        if !name.is_empty() {
            json["name"] = name.as_str().into();
        }
        json
    };
    let ports: Vec<_> = declared.ports.iter().map(port).collect();
    let mut spec = json!({ "type": declared.service_type, "selector": { SERVICE_LABEL: name.as_str() }, "ports": ports });
    let mut balancer = Map::new();
    if let Some(pool) = &declared.pool {
        balancer.insert("pool".to_owned(), pool.as_str().into());
    }
    if !declared.addresses.is_empty() {
        balancer.insert("addresses".to_owned(), declared.addresses.clone().into());
    }
    if !balancer.is_empty() {
        spec["loadBalancer"] = balancer.into();
    }
    object(&json!({
        "kind": "Service",
        "metadata": { "name": name.as_str(), "namespace": namespace.as_str() },
        "spec": spec,
    }))
}

/// Decodes an object and validates it as the control server does.
fn object(value: &Value) -> Result<Object, String> {
    decode(value, &Expect::default()).map_err(|violations| {
        let words = violations.iter().map(|violation| format!("{} {}", violation.pointer, violation.message));
        words.collect::<Vec<_>>().join("; ")
    })
}

/// Returns the name of a container port, such as `tcp-80`, whether or not the port is published on the
/// machine.
fn port_name(port: u16, protocol: Protocol) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    format!("{protocol}-{port}")
}

/// Returns the Workload name `node.container`, with characters replaced that names must not contain.
fn workload_name(node: &Name, container: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = container.chars().map(letter).collect();
    format!("{node}.{}", name.trim_matches('-'))
}

/// Returns a line for each network whose subnet is also used by engines on other machines.
fn equal_subnets(host: &Host, engine: &EngineState, elsewhere: &Elsewhere) -> Vec<String> {
    let mut lines = Vec::new();
    for network in engine.networks.values() {
        for subnet in &network.subnets {
            let nodes: Vec<_> = elsewhere.subnets.get(subnet).into_iter().flatten().cloned().collect();
            if !nodes.is_empty() {
                lines.push(format!(
                    "network {} of Node {} has the subnet {subnet}, which containers on Node {} have \
                     too: addresses may collide; configure different subnets (`bip` and \
                     `default-address-pools` in daemon.json)",
                    network.name,
                    host.node,
                    nodes.join(", ")
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests;
