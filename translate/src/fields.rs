//! Fields of an input object that have not been translated yet. A translation removes each field that it
//! reads, so that the remaining ones can be reported.

use std::collections::BTreeMap;

use model::kinds::selector::Selector;
use serde_json::Value;

use crate::report::Report;

/// Fields of an input object that have not been translated yet, and the path of the object in the document.
pub(crate) struct Fields<'a> {
    left: BTreeMap<&'a str, &'a Value>,
    at: String,
    /// Names of the fields that the translation knows, as far as it has asked for them.
    known: Vec<String>,
}

impl<'a> Fields<'a> {
    /// Returns the fields of a JSON object at the path `at`; none if the value is not an object. Null fields
    /// count as absent.
    pub(crate) fn of(value: &'a Value, at: impl Into<String>) -> Self {
        let fields = value.as_object().into_iter().flatten();
        // A null field counts as absent.
        let left = fields.filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.as_str(), value));
        Self { left: left.collect(), at: at.into(), known: Vec::new() }
    }

    /// Returns the path in the document of the field `key` of this object.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// Removes and returns a field.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Value> {
        self.known.push(key.to_owned());
        self.left.remove(key)
    }

    /// Removes a boolean field and returns its value, or `None` if the field is absent. Also accepts the YAML
    /// 1.1 forms `yes`, `no`, `on` and `off`. Reports any other value and returns the safe value `careful`
    /// instead.
    pub(crate) fn flag(&mut self, key: &str, careful: bool, report: &mut Report) -> Option<bool> {
        let value = self.take(key)?;
        let word = value.as_str().map(str::to_ascii_lowercase);
        let flag = value.as_bool().or(match word.as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off") => Some(false),
            Some(_) | None => None,
        });
        if flag.is_none() {
            report.approximated(&self.path(key), &format!("must be true or false; treated as {careful}"));
        }
        Some(flag.unwrap_or(careful))
    }

    /// Removes a list field and returns its entries; none if the field is absent.
    ///
    /// # Errors
    /// Returns an error if the field is not a list. Ignoring an invalid restriction would match more than
    /// intended.
    pub(crate) fn list(&mut self, key: &str) -> Result<&'a [Value], String> {
        match self.take(key) {
            Some(value) => match value.as_array() {
                Some(list) => Ok(list),
                None => Err(format!("{} is not a list", self.path(key))),
            },
            None => Ok(&[]),
        }
    }

    /// Removes a list field and returns its entries. If the field is not a list, reports it and returns no
    /// entries. Not for lists that restrict a match, because without entries such a list would match more
    /// than intended; use [`Self::list`] for them.
    pub(crate) fn list_or_report(&mut self, key: &str, report: &mut Report) -> &'a [Value] {
        self.list(key).unwrap_or_else(|error| {
            report.ignored("", &error);
            &[]
        })
    }

    /// Removes a field with a list of label selectors and returns the selectors; none if the field is absent.
    ///
    /// # Errors
    /// Returns an error if a selector is invalid. Ignoring an invalid selector would match more than
    /// intended.
    pub(crate) fn selectors(&mut self, key: &str) -> Result<Vec<Selector>, String> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        serde_json::from_value(value.clone()).map_err(|error| format!("{}: {error}", self.path(key)))
    }

    /// Reports the fields that no translation has removed as unsupported.
    pub(crate) fn rest(self, report: &mut Report) {
        for key in self.left.keys() {
            let similar = self.known.iter().find(|known| known.eq_ignore_ascii_case(key));
            let reason = similar.map_or_else(
                || "not supported".to_owned(),
                |similar| format!("unknown field; did you mean `{similar}`?"),
            );
            report.ignored(&self.path(key), &reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_differs_in_case_is_answered_with_its_name() {
        let value = json!({ "autoassign": false, "other": 1 });
        let mut fields = Fields::of(&value, "spec");
        let mut report = Report::default();
        assert_eq!(fields.flag("autoAssign", false, &mut report), None);
        fields.rest(&mut report);
        let lines: Vec<_> = report.lines().map(|(_, _, text)| text.to_owned()).collect();
        assert!(
            lines[0].contains("spec.autoassign") && lines[0].contains("did you mean `autoAssign`?"),
            "{lines:?}"
        );
        assert!(lines[1].contains("spec.other") && lines[1].contains("not supported"), "{lines:?}");
    }
}
