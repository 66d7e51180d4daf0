//! Impact of a planned change on established flows: the flows that it would terminate or move. Does no I/O.

use std::collections::BTreeSet;

use kernel::conntrack::{Filter, Flow};
use model::{
    kinds::service::Protocol,
    program::{Destination, Frontend, Program, Removal, Target},
};

use super::plan::Dues;

/// Returns the targets that frontends of a Service would lose if its packet program changed from `before` to
/// `after`. Omits TCP frontends with [`Removal::Keep`], whose connections continue after a target is removed.
#[must_use]
pub fn lost(before: &Program, after: &Program) -> Vec<(Frontend, Target)> {
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

/// Returns criteria that limit a dump to flows to these targets; `None` if the frontends have no common
/// destination, because the dump would contain too many flows.
#[must_use]
pub fn filter(targets: &BTreeSet<(Frontend, Target)>) -> Option<Filter> {
    let mut dues = Dues::default();
    for (frontend, target) in targets {
        dues.add_gone(*frontend, *target);
    }
    Some(dues.filter()).filter(|filter| filter.destination.is_some())
}

/// Returns true if the flow goes to one of these targets through the frontend paired with the target.
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
