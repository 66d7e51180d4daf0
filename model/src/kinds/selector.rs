//! Label selectors in the query form of Kubernetes, such as `app=web,tier!=db,zone in (a,b),!legacy`, and in
//! object form.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kinds::metadata::{Labels, check_key, check_value};

/// Maximum number of requirements in one selector.
const REQUIREMENTS_MAX: usize = 32;

/// Label selector: a list of requirements, all of which the labels of an object must satisfy. The empty
/// selector matches all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// Label selector in the form of Kubernetes objects. An object matches if its labels satisfy all entries; the
/// empty selector matches all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Required labels with their exact values, at most 100.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub match_labels: Labels,
    /// Additional requirements, at most 32. All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub match_expressions: Vec<Expression>,
}

/// Requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expression {
    /// Label key, such as `app.kubernetes.io/name`.
    pub key: String,
    /// Relation between the label and `values`: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Operator,
    /// Values for `In` and `NotIn`, from 1 to 64 entries. Not allowed with the other operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub values: Vec<String>,
}

/// Relation between a label and values: `In` (present with one of the values), `NotIn` (absent or with
/// another value), `Exists` (present) or `DoesNotExist` (absent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Operator {
    /// The label is present with one of the values.
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Selector {
    /// True if an object with these labels satisfies all entries of the selector.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.matches(labels))
    }

    /// True if at least one selector matches the labels, or the list is empty.
    #[must_use]
    pub fn any_matches(selectors: &[Self], labels: &Labels) -> bool {
        selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
    }
}

impl Expression {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// Requirement of a selector on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

/// Error for a malformed label selector, with a hint on the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` is not a label requirement: {reason}; write `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key` or `!key`"
)]
pub struct SelectorError {
    part: String,
    reason: String,
}

impl LabelSelector {
    /// True if an object with these labels satisfies all requirements of the selector.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// True if the selector has no requirements and matches every object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        }
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            let error = |reason: String| SelectorError { part: part.to_owned(), reason };
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(error("the requirement is empty".to_owned()));
            }
            if requirements.len() == REQUIREMENTS_MAX {
                return Err(error(format!("a selector has at most {REQUIREMENTS_MAX} requirements")));
            }
            requirements.push(parse_requirement(part).map_err(error)?);
        }
        Ok(Self(requirements))
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(part: &str) -> Result<Requirement, String> {
    let key = |text: &str| {
        let text = text.trim();
        check_key(text).map(|()| text.to_owned())
    };
    let value = |text: &str| {
        let text = text.trim();
        check_value(text).map(|()| text.to_owned())
    };
    if let Some((name, one)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key(name)?, vec![value(one)?]));
    }
    if let Some((name, one)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(key(name)?, vec![value(one)?]));
    }
    if let Some(list) = part.strip_suffix(')') {
        let (head, values) = list.split_once('(').ok_or_else(|| "`(` is missing".to_owned())?;
        let values = values.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        return match head.trim().rsplit_once(char::is_whitespace) {
            Some((name, "in")) => Ok(Requirement::In(key(name)?, values)),
            Some((name, "notin")) => Ok(Requirement::NotIn(key(name)?, values)),
            Some(_) | None => Err("the operator must be `in` or `notin`".to_owned()),
        };
    }
    match part.strip_prefix('!') {
        Some(name) => Ok(Requirement::Absent(key(name)?)),
        None => Ok(Requirement::Exists(key(part)?)),
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match requirement {
                Requirement::Exists(key) => write!(f, "{comma}{key}")?,
                Requirement::Absent(key) => write!(f, "{comma}!{key}")?,
                Requirement::In(key, values) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        selector.parse::<LabelSelector>().unwrap().matches(&labels)
    }

    #[test]
    fn every_operator_matches_as_documented() {
        let web = &[("app", "web"), ("zone", "a")];
        for yes in [
            "",
            "app=web",
            "app==web",
            "app in (web, api)",
            "app",
            "!legacy",
            "app=web,zone!=b",
            "x notin (y)",
        ] {
            assert!(matches(yes, web), "{yes}");
        }
        for no in ["app=api", "legacy", "!app", "app!=web", "zone in (b,c)", "app notin (web)"] {
            assert!(!matches(no, web), "{no}");
        }
    }

    #[test]
    fn malformed_selectors_are_errors_that_teach() {
        for bad in ["=", "a=b=c", "a in b)", "a on (b)", ",", "a,,b", "a b", "!"] {
            let error = bad.parse::<LabelSelector>().unwrap_err().to_string();
            assert!(error.contains("write `key=value`"), "{bad}: {error}");
        }
    }
}
