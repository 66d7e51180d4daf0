//! Changes of headers by the filters of a rule.

use http::{HeaderMap, HeaderName, HeaderValue};
use model::kinds::http_route::{HeaderField, HeaderModifier};

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
