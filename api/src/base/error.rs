//! Every way a request can fail, as RFC 9457 problem details. The only place that names HTTP status codes.
//!
//! A handler returns a [`Problem`]; the outermost layer adds what only it knows (request id, path) and writes the body,
//! so that no answer of this server, not even one that a library made, is an error in another form.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use model::primitives::violation::Violation;
use serde::Serialize;
use utoipa::ToSchema;

/// How to prove who one is (RFC 6750).
const CHALLENGE: &str = "Bearer realm=\"tidegate\"";

/// The stable machine word of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub(crate) enum Code {
    /// The request cannot be read: syntax of the body, a query parameter, a path, a header.
    BadRequest,
    /// The body is nested deeper than anything this API knows.
    TooDeep,
    /// The body can be read, but fields of it must change; `errors` names all of them.
    Invalid,
    /// Nobody has proven who they are, or what proves it does not count.
    Unauthenticated,
    /// Who asks may not do that.
    Forbidden,
    /// A page of another server may have made the browser send this.
    CrossSite,
    /// The status page may only read.
    ReadOnly,
    /// There is no such object, or no such path.
    NotFound,
    /// There is no Node of this name.
    NodeNotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// No form that `Accept` allows can be given.
    NotAcceptable,
    /// An object of this name exists.
    AlreadyExists,
    /// The body's `resourceVersion` or `uid` is not the current one, or the same `Idempotency-Key` is being served.
    Conflict,
    /// The prune would remove more objects than allowed.
    PruneLimit,
    /// The write would remove more of the virtual addresses or endpoints at once than a guard allows.
    GuardHeld,
    /// The history does not reach back that far.
    HistoryDropped,
    /// The resume token is too old or of another life of the store: list again.
    ResumeExpired,
    /// Nobody waits for the answer: the question was given up, or never asked.
    NotAsked,
    /// Objects that a plan was made on have changed since, or it is not kept any longer.
    PlanOutdated,
    /// The agent of the node is not connected, or does not answer.
    NodeSilent,
    /// The agent of the node says why it cannot answer.
    NodeCannotSay,
    /// The listing that the page token continues is no longer held: start it again.
    PageExpired,
    /// `If-Match` names another state than the current one, or `If-None-Match: *` an existing object.
    PreconditionFailed,
    /// The request would overwrite without saying what: send `If-Match`.
    PreconditionRequired,
    /// The body is larger than the limit.
    PayloadTooLarge,
    /// The body is in a form that this path does not read.
    UnsupportedMediaType,
    /// Too many requests or streams at once.
    TooManyRequests,
    /// The request took too long.
    Timeout,
    /// This control server has not seen the state that the request names yet; others may have.
    Behind,
    /// Only the control server that leads can do this, and this one does not.
    NotLeader,
    /// The store cannot be reached or refuses; nothing was changed as far as is known.
    Unavailable,
    /// A fault of this server.
    Internal,
}

impl Code {
    /// The HTTP status.
    #[must_use]
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::TooDeep => StatusCode::BAD_REQUEST,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::CrossSite | Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::NotFound | Self::NodeNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::AlreadyExists
            | Self::Conflict
            | Self::PruneLimit
            | Self::GuardHeld
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

    /// The problem in a few words, the same for every occurrence.
    #[must_use]
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request cannot be read",
            Self::TooDeep => "The body is nested too deeply",
            Self::Invalid => "Fields must change before this is accepted",
            Self::Unauthenticated => "Who asks is not known",
            Self::Forbidden => "Who asks may not do that",
            Self::CrossSite => "Another page may have sent this",
            Self::ReadOnly => "The page may only read",
            Self::NotFound => "There is no such object",
            Self::NodeNotFound => "There is no such Node",
            Self::MethodNotAllowed => "This path does not know this method",
            Self::NotAcceptable => "No accepted form can be given",
            Self::AlreadyExists => "The object exists",
            Self::Conflict => "The object has changed",
            Self::PruneLimit => "The prune would remove too much",
            Self::GuardHeld => "The write would remove too much at once",
            Self::HistoryDropped => "The history does not reach back that far",
            Self::ResumeExpired => "The resume token has expired",
            Self::NotAsked => "Nobody waits for this answer",
            Self::PlanOutdated => "The plan does not hold any longer",
            Self::NodeSilent => "The agent of the node does not answer",
            Self::NodeCannotSay => "The agent of the node cannot answer",
            Self::PageExpired => "The page token has expired",
            Self::PreconditionFailed => "The precondition does not hold",
            Self::PreconditionRequired => "A precondition is required",
            Self::PayloadTooLarge => "The body is too large",
            Self::UnsupportedMediaType => "The body is in an unknown form",
            Self::TooManyRequests => "Too many at once",
            Self::Timeout => "The request took too long",
            Self::Behind => "This control server is behind",
            Self::NotLeader => "Another control server does this",
            Self::Unavailable => "The store is not available",
            Self::Internal => "This server made a mistake",
        }
    }
}

/// An error answer (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// A stable name of the kind of problem, as a URN.
    #[serde(rename = "type")]
    #[schema(example = "urn:tidegate:problem:Invalid")]
    pub(crate) problem_type: String,
    /// The problem in a few words, the same for every occurrence.
    pub(crate) title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// The stable machine word.
    pub(crate) code: Code,
    /// This occurrence in words.
    pub(crate) detail: String,
    /// The path of the request.
    pub(crate) instance: String,
    /// The id of the request, also in the header `X-Request-Id` and in the log.
    pub(crate) request_id: String,
    /// Every field that must change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) errors: Vec<Violation>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The state that stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<Current>,
    /// What a refused prune would have removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) would_prune: Vec<String>,
    /// The first of what a write would have removed that a guard holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) would_remove: Vec<String>,
}

/// The state that stands in the way of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Current {
    /// The object, as kind and name.
    pub(crate) object: String,
    /// To be sent as `If-Match`.
    pub(crate) etag: String,
    /// The revision of its last change.
    pub(crate) resource_version: String,
}

/// An error answer in the making.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    body: Box<ProblemBody>,
    retry_after_secs: Option<u32>,
}

/// What handlers return.
pub(crate) type Answer = Result<Response, Problem>;

impl Problem {
    /// A problem of a kind, said in words.
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

    /// What to say where a library answered on its own.
    pub(crate) fn of_status(status: StatusCode, path: &str) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::new(Code::NotFound, format!("there is nothing at {path}"))
                .hint("GET /openapi.json lists every path"),
            StatusCode::METHOD_NOT_ALLOWED => {
                let detail = format!("{path} does not know this method; `Allow` says which it knows");
                Self::new(Code::MethodNotAllowed, detail)
            }
            status if status.is_client_error() => Self::bad_request(Code::BadRequest.title()),
            _ => Self::new(Code::Internal, Code::Internal.title()),
        }
    }

    /// This occurrence in words.
    pub(crate) fn detail(&self) -> &str {
        &self.body.detail
    }

    /// The request cannot be read.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, detail)
    }

    /// Fields that must change.
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

    /// Adds every object or field that stands in the way.
    pub(crate) fn errors(mut self, errors: Vec<Violation>) -> Self {
        self.body.errors = errors;
        self
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// Adds the state that stands in the way.
    pub(crate) fn current(mut self, current: Current) -> Self {
        self.body.current = Some(current);
        self
    }

    /// Adds what a prune would have removed.
    pub(crate) fn would_prune(mut self, keys: Vec<String>) -> Self {
        self.body.would_prune = keys;
        self
    }

    /// Adds what a guard keeps from being removed.
    pub(crate) fn would_remove(mut self, named: Vec<String>) -> Self {
        self.body.would_remove = named;
        self
    }

    /// Adds when it is worth trying again, in seconds.
    pub(crate) fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// The machine word.
    pub(crate) fn code(&self) -> Code {
        self.body.code
    }

    /// Fills in what only the outermost layer knows.
    pub(crate) fn finish(mut self, instance: &str, request_id: &str) -> ProblemBody {
        instance.clone_into(&mut self.body.instance);
        request_id.clone_into(&mut self.body.request_id);
        *self.body
    }
}

impl IntoResponse for Problem {
    /// An answer without a body; the outermost layer takes the problem out of the extensions and writes it.
    fn into_response(self) -> Response {
        let mut response = self.body.code.status().into_response();
        if let Some(secs) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if self.body.code == Code::Unauthenticated {
            // RFC 9110, 11.6.1: a 401 says how to prove who one is.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        response.extensions_mut().insert(self);
        response
    }
}
