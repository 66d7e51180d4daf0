//! Lowering of packet programs for userspace mode, in which a relay process forwards the connections.

use std::sync::Arc;

use crate::program::{Masquerade, Program, Route, Verdict};

/// Returns a copy of `program` changed to the behavior of userspace mode: verdicts and targets stay the same,
/// but all sources are masqueraded, because the relay opens the connections to the targets.
#[must_use]
pub fn expect(program: &Program) -> Program {
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Forward { targets, .. } => {
            Verdict::Forward { masquerade: Masquerade::Always, targets: Arc::clone(targets) }
        }
        Verdict::Reject | Verdict::Drop | Verdict::Relay { .. } => verdict.clone(),
    };
    let route = |route: &Route| Route {
        from_workloads: verdict(&route.from_workloads),
        from_node: verdict(&route.from_node),
        from_elsewhere: verdict(&route.from_elsewhere),
        ..route.clone()
    };
    Program {
        frontends: program.frontends.iter().map(|(frontend, it)| (*frontend, route(it))).collect(),
        ..program.clone()
    }
}
