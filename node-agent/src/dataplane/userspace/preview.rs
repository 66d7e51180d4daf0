//! What a pass would change, without one: the capture rules by the backend that writes them, the listeners by what they
//! would be told.
//!
//! A listener that is yet to come has no port: the kernel gives it one that is free. In the lines of the rules it is `?`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::Port,
    program::{Program, oracle::Networks},
    wire::plan::{LineChange, LineFate},
};

use super::{
    UserspaceBackend,
    desired::{self, Policy, RelayId},
    listing::{self, Told},
};
use crate::dataplane::{Dataplane as _, Desired, DesiredProgram, KernelError, Scope};

/// What stands for a port that is not known.
const UNKNOWN_PORT: &str = "?";

/// Ports that stand for those of listeners to come, each for one, and for none that is there.
struct StandIns {
    used: BTreeSet<u16>,
    given: BTreeSet<u16>,
}

impl UserspaceBackend {
    /// The lines of the rules and of the listeners that would go and come; `None` when the rules cannot be previewed.
    pub(super) fn previewed(
        &mut self,
        desired: &Desired,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        let services = self.in_scope(desired, scope);
        let mut lowered = self.lowered.clone();
        if *scope == Scope::Everything {
            lowered.programs.clear();
        }
        lowered.networks = captured(&desired.networks);
        let mut stand_ins = self.stand_ins();
        let (mut gone, mut come) = (BTreeSet::new(), BTreeSet::new());
        for service in &services {
            let place = place(service);
            gone.extend(self.lines_of(service).into_iter().map(|line| (place.clone(), line)));
            lowered.programs.remove(service);
            let Some(DesiredProgram { revision, program }) = desired.programs.get(service) else { continue };
            if desired::check(program).is_err() {
                continue;
            }
            come.extend(wanted_lines(program).into_iter().map(|line| (place.clone(), line)));
            let program = Arc::new(self.lowered_with(&mut stand_ins, service, program));
            lowered.programs.insert(service.clone(), DesiredProgram { revision: *revision, program });
        }
        let Some(mut changes) = self.capture.preview(&lowered, scope)? else { return Ok(None) };
        for change in changes.iter_mut().filter(|change| change.change == LineFate::Added) {
            stand_ins.hide(&mut change.line);
        }
        let change = |change, (place, line): &(String, String)| LineChange {
            change,
            place: place.clone(),
            line: line.clone(),
        };
        changes.extend(gone.difference(&come).map(|line| change(LineFate::Removed, line)));
        changes.extend(come.difference(&gone).map(|line| change(LineFate::Added, line)));
        Ok(Some(changes))
    }

    /// What all listeners do, line by line, each with its place in a preview.
    #[must_use]
    pub fn listing(&self) -> BTreeSet<(String, String)> {
        let lines = |service| self.lines_of(service).into_iter().map(move |line| (place(service), line));
        self.services.keys().flat_map(lines).collect()
    }

    fn lines_of(&self, service: &ServiceKey) -> Vec<String> {
        let relays = self.services.get(service).into_iter().flatten();
        relays.flat_map(|(id, relay)| listing::of(*id, &relay.told())).collect()
    }

    /// The program of the rules, with a port that stands for that of each new listener.
    fn lowered_with(&self, stand_ins: &mut StandIns, service: &ServiceKey, program: &Program) -> Program {
        let known = self.services.get(service);
        let mut port = |id: &RelayId| match known.and_then(|relays| relays.get(id)) {
            Some(relay) => Some(relay.port),
            None => stand_ins.give(),
        };
        let ids = desired::relays(program).into_keys();
        let ports: BTreeMap<_, _> = ids.map(|id| (id, port(&id))).collect();
        desired::lower(program, |id| ports.get(&id).copied().flatten())
    }

    fn stand_ins(&self) -> StandIns {
        let relays = self.services.values().flat_map(BTreeMap::values);
        StandIns { used: relays.map(|relay| relay.port.get()).collect(), given: BTreeSet::new() }
    }
}

/// Where the lines of a Service's listeners are listed. Of Services that ask for the same frontend each has one, and the
/// rules lead to one of them.
fn place(service: &ServiceKey) -> String {
    format!("relay {service}")
}

/// The networks of the capture rules: everything is masqueraded, because it is the relay that connects.
pub(super) fn captured(networks: &Networks) -> Networks {
    Networks { masquerade_sources: BTreeSet::new(), ..networks.clone() }
}

/// What the listeners of a program would do.
fn wanted_lines(program: &Program) -> Vec<String> {
    let relays = desired::relays(program).into_iter();
    let told = |(id, targets): (RelayId, model::program::Targets)| {
        let route = program.frontends.get(&id.frontend)?;
        let with_weight = targets.iter().filter(|(_, weight)| weight.0 > 0);
        let told = Told {
            policy: Policy::of(route).unwrap_or(Policy::RoundRobin),
            targets: with_weight.map(|(target, weight)| (*target, *weight)).collect(),
            affinity_seconds: route.affinity_seconds,
            proxy_protocol: route.proxy_protocol,
        };
        Some(listing::of(id, &told))
    };
    relays.filter_map(told).flatten().collect()
}

impl StandIns {
    /// A port that stands for a listener to come; `None` when there is no number left, as there would be no port.
    fn give(&mut self) -> Option<Port> {
        let lowest = self.given.first().copied().unwrap_or(u16::MAX);
        let free = (1..=lowest).rev().find(|port| !self.used.contains(port) && !self.given.contains(port))?;
        self.given.insert(free);
        Port::new(free)
    }

    /// Takes a port that stands for another out of the end of a line.
    fn hide(&self, line: &mut String) {
        let Some((head, last)) = line.rsplit_once(" . ") else { return };
        if last.parse().is_ok_and(|port| self.given.contains(&port)) {
            *line = format!("{head} . {UNKNOWN_PORT}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_port_is_no_port_of_a_listener_and_is_shown_to_nobody() {
        let mut stand_ins = StandIns { used: [65_535, 65_533].into(), given: BTreeSet::new() };
        let given = [stand_ins.give(), stand_ins.give(), stand_ins.give()];
        assert_eq!(given, [Port::new(65_534), Port::new(65_532), Port::new(65_531)]);
        for (line, shown) in [
            ("10.96.0.1 . 6 . 80 . 0 : 0.0.0.0 . 65532", "10.96.0.1 . 6 . 80 . 0 : 0.0.0.0 . ?"),
            ("10.96.0.1 . 6 . 80 . 0 : 0.0.0.0 . 65533", "10.96.0.1 . 6 . 80 . 0 : 0.0.0.0 . 65533"),
            ("10.96.0.1 . 6 . 65532 : 0x001b0003", "10.96.0.1 . 6 . 65532 : 0x001b0003"),
            ("10.96.0.1", "10.96.0.1"),
        ] {
            let mut text = line.to_owned();
            stand_ins.hide(&mut text);
            assert_eq!(text, shown);
        }
    }
}
