//! Query parameters of the Kubernetes API, parsed and validated.

use model::{kinds::selector::LabelSelector, primitives::quantity::Position};
use serde::Deserialize;

use super::{catalogue::Resource, fields::FieldSelector};
use crate::{base::error::Problem, http::params::selector, state::paging::LIMIT_MAX};

/// Maximum value of the parameter `timeoutSeconds` of a watch: one day.
const TIMEOUT_SECONDS_MAX: u32 = 86_400;

/// Query parameters of a list or watch, as sent. A Kubernetes parameter that is not supported is rejected with an
/// error that names it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Query {
    watch: Option<String>,
    limit: Option<i64>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    resource_version: Option<String>,
    resource_version_match: Option<String>,
    allow_watch_bookmarks: Option<String>,
    send_initial_events: Option<String>,
    timeout_seconds: Option<u32>,
    include_object: Option<String>,
    /// `pretty`: requests indented JSON. Accepted and ignored.
    #[serde(rename = "pretty")]
    _pretty: Option<String>,
    /// `timeout`: time limit of the client. Ignored, because the server limits response times itself.
    #[serde(rename = "timeout")]
    _timeout: Option<String>,
}

/// Query parameters of a request for a single object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OneQuery {
    resource_version: Option<String>,
    include_object: Option<String>,
    /// `pretty`: requests indented JSON. Accepted and ignored.
    #[serde(rename = "pretty")]
    _pretty: Option<String>,
    /// `timeout`: time limit of the client. Accepted and ignored.
    #[serde(rename = "timeout")]
    _timeout: Option<String>,
}

/// State that a list must return or a watch must start at. A position consists of an epoch and a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// Any state that the server has, usually the newest.
    Any,
    /// Every write that any server of the store accepted before the request, as Kubernetes defines a read without
    /// `resourceVersion`. A watch treats it as [`Self::Any`].
    Latest,
    /// The state at this position, or a newer one.
    NotOlder(Position),
    /// The state at exactly this position.
    Exactly(Position),
}

/// Part of the object that a table row contains (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Include {
    /// No part of the object.
    None,
    /// Metadata of the object.
    Metadata,
    /// The complete object.
    Object,
}

/// Parsed query parameters of a list or watch.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// True if a watch is requested.
    pub(super) is_watch: bool,
    /// Maximum number of objects in a page; `None` selects the maximum of the server.
    pub(super) limit: Option<usize>,
    /// Continue token from the previous page.
    pub(super) continue_token: Option<String>,
    /// Label selector; the default matches all objects.
    pub(super) labels: LabelSelector,
    /// Field selector; the default matches all objects.
    pub(super) fields: FieldSelector,
    /// State that the client requests by `resourceVersion`.
    pub(super) since: Since,
    /// True if the watch sends bookmarks.
    pub(super) has_bookmarks: bool,
    /// True if a bookmark marks the end of the initial objects of a watch (`sendInitialEvents`).
    pub(super) marks_initial_end: bool,
    /// Duration after which a watch ends, in seconds; `None` selects the maximum.
    pub(super) timeout_seconds: Option<u32>,
    /// Part of the object that a table row contains.
    pub(super) include: Include,
}

impl OneQuery {
    /// Returns the state that the response must show, and the part of the object that table rows contain.
    pub(super) fn read(&self) -> Result<(Since, Include), Problem> {
        let since = since(self.resource_version.as_deref(), None, false)?;
        Ok((since, include(self.include_object.as_deref())?))
    }
}

impl Options {
    /// Parses and validates the query of a list or watch of a resource.
    pub(super) fn of(query: Query, resource: Resource) -> Result<Self, Problem> {
        let marks_initial_end = flag("sendInitialEvents", query.send_initial_events.as_deref())?;
        let since = since(
            query.resource_version.as_deref(),
            query.resource_version_match.as_deref(),
            marks_initial_end,
        )?;
        let fields = FieldSelector::parse(query.field_selector.as_deref().unwrap_or_default(), resource);
        let fields = fields.map_err(|reason| bad("fieldSelector", &reason))?;
        if query.timeout_seconds.is_some_and(|seconds| seconds > TIMEOUT_SECONDS_MAX) {
            return Err(bad("timeoutSeconds", &format!("must be at most {TIMEOUT_SECONDS_MAX}")));
        }
        let limit = match query.limit.unwrap_or(0) {
            0 => None,
            limit => {
                let limit = u32::try_from(limit).map_err(|_| bad("limit", "must not be negative"))?;
                Some(usize::try_from(limit.min(LIMIT_MAX)).unwrap_or(usize::MAX))
            }
        };
        Ok(Self {
            is_watch: flag("watch", query.watch.as_deref())?,
            limit,
            continue_token: query.continue_token.filter(|token| !token.is_empty()),
            labels: selector(query.label_selector.as_deref())?,
            fields,
            since,
            has_bookmarks: flag("allowWatchBookmarks", query.allow_watch_bookmarks.as_deref())?,
            marks_initial_end,
            timeout_seconds: query.timeout_seconds.filter(|seconds| *seconds > 0),
            include: include(query.include_object.as_deref())?,
        })
    }
}

fn bad(parameter: &str, reason: &str) -> Problem {
    Problem::bad_request(format!("query parameter: `{parameter}`: {reason}"))
}

fn flag(parameter: &str, text: Option<&str>) -> Result<bool, Problem> {
    match text.unwrap_or("false") {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(bad(parameter, "must be true or false")),
    }
}

/// Parses the requested state from `resourceVersion` (`version`) and `resourceVersionMatch` (`matched`). Without
/// a version the state must be the latest. Any state will do if the version is `0`, or if a watch sends the
/// existing objects first (`begins_anew`) and requires `NotOlderThan`.
fn since(version: Option<&str>, matched: Option<&str>, begins_anew: bool) -> Result<Since, Problem> {
    let version = version.filter(|text| !text.is_empty());
    let is_any = version == Some("0");
    let version = version.filter(|_| !is_any);
    let parsed = version.map(str::parse::<Position>).transpose();
    let position = parsed.map_err(|reason| bad("resourceVersion", &reason))?;
    match (position, matched.filter(|text| !text.is_empty())) {
        (None, None | Some("NotOlderThan")) if is_any => Ok(Since::Any),
        (None, None | Some("NotOlderThan")) => Ok(Since::Latest),
        (Some(_), Some("NotOlderThan")) if begins_anew => Ok(Since::Any),
        (Some(position), None | Some("NotOlderThan")) => Ok(Since::NotOlder(position)),
        (Some(position), Some("Exact")) => Ok(Since::Exactly(position)),
        (None, Some("Exact")) => Err(bad("resourceVersionMatch", "`Exact` needs a resourceVersion")),
        (_, Some(_)) => Err(bad("resourceVersionMatch", "must be NotOlderThan or Exact")),
    }
}

fn include(text: Option<&str>) -> Result<Include, Problem> {
    match text.unwrap_or_default() {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        _ => Err(bad("includeObject", "must be None, Metadata or Object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_position_that_was_given_out_or_nothing() {
        let at = "17-4".parse().unwrap();
        assert_eq!(since(None, None, false).unwrap(), Since::Latest);
        assert_eq!(since(Some(""), None, false).unwrap(), Since::Latest);
        assert_eq!(since(Some("0"), None, false).unwrap(), Since::Any);
        assert_eq!(since(Some("17-4"), None, false).unwrap(), Since::NotOlder(at));
        assert_eq!(since(Some("17-4"), Some("Exact"), false).unwrap(), Since::Exactly(at));
        assert_eq!(since(Some("17-4"), Some("NotOlderThan"), true).unwrap(), Since::Any);
        for (version, matched) in [("12", None), ("x", None), ("17-4", Some("Newest")), ("0", Some("Exact"))]
        {
            assert!(since(Some(version), matched, false).is_err(), "{version} {matched:?}");
        }
    }
}
