//! Random policies: the kernel decides as `judge`.

use std::net::IpAddr;

use model::{
    policy::{
        node_policy::{Attempt, AttemptProtocol, PolicyVerdict},
        set::{Peer, PolicyRule, PolicySet, RuleAction, Tier},
    },
    primitives::net::IpFamily,
};

use crate::site::{PORTS, Selected, Site, accept, peers};

/// Number of random policies. Each costs one matrix of connections.
const CASES: u64 = 12;
const WORKLOADS: u8 = 9;

/// Pseudo-random numbers (a linear congruential generator), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()].clone()
    }

    fn rule(&mut self) -> PolicyRule {
        let networks = ["10.1.0.0/17", "10.1.3.2/32", "10.0.0.0/8", "fd01::/16", "fd01:4::/64", "::/0"];
        let except = ["10.1.4.0/24", "10.1.3.2/32", "fd01:5::/64"].map(|text| text.parse().unwrap());
        let peer = match self.below(4) {
            0 => Peer::Any,
            1 => {
                let cidr = self.pick(&networks).parse().unwrap();
                let except = (0..self.below(3)).map(|_| self.pick(&except)).collect();
                Peer::Network { cidr, except }
            }
            _ => peers(self.below(3)),
        };
        let port = self.pick(&[None, Some(80), Some(81), Some(82)]);
        let tier = self.pick(&[Tier::Namespace, Tier::Namespace, Tier::Admin, Tier::Baseline]);
        let action = self.pick(&[RuleAction::Accept, RuleAction::Accept, RuleAction::Deny, RuleAction::Pass]);
        PolicyRule { tier, action, ..accept(peer, port) }
    }

    fn set(&mut self) -> Option<PolicySet> {
        let rules = (0..self.below(4)).map(|_| self.rule()).collect();
        let set = PolicySet::new(self.below(4) > 0, rules);
        (self.below(2) == 0).then_some(set)
    }
}

/// Input: random policies of nine workloads, one after another in the same table. Output: each connection has the verdict of
/// `judge`.
#[test]
fn f149_the_kernel_decides_on_random_policies_as_the_model() {
    let mut site = Site::new(WORKLOADS);
    for case in 0..CASES {
        let mut random = Random(case);
        for index in 0..usize::from(WORKLOADS) {
            let peers = (0..3).filter(|_| random.below(2) == 0).collect();
            let selected = Selected { peers, ingress: random.set(), egress: random.set() };
            site.select(index, selected);
        }
        site.program();
        let family = random.pick(&IpFamily::ALL);
        let port = random.pick(&PORTS);
        let address = |index: usize| -> IpAddr { site.address(index, family) };
        site.assert_matrix(family, port, |from, to| {
            let (source, destination) = (address(from), address(to));
            let attempt = Attempt { source, destination, protocol: AttemptProtocol::Tcp, port };
            matches!(site.policy.judge(&attempt), PolicyVerdict::Accept(_))
        });
    }
}
