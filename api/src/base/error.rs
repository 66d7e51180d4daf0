//! Problem responses (RFC 9457) for all request failures. Only this module maps errors to HTTP status codes.
//!
//! A handler returns a [`Problem`]. The outermost layer adds the request id and path and writes the body, so
//! that every error of this server, including errors produced by libraries, has the same format.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use model::primitives::violation::Violation;
use serde::Serialize;
use utoipa::ToSchema;

/// Value of `WWW-Authenticate` in a response with status 401 (RFC 6750).
const CHALLENGE: &str = "Bearer realm=\"tidegate\"";

/// Stable machine-readable code of an error response (problem, RFC 9457).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub(crate) enum Code {
    /// Malformed body, query parameter, path or header.
    BadRequest,
    /// The body is nested too deeply.
    TooDeep,
    /// The body is well-formed, but fields are invalid; `errors` lists all of them.
    Invalid,
    /// The request has no credential, or its credential is not valid.
    Unauthenticated,
    /// The caller lacks the permission for the request.
    Forbidden,
    /// The browser may have sent this request on behalf of a page of another site.
    CrossSite,
    /// The status page is read-only, and the request would change something.
    ReadOnly,
    /// There is no such object or path.
    NotFound,
    /// There is no Node of this name.
    NodeNotFound,
    /// The path does not support this method.
    MethodNotAllowed,
    /// `Accept` allows none of the available media types.
    NotAcceptable,
    /// An object of this name already exists.
    AlreadyExists,
    /// The `resourceVersion` or `uid` of the body is not the current one, or a request with the same
    /// `Idempotency-Key` is in progress.
    Conflict,
    /// `prune` would delete more objects than its limit allows.
    PruneLimit,
    /// The write would remove more virtual addresses or endpoints at once than a guard allows, or a Node whose
    /// agent reports, and is not confirmed.
    GuardHeld,
    /// The objects of a namespace would use more of a resource than its quota allows.
    QuotaExceeded,
    /// The history no longer contains the requested revision.
    HistoryDropped,
    /// The position to resume from is too old or of another epoch: list again.
    ResumeExpired,
    /// No query with this id waits for a reply of the node: it timed out or never existed.
    NotAsked,
    /// Objects that the plan depends on have changed, or the plan has expired.
    PlanOutdated,
    /// The agent of the node is not connected or does not reply in time.
    NodeSilent,
    /// The agent of the node reports that it cannot answer the query.
    NodeCannotSay,
    /// The snapshot that the pages of the listing show has expired: start the listing again.
    PageExpired,
    /// `If-Match` does not match the current entity tag, or `If-None-Match: *` was sent and the object already
    /// exists.
    PreconditionFailed,
    /// The request would overwrite an object without a precondition: send `If-Match`.
    PreconditionRequired,
    /// The body is larger than the limit.
    PayloadTooLarge,
    /// The environment variables of a namespace have more bytes than a program can be started with.
    EnvironmentTooLarge,
    /// The media type of the body is not supported by this path.
    UnsupportedMediaType,
    /// Too many concurrent requests or streams.
    TooManyRequests,
    /// The request took too long.
    Timeout,
    /// This control server has not yet reached the requested position (epoch and revision); other servers may
    /// have.
    Behind,
    /// Only the leader among the control servers can process this request, and this server is not the leader.
    NotLeader,
    /// The store is unreachable or rejects requests. As far as is known, the request changed nothing.
    Unavailable,
    /// Internal error of this server.
    Internal,
}

impl Code {
    /// Returns the HTTP status code of the error code.
    #[must_use]
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::TooDeep => StatusCode::BAD_REQUEST,
            Self::Invalid | Self::EnvironmentTooLarge => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::CrossSite | Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::NotFound | Self::NodeNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::AlreadyExists
            | Self::Conflict
            | Self::PruneLimit
            | Self::GuardHeld
            | Self::QuotaExceeded
            | Self::PlanOutdated
            | Self::NotLeader => StatusCode::CONFLICT,
            Self::ResumeExpired | Self::PageExpired | Self::NotAsked | Self::HistoryDropped => {
                StatusCode::GONE
            }
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Timeout | Self::Unavailable | Self::Behind => StatusCode::SERVICE_UNAVAILABLE,
            Self::NodeSilent => StatusCode::GATEWAY_TIMEOUT,
            Self::NodeCannotSay => StatusCode::BAD_GATEWAY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns a short title of the code, which does not depend on the occurrence.
    #[must_use]
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request is malformed",
            Self::TooDeep => "The body is nested too deeply",
            Self::Invalid => "Fields of the body are invalid",
            Self::Unauthenticated => "Authentication is required",
            Self::Forbidden => "Permission denied",
            Self::CrossSite => "The request may come from another site",
            Self::ReadOnly => "The status page is read-only",
            Self::NotFound => "The object or path does not exist",
            Self::NodeNotFound => "The Node does not exist",
            Self::MethodNotAllowed => "The path does not support this method",
            Self::NotAcceptable => "None of the accepted media types is available",
            Self::AlreadyExists => "The object already exists",
            Self::Conflict => "The object has changed",
            Self::PruneLimit => "The prune would remove too much",
            Self::GuardHeld => "The removal needs a confirmation",
            Self::QuotaExceeded => "A quota is exceeded",
            Self::HistoryDropped => "The history does not reach back that far",
            Self::ResumeExpired => "The resume token has expired",
            Self::NotAsked => "No query waits for this reply",
            Self::PlanOutdated => "The plan is outdated",
            Self::NodeSilent => "The agent of the node does not answer",
            Self::NodeCannotSay => "The agent of the node cannot answer",
            Self::PageExpired => "The page token has expired",
            Self::PreconditionFailed => "The precondition failed",
            Self::PreconditionRequired => "A precondition is required",
            Self::PayloadTooLarge => "The body is too large",
            Self::EnvironmentTooLarge => "The environment variables are too large",
            Self::UnsupportedMediaType => "The media type of the body is not supported",
            Self::TooManyRequests => "Too many concurrent requests",
            Self::Timeout => "The request took too long",
            Self::Behind => "This control server is behind",
            Self::NotLeader => "This control server is not the leader",
            Self::Unavailable => "The store is not available",
            Self::Internal => "Internal error of this server",
        }
    }
}

/// Error response (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// URN of the problem type, `urn:tidegate:problem:` followed by the code.
    #[serde(rename = "type")]
    #[schema(example = "urn:tidegate:problem:Invalid")]
    pub(crate) problem_type: String,
    /// Short title of the code, the same for every occurrence.
    pub(crate) title: String,
    /// HTTP status code of the response.
    #[schema(minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// Stable machine-readable code of the problem.
    pub(crate) code: Code,
    /// Description of this occurrence, for people. The text may change between releases.
    pub(crate) detail: String,
    /// Path of the request.
    pub(crate) instance: String,
    /// Id of the request, as in the header `X-Request-Id` and in the log of the server.
    pub(crate) request_id: String,
    /// Invalid fields or conflicting objects, all of them. Absent if the problem concerns none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) errors: Vec<Violation>,
    /// Suggested remedy. Absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Current state of the object that conflicts with the request. Absent for other problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<Current>,
    /// Objects that a rejected `prune` would have deleted, as kind and name. Absent for other problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) would_prune: Vec<String>,
    /// First objects that a write rejected by a guard would have removed. Absent for other problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) would_remove: Vec<String>,
}

/// Current state of an object that conflicts with a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Current {
    /// Kind and name of the object, for example `Service default/web`.
    pub(crate) object: String,
    /// Current entity tag of the object, to be sent as `If-Match`.
    pub(crate) etag: String,
    /// Resource version of the last change of the object.
    pub(crate) resource_version: String,
}

/// Error of a handler, which becomes an RFC 9457 response. The handler can add details first.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    body: Box<ProblemBody>,
    retry_after_secs: Option<u32>,
}

/// Result of a login that ends with a redirect to the page, for the audit log: the error code, or `None` if it succeeded. Part of
/// the extensions of the response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoginRedirect(pub(crate) Option<Code>);

/// Result of a handler: a response, or an error that becomes a problem response (RFC 9457).
pub(crate) type Answer = Result<Response, Problem>;

impl Problem {
    /// Creates a problem from a code and a description of this occurrence.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let body = ProblemBody {
            problem_type: format!("urn:tidegate:problem:{code:?}"),
            title: code.title().to_owned(),
            status: code.status().as_u16(),
            code,
            detail: detail.into(),
            instance: String::new(),
            request_id: String::new(),
            errors: Vec::new(),
            hint: None,
            current: None,
            would_prune: Vec::new(),
            would_remove: Vec::new(),
        };
        Self { body: Box::new(body), retry_after_secs: None }
    }

    /// Creates the problem for an error response that the HTTP library produced (for example, for an unknown
    /// path), from the status of the response and the path of the request.
    pub(crate) fn of_status(status: StatusCode, path: &str) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::new(Code::NotFound, format!("the path {path} does not exist"))
                .hint("GET /openapi.json lists every path"),
            StatusCode::METHOD_NOT_ALLOWED => {
                let detail = format!("{path} does not support this method; see the header `Allow`");
                Self::new(Code::MethodNotAllowed, detail)
            }
            status if status.is_client_error() => Self::bad_request(Code::BadRequest.title()),
            _ => Self::new(Code::Internal, Code::Internal.title()),
        }
    }

    /// Returns the description of this occurrence, for people. The text may change between releases.
    pub(crate) fn detail(&self) -> &str {
        &self.body.detail
    }

    /// Creates a problem with code `BadRequest` and the given detail.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, detail)
    }

    /// Creates a problem with code `Invalid` and the list of all invalid fields.
    pub(crate) fn invalid(errors: Vec<Violation>) -> Self {
        let detail = match &errors[..] {
            [one] if one.pointer.is_empty() => one.message.clone(),
            [one] => format!("`{}` {}", one.pointer, one.message),
            several => format!("{} fields must change; see `errors`", several.len()),
        };
        let mut problem = Self::new(Code::Invalid, detail);
        problem.body.errors = errors;
        problem
    }

    /// Sets the list of conflicting objects or invalid fields.
    pub(crate) fn errors(mut self, errors: Vec<Violation>) -> Self {
        self.body.errors = errors;
        self
    }

    /// Sets the hint, a remedy suggested to the client.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// Adds the current state of the conflicting object.
    pub(crate) fn current(mut self, current: Current) -> Self {
        self.body.current = Some(current);
        self
    }

    /// Sets the objects that a rejected `prune` (deletion of objects that an apply request no longer
    /// contains) would have deleted.
    pub(crate) fn would_prune(mut self, keys: Vec<String>) -> Self {
        self.body.would_prune = keys;
        self
    }

    /// Sets the first objects that a write would have removed if a guard (limit on the removals of one write)
    /// had not rejected it.
    pub(crate) fn would_remove(mut self, named: Vec<String>) -> Self {
        self.body.would_remove = named;
        self
    }

    /// Sets the `Retry-After` header, in seconds.
    pub(crate) fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// Returns the error code of the problem.
    pub(crate) fn code(&self) -> Code {
        self.body.code
    }

    /// Completes the response body with the request's path and id, which only the outermost middleware has.
    pub(crate) fn finish(mut self, instance: &str, request_id: &str) -> ProblemBody {
        instance.clone_into(&mut self.body.instance);
        request_id.clone_into(&mut self.body.request_id);
        *self.body
    }
}

impl IntoResponse for Problem {
    /// Returns a response without a body. The outermost middleware reads the problem from the response's
    /// extensions and writes the body.
    fn into_response(self) -> Response {
        let mut response = self.body.code.status().into_response();
        if let Some(secs) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if self.body.code == Code::Unauthenticated {
            // RFC 9110, 11.6.1: a 401 response must carry a challenge.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        response.extensions_mut().insert(self);
        response
    }
}
