//! Tests that the pages of `docs/reference/` generated from checked-in files or from the crate `model` are
//! current. `UPDATE_GOLDEN=1` rewrites the pages.

use std::{fs, path::Path};

use model::kinds::condition_reason::ConditionReason;
use reference_pages::{
    golden,
    openapi::{self, Document},
    reasons,
    variants::{self, Variant},
};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(Path::new(ROOT).join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Returns the OpenAPI document for users, with the operations and schemas of the one for agents.
fn document() -> Result<Value, String> {
    let parse = |path| serde_json::from_str(&read(path)?).map_err(|error| error.to_string());
    let (mut document, mut agents): (Value, Value) =
        (parse("openapi/tidegate-v1.json")?, parse("openapi/tidegate-agent-v1.json")?);
    for part in ["/paths", "/components/schemas"] {
        if let Some(Value::Object(added)) = agents.pointer_mut(part).map(Value::take)
            && let Some(Value::Object(entries)) = document.pointer_mut(part)
        {
            entries.extend(added);
        }
    }
    if let Some(Value::Array(added)) = agents.get_mut("tags").map(Value::take)
        && let Some(Value::Array(tags)) = document.get_mut("tags")
    {
        tags.extend(added);
    }
    Ok(document)
}

/// Returns the variants of the enum `name` in the source file `path`, with their doc comments.
fn documented(path: &str, name: &str) -> Result<Vec<Variant>, String> {
    variants::of(&read(path)?, name).map_err(|error| format!("{path}: {error}"))
}

#[test]
fn every_field_of_every_kind_has_a_row() -> Result<(), String> {
    golden::check_folder(openapi::KINDS, &openapi::kinds(Document::new(&document()?)))
}

#[test]
fn every_operation_has_a_section() -> Result<(), String> {
    golden::check_folder(openapi::API, &openapi::api(Document::new(&document()?)))
}

#[test]
fn every_error_code_has_a_row() -> Result<(), String> {
    let meanings = documented("api/src/base/error.rs", "Code")?;
    golden::check("error-codes.md", &openapi::error_codes(Document::new(&document()?), &meanings)?)
}

#[test]
fn every_event_reason_has_a_row() -> Result<(), String> {
    let variants = documented("model/src/kinds/event.rs", "EventReason")?;
    golden::check("event-reasons.md", &reasons::events(&variants))
}

#[test]
fn every_condition_reason_has_a_row() -> Result<(), String> {
    let row = |one: &ConditionReason| reasons::Reason {
        name: one.as_str(),
        meaning: one.meaning(),
        remedy: one.remedy(),
    };
    golden::check("condition-reasons.md", &reasons::conditions(ConditionReason::ALL.iter().map(row)))
}
