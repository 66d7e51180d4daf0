//! Path and query parameters: parsed at the edge, refused with their name.

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
    http::mutation::Manner,
    state::paging::{LIMIT_DEFAULT, LIMIT_MAX},
};

/// Path parameters.
pub(crate) struct ApiPath<T>(pub(crate) T);

/// Query parameters; unknown ones are refused.
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

/// What is wrong with a query, in words: serde says it as `name: reason`, and names the field again in some reasons.
fn plain(reason: &str) -> String {
    let (name, said) = reason.split_once(": ").unwrap_or(("", reason));
    let quoted = |prefix: &str| said.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
    if let Some((field, rest)) = quoted("unknown field `") {
        return match rest.split_once("expected ") {
            Some((_, known)) => {
                format!("`{field}` is not known here; known: {}", known.trim_start_matches("one of "))
            }
            None => format!("`{field}` is not known here; this path takes no parameters"),
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

/// Where objects of a kind are.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CollectionPath {
    /// Absent on paths of cluster-wide kinds, and on those across namespaces.
    #[serde(default)]
    pub(crate) namespace: Option<Namespace>,
}

/// Where one object is.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ObjectPath {
    /// Absent on paths of cluster-wide kinds.
    #[serde(default)]
    pub(crate) namespace: Option<Namespace>,
    /// The name.
    pub(crate) name: Name,
}

/// What a listing shows.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Objects of a page.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// The token of the page before; all pages of a listing show one state.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    pub(crate) continue_token: Option<String>,
    /// Only objects with these labels, such as `app=web,tier!=db,zone in (a,b)`.
    #[param(max_length = 4096)]
    label_selector: Option<String>,
}

/// What a listing without labels shows.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Entries of a page.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// The token of the page before; all pages of a listing show one state.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    pub(crate) continue_token: Option<String>,
}

/// How a mutation is carried out.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MutationQuery {
    /// Answer as if, and change nothing.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) dry_run: bool,
    /// Do it even if it removes more of the virtual addresses or endpoints at once than the guards allow.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) confirm: bool,
}

/// How a mutation of an AddressPool is carried out. Mutations of all kinds are read with it;
/// `evict` is refused elsewhere.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PoolMutationQuery {
    /// Answer as if, and change nothing.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) dry_run: bool,
    /// Do it even if it removes more of the virtual addresses or endpoints at once than the guards allow.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) confirm: bool,
    /// Give Services other addresses when the pool loses the ones they have, as far as there are any. Without it such a
    /// write is refused and names them.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
}

impl PoolMutationQuery {
    /// How the mutation of an object of a kind is asked for.
    pub(crate) fn manner(&self, kind: Kind, form: Form, bytes: usize) -> Result<Manner, Problem> {
        let evict = self.evict(kind)?;
        Ok(Manner { is_dry_run: self.dry_run, evict, confirm: self.confirm, form, bytes })
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

/// A path that takes no parameters in its query.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

impl ListQuery {
    /// A listing as a query with further parameters asks for it.
    pub(crate) const fn new(
        limit: Option<u32>,
        continue_token: Option<String>,
        label_selector: Option<String>,
    ) -> Self {
        Self { limit, continue_token, label_selector }
    }

    /// Objects of a page.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        limit(self.limit)
    }

    /// The labels to match.
    pub(crate) fn selector(&self) -> Result<LabelSelector, Problem> {
        selector(self.label_selector.as_deref())
    }
}

impl PageQuery {
    /// Entries of a page.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        limit(self.limit)
    }
}

/// Rows of a page, as asked for.
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

/// Reads a label selector.
pub(crate) fn selector(text: Option<&str>) -> Result<LabelSelector, Problem> {
    let parsed = text.unwrap_or_default().parse::<LabelSelector>();
    parsed.map_err(|error| Problem::bad_request(format!("query parameter: `labelSelector`: {error}")))
}
