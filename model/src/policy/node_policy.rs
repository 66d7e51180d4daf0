//! Policy that a node knows, and the decision on a new connection.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::set::{ContentId, Peer, PolicyRule, PolicySet, PolicyWorkload, RuleAction, RuleSource, Tier};
use crate::{
    kinds::{attachment::WorkloadKey, service::Protocol},
    primitives::quantity::Revision,
};

/// Workloads and sets that a node knows, with an index of the addresses. Clones share all data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePolicy {
    workloads: OrdMap<WorkloadKey, Arc<PolicyWorkload>>,
    sets: OrdMap<ContentId, Arc<PolicySet>>,
    /// Workloads with each address, oldest revision first.
    by_address: OrdMap<IpAddr, OrdSet<(Revision, WorkloadKey)>>,
}

/// New connection after translation of the destination, with the address of the client before masquerading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// Address of the client.
    pub source: IpAddr,
    /// Address of the endpoint.
    pub destination: IpAddr,
    /// Protocol of the connection.
    pub protocol: AttemptProtocol,
    /// Port of the endpoint; 0 for ICMP.
    pub port: u16,
}

/// Protocol of a new connection. Rules with ports match TCP, UDP and SCTP only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptProtocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
    /// Echo requests of ICMP and ICMPv6.
    Icmp,
}

/// Direction of a connection, as seen from a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Connections to the workload.
    Ingress,
    /// Connections of the workload.
    Egress,
}

/// Decision on a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// The connection is accepted. Contains the rule of the ingress direction or, if none applies, of the egress
    /// direction; `None` if no rule applies.
    Accept(Option<RuleSource>),
    /// Packets of the connection are dropped.
    Drop {
        /// Direction whose set drops the connection.
        direction: Direction,
        /// Workload with the set.
        workload: WorkloadKey,
        /// Reason of the drop.
        by: DropCause,
    },
}

/// Decision of one direction on a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectionVerdict {
    /// The direction accepts the connection: no policy selects the workload, or by the rule.
    Accept(Option<RuleSource>),
    /// The direction drops the connection.
    Drop {
        /// Workload whose set drops the connection.
        workload: WorkloadKey,
        /// Reason of the drop.
        by: DropCause,
    },
}

/// Reason why a set drops a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropCause {
    /// A NetworkPolicy selects the workload, and no rule accepts the connection.
    Isolation,
    /// A rule denies the connection.
    Rule(RuleSource),
    /// The set has not been received, so that its rules are unknown.
    UnknownSet,
}

impl AttemptProtocol {
    /// Returns the protocol of rules that may match, or `None` for ICMP.
    #[must_use]
    pub const fn transport(self) -> Option<Protocol> {
        match self {
            Self::Tcp => Some(Protocol::Tcp),
            Self::Udp => Some(Protocol::Udp),
            Self::Sctp => Some(Protocol::Sctp),
            Self::Icmp => None,
        }
    }
}

impl From<Protocol> for AttemptProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
        }
    }
}

impl NodePolicy {
    /// Adds or replaces a workload. Returns true if it differs from the previous one.
    pub fn put_workload(&mut self, workload: Arc<PolicyWorkload>) -> bool {
        if self.workloads.get(&workload.workload) == Some(&workload) {
            return false;
        }
        self.remove_workload(&workload.workload);
        for address in &workload.addresses {
            let entry = (workload.revision, workload.workload.clone());
            self.by_address.entry(*address).or_default().insert(entry);
        }
        self.workloads.insert(workload.workload.clone(), workload);
        true
    }

    /// Removes a workload and returns it, or `None` if it is unknown.
    pub fn remove_workload(&mut self, key: &WorkloadKey) -> Option<Arc<PolicyWorkload>> {
        let workload = self.workloads.remove(key)?;
        for address in &workload.addresses {
            if let Some(keys) = self.by_address.get_mut(address) {
                keys.remove(&(workload.revision, key.clone()));
                if keys.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
        Some(workload)
    }

    /// Adds or replaces a set. Returns true if it differs from the previous one.
    pub fn put_set(&mut self, set: Arc<PolicySet>) -> bool {
        let differs = self.sets.get(&set.id) != Some(&set);
        self.sets.insert(set.id, set);
        differs
    }

    /// Removes a set and returns it, or `None` if it is unknown. Workloads that still name it drop all connections.
    pub fn remove_set(&mut self, id: ContentId) -> Option<Arc<PolicySet>> {
        self.sets.remove(&id)
    }

    /// Returns the workloads by their keys.
    #[must_use]
    pub const fn workloads(&self) -> &OrdMap<WorkloadKey, Arc<PolicyWorkload>> {
        &self.workloads
    }

    /// Returns the sets by their ids.
    #[must_use]
    pub const fn sets(&self) -> &OrdMap<ContentId, Arc<PolicySet>> {
        &self.sets
    }

    /// Returns the workload with an address, or `None` if no known workload has it. Of several workloads, returns the
    /// one with the newest revision.
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<&Arc<PolicyWorkload>> {
        let (_, key) = self.by_address.get(&address)?.get_max()?;
        self.workloads.get(key)
    }

    /// Returns all workloads with an address, oldest revision first. The sets of all of them apply to the address, and a peer
    /// selector matches it if it matches all of them: otherwise, whoever may write a workload could replace the policy of
    /// another one, or be accepted in its place.
    pub fn holders(&self, address: IpAddr) -> impl Iterator<Item = &Arc<PolicyWorkload>> {
        let keys = self.by_address.get(&address).into_iter().flatten();
        keys.filter_map(|(_, key)| self.workloads.get(key))
    }

    /// Returns the addresses of all workloads, in ascending order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_address.keys().copied()
    }

    /// Returns the peer selectors that match an address: those that match all workloads with the address.
    #[must_use]
    pub fn peers_of(&self, address: IpAddr) -> BTreeSet<ContentId> {
        let mut holders = self.holders(address);
        let first = holders.next().map(|holder| holder.peers.clone()).unwrap_or_default();
        holders.fold(first, |peers, holder| peers.intersection(&holder.peers).copied().collect())
    }

    /// Returns true if nothing is known, so that all connections are accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.sets.is_empty()
    }

    /// Decides on a new connection. Both directions must accept it. Connections of a workload to itself are always
    /// accepted; those of a node to its own workloads are accepted by the agent, without this function.
    #[must_use]
    pub fn judge(&self, attempt: &Attempt) -> PolicyVerdict {
        let mut accepted_by = None;
        for direction in [Direction::Egress, Direction::Ingress] {
            match self.judge_direction(direction, attempt) {
                DirectionVerdict::Accept(source) => accepted_by = source.or(accepted_by),
                DirectionVerdict::Drop { workload, by } => {
                    return PolicyVerdict::Drop { direction, workload, by };
                }
            }
        }
        PolicyVerdict::Accept(accepted_by)
    }

    /// Decides on a new connection in one direction only: egress by the set of the source's workload, ingress by that of
    /// the destination's workload.
    #[must_use]
    pub fn judge_direction(&self, direction: Direction, attempt: &Attempt) -> DirectionVerdict {
        let (own, peer) = match direction {
            Direction::Egress => (attempt.source, attempt.destination),
            Direction::Ingress => (attempt.destination, attempt.source),
        };
        if own == peer {
            return DirectionVerdict::Accept(None);
        }
        let mut accepted_by = None;
        for holder in self.holders(own) {
            let Some(id) = holder.set(direction) else { continue };
            let decision = match self.sets.get(&id) {
                Some(set) => self.evaluate(set, peer, attempt),
                None => Err(DropCause::UnknownSet),
            };
            match decision {
                Ok(source) => accepted_by = source.cloned().or(accepted_by),
                Err(by) => return DirectionVerdict::Drop { workload: holder.workload.clone(), by },
            }
        }
        DirectionVerdict::Accept(accepted_by)
    }

    /// Evaluates a set. Returns the rule that accepts the connection, or `None` if no rule applies.
    fn evaluate<'set>(
        &self,
        set: &'set PolicySet,
        peer: IpAddr,
        attempt: &Attempt,
    ) -> Result<Option<&'set RuleSource>, DropCause> {
        let ids = self.peers_of(peer);
        let first = |tier: Tier| {
            let mut rules = set.rules.iter().filter(move |rule| rule.tier == tier);
            rules.find(|rule| matches(rule, peer, &ids, attempt))
        };
        let decide = |rule: &'set PolicyRule| match rule.action {
            RuleAction::Accept => Some(Ok(Some(&rule.source))),
            RuleAction::Deny => Some(Err(DropCause::Rule(rule.source.clone()))),
            RuleAction::Pass => None,
        };
        if let Some(decision) = first(Tier::Admin).and_then(decide) {
            return decision;
        }
        if set.isolated {
            return first(Tier::Namespace).map(|rule| Some(&rule.source)).ok_or(DropCause::Isolation);
        }
        first(Tier::Baseline).and_then(decide).unwrap_or(Ok(None))
    }
}

/// Returns true if a rule applies to a connection with this peer, which these selectors match.
fn matches(rule: &PolicyRule, peer: IpAddr, ids: &BTreeSet<ContentId>, attempt: &Attempt) -> bool {
    let is_peer = match &rule.peer {
        Peer::Any => true,
        Peer::Workloads { id } => ids.contains(id),
        Peer::Network { cidr, except } => {
            cidr.contains(&peer) && !except.iter().any(|except| except.contains(&peer))
        }
    };
    let is_port = rule.ports.is_none_or(|ports| {
        attempt.protocol.transport() == Some(ports.protocol)
            && (ports.first..=ports.last).contains(&attempt.port)
    });
    is_peer && is_port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::set::PortMatch;

    const A: &str = "10.0.0.1";
    const B: &str = "10.0.0.2";
    const OUTSIDE: &str = "192.0.2.9";

    fn source(name: &str) -> RuleSource {
        RuleSource { policy: format!("x/{name}").try_into().unwrap(), rule: 0 }
    }

    fn rule(name: &str, tier: Tier, action: RuleAction, peer: Peer, port: Option<u16>) -> PolicyRule {
        let ports = port.map(|port| PortMatch { protocol: Protocol::Tcp, first: port, last: port });
        PolicyRule { tier, action, peer, ports, source: source(name) }
    }

    fn accept(name: &str, peer: Peer, port: Option<u16>) -> PolicyRule {
        rule(name, Tier::Namespace, RuleAction::Accept, peer, port)
    }

    fn workload(name: &str, address: &str, revision: u64) -> PolicyWorkload {
        PolicyWorkload {
            workload: format!("x/{name}").try_into().unwrap(),
            revision: Revision(revision),
            addresses: vec![address.parse().unwrap()],
            node: None,
            peers: [].into(),
            ingress: None,
            egress: None,
        }
    }

    /// Policy with the workloads a and b: `b` is a peer of id 7 and has the set for ingress.
    fn with_ingress(isolated: bool, rules: Vec<PolicyRule>) -> NodePolicy {
        let set = PolicySet::new(isolated, rules);
        let mut policy = NodePolicy::default();
        let mut a = workload("a", A, 1);
        a.peers.insert(ContentId::new(7));
        let b = PolicyWorkload { ingress: Some(set.id), ..workload("b", B, 1) };
        assert!(policy.put_set(Arc::new(set)) && policy.put_workload(Arc::new(a)));
        assert!(policy.put_workload(Arc::new(b)));
        policy
    }

    fn tcp(source: &str, destination: &str, port: u16) -> Attempt {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Attempt { source, destination, protocol: AttemptProtocol::Tcp, port }
    }

    fn dropped(direction: Direction, name: &str, by: DropCause) -> PolicyVerdict {
        PolicyVerdict::Drop { direction, workload: format!("x/{name}").try_into().unwrap(), by }
    }

    #[test]
    fn an_isolated_workload_accepts_only_connections_that_a_rule_accepts() {
        let peer = Peer::Workloads { id: ContentId::new(7) };
        let policy = with_ingress(true, vec![accept("p", peer, Some(80))]);
        assert_eq!(policy.judge(&tcp(A, B, 80)), PolicyVerdict::Accept(Some(source("p"))));
        let isolation = dropped(Direction::Ingress, "b", DropCause::Isolation);
        assert_eq!(policy.judge(&tcp(A, B, 81)), isolation, "another port");
        assert_eq!(policy.judge(&tcp(OUTSIDE, B, 80)), isolation, "another peer");
        let udp = Attempt { protocol: AttemptProtocol::Udp, ..tcp(A, B, 80) };
        assert_eq!(policy.judge(&udp), isolation, "another protocol");
        let echo = Attempt { protocol: AttemptProtocol::Icmp, ..tcp(A, B, 0) };
        assert_eq!(policy.judge(&echo), isolation, "ICMP has no ports");
        assert_eq!(policy.judge(&tcp(B, A, 81)), PolicyVerdict::Accept(None), "the other direction");
        assert_eq!(policy.judge(&tcp(B, B, 81)), PolicyVerdict::Accept(None), "to itself");
    }

    #[test]
    fn networks_match_addresses_of_workloads_too_and_exclude_their_exceptions() {
        let peer = Peer::Network {
            cidr: "10.0.0.0/8".parse().unwrap(),
            except: [format!("{A}/32").parse().unwrap()].into(),
        };
        let policy = with_ingress(true, vec![accept("p", peer, None)]);
        assert_eq!(policy.judge(&tcp("10.9.0.1", B, 1)), PolicyVerdict::Accept(Some(source("p"))));
        let isolation = dropped(Direction::Ingress, "b", DropCause::Isolation);
        assert_eq!(policy.judge(&tcp(A, B, 1)), isolation);
        assert_eq!(policy.judge(&tcp(OUTSIDE, B, 1)), isolation);
        let echo = Attempt { protocol: AttemptProtocol::Icmp, ..tcp("10.9.0.1", B, 0) };
        assert_eq!(policy.judge(&echo), PolicyVerdict::Accept(Some(source("p"))), "a rule without ports");
    }

    #[test]
    fn tiers_decide_in_their_order() {
        let (admin, base) = (Tier::Admin, Tier::Baseline);
        let rules = vec![
            rule("pass", admin, RuleAction::Pass, Peer::Any, Some(80)),
            rule("deny", admin, RuleAction::Deny, Peer::Any, Some(81)),
            rule("accept", admin, RuleAction::Accept, Peer::Any, None),
            accept("p", Peer::Any, Some(81)),
            rule("base", base, RuleAction::Deny, Peer::Any, Some(80)),
        ];
        let policy = with_ingress(false, rules.clone());
        let by_rule = |name: &str| dropped(Direction::Ingress, "b", DropCause::Rule(source(name)));
        assert_eq!(policy.judge(&tcp(A, B, 80)), by_rule("base"));
        assert_eq!(policy.judge(&tcp(A, B, 81)), by_rule("deny"));
        assert_eq!(policy.judge(&tcp(A, B, 82)), PolicyVerdict::Accept(Some(source("accept"))));
        let policy = with_ingress(true, rules);
        assert_eq!(
            policy.judge(&tcp(A, B, 80)),
            dropped(Direction::Ingress, "b", DropCause::Isolation),
            "Baseline does not apply to isolated workloads"
        );
    }

    #[test]
    fn both_directions_must_accept_and_an_unknown_set_drops() {
        let mut policy = with_ingress(true, vec![accept("p", Peer::Any, None)]);
        let egress = PolicyWorkload { egress: Some(ContentId::new(1)), ..workload("a", A, 2) };
        assert!(policy.put_workload(Arc::new(egress.clone())));
        assert_eq!(policy.judge(&tcp(A, B, 80)), dropped(Direction::Egress, "a", DropCause::UnknownSet));
        let set = PolicySet::new(true, vec![accept("q", Peer::Any, Some(80))]);
        let id = set.id;
        policy.put_set(Arc::new(set));
        policy.put_workload(Arc::new(PolicyWorkload { egress: Some(id), ..egress }));
        assert_eq!(policy.judge(&tcp(A, B, 80)), PolicyVerdict::Accept(Some(source("p"))), "rule of ingress");
        assert_eq!(policy.judge(&tcp(A, OUTSIDE, 80)), PolicyVerdict::Accept(Some(source("q"))));
        assert_eq!(policy.judge(&tcp(A, B, 81)), dropped(Direction::Egress, "a", DropCause::Isolation));
        assert!(policy.remove_set(id).is_some());
        assert_eq!(policy.judge(&tcp(A, B, 80)), dropped(Direction::Egress, "a", DropCause::UnknownSet));
    }

    /// Another workload with the same address neither replaces the set of the first one, nor lends its peers to it.
    #[test]
    fn of_several_workloads_with_an_address_all_must_accept() {
        let mut policy =
            with_ingress(true, vec![accept("p", Peer::Workloads { id: ContentId::new(7) }, None)]);
        let open = PolicySet::new(true, vec![accept("open", Peer::Any, None)]);
        let claim = PolicyWorkload { ingress: Some(open.id), ..workload("evil", B, 9) };
        policy.put_set(Arc::new(open));
        policy.put_workload(Arc::new(claim));
        let isolation = dropped(Direction::Ingress, "b", DropCause::Isolation);
        assert_eq!(policy.judge(&tcp(OUTSIDE, B, 80)), isolation);
        assert!(matches!(policy.judge(&tcp(A, B, 80)), PolicyVerdict::Accept(Some(_))));
        // The address of a peer that another workload claims is no peer any longer.
        policy.put_workload(Arc::new(workload("evil", A, 9)));
        assert_eq!(policy.judge(&tcp(A, B, 80)), isolation);
    }

    #[test]
    fn the_newest_workload_with_an_address_counts() {
        let mut policy = NodePolicy::default();
        for (name, revision) in [("a", 3), ("b", 5), ("c", 4)] {
            policy.put_workload(Arc::new(workload(name, A, revision)));
        }
        let named =
            |policy: &NodePolicy| policy.lookup(A.parse().unwrap()).map(|one| one.workload.to_string());
        assert_eq!(named(&policy).as_deref(), Some("x/b"));
        assert!(policy.remove_workload(&"x/b".to_owned().try_into().unwrap()).is_some());
        assert_eq!(named(&policy).as_deref(), Some("x/c"));
        assert!(policy.put_workload(Arc::new(workload("c", B, 6))), "the address moved");
        assert_eq!(named(&policy).as_deref(), Some("x/a"));
        assert!(!policy.put_workload(Arc::new(workload("a", A, 3))), "unchanged");
        for name in ["a", "c"] {
            policy.remove_workload(&format!("x/{name}").try_into().unwrap());
        }
        assert_eq!(policy, NodePolicy::default(), "the index is empty again");
        assert!(policy.is_empty());
    }
}
