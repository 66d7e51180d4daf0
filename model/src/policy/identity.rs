//! Policy of one node as numbers, from which kernel objects are derived: lookups of addresses and ports lead to a number
//! of a decision, so that the cost of a packet does not depend on the number of policies.
//!
//! ```text
//!  own address ──subjects──▶ set ─┐
//!  protocol, port ────────────────┴─ports──▶ cell ─┐
//!  other address ──identities, networks──▶ identity ┴─decisions, defaults──▶ accept or drop
//! ```
//! A *cell* is a set with a class of ports that all rules of the set treat alike. An *identity* is a set of peer selectors
//! and networks that match an address, restricted to those that the sets of local workloads mention. Numbers are hashes
//! of content: a process that starts again computes the same ones, and a change leaves the others as they are. Two contents with
//! the same hash get different numbers.

mod networks;
mod ports;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use self::networks::{NetworkRanges, PeerNetwork};
use super::{
    node_policy::{Attempt, AttemptProtocol, Direction, NodePolicy},
    set::{ContentId, Peer, PolicyRule, PolicySet, PolicyWorkload, PortMatch, RuleAction, Tier},
};

/// Maximum number of decisions of one set in the kernel. A set with more drops all connections, because a part of its
/// decisions would accept or drop the wrong ones. One million elements take about 100 MB of kernel memory.
pub const SET_DECISIONS_MAX: usize = 100_000;

/// Policy of one node as numbers. Maps with the same content are equal on each start of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyNumbers {
    /// Numbers of the sets of local addresses, by direction.
    pub subjects: BTreeMap<(Direction, IpAddr), u32>,
    /// Addresses of local workloads, with or without sets.
    pub locals: BTreeSet<IpAddr>,
    /// Identities of addresses of workloads that a peer selector matches.
    pub identities: BTreeMap<IpAddr, u32>,
    /// Disjoint ranges of addresses with the identity of their networks, by their first addresses.
    pub networks: BTreeMap<IpAddr, NetworkRange>,
    /// Cells of the ports of each set. The ranges of a set are disjoint and cover all protocols and ports.
    pub ports: BTreeMap<PortSpan, u32>,
    /// Decisions of each cell on the identities that `decisions` does not contain.
    pub defaults: BTreeMap<u32, PolicyAction>,
    /// Decisions by cell and identity.
    pub decisions: BTreeMap<(u32, u32), PolicyAction>,
    /// Sets of the cells. Of several sets that must all accept, one of them.
    pub cells: BTreeMap<u32, ContentId>,
    /// Sets that drop all connections, because they have more than [`SET_DECISIONS_MAX`] decisions.
    pub excessive: BTreeSet<ContentId>,
}

/// Decision of one direction on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyAction {
    /// The direction accepts the connection.
    Accept,
    /// Packets of the connection are dropped.
    Drop,
}

/// Range of addresses with the identity of the networks that contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkRange {
    /// Last address of the range.
    pub last: IpAddr,
    /// Number of the identity.
    pub identity: u32,
}

/// Range of protocols and ports of a set. A range with several protocols contains all ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSpan {
    /// Number of the set.
    pub set: u32,
    /// First and last protocol number (IANA).
    pub protocols: (u8, u8),
    /// First and last destination port.
    pub ports: (u16, u16),
}

/// Peer selectors and networks that match an address, restricted to those that local sets mention.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    peers: BTreeSet<ContentId>,
    networks: BTreeSet<PeerNetwork>,
}

impl PolicyAction {
    const fn of(is_accepted: bool) -> Self {
        if is_accepted { Self::Accept } else { Self::Drop }
    }
}

impl PolicyNumbers {
    /// Derives the numbers from a policy. `is_local` returns true for workloads whose packets pass this node.
    #[must_use]
    pub fn flatten(policy: &NodePolicy, is_local: impl Fn(&PolicyWorkload) -> bool) -> Self {
        let locals = policy.workloads().values().filter(|workload| is_local(workload));
        let locals: BTreeSet<_> = locals.flat_map(|workload| workload.addresses.iter().copied()).collect();
        let subjects = subjects(policy, &locals);
        let set_numbers = numbered(subjects.values().cloned().collect(), number_of_sets);
        let unknown = |id| Arc::new(PolicySet { id, isolated: true, rules: Vec::new() });
        let known = |id: &ContentId| policy.sets().get(id).cloned().unwrap_or_else(|| unknown(*id));
        let groups = set_numbers.iter().map(|(ids, number)| {
            let sets = ids.iter().map(known).collect();
            SetGroup { ids, number: *number, sets }
        });
        let groups: Vec<_> = groups.collect();
        let sets = || groups.iter().flat_map(|group| &group.sets);
        let ranges = NetworkRanges::of(mentioned_networks(sets()));
        let peers = mentioned_peers(sets());
        let of_networks =
            |networks: &BTreeSet<_>| Identity { peers: BTreeSet::new(), networks: networks.clone() };
        let of_workload = |address: IpAddr| {
            let peers: BTreeSet<_> = policy.peers_of(address).intersection(&peers).copied().collect();
            let networks = ranges.at(address).cloned().unwrap_or_default();
            (!peers.is_empty()).then_some((address, Identity { peers, networks }))
        };
        let workloads: BTreeMap<_, _> = policy.addresses().filter_map(of_workload).collect();
        let in_use = ranges.iter().map(|(_, _, networks)| of_networks(networks));
        let in_use = numbered(in_use.chain(workloads.values().cloned()).collect(), |identity| {
            ContentId::of(&(&identity.peers, &identity.networks))
        });
        let number = |identity: &Identity| in_use.get(identity).copied().unwrap_or_default();
        let range = |(first, last, networks): (IpAddr, IpAddr, &BTreeSet<PeerNetwork>)| {
            (first, NetworkRange { last, identity: number(&of_networks(networks)) })
        };
        let identities = workloads.iter().map(|(address, identity)| (*address, number(identity)));
        let mut numbers = Self {
            locals,
            networks: ranges.iter().map(range).collect(),
            identities: identities.collect(),
            ..Self::default()
        };
        let classes_of = |group: &SetGroup<'_>| {
            let classes = ports::classes(group.rules());
            classes.into_keys().map(|matched| (group.ids.clone(), matched)).collect::<Vec<_>>()
        };
        let cells = numbered(groups.iter().flat_map(classes_of).collect(), ContentId::of);
        for group in &groups {
            numbers.add_sets(group, &cells, &in_use);
        }
        let subject = |(key, ids): (_, BTreeSet<ContentId>)| Some((key, *set_numbers.get(&ids)?));
        numbers.subjects = subjects.into_iter().filter_map(subject).collect();
        numbers
    }

    /// Returns true if no local workload has a set, so that the kernel needs no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    /// Decides on a new connection by the numbers alone, as the kernel does. Equal to [`NodePolicy::judge`] restricted
    /// to local workloads.
    #[must_use]
    pub fn decide(&self, attempt: &Attempt) -> PolicyAction {
        let is_accepted = |direction| self.decide_direction(direction, attempt) == PolicyAction::Accept;
        PolicyAction::of(is_accepted(Direction::Egress) && is_accepted(Direction::Ingress))
    }

    /// Decides on a new connection in one direction: egress by the source, ingress by the destination.
    #[must_use]
    pub fn decide_direction(&self, direction: Direction, attempt: &Attempt) -> PolicyAction {
        let (own, peer) = match direction {
            Direction::Egress => (attempt.source, attempt.destination),
            Direction::Ingress => (attempt.destination, attempt.source),
        };
        let Some(set) = self.subjects.get(&(direction, own)).filter(|_| own != peer) else {
            return PolicyAction::Accept;
        };
        let Some(cell) = self.cell(*set, attempt) else { return PolicyAction::Drop };
        let decision = |identity: u32| self.decisions.get(&(cell, identity));
        let by_workload = self.identities.get(&peer).and_then(|identity| decision(*identity));
        let by_network = || self.networks.range(..=peer).next_back().filter(|(_, range)| range.last >= peer);
        let decided = by_workload.or_else(|| by_network().and_then(|(_, range)| decision(range.identity)));
        decided.or_else(|| self.defaults.get(&cell)).copied().unwrap_or(PolicyAction::Drop)
    }

    fn cell(&self, set: u32, attempt: &Attempt) -> Option<u32> {
        let protocol = match attempt.protocol {
            AttemptProtocol::Tcp => 6,
            AttemptProtocol::Udp => 17,
            AttemptProtocol::Sctp => 132,
            AttemptProtocol::Icmp => 1,
        };
        let contains = |range: &PortSpan| {
            range.set == set
                && (range.protocols.0..=range.protocols.1).contains(&protocol)
                && (range.ports.0..=range.ports.1).contains(&attempt.port)
        };
        let first = PortSpan { set, protocols: (0, 0), ports: (0, 0) };
        let of_set = self.ports.range(first..).take_while(|(range, _)| range.set == set);
        of_set.into_iter().find(|(range, _)| contains(range)).map(|(_, cell)| *cell)
    }

    /// Adds the cells and decisions of sets that must all accept.
    fn add_sets(
        &mut self,
        group: &SetGroup<'_>,
        numbers: &BTreeMap<(BTreeSet<ContentId>, BTreeSet<PortMatch>), u32>,
        in_use: &BTreeMap<Identity, u32>,
    ) {
        let mut decisions = Vec::new();
        let mut cells = Vec::new();
        for (matched, ranges) in ports::classes(group.rules()) {
            let rules = group.sets.iter().map(|set| {
                let rules: Vec<_> = set.rules.iter().filter(|rule| is_in(&matched, rule)).collect();
                (set.isolated, rules)
            });
            let rules: Vec<_> = rules.collect();
            let decide = |identity: &Identity| {
                let mut decisions =
                    rules.iter().map(|(isolated, rules)| decision(*isolated, rules, identity));
                PolicyAction::of(decisions.all(|decision| decision == PolicyAction::Accept))
            };
            let default = decide(&Identity::default());
            let Some(cell) = numbers.get(&(group.ids.clone(), matched)).copied() else { continue };
            cells.push((cell, default, ranges));
            for (identity, number) in in_use {
                let own = decide(identity);
                // A lookup that finds no decision for the workload continues with that for its networks.
                let is_shadowed = || {
                    let networks = Identity { peers: BTreeSet::new(), networks: identity.networks.clone() };
                    !identity.peers.is_empty() && decide(&networks) != default
                };
                if own != default || is_shadowed() {
                    decisions.push(((cell, *number), own));
                }
            }
        }
        if decisions.len() > SET_DECISIONS_MAX {
            self.excessive.extend(group.ids);
            decisions.clear();
            cells.iter_mut().for_each(|(_, default, _)| *default = PolicyAction::Drop);
        }
        self.decisions.extend(decisions);
        for (cell, default, ranges) in cells {
            self.defaults.insert(cell, default);
            self.cells.extend(group.ids.first().map(|id| (cell, *id)));
            let range = |(protocols, ports)| (PortSpan { set: group.number, protocols, ports }, cell);
            self.ports.extend(ranges.into_iter().map(range));
        }
    }
}

/// Sets that must all accept: those of the workloads with one address, almost always a single one.
struct SetGroup<'a> {
    ids: &'a BTreeSet<ContentId>,
    number: u32,
    sets: Vec<Arc<PolicySet>>,
}

impl SetGroup<'_> {
    fn rules(&self) -> impl Iterator<Item = &PolicyRule> {
        self.sets.iter().flat_map(|set| &set.rules)
    }
}

/// Returns the hash for the number of sets: the id of a single one.
fn number_of_sets(ids: &BTreeSet<ContentId>) -> ContentId {
    match ids.first() {
        Some(id) if ids.len() == 1 => *id,
        Some(_) | None => ContentId::of(ids),
    }
}

/// Returns a number for each content: a part of its hash or, if a smaller content has this number, the next free one.
fn numbered<T: Ord>(contents: BTreeSet<T>, hash: impl Fn(&T) -> ContentId) -> BTreeMap<T, u32> {
    let mut taken = BTreeSet::new();
    let mut number = |content: &T| {
        let mut number = u32::try_from(hash(content).bits() >> 32).unwrap_or_default();
        while !taken.insert(number) {
            number = number.wrapping_add(1);
        }
        number
    };
    let numbers: Vec<_> = contents.iter().map(&mut number).collect();
    contents.into_iter().zip(numbers).collect()
}

/// Returns true if a rule applies to the class of ports that these matches contain.
fn is_in(matched: &BTreeSet<PortMatch>, rule: &PolicyRule) -> bool {
    rule.ports.is_none_or(|ports| matched.contains(&ports))
}

/// Decides on connections of an identity by the rules that apply to the ports.
fn decision(isolated: bool, rules: &[&PolicyRule], identity: &Identity) -> PolicyAction {
    let matches = |rule: &&&PolicyRule| match &rule.peer {
        Peer::Any => true,
        Peer::Workloads { id } => identity.peers.contains(id),
        Peer::Network { cidr, except } => {
            identity.networks.contains(&PeerNetwork { cidr: *cidr, except: except.clone() })
        }
    };
    let first = |tier| rules.iter().filter(|rule| rule.tier == tier).find(matches);
    let by_action = |rule: &&PolicyRule| match rule.action {
        RuleAction::Accept => Some(PolicyAction::Accept),
        RuleAction::Deny => Some(PolicyAction::Drop),
        RuleAction::Pass => None,
    };
    if let Some(action) = first(Tier::Admin).and_then(by_action) {
        return action;
    }
    if isolated {
        return PolicyAction::of(first(Tier::Namespace).is_some());
    }
    first(Tier::Baseline).and_then(by_action).unwrap_or(PolicyAction::Accept)
}

/// Returns the sets of local addresses: those of all workloads with the address.
fn subjects(
    policy: &NodePolicy,
    locals: &BTreeSet<IpAddr>,
) -> BTreeMap<(Direction, IpAddr), BTreeSet<ContentId>> {
    let mut subjects: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for address in locals {
        for holder in policy.holders(*address) {
            for direction in [Direction::Egress, Direction::Ingress] {
                if let Some(set) = holder.set(direction) {
                    subjects.entry((direction, *address)).or_default().insert(set);
                }
            }
        }
    }
    subjects
}

fn mentioned_peers<'a>(sets: impl Iterator<Item = &'a Arc<PolicySet>>) -> BTreeSet<ContentId> {
    let peer = |rule: &PolicyRule| match &rule.peer {
        Peer::Workloads { id } => Some(*id),
        Peer::Any | Peer::Network { .. } => None,
    };
    sets.flat_map(|set| &set.rules).filter_map(peer).collect()
}

fn mentioned_networks<'a>(sets: impl Iterator<Item = &'a Arc<PolicySet>>) -> BTreeSet<PeerNetwork> {
    let network = |rule: &PolicyRule| match &rule.peer {
        Peer::Network { cidr, except } => Some(PeerNetwork { cidr: *cidr, except: except.clone() }),
        Peer::Any | Peer::Workloads { .. } => None,
    };
    sets.flat_map(|set| &set.rules).filter_map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_with_the_same_hash_get_different_numbers() {
        let numbers = numbered(["a", "b", "c"].into(), |_| ContentId::new(u64::MAX));
        assert_eq!(numbers, BTreeMap::from([("a", u32::MAX), ("b", 0), ("c", 1)]));
    }
}
