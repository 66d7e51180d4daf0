//! Programming of random clusters on the node of the test bed, and the connections that can be checked there.

use std::collections::BTreeSet;

use model::{
    compile::{compile, network, node_state},
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{name::Name, net::IpFamily},
    wire::networks::networks,
};
use node_agent::dataplane::{Outcome, Pass, Scope};

use crate::{
    second_oracle::{
        Dialect, Estate,
        draw::{self, DrawOptions, Question},
    },
    testbed::{
        Ask, Bench, Lane, Spot,
        hosts::{DAEMON_PORT, PORTS, WORKLOAD_PORTS},
        judge::{Expected, Seen, is_node_address},
    },
};

/// AS number of the Nodes, which no rule depends on.
const ASN: u32 = 64_512;

/// Returns the properties of random clusters for a lane (proxy mode variant). Userspace mode rejects SCTP, and only
/// ipvs mode has schedulers of the kernel.
pub fn options(lane: Lane, family: IpFamily, connections: usize) -> DrawOptions {
    use Protocol::{Sctp, Tcp, Udp};
    let protocols: &[_] = match lane {
        Lane::Userspace => &[Tcp, Tcp, Udp],
        Lane::Nftables | Lane::Iptables => &[Tcp, Tcp, Tcp, Udp, Udp, Sctp],
        // The kernel of the guest VM has SCTP.
        Lane::IptablesLegacy | Lane::Ipvs => &[Tcp, Tcp, Udp, Sctp],
    };
    let schedulers: &[_] =
        if lane == Lane::Ipvs { &["rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq"] } else { &[] };
    DrawOptions { family, connections, protocols, schedulers }
}

/// Returns the deviations of a lane (proxy mode variant) from the semantics of Services.
pub const fn dialect(lane: Lane) -> Dialect {
    match lane {
        Lane::Nftables | Lane::Iptables | Lane::IptablesLegacy => Dialect::Exact,
        Lane::Ipvs => Dialect::Ipvs,
        Lane::Userspace => Dialect::Userspace,
    }
}

/// Returns the connection of the test bed for one of a random cluster.
pub fn ask(question: &Question) -> Ask {
    let from = Spot::ALL.into_iter().find(|spot| spot.name() == question.from).unwrap();
    let Question { from: _, source, to, protocol, port } = *question;
    Ask { from, source, to, protocol, port }
}

/// Result of programming a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    /// True if only the Services that differ were programmed, false if all were.
    pub is_incremental: bool,
    /// True if Services claim the same frontend, so that one of them lacks it.
    pub has_conflict: bool,
}

/// Programs the Services of a cluster in place of those that the node has. If the networks of the node stay the same
/// and the result does not depend on conflicts, only the Services that differ are programmed.
///
/// # Errors
/// Returns a description if the kernel update fails or rejects a Service for another reason than a conflict.
pub fn put(bench: &mut Bench, estate: &Estate, had_conflict: bool) -> Result<Change, String> {
    let before = bench.desired.clone();
    let snapshot = estate.snapshot();
    let here = Name::parse(&estate.here).unwrap();
    bench.place.zone.clone_from(&estate.nodes[&estate.here].zone);
    bench.desired.networks = networks(&network(&snapshot), &node_state(&snapshot, &here, ASN));
    bench.desired.programs.clear();
    for name in estate.services.keys() {
        bench.want_compiled(&compile(&snapshot, &draw::key(name)).expect("the Service exists"));
    }
    let after = &bench.desired;
    let keys: BTreeSet<_> = before.programs.keys().chain(after.programs.keys()).cloned().collect();
    let differs = |key: &ServiceKey| {
        before.programs.get(key).map(|one| &one.program) != after.programs.get(key).map(|one| &one.program)
    };
    let changed: BTreeSet<_> = keys.into_iter().filter(differs).collect();
    if !had_conflict && before.networks == after.networks {
        let pass = bench.apply(&Scope::Services(changed));
        if !conflicts(&pass)? {
            return Ok(Change { is_incremental: true, has_conflict: false });
        }
    }
    let pass = bench.apply(&Scope::Everything);
    Ok(Change { is_incremental: false, has_conflict: conflicts(&pass)? })
}

/// Returns true if a Service lacks a frontend that another one has. It keeps its other frontends.
fn conflicts(pass: &Pass) -> Result<bool, String> {
    if let Some(error) = &pass.failed {
        return Err(format!("the pass failed: {error:?}"));
    }
    let mut has_conflict = false;
    for (service, outcome) in &pass.outcomes {
        if let Outcome::Failed { message, .. } = outcome {
            if !message.contains("already taken") {
                return Err(format!("{service}: {message}"));
            }
            has_conflict = true;
        }
    }
    Ok(has_conflict)
}

/// Returns true if a connection can be checked: its client can observe the expected result, the result does not
/// depend on other nodes, and all servers that may reply exist.
pub fn is_sound(ask: Ask, expected: &Expected, has_sctp: bool) -> bool {
    if ask.protocol == Protocol::Sctp && (!has_sctp || ask.source.is_none()) {
        // The node has many addresses, all of which it would offer to the server.
        return false;
    }
    if ask.port == DAEMON_PORT && ask.protocol != Protocol::Tcp && is_node_address(ask.to) {
        // The daemon replies from another address than the client asked.
        return false;
    }
    match expected {
        // A workload of another node reaches itself through that node.
        Expected::Answer(targets) => {
            let own = ask.from.address(IpFamily::of(ask.to));
            targets.iter().all(|((address, port), seen)| {
                let is_own =
                    *address == own && *seen == Seen::Client && matches!(ask.from, Spot::D | Spot::E);
                !is_own && is_served(*address, port.get(), ask.protocol)
            })
        }
        Expected::Daemon | Expected::Refused | Expected::Silence | Expected::Nobody => true,
    }
}

fn is_served(address: std::net::IpAddr, port: u16, protocol: Protocol) -> bool {
    if is_node_address(address) {
        return PORTS.contains(&port) && protocol != Protocol::Sctp;
    }
    PORTS.contains(&port) || WORKLOAD_PORTS.contains(&port)
}
