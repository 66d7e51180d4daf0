//! Validation rules of a Service's settings for connection scheduling, the PROXY protocol, and draining.

use crate::{
    kinds::{
        connections::Survive,
        service::{
            DRAIN_SECONDS_MAX, Protocol, ProxyProtocol, RemovalPolicy, SCHEDULER_LENGTH_MAX, SchedulerFlag,
            ServiceSpec, ServiceType, SessionAffinity, TrafficPolicy,
        },
    },
    primitives::violation::{
        Violation,
        ViolationCode::{Conflict, Invalid, TooLong},
    },
};

pub(super) fn validate(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    scheduler(spec, found);
    proxy_protocol(spec, found);
    drain(spec, found);
    survival(spec, found);
    if let Some(maintenance) = &spec.maintenance {
        maintenance.validate("/spec/maintenance", found);
    }
}

fn scheduler(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let name = spec.scheduler.as_ref().map(|scheduler| scheduler.0.as_str());
    if let Some(len) = name.map(str::len).filter(|len| *len > SCHEDULER_LENGTH_MAX) {
        let message = format!("must have at most {SCHEDULER_LENGTH_MAX} characters, has {len}");
        let hint = "the kernel has rr, wrr, lc, wlc, fo, ovf, lblc, lblcr, dh, sh, mh, sed, nq and twos";
        found.push(Violation::new("/spec/scheduler", TooLong, message).hint(hint));
    }
    let at = "/spec/schedulerFlags";
    let flags = &spec.scheduler_flags;
    if !flags.is_empty() && name.is_none() {
        found.push(Violation::new(at, Conflict, "must be left out without `scheduler`"));
    }
    let of_hashes = [SchedulerFlag::Fallback, SchedulerFlag::Port];
    if of_hashes.iter().any(|flag| flags.contains(flag))
        && name.is_some_and(|name| !["sh", "mh"].contains(&name))
    {
        let message = "must not hold `fallback` or `port` unless `scheduler` is sh or mh; no other scheduler supports them";
        found.push(Violation::new(at, Conflict, message));
    }
    if flags.contains(&SchedulerFlag::OnePacket)
        && let Some((index, port)) = first_port(spec, |protocol| protocol != Protocol::Udp)
    {
        let message = format!(
            "must not hold `onePacket` unless every port is UDP; ports[{index}] is {}",
            port.as_str()
        );
        found.push(Violation::new(at, Conflict, message));
    }
}

fn proxy_protocol(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let (offender, carried) = match spec.proxy_protocol {
        None => return,
        Some(ProxyProtocol::V1) => {
            (first_port(spec, |protocol| protocol != Protocol::Tcp), "v1 goes over TCP only")
        }
        Some(ProxyProtocol::V2) => {
            (first_port(spec, |protocol| protocol == Protocol::Sctp), "v2 goes over TCP and UDP only")
        }
    };
    if let Some((index, protocol)) = offender {
        let message = format!("must fit every port: {carried}, and ports[{index}] is {}", protocol.as_str());
        let hint = "give the ports of that protocol a Service of their own";
        found.push(Violation::new("/spec/proxyProtocol", Conflict, message).hint(hint));
    }
}

/// Rejects survival of connections together with settings by which nodes would select different endpoints for the same
/// client, or which need the state of one node.
fn survival(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    if spec.connections.survive == Survive::Never {
        return;
    }
    let is_other_scheduler = spec.scheduler.as_ref().is_some_and(|scheduler| scheduler.0.as_str() != "mh");
    let conflicts = [
        (spec.service_type != ServiceType::LoadBalancer, "type is LoadBalancer"),
        (spec.external_traffic_policy == TrafficPolicy::Local, "externalTrafficPolicy is Cluster"),
        (
            spec.session_affinity != SessionAffinity::None,
            "sessionAffinity is None (scheduler mh keeps clients)",
        ),
        (spec.traffic_distribution.is_some(), "trafficDistribution is left out"),
        (spec.proxy_protocol.is_some(), "proxyProtocol is left out (endpoints see the client address)"),
        (is_other_scheduler, "scheduler is mh or left out"),
        (spec.scheduler_flags.contains(&SchedulerFlag::OnePacket), "schedulerFlags has no onePacket"),
        (spec.ports.iter().any(|port| port.protocol == Protocol::Sctp), "all ports are TCP or UDP"),
        (spec.ports.iter().any(|port| port.end_port.is_some()), "no port has endPort"),
    ];
    let conflicts = conflicts.into_iter().filter(|(is_conflict, _)| *is_conflict);
    found.extend(conflicts.map(|(_, condition)| {
        let message = format!("must be Never unless {condition}");
        Violation::new("/spec/connections/survive", Conflict, message)
    }));
}

fn drain(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let Some(seconds) = spec.drain_seconds else { return };
    let at = "/spec/drainSeconds";
    if spec.removal_policy != RemovalPolicy::Drain {
        found.push(Violation::new(at, Conflict, "must be left out unless removalPolicy is drain"));
    }
    if seconds == 0 || seconds > DRAIN_SECONDS_MAX {
        let message = format!("must be between 1 and {DRAIN_SECONDS_MAX}, not {seconds}");
        found.push(Violation::new(at, Invalid, message));
    }
}

/// Returns the index and protocol of the first Service port whose protocol satisfies `is_such`.
fn first_port(spec: &ServiceSpec, is_such: impl Fn(Protocol) -> bool) -> Option<(usize, Protocol)> {
    spec.ports.iter().map(|port| port.protocol).enumerate().find(|(_, protocol)| is_such(*protocol))
}
