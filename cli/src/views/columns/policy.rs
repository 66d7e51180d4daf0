//! Columns of NetworkPolicies. Pure functions.

use model::{
    kinds::{
        network_policy::{NetworkPolicySpec, PolicyType},
        selector::Selector,
    },
    primitives::quantity::Timestamp,
};

use crate::{
    terminal::table::Cell,
    views::columns::{
        addresses::{self, status},
        age_cell,
    },
    views::typed::NetworkPolicy,
};

/// Column headings of NetworkPolicies: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const POLICY: (&[&str], &[&str]) =
    (&["NAME", "SELECTOR", "TYPES", "WORKLOADS", "STATUS", "AGE"], &["INGRESS-RULES", "EGRESS-RULES"]);

pub(crate) fn policy(object: &NetworkPolicy, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (spec, found) = (&object.spec, &object.status);
    let mut row: Vec<Cell> = vec![
        selector(&spec.selector).into(),
        types(spec).into(),
        found.selected.to_string().into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(rules(spec, PolicyType::Ingress, spec.ingress.len()).into());
        row.push(rules(spec, PolicyType::Egress, spec.egress.len()).into());
    }
    row
}

/// Returns a selector as text; `<all>` for the empty one.
pub(crate) fn selector(selector: &Selector) -> String {
    if *selector == Selector::default() { "<all>".to_owned() } else { addresses::selector(selector) }
}

/// Returns the directions for which a policy selects workloads, such as `Ingress,Egress`.
pub(crate) fn types(spec: &NetworkPolicySpec) -> String {
    let names = [(PolicyType::Ingress, "Ingress"), (PolicyType::Egress, "Egress")];
    let names = names.into_iter().filter(|(direction, _)| spec.applies_to(*direction));
    names.map(|(_, name)| name).collect::<Vec<_>>().join(",")
}

/// Returns the number of rules of a direction; a dash if the policy does not apply to it.
fn rules(spec: &NetworkPolicySpec, direction: PolicyType, count: usize) -> String {
    if spec.applies_to(direction) { count.to_string() } else { "-".to_owned() }
}
