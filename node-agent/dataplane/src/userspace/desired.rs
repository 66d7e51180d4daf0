//! Division of a packet program (the desired forwarding of a Service) into listeners of the relay, and
//! capture rules, by which the kernel redirects connections to the listeners. Does no I/O.
//!
//! A frontend with targets gets one listener, or several if classes of source addresses (workloads, the node,
//! all others) have different targets. The capture rules are a packet program in which [`Verdict::Relay`]
//! replaces the targets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use model::program::lower::userspace::{Policy, expect, unsupported};
use model::{
    primitives::quantity::Port,
    program::{DrainingTargets, Frontend, Program, Route, Targets, Verdict},
    wire::report::FailureReason,
};

/// Maximum number of unsupported frontends that the message of a failure names, so that it stays readable.
const CAUSES_MAX: usize = 8;

/// Class of source addresses, in match order. A route may have a different verdict for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceClass {
    /// Source address in the workload networks.
    Workloads,
    /// Source address that belongs to this node.
    Node,
    /// Source address of any other kind.
    Elsewhere,
}

impl SourceClass {
    /// All classes, in the order of [`Route::verdicts`].
    pub const ALL: [Self; 3] = [Self::Workloads, Self::Node, Self::Elsewhere];
}

/// Key of a listener among those of one packet program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayId {
    /// Frontend whose connections the listener accepts.
    pub frontend: Frontend,
    /// First class of sources that the listener serves. Later classes with the same targets share the
    /// listener.
    pub class: SourceClass,
}

/// Returns the failure to report for a packet program with frontends that a relay does not support, or `None` if
/// the relay supports all of them. Connections to these frontends are rejected; the others are served.
#[must_use]
pub fn limitation(program: &Program) -> Option<(FailureReason, String)> {
    let all: BTreeSet<String> =
        program.frontends.iter().filter_map(|(frontend, route)| unsupported(frontend, route)).collect();
    let is_served = |(frontend, route): (&Frontend, &Route)| unsupported(frontend, route).is_none();
    let causes: Vec<_> = all.iter().take(CAUSES_MAX).map(String::as_str).collect();
    let causes = causes.join("; ");
    match (all.is_empty(), program.frontends.iter().any(is_served)) {
        (true, _) => None,
        (false, false) => Some((FailureReason::Unsupported, causes)),
        (false, true) => {
            let message =
                format!("{causes}; connections to these ports are rejected, other ports are served");
            Some((FailureReason::PartlyUnsupported, message))
        }
    }
}

/// Returns the listeners that a packet program needs, each with its targets.
#[must_use]
pub fn relays(program: &Program) -> BTreeMap<RelayId, Targets> {
    let mut relays = BTreeMap::new();
    let supported =
        program.frontends.iter().filter(|(frontend, route)| unsupported(frontend, route).is_none());
    for (frontend, route) in supported {
        for class in SourceClass::ALL {
            let Some((first, targets)) = shared(route, class) else { continue };
            if first == class {
                relays.insert(RelayId { frontend: *frontend, class }, Arc::clone(targets));
            }
        }
    }
    relays
}

/// Returns the packet program of the capture rules, which redirect connections to the listeners. `port_of`
/// returns the port of a listener; connections to a frontend whose listener has no port, or that a relay does
/// not support, are rejected.
#[must_use]
pub fn lower(program: &Program, port_of: impl Fn(RelayId) -> Option<Port>) -> Program {
    let lowered = |frontend: &Frontend, route: &Route| {
        let is_supported = unsupported(frontend, route).is_none();
        let verdict = |class| match shared(route, class) {
            Some(_) if !is_supported => Verdict::Reject,
            Some((first, _)) => port_of(RelayId { frontend: *frontend, class: first })
                .map_or(Verdict::Reject, |port| Verdict::Relay { port }),
            None => verdict_for(route, class).clone(),
        };
        Route {
            role: route.role,
            port_name: route.port_name.clone(),
            allowed_sources: route.allowed_sources.clone(),
            from_workloads: verdict(SourceClass::Workloads),
            from_node: verdict(SourceClass::Node),
            from_elsewhere: verdict(SourceClass::Elsewhere),
            // Handled by the relay.
            affinity_seconds: None,
            scheduler: None,
            scheduler_flags: BTreeSet::new(),
            proxy_protocol: None,
            removal: route.removal,
            leaving: DrainingTargets::default(),
            fails_over: false,
            owners: None,
        }
    };
    Program {
        frontends: program
            .frontends
            .iter()
            .map(|(frontend, route)| (*frontend, lowered(frontend, route)))
            .collect(),
        virtual_addresses: program.virtual_addresses.clone(),
        hairpins: BTreeSet::new(),
        health_check: None,
    }
}

/// Returns the first class of sources that has the same targets as `class`, and these targets; `None` if
/// connections of `class` are not forwarded.
fn shared(route: &Route, class: SourceClass) -> Option<(SourceClass, &Targets)> {
    let targets = verdict_for(route, class).targets()?;
    let meets_them = |other: &SourceClass| verdict_for(route, *other).targets() == Some(targets);
    SourceClass::ALL.into_iter().find(meets_them).map(|first| (first, targets))
}

const fn verdict_for(route: &Route, class: SourceClass) -> &Verdict {
    match class {
        SourceClass::Workloads => &route.from_workloads,
        SourceClass::Node => &route.from_node,
        SourceClass::Elsewhere => &route.from_elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use model::{
        kinds::service::{Protocol, Scheduler, SchedulerFlag},
        primitives::quantity::Weight,
        program::{Destination, Masquerade, Role, Target},
    };

    use super::*;

    const PORT: Port = Port::new(80).unwrap();

    fn forward(masquerade: Masquerade, last: &[u8]) -> Verdict {
        let target = |last| Target { address: IpAddr::from([10, 0, 0, last]), port: Some(PORT) };
        let targets = last.iter().map(|last| (target(*last), Weight(1))).collect();
        Verdict::Forward { masquerade, targets: Arc::new(targets) }
    }

    fn program(route: Route) -> (Frontend, Program) {
        let destination = Destination::Address(IpAddr::from([10, 96, 0, 1]));
        let frontend = Frontend { destination, protocol: Protocol::Tcp, ports: PORT.into() };
        (frontend, Program { frontends: [(frontend, route)].into_iter().collect(), ..Program::default() })
    }

    #[test]
    fn sources_with_the_same_targets_share_a_listener_whatever_their_masquerading() {
        let (frontend, program) = program(Route {
            from_workloads: forward(Masquerade::Never, &[1, 2]),
            from_node: forward(Masquerade::Always, &[1, 2]),
            from_elsewhere: forward(Masquerade::Never, &[1]),
            ..Route::new(Role::LoadBalancer, Verdict::Drop)
        });
        let relays = relays(&program);
        let classes: Vec<_> = relays.iter().map(|(id, targets)| (id.class, targets.len())).collect();
        assert_eq!(classes, [(SourceClass::Workloads, 2), (SourceClass::Elsewhere, 1)]);
        let port_of = |id: RelayId| match id.class {
            SourceClass::Workloads => Port::new(1001),
            SourceClass::Node => Port::new(1002),
            SourceClass::Elsewhere => Port::new(1003),
        };
        let lowered = lower(&program, port_of);
        let relay = |port| Verdict::Relay { port: Port::new(port).unwrap() };
        let route = &lowered.frontends[&frontend];
        assert_eq!(route.verdicts(), [&relay(1001), &relay(1001), &relay(1003)]);
    }

    #[test]
    fn what_is_not_forwarded_is_left_to_the_rules_and_what_is_comes_from_the_node() {
        let (frontend, program) = program(Route {
            from_workloads: Verdict::Reject,
            from_node: forward(Masquerade::Never, &[1]),
            from_elsewhere: Verdict::Drop,
            ..Route::new(Role::LoadBalancer, Verdict::Drop)
        });
        let lowered = lower(&program, |_| None);
        let verdicts = [&Verdict::Reject, &Verdict::Reject, &Verdict::Drop];
        assert_eq!(lowered.frontends[&frontend].verdicts(), verdicts, "no listener, no way");
        let always = forward(Masquerade::Always, &[1]);
        assert_eq!(
            expect(&program).frontends[&frontend].verdicts(),
            [&Verdict::Reject, &always, &Verdict::Drop]
        );
    }

    #[test]
    fn schedulers_and_flags_that_a_relay_lacks_are_named_with_the_port() {
        let route = |scheduler: &str, flags: &[SchedulerFlag]| Route {
            scheduler: Some(Scheduler(scheduler.to_owned().try_into().unwrap())),
            scheduler_flags: flags.iter().copied().collect(),
            ..Route::new(Role::ClusterIp, Verdict::Reject)
        };
        let limited = |route| limitation(&program(route).1);
        for (scheduler, flags) in [
            ("rr", &[][..]),
            ("wrr", &[]),
            ("lc", &[]),
            ("sh", &[SchedulerFlag::Port, SchedulerFlag::Fallback]),
            ("mh", &[SchedulerFlag::Port]),
        ] {
            assert_eq!(limited(route(scheduler, flags)), None, "{scheduler}");
        }
        for (scheduler, flags) in
            [("sed", &[][..]), ("rr", &[SchedulerFlag::Port]), ("sh", &[SchedulerFlag::OnePacket])]
        {
            let (reason, message) = limited(route(scheduler, flags)).unwrap();
            assert_eq!(reason, FailureReason::Unsupported);
            assert!(message.contains("port 80") && message.contains(scheduler), "{message}");
        }
    }

    /// F054: an SCTP port has no listener and is rejected, and the other ports of its Service keep theirs.
    #[test]
    fn f054_an_sctp_port_takes_no_other_port_of_its_service_away() {
        let (tcp, mut program) = program(Route::new(Role::ClusterIp, forward(Masquerade::Never, &[1])));
        let sctp = Frontend { protocol: Protocol::Sctp, ..tcp };
        program.frontends.insert(sctp, program.frontends[&tcp].clone());
        let (reason, message) = limitation(&program).unwrap();
        assert_eq!(reason, FailureReason::PartlyUnsupported);
        assert_eq!(
            message,
            "port 80: userspace mode relays no SCTP; connections to these ports are rejected, other ports are served"
        );
        let ids: Vec<_> = relays(&program).into_keys().map(|id| id.frontend).collect();
        assert_eq!(ids, [tcp]);
        let lowered = lower(&program, |_| Some(PORT));
        assert_eq!(lowered.frontends[&sctp].uniform(), Some(&Verdict::Reject), "even with an old listener");
        assert_eq!(lowered.frontends[&tcp].uniform(), Some(&Verdict::Relay { port: PORT }));
        assert_eq!(expect(&program).frontends[&sctp].uniform(), Some(&Verdict::Reject));
        program.frontends.remove(&tcp);
        assert_eq!(limitation(&program).map(|(reason, _)| reason), Some(FailureReason::Unsupported));
    }
}
