//! Conversion of problem responses (RFC 9457) to Kubernetes `Status` objects.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::{PREFIX, path::Target};
use crate::base::error::{Code, ProblemBody};

/// Returns true if a path belongs to the Kubernetes API.
pub(crate) fn is_below(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns a response body with the problem as a Kubernetes `Status`.
pub(crate) fn answer(problem: &ProblemBody) -> Body {
    Body::from(of(problem).to_string())
}

/// Converts a problem to a Kubernetes `Status`. Kind and name in `details` are derived from the path of the
/// request.
pub(super) fn of(problem: &ProblemBody) -> Value {
    let target = Target::of(&problem.instance);
    let said = match (problem.code, target.resource, target.name, target.part) {
        // Message that Kubernetes clients expect.
        (Code::NotFound, Some(resource), Some(name), None) => {
            format!("{} \"{name}\" not found", resource.words().plural)
        }
        _ => problem.detail.clone(),
    };
    let message = match &problem.hint {
        Some(hint) => format!("{said}; {hint}"),
        None => said,
    };
    let mut details = json!({});
    if !target.plural.is_empty() {
        details["kind"] = json!(target.plural);
    }
    if let Some(name) = target.name {
        details["name"] = json!(name);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason(problem.code), "details": details, "code": problem.status,
    })
}

/// Returns the `reason` of a Kubernetes `Status` for an error code of Tidegate.
const fn reason(code: Code) -> &'static str {
    match code {
        Code::BadRequest | Code::TooDeep => "BadRequest",
        Code::Invalid | Code::EnvironmentTooLarge => "Invalid",
        Code::Unauthenticated => "Unauthorized",
        Code::Forbidden | Code::CrossSite | Code::ReadOnly => "Forbidden",
        Code::NotFound | Code::NodeNotFound => "NotFound",
        Code::MethodNotAllowed => "MethodNotAllowed",
        Code::NotAcceptable => "NotAcceptable",
        Code::AlreadyExists => "AlreadyExists",
        Code::Conflict
        | Code::PruneLimit
        | Code::GuardHeld
        | Code::QuotaExceeded
        | Code::PlanOutdated
        | Code::NotLeader
        | Code::PreconditionFailed
        | Code::PreconditionRequired => "Conflict",
        Code::ResumeExpired | Code::PageExpired => "Expired",
        Code::NotAsked | Code::HistoryDropped => "Gone",
        Code::PayloadTooLarge => "RequestEntityTooLarge",
        Code::UnsupportedMediaType => "UnsupportedMediaType",
        Code::TooManyRequests => "TooManyRequests",
        Code::Timeout | Code::NodeSilent => "Timeout",
        Code::Unavailable | Code::Behind => "ServiceUnavailable",
        Code::NodeCannotSay | Code::Internal => "InternalError",
    }
}

/// Creates a response with status 200 and a JSON body.
pub(super) fn json_answer(value: &Value) -> Response {
    let mut response = Body::from(value.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    response
}
