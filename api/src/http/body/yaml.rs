//! Parser of YAML request bodies with one or several documents. The expansion of aliases is limited.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Options};

use super::{APPLY_BYTES_MAX, DEPTH_MAX, DOCUMENTS_MAX, strict::Strict, too_deep};
use crate::base::error::Problem;

/// Maximum number of aliases (`*name`) in one body. Manifests written by hand have few.
const ALIASES_MAX: usize = 100;
/// Maximum total number of parser events that the aliases of one body may repeat. With this limit, parsing a
/// small body takes less than a second of CPU time.
const REPLAYED_EVENTS_MAX: usize = 50_000;
/// Maximum number of values in one body, including those repeated by aliases. An `apply` body of the maximum size
/// has fewer.
const NODES_MAX: usize = 2_000_000;

/// Parses all documents of a YAML text.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Value>, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    if flow_depth_reaches(text, DEPTH_MAX + 1) {
        return Err(too_deep());
    }
    let parsed = serde_saphyr::from_multiple_with_options::<Strict>(text, options());
    parsed.map(|values| values.into_iter().map(|strict| strict.0).collect()).map_err(|error| refuse(&error))
}

fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: DEPTH_MAX,
        max_documents: DOCUMENTS_MAX,
        max_aliases: ALIASES_MAX,
        max_anchors: ALIASES_MAX,
        max_nodes: NODES_MAX,
        max_events: 2 * NODES_MAX,
        max_total_scalar_bytes: APPLY_BYTES_MAX,
    };
    serde_saphyr::options! {
        budget: budget,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_EVENTS_MAX },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // `yes`, `no`, `on` and `off` are strings, as in YAML 1.2.
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    }
}

fn refuse(error: &Error) -> Problem {
    let message = error.to_string();
    if message.contains("depth") {
        return too_deep();
    }
    if message.contains("alias") || message.contains("anchor") {
        let detail = "the aliases of the body expand to more values than this API accepts";
        return Problem::bad_request(detail).hint("write the repeated parts out, or send several bodies");
    }
    Problem::bad_request(format!("the body is not valid YAML for this API: {message}"))
}

/// Returns true if at least `limit` opening brackets (`[` or `{`) follow each other, with at most white space
/// between them. Cheap check for excessive nesting before the text is parsed.
fn flow_depth_reaches(text: &str, limit: usize) -> bool {
    let mut run = 0;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => run += 1,
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => run = 0,
        }
        if run >= limit {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;

    #[test]
    fn documents_become_the_values_that_json_would_give() {
        let text = "kind: Service\nspec:\n  ports: [{port: 80}]\n  headless: yes\n  id: \"7\"\n---\na: [1, -2, 1.5, true, null, ~]\n";
        let values = parse(text.as_bytes()).unwrap();
        let expected = serde_json::json!([
            {"kind": "Service", "spec": {"ports": [{"port": 80}], "headless": "yes", "id": "7"}},
            {"a": [1, -2, 1.5, true, null, null]},
        ]);
        assert_eq!(Value::Array(values), expected);
    }

    #[test]
    fn alias_bombs_deep_nesting_and_duplicates_are_refused() {
        let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (name, last) in
            ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        {
            bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{last}"); 10].join(",")));
        }
        assert_eq!(parse(bomb.as_bytes()).unwrap_err().code(), Code::BadRequest);
        assert_eq!(parse("[".repeat(10_000).as_bytes()).unwrap_err().code(), Code::TooDeep);
        let block: String = (0..64).map(|at| format!("{}a:\n", " ".repeat(at))).collect();
        assert_eq!(parse(block.as_bytes()).unwrap_err().code(), Code::TooDeep);
        assert_eq!(parse(b"a: 1\na: 2\n").unwrap_err().code(), Code::BadRequest);
    }
}
