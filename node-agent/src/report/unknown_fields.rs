//! Fields of reports that a control server does not know because its version is older than that of the agent. The agent
//! leaves them out, since the server would reject the whole report.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

/// Maximum number of fields that are left out. A server that rejects more has another problem than its version.
const FIELDS_MAX: usize = 64;
/// Maximum depth of a field in a report.
const DEPTH_MAX: usize = 16;

/// Fields that one control server does not know. Starts empty.
#[derive(Debug, Default)]
pub(super) struct UnknownFields(BTreeSet<Vec<Step>>);

/// One step from a value to a value inside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Member of an object with this name.
    Field(String),
    /// All elements of an array, or all members of an object whose names are data, such as addresses.
    Each,
}

/// Error response (RFC 9457) of a control server, as far as it is read here.
#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<FieldError>,
}

#[derive(Deserialize)]
struct FieldError {
    pointer: String,
    message: String,
}

impl UnknownFields {
    /// Records the unknown fields in the error response `body` to the report `sent`. Returns their pointers, which is
    /// an empty list if the response has another reason or too many fields are unknown already.
    pub(super) fn learn(&mut self, sent: &Value, body: &str) -> Vec<String> {
        let Ok(ErrorBody { errors }) = serde_json::from_str(body) else {
            return Vec::new();
        };
        let mut learned = Vec::new();
        for FieldError { pointer, message } in errors {
            let path =
                message.starts_with("unknown field").then(|| find(sent, &pointer, DEPTH_MAX)).flatten();
            if let Some(path) = path.filter(|path| !path.is_empty())
                && self.0.len() < FIELDS_MAX
                && self.0.insert(path)
            {
                learned.push(pointer);
            }
        }
        learned
    }

    /// Returns true if all fields of a report are known, as far as the server has said.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all fields, for example because the server may be of another version now.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Removes the recorded fields from a report.
    pub(super) fn remove_from(&self, report: &mut Value) {
        for path in &self.0 {
            remove(report, path);
        }
    }
}

/// Finds the value to which `pointer` leads, and returns the steps to it. A pointer joins the names by slashes without
/// escapes, and the names of addresses or Services may contain slashes, so the report decides where a name ends.
fn find(value: &Value, pointer: &str, depth: usize) -> Option<Vec<Step>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let rest = pointer.strip_prefix('/')?;
    let depth = depth.checked_sub(1)?;
    let ends = rest.match_indices('/').map(|(end, _)| end).chain([rest.len()]);
    ends.filter_map(|end| rest.split_at_checked(end)).find_map(|(name, after)| {
        let (step, inner) = match value {
            Value::Object(members) => (step(name), members.get(name)?),
            Value::Array(elements) => {
                let index = name.trim_start_matches('[').trim_end_matches(']').parse::<usize>().ok()?;
                (Step::Each, elements.get(index)?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        let mut path = find(inner, after, depth)?;
        path.insert(0, step);
        Some(path)
    })
}

/// Returns the step to a member. Names of fields consist of letters and digits and begin with a lowercase letter.
fn step(name: &str) -> Step {
    let is_field = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|character| character.is_ascii_alphanumeric());
    if is_field { Step::Field(name.to_owned()) } else { Step::Each }
}

/// Removes the members to which `path` leads.
fn remove(value: &mut Value, path: &[Step]) {
    let Some((first, rest)) = path.split_first() else { return };
    match (first, value) {
        (Step::Field(name), Value::Object(members)) if rest.is_empty() => _ = members.remove(name),
        (Step::Field(name), Value::Object(members)) => {
            if let Some(inner) = members.get_mut(name) {
                remove(inner, rest);
            }
        }
        (Step::Each, Value::Object(members)) => members.values_mut().for_each(|inner| remove(inner, rest)),
        (Step::Each, Value::Array(elements)) => elements.iter_mut().for_each(|inner| remove(inner, rest)),
        (Step::Field(_) | Step::Each, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(pointer: &str, message: &str) -> String {
        json!({"status": 422, "errors": [{"pointer": pointer, "code": "Invalid", "message": message}]})
            .to_string()
    }

    fn report() -> Value {
        json!({
            "bootId": "b",
            "facts": {"kernel": "6.1", "linkLayerAddresses": {"eth0": "00:00:5e:00:53:01"}},
            "announcements": {"192.0.2.1": {"role": "Owner", "cause": "x"}, "192.0.2.2": {"cause": "y"}},
            "bgpRoutes": {"192.0.2.0/24": {"peers": [{"text": "t"}, {"text": "t", "color": 1}]}},
        })
    }

    #[test]
    fn unknown_fields_are_removed_wherever_they_occur() {
        let mut unknown = UnknownFields::default();
        let pointers = [
            "/facts/linkLayerAddresses",
            "/announcements/192.0.2.1/cause",
            "/bgpRoutes/192.0.2.0/24/peers/[1]/color",
        ];
        for pointer in pointers {
            let body = refusal(pointer, "unknown field `f`, expected `kernel`");
            assert_eq!(unknown.learn(&report(), &body), [pointer]);
            assert_eq!(unknown.learn(&report(), &body), [""; 0], "{pointer} is known already");
        }
        let mut sent = report();
        unknown.remove_from(&mut sent);
        let expected = json!({
            "bootId": "b",
            "facts": {"kernel": "6.1"},
            "announcements": {"192.0.2.1": {"role": "Owner"}, "192.0.2.2": {}},
            "bgpRoutes": {"192.0.2.0/24": {"peers": [{"text": "t"}, {"text": "t"}]}},
        });
        assert_eq!(sent, expected);
        unknown.forget();
        assert!(unknown.is_empty());
    }

    #[test]
    fn other_refusals_leave_reports_as_they_are() {
        let mut unknown = UnknownFields::default();
        let bodies = [
            String::new(),
            "not JSON".to_owned(),
            json!({"status": 404}).to_string(),
            refusal("/facts/kernel", "too long"),
            refusal("/facts/nothing", "unknown field `nothing`"),
            refusal("facts", "unknown field `facts`"),
            refusal("", "unknown field `facts`"),
        ];
        for body in bodies {
            let learned = unknown.learn(&report(), &body);
            let mut sent = report();
            unknown.remove_from(&mut sent);
            assert_eq!((learned.len(), &sent), (0, &report()), "{body}");
        }
    }
}
