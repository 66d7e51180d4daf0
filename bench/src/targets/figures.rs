//! Extraction of values from the stored results of benchmarks.

use serde_json::Value;

use crate::statistics::figures::Summary;

/// Returns the points (or series) of a stored result in which every field in `fields` has the given value.
pub(super) fn points<'a>(
    written: &'a Value,
    fields: &'a [(&'a str, Value)],
) -> impl Iterator<Item = &'a Value> {
    all(written).filter(move |point| has(point, fields))
}

/// Returns the first of the points that [`points`] returns, or `None` if there is none.
pub(super) fn point<'a>(written: &'a Value, fields: &[(&str, Value)]) -> Option<&'a Value> {
    all(written).find(|point| has(point, fields))
}

fn all(written: &Value) -> impl Iterator<Item = &Value> {
    let all = written.get("points").or_else(|| written.get("series")).and_then(Value::as_array);
    all.into_iter().flatten()
}

fn has(point: &Value, fields: &[(&str, Value)]) -> bool {
    fields.iter().all(|(name, value)| point.get(name) == Some(value))
}

/// Returns summary statistics of the numbers in field `list` of `point`. `pointer` is the JSON pointer to the
/// number in each item; it is empty if the items are numbers. Returns `None` if there is no number.
pub(super) fn summary(point: &Value, list: &str, pointer: &str) -> Option<Summary> {
    let figures = point.get(list)?.as_array()?;
    Summary::of(figures.iter().filter_map(|figure| figure.pointer(pointer)?.as_f64()))
}

/// Returns the median over all rounds of the ratio of a value of `one` to that of `other` in the same round.
/// `list` and `pointer` select the values as in [`summary`].
pub(super) fn ratio_in_a_round(one: &Value, other: &Value, list: &str, pointer: &str) -> Option<f64> {
    let pairs = one.get(list)?.as_array()?.iter().zip(other.get(list)?.as_array()?);
    let ratios = pairs
        .filter_map(|(one, other)| Some(one.pointer(pointer)?.as_f64()? / other.pointer(pointer)?.as_f64()?));
    Some(Summary::of(ratios)?.median)
}

/// Returns the sum of the numbers in field `list` of `point`, or `None` if the list is missing or empty.
pub(super) fn sum(point: &Value, list: &str) -> Option<f64> {
    let figures = point.get(list)?.as_array()?;
    (!figures.is_empty()).then(|| figures.iter().filter_map(Value::as_f64).sum())
}
