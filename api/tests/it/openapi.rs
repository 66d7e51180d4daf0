//! Tests that the checked-in OpenAPI documents match the code and follow the style rules. `UPDATE_GOLDEN=1`
//! rewrites them.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support;

/// Returns the documents for users and for agents.
fn documents() -> [Value; 2] {
    [api::document(), api::agent_document()].map(|text| serde_json::from_str(&text).unwrap())
}

#[test]
fn the_checked_in_documents_are_those_that_the_code_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi");
    let files = [("tidegate-v1.json", api::document()), ("tidegate-agent-v1.json", api::agent_document())];
    for (name, document) in files {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(folder.join(name), &document).unwrap();
        }
        let golden = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(golden == document, "openapi/{name} differs; run with UPDATE_GOLDEN=1 and read the diff");
    }
}

#[tokio::test]
async fn the_documents_are_served() {
    let server = support::start().await;
    let [users, agents] = documents();
    let paths = [("/openapi.json", &users), ("/v1/openapi.json", &users), ("/openapi-agent.json", &agents)];
    for (path, document) in paths {
        let (status, served) = server.call("GET", path, None).await;
        assert_eq!((status, served == *document), (200, true), "{path}");
    }
}

/// A client that is generated for users has no operation that only an agent can use, nor its schemas.
#[test]
fn operations_of_agents_are_in_a_document_of_their_own() {
    let [users, agents] = documents();
    let asks = |document: &Value| -> std::collections::BTreeSet<String> {
        let items = document["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        operations.map(|operation| operation["x-permission"]["asks"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!asks(&users).contains("agent"), "{:?}", asks(&users));
    assert!(asks(&agents).contains("agent") && !asks(&agents).contains("permission"), "{:?}", asks(&agents));
    let has = |document: &Value, schema: &str| document["components"]["schemas"][schema].is_object();
    assert!(has(&agents, "Report") && !has(&users, "Report"));
    assert!(has(&users, "Service") && !has(&agents, "ServiceList"));
}

/// Validators reject a default value that the type of its own schema excludes.
#[test]
fn a_default_of_another_schema_stands_beside_it() {
    let [users, _] = documents();
    let parameters = users["paths"]["/v1/traffic"]["get"]["parameters"].as_array().unwrap();
    let sort = &parameters.iter().find(|parameter| parameter["name"] == "sortBy").unwrap()["schema"];
    assert_eq!(
        (&sort["default"], &sort["type"], sort.get("allOf")),
        (&"connectionRate".into(), &"string".into(), None)
    );
}

#[test]
fn every_operation_has_an_id_of_its_own_and_every_error_is_a_problem() {
    let documents = documents();
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in documents.iter().flat_map(|document| document["paths"].as_object().unwrap()) {
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
    for document in documents() {
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }
}

/// Words with which no description or summary may begin; the same as for comments (`lab/tests/tidy/prose.rs`).
const BANNED_OPENERS: [&str; 17] = [
    "What", "Who", "Whoever", "Whom", "Whose", "How", "Where", "Whether", "Why", "When", "It", "Its", "That",
    "Those", "They", "Nothing", "Nobody",
];
/// Minimum number of words in a description of the OpenAPI document.
const DESCRIPTION_WORDS_MIN: usize = 4;
/// Maximum number of words in a summary of the OpenAPI document.
const SUMMARY_WORDS_MAX: usize = 8;

#[test]
fn everything_has_a_description_of_its_own() {
    let mut faults = Vec::new();
    for document in documents() {
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            check_description(name, schema, &mut faults);
            check_properties(name, schema, &mut faults);
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                check_operation(&format!("{method} {path}"), operation, &mut faults);
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn check_operation(at: &str, operation: &Value, faults: &mut Vec<String>) {
    let summary = operation["summary"].as_str().unwrap_or_default();
    let words = summary.split_whitespace().count();
    if words == 0 || words > SUMMARY_WORDS_MAX || opens_badly(summary) {
        faults.push(format!("{at}: summary: {summary:?}"));
    }
    check_description(at, operation, faults);
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        check_description(&format!("{at} parameter {}", parameter["name"]), parameter, faults);
    }
    if let Some(body) = operation.get("requestBody") {
        check_description(&format!("{at} body"), body, faults);
    }
    for (status, response) in operation["responses"].as_object().unwrap() {
        let at = format!("{at} response {status}");
        check_description(&at, response, faults);
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            check_description(&format!("{at} header {name}"), header, faults);
        }
    }
}

/// Checks the descriptions of all properties of a schema, including those of nested schemas, variants and items.
fn check_properties(at: &str, schema: &Value, faults: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        check_description(&at, property, faults);
        check_properties(&at, property, faults);
    }
    for list in ["oneOf", "anyOf", "allOf"] {
        for part in schema[list].as_array().into_iter().flatten() {
            check_properties(at, part, faults);
        }
    }
    for part in ["items", "additionalProperties"] {
        if let Some(part) = schema.get(part) {
            check_properties(at, part, faults);
        }
    }
}

fn check_description(at: &str, value: &Value, faults: &mut Vec<String>) {
    let text = value["description"].as_str().unwrap_or_default().trim();
    let has_words = text.split_whitespace().count() >= DESCRIPTION_WORDS_MIN;
    if !has_words || !text.ends_with('.') || opens_badly(text) {
        faults.push(format!("{at}: {text:?}"));
    }
}

fn opens_badly(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    BANNED_OPENERS.contains(&first)
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
