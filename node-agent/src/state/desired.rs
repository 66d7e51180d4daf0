//! Derives the desired kernel state from the received state, one Service at a time and only for changed
//! Services. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::limit_message;
use dataplane::{DesiredProgram, DesiredState};
use ipnet::IpNet;
use model::{
    cluster::compiled::{CompiledService, UnsupportedField},
    kinds::{node::ProxyMode, resource::ServiceKey},
    primitives::name::Name,
    program::{self as program, NodeLocation, Program},
    wire::report::{Failure, FailureReason},
};

use crate::{
    networks::networks,
    state::{ChangedObjects, State, defaults::ProxyDefaults},
};

/// Builder of the desired kernel state of a node, updated incrementally with the received state.
#[derive(Debug, Clone)]
pub struct DesiredBuilder {
    place: NodeLocation,
    defaults: ProxyDefaults,
    desired: DesiredState,
    unsupported: BTreeMap<ServiceKey, Failure>,
    unsupported_version: u64,
    /// Services whose connections should survive the loss of an announcing node, and do not on this node.
    severable: BTreeMap<ServiceKey, Failure>,
    /// Services whose connections should survive, whose programs depend on `networks` and on the mode.
    surviving: BTreeSet<ServiceKey>,
    /// Networks of the interfaces of this node.
    networks: BTreeSet<IpNet>,
    mode: ProxyMode,
}

/// Effect of a state change on the kernel, which determines the extent of the next kernel update.
#[derive(Debug)]
pub struct StateEffect {
    /// Services that the next kernel update must apply, including removed ones.
    pub services: BTreeSet<ServiceKey>,
    /// True if networks that the rules depend on have changed.
    pub networks: bool,
}

impl DesiredBuilder {
    /// Creates an empty desired state for the node with this name. `defaults` fills in settings that the Node
    /// object leaves out.
    #[must_use]
    pub fn new(node: Name, defaults: ProxyDefaults) -> Self {
        Self {
            place: NodeLocation { node, zone: None },
            defaults,
            desired: DesiredState::default(),
            unsupported: BTreeMap::new(),
            unsupported_version: 0,
            severable: BTreeMap::new(),
            surviving: BTreeSet::new(),
            networks: BTreeSet::new(),
            mode: ProxyMode::default(),
        }
    }

    /// Sets the networks of the interfaces of this node, on which other nodes are reached directly. Returns the
    /// Services whose programs have changed.
    pub fn set_networks(&mut self, networks: BTreeSet<IpNet>, state: &State) -> BTreeSet<ServiceKey> {
        if networks == self.networks {
            return BTreeSet::new();
        }
        self.networks = networks;
        let services = self.surviving.clone();
        for key in &services {
            if let Some(service) = state.services().get(key) {
                self.set(key, service);
            }
        }
        services
    }

    /// Returns true if programs depend on the networks of the interfaces.
    #[must_use]
    pub fn depends_on_networks(&self) -> bool {
        !self.surviving.is_empty()
    }

    /// Returns the Services that this node serves, but whose connections end with the node that announces their
    /// address, although they should survive.
    #[must_use]
    pub const fn severable(&self) -> &BTreeMap<ServiceKey, Failure> {
        &self.severable
    }

    /// Returns the name of the node.
    #[must_use]
    pub const fn node(&self) -> &Name {
        &self.place.node
    }

    /// Returns the desired kernel state of this node.
    #[must_use]
    pub const fn desired(&self) -> &DesiredState {
        &self.desired
    }

    /// Returns the Services that use features this agent does not support. The kernel must have no rules for
    /// them.
    #[must_use]
    pub const fn unsupported(&self) -> &BTreeMap<ServiceKey, Failure> {
        &self.unsupported
    }

    /// Returns a version that increases whenever [`Self::unsupported`] changes, so that callers need not
    /// compare the map.
    #[must_use]
    pub const fn unsupported_version(&self) -> u64 {
        self.unsupported_version
    }

    /// Updates the desired kernel state after a change of the received state, and returns the extent of the
    /// kernel update that must follow.
    pub fn update(&mut self, state: &State, touched: ChangedObjects) -> StateEffect {
        let ChangedObjects {
            mut services,
            addresses: _,
            workload_networks: _,
            blocks: _,
            policy_sets: _,
            policy_workloads: _,
            network,
            node,
            bgp: _,
            interfaces: _,
        } = touched;
        if node && self.place.zone != state.node().zone {
            // The zone decides which endpoints are near, so a new zone may change every program.
            self.place.zone.clone_from(&state.node().zone);
            services.extend(state.services().keys().cloned());
        }
        let mode = self.defaults.backend(state.node()).mode;
        if mode != self.mode {
            self.mode = mode;
            services.extend(self.surviving.iter().cloned());
        }
        for key in &services {
            match state.services().get(key) {
                Some(service) => self.set(key, service),
                None => self.remove(key),
            }
        }
        let mut followed = StateEffect { services, networks: false };
        if network || node {
            let networks = networks(state.network(), &self.defaults.fill(state.node()));
            followed.networks = networks != self.desired.networks;
            self.desired.networks = networks;
        }
        followed
    }

    fn set(&mut self, key: &ServiceKey, service: &CompiledService) {
        match program::program(service, &self.place) {
            Ok(mut program) => {
                self.clear_unsupported(key);
                self.divide(key, service, &mut program);
                let program = DesiredProgram { revision: service.revision, program: Arc::new(program) };
                self.desired.programs.insert(key.clone(), program);
            }
            Err(fields) => {
                self.desired.programs.remove(key);
                let failure = Failure {
                    revision: service.revision,
                    reason: FailureReason::Unsupported,
                    message: unsupported_message(&fields),
                };
                self.unsupported.insert(key.clone(), failure);
                self.unsupported_version += 1;
            }
        }
    }

    /// Puts the Service on the two-stage path, if its connections must survive.
    fn divide(&mut self, key: &ServiceKey, service: &CompiledService, program: &mut Program) {
        if service.survival.is_none() {
            self.surviving.remove(key);
            return;
        }
        self.surviving.insert(key.clone());
        let obstacles = match self.mode {
            ProxyMode::Nftables => {
                program::survival::divide(program, service, &self.place.node, &self.networks)
            }
            ProxyMode::Iptables | ProxyMode::Ipvs | ProxyMode::Userspace => {
                BTreeSet::from(["only mode nftables keeps connections".to_owned()])
            }
        };
        if !obstacles.is_empty() {
            let causes: Vec<_> = obstacles.into_iter().collect();
            let message = format!(
                "established connections end with the node that announces the address: {}",
                causes.join("; ")
            );
            let failure = Failure {
                revision: service.revision,
                reason: FailureReason::SurvivalUnavailable,
                message: limit_message(message),
            };
            self.severable.insert(key.clone(), failure);
            self.unsupported_version += 1;
        }
    }

    fn remove(&mut self, key: &ServiceKey) {
        self.desired.programs.remove(key);
        self.surviving.remove(key);
        self.clear_unsupported(key);
    }

    fn clear_unsupported(&mut self, key: &ServiceKey) {
        let (unsupported, severable) = (self.unsupported.remove(key), self.severable.remove(key));
        if unsupported.or(severable).is_some() {
            self.unsupported_version += 1;
        }
    }
}

fn unsupported_message(fields: &[UnsupportedField]) -> String {
    let texts: Vec<_> =
        fields.iter().map(|UnsupportedField { field, message }| format!("{field}: {message}")).collect();
    limit_message(texts.join("; "))
}
