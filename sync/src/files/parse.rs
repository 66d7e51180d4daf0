//! Parses the text of a file into objects, or into errors with line numbers. Does no I/O.

use model::{
    admission::decode::{Expect, decode},
    kinds::resource::Object,
    primitives::violation::Violation,
};
use serde_json::Value;

/// Maximum number of objects in a file.
const OBJECTS_MAX: usize = 20_000;
/// Maximum number of reported errors per file.
const FAULTS_MAX: usize = 20;

/// Parses the objects of a file.
///
/// # Errors
/// Returns all errors, each with the line of its document.
pub(super) fn objects(is_json: bool, bytes: &[u8]) -> Result<Vec<Object>, Vec<String>> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = lines_before(bytes, error.valid_up_to());
        vec![format!("line {line}: not UTF-8")]
    })?;
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    for (line, document) in documents(is_json, text) {
        match values(is_json, document) {
            Ok(values) => {
                for value in values {
                    read(line, &value, &mut objects, &mut faults);
                }
            }
            Err((at, cause)) => faults.push(format!("line {}: {cause}", line + at.saturating_sub(1))),
        }
        if faults.len() >= FAULTS_MAX {
            break;
        }
        if objects.len() > OBJECTS_MAX {
            faults.push(format!("more than {OBJECTS_MAX} objects; split the file"));
            break;
        }
    }
    if faults.is_empty() { Ok(objects) } else { Err(faults) }
}

fn read(line: usize, value: &Value, objects: &mut Vec<Object>, faults: &mut Vec<String>) {
    match decode(value, &Expect::default()) {
        Ok(object) if object.spec.kind().is_kept_by_server() => {
            faults.push(format!(
                "line {line}: {}: objects of this kind are managed by the server",
                object.key()
            ));
        }
        Ok(object) => objects.push(object),
        Err(violations) => faults.extend(violations.iter().map(|violation| fault(line, value, violation))),
    }
}

fn fault(line: usize, value: &Value, violation: &Violation) -> String {
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
    let hint = violation.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let pointer = if violation.pointer.is_empty() { "the object" } else { &violation.pointer };
    format!(
        "line {line}: {} {}: {pointer} {}{hint}",
        word("/kind"),
        word("/metadata/name"),
        violation.message
    )
}

/// Splits a file into documents, each with the number of its first line.
fn documents(is_json: bool, text: &str) -> Vec<(usize, &str)> {
    if is_json {
        return vec![(1, text)];
    }
    let mut documents = Vec::new();
    let (mut begin, mut begin_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        // A line starting with `---` ends a document in any context (YAML 1.2 §9.2).
        if number > 0
            && line
                .strip_prefix("---")
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        {
            documents.push((begin_line, text.get(begin..at).unwrap_or_default()));
            (begin, begin_line) = (at, number + 1);
        }
        at += line.len();
    }
    documents.push((begin_line, text.get(begin..).unwrap_or_default()));
    documents
}

/// Parses the objects of one document, and expands lists as the control server does. On errors, returns the
/// line and the cause.
fn values(is_json: bool, document: &str) -> Result<Vec<Value>, (usize, String)> {
    let values: Vec<Value> = if is_json {
        let value =
            serde_json::from_str(document).map_err(|error| (error.line(), format!("not JSON: {error}")))?;
        vec![value]
    } else {
        serde_saphyr::from_multiple(document).map_err(|error| {
            let line = error.location().map_or(1, |location| usize::try_from(location.line()).unwrap_or(1));
            (line, format!("not YAML: {}", reason(&error.to_string())))
        })?
    };
    let mut objects = Vec::new();
    for value in values {
        match value {
            Value::Null => {}
            Value::Array(items) => objects.extend(items),
            Value::Object(mut fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
                match fields.remove("items") {
                    Some(Value::Array(items)) => objects.extend(items),
                    Some(_) | None => return Err((1, "a List must have `items`".to_owned())),
                }
            }
            other @ (Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                objects.push(other)
            }
        }
    }
    Ok(objects)
}

/// Returns the first line of the parser's message. The rest is an excerpt of the source with line numbers
/// relative to the document.
fn reason(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    match first.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, words)) => words,
        None => first,
    }
}

fn lines_before(bytes: &[u8], at: usize) -> usize {
    bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_arrays_are_taken_apart() {
        let yaml = "# nothing\n---\nkind: Workload\nmetadata: {name: a}\nspec: {}\n---\nkind: List\nitems:\n- {kind: Workload, metadata: {name: b}, spec: {}}\n";
        let names =
            |objects: Vec<Object>| objects.iter().map(|object| object.key().to_string()).collect::<Vec<_>>();
        assert_eq!(
            names(objects(false, yaml.as_bytes()).unwrap()),
            ["Workload default/a", "Workload default/b"]
        );
        let json = br#"[{"kind": "Workload", "metadata": {"name": "c"}, "spec": {}}]"#;
        assert_eq!(names(objects(true, json).unwrap()), ["Workload default/c"]);
    }

    #[test]
    fn every_fault_names_the_line_where_to_look() {
        let yaml = "kind: Workload\nmetadata: {name: a}\nspec: {}\n---\nkind: Workload\nmetadata: {name: B}\nspec: {}\n---\nkind: Workload\n  x: [\n";
        let faults = objects(false, yaml.as_bytes()).unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("line 4: Workload B: /metadata/name"), "{faults:?}");
        assert!(faults[1].starts_with("line 10: not YAML: mapping values"), "{faults:?}");
        assert!(objects(true, b"{\n\"kind\": ").unwrap_err()[0].starts_with("line 2: not JSON"));
        assert!(objects(false, b"a: b\n\xff").unwrap_err()[0].starts_with("line 2: not UTF-8"));
    }

    #[test]
    fn broken_text_is_an_error_in_words_never_a_panic() {
        let deep = "[".repeat(10_000);
        for bad in ["{", "a: [", "\u{0}", "kind: List", "a: *x", deep.as_str(), "--- 1\n--- 2"] {
            assert!(objects(false, bad.as_bytes()).is_err(), "{bad:.20}");
            assert!(objects(true, bad.as_bytes()).is_err(), "{bad:.20}");
        }
    }
}
