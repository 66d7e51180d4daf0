//! Application of the desired state: updates the frontends that each Service claims, and collects the objects
//! to plan again. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{kinds::resource::ServiceKey, primitives::net, program::Program, wire::report::FailureReason};

use super::{
    desired::{DirtyObjects, Wants},
    lower,
    mirror::IpvsMirror,
    plan,
};
use crate::{DesiredState, Outcome, Scope};

/// Services in the scope of a pass (update of the kernel), divided into those that this backend can program
/// and those that use an unsupported feature.
#[derive(Debug, Default)]
pub(super) struct ApplyResult {
    /// Services in the scope of the pass that the backend supports.
    pub(super) possible: BTreeSet<Arc<ServiceKey>>,
    /// Services in the scope of the pass that use an unsupported feature, with the failure to report.
    pub(super) impossible: BTreeMap<ServiceKey, Outcome>,
}

impl Wants {
    /// Applies the desired state of the Services in the scope of a pass, and marks the affected kernel
    /// objects as dirty, that is, to be planned again.
    pub(super) fn take_over(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
        mirror: &IpvsMirror,
        touched: &mut DirtyObjects,
    ) -> ApplyResult {
        let mut taken = ApplyResult::default();
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
        desired: &DesiredState,
        service: &ServiceKey,
        touched: &mut DirtyObjects,
        taken: &mut ApplyResult,
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

    /// Updates the addresses on which node ports are served. If these have changed, marks all node ports as
    /// dirty, that is, to be planned again.
    pub(super) fn renew_node_addresses(&mut self, mirror: &IpvsMirror, touched: &mut DirtyObjects) {
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

/// Returns a copy of `program` that uses only features of IPVS: each unsupported feature is replaced.
///
/// # Errors
/// Returns a message that names the first feature without a replacement.
fn wanted(program: &Program) -> Result<Program, String> {
    let lowered = lower::lower(program)?;
    Ok(Program { virtual_addresses: program.virtual_addresses.clone(), ..lowered })
}
