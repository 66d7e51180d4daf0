//! Path and query parameters, parsed before the handler runs. An error names the invalid parameter.

use axum::extract::{FromRequestParts, Path, Query, rejection::PathRejection};
use http::request::Parts;
use model::{
    kinds::{resource::Kind, selector::LabelSelector},
    primitives::name::{Name, Namespace},
};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;

use crate::{
    base::{error::Problem, negotiate::Form},
    http::mutation::WriteOptions,
    state::paging::{LIMIT_DEFAULT, LIMIT_MAX},
};

/// Extractor of path parameters that rejects malformed ones with a problem response.
pub(crate) struct ApiPath<T>(pub(crate) T);

/// Extractor of query parameters that rejects unknown and malformed ones with a problem response.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        let Path(value) = path.map_err(|rejection| {
            let text = rejection.body_text();
            let reason = text.strip_prefix("Invalid URL: ").unwrap_or(&text);
            Problem::bad_request(format!("a name in the path {reason}"))
        })?;
        Ok(Self(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Query(value) = Query::try_from_uri(&parts.uri).map_err(|rejection| {
            let text = rejection.body_text();
            let reason =
                text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text).to_owned();
            Problem::bad_request(format!("query parameter: {}", plain(&reason)))
        })?;
        Ok(Self(value))
    }
}

/// Rewrites serde's error message for a query parameter in plain words. Serde reports `name: reason` and repeats
/// the field name in some reasons.
fn plain(reason: &str) -> String {
    let (name, said) = reason.split_once(": ").unwrap_or(("", reason));
    let quoted = |prefix: &str| said.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
    if let Some((field, rest)) = quoted("unknown field `") {
        return match rest.split_once("expected ") {
            Some((_, known)) => {
                format!(
                    "`{field}` is not supported; supported parameters: {}",
                    known.trim_start_matches("one of ")
                )
            }
            None => format!("`{field}` is not supported; this path has no parameters"),
        };
    }
    if let Some((field, _)) = quoted("duplicate field `") {
        return format!("`{field}` is given twice");
    }
    match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            format!("`{name}` must be a whole number that is not negative")
        }
        "number too large to fit in target type" => format!("`{name}` is too large a number"),
        "provided string was not `true` or `false`" => format!("`{name}` must be true or false"),
        _ => reason.to_owned(),
    }
}

/// Path parameters of a collection of objects.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CollectionPath {
    /// Namespace; absent for cluster-scoped kinds and for listings across namespaces.
    #[serde(default)]
    pub(crate) namespace: Option<Namespace>,
}

/// Path parameters of a single object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ObjectPath {
    /// Namespace of the object; absent for cluster-scoped kinds.
    #[serde(default)]
    pub(crate) namespace: Option<Namespace>,
    /// Name of the object.
    pub(crate) name: Name,
}

/// Query of a listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Maximum number of objects in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page. All pages of a listing show the same state.
    /// Tokens expire after 5 minutes without use.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    pub(crate) continue_token: Option<String>,
    /// Label selector, such as `app=web,tier!=db,zone in (a,b)`. Only matching objects are returned. Default:
    /// all objects.
    #[param(max_length = 4096)]
    label_selector: Option<String>,
}

/// Maximum number of characters of an author's name in a query.
pub(crate) const AUTHOR_LENGTH_MAX: usize = 260;

/// Query of a listing without label selector.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum number of entries in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page. All pages of a listing show the same state.
    /// Tokens expire after 5 minutes without use.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    pub(crate) continue_token: Option<String>,
}

/// Query of a request that writes an object.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MutationQuery {
    /// If true, the request is validated and answered as usual, but nothing is changed. Default: false.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) dry_run: bool,
    /// If true, the write is performed even if it removes more virtual addresses or endpoints at once than
    /// the guards allow. Default: false.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) confirm: bool,
}

/// Query of a write request to an AddressPool. Write requests of all kinds are parsed with this type; for
/// other kinds, a request with `evict=true` is rejected.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PoolMutationQuery {
    /// If true, the request is validated and answered as usual, but nothing is changed. Default: false.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) dry_run: bool,
    /// If true, the write is performed even if it removes more virtual addresses or endpoints at once than
    /// the guards allow. Default: false.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) confirm: bool,
    /// If true, Services whose addresses the pool loses get other addresses, if any are available. If false,
    /// such a write is rejected and lists the Services. Default: false.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
}

impl PoolMutationQuery {
    /// Combines the query, the response format and the body size into the options of a write. Returns a problem if
    /// the kind does not support a parameter.
    pub(crate) fn manner(&self, kind: Kind, form: Form, bytes: usize) -> Result<WriteOptions, Problem> {
        let evict = self.evict(kind)?;
        Ok(WriteOptions { is_dry_run: self.dry_run, evict, confirm: self.confirm, form, bytes })
    }

    fn evict(&self, kind: Kind) -> Result<bool, Problem> {
        if self.evict && kind != Kind::AddressPool {
            let detail = format!(
                "query parameter: `evict` is for AddressPools; a write of a {kind} takes no address from others"
            );
            return Err(Problem::bad_request(detail));
        }
        Ok(self.evict)
    }
}

/// Query of a path without parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

impl ListQuery {
    /// Creates the query from the parameters that all listings have. Used by listings whose own query type
    /// has additional parameters.
    pub(crate) const fn new(
        limit: Option<u32>,
        continue_token: Option<String>,
        label_selector: Option<String>,
    ) -> Self {
        Self { limit, continue_token, label_selector }
    }

    /// Returns the maximum number of objects in the page, or a problem if the parameter `limit` is out of range.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        limit(self.limit)
    }

    /// Parses the parameter `labelSelector`; an absent one matches all objects.
    pub(crate) fn selector(&self) -> Result<LabelSelector, Problem> {
        selector(self.label_selector.as_deref())
    }
}

impl PageQuery {
    /// Returns the maximum number of entries in the page, or a problem if the parameter `limit` is out of range.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        limit(self.limit)
    }
}

/// Returns the value of the parameter `limit`, or [`LIMIT_DEFAULT`] if it is absent. A value out of range is
/// a problem.
pub(crate) fn limit(given: Option<u32>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    } else {
        Err(Problem::bad_request(format!(
            "query parameter: `limit` must be from 1 to {LIMIT_MAX}, not {limit}"
        )))
    }
}

/// Returns the value of a query parameter with text. One with more than `length_max` characters is a problem.
pub(crate) fn text(
    name: &'static str,
    given: Option<String>,
    length_max: usize,
) -> Result<Option<String>, Problem> {
    if given.as_ref().is_some_and(|text| text.chars().nth(length_max).is_some()) {
        return Err(Problem::bad_request(format!(
            "query parameter: `{name}` must have at most {length_max} characters"
        )));
    }
    Ok(given)
}

/// Parses a label selector; `None` matches all objects.
pub(crate) fn selector(text: Option<&str>) -> Result<LabelSelector, Problem> {
    let parsed = text.unwrap_or_default().parse::<LabelSelector>();
    parsed.map_err(|error| Problem::bad_request(format!("query parameter: `labelSelector`: {error}")))
}
