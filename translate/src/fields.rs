//! Takes an object apart field by field, so that what nobody took is seen and reported.

use std::collections::BTreeMap;

use model::kinds::selector::Selector;
use serde_json::Value;

use crate::report::Report;

/// The fields of one object that nobody has taken yet, and where it stands in its document.
pub(crate) struct Fields<'a> {
    left: BTreeMap<&'a str, &'a Value>,
    at: String,
}

impl<'a> Fields<'a> {
    /// The fields of a value; none when it is no object.
    pub(crate) fn of(value: &'a Value, at: impl Into<String>) -> Self {
        let fields = value.as_object().into_iter().flatten();
        // A field without a value is as good as left out.
        let left = fields.filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.as_str(), value));
        Self { left: left.collect(), at: at.into() }
    }

    /// Where a field stands.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// Takes a field.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Value> {
        self.left.remove(key)
    }

    /// Takes a truth value; also the words that YAML 1.1 reads as one. What is none counts as `careful`.
    pub(crate) fn flag(&mut self, key: &str, careful: bool, report: &mut Report) -> Option<bool> {
        let value = self.take(key)?;
        let word = value.as_str().map(str::to_ascii_lowercase);
        let flag = value.as_bool().or(match word.as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off") => Some(false),
            Some(_) | None => None,
        });
        if flag.is_none() {
            report.approximated(&self.path(key), &format!("neither true nor false; taken for {careful}"));
        }
        Some(flag.unwrap_or(careful))
    }

    /// Takes a list, empty when it is left out.
    ///
    /// # Errors
    /// It is none: if it restricts something, more would match without it.
    pub(crate) fn list(&mut self, key: &str) -> Result<&'a [Value], String> {
        match self.take(key) {
            Some(value) => match value.as_array() {
                Some(list) => Ok(list),
                None => Err(format!("{} is not a list", self.path(key))),
            },
            None => Ok(&[]),
        }
    }

    /// Takes a list of which nothing else depends; one that is none is reported and counts as empty.
    pub(crate) fn list_or_report(&mut self, key: &str, report: &mut Report) -> &'a [Value] {
        self.list(key).unwrap_or_else(|error| {
            report.ignored("", &error);
            &[]
        })
    }

    /// Takes a list of label selectors.
    ///
    /// # Errors
    /// One of them is none: without it more would match than before.
    pub(crate) fn selectors(&mut self, key: &str) -> Result<Vec<Selector>, String> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        serde_json::from_value(value.clone()).map_err(|error| format!("{}: {error}", self.path(key)))
    }

    /// Reports what nobody took.
    pub(crate) fn rest(self, report: &mut Report) {
        for key in self.left.keys() {
            report.ignored(&self.path(key), "nothing here has this setting");
        }
    }
}
