//! Rules of other programs that capture traffic of Services before the agent's rules: they translate it, or exempt it
//! from connection tracking, without which the agent cannot translate it. Does no I/O.

use std::net::IpAddr;

use ipnet::IpNet;

use super::chains::{Chain, Effect, Family, Hook};

/// Priority of the agent's chains at the hooks prerouting and output. Chains with a higher priority come later, when
/// a connection to a Service is already translated.
const OWN_PRIORITY: i32 = -100;
/// Maximum depth of nested jumps that are followed.
const DEPTH_MAX: u32 = 8;
/// Maximum number of rules evaluated from one base chain.
const STEPS_MAX: u32 = 50_000;

/// Way in which a rule captures traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// The rule exempts packets from connection tracking (`notrack`).
    NoTrack,
    /// The rule translates the destination (`dnat`, `redirect`).
    DestinationNat,
}

/// Traffic that a rule matches, as far as its conditions are interpreted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TrafficScope {
    /// Network of the destination address; `None` for any.
    pub(super) destination: Option<IpNet>,
    /// Number of the transport protocol; `None` for any.
    pub(super) protocol: Option<u8>,
    /// First and last destination port; `None` for any.
    pub(super) ports: Option<(u16, u16)>,
    /// True if the rule has another condition, which is not interpreted. Such a rule is not reported.
    pub(super) has_other_condition: bool,
}

/// Address, protocol and ports at which the kernel of this node serves a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServedFrontend {
    /// Destination address; `None` for a node port.
    pub(super) address: Option<IpAddr>,
    /// Number of the transport protocol.
    pub(super) protocol: u8,
    /// First and last destination port.
    pub(super) ports: (u16, u16),
}

/// Rule that captures traffic of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CapturingRule<'a> {
    pub(super) capture: Capture,
    /// Chain that contains the rule.
    pub(super) chain: &'a Chain,
    /// Text of the rule.
    pub(super) shown: &'a str,
    /// Handle of a rule that was read by netlink.
    pub(super) handle: Option<u64>,
    /// First frontend whose traffic the rule captures.
    pub(super) frontend: ServedFrontend,
}

impl TrafficScope {
    /// Returns the traffic that both scopes match.
    fn and(self, inner: Self) -> Self {
        let (destination, is_disjoint) = match (self.destination, inner.destination) {
            (Some(one), Some(other)) if one.contains(&other) => (Some(other), false),
            (Some(one), Some(other)) => (Some(one), !other.contains(&one)),
            (one, other) => (one.or(other), false),
        };
        let differs = |one: Option<u8>, other: Option<u8>| one.zip(other).is_some_and(|(a, b)| a != b);
        Self {
            destination,
            protocol: inner.protocol.or(self.protocol),
            ports: inner.ports.or(self.ports),
            has_other_condition: self.has_other_condition
                || inner.has_other_condition
                || is_disjoint
                || differs(self.protocol, inner.protocol),
        }
    }

    /// Returns true if a rule with this scope, in a table of `family`, matches connections to a frontend.
    fn matches(&self, family: Family, frontend: &ServedFrontend) -> bool {
        let is_of_family = match (family, frontend.address) {
            (Family::Inet, _) | (_, None) => true,
            (Family::Ip, Some(address)) => address.is_ipv4(),
            (Family::Ip6, Some(address)) => address.is_ipv6(),
        };
        let is_destination = match (self.destination, frontend.address) {
            (None, _) => true,
            (Some(network), Some(address)) => network.contains(&address),
            // The addresses of the node are not compared.
            (Some(_), None) => false,
        };
        let overlaps = |(first, last): (u16, u16)| first <= frontend.ports.1 && frontend.ports.0 <= last;
        !self.has_other_condition
            && is_of_family
            && is_destination
            && self.protocol.is_none_or(|protocol| protocol == frontend.protocol)
            && self.ports.is_none_or(overlaps)
    }
}

/// Returns the rules that capture traffic of the `served` frontends, with the first such frontend of each. Jumps are
/// followed; a jump to a chain for which `is_ours` returns true ends a chain, because the agent's rules decide then.
pub(super) fn find<'a>(
    chains: &'a [Chain],
    served: &[ServedFrontend],
    is_ours: impl Fn(&Chain) -> bool,
) -> Vec<CapturingRule<'a>> {
    let is_early = |chain: &&Chain| {
        matches!(chain.hook, Some(Hook::Prerouting | Hook::Output)) && chain.priority <= OWN_PRIORITY
    };
    let mut found = Vec::new();
    for chain in chains.iter().filter(is_early).filter(|chain| !is_ours(chain)) {
        let mut walk = Walk { chains, served, is_ours: &is_ours, steps: 0, found: Vec::new() };
        let _is_over = walk.follow(chain, TrafficScope::default(), 0);
        found.extend(walk.found);
    }
    found
}

struct Walk<'a, 'b, F> {
    chains: &'a [Chain],
    served: &'b [ServedFrontend],
    is_ours: &'b F,
    steps: u32,
    found: Vec<CapturingRule<'a>>,
}

impl<'a, F: Fn(&Chain) -> bool> Walk<'a, '_, F> {
    /// Follows the rules of a chain, which is reached by traffic of `scope`. Returns true if the agent's rules or the
    /// limit of steps end the evaluation.
    fn follow(&mut self, chain: &'a Chain, scope: TrafficScope, depth: u32) -> bool {
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return true;
            }
            let scope = scope.and(rule.scope);
            match &rule.effect {
                Effect::Captures(capture) => {
                    let frontend = self.served.iter().find(|one| scope.matches(chain.place.family, one));
                    self.found.extend(frontend.map(|frontend| CapturingRule {
                        capture: *capture,
                        chain,
                        shown: &rule.shown,
                        handle: rule.handle,
                        frontend: *frontend,
                    }));
                }
                Effect::Jump(name) if depth < DEPTH_MAX && !scope.has_other_condition => {
                    let is_there = |other: &&Chain| other.place == chain.place && other.name == *name;
                    let Some(there) = self.chains.iter().find(is_there) else { continue };
                    let is_over = (self.is_ours)(there) || self.follow(there, scope, depth + 1);
                    if is_over && scope == TrafficScope::default() {
                        return true;
                    }
                }
                Effect::Jump(_) | Effect::Accept | Effect::Drop | Effect::Return | Effect::Other => {}
            }
        }
        false
    }
}
