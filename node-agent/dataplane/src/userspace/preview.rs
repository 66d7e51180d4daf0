//! Preview of the next kernel update: its changes of the capture rules (redirects to listeners), as `nft`
//! lines, and of the listeners, as configuration lines.
//!
//! A listener that does not exist yet has no port, because the kernel will assign a free one. The port of
//! such a listener is shown as `?` in the lines of the rules.

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
    listing::{self, ListenerListing},
};
use crate::{Dataplane as _, DesiredProgram, DesiredState, KernelError, Scope};

/// Text shown in rules for the port of a listener that does not exist yet.
const UNKNOWN_PORT: &str = "?";

/// Port numbers that represent listeners which do not exist yet. These numbers differ from each other and
/// from the ports of existing listeners.
struct StandIns {
    used: BTreeSet<u16>,
    given: BTreeSet<u16>,
}

impl UserspaceBackend {
    /// Returns the lines of the rules and listeners that an update of the kernel would remove and add;
    /// `None` if the rules cannot be previewed.
    pub(super) fn previewed(
        &mut self,
        desired: &DesiredState,
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

    /// Returns the configuration lines of all listeners, each as a pair with the name under which a preview
    /// shows the listeners of its Service.
    #[must_use]
    pub fn listing(&self) -> BTreeSet<(String, String)> {
        let lines = |service| self.lines_of(service).into_iter().map(move |line| (place(service), line));
        self.services.keys().flat_map(lines).collect()
    }

    fn lines_of(&self, service: &ServiceKey) -> Vec<String> {
        let relays = self.services.get(service).into_iter().flatten();
        relays.flat_map(|(id, relay)| listing::of(*id, &relay.told())).collect()
    }

    /// Returns the rules that redirect the connections of a Service to the relay, as a packet program, with
    /// a stand-in port for each listener that does not exist yet.
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

/// Returns the name under which a preview shows the listeners of a Service. The name contains the Service
/// and not the frontend, because several Services may claim one frontend: each then has a listener, and the
/// rules redirect to one of them.
fn place(service: &ServiceKey) -> String {
    format!("relay {service}")
}

/// Returns the networks for the capture rules (which redirect connections to the relay): `networks` without
/// masqueraded sources, because the relay itself connects to the targets.
pub(super) fn captured(networks: &Networks) -> Networks {
    Networks { masquerade_sources: BTreeSet::new(), ..networks.clone() }
}

/// Returns the configuration lines of the listeners that a packet program needs.
fn wanted_lines(program: &Program) -> Vec<String> {
    let relays = desired::relays(program).into_iter();
    let told = |(id, targets): (RelayId, model::program::Targets)| {
        let route = program.frontends.get(&id.frontend)?;
        let with_weight = targets.iter().filter(|(_, weight)| weight.0 > 0);
        let told = ListenerListing {
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
    /// Returns an unused port number for a listener that does not exist yet; `None` if all numbers are in
    /// use.
    fn give(&mut self) -> Option<Port> {
        let lowest = self.given.first().copied().unwrap_or(u16::MAX);
        let free = (1..=lowest).rev().find(|port| !self.used.contains(port) && !self.given.contains(port))?;
        self.given.insert(free);
        Port::new(free)
    }

    /// Replaces a stand-in port at the end of a line by [`UNKNOWN_PORT`].
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
