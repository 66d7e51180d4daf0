//! Markdown sections of API operations in the reference pages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Document, field, paragraphs, text};
use crate::{cell, table};

/// Set of error responses that most operations have in common, each as status and description.
pub(super) type Responses<'a> = BTreeSet<(&'a str, &'a str)>;

/// Minimum percentage of the operations that must share an error response for it to be described only once.
const COMMON_PERCENT: usize = 75;

/// Returns the error responses that at least [`COMMON_PERCENT`] percent of the operations have in common.
pub(super) fn common_responses(document: Document<'_>) -> Responses<'_> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut operations = 0;
    for (_, _, operation) in document.operations() {
        operations += 1;
        for (status, response) in responses(operation) {
            // Successes are described with each operation.
            if status >= "400" {
                *counts.entry((status, text(response, "description"))).or_default() += 1;
            }
        }
    }
    counts
        .into_iter()
        .filter(|(_, count)| count * 100 >= operations * COMMON_PERCENT)
        .map(|(key, _)| key)
        .collect()
}

/// Returns the HTTP status of each error code that an operation can return.
pub(super) fn codes(document: Document<'_>) -> BTreeMap<&str, &str> {
    let mut codes = BTreeMap::new();
    for (_, _, operation) in document.operations() {
        for (status, response) in responses(operation) {
            // Descriptions of errors are a list: "`Code`: Title."
            let words = text(response, "description").split('`').skip(1).step_by(2);
            codes.extend(words.map(|code| (code, status)));
        }
    }
    codes
}

/// Returns the index page of all operations, with the error responses that most of them have in common.
pub(super) fn index(rows: &[[String; 2]], common: &Responses<'_>) -> String {
    let responses: Vec<_> =
        common.iter().map(|(status, description)| [(*status).to_owned(), cell(description)]).collect();
    format!(
        "# REST operations\n\nEvery operation of the control server, generated from its OpenAPI document, which the server \
         itself serves at `/openapi.json` and, to browse, at `/docs`.\n\n{}\n## Common responses\n\nMost operations can also \
         return these responses. [Error codes](../error-codes.md) lists all codes.\n\n{}",
        table(["operation", "method and path"], rows),
        table(["status", "description"], &responses),
    )
}

/// Returns the anchor that MkDocs generates for a heading.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Renders the Markdown section of an operation: permission, parameters, bodies and responses.
pub(super) fn section(
    document: Document<'_>,
    path: &str,
    method: &str,
    operation: &Value,
    common: &Responses<'_>,
) -> String {
    let mut section = format!("\n## {}\n\n`{} {path}`\n", text(operation, "summary"), method.to_uppercase());
    let described = paragraphs(operation);
    if !described.is_empty() {
        section += &format!("\n{described}\n");
    }
    section += &permission(&operation["x-permission"]);
    section += &parameters(document, operation);
    for (media, schema) in bodies(&operation["requestBody"]) {
        section += &format!("\nRequest body (`{media}`): {}\n", field::body(document, schema));
    }
    section + &answers(document, operation, common)
}

fn permission(permission: &Value) -> String {
    let each = if permission["eachObject"] == true { ", for each object" } else { "" };
    let words = match (permission["asks"].as_str(), permission["kind"].as_str(), permission["verb"].as_str())
    {
        (_, Some(kind), Some(verb)) => format!("`{verb}` on `{kind}`{each}"),
        (Some("nothing"), _, _) => "none".to_owned(),
        (Some("identity"), _, _) => "none; the caller must be authenticated".to_owned(),
        (Some("agent"), _, _) => "certificate of the node's agent".to_owned(),
        (Some(_) | None, _, _) => return String::new(),
    };
    format!("\nPermission: {words}.\n")
}

fn parameters(document: Document<'_>, operation: &Value) -> String {
    let mut rows = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let [kind, description] = field::parameter(document, parameter);
        let required = if parameter["required"] == true { "required" } else { "" };
        let place = text(parameter, "in");
        rows.push([
            format!("`{}`", text(parameter, "name")),
            place.to_owned(),
            kind,
            required.to_owned(),
            description,
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(["parameter", "in", "type", "", "description"], &rows))
}

fn answers(document: Document<'_>, operation: &Value, common: &Responses<'_>) -> String {
    let mut rows = Vec::new();
    for (status, response) in responses(operation) {
        let description = text(response, "description");
        if common.contains(&(status, description)) {
            continue;
        }
        // All errors have the same body.
        let body = bodies(response).next().filter(|_| status < "400");
        let body = body.map(|(_, schema)| field::body(document, schema)).unwrap_or_default();
        rows.push([status.to_owned(), body, cell(description)]);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(["status", "body", "description"], &rows))
}

fn responses(operation: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    responses.map(|(status, response)| (status.as_str(), response))
}

/// Returns each media type of a request or response body with its schema. YAML is omitted, because it has the
/// same schema as JSON.
fn bodies(body: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let media = body["content"].as_object().into_iter().flatten();
    media
        .filter(|(media, _)| *media != "application/yaml")
        .map(|(media, content)| (media.as_str(), &content["schema"]))
}
