//! Builders of Services, of feed frames (messages from a control server to the agent), and of batches
//! (changes from several frames that are applied together). Services with different numbers have different
//! addresses.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService, UnsupportedField},
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        name::Name,
        net::IpFamily,
        quantity::{Position, Revision, Weight},
    },
    program::NodeLocation,
    wire::feed::{Frame, NetworkState, NodeState, StartMode},
};
use node_agent::feed::machine::{Batch, NetworkChanges, PolicyUpdates, ServiceChange};

use super::programs::{key, port};

pub fn node_name() -> Name {
    Name::parse("n1").unwrap()
}

pub fn position(text: &str) -> Position {
    text.parse().unwrap()
}

pub fn place() -> NodeLocation {
    NodeLocation { node: node_name(), zone: None }
}

pub fn service_key(number: u16) -> ServiceKey {
    key(&format!("s{number}"))
}

pub fn cluster_ip(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 96, high, low))
}

/// Builds a TCP Service. `number` determines its name and address, and `endpoints` the number of its
/// endpoints.
pub fn service(number: u16, endpoints: u8, revision: u64) -> CompiledService {
    let endpoint = |index| CompiledEndpoint {
        address: IpAddr::V4(Ipv4Addr::new(10, 244, 1, index)),
        port: port(8080),
        node: None,
        zone: None,
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    };
    CompiledService {
        revision: Revision(revision),
        cluster_ips: vec![cluster_ip(number)],
        ip_families: vec![IpFamily::V4],
        ports: vec![CompiledPort {
            name: None,
            protocol: Protocol::Tcp,
            port: port(80),
            end_port: None,
            node_port: None,
            endpoints: (1..=endpoints).map(endpoint).collect(),
        }],
        ..CompiledService::new(service_key(number))
    }
}

/// Builds a TCP Service that contains a setting which no agent supports.
pub fn unsupported(number: u16, revision: u64) -> CompiledService {
    let field = UnsupportedField {
        field: "spec.sessionAffinity".to_owned(),
        message: "ClientIP is not built yet".to_owned(),
    };
    CompiledService { unsupported: vec![field], ..service(number, 1, revision) }
}

pub fn network(cidrs: &[&str]) -> NetworkState {
    NetworkState {
        workload_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        ..NetworkState::default()
    }
}

pub fn start(mode: StartMode, at: &str) -> Frame {
    Frame::Start { mode, position: position(at) }
}

pub fn set(service: CompiledService) -> Frame {
    Frame::Service { service: Arc::new(service) }
}

pub fn removed(number: u16, revision: u64) -> Frame {
    Frame::Removed { service: service_key(number), revision: Revision(revision) }
}

pub fn synced(at: &str) -> Frame {
    Frame::Synced {
        position: position(at),
        traces: Vec::new(),
        workload_networks: false,
        network_policy: false,
    }
}

pub fn heartbeat(at: &str) -> Frame {
    Frame::Heartbeat { position: position(at) }
}

/// Builds the feed frames of a full state at the position `at` (epoch and revision).
pub fn full_frames(at: &str, services: Vec<CompiledService>) -> Vec<Frame> {
    let head = [
        start(StartMode::Full, at),
        Frame::Network(NetworkState::default()),
        Frame::Node(NodeState::default()),
    ];
    head.into_iter().chain(services.into_iter().map(set)).chain([synced(at)]).collect()
}

/// Builds a batch that contains a full state at the position `at` (epoch and revision).
pub fn full(at: &str, services: Vec<CompiledService>) -> Batch {
    Batch {
        mode: StartMode::Full,
        network: Some(NetworkState::default()),
        node: Some(NodeState::default()),
        services: services.into_iter().map(change).collect(),
        addresses: BTreeMap::new(),
        networks: NetworkChanges { are_included: Some(false), ..NetworkChanges::default() },
        policy: PolicyUpdates { is_included: Some(false), ..PolicyUpdates::default() },
        position: position(at),
        traces: Vec::new(),
    }
}

/// Builds a batch (delta) up to the position `at` (epoch and revision) in which these Services have changed.
pub fn delta(at: &str, services: Vec<CompiledService>) -> Batch {
    Batch {
        mode: StartMode::Delta,
        network: None,
        node: None,
        services: services.into_iter().map(change).collect(),
        addresses: BTreeMap::new(),
        networks: NetworkChanges { are_included: Some(false), ..NetworkChanges::default() },
        policy: PolicyUpdates { is_included: Some(false), ..PolicyUpdates::default() },
        position: position(at),
        traces: Vec::new(),
    }
}

/// Builds a batch (delta) up to the position `at` (epoch and revision) that removes the Services with these
/// numbers.
pub fn without(at: &str, numbers: &[u16]) -> Batch {
    let revision = position(at).revision;
    let gone = |number: &u16| (service_key(*number), ServiceChange::Removed(revision));
    Batch { services: numbers.iter().map(gone).collect::<BTreeMap<_, _>>(), ..delta(at, Vec::new()) }
}

fn change(service: CompiledService) -> (ServiceKey, ServiceChange) {
    (service.service.clone(), ServiceChange::Set(Arc::new(service)))
}
