//! Compilation of NetworkPolicies to rules, before named ports are resolved.

use std::collections::BTreeSet;

use serde::Serialize;

use super::set::{ContentId, Peer, PolicyKey, PolicyRule, PortMatch, RuleAction, RuleSource, Tier};
use crate::{
    kinds::{
        metadata::Labels,
        network_policy::{NAMESPACE_NAME_LABEL, NetworkPolicySpec, PolicyPeer, PolicyPort, PolicyType},
        selector::{Operator, Selector},
        service::{Protocol, TargetPort},
        workload::WorkloadSpec,
    },
    primitives::name::{Label, Namespace},
};

/// Compiled NetworkPolicy. Named ports are resolved for each workload and destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompiledPolicy {
    /// Selector of the workloads in the namespace of the policy.
    pub(super) subject: Selector,
    /// Rules for ingress; `None` if the policy does not select workloads for ingress.
    pub(super) ingress: Option<Vec<RuleTemplate>>,
    /// Rules for egress; `None` if the policy does not select workloads for egress.
    pub(super) egress: Option<Vec<RuleTemplate>>,
}

/// One peer and one port of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleTemplate {
    peer: TemplatePeer,
    port: TemplatePort,
    source: RuleSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePeer {
    /// Peer of a compiled rule, as it is.
    Fixed(Peer),
    /// Workloads that match a selector.
    Selected(ContentId, PeerSelector),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePort {
    /// Ports of a compiled rule, as they are.
    Fixed(Option<PortMatch>),
    /// Port with this name and protocol at the workload that the policy selects.
    OfSubject(Label, Protocol),
    /// Port with the name in the selector of the peer, which has one number for each group of peers.
    OfPeer(Protocol),
}

/// Selector of peers. Its id is the hash of the selector, so that equal selectors of several policies share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PeerSelector {
    pub(super) namespaces: NamespaceMatch,
    pub(super) workloads: Selector,
    /// Name and protocol of a port that the workloads must have.
    pub(super) port: Option<(Label, Protocol)>,
}

/// Namespaces of peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) enum NamespaceMatch {
    /// The listed namespaces.
    Listed(BTreeSet<Namespace>),
    /// All namespaces but the listed ones.
    Except(BTreeSet<Namespace>),
}

impl CompiledPolicy {
    pub(super) fn of(key: &PolicyKey, spec: &NetworkPolicySpec) -> Self {
        let ingress = spec.applies_to(PolicyType::Ingress).then(|| {
            let rules = spec.ingress.iter().map(|rule| (&*rule.from, &*rule.ports));
            templates(key, PolicyType::Ingress, rules)
        });
        let egress = spec.applies_to(PolicyType::Egress).then(|| {
            let rules = spec.egress.iter().map(|rule| (&*rule.to, &*rule.ports));
            templates(key, PolicyType::Egress, rules)
        });
        Self { subject: spec.selector.clone(), ingress, egress }
    }

    /// Returns the selectors of peers with their ids.
    pub(super) fn peers(&self) -> impl Iterator<Item = (ContentId, &PeerSelector)> {
        let rules = self.ingress.iter().chain(&self.egress).flatten();
        rules.filter_map(|rule| match &rule.peer {
            TemplatePeer::Selected(id, selector) => Some((*id, selector)),
            TemplatePeer::Fixed(_) => None,
        })
    }
}

/// Returns a template for each pair of a peer and a port of the rules.
fn templates<'a>(
    key: &PolicyKey,
    direction: PolicyType,
    rules: impl Iterator<Item = (&'a [PolicyPeer], &'a [PolicyPort])>,
) -> Vec<RuleTemplate> {
    let mut found = Vec::new();
    for (index, (peers, ports)) in rules.enumerate() {
        let rule = u32::try_from(index).unwrap_or(u32::MAX);
        let peers: Vec<_> = match peers {
            [] => vec![None],
            peers => peers.iter().map(Some).collect(),
        };
        let ports: Vec<_> = match ports {
            [] => vec![None],
            ports => ports.iter().map(Some).collect(),
        };
        for peer in peers {
            for port in &ports {
                let source = RuleSource { policy: key.clone(), rule };
                found.extend(template(&key.namespace, direction, peer, *port, source));
            }
        }
    }
    found
}

/// Returns the template of one peer and one port; `None` stands for all of them. No template matches a named port at
/// an `ipBlock` of egress, which admission rejects.
fn template(
    own: &Namespace,
    direction: PolicyType,
    peer: Option<&PolicyPeer>,
    port: Option<&PolicyPort>,
    source: RuleSource,
) -> Option<RuleTemplate> {
    let named = port.and_then(|port| match &port.port {
        Some(TargetPort::Name(name)) => Some((name.clone(), port.protocol)),
        Some(TargetPort::Number(_)) | None => None,
    });
    let (port, port_of_peer) = match (named, direction) {
        (Some((name, protocol)), PolicyType::Ingress) => (TemplatePort::OfSubject(name, protocol), None),
        (Some((name, protocol)), PolicyType::Egress) => {
            (TemplatePort::OfPeer(protocol), Some((name, protocol)))
        }
        (None, _) => (TemplatePort::Fixed(port.map(numbers)), None),
    };
    let selected = |namespaces: NamespaceMatch, workloads: Selector| {
        let selector = PeerSelector { namespaces, workloads, port: port_of_peer.clone() };
        TemplatePeer::Selected(ContentId::of(&selector), selector)
    };
    let peer = match peer {
        None if port_of_peer.is_some() => selected(NamespaceMatch::all(), Selector::default()),
        None => TemplatePeer::Fixed(Peer::Any),
        Some(PolicyPeer { ip_block: Some(_), .. }) if port_of_peer.is_some() => return None,
        Some(PolicyPeer { ip_block: Some(block), .. }) => TemplatePeer::Fixed(Peer::Network {
            cidr: block.cidr,
            except: block.except.iter().copied().collect(),
        }),
        Some(PolicyPeer { workload_selector, namespace_selector, ip_block: None }) => {
            let namespaces = match namespace_selector {
                Some(selector) => NamespaceMatch::of(selector),
                None => NamespaceMatch::Listed([own.clone()].into()),
            };
            selected(namespaces, workload_selector.clone().unwrap_or_default())
        }
    };
    Some(RuleTemplate { peer, port, source })
}

fn numbers(port: &PolicyPort) -> PortMatch {
    let PolicyPort { protocol, port, end_port } = port;
    let (first, last) = match port {
        Some(TargetPort::Number(first)) => (first.get(), end_port.unwrap_or(*first).get()),
        Some(TargetPort::Name(_)) | None => (0, u16::MAX),
    };
    PortMatch { protocol: *protocol, first, last }
}

impl RuleTemplate {
    /// Adds the rules of the template for one workload. `numbers` returns the numbers of the named port of a peer selector.
    pub(super) fn expand(
        &self,
        workload: &WorkloadSpec,
        numbers: impl Fn(ContentId) -> Vec<u16>,
        rules: &mut Vec<PolicyRule>,
    ) {
        let Self { peer, port, source } = self;
        let mut push = |peer: Peer, ports: Option<PortMatch>| {
            let (tier, action, source) = (Tier::Namespace, RuleAction::Accept, source.clone());
            rules.push(PolicyRule { tier, action, peer, ports, source });
        };
        let whole = match peer {
            TemplatePeer::Fixed(peer) => peer.clone(),
            TemplatePeer::Selected(id, _) => Peer::Workloads { id: *id },
        };
        let single = |protocol: Protocol, port: u16| Some(PortMatch { protocol, first: port, last: port });
        match (port, peer) {
            (TemplatePort::Fixed(ports), _) => push(whole, *ports),
            (TemplatePort::OfSubject(name, protocol), _) => {
                if let Some(port) = named_port(workload, name, *protocol) {
                    push(whole, single(*protocol, port));
                }
            }
            (TemplatePort::OfPeer(protocol), TemplatePeer::Selected(id, _)) => {
                for port in numbers(*id) {
                    push(Peer::Workloads { id: with_number(*id, port) }, single(*protocol, port));
                }
            }
            // A named port of peers always has a selector.
            (TemplatePort::OfPeer(_), TemplatePeer::Fixed(_)) => {}
        }
    }
}

/// Returns the number of a named port of a workload with a protocol, or `None` if the workload does not have it.
fn named_port(workload: &WorkloadSpec, name: &Label, protocol: Protocol) -> Option<u16> {
    let port = workload.ports.get(name).filter(|port| port.protocol == protocol)?;
    Some(port.port.get())
}

/// Returns the id of the peers that match the selector `id` and serve its named port at this number.
pub(super) fn with_number(id: ContentId, port: u16) -> ContentId {
    ContentId::of(&(id, port))
}

impl PeerSelector {
    /// Returns the number of the named port of a workload that matches the selector: `Some(None)` if the selector has
    /// no named port, `None` if the workload does not match.
    pub(super) fn matches(
        &self,
        namespace: &Namespace,
        labels: &Labels,
        workload: &WorkloadSpec,
    ) -> Option<Option<u16>> {
        let Self { namespaces, workloads, port } = self;
        if !namespaces.contains(namespace) || !workloads.matches(labels) {
            return None;
        }
        match port {
            None => Some(None),
            Some((name, protocol)) => named_port(workload, name, *protocol).map(Some),
        }
    }
}

impl NamespaceMatch {
    const fn all() -> Self {
        Self::Except(BTreeSet::new())
    }

    /// Returns the namespaces that match a selector. Namespaces have no label but the one with their name.
    fn of(selector: &Selector) -> Self {
        let Selector { match_labels, match_expressions } = selector;
        let equal = match_labels.iter().map(|(key, value)| (key, Operator::In, std::slice::from_ref(value)));
        let others = match_expressions.iter().map(|one| (&one.key, one.operator, &*one.values));
        equal.chain(others).fold(Self::all(), |found, (key, operator, values)| {
            let names = || values.iter().filter_map(|value| Namespace::parse(value).ok()).collect();
            let is_name = key == NAMESPACE_NAME_LABEL;
            let more = match operator {
                Operator::In if is_name => Self::Listed(names()),
                Operator::NotIn if is_name => Self::Except(names()),
                Operator::Exists if is_name => Self::all(),
                Operator::DoesNotExist | Operator::NotIn if !is_name => Self::all(),
                Operator::In | Operator::Exists | Operator::NotIn | Operator::DoesNotExist => {
                    Self::Listed(BTreeSet::new())
                }
            };
            found.and(more)
        })
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Listed(a), Self::Listed(b)) => Self::Listed(&a & &b),
            (Self::Listed(a), Self::Except(b)) | (Self::Except(b), Self::Listed(a)) => Self::Listed(&a - &b),
            (Self::Except(a), Self::Except(b)) => Self::Except(&a | &b),
        }
    }

    pub(super) fn contains(&self, namespace: &Namespace) -> bool {
        match self {
            Self::Listed(names) => names.contains(namespace),
            Self::Except(names) => !names.contains(namespace),
        }
    }
}
