//! Changes of headers by the filters of a rule.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use model::{
    http::{CORS_RESPONSE_HEADERS, CompiledFilters},
    kinds::http_route::{HeaderField, HeaderModifier},
};

/// Changes headers in the order remove, set, add.
pub(super) fn modify(headers: &mut HeaderMap, modifier: &HeaderModifier) {
    let HeaderModifier { set, add, remove } = modifier;
    for name in remove.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
        headers.remove(name);
    }
    for (name, value) in set.iter().filter_map(parsed) {
        headers.insert(name, value);
    }
    for (name, value) in add.iter().filter_map(parsed) {
        headers.append(name, value);
    }
}

/// Changes the headers of a response by the filters of its rule and backend.
pub(super) fn modify_response<'a>(
    headers: &mut HeaderMap,
    filters: impl IntoIterator<Item = &'a CompiledFilters>,
) {
    for modifier in filters.into_iter().filter_map(|filters| filters.response_headers.as_ref()) {
        modify(headers, modifier);
    }
}

/// Replaces the headers of an endpoint for pages of other origins by those of the gateway.
pub(super) fn set_cors(headers: &mut HeaderMap, added: &[(&'static str, String)]) {
    for name in CORS_RESPONSE_HEADERS {
        headers.remove(name);
    }
    for (name, value) in added.iter().filter_map(header_of) {
        // Endpoints have values of `Vary` of their own.
        if name == header::VARY {
            headers.append(name, value);
        } else {
            headers.insert(name, value);
        }
    }
}

/// Inserts headers of the gateway. Values that are no valid headers are left out.
pub(super) fn insert(headers: &mut HeaderMap, added: &[(&'static str, String)]) {
    headers.extend(added.iter().filter_map(header_of));
}

fn header_of((name, value): &(&'static str, String)) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
}

/// Returns a header in the types of the HTTP library. Admission accepts only valid ones.
fn parsed(field: &HeaderField) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
    Some((name, HeaderValue::from_str(&field.value).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_removed_set_and_added() {
        let field = |name: &str, value: &str| HeaderField { name: name.to_owned(), value: value.to_owned() };
        let modifier = HeaderModifier {
            set: vec![field("X-Set", "new")],
            add: vec![field("x-add", "2")],
            remove: vec!["X-Gone".to_owned()],
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-set", "1"), ("x-set", "2"), ("x-add", "1"), ("x-gone", "1")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        modify(&mut headers, &modifier);
        let mut all: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        all.sort();
        assert_eq!(all, ["x-add=1", "x-add=2", "x-set=new"]);
    }
}
