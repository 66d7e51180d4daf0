//! Reader of request bodies. Rejects unknown media types, duplicate keys, and bodies that are too large or too
//! deeply nested.
//!
//! Limits are checked before values are built in memory, so that a small malicious body cannot use much memory.

mod json;
mod strict;
mod yaml;

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use model::{
    kinds::resource::Kind,
    primitives::violation::{Violation, ViolationCode},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::base::error::{Code, Problem};

/// Maximum size of one object in bytes: ten times the largest valid EndpointSet.
pub(crate) const OBJECT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of an `apply` body in bytes, enough for several thousand Services in one transaction.
pub(crate) const APPLY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum size of a login or enrollment in bytes, read from callers without credentials: a token and a
/// certificate signing request.
pub(crate) const CREDENTIAL_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of an agent's reply to a query, in bytes. Agents shorten a longer reply by omitting lines.
pub(crate) const ANSWER_BYTES_MAX: usize = model::wire::ask::REPLY_BYTES_MAX;
/// Maximum nesting of arrays and objects in a body. The deepest field of any object is at level 8; the list
/// of an `apply` request adds 2 levels.
pub(crate) const DEPTH_MAX: usize = 32;
/// Maximum time for the whole body of a request to arrive. Shorter than the request timeout, so that a slow sender
/// receives a response that states that no object was changed.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of documents in one YAML body: one more than the maximum number of objects in a request, so that
/// a body with too many objects fails with the error for that limit.
const DOCUMENTS_MAX: usize = model::admission::admit::OPERATIONS_MAX + 1;

/// Format of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Yaml,
}

/// Deserializes a JSON value into type `T`. An error contains the JSON pointer of the invalid field.
pub(crate) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer = error.path().iter().map(|segment| format!("/{segment}")).collect::<String>();
        Problem::invalid(vec![Violation::new(pointer, ViolationCode::Invalid, error.inner().to_string())])
    })
}

/// Returns an error that names each entry of `limits` (JSON pointer, size or number found, maximum) above its maximum.
pub(crate) fn within<'a>(limits: impl IntoIterator<Item = (&'a str, usize, usize)>) -> Result<(), Problem> {
    let above = limits.into_iter().filter(|(_, found, limit)| found > limit);
    let violation = |(pointer, found, limit)| {
        Violation::new(pointer, ViolationCode::TooLong, format!("must be at most {limit}, is {found}"))
    };
    let violations: Vec<_> = above.map(violation).collect();
    if violations.is_empty() { Ok(()) } else { Err(Problem::invalid(violations)) }
}

/// Reads a request body that must contain exactly one object. Returns the bytes of the body and the parsed
/// object.
pub(crate) async fn read_one(headers: &HeaderMap, body: Body) -> Result<(Bytes, Value), Problem> {
    let form = form_of(headers, &["application/json"])?;
    let bytes = read_bytes(body, OBJECT_BYTES_MAX).await?;
    let mut values = parse(form, &bytes)?;
    match (values.pop(), values.is_empty()) {
        (Some(value), true) => Ok((bytes, value)),
        (Some(_), false) => Err(Problem::bad_request("the body must be one document").hint(
            "send several objects to POST \
                                                                            /v1/apply",
        )),
        (None, _) => Err(Problem::bad_request("the body is empty; it must be one object")),
    }
}

/// Reads the body of a login or enrollment: one JSON value of at most [`CREDENTIAL_BYTES_MAX`] bytes. YAML is not
/// accepted, because its parser costs more per byte, and the caller has not authenticated yet.
pub(crate) async fn read_credential(headers: &HeaderMap, body: Body) -> Result<Value, Problem> {
    if form_of(headers, &["application/json"])? != BodyFormat::Json {
        let problem = Problem::new(Code::UnsupportedMediaType, "YAML is not supported here");
        return Err(problem.hint("send application/json"));
    }
    let bytes = read_bytes(body, CREDENTIAL_BYTES_MAX).await?;
    json::parse(&bytes)
}

/// Reads the reply of an agent: one value of at most [`ANSWER_BYTES_MAX`] bytes.
pub(crate) async fn read_answer(headers: &HeaderMap, body: Body) -> Result<Value, Problem> {
    let form = form_of(headers, &["application/json"])?;
    let bytes = read_bytes(body, ANSWER_BYTES_MAX).await?;
    parse(form, &bytes)?.pop().ok_or_else(|| Problem::bad_request("the body is empty; it must be one answer"))
}

/// Reads a request body that contains a JSON merge patch (RFC 7396). Returns the size of the body in bytes and
/// the patch.
pub(crate) async fn read_patch(headers: &HeaderMap, body: Body) -> Result<(usize, Value), Problem> {
    let form = form_of(headers, &["application/merge-patch+json", "application/json"])?;
    let bytes = read_bytes(body, OBJECT_BYTES_MAX).await?;
    let patch = parse(form, &bytes)?.pop();
    let patch = patch.filter(Value::is_object).ok_or_else(|| {
        Problem::bad_request("a merge patch (RFC 7396) must be an object with the fields to change")
    })?;
    Ok((bytes.len(), patch))
}

/// Reads a request body with objects: one object, an array, a `List`, or several YAML documents. Returns the
/// bytes of the body and the objects.
pub(crate) async fn read_many(headers: &HeaderMap, body: Body) -> Result<(Bytes, Vec<Value>), Problem> {
    let form = form_of(headers, &["application/json"])?;
    let bytes = read_bytes(body, APPLY_BYTES_MAX).await?;
    let mut items = Vec::new();
    for value in parse(form, &bytes)? {
        flatten(value, &mut items)?;
    }
    Ok((bytes, items))
}

fn flatten(value: Value, items: &mut Vec<Value>) -> Result<(), Problem> {
    match value {
        Value::Array(values) => items.extend(values),
        Value::Object(mut fields) if is_list(&fields) => match fields.remove("items") {
            Some(Value::Array(values)) => items.extend(values),
            Some(_) | None => return Err(Problem::bad_request("`items` of a List must be an array")),
        },
        // Two consecutive separators produce an empty YAML document.
        Value::Null => {}
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => items.push(value),
    }
    Ok(())
}

/// Returns true for a `List`, or for a list response such as a `ServiceList` that a client sends back unchanged.
fn is_list(fields: &serde_json::Map<String, Value>) -> bool {
    let kind = fields.get("kind").and_then(Value::as_str);
    let of = kind.and_then(|kind| kind.strip_suffix("List"));
    of.is_some_and(|of| of.is_empty() || Kind::parse(of).is_some())
}

async fn read_bytes(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let Ok(read) = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await else {
        let seconds = BODY_TIMEOUT.as_secs();
        let detail = format!("the body did not arrive within {seconds} seconds; nothing was changed");
        return Err(Problem::bad_request(detail));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            let problem =
                Problem::new(Code::PayloadTooLarge, format!("the body must be at most {limit} bytes"));
            Err(problem.hint("split it: an EndpointSet into several sets, an apply into several"))
        }
        Err(error) => Err(Problem::bad_request(format!("the body ended early: {error}"))),
    }
}

fn form_of(headers: &HeaderMap, json: &[&str]) -> Result<BodyFormat, Problem> {
    if let Some(coding) = headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let detail = format!("`Content-Encoding: {}` is not supported", coding.to_str().unwrap_or("?"));
        return Err(Problem::new(Code::UnsupportedMediaType, detail).hint("send the body uncompressed"));
    }
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if json.contains(&essence.as_str()) {
        return Ok(BodyFormat::Json);
    }
    match essence.as_str() {
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(BodyFormat::Yaml),
        "" => Err(Problem::new(Code::UnsupportedMediaType, "the header `Content-Type` is missing")
            .hint(format!("send one of {}, application/yaml", json.join(", ")))),
        other => Err(Problem::new(Code::UnsupportedMediaType, format!("`{other}` is not supported"))
            .hint(format!("send one of {}, application/yaml", json.join(", ")))),
    }
}

fn parse(form: BodyFormat, bytes: &[u8]) -> Result<Vec<Value>, Problem> {
    if bytes.trim_ascii().is_empty() {
        return Err(Problem::bad_request("the body is empty").hint(
            "send an object; its fields are described in \
                                                            /openapi.json",
        ));
    }
    match form {
        BodyFormat::Json => json::parse(bytes).map(|value| vec![value]),
        BodyFormat::Yaml => yaml::parse(bytes),
    }
}

fn too_deep() -> Problem {
    Problem::new(Code::TooDeep, format!("the body must be nested at most {DEPTH_MAX} deep"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_answer_of_a_collection_can_be_applied_again() {
        for (kind, is_list) in [("List", true), ("ServiceList", true), ("PodList", false), ("Service", false)]
        {
            let mut items = Vec::new();
            flatten(json!({ "kind": kind, "items": [{}, {}, {}] }), &mut items).unwrap();
            assert_eq!(items.len() == 3, is_list, "{kind}");
        }
    }
}
