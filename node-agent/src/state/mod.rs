//! State received from the control server: the last complete and consistent version, in memory. Does no I/O.

pub mod defaults;
pub mod desired;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use imbl::OrdMap;
use model::{
    cluster::compiled::CompiledService,
    kinds::resource::ServiceKey,
    primitives::quantity::Position,
    wire::feed::{AddressState, NetworkState, NodeState, StartMode},
};

use crate::feed::machine::{self, Batch, ServiceChange, StreamFault};

/// Compiled Services (with resolved endpoints) by key. Clones share all data.
pub type Services = OrdMap<ServiceKey, Arc<CompiledService>>;
/// Load balancer addresses with their state. Clones share all data.
pub type Addresses = OrdMap<IpAddr, Arc<AddressState>>;

/// Last complete state from the control server. Clones are cheap, so the journal can write one out while the
/// agent continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    position: Option<Position>,
    network: NetworkState,
    node: NodeState,
    services: Services,
    addresses: Addresses,
}

/// Objects that a batch of state changes added, changed or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedObjects {
    /// Services that changed or were removed.
    pub services: BTreeSet<ServiceKey>,
    /// Load balancer addresses that changed or were removed.
    pub addresses: BTreeSet<IpAddr>,
    /// True if the cluster-wide settings changed.
    pub network: bool,
    /// True if the settings of this node changed, BGP excepted.
    pub node: bool,
    /// True if the BGP settings of this node changed.
    pub bgp: bool,
}

impl State {
    /// Returns the position (epoch and revision) of the state, or `None` before the first complete state.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns the cluster-wide settings.
    #[must_use]
    pub const fn network(&self) -> &NetworkState {
        &self.network
    }

    /// Returns the settings of this node.
    #[must_use]
    pub const fn node(&self) -> &NodeState {
        &self.node
    }

    /// Returns the Services.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the load balancer addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Applies a whole batch and returns the changed objects. A full state removes everything that it does
    /// not contain.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if the batch leads to an older position (epoch and revision) or
    /// is a delta that does not start from the current one.
    pub fn apply(&mut self, batch: Batch) -> Result<ChangedObjects, StreamFault> {
        let Batch { mode, network, node, services, addresses, position, traces: _ } = batch;
        machine::check(self.position, mode, position)?;
        let mut touched = ChangedObjects::default();
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

    /// Converts the state into a full batch, which any agent state can apply to become this state.
    ///
    /// # Panics
    /// Panics if no state has been received yet.
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
            position: position.expect("a state that applied a batch has a position"),
            traces: Vec::new(),
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

/// Assigns `value` to `place` and returns true if it differs from the previous value.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let differs = *place != value;
    *place = value;
    differs
}
