//! The health check node ports: where whoever balances between the nodes asks whether this one has endpoints.
//!
//! No backend has a part in it: the agent listens itself, on the addresses at which node ports answer. A port that is
//! taken by another program is that one Service's failure, and is tried again. What must not happen here: a request that
//! holds the loop, or an answer that says `healthy` while the node cannot be programmed.

mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::{net::IpFamily, quantity::Port},
    program::oracle::Networks,
};
use tracing::{info, warn};

use self::serve::{Answers, Listening, Server};
use crate::{
    dataplane::{Desired, Scope},
    facts,
};

/// Wait before a port that could not be had is tried again, and between looks at the node's addresses.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The listeners of a node.
#[derive(Default)]
pub struct HealthPorts {
    /// What each Service asks for: its port, and how many ready endpoints are here.
    asked: BTreeMap<ServiceKey, (Port, u32)>,
    open: BTreeMap<SocketAddr, Listening>,
    failures: BTreeMap<ServiceKey, String>,
    answers: Arc<Answers>,
    /// Made with the first port: most nodes have none.
    server: Option<Server>,
    networks: Networks,
    retry_at: Option<Instant>,
    is_changed: bool,
}

impl HealthPorts {
    /// Takes over what the Services in scope ask for; costs what those cost.
    pub fn follow(&mut self, scope: &Scope, desired: &Desired) {
        match scope {
            Scope::Services(services) => services.iter().for_each(|service| self.take(service, desired)),
            Scope::Everything => {
                let known: BTreeSet<_> = self.asked.keys().chain(desired.programs.keys()).cloned().collect();
                known.iter().for_each(|service| self.take(service, desired));
            }
        }
        if self.networks != desired.networks {
            self.networks.clone_from(&desired.networks);
            self.is_changed = true;
        }
    }

    fn take(&mut self, service: &ServiceKey, desired: &Desired) {
        let asked = desired.programs.get(service).and_then(|desired| desired.program.health_check);
        let asked = asked.map(|asked| (asked.port, asked.local_endpoints));
        let before = match asked {
            Some(asked) => self.asked.insert(service.clone(), asked),
            None => self.asked.remove(service),
        };
        self.is_changed |= before != asked;
    }

    /// Listens where it should and only there, and tells what is true. Answers whether the failures are others.
    pub fn turn(&mut self, is_healthy: bool, now: Instant) -> bool {
        self.answers.set_healthy(is_healthy);
        if !self.is_changed && self.retry_at.is_none_or(|at| now < at) {
            return false;
        }
        self.is_changed = false;
        let before = std::mem::take(&mut self.failures);
        self.listen();
        // The node's addresses may change, and a port that was taken may be free again.
        self.retry_at = (!self.asked.is_empty()).then_some(now + RETRY_INTERVAL);
        for (service, message) in &self.failures {
            if before.get(service) != Some(message) {
                warn!(%service, message, "the health check node port is not served");
            }
        }
        for service in before.keys().filter(|service| !self.failures.contains_key(*service)) {
            info!(%service, "the health check node port is as it should be again");
        }
        before != self.failures
    }

    /// When [`Self::turn`] has something to do, if nothing is followed before.
    #[must_use]
    pub const fn next_turn(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The Services whose port is not served, and why.
    #[must_use]
    pub const fn failures(&self) -> &BTreeMap<ServiceKey, String> {
        &self.failures
    }

    fn listen(&mut self) {
        let mut served: BTreeMap<Port, (ServiceKey, u32)> = BTreeMap::new();
        for (service, (port, local_endpoints)) in &self.asked {
            if let Some((owner, _)) = served.get(port) {
                let message = format!("health check node port {port} is already that of Service {owner}");
                self.failures.insert(service.clone(), message);
            } else {
                served.insert(*port, (service.clone(), *local_endpoints));
            }
        }
        let places = if served.is_empty() { BTreeSet::new() } else { places(&self.networks) };
        self.open.retain(|address, _| {
            let is_asked = Port::new(address.port()).is_some_and(|port| served.contains_key(&port));
            is_asked && places.contains(&address.ip())
        });
        for (port, (service, _)) in &served {
            let addresses = places.iter().map(|place| SocketAddr::new(*place, port.get()));
            let closed: Vec<_> = addresses.filter(|address| !self.open.contains_key(address)).collect();
            for address in closed {
                if let Err(error) = self.open(address) {
                    let message =
                        format!("health check node port {port} cannot be served at {address}: {error}");
                    self.failures.insert(service.clone(), message);
                }
            }
        }
        self.answers.set_ports(served);
    }

    fn open(&mut self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).or_else(|error| match address.ip() {
            // A machine without IPv6.
            IpAddr::V6(ip) if ip.is_unspecified() && error.raw_os_error() == Some(NO_IPV6) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Err(error),
        })?;
        let server = match self.server.take() {
            Some(server) => server,
            None => Server::start()?,
        };
        let listening = server.serve(listener, Arc::clone(&self.answers));
        self.server = Some(server);
        self.open.insert(address, listening?);
        Ok(())
    }
}

const NO_IPV6: i32 = nix::errno::Errno::EAFNOSUPPORT as i32;

/// Where to listen: everywhere, if node ports answer everywhere; else at the node's addresses in those networks.
fn places(networks: &Networks) -> BTreeSet<IpAddr> {
    let has_all = |family| {
        let mut networks = networks.node_ports.iter();
        networks.any(|network| network.prefix_len() == 0 && IpFamily::of_net(network) == family)
    };
    // One listener there hears both families.
    if has_all(IpFamily::V4) && has_all(IpFamily::V6) {
        return BTreeSet::from([IpAddr::V6(Ipv6Addr::UNSPECIFIED)]);
    }
    let mut places: BTreeSet<IpAddr> = facts::local_addresses().unwrap_or_default();
    // A link-local address would need its interface.
    places.retain(|place| {
        let is_link_local = matches!(place, IpAddr::V6(place) if place.is_unicast_link_local());
        !is_link_local && networks.node_ports.iter().any(|network| network.contains(place))
    });
    places
}
