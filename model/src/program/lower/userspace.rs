//! Lowering of packet programs for userspace mode, in which a relay process forwards the connections.

use std::sync::Arc;

use crate::{
    kinds::service::{Protocol, ProxyProtocol, SchedulerFlag},
    program::{Frontend, Masquerade, Program, Route, Verdict},
};

/// Policy by which a relay selects a target, with the IPVS name of the scheduler in parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Round robin, in proportion to the weights (`rr`, `wrr`, and the default).
    RoundRobin,
    /// Target with the fewest established connections, round robin among equals (`lc`).
    LeastConnections,
    /// Selection by a hash of the source address (`sh`, `mh`), which includes the source port if `with_port`
    /// is true.
    SourceHash {
        /// True if the source port is part of the hash, so that connections of one client are distributed.
        with_port: bool,
    },
}

impl Policy {
    /// Returns the policy of a route; `None` if the relay does not support it.
    #[must_use]
    pub fn of(route: &Route) -> Option<Self> {
        let flags = &route.scheduler_flags;
        let is_plain = flags.is_empty();
        match route.scheduler.as_ref().map(|scheduler| scheduler.0.as_str()) {
            None | Some("rr" | "wrr") => is_plain.then_some(Self::RoundRobin),
            Some("lc") => is_plain.then_some(Self::LeastConnections),
            // A relay falls back to another target in any case, and its hash moves no source between remaining targets.
            Some("sh" | "mh") => (!flags.contains(&SchedulerFlag::OnePacket))
                .then(|| Self::SourceHash { with_port: flags.contains(&SchedulerFlag::Port) }),
            Some(_) => None,
        }
    }
}

/// Returns a description of the setting of a frontend that the relay does not support, or `None` if the relay
/// supports the frontend. Connections to an unsupported frontend are rejected; other frontends of the Service
/// are served.
#[must_use]
pub fn unsupported(frontend: &Frontend, route: &Route) -> Option<String> {
    let port = frontend.ports;
    match frontend.protocol {
        Protocol::Tcp => {}
        Protocol::Udp if route.proxy_protocol == Some(ProxyProtocol::V1) => {
            return Some(format!("PROXY protocol v1 is for TCP only; UDP port {port} needs v2"));
        }
        Protocol::Udp => {}
        Protocol::Sctp => return Some(format!("port {port}: userspace mode relays no SCTP")),
    }
    if Policy::of(route).is_none() {
        let name = route.scheduler.as_ref().map_or("none", |scheduler| scheduler.0.as_str());
        return Some(format!(
            "port {port}: userspace mode has the schedulers rr, wrr, lc, sh and mh (with the flags fallback and \
             port), not `{name}` with these flags"
        ));
    }
    None
}

/// Returns a copy of `program` changed to the behavior of userspace mode: all sources are masqueraded, because the
/// relay opens the connections to the targets, and connections to frontends that the relay does not support are
/// rejected instead of forwarded. Other verdicts and targets stay the same.
#[must_use]
pub fn expect(program: &Program) -> Program {
    let verdict = |verdict: &Verdict, is_supported: bool| match verdict {
        Verdict::Forward { .. } if !is_supported => Verdict::Reject,
        Verdict::Forward { targets, .. } => {
            Verdict::Forward { masquerade: Masquerade::Always, targets: Arc::clone(targets) }
        }
        Verdict::Reject | Verdict::Drop | Verdict::Relay { .. } => verdict.clone(),
    };
    let lowered = |frontend: &Frontend, route: &Route| {
        let is_supported = unsupported(frontend, route).is_none();
        Route {
            from_workloads: verdict(&route.from_workloads, is_supported),
            from_node: verdict(&route.from_node, is_supported),
            from_elsewhere: verdict(&route.from_elsewhere, is_supported),
            ..route.clone()
        }
    };
    Program {
        frontends: program
            .frontends
            .iter()
            .map(|(frontend, it)| (*frontend, lowered(frontend, it)))
            .collect(),
        ..program.clone()
    }
}
