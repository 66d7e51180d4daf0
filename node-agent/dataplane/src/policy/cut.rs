//! Removal of connections that a policy forbids: without it, the rule for known connections would let them continue.

use std::{collections::BTreeSet, io, net::IpAddr};

use kernel::{
    conntrack::wire::{ConntrackEntry, Tuple, dump},
    links::local_addresses,
    netlink::socket::{Netlink, Protocol},
};
use model::{
    kinds::service::Protocol as Transport,
    policy::{
        identity::{PolicyAction, PolicyNumbers},
        node_policy::{Attempt, AttemptProtocol, Direction},
    },
};

/// Deletes the conntrack entries of connections that the policy in the kernel forbids, in one walk of the table. Returns their
/// number.
///
/// # Errors
/// Returns an error if the table cannot be read or changed.
pub fn cut(numbers: &PolicyNumbers) -> io::Result<u64> {
    if numbers.is_empty() {
        return Ok(0);
    }
    let own = local_addresses()?;
    let mut netlink = Netlink::open(Protocol::Netfilter)?;
    let deletions =
        netlink.dump(&dump(&kernel::conntrack::Filter::default()), Vec::new, |found, answer| {
            let entry = ConntrackEntry::parse(answer)?;
            if is_forbidden(numbers, &entry.original, &entry.reply, &own) {
                found.push(entry.deletion());
            }
            Ok(())
        })?;
    // An entry that expired in the meantime yields an error, which is as good as a deletion.
    let errnos = netlink.ask(&deletions, |_, _| Ok(()))?;
    Ok(u64::try_from(errnos.iter().filter(|errno| **errno == 0).count()).unwrap_or(u64::MAX))
}

/// Returns true if the policy forbids a connection, given by the tuples of its conntrack entry: the client is the source of the
/// original direction, the endpoint that of replies. `own` are the addresses of this machine.
#[must_use]
pub fn is_forbidden(
    numbers: &PolicyNumbers,
    original: &Tuple,
    reply: &Tuple,
    own: &BTreeSet<IpAddr>,
) -> bool {
    let Some((source, destination)) = original.source.zip(reply.source) else { return false };
    let protocol = [Transport::Tcp, Transport::Udp, Transport::Sctp]
        .into_iter()
        .find(|protocol| protocol.number() == original.protocol)
        .map_or(AttemptProtocol::Icmp, AttemptProtocol::from);
    let attempt = Attempt { source, destination, protocol, port: reply.source_port };
    if own.contains(&source) {
        // The machine reaches its own workloads, and only its egress counts elsewhere.
        let is_free = own.contains(&destination) || numbers.locals.contains(&destination);
        return !is_free && numbers.decide_direction(Direction::Egress, &attempt) == PolicyAction::Drop;
    }
    numbers.decide(&attempt) == PolicyAction::Drop
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{
        policy::{
            node_policy::NodePolicy,
            set::{PolicySet, PolicyWorkload},
        },
        primitives::quantity::Revision,
    };

    use super::*;

    /// Input: an isolated workload, and connections to it. Output: only those of other machines are forbidden, also if a
    /// Service has translated their destination.
    #[test]
    fn connections_of_the_machine_to_its_workloads_stay() {
        let set = PolicySet::new(true, Vec::new());
        let mut policy = NodePolicy::default();
        policy.put_workload(Arc::new(PolicyWorkload {
            workload: "x/a".to_owned().try_into().unwrap(),
            revision: Revision(1),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            node: None,
            peers: BTreeSet::new(),
            ingress: Some(set.id),
            egress: None,
        }));
        policy.put_set(Arc::new(set));
        let numbers = PolicyNumbers::flatten(&policy, |_| true);
        let own = BTreeSet::from(["10.0.0.254".parse().unwrap()]);
        let is_cut = |client: &str, destination: &str, endpoint: &str| {
            let tuple = |source: &str, destination: &str| Tuple {
                source: source.parse().ok(),
                destination: destination.parse().ok(),
                protocol: 6,
                source_port: 80,
                destination_port: 80,
            };
            is_forbidden(&numbers, &tuple(client, destination), &tuple(endpoint, client), &own)
        };
        assert!(is_cut("192.0.2.1", "10.0.0.1", "10.0.0.1"));
        assert!(is_cut("192.0.2.1", "10.96.0.1", "10.0.0.1"));
        assert!(!is_cut("10.0.0.254", "10.0.0.1", "10.0.0.1"));
        assert!(!is_cut("10.0.0.1", "192.0.2.1", "192.0.2.1"));
        assert!(!is_cut("192.0.2.1", "10.0.0.2", "10.0.0.2"));
    }
}
