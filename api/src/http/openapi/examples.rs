//! Examples of request bodies. A test sends each to a server; `lab/contract.sh` validates them against the schemas.

use serde_json::Value;

/// Examples: `objects` and `patches` by kind, `bodies` of other operations by operation id.
const EXAMPLES: &str = include_str!("examples.json");

/// Adds an example to the request body of each operation that has one in [`EXAMPLES`], in all media types.
pub(super) fn add(document: &mut Value) {
    let examples: Value = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let items = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut());
    for operation in operations {
        let example = operation["operationId"].as_str().and_then(|id| of_operation(&examples, id)).cloned();
        let content = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
        if let (Some(example), Some(content)) = (example, content) {
            for form in content.values_mut() {
                form["example"] = example.clone();
            }
        }
    }
}

fn of_operation<'a>(examples: &'a Value, id: &str) -> Option<&'a Value> {
    let of_kind = |prefix: &str, list: &str| examples[list].get(id.strip_prefix(prefix)?);
    examples["bodies"]
        .get(id)
        .or_else(|| of_kind("create", "objects"))
        .or_else(|| of_kind("replace", "objects"))
        .or_else(|| of_kind("patch", "patches"))
}
