//! Taking over what Services ask for. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{kinds::resource::ServiceKey, primitives::net, program::Program, wire::report::FailureReason};

use super::{
    desired::{Touched, Wants},
    lower,
    mirror::Mirror,
    plan,
};
use crate::dataplane::{Desired, Outcome, Scope};

/// What came of taking over.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Services that can be carried out here.
    pub(super) possible: BTreeSet<Arc<ServiceKey>>,
    /// Those that cannot, and why.
    pub(super) impossible: BTreeMap<ServiceKey, Outcome>,
}

impl Wants {
    /// Takes over what the Services in scope ask for; notes what that touches.
    pub(super) fn take_over(
        &mut self,
        desired: &Desired,
        scope: &Scope,
        mirror: &Mirror,
        touched: &mut Touched,
    ) -> Taken {
        let mut taken = Taken::default();
        if *scope == Scope::Everything {
            *self = Self::default();
        }
        if self.networks != desired.networks {
            self.networks = desired.networks.clone();
        }
        self.renew_node_addresses(mirror, touched);
        match scope {
            Scope::Everything => {
                for service in desired.programs.keys() {
                    self.take_over_one(desired, service, touched, &mut taken);
                }
                plan::touch_all(mirror, touched);
            }
            Scope::Services(services) => {
                for service in services {
                    self.take_over_one(desired, service, touched, &mut taken);
                }
            }
        }
        taken
    }

    fn take_over_one(
        &mut self,
        desired: &Desired,
        service: &ServiceKey,
        touched: &mut Touched,
        taken: &mut Taken,
    ) {
        match desired.programs.get(service).map(|desired| wanted(&desired.program)) {
            None => self.replace(service, None, touched),
            Some(Ok(lowered)) => {
                self.replace(service, Some(Arc::new(lowered)), touched);
                taken.possible.insert(Arc::new(service.clone()));
            }
            Some(Err(message)) => {
                self.replace(service, None, touched);
                let outcome = Outcome::Failed { reason: FailureReason::Unsupported, message };
                taken.impossible.insert(service.clone(), outcome);
            }
        }
    }

    /// Takes over which addresses node ports answer at; touches the node ports if that changed.
    pub(super) fn renew_node_addresses(&mut self, mirror: &Mirror, touched: &mut Touched) {
        let nets = &self.networks.node_ports;
        let answers = |address: &&IpAddr| {
            net::forbidden(**address).is_none() && nets.iter().any(|net| net.contains(*address))
        };
        let now: BTreeSet<_> = mirror.other_addresses.iter().filter(answers).copied().collect();
        if now != self.node_addresses {
            self.touch_node_ports(touched);
            self.node_addresses = now;
            self.touch_node_ports(touched);
        }
    }
}

/// The program as it is carried out here. Addresses that are closed because they are bound here, and not because the
/// Service owns them whole, are left to the plan, which knows what is bound.
fn wanted(program: &Program) -> Result<Program, String> {
    let lowered = lower::lower(program)?;
    Ok(Program { virtual_addresses: program.virtual_addresses.clone(), ..lowered })
}
