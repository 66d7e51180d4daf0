//! HttpRoute: rules that select a backend Service for an HTTP request. Names and shapes are those of the Gateway API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    gateway_duration::GatewayDuration,
    hostname_pattern::HostnamePattern,
    name::{Label, Name, Namespace},
    quantity::Port,
};

/// Maximum number of parents of an HttpRoute.
pub const PARENT_REFS_MAX: usize = 32;
/// Maximum number of host names of an HttpRoute.
pub const ROUTE_HOSTNAMES_MAX: usize = 16;
/// Maximum number of rules of an HttpRoute.
pub const ROUTE_RULES_MAX: usize = 16;
/// Maximum number of matches of a rule.
pub const MATCHES_MAX: usize = 64;
/// Maximum number of filters or backends of a rule, and of header or query matches of a match.
pub const RULE_PARTS_MAX: usize = 16;
/// Maximum weight of a backend.
pub const BACKEND_WEIGHT_MAX: u32 = 1_000_000;
/// Maximum length of a path or of a replacement for one, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Maximum length of a header name or of the name of a query parameter, in bytes.
pub const FIELD_NAME_BYTES_MAX: usize = 256;
/// Maximum length of a header value or of the value of a query parameter, in bytes.
pub const FIELD_VALUE_BYTES_MAX: usize = 4096;

/// Maximum number of origins, methods or headers of a CORS filter.
pub const CORS_LIST_MAX: usize = 64;
/// Maximum length of an origin, in bytes.
pub const ORIGIN_BYTES_MAX: usize = 253;
/// Maximum number of repetitions of a request.
pub const RETRY_ATTEMPTS_MAX: u32 = 10;
/// Maximum length of the reason of a refusal, in bytes.
pub const REFUSAL_REASON_BYTES_MAX: usize = 1024;
/// Maximum percentage of mirrored requests.
pub const MIRROR_PERCENT_MAX: u32 = 100;

/// Desired state of an HttpRoute: the Gateways to which it attaches, its host names and its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRouteSpec {
    /// Gateways or listeners to which the route attaches, from 1 to 32.
    #[schema(min_items = 1, max_items = 32)]
    pub parent_refs: Vec<ParentRef>,
    /// Host names of the requests, at most 16. A listener with a host name serves the names that both have. Default: the
    /// host names of the listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub hostnames: Vec<HostnamePattern>,
    /// Rules, from 1 to 16. Of all rules of all routes that match a request, the most specific one applies.
    #[schema(min_items = 1, max_items = 16)]
    pub rules: Vec<HttpRouteRule>,
}

/// Gateway, or one of its listeners, to which a route attaches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParentRef {
    /// Name of the Gateway.
    pub name: Name,
    /// Namespace of the Gateway. Default: that of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Name of the listener. Default: all listeners of the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Label>,
    /// Port of the listeners. Default: all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
}

/// Rule of a route: the requests that it matches, and the treatment of these requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRouteRule {
    /// Name of the rule, unique within the route, for metrics and logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// Conditions of which at least one must be met, at most 64. Default: the path prefix `/`, which every request has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub matches: Vec<HttpRouteMatch>,
    /// Changes of the request and the response, at most 16, each type except `RequestMirror` at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub filters: Vec<HttpFilter>,
    /// Services that receive the requests in proportion to their weights, at most 16. Without any, requests get the
    /// status code 500 unless a filter redirects them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub backend_refs: Vec<BackendRef>,
    /// Limits of the time for a request. Default: `--response-timeout` of the gateway for the head of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<RouteTimeouts>,
    /// Repetition of failed requests. Default: a request is sent to up to three endpoints if the connection fails and, with an
    /// idempotent method, if no response arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RouteRetry>,
    /// Refusal of the requests, for paths with a restriction that gateways cannot enforce. The rule then has neither filters
    /// nor backends. Default: requests are not refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuse: Option<RuleRefusal>,
}

/// Refusal of the requests of a rule with the status code 500. A refusal precedes all other rules with the same host name and
/// path, whatever their conditions, ages and names. Parameters of path elements (`;name=value`) are left out of the
/// comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleRefusal {
    /// Reason of the refusal in words, from 1 to 1024 bytes, for explanations. Clients do not receive it.
    #[schema(min_length = 1, max_length = 1024, example = "Ingress shop/admin: auth-url has no translation")]
    pub reason: String,
    /// Comparison of the paths of matches with type `PathPrefix`. Default: `PathElements`.
    #[serde(default, skip_serializing_if = "RefusalComparison::is_default")]
    pub comparison: RefusalComparison,
    /// True if letters in upper and lower case are equal. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
    /// True if the refusal also precedes rules of the host name with longer or exact paths. Default: false, so that these
    /// rules serve their paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub covers_longer_paths: bool,
    /// True if the refusal applies at every listener that receives requests for the host name, if its route is attached to
    /// at least one listener. Default: false, so that it applies at the listeners to which the route is attached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_listeners: bool,
}

/// Comparison of the path of a request with the prefix of a refusal: `PathElements` or `Characters`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum RefusalComparison {
    /// Whole path elements are compared: `/a` does not stand for `/ab`.
    #[default]
    PathElements,
    /// Characters are compared: `/a` stands for `/ab` too.
    Characters,
}

impl RefusalComparison {
    // Serde determines the signature.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Repetition of failed requests, at other endpoints if there are any. A request is never repeated after a part of its body
/// has been sent. Requests whose connection failed are repeated; so are those without a response, or after the timeout
/// `backendRequest`, if their method is idempotent (RFC 9110 §9.2.2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteRetry {
    /// Status codes of endpoints after which a request with any method is repeated, from 400 to 599, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub codes: Vec<u16>,
    /// Maximum number of repetitions, from 0 to 10. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 10)]
    pub attempts: Option<u32>,
    /// Pause before each repetition. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<GatewayDuration>,
}

/// Limits of the time for a request. A client gets the status code 504 after the end of a limit or, if its response has
/// begun, a response that is cut off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteTimeouts {
    /// Maximum time from the head of the request to the end of the response, such as `10s`. `0s` stands for no limit.
    /// Default: that of `--response-timeout`, for the head of the response alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<GatewayDuration>,
    /// Maximum time of one attempt at one endpoint, until the end of its response, at most that of `request`. `0s` stands
    /// for no limit. Default: that of `request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<GatewayDuration>,
}

/// Conditions of a rule that must all be met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRouteMatch {
    /// Condition for the path. Default: the path prefix `/`.
    #[serde(default)]
    pub path: PathMatch,
    /// Method of the request. Default: every method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<RouteMethod>,
    /// Headers that the request must have, at most 16. Names are not case-sensitive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub headers: Vec<FieldMatch>,
    /// Query parameters that the request must have, at most 16. If a request repeats a parameter, the first value
    /// counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub query_params: Vec<FieldMatch>,
}

/// Condition for the path of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PathMatch {
    /// Type of the comparison. Default: `PathPrefix`.
    #[serde(rename = "type", default)]
    pub match_type: PathMatchType,
    /// Path, at most 1024 bytes, that begins with `/`. Default: `/`.
    #[serde(default = "root")]
    #[schema(min_length = 1, max_length = 1024)]
    pub value: String,
}

impl Default for PathMatch {
    fn default() -> Self {
        Self { match_type: PathMatchType::default(), value: root() }
    }
}

fn root() -> String {
    "/".to_owned()
}

/// Comparison of paths: `Exact` or `PathPrefix`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum PathMatchType {
    /// The path of the request is equal to the value.
    Exact,
    /// The value is the path of the request or its first elements. `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`.
    #[default]
    PathPrefix,
}

/// Method of a request: `GET`, `HEAD`, `POST`, `PUT`, `DELETE`, `OPTIONS`, `TRACE` or `PATCH`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the variants are the names of the methods in RFC 9110")]
pub enum RouteMethod {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
}

/// Header or query parameter that a request must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldMatch {
    /// Type of the comparison: `Exact`, the only one that is supported.
    #[serde(rename = "type", default)]
    pub match_type: FieldMatchType,
    /// Name of the header or parameter, at most 256 bytes.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// Value of the header or parameter, at most 4096 bytes.
    #[schema(min_length = 1, max_length = 4096)]
    pub value: String,
}

/// Comparison of the values of headers and query parameters: `Exact`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FieldMatchType {
    /// The value of the request is equal to that of the match.
    #[default]
    Exact,
}

/// Change of a request or its response. Exactly the field that belongs to `type` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpFilter {
    /// Type of the filter.
    #[serde(rename = "type")]
    pub filter_type: HttpFilterType,
    /// Settings of the type `RequestHeaderModifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HeaderModifier>,
    /// Settings of the type `ResponseHeaderModifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HeaderModifier>,
    /// Settings of the type `RequestRedirect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<RequestRedirect>,
    /// Settings of the type `URLRewrite`.
    #[serde(default, rename = "urlRewrite", skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<UrlRewrite>,
    /// Settings of the type `RequestMirror`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<RequestMirror>,
    /// Settings of the type `CORS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<CorsPolicy>,
}

/// Type of a filter.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, strum::Display,
)]
pub enum HttpFilterType {
    /// Sets, adds and removes headers of the request.
    RequestHeaderModifier,
    /// Sets, adds and removes headers of the response.
    ResponseHeaderModifier,
    /// Answers the request with a redirection.
    RequestRedirect,
    /// Changes the host name or the path of the request.
    #[serde(rename = "URLRewrite")]
    #[strum(serialize = "URLRewrite")]
    UrlRewrite,
    /// Sends copies of requests to a second Service, whose responses are ignored.
    RequestMirror,
    /// Answers preflight requests of browsers, and allows pages of other origins to read responses.
    #[serde(rename = "CORS")]
    #[strum(serialize = "CORS")]
    Cors,
}

/// Changes of headers, in the order remove, set, add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderModifier {
    /// Headers that replace all headers with the same name, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub set: Vec<HeaderField>,
    /// Headers that are added to those with the same name, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub add: Vec<HeaderField>,
    /// Names of headers that are removed, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub remove: Vec<String>,
}

/// Header with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderField {
    /// Name of the header, at most 256 bytes. Headers of the connection and of the body, and `Host`, are rejected.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// Value of the header, at most 4096 bytes.
    #[schema(min_length = 1, max_length = 4096)]
    pub value: String,
}

/// Redirection of a request. Parts of the address that are not set remain those of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestRedirect {
    /// Scheme of the new address: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<RedirectScheme>,
    /// Host name of the new address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<HostnamePattern>,
    /// Path of the new address. The query remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
    /// Port of the new address. Default: the well-known port of `scheme` if it is set, the port of the listener
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Status code of the response: 301, 302, 303, 307 or 308. Default: 302.
    #[serde(default = "found")]
    #[schema(default = 302)]
    pub status_code: u16,
}

const fn found() -> u16 {
    302
}

/// Scheme of a redirection: `http` or `https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RedirectScheme {
    /// HTTP without encryption.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Change of the host name and the path of a request before it is forwarded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UrlRewrite {
    /// Value of the header `Host` for the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<HostnamePattern>,
    /// Path for the backend. The query remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
}

/// Replacement of a path. Exactly the field that belongs to `type` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PathModifier {
    /// Type of the replacement.
    #[serde(rename = "type")]
    pub modifier_type: PathModifierType,
    /// New path, at most 1024 bytes, for the type `ReplaceFullPath`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub replace_full_path: Option<String>,
    /// Replacement for the matched prefix, at most 1024 bytes, for the type `ReplacePrefixMatch`. The rule must have
    /// exactly one match, of type `PathPrefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub replace_prefix_match: Option<String>,
}

/// Type of the replacement of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum PathModifierType {
    /// The whole path is replaced.
    ReplaceFullPath,
    /// The matched prefix of the path is replaced.
    ReplacePrefixMatch,
}

/// Service in the namespace of the route that receives requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackendRef {
    /// Name of the Service.
    pub name: Name,
    /// Port of the Service, with protocol TCP.
    pub port: Port,
    /// Share of the requests relative to the other backends of the rule, from 0 to 1,000,000. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schema(minimum = 0, maximum = 1_000_000, default = 1)]
    pub weight: u32,
    /// Changes of the requests that this backend receives and of their responses, at most 16, each type except
    /// `RequestMirror` at most once. They apply after those of the rule. The type `CORS` is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub filters: Vec<HttpFilter>,
}

/// Service that receives copies of requests. At most one of `percent` and `fraction` is set; without both, all requests
/// are copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestMirror {
    /// Service in the namespace of the route.
    pub backend_ref: MirrorBackend,
    /// Share of the requests in percent, from 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub percent: Option<u32>,
    /// Share of the requests as a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<MirrorFraction>,
}

impl RequestMirror {
    /// Returns the share of the requests as numerator and denominator.
    #[must_use]
    pub fn share(&self) -> (u32, u32) {
        match (&self.percent, &self.fraction) {
            (Some(percent), _) => (*percent, MIRROR_PERCENT_MAX),
            (None, Some(fraction)) => (fraction.numerator, fraction.denominator),
            (None, None) => (1, 1),
        }
    }
}

/// Service port that receives copies of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MirrorBackend {
    /// Name of the Service.
    pub name: Name,
    /// Port of the Service, with protocol TCP.
    pub port: Port,
}

/// Share of requests as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MirrorFraction {
    /// Number of copied requests of `denominator` requests.
    pub numerator: u32,
    /// Number of requests, at least 1 and not less than `numerator`. Default: 100.
    #[serde(default = "hundred")]
    #[schema(minimum = 1, default = 100)]
    pub denominator: u32,
}

const fn hundred() -> u32 {
    100
}

/// Cross-origin resource sharing (Fetch standard, section 3.3): the pages of other origins that may send requests and read
/// the responses. The gateway answers preflight requests itself with 204.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CorsPolicy {
    /// Origins of the pages, from 1 to 64, such as `https://www.example.org` or `https://*.example.org`, which stands for
    /// names with one more label or several. `*` stands for every origin.
    #[schema(min_items = 1, max_items = 64)]
    pub allow_origins: Vec<String>,
    /// True if requests with cookies or other credentials are allowed. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_credentials: bool,
    /// Methods that are allowed beside GET, HEAD and POST, at most 64. `*` stands for every method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub allow_methods: Vec<String>,
    /// Headers of requests that are allowed, at most 64. `*` stands for every header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub allow_headers: Vec<String>,
    /// Headers of responses that pages may read, at most 64. `*` stands for every header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub expose_headers: Vec<String>,
    /// Time for which browsers may keep the answer to a preflight request, in seconds. Default: 5.
    #[serde(default = "five")]
    #[schema(default = 5)]
    pub max_age: u32,
}

const fn five() -> u32 {
    5
}

const fn one() -> u32 {
    1
}

// Serde determines the signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(weight: &u32) -> bool {
    *weight == 1
}
