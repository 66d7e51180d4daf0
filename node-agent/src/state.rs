//! The state this agent holds: what control said last, complete and consistent. Pure.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use imbl::OrdMap;
use model::{
    cluster::compiled::CompiledService,
    kinds::resource::ServiceKey,
    primitives::quantity::Position,
    wire::feed::{AddressState, NetworkState, NodeState, StartMode},
};

use crate::feed::machine::{self, Batch, ServiceChange, StreamFault};

/// Compiled Services by key; a clone shares everything.
pub type Services = OrdMap<ServiceKey, Arc<CompiledService>>;
/// Load balancer addresses; a clone shares everything.
pub type Addresses = OrdMap<IpAddr, Arc<AddressState>>;

/// What control said last. A clone is cheap: the journal writes one out while the agent goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    position: Option<Position>,
    network: NetworkState,
    node: NodeState,
    services: Services,
    addresses: Addresses,
}

/// What a batch changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Services that differ from before, or are gone.
    pub services: BTreeSet<ServiceKey>,
    /// Load balancer addresses that differ from before, or are gone.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether the facts about the cluster differ.
    pub network: bool,
    /// Whether the settings of this node differ, but for its BGP.
    pub node: bool,
    /// Whether its BGP differs.
    pub bgp: bool,
}

impl State {
    /// The position reached; `None` before the first complete state.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Facts about the cluster.
    #[must_use]
    pub const fn network(&self) -> &NetworkState {
        &self.network
    }

    /// The settings of this node.
    #[must_use]
    pub const fn node(&self) -> &NodeState {
        &self.node
    }

    /// The Services.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// The load balancer addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Takes a batch, whole. A full state is a difference like any other: what is not in it is gone.
    ///
    /// # Errors
    /// When the batch would lead backwards or does not follow from what is held; nothing has changed then.
    pub fn apply(&mut self, batch: Batch) -> Result<Touched, StreamFault> {
        let Batch { mode, network, node, services, addresses, position } = batch;
        machine::check(self.position, mode, position)?;
        let mut touched = Touched::default();
        let (network, node) = match mode {
            StartMode::Full => {
                let gone = self.services.keys().filter(|key| !services.contains_key(*key));
                touched.services.extend(gone.cloned());
                let gone = self.addresses.keys().filter(|address| !addresses.contains_key(*address));
                touched.addresses.extend(gone.copied());
                (Some(network.unwrap_or_default()), Some(node.unwrap_or_default()))
            }
            StartMode::Delta => (network, node),
        };
        for key in &touched.services {
            self.services.remove(key);
        }
        for address in &touched.addresses {
            self.addresses.remove(address);
        }
        for (address, change) in addresses {
            let differs = self.addresses.get(&address) != change.as_ref();
            match change {
                Some(state) => self.addresses.insert(address, state),
                None => self.addresses.remove(&address),
            };
            if differs {
                touched.addresses.insert(address);
            }
        }
        for (key, change) in services {
            if self.change(&key, change) {
                touched.services.insert(key);
            }
        }
        touched.network = network.is_some_and(|network| replace(&mut self.network, network));
        if let Some(node) = node {
            let bgp = self.node.bgp.take();
            touched.bgp = bgp != node.bgp;
            touched.node = replace(&mut self.node, NodeState { bgp: None, ..node.clone() });
            self.node = node;
        }
        self.position = Some(position);
        Ok(touched)
    }

    /// The whole state, as a batch that leads to it from any other.
    ///
    /// # Panics
    /// When there is no state yet: nothing leads to that.
    #[must_use]
    pub fn into_batch(self) -> Batch {
        let Self { position, network, node, services, addresses } = self;
        let services = services.into_iter().map(|(key, service)| (key, ServiceChange::Set(service)));
        Batch {
            mode: StartMode::Full,
            network: Some(network),
            node: Some(node),
            services: services.collect(),
            addresses: addresses.into_iter().map(|(address, state)| (address, Some(state))).collect(),
            position: position.expect("a state that took a batch has its position"),
        }
    }

    fn change(&mut self, key: &ServiceKey, change: ServiceChange) -> bool {
        match change {
            ServiceChange::Set(service) if self.services.get(key) == Some(&service) => false,
            ServiceChange::Set(service) => {
                self.services.insert(key.clone(), service);
                true
            }
            ServiceChange::Removed(_) => self.services.remove(key).is_some(),
        }
    }
}

/// Puts a value in place and says whether that made a difference.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let differs = *place != value;
    *place = value;
    differs
}
