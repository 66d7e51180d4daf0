//! Evaluation of JSONPath on documents. Pure.

use std::cmp::Ordering;

use model::primitives::text::is_display_control;
use serde_json::Value;

use super::{Comparison, Filter, Operand, Part, Path, Step, Template, TooManyValues};

/// Maximum number of values that a step of a path may yield.
pub(crate) const RESULTS_MAX: usize = 1_000_000;

/// Returns the text of a template for a document. Several values of a path are separated by blanks.
pub(crate) fn rendered(template: &Template, document: &Value) -> Result<String, TooManyValues> {
    let mut text = String::new();
    render(&template.parts, document, document, &mut text)?;
    Ok(text)
}

/// Returns the values at a path of a document.
pub(crate) fn values<'a>(path: &Path, document: &'a Value) -> Result<Vec<&'a Value>, TooManyValues> {
    at(path, document, document)
}

/// Returns the text of a value: strings without quotes, arrays and objects as JSON. Characters that control a terminal
/// are removed.
pub(crate) fn text_of(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_display_control(*c)).collect()
}

/// Compares two values for `--sort-by`.
pub(super) fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default())
        }
        (Some(Value::Number(_)), Some(_)) => Ordering::Less,
        (Some(_), Some(Value::Number(_))) => Ordering::Greater,
        (Some(a), Some(b)) => natural(&text_of(a), &text_of(b)),
    }
}

fn render(parts: &[Part], root: &Value, current: &Value, text: &mut String) -> Result<(), TooManyValues> {
    for part in parts {
        match part {
            Part::Text(constant) => text.push_str(constant),
            Part::Values(path) => {
                let words: Vec<String> = at(path, root, current)?.into_iter().map(text_of).collect();
                text.push_str(&words.join(" "));
            }
            Part::Range(path, body) => {
                for value in at(path, root, current)? {
                    render(body, root, value, text)?;
                }
            }
        }
    }
    Ok(())
}

fn at<'a>(path: &Path, root: &'a Value, current: &'a Value) -> Result<Vec<&'a Value>, TooManyValues> {
    let mut values = vec![current];
    for step in &path.steps {
        let mut next = Vec::new();
        for value in values {
            apply(step, root, value, &mut next)?;
            if next.len() > RESULTS_MAX {
                return Err(TooManyValues);
            }
        }
        values = next;
    }
    Ok(values)
}

fn apply<'a>(
    step: &Step,
    root: &'a Value,
    value: &'a Value,
    next: &mut Vec<&'a Value>,
) -> Result<(), TooManyValues> {
    match step {
        Step::Root => next.push(root),
        Step::Field(name) => next.extend(value.get(name)),
        Step::All => next.extend(children(value)),
        Step::Index(index) => {
            let entries = value.as_array().map_or(&[][..], Vec::as_slice);
            let index =
                usize::try_from(if *index < 0 { length(entries).saturating_add(*index) } else { *index });
            next.extend(index.ok().and_then(|index| entries.get(index)));
        }
        Step::Slice(from, to) => {
            let entries = value.as_array().map_or(&[][..], Vec::as_slice);
            let bound = |bound: i64| {
                let bound = if bound < 0 { length(entries).saturating_add(bound) } else { bound };
                usize::try_from(bound.clamp(0, length(entries))).unwrap_or_default()
            };
            let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(i64::MAX)));
            next.extend(entries.get(from..to.max(from)).unwrap_or_default());
        }
        Step::Union(steps) => {
            for step in steps {
                apply(step, root, value, next)?;
            }
        }
        Step::Descendants => {
            let mut open = vec![value];
            while let Some(value) = open.pop() {
                next.push(value);
                if next.len() > RESULTS_MAX {
                    return Err(TooManyValues);
                }
                let mut inner: Vec<&Value> = children(value).collect();
                inner.reverse();
                open.extend(inner);
            }
        }
        Step::Matching(filter) => {
            for child in children(value) {
                if is_match(filter, root, child)? {
                    next.push(child);
                }
            }
        }
    }
    Ok(())
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(entries) => Box::new(entries.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

fn length(entries: &[Value]) -> i64 {
    i64::try_from(entries.len()).unwrap_or(i64::MAX)
}

fn is_match(filter: &Filter, root: &Value, current: &Value) -> Result<bool, TooManyValues> {
    let (left, comparison, right) = match filter {
        Filter::Exists(path) => return Ok(!at(path, root, current)?.is_empty()),
        Filter::Compares(left, comparison, right) => (left, comparison, right),
    };
    let (Some(left), Some(right)) = (first(left, root, current)?, first(right, root, current)?) else {
        return Ok(false);
    };
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) => (a == b).then_some(Ordering::Equal),
    };
    Ok(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::AtMost => order.is_some_and(Ordering::is_le),
        Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
        Comparison::Below => order.is_some_and(Ordering::is_lt),
        Comparison::Above => order.is_some_and(Ordering::is_gt),
    })
}

fn first<'a>(
    operand: &'a Operand,
    root: &'a Value,
    current: &'a Value,
) -> Result<Option<&'a Value>, TooManyValues> {
    match operand {
        Operand::First(path) => Ok(at(path, root, current)?.first().copied()),
        Operand::Literal(value) => Ok(Some(value)),
    }
}

/// Compares two texts; runs of digits are compared by their value, so that `a2` precedes `a10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (left_digits, right_digits) = (digits(left), digits(right));
        if left_digits > 0 && right_digits > 0 {
            let value = |text: &str| text.trim_start_matches('0').to_owned();
            let (x, y) = (value(&left[..left_digits]), value(&right[..right_digits]));
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(&y));
            if order.is_ne() {
                return order;
            }
            (left, right) = (&left[left_digits..], &right[right_digits..]);
            continue;
        }
        let (mut left_characters, mut right_characters) = (left.chars(), right.chars());
        match (left_characters.next(), right_characters.next()) {
            (None, None) => return a.cmp(b),
            (x, y) if x == y => (left, right) = (left_characters.as_str(), right_characters.as_str()),
            (x, y) => return x.cmp(&y),
        }
    }
}
