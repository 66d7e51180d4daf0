//! The numbers of a node's policy decide as the policy itself does. (F149)

use std::{net::IpAddr, sync::Arc};

use model::{
    kinds::service::Protocol,
    policy::{
        identity::{PolicyAction, PolicyNumbers},
        node_policy::{Attempt, AttemptProtocol, NodePolicy, PolicyVerdict},
        set::{
            ContentId, Peer, PolicyRule, PolicySet, PolicyWorkload, PortMatch, RuleAction, RuleSource, Tier,
        },
    },
    primitives::quantity::Revision,
};
use proptest::{collection::vec, prelude::*, sample::select};

const ADDRESSES: [&str; 8] =
    ["10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.9", "fd00::1", "fd00::2", "2001:db8::9", "255.255.255.255"];
const NETWORKS: [&str; 8] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.0.2/32",
    "192.0.2.0/24",
    "::/0",
    "fd00::/64",
    "255.255.255.255/32",
];
const PORTS: [u16; 5] = [0, 79, 80, 81, 65535];

fn address() -> impl Strategy<Value = IpAddr> {
    select(&ADDRESSES[..]).prop_map(|text| text.parse().unwrap())
}

fn peer() -> impl Strategy<Value = Peer> {
    let network = || select(&NETWORKS[..]).prop_map(|text| text.parse().unwrap());
    prop_oneof![
        1 => Just(Peer::Any),
        3 => (0u64..3).prop_map(|id| Peer::Workloads { id: ContentId::new(id) }),
        3 => (network(), vec(network(), 0..3))
            .prop_map(|(cidr, except)| Peer::Network { cidr, except: except.into_iter().collect() }),
    ]
}

fn ports() -> impl Strategy<Value = Option<PortMatch>> {
    let protocol = select(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp][..]);
    let range = (protocol, select(&PORTS[..]), select(&PORTS[..])).prop_map(|(protocol, a, b)| PortMatch {
        protocol,
        first: a.min(b),
        last: a.max(b),
    });
    proptest::option::of(range)
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let tier = select(&[Tier::Admin, Tier::Namespace, Tier::Baseline][..]);
    let action = select(&[RuleAction::Accept, RuleAction::Deny, RuleAction::Pass][..]);
    (tier, action, peer(), ports()).prop_map(|(tier, action, peer, ports)| PolicyRule {
        tier,
        action,
        peer,
        ports,
        source: RuleSource { policy: "x/p".to_owned().try_into().unwrap(), rule: 0 },
    })
}

/// Returns policies of a few workloads; some workloads name a set that does not exist.
fn policy() -> impl Strategy<Value = NodePolicy> {
    let sets = vec(
        (any::<bool>(), vec(rule(), 0..6)).prop_map(|(isolated, rules)| PolicySet::new(isolated, rules)),
        1..4,
    );
    let workload = (
        vec(address(), 1..3),
        proptest::collection::btree_set((0u64..3).prop_map(ContentId::new), 0..3),
        [proptest::option::of(0usize..5), proptest::option::of(0usize..5)],
        0u64..3,
    );
    (sets, vec(workload, 1..6)).prop_map(|(sets, workloads)| {
        let mut policy = NodePolicy::default();
        let id = |index: usize| sets.get(index).map_or(ContentId::new(99), |set| set.id);
        for (index, (addresses, peers, [ingress, egress], revision)) in workloads.into_iter().enumerate() {
            policy.put_workload(Arc::new(PolicyWorkload {
                workload: format!("x/w{index}").try_into().unwrap(),
                revision: Revision(revision),
                addresses,
                node: None,
                peers,
                ingress: ingress.map(id),
                egress: egress.map(id),
            }));
        }
        sets.iter().for_each(|set| {
            policy.put_set(Arc::new(set.clone()));
        });
        policy
    })
}

fn attempts() -> impl Iterator<Item = Attempt> {
    let addresses = || ADDRESSES.into_iter().map(|text| text.parse::<IpAddr>().unwrap());
    let protocols =
        [AttemptProtocol::Tcp, AttemptProtocol::Udp, AttemptProtocol::Sctp, AttemptProtocol::Icmp];
    let pairs = addresses().flat_map(move |source| addresses().map(move |destination| (source, destination)));
    pairs.flat_map(move |(source, destination)| {
        protocols.into_iter().flat_map(move |protocol| {
            let ports = PORTS.into_iter().filter(move |port| protocol != AttemptProtocol::Icmp || *port == 0);
            ports.map(move |port| Attempt { source, destination, protocol, port })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Input: random policies, all workloads local. Output: each connection has the verdict of the policy.
    #[test]
    fn f149_numbers_decide_as_the_policy(policy in policy()) {
        let numbers = PolicyNumbers::flatten(&policy, |_| true);
        prop_assert!(numbers.excessive.is_empty());
        for attempt in attempts() {
            let is_accepted = matches!(policy.judge(&attempt), PolicyVerdict::Accept(_));
            let decided = numbers.decide(&attempt) == PolicyAction::Accept;
            prop_assert_eq!(decided, is_accepted, "{:?}", attempt);
        }
    }

    /// Input: a policy, and another workload with an address that no other has. Output: only elements of the address, its
    /// identity and its sets change.
    #[test]
    fn a_changed_workload_changes_only_its_numbers(policy in policy(), peers in vec(0u64..3, 0..3)) {
        let before = PolicyNumbers::flatten(&policy, |_| true);
        let address: IpAddr = "10.0.0.77".parse().unwrap();
        let mut changed = policy;
        changed.put_workload(Arc::new(PolicyWorkload {
            workload: "x/another".to_owned().try_into().unwrap(),
            revision: Revision(9),
            addresses: vec![address],
            node: None,
            peers: peers.into_iter().map(ContentId::new).collect(),
            ingress: None,
            egress: None,
        }));
        let after = PolicyNumbers::flatten(&changed, |_| true);
        let without = |numbers: &PolicyNumbers| {
            let mut identities = numbers.identities.clone();
            identities.remove(&address);
            identities
        };
        prop_assert_eq!(without(&before), without(&after));
        prop_assert_eq!(&before.networks, &after.networks);
        prop_assert_eq!(&before.ports, &after.ports);
        prop_assert_eq!(&before.defaults, &after.defaults);
        let identity = after.identities.get(&address);
        for ((cell, peer), action) in &after.decisions {
            let is_known = before.decisions.get(&(*cell, *peer)) == Some(action);
            prop_assert!(is_known || Some(peer) == identity);
        }
    }
}
