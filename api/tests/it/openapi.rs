//! The checked-in OpenAPI document matches the code. `UPDATE_GOLDEN=1` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::{fs, path::Path};

use serde_json::Value;

fn checked_in() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/tidegate-v1.json")
}

#[test]
fn the_checked_in_document_is_the_one_that_the_code_gives() {
    let document = api::document();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(checked_in(), &document).unwrap();
    }
    let golden = fs::read_to_string(checked_in()).unwrap_or_default();
    assert!(
        golden == document,
        "openapi/tidegate-v1.json differs; run with UPDATE_GOLDEN=1 and read the diff"
    );
}

#[test]
fn every_operation_has_an_id_of_its_own_and_every_error_is_a_problem() {
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no id"));
            assert!(ids.insert(id.to_owned()), "{id} is used twice");
            for (status, response) in operation["responses"].as_object().unwrap() {
                // The HTTP layer sends that one without a body.
                if status.starts_with(['4', '5']) && status != "414" {
                    let content = &response["content"];
                    assert!(
                        content["application/problem+json"].is_object(),
                        "{method} {path} {status}: {content}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_reference_leads_to_a_schema() {
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                references.push(reference.clone());
            }
            fields.values().for_each(|field| collect(field, references));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
