//! Translation of a Kubernetes NetworkPolicy.
//!
//! A NetworkPolicy forbids all connections that its rules do not accept. A part of a rule that cannot be translated is left out with
//! everything that it restricts: a peer or port leaves its list, and a rule that loses its last peer or port is left out,
//! because a rule without peers matches all of them. If the selector of the pods cannot be translated, the policy selects all
//! pods of the namespace and accepts nothing.
//!
//! Pods whose labels cannot be translated are Workloads without these labels ([`ISOLATED_LABEL`]). They match only selectors that
//! match every pod, and [`isolating_policy`] isolates them.

mod peer;

use model::{
    admission::decode::{Expect, decode},
    kinds::{
        network_policy::{EgressRule, IngressRule, NetworkPolicySpec, PolicyPeer, PolicyPort, PolicyType},
        selector::{Expression, Operator, Selector},
        service::TargetPort,
    },
};
use serde_json::{Value, json};

use self::peer::peers;
pub use self::peer::selects_namespaces_by_labels;
use super::{
    Settings, Severity, Surroundings, TranslationResult, document, names, own_labels,
    pod::{ISOLATED, ISOLATED_LABEL},
};
use crate::json::text;

/// Name of the policy that isolates the pods of a namespace whose labels cannot be translated.
const ISOLATING_POLICY: &str = "tidegate-isolated-pods";

/// Data on which the translation of a rule depends.
struct Context<'a> {
    settings: &'a Settings,
    around: &'a Surroundings,
    direction: PolicyType,
}

/// Peers and ports of one rule.
type RuleParts = (Vec<PolicyPeer>, Vec<PolicyPort>);

/// Translates a NetworkPolicy to one of the same name. Selectors of namespaces by their labels become lists of the names of the
/// namespaces in `around`.
#[must_use]
pub fn network_policy(settings: &Settings, around: &Surroundings, policy: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    let nothing = json!({});
    let theirs = policy.get("spec").unwrap_or(&nothing);
    let policy_types = policy_types(theirs, &mut made);
    let mut spec = NetworkPolicySpec {
        selector: Selector::default(),
        policy_types: policy_types.iter().copied().collect(),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    let closed = spec.clone();
    match subject(theirs) {
        Ok(selector) => {
            spec.selector = selector;
            for direction in policy_types {
                let context = Context { settings, around, direction };
                let rules = rules(&context, theirs, &mut made).into_iter();
                match direction {
                    PolicyType::Ingress => {
                        spec.ingress = rules.map(|(from, ports)| IngressRule { from, ports }).collect();
                    }
                    PolicyType::Egress => {
                        spec.egress = rules.map(|(to, ports)| EgressRule { to, ports }).collect();
                    }
                }
            }
        }
        Err(message) => {
            let message =
                format!("{message}; the policy selects all pods of the namespace and accepts nothing");
            made.find(Severity::Invalid, "spec.podSelector", message);
        }
    }
    let namespace = settings.name(&text(policy, "/metadata/namespace"));
    let name = translated_name(&text(policy, "/metadata/name"));
    // The labels of the policy are left out: no selector matches policies, and they could exceed the limit of labels.
    let labels = own_labels(settings);
    let whole =
        |spec: &NetworkPolicySpec| document("NetworkPolicy", Some(&namespace), &name, &labels, json!(spec));
    if !made.finish(&whole(&spec)) {
        let message = "the policy accepts nothing, because it is not valid as a whole";
        made.find(Severity::Invalid, "spec", message);
        made.finish(&whole(&NetworkPolicySpec { selector: spec.selector, ..closed }));
    }
    made
}

/// Returns the policy that isolates the Workloads with [`ISOLATED_LABEL`] in a namespace of the cluster, in both directions. It
/// has no rules.
#[must_use]
pub fn isolating_policy(settings: &Settings, namespace: &str) -> TranslationResult {
    let mut made = TranslationResult::default();
    let spec = NetworkPolicySpec {
        selector: Selector {
            match_labels: [(ISOLATED_LABEL.to_owned(), ISOLATED.to_owned())].into(),
            match_expressions: Vec::new(),
        },
        policy_types: [PolicyType::Ingress, PolicyType::Egress].into(),
        ..blank()
    };
    let namespace = settings.name(namespace);
    made.finish(&document(
        "NetworkPolicy",
        Some(&namespace),
        ISOLATING_POLICY,
        &own_labels(settings),
        json!(spec),
    ));
    made
}

/// Returns the name in Tidegate of a policy of the cluster, which differs from that of [`isolating_policy`].
fn translated_name(name: &str) -> String {
    match names::with_short_labels(name) {
        name if name == ISOLATING_POLICY => format!("{name}-{}", names::digest(&name)),
        name => name,
    }
}

/// Returns the directions of the policy. An unknown direction stands for both, because the policy isolates the pods in it.
fn policy_types(spec: &Value, made: &mut TranslationResult) -> Vec<PolicyType> {
    let given = match spec.get("policyTypes") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(given)) => given.as_slice(),
        Some(other) => std::slice::from_ref(other),
    };
    let mut types = Vec::new();
    for (number, word) in given.iter().enumerate() {
        match word.as_str() {
            Some("Ingress") => types.push(PolicyType::Ingress),
            Some("Egress") => types.push(PolicyType::Egress),
            Some(_) | None => {
                let message = format!("{word} is unknown; the policy applies to both directions");
                made.find(Severity::NotSupported, format!("spec.policyTypes[{number}]"), message);
                types.extend([PolicyType::Ingress, PolicyType::Egress]);
            }
        }
    }
    if given.is_empty() {
        types.push(PolicyType::Ingress);
        let is_empty = |rules: &Value| rules.is_null() || *rules == json!([]);
        if spec.get("egress").is_some_and(|rules| !is_empty(rules)) {
            types.push(PolicyType::Egress);
        }
    }
    types.sort_unstable();
    types.dedup();
    types
}

/// Returns the selector of the pods. An absent selector selects all pods of the namespace.
fn subject(spec: &Value) -> Result<Selector, String> {
    known_keys(spec, &["podSelector", "policyTypes", "ingress", "egress"])?;
    let selector = spec.get("podSelector").map(pod_selector).transpose()?.unwrap_or_default();
    check(&NetworkPolicySpec { selector: selector.clone(), ..blank() })?;
    Ok(selector)
}

/// Parses a selector of pods. If it matches pods without labels and excludes others, it also excludes the Workloads of pods whose
/// labels could not be translated, because these labels may be the excluded ones.
fn pod_selector(theirs: &Value) -> Result<Selector, String> {
    let mut selector = selector(theirs)?;
    let excludes = |expression: &Expression| match expression.operator {
        Operator::NotIn | Operator::DoesNotExist => true,
        Operator::In | Operator::Exists => false,
    };
    let expressions = &mut selector.match_expressions;
    if selector.match_labels.is_empty() && !expressions.is_empty() && expressions.iter().all(excludes) {
        expressions.push(Expression {
            key: ISOLATED_LABEL.to_owned(),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
        });
    }
    Ok(selector)
}

/// Parses a label selector.
fn selector(theirs: &Value) -> Result<Selector, String> {
    match theirs {
        Value::Null => Ok(Selector::default()),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
            serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("must be a selector".to_owned())
        }
    }
}

const fn blank() -> NetworkPolicySpec {
    NetworkPolicySpec {
        selector: Selector { match_labels: std::collections::BTreeMap::new(), match_expressions: Vec::new() },
        policy_types: std::collections::BTreeSet::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
    }
}

/// Checks a policy that has only the part of interest, as the control server does.
fn check(part: &NetworkPolicySpec) -> Result<(), String> {
    let whole = document("NetworkPolicy", Some("default"), "part", &json!({}), json!(part));
    let checked = decode(&whole, &Expect::default());
    checked.map(drop).map_err(|violations| {
        let messages: Vec<_> = violations.into_iter().map(|violation| violation.message).collect();
        messages.join("; ")
    })
}

/// Rejects fields whose meaning is unknown, because they may be restrictions.
fn known_keys(theirs: &Value, known: &[&str]) -> Result<(), String> {
    let fields = theirs.as_object().ok_or("must be an object")?;
    match fields.iter().find(|(key, value)| !known.contains(&key.as_str()) && !value.is_null()) {
        Some((key, _)) => Err(format!("the field `{key}` is not supported")),
        None => Ok(()),
    }
}

/// Translates the rules of one direction.
fn rules(context: &Context<'_>, spec: &Value, made: &mut TranslationResult) -> Vec<RuleParts> {
    let (field, peers_field) = match context.direction {
        PolicyType::Ingress => ("ingress", "from"),
        PolicyType::Egress => ("egress", "to"),
    };
    let mut rules = Vec::new();
    let theirs = match list(spec, field) {
        Ok(theirs) => theirs,
        Err(message) => {
            made.find(Severity::Invalid, format!("spec.{field}"), format!("{message}; it is left out"));
            return rules;
        }
    };
    for (number, rule) in theirs.iter().enumerate() {
        let at = format!("spec.{field}[{number}]");
        let parts = known_keys(rule, &[peers_field, "ports"])
            .and_then(|()| Ok((list(rule, peers_field)?, list(rule, "ports")?)));
        let (their_peers, their_ports) = match parts {
            Ok(parts) => parts,
            Err(message) => {
                made.find(Severity::NotSupported, at, format!("{message}; the rule is left out"));
                continue;
            }
        };
        let peers = peers(context, &format!("{at}.{peers_field}"), their_peers, made);
        let ports = ports(context, &format!("{at}.ports"), their_ports, made);
        // A rule without peers or ports matches all of them.
        if peers.is_empty() != their_peers.is_empty() || ports.is_empty() != their_ports.is_empty() {
            continue;
        }
        rules.extend(by_kind_of_peer(context, &at, (peers, ports), made));
    }
    rules
}

/// Returns the list in a field, which is empty if the field is absent.
fn list<'a>(theirs: &'a Value, field: &str) -> Result<&'a [Value], String> {
    match theirs.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(entries)) => Ok(entries),
        Some(_) => Err(format!("`{field}` must be a list")),
    }
}

fn ports(context: &Context<'_>, at: &str, theirs: &[Value], made: &mut TranslationResult) -> Vec<PolicyPort> {
    let mut ports: Vec<PolicyPort> = Vec::new();
    for (number, each) in theirs.iter().enumerate() {
        match port(context, each) {
            Ok(port) if ports.contains(&port) => {}
            Ok(port) => ports.push(port),
            Err(message) => {
                let message = format!("{message}; connections to the port are not accepted");
                made.find(Severity::NotSupported, format!("{at}[{number}]"), message);
            }
        }
    }
    ports
}

fn port(context: &Context<'_>, theirs: &Value) -> Result<PolicyPort, String> {
    known_keys(theirs, &["protocol", "port", "endPort"])?;
    let fields = theirs.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let fields = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
    let port: PolicyPort =
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    check(&one_rule(context.direction, (Vec::new(), vec![port.clone()])))?;
    Ok(port)
}

/// Returns a policy with a single rule.
fn one_rule(direction: PolicyType, (peers, ports): RuleParts) -> NetworkPolicySpec {
    let mut spec = NetworkPolicySpec { policy_types: [direction].into(), ..blank() };
    match direction {
        PolicyType::Ingress => spec.ingress.push(IngressRule { from: peers, ports }),
        PolicyType::Egress => spec.egress.push(EgressRule { to: peers, ports }),
    }
    spec
}

/// Divides a rule for egress to named ports, which addresses of an `ipBlock` do not have, into a rule for pods and one for
/// addresses.
fn by_kind_of_peer(
    context: &Context<'_>,
    at: &str,
    (peers, ports): RuleParts,
    made: &mut TranslationResult,
) -> Vec<RuleParts> {
    let is_named = |port: &PolicyPort| matches!(port.port, Some(TargetPort::Name(_)));
    let has_block = peers.iter().any(|peer| peer.ip_block.is_some());
    if context.direction == PolicyType::Ingress || !has_block || !ports.iter().any(is_named) {
        return vec![(peers, ports)];
    }
    let message = "an ipBlock has no named ports; only connections to the ports with a number are accepted";
    made.find(Severity::NotSupported, format!("{at}.ports"), message);
    let (blocks, pods): (Vec<_>, Vec<_>) = peers.into_iter().partition(|peer| peer.ip_block.is_some());
    let numbers: Vec<_> = ports.iter().filter(|port| !is_named(port)).cloned().collect();
    let rules = [(pods, ports), (blocks, numbers)].into_iter();
    rules.filter(|(peers, ports)| !peers.is_empty() && !ports.is_empty()).collect()
}
