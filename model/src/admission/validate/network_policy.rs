//! Validation rules of NetworkPolicies.

use super::{check_length, check_network, check_unique, pool::check_selector};
use crate::{
    kinds::{
        network_policy::{
            IpBlock, NAMESPACE_NAME_LABEL, NetworkPolicySpec, POLICY_EXCEPT_MAX, POLICY_PAIRS_MAX,
            POLICY_PEERS_MAX, POLICY_PORTS_MAX, POLICY_RULES_MAX, PolicyPeer, PolicyPort, PolicyType,
        },
        selector::Selector,
        service::TargetPort,
    },
    primitives::violation::{Violation, ViolationCode},
};

/// Peers and ports of a rule, with the name of the field of the peers.
struct RuleParts<'a> {
    field: &'static str,
    peers: &'a [PolicyPeer],
    ports: &'a [PolicyPort],
    direction: PolicyType,
}

pub(super) fn validate(spec: &NetworkPolicySpec, found: &mut Vec<Violation>) {
    let NetworkPolicySpec { selector, policy_types: _, ingress, egress } = spec;
    check_selector("/spec/selector", selector, found);
    let ingress: Vec<_> = ingress
        .iter()
        .map(|rule| RuleParts {
            field: "from",
            peers: &rule.from,
            ports: &rule.ports,
            direction: PolicyType::Ingress,
        })
        .collect();
    let egress: Vec<_> = egress
        .iter()
        .map(|rule| RuleParts {
            field: "to",
            peers: &rule.to,
            ports: &rule.ports,
            direction: PolicyType::Egress,
        })
        .collect();
    check_rules("/spec/ingress", &ingress, found);
    check_rules("/spec/egress", &egress, found);
    for (at, rules, direction) in
        [("/spec/ingress", &ingress, PolicyType::Ingress), ("/spec/egress", &egress, PolicyType::Egress)]
    {
        if !rules.is_empty() && !spec.applies_to(direction) {
            let message = format!("must be left out without {direction:?} in policyTypes: it has no effect");
            let hint = format!("add {direction:?} to spec.policyTypes");
            found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
        }
    }
    let pairs = |rule: &RuleParts<'_>| rule.peers.len().max(1) * rule.ports.len().max(1);
    let total: usize = ingress.iter().chain(&egress).map(pairs).sum();
    if total > POLICY_PAIRS_MAX {
        let message = format!(
            "must have at most {POLICY_PAIRS_MAX} pairs of a peer and a port in all rules, not {total}"
        );
        let hint = "write port ranges with endPort, larger networks, or several policies";
        found.push(Violation::new("/spec", ViolationCode::TooLong, message).hint(hint));
    }
}

fn check_rules(at: &str, rules: &[RuleParts<'_>], found: &mut Vec<Violation>) {
    if !check_length(at, rules.len(), POLICY_RULES_MAX, found) {
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        let peers_at = format!("{at}/{index}/{}", rule.field);
        if check_length(&peers_at, rule.peers.len(), POLICY_PEERS_MAX, found) {
            for (peer, part) in rule.peers.iter().enumerate() {
                check_peer(&format!("{peers_at}/{peer}"), part, found);
            }
        }
        let ports_at = format!("{at}/{index}/ports");
        if check_length(&ports_at, rule.ports.len(), POLICY_PORTS_MAX, found) {
            for (port, part) in rule.ports.iter().enumerate() {
                check_port(&format!("{ports_at}/{port}"), part, found);
            }
            check_names(&ports_at, rule, found);
        }
    }
}

fn check_peer(at: &str, peer: &PolicyPeer, found: &mut Vec<Violation>) {
    let PolicyPeer { workload_selector, namespace_selector, ip_block } = peer;
    let has_selector = workload_selector.is_some() || namespace_selector.is_some();
    if let Some(selector) = workload_selector {
        check_selector(&format!("{at}/workloadSelector"), selector, found);
    }
    if let Some(selector) = namespace_selector {
        check_namespaces(&format!("{at}/namespaceSelector"), selector, found);
    }
    match ip_block {
        Some(_) if has_selector => {
            let message = "must have either selectors or ipBlock";
            let hint = "write two peers; a connection matches if one of them does";
            found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
        }
        Some(block) => check_block(&format!("{at}/ipBlock"), block, found),
        None if has_selector => {}
        None => {
            let message = "must have workloadSelector, namespaceSelector or ipBlock";
            let hint = "leave out the list of peers to match all of them";
            found.push(Violation::new(at, ViolationCode::Required, message).hint(hint));
        }
    }
}

/// Checks a selector of namespaces, which have no labels but the one with their name.
fn check_namespaces(at: &str, selector: &Selector, found: &mut Vec<Violation>) {
    check_selector(at, selector, found);
    let labels = selector.match_labels.keys().map(|key| (format!("{at}/matchLabels/{}", escape(key)), key));
    let expressions = selector.match_expressions.iter().enumerate();
    let expressions =
        expressions.map(|(index, one)| (format!("{at}/matchExpressions/{index}/key"), &one.key));
    for (at, key) in labels.chain(expressions).filter(|(_, key)| *key != NAMESPACE_NAME_LABEL) {
        let message =
            format!("must be {NAMESPACE_NAME_LABEL}, not {key}: namespaces have no label but their name");
        let hint = format!(
            "list the namespaces by name: {{key: {NAMESPACE_NAME_LABEL}, operator: In, values: [...]}}"
        );
        found.push(Violation::new(at, ViolationCode::Invalid, message).hint(hint));
    }
}

/// Escapes a key for a JSON pointer (RFC 6901 §3).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn check_block(at: &str, block: &IpBlock, found: &mut Vec<Violation>) {
    let IpBlock { cidr, except } = block;
    check_network(format!("{at}/cidr"), cidr, found);
    let at = format!("{at}/except");
    if !check_length(&at, except.len(), POLICY_EXCEPT_MAX, found) {
        return;
    }
    check_unique(except.iter(), |index| format!("{at}/{index}"), found);
    for (index, network) in except.iter().enumerate() {
        let at = format!("{at}/{index}");
        check_network(at.clone(), network, found);
        if !cidr.contains(network) || cidr == network {
            let message = format!("must be a smaller network within {cidr}");
            found.push(Violation::new(at, ViolationCode::Invalid, message));
        }
    }
}

fn check_port(at: &str, port: &PolicyPort, found: &mut Vec<Violation>) {
    let PolicyPort { protocol: _, port, end_port } = port;
    let at = format!("{at}/endPort");
    match (port, end_port) {
        (Some(TargetPort::Number(first)), Some(last)) if last < first => {
            let message = format!("must not be below port {first}");
            found.push(Violation::new(at, ViolationCode::Invalid, message));
        }
        (Some(TargetPort::Number(_)), Some(_)) | (_, None) => {}
        (Some(TargetPort::Name(_)) | None, Some(_)) => {
            let message = "must be left out unless port is a number";
            found.push(Violation::new(at, ViolationCode::Conflict, message));
        }
    }
}

/// Rejects named ports at networks outside of the cluster, where no Workload has the name.
fn check_names(at: &str, rule: &RuleParts<'_>, found: &mut Vec<Violation>) {
    let has_block = rule.peers.iter().any(|peer| peer.ip_block.is_some());
    if rule.direction != PolicyType::Egress || !has_block {
        return;
    }
    for (index, port) in rule.ports.iter().enumerate() {
        if let Some(TargetPort::Name(name)) = &port.port {
            let message = format!("must be a number, not {name}: an ipBlock in `to` has no named ports");
            let hint = "write the number, or a rule of its own for the ipBlock";
            let at = format!("{at}/{index}/port");
            found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
        }
    }
}
