//! Which established flows a change would cut or move: told before it is made. Pure.

use std::collections::BTreeSet;

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    program::{Destination, Frontend, Program, Removal, Target},
};

use super::{Filter, Flow, plan::Dues};
use crate::dataplane::Desired;

/// The targets that frontends would lose, of those whose flows do not simply go on.
#[must_use]
pub fn lost(
    before: &Desired,
    after: &Desired,
    services: &BTreeSet<ServiceKey>,
) -> BTreeSet<(Frontend, Target)> {
    let program = |desired: &Desired, service: &ServiceKey| {
        desired.programs.get(service).map(|desired| desired.program.clone()).unwrap_or_default()
    };
    services.iter().flat_map(|service| lost_of(&program(before, service), &program(after, service))).collect()
}

fn lost_of(before: &Program, after: &Program) -> Vec<(Frontend, Target)> {
    let mut lost = Vec::new();
    for (frontend, route) in &before.frontends {
        let goes_on = frontend.protocol == Protocol::Tcp && route.removal == Removal::Keep;
        if goes_on {
            continue;
        }
        let kept = after.frontends.get(frontend).map(|route| route.all_targets()).unwrap_or_default();
        let gone = route.all_targets().into_iter().filter(|target| !kept.contains(target));
        lost.extend(gone.map(|target| (*frontend, target)));
    }
    lost
}

/// What the flows on these targets have in common; `None` when it is no single destination, and the look would be at too many.
#[must_use]
pub fn filter(targets: &BTreeSet<(Frontend, Target)>) -> Option<Filter> {
    let mut dues = Dues::default();
    for (frontend, target) in targets {
        dues.add_gone(*frontend, *target);
    }
    Some(dues.filter()).filter(|filter| filter.destination.is_some())
}

/// Whether a flow is on one of these targets.
#[must_use]
pub fn is_on(targets: &BTreeSet<(Frontend, Target)>, flow: &Flow) -> bool {
    targets.iter().any(|(frontend, target)| {
        frontend.destination == Destination::Address(flow.destination)
            && frontend.protocol == flow.protocol
            && frontend.ports.contains(flow.port)
            && target.address == flow.target
            && target.port.unwrap_or(flow.port) == flow.target_port
    })
}
