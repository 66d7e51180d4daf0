//! What matters of a container, an engine and its networks, in our words; bounded, whatever the engine says.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, EndpointSettings, HealthStatusEnum,
    Network as EngineNetwork, PortMap,
};
use model::kinds::service::Protocol;

/// Labels looked at of one container.
const LABELS_MAX: usize = 500;
/// Networks, and ports, looked at of one container.
const ITEMS_MAX: usize = 200;

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    /// Without the slash.
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) life: Life,
    /// `None` without a health check.
    pub(super) is_healthy: Option<bool>,
    pub(super) mode: NetworkMode,
    pub(super) networks: BTreeMap<String, Attachment>,
    /// Exposed ports, with where they are published.
    pub(super) ports: BTreeMap<(u16, Protocol), Vec<Binding>>,
    /// The signal that stops it.
    pub(super) stop_signal: Option<String>,
}

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// It will run.
    #[default]
    Waiting,
    Running,
    Paused,
    /// It is being stopped, or removed.
    Ending,
    /// It has ended well.
    Ended,
    /// It has ended otherwise.
    Failed,
}

/// Whose network a container uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum NetworkMode {
    /// Its own.
    #[default]
    Own,
    /// The machine's.
    Host,
    /// Another container's, by id or name.
    Of(String),
    /// None.
    None,
}

/// A container's place in a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) network_id: String,
    pub(super) addresses: Vec<IpAddr>,
}

/// Where a port is published on the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Binding {
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

/// A network of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) subnets: Vec<String>,
    pub(super) driver: String,
    /// The link that is its bridge on the machine, if it has one.
    pub(super) link: Option<String>,
    /// Whether other machines reach containers in it by their addresses, also with engines that drop such traffic unless
    /// it is allowed.
    pub(super) is_open: bool,
}

impl Container {
    /// What the engine says of a container.
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
    /// What the engine says of a network: its id, and the rest.
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
        // What the engine calls a bridge that has no name of its own.
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

fn ports(ports: PortMap) -> BTreeMap<(u16, Protocol), Vec<Binding>> {
    let mut found = BTreeMap::new();
    for (text, bindings) in ports.into_iter().take(ITEMS_MAX) {
        let Some(port) = port(&text) else { continue };
        let bindings = bindings.unwrap_or_default().into_iter().take(ITEMS_MAX);
        let mut bindings: Vec<_> = bindings
            .filter_map(|binding| {
                let address = binding.host_ip.filter(|text| !text.is_empty());
                let address = address.map_or(Ok(IpAddr::from([0; 4])), |text| text.parse()).ok()?;
                Some(Binding { address, port: binding.host_port?.parse().ok()? })
            })
            .collect();
        bindings.sort();
        found.insert(port, bindings);
    }
    found
}

/// Reads `80/tcp`.
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
