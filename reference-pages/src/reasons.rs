//! Generator of the reference pages of condition reasons and event reasons.

use crate::{cell, table, variants::Variant};

/// Reason of a condition, with its documentation.
#[derive(Debug, Clone, Copy)]
pub struct Reason<'a> {
    /// Reason as published in the API, in CamelCase.
    pub name: &'a str,
    /// Meaning of the reason, in one sentence.
    pub meaning: &'a str,
    /// Action by which an operator resolves the condition, in one sentence.
    pub remedy: &'a str,
}

/// Returns the reference page of all condition reasons.
#[must_use]
pub fn conditions<'a>(reasons: impl IntoIterator<Item = Reason<'a>>) -> String {
    let row =
        |Reason { name, meaning, remedy }: Reason<'a>| [format!("`{name}`"), cell(meaning), cell(remedy)];
    let rows: Vec<_> = reasons.into_iter().map(row).collect();
    let introduction = "Reasons in `status.conditions` of objects, and of BGP sessions that are not established. `tidegate describe` \
                        lists the conditions of an object with message and hint.";
    format!("# Condition reasons\n\n{introduction}\n\n{}", table(["reason", "meaning", "remedy"], &rows))
}

/// Returns the reference page of all event reasons.
#[must_use]
pub fn events(reasons: &[Variant]) -> String {
    let rows: Vec<_> = reasons.iter().map(|one| [format!("`{}`", one.name), cell(&one.meaning)]).collect();
    let introduction = "Reasons of the events of Nodes. Agents report them; `tidegate describe node` and `kubectl get events` list them.";
    format!("# Event reasons\n\n{introduction}\n\n{}", table(["reason", "meaning"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_reason_has_meaning_and_remedy() {
        let page =
            conditions([Reason { name: "Full", meaning: "No address is free.", remedy: "Add a range." }]);
        assert!(page.contains("| `Full` | No address is free. | Add a range. |"), "{page}");
    }
}
