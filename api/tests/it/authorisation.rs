//! Tests which roles are permitted each operation of the OpenAPI document, on namespaces and nodes that the
//! role covers and on others. `UPDATE_GOLDEN=1` rewrites the table of decisions.
//!
//! Only the permission of the route is tested: bodies are empty, so that no request changes anything. Routes that
//! check each object are tested with real objects in `authz.rs`.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::support::secured::{self, Secured, Who};

/// Returns the path of the golden file with the permission of every operation and the decision for every role.
fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/authorisation.txt")
}

/// Returns the OpenAPI documents for users and for agents.
fn documents() -> [Value; 2] {
    [api::document(), api::agent_document()].map(|text| serde_json::from_str(&text).unwrap())
}

/// Returns method, path and `x-permission` of every operation in an OpenAPI document.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation["x-permission"].clone()));
        }
    }
    operations
}

/// Replaces the parameters of a path. If `is_own`, inserts the namespace `team-a` and the node `n1`, which
/// the tested roles cover; otherwise `team-b` and `n2`, which they do not cover.
fn fill(path: &str, is_own: bool) -> String {
    let (namespace, node) = if is_own { ("team-a", "n1") } else { ("team-b", "n2") };
    let path = path.replace("{namespace}", namespace).replace("{node}", node);
    let name = if path.starts_with("/v1/nodes/") { node } else { "x" };
    let path = path.replace("{name}", name).replace("{revision}", "1").replace("{service}", "x");
    let path =
        path.replace("{id}", "1").replace("{plan}", "p").replace("{server}", "x").replace("{gateway}", "x");
    assert!(!path.contains('{'), "{path} has a parameter that this test does not know");
    path
}

async fn people(secured: &Secured) -> Vec<(&'static str, Who)> {
    let own = json!(["team-a"]);
    let limited = json!({ "role": "operator", "namespaces": own });
    vec![
        ("viewer", secured.token("v", json!({ "role": "viewer" })).await),
        ("operator", secured.token("o", json!({ "role": "operator" })).await),
        ("admin", secured.admin.clone()),
        ("operator of team-a", secured.token("t", limited).await),
        ("agent of n1", Who::Agent("n1")),
        ("nobody", Who::Nobody),
    ]
}

/// Sends a request and returns the decision about the route's permission: `yes`, `no` (403) or `who?` (401).
async fn ask(secured: &Secured, who: &Who, method: &str, path: &str) -> &'static str {
    let response = secured.send(who, method, path, None).await;
    match response.status().as_u16() {
        401 => {
            assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"tidegate\"", "{path}");
            "who?"
        }
        403 => "no",
        _ => "yes",
    }
}

#[tokio::test]
async fn f008_every_operation_of_the_document_lets_through_whom_the_table_says() {
    let secured = secured::start().await;
    for (node, address) in [("n1", "192.0.2.1"), ("n2", "192.0.2.2")] {
        let node = json!({ "metadata": { "name": node }, "spec": { "addresses": [address] } });
        secured.admin("POST", "/v1/nodes", Some(node)).await;
    }
    let people = people(&secured).await;
    let operations: Vec<_> = documents().iter().flat_map(operations).collect();
    let mut table = String::from(
        "# own / other: namespace team-a / team-b, node n1 / n2; one word where the path names neither\n",
    );
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut asked = 0;
    for (method, path, permission) in &operations {
        let asks = permission["asks"].as_str().unwrap_or_else(|| panic!("{method} {path} declares nothing"));
        let _ = write!(table, "{method} {path}\n   ");
        for (name, who) in &people {
            let (own, other) = (fill(path, true), fill(path, false));
            let first = ask(&secured, who, method, &own).await;
            let second = if own == other { first } else { ask(&secured, who, method, &other).await };
            asked += if own == other { 1 } else { 2 };
            for found in [first, second] {
                *counts.entry(found).or_default() += 1;
                // Invariants independent of the table.
                match *name {
                    "nobody" => assert_eq!(found == "yes", asks == "nothing", "{method} {path}"),
                    "admin" => assert_eq!(found == "yes", asks != "agent", "{method} {path}"),
                    _ => assert_ne!(found, "who?", "{method} {path}: {name}"),
                }
            }
            let said = if own == other { first.to_owned() } else { format!("{first}/{second}") };
            let _ = write!(table, " {name}: {said};");
        }
        table.push('\n');
    }
    println!("{} operations, {} people, {asked} requests: {counts:?}", operations.len(), people.len());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden(), &table).unwrap();
    }
    let expected = fs::read_to_string(golden()).unwrap_or_default();
    let differs = expected.lines().zip(table.lines()).find(|(a, b)| a != b);
    assert!(expected == table, "the table differs; run with UPDATE_GOLDEN=1 and read the diff: {differs:?}");
}

#[tokio::test]
async fn an_operation_says_in_the_document_how_one_proves_who_one_is() {
    let documents = documents();
    let operations = documents
        .iter()
        .flat_map(|document| operations(document).into_iter().map(move |operation| (document, operation)));
    for (document, (method, path, permission)) in operations {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let is_open = permission["asks"] == "nothing";
        let schemes = operation["security"].as_array().map_or(0, Vec::len);
        // An empty list states that no authentication is needed.
        assert!(operation["security"].is_array(), "{method} {path}");
        assert_eq!(schemes == 0, is_open, "{method} {path}: {permission}");
        assert!(is_open || operation["responses"]["401"].is_object(), "{method} {path}");
        for scheme in operation["security"].as_array().into_iter().flatten() {
            let name = scheme.as_object().unwrap().keys().next().unwrap();
            assert!(document["components"]["securitySchemes"][name].is_object(), "{name}");
        }
    }
}
