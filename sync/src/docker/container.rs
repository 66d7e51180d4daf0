//! Containers, engines and networks in a reduced form: only the fields that affect objects, limited in size.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, EndpointSettings, HealthStatusEnum,
    Network as EngineNetwork, PortMap,
};
use model::kinds::service::Protocol;

/// Maximum number of labels read per container.
const LABELS_MAX: usize = 500;
/// Maximum number of networks, and of ports, read per container.
const ITEMS_MAX: usize = 200;

/// Container as described by the engine, reduced to the fields that affect its Workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    /// Container name without the leading slash that the engine adds.
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) life: Life,
    /// Result of the health check; `None` if the container has none.
    pub(super) is_healthy: Option<bool>,
    pub(super) mode: NetworkMode,
    pub(super) networks: BTreeMap<String, Attachment>,
    /// Exposed ports with their published bindings.
    pub(super) ports: BTreeMap<(u16, Protocol), Vec<PublishedPort>>,
    /// Signal that stops the container, if the image or the container sets one.
    pub(super) stop_signal: Option<String>,
}

/// Lifecycle phase of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// Created, but not started yet.
    #[default]
    Waiting,
    Running,
    Paused,
    /// Stopping or being removed; receives no new connections.
    Ending,
    /// Exited with code 0: completed, and not expected to serve again.
    Ended,
    /// Exited with a code other than 0, or dead.
    Failed,
}

/// Network mode of a container (`HostConfig.NetworkMode`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum NetworkMode {
    /// Network namespace of the container itself, connected to networks of the engine.
    #[default]
    Own,
    /// Network namespace of the host.
    Host,
    /// Network namespace of another container; contains the id or name of that container.
    Of(String),
    /// Network namespace without any network except loopback.
    None,
}

/// Attachment of a container to a network, with its addresses in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) network_id: String,
    pub(super) addresses: Vec<IpAddr>,
}

/// Port of the machine that the engine forwards to a container port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PublishedPort {
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

/// Network of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) subnets: Vec<String>,
    pub(super) driver: String,
    /// Name of the bridge interface on the machine, if there is one.
    pub(super) link: Option<String>,
    /// True if other machines can reach containers in the network by their addresses, even with engines that
    /// drop such traffic by default.
    pub(super) is_open: bool,
}

impl Container {
    /// Converts the engine's description of a container.
    pub(super) fn of(inspected: ContainerInspectResponse) -> Self {
        let config = inspected.config.unwrap_or_default();
        let settings = inspected.network_settings.unwrap_or_default();
        let state = inspected.state.unwrap_or_default();
        let mode = inspected.host_config.and_then(|config| config.network_mode).unwrap_or_default();
        let mut ports = ports(settings.ports.unwrap_or_default());
        for exposed in config.exposed_ports.unwrap_or_default().iter().take(ITEMS_MAX) {
            if let Some(port) = port(exposed) {
                ports.entry(port).or_default();
            }
        }
        Self {
            id: inspected.id.unwrap_or_default(),
            name: inspected.name.unwrap_or_default().trim_start_matches('/').to_owned(),
            labels: config.labels.unwrap_or_default().into_iter().take(LABELS_MAX).collect(),
            is_healthy: is_healthy(&state),
            life: life(&state),
            mode: network_mode(&mode),
            networks: networks(settings.networks.unwrap_or_default()),
            ports,
            stop_signal: config.stop_signal,
        }
    }
}

impl Network {
    /// Converts the engine's description of a network, and returns it with its id; `None` without an id or
    /// name.
    pub(super) fn of(network: EngineNetwork) -> Option<(String, Self)> {
        let option = |name: &str| network.options.as_ref().and_then(|options| options.get(name)).cloned();
        let gateway_mode = option("com.docker.network.bridge.gateway_mode_ipv4").unwrap_or_default();
        let is_trusting = option("com.docker.network.bridge.trusted_host_interfaces")
            .is_some_and(|names| !names.is_empty());
        let driver = network.driver.unwrap_or_default();
        let is_open = driver != "bridge"
            || matches!(gateway_mode.as_str(), "routed" | "nat-unprotected")
            || is_trusting;
        let pools = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
        let subnets = pools.into_iter().take(ITEMS_MAX).filter_map(|pool| pool.subnet).collect();
        let id = network.id?;
        // Default name of a bridge interface.
        let link =
            || option("com.docker.network.bridge.name").or_else(|| Some(format!("br-{}", id.get(..12)?)));
        let link = if driver == "bridge" { link() } else { None };
        Some((id, Self { name: network.name?, subnets, driver, link, is_open }))
    }
}

fn life(state: &ContainerState) -> Life {
    let ended = || if state.exit_code.unwrap_or(0) == 0 { Life::Ended } else { Life::Failed };
    match state.status {
        Some(ContainerStateStatusEnum::RUNNING) => Life::Running,
        Some(ContainerStateStatusEnum::PAUSED) => Life::Paused,
        Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::STOPPING) => Life::Ending,
        Some(ContainerStateStatusEnum::EXITED) => ended(),
        Some(ContainerStateStatusEnum::DEAD) => Life::Failed,
        Some(ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::RESTARTING) => Life::Waiting,
        Some(ContainerStateStatusEnum::EMPTY) | None => {
            if state.running == Some(true) {
                Life::Running
            } else {
                ended()
            }
        }
    }
}

fn is_healthy(state: &ContainerState) -> Option<bool> {
    match state.health.as_ref()?.status? {
        HealthStatusEnum::HEALTHY => Some(true),
        HealthStatusEnum::STARTING | HealthStatusEnum::UNHEALTHY => Some(false),
        HealthStatusEnum::NONE | HealthStatusEnum::EMPTY => None,
    }
}

fn network_mode(text: &str) -> NetworkMode {
    match text.split_once(':') {
        Some(("container", other)) => NetworkMode::Of(other.to_owned()),
        _ if text == "host" => NetworkMode::Host,
        _ if text == "none" => NetworkMode::None,
        _ => NetworkMode::Own,
    }
}

fn networks(networks: HashMap<String, EndpointSettings>) -> BTreeMap<String, Attachment> {
    let attachment = |(name, settings): (String, EndpointSettings)| {
        let texts = settings.ip_address.into_iter().chain(settings.global_ipv6_address);
        let addresses = texts.filter_map(|text| text.parse().ok()).collect();
        (name, Attachment { network_id: settings.network_id.unwrap_or_default(), addresses })
    };
    networks.into_iter().take(ITEMS_MAX).map(attachment).collect()
}

fn ports(ports: PortMap) -> BTreeMap<(u16, Protocol), Vec<PublishedPort>> {
    let mut found = BTreeMap::new();
    for (text, bindings) in ports.into_iter().take(ITEMS_MAX) {
        let Some(port) = port(&text) else { continue };
        let bindings = bindings.unwrap_or_default().into_iter().take(ITEMS_MAX);
        let mut bindings: Vec<_> = bindings
            .filter_map(|binding| {
                let address = binding.host_ip.filter(|text| !text.is_empty());
                let address = address.map_or(Ok(IpAddr::from([0; 4])), |text| text.parse()).ok()?;
                Some(PublishedPort { address, port: binding.host_port?.parse().ok()? })
            })
            .collect();
        bindings.sort();
        found.insert(port, bindings);
    }
    found
}

/// Parses a port such as `80/tcp`.
fn port(text: &str) -> Option<(u16, Protocol)> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    Some((port.parse().ok().filter(|port| *port > 0)?, protocol))
}
