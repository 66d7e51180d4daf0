//! The query of a reading request, in the words of Kubernetes.

use model::{kinds::selector::LabelSelector, primitives::quantity::Position};
use serde::Deserialize;

use super::{catalogue::Resource, fields::FieldSelector};
use crate::{base::error::Problem, http::params::selector, state::paging::LIMIT_MAX};

/// Longest time that a watch may ask to be ended after, in seconds: a day.
const TIMEOUT_SECONDS_MAX: u32 = 86_400;

/// The query as it is sent. Parameters that Kubernetes knows and this view does not are refused by name.
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
    /// Asks for indented JSON, which is the same JSON.
    #[serde(rename = "pretty")]
    _pretty: Option<String>,
    /// How long the client waits; what this server takes for an answer is bounded anyway.
    #[serde(rename = "timeout")]
    _timeout: Option<String>,
}

/// The query of a request for one object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OneQuery {
    resource_version: Option<String>,
    include_object: Option<String>,
    /// As with many.
    #[serde(rename = "pretty")]
    _pretty: Option<String>,
    /// As with many.
    #[serde(rename = "timeout")]
    _timeout: Option<String>,
}

/// Which state a listing shows, or a watch begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// Any that there is.
    Any,
    /// This one, or a later one.
    NotOlder(Position),
    /// This one.
    Exactly(Position),
}

/// What of its object a row of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// Who it is.
    Metadata,
    /// All of it.
    Object,
}

/// The query, read.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Whether changes are followed.
    pub(super) is_watch: bool,
    /// Objects of a page; as many as there may be, when nobody says.
    pub(super) limit: Option<usize>,
    /// The token of the page before.
    pub(super) continue_token: Option<String>,
    /// The labels to match.
    pub(super) labels: LabelSelector,
    /// The fields to match.
    pub(super) fields: FieldSelector,
    /// Which state.
    pub(super) since: Since,
    /// Whether a watch tells how far it is.
    pub(super) has_bookmarks: bool,
    /// Whether a bookmark of its own ends the objects that a watch begins with.
    pub(super) marks_initial_end: bool,
    /// After how many seconds a watch ends.
    pub(super) timeout_seconds: Option<u32>,
    /// What of its object a row holds.
    pub(super) include: Include,
}

impl OneQuery {
    /// Which state is asked for, and what of the object a row of a table holds.
    pub(super) fn read(&self) -> Result<(Since, Include), Problem> {
        let since = since(self.resource_version.as_deref(), None, false)?;
        Ok((since, include(self.include_object.as_deref())?))
    }
}

impl Options {
    /// Reads a query about objects of a kind.
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

/// `0` and nothing are any state. Beginning with the objects that there are means any state, too.
fn since(version: Option<&str>, matched: Option<&str>, begins_anew: bool) -> Result<Since, Problem> {
    let version = version.filter(|text| !text.is_empty() && *text != "0");
    let parsed = version.map(str::parse::<Position>).transpose();
    let position = parsed.map_err(|reason| bad("resourceVersion", &reason))?;
    match (position, matched.filter(|text| !text.is_empty())) {
        (None, None | Some("NotOlderThan")) => Ok(Since::Any),
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
        assert_eq!(since(None, None, false).unwrap(), Since::Any);
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
