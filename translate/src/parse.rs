//! Parses the objects of a manifest: for `delete -f`, and to name object and file in error messages. The
//! server validates the objects.

use serde_json::Value;

/// Maximum number of objects (documents and list entries) in a manifest; above the server's limit per
/// request.
const OBJECTS_MAX: usize = 20_000;
/// Maximum number of YAML nodes in a manifest, as at the server.
const NODES_MAX: usize = 2_000_000;
/// Maximum total size in bytes of the YAML scalars in a manifest; above the server's limit per request.
const SCALAR_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Language of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// JSON according to RFC 8259.
    Json,
    /// YAML 1.2, possibly with several documents in one file.
    Yaml,
}

impl Language {
    /// Returns the media type for request bodies.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    /// Detects the language of a text: JSON if it is valid JSON or its file name ends with `.json`, so that
    /// an invalid JSON file is rejected as JSON.
    pub fn detect(file_name: &str, bytes: &[u8]) -> Self {
        let opens = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_json = matches!(opens, Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
        if is_json || file_name.ends_with(".json") { Self::Json } else { Self::Yaml }
    }
}

/// Parses the objects of a manifest in order, and expands lists as the control server does.
///
/// # Errors
/// Returns a message if the text is invalid.
pub fn objects(language: Language, bytes: &[u8]) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = match language {
        Language::Json => vec![serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?],
        Language::Yaml => {
            let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! {
                    max_documents: OBJECTS_MAX,
                    max_nodes: NODES_MAX,
                    max_events: 2 * NODES_MAX,
                    max_total_scalar_bytes: SCALAR_BYTES_MAX,
                },
            };
            serde_saphyr::from_multiple_with_options(text, options)
                .map_err(|error| format!("not YAML: {error}"))?
        }
    };
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Array(items) => objects.extend(items),
            Value::Object(mut fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
                match fields.remove("items") {
                    Some(Value::Array(items)) => objects.extend(items),
                    Some(_) | None => return Err("a List must have `items`".to_owned()),
                }
            }
            other @ (Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                objects.push(other)
            }
        }
        if objects.len() > OBJECTS_MAX {
            return Err(format!("more than {OBJECTS_MAX} objects; split the manifest"));
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_seen_in_the_content() {
        assert_eq!(Language::detect("-", b" {\"kind\": \"Service\"}\n"), Language::Json);
        assert_eq!(Language::detect("-", b"{kind: Service}"), Language::Yaml);
        assert_eq!(Language::detect("-", b"kind: Service"), Language::Yaml);
        assert_eq!(Language::detect("x.json", b"{\"kind\": "), Language::Json);
    }

    #[test]
    fn documents_lists_and_arrays_are_taken_apart_in_order() {
        let yaml =
            b"# nothing\n---\nkind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\n- kind: D\n";
        let found = objects(Language::Yaml, yaml).unwrap();
        let kinds: Vec<&str> = found.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["A", "B", "C", "D"]);
        assert_eq!(objects(Language::Json, b"[{\"kind\": \"A\"}]").unwrap().len(), 1);
    }

    #[test]
    fn a_manifest_may_have_as_many_documents_as_the_server_accepts() {
        let yaml = "kind: Service\nmetadata: {name: a}\n---\n".repeat(5000);
        assert_eq!(objects(Language::Yaml, yaml.as_bytes()).unwrap().len(), 5000);
        let yaml = "kind: Service\n---\n".repeat(OBJECTS_MAX + 2);
        assert!(objects(Language::Yaml, yaml.as_bytes()).is_err());
    }

    #[test]
    fn broken_text_is_an_error_in_words_never_a_panic() {
        let deep = "[".repeat(10_000);
        for bad in ["{", "a: [", "\u{0}", "kind: List", "a: *x", deep.as_str()] {
            assert!(objects(Language::Yaml, bad.as_bytes()).is_err(), "{:.20}", bad);
            assert!(objects(Language::Json, bad.as_bytes()).is_err(), "{:.20}", bad);
        }
        assert!(objects(Language::Yaml, b"\xff\xfe").unwrap_err().contains("UTF-8"));
    }
}
