//! Figures out of what benchmarks wrote.

use serde_json::Value;

use crate::statistics::figures::Summary;

/// The points, or series, of a benchmark that have all these fields.
pub(super) fn points<'a>(
    written: &'a Value,
    fields: &'a [(&'a str, Value)],
) -> impl Iterator<Item = &'a Value> {
    all(written).filter(move |point| has(point, fields))
}

/// The first of them.
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

/// What the figures of a list say; of a list of objects, those at a pointer in each.
pub(super) fn summary(point: &Value, list: &str, pointer: &str) -> Option<Summary> {
    let figures = point.get(list)?.as_array()?;
    Summary::of(figures.iter().filter_map(|figure| figure.pointer(pointer)?.as_f64()))
}

/// The median, over the rounds, of one's figure over another's in the same round.
pub(super) fn ratio_in_a_round(one: &Value, other: &Value, list: &str, pointer: &str) -> Option<f64> {
    let pairs = one.get(list)?.as_array()?.iter().zip(other.get(list)?.as_array()?);
    let ratios = pairs
        .filter_map(|(one, other)| Some(one.pointer(pointer)?.as_f64()? / other.pointer(pointer)?.as_f64()?));
    Some(Summary::of(ratios)?.median)
}

/// The sum of the figures of a list.
pub(super) fn sum(point: &Value, list: &str) -> Option<f64> {
    let figures = point.get(list)?.as_array()?;
    (!figures.is_empty()).then(|| figures.iter().filter_map(Value::as_f64).sum())
}
