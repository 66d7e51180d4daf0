//! Peers of the rules of a NetworkPolicy.

use ipnet::IpNet;
use model::kinds::{
    network_policy::{IpBlock, NAMESPACE_NAME_LABEL, PolicyPeer},
    selector::{Expression, Operator, Selector},
};
use serde_json::Value;

use super::{Context, check, known_keys, list, one_rule, pod_selector, selector};
use crate::{
    json::items,
    kubernetes::{Settings, Severity, Surroundings, TranslationResult, pod::POD_LABEL},
};

/// Maximum number of values of one expression of a selector.
const VALUES_MAX: usize = 64;

/// Returns true if a NetworkPolicy selects namespaces by labels other than their name, so that its translation depends on the
/// Namespaces of the cluster.
#[must_use]
pub fn selects_namespaces_by_labels(policy: &Value) -> bool {
    let rules = |field: &str, peers: &'static str| {
        let rules = items(policy, &format!("/spec/{field}")).iter();
        rules.flat_map(move |rule| items(rule, &format!("/{peers}")))
    };
    let mut peers = rules("ingress", "from").chain(rules("egress", "to"));
    peers.any(|peer| {
        let theirs = peer.get("namespaceSelector").filter(|theirs| !theirs.is_null());
        theirs.is_some_and(|theirs| selector(theirs).is_ok_and(|selector| !is_by_name(&selector)))
    })
}

/// Translates the peers of a rule. A peer is left out if it cannot be translated, which is reported, and if no namespace has the
/// labels that it requires.
pub(super) fn peers(
    context: &Context<'_>,
    at: &str,
    theirs: &[Value],
    made: &mut TranslationResult,
) -> Vec<PolicyPeer> {
    let mut peers: Vec<PolicyPeer> = Vec::new();
    for (number, each) in theirs.iter().enumerate() {
        let translated = peer(context, each).and_then(|translated| {
            let check =
                |peer: &PolicyPeer| check(&one_rule(context.direction, (vec![peer.clone()], Vec::new())));
            translated.iter().try_for_each(check).map(|()| translated)
        });
        match translated {
            Ok(translated) => {
                for peer in translated {
                    if !peers.contains(&peer) {
                        peers.push(peer);
                    }
                }
            }
            Err(message) => {
                let message = format!("{message}; connections with the peer are not accepted");
                made.find(Severity::NotSupported, format!("{at}[{number}]"), message);
            }
        }
    }
    peers
}

fn peer(context: &Context<'_>, theirs: &Value) -> Result<Vec<PolicyPeer>, String> {
    known_keys(theirs, &["podSelector", "namespaceSelector", "ipBlock"])?;
    let given = |field: &str| theirs.get(field).filter(|value| !value.is_null());
    if let Some(theirs) = given("ipBlock") {
        if given("podSelector").is_some() || given("namespaceSelector").is_some() {
            return Err("an ipBlock cannot be combined with selectors".to_owned());
        }
        return Ok(vec![PolicyPeer { ip_block: Some(block(theirs)?), ..PolicyPeer::default() }]);
    }
    let workload_selector = given("podSelector").map(pod_selector).transpose()?;
    let Some(namespaces) = given("namespaceSelector").map(selector).transpose()? else {
        return match workload_selector {
            Some(_) => Ok(vec![PolicyPeer { workload_selector, ..PolicyPeer::default() }]),
            None => Err("a peer needs podSelector, namespaceSelector or ipBlock".to_owned()),
        };
    };
    if is_by_name(&namespaces) {
        return Ok(vec![by_name(context.settings, namespaces, workload_selector)]);
    }
    let names = names_of(context.around, &namespaces);
    let peer = |names: &[&String]| PolicyPeer {
        workload_selector: workload_selector.clone(),
        namespace_selector: Some(listed(names.iter().map(|name| context.settings.name(name)).collect())),
        ip_block: None,
    };
    Ok(names.chunks(VALUES_MAX).map(peer).collect())
}

/// Returns true if the selector requires no label of namespaces but their name.
fn is_by_name(selector: &Selector) -> bool {
    let expressions = selector.match_expressions.iter().map(|one| &one.key);
    selector.match_labels.keys().chain(expressions).all(|key| key == NAMESPACE_NAME_LABEL)
}

/// Returns the peer for a selector of namespaces by name. A selector that does not list the names also matches namespaces in
/// which only other sources have Workloads, so that it is limited to the pods of the cluster.
fn by_name(settings: &Settings, namespaces: Selector, workloads: Option<Selector>) -> PolicyPeer {
    let Selector { match_labels, match_expressions } = namespaces;
    let is_listed = !match_labels.is_empty()
        || match_expressions.iter().any(|expression| expression.operator == Operator::In);
    let match_labels = match_labels.into_iter().map(|(key, name)| (key, settings.name(&name))).collect();
    let renamed = |expression: Expression| Expression {
        values: expression.values.iter().map(|name| settings.name(name)).collect(),
        ..expression
    };
    let match_expressions = match_expressions.into_iter().map(renamed).collect();
    let workload_selector = if is_listed {
        workloads
    } else {
        let mut workloads = workloads.unwrap_or_default();
        workloads.match_expressions.push(Expression {
            key: POD_LABEL.to_owned(),
            operator: Operator::In,
            values: vec![settings.pod_label().to_owned()],
        });
        Some(workloads)
    };
    let namespace_selector = Some(Selector { match_labels, match_expressions });
    PolicyPeer { workload_selector, namespace_selector, ip_block: None }
}

/// Returns the names in the cluster of the namespaces that a selector matches.
fn names_of<'a>(around: &'a Surroundings, selector: &Selector) -> Vec<&'a String> {
    let found = around.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
    found.map(|(name, _)| name).collect()
}

fn listed(names: Vec<String>) -> Selector {
    let expression =
        Expression { key: NAMESPACE_NAME_LABEL.to_owned(), operator: Operator::In, values: names };
    Selector { match_expressions: vec![expression], ..Selector::default() }
}

/// Translates a network. The bits of the host are cleared, as in Kubernetes. A network with an exception that cannot be
/// translated is rejected as a whole.
fn block(theirs: &Value) -> Result<IpBlock, String> {
    known_keys(theirs, &["cidr", "except"])?;
    let cidr = network(theirs.get("cidr"))?;
    let mut except: Vec<IpNet> = Vec::new();
    for each in list(theirs, "except")? {
        let network = network(Some(each))?;
        if !except.contains(&network) {
            except.push(network);
        }
    }
    Ok(IpBlock { cidr, except })
}

fn network(theirs: Option<&Value>) -> Result<IpNet, String> {
    let text = theirs.and_then(Value::as_str).ok_or("an ipBlock needs a network")?;
    let network: IpNet = text.parse().map_err(|_| format!("`{text}` is not a network"))?;
    Ok(network.trunc())
}
