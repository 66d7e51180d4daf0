//! JSONPath as in `kubectl`: templates of `-o jsonpath=`, paths of `--sort-by` and `-o custom-columns=`.
//!
//! Supported: fields (`.a`, `['a']`, `.a\.b`), `[0]`, `[-1]`, `[1:3]`, `[*]`, unions (`['a','b']`), `..a`, filters
//! (`[?(@.type=="Ready")]`), `{range PATH}…{end}` and quoted text. A field that does not exist yields no value.

mod evaluate;
mod parse;

use serde_json::Value;

pub use self::parse::{Path, Template};
pub(crate) use self::{
    evaluate::{RESULTS_MAX, rendered, text_of, values},
    parse::{Comparison, Filter, Operand, Part, Step, split_outside_quotes},
};

/// Error of an evaluation: a path yields more than [`RESULTS_MAX`] values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path yields more than {RESULTS_MAX} values")]
pub(crate) struct TooManyValues;

/// Compares the first values of two paths for `--sort-by`. Missing values come first, then numbers, then text, in which
/// runs of digits are compared by their value.
pub(crate) fn order(a: Option<&Value>, b: Option<&Value>) -> std::cmp::Ordering {
    evaluate::order(a, b)
}

#[cfg(test)]
mod tests;
