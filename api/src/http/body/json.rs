//! Parser of JSON request bodies.

use serde_json::Value;

use super::{DEPTH_MAX, strict::Strict, too_deep};
use crate::base::error::Problem;

/// Parses one JSON value. Rejects duplicate keys and too deep nesting.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    if depth(bytes) > DEPTH_MAX {
        return Err(too_deep());
    }
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0).map_err(|error| {
        let at = format!("line {}, column {}", error.line(), error.column());
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Problem::bad_request(format!("the body is not JSON: {message} at {at}"))
    })
}

/// Returns the nesting depth of arrays and objects in a JSON text, without building a value.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in bytes {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_text = false,
            (true, _) => {}
            (false, b'"') => in_text = true,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;

    #[test]
    fn depth_counts_brackets_outside_texts_only() {
        assert_eq!(depth(br#"{"a":["[[[[\"[[",{"b":1}]}"#), 3);
        assert_eq!(depth(b"]]]][["), 2);
    }

    #[test]
    fn ten_thousand_nested_arrays_are_refused_before_parsing() {
        let body = "[".repeat(10_000);
        assert_eq!(parse(body.as_bytes()).unwrap_err().code(), Code::TooDeep);
    }

    #[test]
    fn duplicate_keys_and_trailing_bytes_are_refused() {
        for bad in [r#"{"a":1,"a":2}"#, r#"{"a":1} x"#, "", "{", "nul"] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code(), Code::BadRequest, "{bad}");
        }
        let detail = parse(br#"{"a":1,"a":2}"#).unwrap_err().finish("", "").detail;
        assert!(detail.contains("`a` is given twice"), "{detail}");
    }
}
