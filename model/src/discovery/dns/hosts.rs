//! Endpoints of a headless Service with their host names.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::reverse::label_of;
use crate::{
    cluster::{
        compiled::{CompiledEndpoint, CompiledPort},
        snapshot::Snapshot,
    },
    compile::headless_ports,
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        name::{LABEL_LENGTH_MAX, Label},
        quantity::Port,
    },
    program::usable,
};

/// Usable endpoints of a headless Service: those that are ready or, if none is, those that terminate and still serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    /// Endpoints by port. The endpoints of a Service without ports are in one entry without a name.
    pub(super) ports: Vec<HostPort>,
    /// Names of the endpoints, by address.
    names: BTreeMap<IpAddr, String>,
}

/// Port of a headless Service with its usable endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPort {
    /// Name of the port; `None` for an unnamed port.
    pub(super) name: Option<Label>,
    /// Transport protocol; `None` for the only entry of a Service without ports, which has no SRV records.
    pub(super) protocol: Option<Protocol>,
    /// Usable endpoints.
    pub(super) endpoints: Vec<Host>,
}

/// Usable endpoint at one port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Host {
    /// Address of the endpoint.
    pub(super) address: IpAddr,
    /// Port of the endpoint.
    pub(super) port: Port,
    /// Failure zone of the endpoint, if known.
    pub(super) zone: Option<Label>,
}

impl Hosts {
    /// Returns the endpoints of a headless Service, or `None` if the Service is not headless or does not exist.
    pub(super) fn of(snapshot: &Snapshot, key: &ServiceKey) -> Option<Self> {
        let spec = snapshot.service(key)?.as_service()?;
        if spec.is_external_name() || !spec.is_headless() {
            return None;
        }
        let compiled = headless_ports(snapshot, key)?;
        let has_ports = !spec.ports.is_empty();
        let ports: Vec<_> = compiled.iter().map(|port| HostPort::of(port, has_ports)).collect();
        let used: BTreeSet<_> =
            ports.iter().flat_map(|port| &port.endpoints).map(|host| host.address).collect();
        let workloads = snapshot.workloads_matching(&key.namespace, &spec.selector);
        let named = workloads.flat_map(|object| {
            let addresses = object.as_workload().map_or(&[][..], |workload| &workload.addresses);
            addresses.iter().map(|address| (*address, &object.metadata.name))
        });
        let sets = snapshot.endpoint_sets_of(key).filter_map(|object| object.as_endpoint_set());
        let given = sets.flat_map(|set| &set.endpoints);
        let given =
            given.filter_map(|endpoint| Some((endpoint.address, endpoint.hostname.as_ref()?.to_string())));
        // Of several names for one address, the first one by the name of the EndpointSet.
        let mut names: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (address, name) in given.filter(|(address, _)| used.contains(address)) {
            names.entry(address).or_insert(name);
        }
        for (address, name) in named.filter(|(address, name)| used.contains(address) && name.is_label()) {
            // Several Workloads with one address, as containers that share a network: the first by name.
            names.entry(address).or_insert_with(|| name.as_str().to_owned());
        }
        Some(Self { ports, names })
    }

    /// Returns the name of an endpoint below the Service: the host name in its EndpointSet, the name of its Workload or,
    /// without either, its address with dashes.
    pub(super) fn name_of(&self, address: IpAddr) -> String {
        let name = self.names.get(&address).filter(|name| name.len() <= LABEL_LENGTH_MAX);
        name.cloned().unwrap_or_else(|| label_of(address))
    }

    /// Returns the addresses of the endpoints, each once.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.hosts().map(|host| host.address).collect()
    }

    /// Returns the addresses of the endpoints with a name, by their Workload or their address with dashes.
    pub(super) fn addresses_named(&self, name: &str) -> BTreeSet<IpAddr> {
        self.hosts()
            .map(|host| host.address)
            .filter(|address| self.name_of(*address) == name || label_of(*address) == name)
            .collect()
    }

    /// Returns the addresses of the endpoints in a failure zone.
    pub(super) fn addresses_in(&self, zone: &Label) -> BTreeSet<IpAddr> {
        self.hosts().filter(|host| host.zone.as_ref() == Some(zone)).map(|host| host.address).collect()
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.ports.iter().flat_map(|port| &port.endpoints)
    }
}

impl HostPort {
    fn of(port: &CompiledPort, has_ports: bool) -> Self {
        let host = |endpoint: &CompiledEndpoint| Host {
            address: endpoint.address,
            port: endpoint.port,
            zone: endpoint.zone.clone(),
        };
        Self {
            name: port.name.clone(),
            protocol: has_ports.then_some(port.protocol),
            endpoints: usable(port).into_iter().map(host).collect(),
        }
    }
}
