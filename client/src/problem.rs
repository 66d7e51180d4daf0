//! Problem documents (RFC 9457): error responses of the control API.

use std::fmt;

use serde_json::Value;

/// Media type of problem documents.
const MEDIA_TYPE: &str = "application/problem+json";

/// Problem document of a rejected request. Members that are absent or have the wrong type are empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// HTTP status code of the response.
    pub status: u16,
    /// Stable code of the error, such as `NotFound`.
    pub code: String,
    /// Description of this occurrence of the error, for people.
    pub detail: String,
    /// Suggested remedy, if the server provides one.
    pub hint: Option<String>,
    /// Request id, as in the log of the server.
    pub request_id: Option<String>,
    /// Invalid fields of the request; empty if the error concerns no field.
    pub violations: Vec<Violation>,
    /// Complete problem document; always a JSON object.
    pub document: Value,
}

/// Invalid field of a rejected request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the field. In a request with several objects, it begins with `/items/N`.
    pub pointer: String,
    /// Stable code of the violated rule.
    pub code: String,
    /// Requirement that the field does not meet.
    pub message: String,
    /// Suggested remedy, if the server provides one.
    pub hint: Option<String>,
}

impl Problem {
    /// Parses an error response. Returns `None` if it does not come from the control API.
    #[must_use]
    pub fn parse(status: u16, content_type: &str, body: &[u8]) -> Option<Self> {
        if !content_type.starts_with(MEDIA_TYPE) {
            return None;
        }
        let document = serde_json::from_slice(body).ok().filter(Value::is_object)?;
        let text = |key: &str| text(&document, key).unwrap_or_default();
        let violations = document.get("errors").and_then(Value::as_array);
        Some(Self {
            status,
            code: text("code"),
            detail: text("detail"),
            hint: optional(&document, "hint"),
            request_id: optional(&document, "requestId"),
            violations: violations.into_iter().flatten().map(Violation::of).collect(),
            document,
        })
    }

    /// Returns true if the same request may succeed later: the server is overloaded, starting, or has
    /// failed.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.status >= 500 || matches!(self.status, 408 | 429)
    }
}

impl Violation {
    fn of(violation: &Value) -> Self {
        let text = |key: &str| text(violation, key).unwrap_or_default();
        Self {
            pointer: text("pointer"),
            code: text("code"),
            message: text("message"),
            hint: optional(violation, "hint"),
        }
    }

    /// Returns the index of the object that contains the invalid field, or `None` if the request had only one
    /// object.
    #[must_use]
    pub fn item(&self) -> Option<usize> {
        let rest = self.pointer.strip_prefix("/items/")?;
        rest.split('/').next().unwrap_or(rest).parse().ok()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.violations.is_empty() {
            write!(f, "{}: {}", self.code, self.detail)?;
        } else {
            // The field errors are more specific than the summary.
            let violations: Vec<String> = self.violations.iter().map(Violation::to_string).collect();
            write!(f, "{}: {}", self.code, violations.join("; "))?;
        }
        with_hint(f, self.hint.as_deref())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.pointer.strip_prefix("/items/").and_then(|rest| rest.split_once('/'));
        write!(f, "{} {}", field.map_or("the object", |(_, field)| field), self.message)?;
        with_hint(f, self.hint.as_deref())
    }
}

fn with_hint(f: &mut fmt::Formatter<'_>, hint: Option<&str>) -> fmt::Result {
    hint.map_or(Ok(()), |hint| write!(f, " ({hint})"))
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn optional(value: &Value, key: &str) -> Option<String> {
    text(value, key).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Option<Problem> {
        Problem::parse(422, "application/problem+json; charset=utf-8", body.as_bytes())
    }

    #[test]
    fn a_problem_has_code_violations_hint_and_request_id() {
        let body = r#"{"code": "Invalid", "detail": "2 fields must change", "hint": "see docs", "requestId": "r1", "errors": [
            {"pointer": "/items/3/spec/port", "code": "Invalid", "message": "must be a port", "hint": "use 80"},
            {"pointer": "/spec", "message": "is missing"}]}"#;
        let problem = parsed(body).unwrap();
        assert_eq!(
            problem.to_string(),
            "Invalid: spec/port must be a port (use 80); the object is missing (see docs)"
        );
        assert_eq!(problem.violations.iter().map(Violation::item).collect::<Vec<_>>(), [Some(3), None]);
        assert_eq!((problem.request_id.as_deref(), problem.is_transient()), (Some("r1"), false));
        assert!(Problem { status: 503, ..problem }.is_transient());
    }

    #[test]
    fn members_of_the_wrong_type_are_empty_and_other_documents_are_no_problems() {
        let problem = parsed(r#"{"code": 7, "hint": "", "errors": [3, {"pointer": []}]}"#).unwrap();
        assert_eq!((problem.code.as_str(), problem.hint, problem.violations.len()), ("", None, 2));
        for body in ["", "[]", "\"x\"", "{", "<html>"] {
            assert_eq!(parsed(body), None, "{body}");
        }
        assert_eq!(Problem::parse(404, "application/json", br#"{"code": "NotFound"}"#), None);
    }
}
