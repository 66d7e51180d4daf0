//! Field selectors such as `spec.nodeName=n1,status.phase!=Failed`, for the supported fields of each resource. No
//! I/O.

use serde_json::Value;

use super::catalogue::Resource;

/// Maximum number of requirements in one field selector.
const REQUIREMENTS_MAX: usize = 32;

/// Conjunction of requirements on fields. An empty selector matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    pointer: String,
    is_equal: bool,
    value: String,
}

/// Returns the names of the fields that a field selector supports for a resource.
fn known(resource: Resource) -> &'static [&'static str] {
    match resource {
        Resource::Pods => {
            &["metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "status.podIP"]
        }
        Resource::Nodes => &["metadata.name", "spec.unschedulable"],
        Resource::Services => &["metadata.name", "metadata.namespace", "spec.type", "spec.clusterIP"],
        Resource::Endpoints
        | Resource::EndpointSlices
        | Resource::Ingresses
        | Resource::Gateways
        | Resource::HttpRoutes => &["metadata.name", "metadata.namespace"],
        Resource::Namespaces => &["metadata.name", "status.phase"],
        Resource::Events => &[
            "metadata.name",
            "metadata.namespace",
            "reason",
            "type",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.resourceVersion",
        ],
    }
}

impl FieldSelector {
    /// Parses a field selector for a resource.
    ///
    /// # Errors
    /// Returns a message with the expected syntax or the supported fields.
    pub(super) fn parse(text: &str, resource: Resource) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if requirements.len() == REQUIREMENTS_MAX {
                return Err(format!("a field selector has at most {REQUIREMENTS_MAX} requirements"));
            }
            let unequal = part.split_once("!=").map(|(field, value)| (field, value, false));
            let equal = || part.split_once("==").or_else(|| part.split_once('='));
            let (field, value, is_equal) = unequal
                .or_else(|| equal().map(|(field, value)| (field, value, true)))
                .ok_or_else(|| format!("`{part}` must be FIELD=VALUE or FIELD!=VALUE"))?;
            let field = field.trim();
            if !known(resource).contains(&field) {
                let (plural, known) = (resource.words().plural, known(resource).join(", "));
                return Err(format!("{plural} cannot be selected by `{field}`; supported fields: {known}"));
            }
            let pointer = format!("/{}", field.replace('.', "/"));
            requirements.push(Requirement { pointer, is_equal, value: value.trim().to_owned() });
        }
        Ok(Self(requirements))
    }

    /// Returns true if an object satisfies every requirement. A missing field counts as an empty string.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|Requirement { pointer, is_equal, value }| {
            let found = match object.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(flag)) => flag.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => String::new(),
            };
            (found == *value) == *is_equal
        })
    }

    /// Returns the selector as text in a canonical form. Page tokens contain it to identify the selection.
    pub(super) fn text(&self) -> String {
        let parts = self.0.iter().map(|Requirement { pointer, is_equal, value }| {
            let sign = if *is_equal { "=" } else { "!=" };
            format!("{pointer}{sign}{value}")
        });
        parts.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_compared_and_one_that_is_missing_is_empty() {
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1" } });
        let matches = |text: &str| FieldSelector::parse(text, Resource::Pods).unwrap().matches(&pod);
        for yes in ["", "metadata.name=a", "spec.nodeName==n1,status.phase!=Failed", "status.phase=", ","] {
            assert!(matches(yes), "{yes}");
        }
        for no in ["metadata.name=b", "metadata.name!=a", "status.phase=Running"] {
            assert!(!matches(no), "{no}");
        }
    }

    #[test]
    fn unknown_fields_and_too_many_are_refused_in_words() {
        for bad in ["x=y", "metadata.name", "=", "!=", "metadata.labels.app=web"] {
            assert!(FieldSelector::parse(bad, Resource::Services).is_err(), "{bad}");
        }
        let error = FieldSelector::parse("spec.nodeName=x", Resource::Services).unwrap_err();
        assert!(error.contains("spec.type"), "{error}");
        let many = vec!["metadata.name=a"; REQUIREMENTS_MAX + 1].join(",");
        assert!(FieldSelector::parse(&many, Resource::Pods).unwrap_err().contains("at most"));
    }
}
