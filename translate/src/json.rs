//! Lenient access to JSON: values that are absent or have the wrong type count as empty, so that no input
//! causes an error.

use serde_json::Value;

/// Returns the text at a JSON pointer; numbers and booleans are converted, everything else is empty.
#[must_use]
pub fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).map(scalar).unwrap_or_default()
}

/// Converts a string, number or boolean to text; everything else is empty.
#[must_use]
pub fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// Returns the items of the array at a JSON pointer; empty if there is no array.
#[must_use]
pub fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns keys and values of the object at a JSON pointer, in key order; empty if there is no object.
pub fn entries<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let fields = value.pointer(pointer).and_then(Value::as_object);
    fields.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// Removes line breaks and characters that control the display, which could manipulate a terminal.
pub use model::primitives::text::one_line as clean;

/// Formats a JSON pointer as a field path: `spec.ports[0].port`, `metadata.labels["example.org/tier"]`.
#[must_use]
pub fn field_path(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let is_index = !token.is_empty() && token.bytes().all(|c| c.is_ascii_digit());
        let is_plain =
            !token.is_empty() && token.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-');
        match (is_index, is_plain) {
            (true, _) => path.push_str(&format!("[{token}]")),
            (false, true) if path.is_empty() => path.push_str(&token),
            (false, true) => path.push_str(&format!(".{token}")),
            (false, false) => path.push_str(&format!("[{token:?}]")),
        }
    }
    if path.is_empty() { "the whole input".to_owned() } else { path }
}

/// Returns the display name of an object, such as `service/web`.
#[must_use]
pub fn object_name(object: &Value) -> String {
    let kind = text(object, "/kind").to_ascii_lowercase();
    clean(&format!("{kind}/{}", text(object, "/metadata/name")))
}
