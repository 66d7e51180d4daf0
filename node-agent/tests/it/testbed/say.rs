//! Builders of Services for the test bed, in the compiled form that agents receive.

use std::net::IpAddr;

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        resource::ServiceKey,
        service::{Protocol, Scheduler, SourceRangesScope, TrafficDistribution, TrafficPolicy},
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::Weight,
    },
};

use model::program::NodeLocation;

use super::Spot;
use crate::support::programs::{key, port};

pub fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

/// Returns the node and zone of the node under test: n1 in zone z1.
pub fn place() -> NodeLocation {
    NodeLocation { node: Name::parse("n1").unwrap(), zone: Some(label("z1")) }
}

/// Returns the names of the node and zone to which a host belongs.
fn home(spot: Spot) -> (&'static str, &'static str) {
    match spot {
        Spot::A | Spot::B | Spot::C | Spot::Node => ("n1", "z1"),
        Spot::D => ("n2", "z2"),
        Spot::E => ("n3", "z1"),
        Spot::Client => ("elsewhere", "z9"),
    }
}

/// Builds a ready endpoint on a host.
pub fn endpoint(spot: Spot, family: IpFamily, number: u16) -> CompiledEndpoint {
    let (node, zone) = home(spot);
    CompiledEndpoint {
        address: spot.address(family),
        port: port(number),
        node: Some(Name::parse(node).unwrap()),
        zone: Some(label(zone)),
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    }
}

/// Builder of a Service. Each setting applies to the whole Service or to the port that was added last.
#[derive(Debug, Clone)]
pub struct Build {
    pub service: CompiledService,
    family: IpFamily,
}

impl Build {
    pub fn new(name: &str, family: IpFamily) -> Self {
        let service = CompiledService { ip_families: vec![family], ..CompiledService::new(key(name)) };
        Self { service, family }
    }

    pub fn key(&self) -> ServiceKey {
        self.service.service.clone()
    }

    pub fn cluster_ip(mut self, address: IpAddr) -> Self {
        self.service.cluster_ips.push(address);
        self
    }

    pub fn external_ip(mut self, address: IpAddr) -> Self {
        self.service.external_ips.push(address);
        self
    }

    pub fn load_balancer_ip(mut self, address: IpAddr) -> Self {
        self.service.load_balancer_ips.push(address);
        self
    }

    /// Adds a port with endpoints on the hosts `spots`, at target port 8080.
    pub fn port(self, protocol: Protocol, number: u16, spots: &[Spot]) -> Self {
        self.port_to(protocol, number, 8080, spots)
    }

    pub fn tcp(self, number: u16, spots: &[Spot]) -> Self {
        self.port(Protocol::Tcp, number, spots)
    }

    pub fn udp(self, number: u16, spots: &[Spot]) -> Self {
        self.port(Protocol::Udp, number, spots)
    }

    /// Adds a port over TCP and the same port over UDP, with endpoints on the hosts `spots`.
    pub fn both(self, number: u16, spots: &[Spot]) -> Self {
        self.tcp(number, spots).udp(number, spots)
    }

    pub fn port_to(mut self, protocol: Protocol, number: u16, target: u16, spots: &[Spot]) -> Self {
        let family = self.family;
        let mut endpoints: Vec<_> = spots.iter().map(|spot| endpoint(*spot, family, target)).collect();
        endpoints.sort();
        let index = self.service.ports.len();
        self.service.ports.push(CompiledPort {
            name: Some(label(&format!("p{index}"))),
            protocol,
            port: port(number),
            end_port: None,
            node_port: None,
            endpoints,
        });
        self
    }

    /// Turns the port that was added last into a port range that ends at `end`.
    pub fn to(mut self, end: u16) -> Self {
        self.last().end_port = Some(port(end));
        self
    }

    /// Adds a node port to the port that was added last.
    pub fn node_port(mut self, number: u16) -> Self {
        self.last().node_port = Some(port(number));
        self
    }

    /// Applies `change` to the endpoints on a host, at all ports.
    pub fn at(mut self, spot: Spot, change: impl Fn(&mut CompiledEndpoint)) -> Self {
        let address = spot.address(self.family);
        let endpoints = self.service.ports.iter_mut().flat_map(|port| &mut port.endpoints);
        endpoints.filter(|endpoint| endpoint.address == address).for_each(change);
        self
    }

    pub fn weight(self, spot: Spot, weight: u16) -> Self {
        self.at(spot, |endpoint| endpoint.weight = Weight(weight))
    }

    pub fn not_ready(self, spot: Spot) -> Self {
        self.at(spot, |endpoint| {
            endpoint.ready = false;
            endpoint.serving = false;
        })
    }

    /// Marks the endpoint on a host as terminating but still serving.
    pub fn terminating(self, spot: Spot) -> Self {
        self.at(spot, |endpoint| {
            endpoint.ready = false;
            endpoint.terminating = true;
        })
    }

    pub fn affinity(mut self, seconds: u32) -> Self {
        self.service.affinity_seconds = Some(seconds);
        self
    }

    pub fn internal_local(mut self) -> Self {
        self.service.internal_traffic_policy = TrafficPolicy::Local;
        self
    }

    pub fn external_local(mut self) -> Self {
        self.service.external_traffic_policy = TrafficPolicy::Local;
        self
    }

    pub fn prefer(mut self, distribution: TrafficDistribution) -> Self {
        self.service.traffic_distribution = Some(distribution);
        self
    }

    pub fn sources(mut self, ranges: &[&str]) -> Self {
        self.service.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        self
    }

    /// Restricts the source ranges to load balancer addresses.
    pub fn load_balancer_only(mut self) -> Self {
        self.service.source_ranges_scope = SourceRangesScope::LoadBalancerOnly;
        self
    }

    pub fn scheduler(mut self, name: &str) -> Self {
        self.service.scheduler = Some(Scheduler(label(name)));
        self
    }

    fn last(&mut self) -> &mut CompiledPort {
        self.service.ports.last_mut().expect("a port was named")
    }
}
