//! Entity tags and preconditions (RFC 9110 §13.1). A tag identifies one revision of an object's metadata and
//! spec; a change of its status does not change the tag.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use model::{
    kinds::{metadata::Metadata, resource::Object},
    primitives::quantity::Revision,
};

use crate::base::error::{Code, Current, Problem};

/// Parsed `If-Match` header (RFC 9110, 13.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// `*`: the object must exist; its state does not matter.
    Any,
    /// Entity tags, one of which must be that of the object's current state.
    Tags(Vec<String>),
}

/// Returns the strong tag of an object: `"<uid>.<revision>"`, including the quotes.
pub(crate) fn of(metadata: &Metadata) -> String {
    let uid = metadata.uid.map(|uid| uid.to_string()).unwrap_or_default();
    format!("\"{uid}.{}\"", metadata.revision())
}

/// Returns the entity tag of an object as a header value.
pub(crate) fn header_value(metadata: &Metadata) -> HeaderValue {
    HeaderValue::from_str(&of(metadata)).expect("a UUID and a number are header text")
}

/// Returns kind, name, entity tag and resource version of an object, for a problem response.
pub(crate) fn current(object: &Object) -> Current {
    Current {
        object: object.key().to_string(),
        etag: of(&object.metadata),
        resource_version: object.metadata.revision().to_string(),
    }
}

/// Parses the `If-Match` header. Returns `None` if it is absent, and a problem if it is malformed.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<IfMatch>, Problem> {
    let Some(text) = joined(headers, &header::IF_MATCH)? else { return Ok(None) };
    if text.trim() == "*" {
        return Ok(Some(IfMatch::Any));
    }
    let tags: Vec<String> =
        text.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
    let well_formed = |tag: &String| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"')
    };
    if tags.is_empty() || !tags.iter().all(well_formed) {
        let problem =
            Problem::bad_request(format!("the header `If-Match` must be `*` or quoted tags, not `{text}`"));
        return Err(problem.hint("send the `ETag` of the last response, with its quotes"));
    }
    Ok(Some(IfMatch::Tags(tags)))
}

/// Returns true if the request has `If-None-Match: *`, that is, if the object must not exist; false without
/// this header. Any other value of the header is a problem.
pub(crate) fn create_only(headers: &HeaderMap) -> Result<bool, Problem> {
    match joined(headers, &header::IF_NONE_MATCH)? {
        None => Ok(false),
        Some(text) if text.trim() == "*" => Ok(true),
        Some(text) => Err(Problem::bad_request(format!(
            "the header `If-None-Match` can only be `*` here, not `{text}`"
        ))),
    }
}

/// Checks the condition `demand` of an `If-Match` header against the current object. Returns the revision that
/// the object must still have when the write is admitted (`None`: any revision), or a problem if the condition
/// is not met.
///
/// Weak tags never match (RFC 9110 §13.1.1 requires strong comparison).
pub(crate) fn required_revision(demand: &IfMatch, object: &Object) -> Result<Option<Revision>, Problem> {
    match demand {
        IfMatch::Any => Ok(None),
        IfMatch::Tags(tags) if tags.contains(&of(&object.metadata)) => Ok(Some(object.metadata.revision())),
        IfMatch::Tags(_) => Err(failed(object)),
    }
}

/// Creates the problem response for an `If-Match` that does not match the current entity tag of an object.
pub(crate) fn failed(object: &Object) -> Problem {
    let detail =
        format!("{} has changed since: it is at revision {}", object.key(), object.metadata.revision());
    Problem::new(Code::PreconditionFailed, detail)
        .hint("read it again, repeat the change on the new state, and send its `ETag` as `If-Match`")
        .current(current(object))
}

/// Joins all values of a header into one comma-separated list (RFC 9110 §5.3). Returns `None` if the header
/// is absent, and a problem if a value is not ASCII text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let mut texts = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str();
        texts
            .push(text.map_err(|_| Problem::bad_request(format!("the header `{name}` must be ASCII text")))?);
    }
    Ok(if texts.is_empty() { None } else { Some(texts.join(",")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<IfMatch>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_MATCH, HeaderValue::from_str(text).unwrap_or_else(|_| panic!("{text}")));
        if_match(&headers)
    }

    #[test]
    fn if_match_is_a_star_or_a_list_of_quoted_tags() {
        assert_eq!(read("*").unwrap(), Some(IfMatch::Any));
        assert_eq!(
            read(r#""a.1", "b.2""#).unwrap(),
            Some(IfMatch::Tags(vec![r#""a.1""#.into(), r#""b.2""#.into()]))
        );
        for bad in ["", "abc", "\"", "\"a\", b", ","] {
            assert!(read(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
