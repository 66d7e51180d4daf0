//! Health check node ports: HTTP servers by which external load balancers check if this node has ready
//! endpoints of a Service.
//!
//! Independent of the proxy mode: the agent itself listens, on the addresses at which node ports are
//! reachable. If another program uses a port, only that Service fails, and the port is retried. Invariants: a
//! request never blocks the agent's loop, and the response is never `healthy` while the node's kernel cannot
//! be programmed.

mod connections;
mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use dataplane::{DesiredState, Scope};
use kernel::links::local_addresses;
use model::{
    kinds::resource::ServiceKey,
    primitives::{net::IpFamily, quantity::Port},
    program::oracle::Networks,
};
use tracing::{info, warn};

use self::serve::{Answers, Listening, Server};

/// Interval at which failed ports are retried and the node's addresses are updated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Listening sockets of the health check node ports of a node.
#[derive(Default)]
pub struct HealthPorts {
    /// Desired port and number of local ready endpoints, by Service.
    asked: BTreeMap<ServiceKey, (Port, u32)>,
    open: BTreeMap<SocketAddr, Listening>,
    failures: BTreeMap<ServiceKey, String>,
    answers: Arc<Answers>,
    /// HTTP server; `None` until the first port is opened, because most nodes need no port.
    server: Option<Server>,
    networks: Networks,
    retry_at: Option<Instant>,
    is_changed: bool,
}

impl HealthPorts {
    /// Updates the desired health check node ports of the Services in `scope`. The cost is proportional to
    /// the number of these Services.
    pub fn follow(&mut self, scope: &Scope, desired: &DesiredState) {
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

    fn take(&mut self, service: &ServiceKey, desired: &DesiredState) {
        let asked = desired.programs.get(service).and_then(|desired| desired.program.health_check);
        let asked = asked.map(|asked| (asked.port, asked.local_endpoints));
        let before = match asked {
            Some(asked) => self.asked.insert(service.clone(), asked),
            None => self.asked.remove(service),
        };
        self.is_changed |= before != asked;
    }

    /// Opens and closes sockets as needed, and updates the responses. `is_healthy` is false if the node's
    /// kernel cannot be programmed. Returns true if [`Self::failures`] has changed.
    pub fn turn(&mut self, is_healthy: bool, now: Instant) -> bool {
        self.answers.set_healthy(is_healthy);
        if !self.is_changed && self.retry_at.is_none_or(|at| now < at) {
            return false;
        }
        self.is_changed = false;
        let before = std::mem::take(&mut self.failures);
        self.listen();
        // The node's addresses may change, and a used port may become free.
        self.retry_at = (!self.asked.is_empty()).then_some(now + RETRY_INTERVAL);
        for (service, message) in &self.failures {
            if before.get(service) != Some(message) {
                warn!(%service, message, "the health check node port cannot be served");
            }
        }
        for service in before.keys().filter(|service| !self.failures.contains_key(*service)) {
            info!(%service, "the health check node port is served again");
        }
        before != self.failures
    }

    /// Returns the time at which [`Self::turn`] must be called even without changes, or `None` if only a
    /// change requires a call.
    #[must_use]
    pub const fn next_turn(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns the Services whose port is not open, with the reason.
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
            // The machine has no IPv6.
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

/// Returns the addresses to listen on: the wildcard address if node ports are served on all addresses,
/// otherwise the node's addresses in the configured networks.
fn places(networks: &Networks) -> BTreeSet<IpAddr> {
    let has_all = |family| {
        let mut networks = networks.node_ports.iter();
        networks.any(|network| network.prefix_len() == 0 && IpFamily::of_net(network) == family)
    };
    // One IPv6 socket receives both families.
    if has_all(IpFamily::V4) && has_all(IpFamily::V6) {
        return BTreeSet::from([IpAddr::V6(Ipv6Addr::UNSPECIFIED)]);
    }
    let mut places: BTreeSet<IpAddr> = local_addresses().unwrap_or_default();
    // A link-local address would need its interface.
    places.retain(|place| {
        let is_link_local = matches!(place, IpAddr::V6(place) if place.is_unicast_link_local());
        !is_link_local && networks.node_ports.iter().any(|network| network.contains(place))
    });
    places
}
