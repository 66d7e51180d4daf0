//! Lowering of packet programs for IPVS, which cannot distinguish the sources of connections.
//!
//! An IPVS virtual server forwards connections of all sources to the same destinations. The lowered program
//! describes the resulting behavior, so that the oracle (the interpreter of programs) returns for it exactly
//! the result of the kernel:
//! - With external policy Local, connections from workloads and from the node itself use the endpoints on
//!   this node, like all others. Without endpoints on this node, these connections use all endpoints, and a
//!   filter drops connections from elsewhere.
//! - Every destination address of a frontend is a local address of the node, at which daemons of the node
//!   would accept connections. Connections to ports of the address without a frontend are therefore rejected,
//!   also for external IPs.
//! - Programs that IPVS cannot implement even with these changes are rejected.

use std::collections::BTreeSet;

use crate::{
    kinds::service::{Protocol, SchedulerFlag},
    primitives::net::IpFamily,
    program::{Destination, Frontend, Masquerade, Program, Route, Targets, Verdict},
};

/// Maximum number of ports of one frontend. Each port becomes an IPVS virtual server at every address.
pub const PORTS_MAX: u16 = 256;
/// Maximum length of the name of a scheduler, in bytes (`IP_VS_SCHEDNAME_MAXLEN` includes a NUL).
const SCHEDULER_BYTES_MAX: usize = 15;

/// Sources whose connections to a frontend are masqueraded in ipvs mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// No source is masqueraded.
    Never,
    /// Sources outside of the workload networks are masqueraded.
    BySource,
    /// All sources are masqueraded.
    Always,
    /// Only connections from the node itself are masqueraded.
    NodeOnly,
}

/// Returns a copy of `program` changed to the behavior of IPVS, which cannot distinguish the sources of
/// connections.
///
/// # Errors
/// Returns a message that names the first feature of the program that IPVS does not support.
pub fn lower(program: &Program) -> Result<Program, String> {
    let mut lowered = program.clone();
    for (frontend, route) in &mut lowered.frontends {
        check(frontend, route)?;
        if let Some(targets) = shared_targets(route) {
            for verdict in [&mut route.from_workloads, &mut route.from_node, &mut route.from_elsewhere] {
                if let Verdict::Forward { targets: own, .. } = verdict {
                    own.clone_from(&targets);
                }
            }
        }
        profile(route)
            .ok_or_else(|| format!("port {}: ipvs cannot treat these sources differently", frontend.ports))?;
    }
    lowered.virtual_addresses.extend(exact_addresses(program));
    Ok(lowered)
}

/// Returns the destination addresses of the frontends of a program. Node ports are omitted, because they use
/// the addresses of the node.
pub fn exact_addresses(program: &Program) -> BTreeSet<std::net::IpAddr> {
    let of = |frontend: &Frontend| match frontend.destination {
        Destination::Address(address) => Some(address),
        Destination::AnyLocal(_) => None,
    };
    program.frontends.keys().filter_map(of).collect()
}

/// Returns the targets of a frontend, which in ipvs mode are the same for all sources: those of the first
/// verdict that forwards, in the order elsewhere, workloads, node. `None` if no verdict forwards.
pub fn shared_targets(route: &Route) -> Option<Targets> {
    let Route { from_workloads, from_node, from_elsewhere, .. } = route;
    [from_elsewhere, from_workloads, from_node].into_iter().find_map(Verdict::targets).cloned()
}

/// Returns the sources whose connections to a frontend are masqueraded. `None` if the rules of ipvs mode
/// cannot express the frontend's combination of verdicts.
#[must_use]
pub fn profile(route: &Route) -> Option<Profile> {
    use Masquerade::{Always, Never, OffCluster};
    let masquerade = |verdict: &Verdict| match verdict {
        Verdict::Forward { masquerade, .. } => Some(*masquerade),
        Verdict::Reject | Verdict::Drop | Verdict::Relay { .. } => None,
    };
    let elsewhere = masquerade(&route.from_elsewhere);
    match (masquerade(&route.from_workloads), masquerade(&route.from_node), elsewhere) {
        (None, None, None) => {
            let same = route.from_workloads == route.from_node;
            let outside = route.from_elsewhere == route.from_node || route.from_elsewhere == Verdict::Drop;
            (same && outside).then_some(Profile::Never)
        }
        (Some(_), Some(_), None) if route.from_elsewhere != Verdict::Drop => None,
        (Some(OffCluster), Some(OffCluster), None | Some(OffCluster)) => Some(Profile::BySource),
        (Some(Always), Some(Always), None | Some(Always)) => Some(Profile::Always),
        (Some(Never), Some(Always), None | Some(Never)) => Some(Profile::NodeOnly),
        (Some(Never), Some(Never), None | Some(Never)) => Some(Profile::Never),
        (Some(_), Some(_), _) | (None, _, _) | (_, None, _) => None,
    }
}

fn check(frontend: &Frontend, route: &Route) -> Result<(), String> {
    let ports = frontend.ports;
    if route.proxy_protocol.is_some() {
        return Err(format!("port {ports}: the PROXY protocol requires proxy mode userspace"));
    }
    if ports.count() > PORTS_MAX {
        return Err(format!(
            "port range {ports} is longer than the {PORTS_MAX} ports that ipvs mode supports"
        ));
    }
    let mut verdicts = route.verdicts().into_iter();
    if verdicts.any(|verdict| matches!(verdict, Verdict::Relay { .. })) {
        return Err(format!("port {ports}: ipvs cannot forward to a listener"));
    }
    let family = frontend.destination.family();
    if let Some(target) = route.all_targets().iter().find(|target| IpFamily::of(target.address) != family) {
        return Err(format!("target {} is not of the frontend's family {}", target.address, family.as_str()));
    }
    let scheduler = route.scheduler.as_ref().map_or("", |scheduler| scheduler.0.as_str());
    if scheduler.len() > SCHEDULER_BYTES_MAX {
        return Err(format!("scheduler {scheduler} is longer than {SCHEDULER_BYTES_MAX} characters"));
    }
    for flag in &route.scheduler_flags {
        match flag {
            SchedulerFlag::Port | SchedulerFlag::Fallback => {
                if !["sh", "mh"].contains(&scheduler) {
                    return Err(format!(
                        "flags port and fallback require scheduler sh or mh, not {scheduler}"
                    ));
                }
            }
            SchedulerFlag::OnePacket => {
                if frontend.protocol != Protocol::Udp {
                    return Err(format!("port {ports}: flag onePacket requires UDP"));
                }
            }
        }
    }
    Ok(())
}
