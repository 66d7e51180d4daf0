//! Tests that every write operation of the OpenAPI document for users has an example, and that a server accepts it.
//! `lab/contract.sh` validates the examples against their schemas.

use serde_json::Value;

use crate::support::{self, secured};

/// Operations that are not accepted by a server without agents and TLS, and for a token that does not exist, with the code of
/// the problem that each must return: the body was decoded.
const REFUSED: [(&str, &str); 5] = [
    ("moveAddress", "NotFound"),
    ("fixNode", "NodeSilent"),
    ("createSession", "Unauthenticated"),
    ("createJoinToken", "Conflict"),
    ("rotateAuthority", "Conflict"),
];

/// Order of the writes: an object after those that it names, and removals last.
const ORDER: [&str; 15] = [
    "createNode",
    "createWorkloadNetwork",
    "createWorkload",
    "createAddressPool",
    "createBfdProfile",
    "createBgpPeer",
    "createAdvertisement",
    "createDnsZone",
    "createService",
    "createEndpointSet",
    "createCertificate",
    "createGateway",
    "createHttpRoute",
    "createTlsRoute",
    "createNetworkPolicy",
];

struct Operation {
    id: String,
    method: String,
    path: String,
    example: Value,
}

/// Returns the operations with a request body in an OpenAPI document, each of which must have an example.
fn operations(document: &str) -> Vec<Operation> {
    let document: Value = serde_json::from_str(document).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let Some(content) = operation.pointer("/requestBody/content") else { continue };
            for (form, of_form) in content.as_object().unwrap() {
                assert!(!of_form["example"].is_null(), "{id} has no example in {form}");
            }
            let example = content["application/json"]["example"].clone();
            operations.push(Operation { id, method: method.to_uppercase(), path: path.clone(), example });
        }
    }
    let place = |id: &str| match ORDER.iter().position(|one| *one == id) {
        Some(place) => place,
        None if id == "deleteObjects" => ORDER.len() + 1,
        None => ORDER.len(),
    };
    operations.sort_by_key(|operation| place(&operation.id));
    operations
}

/// Returns the path of a request for an operation: that of the object in its example, or of the object that was
/// created from the example of the same kind.
fn path(operation: &Operation, all: &[Operation]) -> String {
    let kind = operation.id.trim_start_matches(|letter: char| letter.is_lowercase());
    let created = all.iter().find(|one| one.id == format!("create{kind}"));
    let metadata = created.map_or(&Value::Null, |created| &created.example["metadata"]);
    let name = metadata["name"].as_str().unwrap_or(if operation.id == "moveAddress" {
        "198.51.100.9"
    } else {
        "deployer"
    });
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    operation
        .path
        .replace("{namespace}", namespace)
        .replace("{name}", name)
        .replace("{node}", "node-1")
        .replace("{server}", "node-1")
        .replace("{gateway}", "node-1")
}

#[tokio::test]
async fn every_write_has_an_example_that_a_server_accepts() {
    let secured = secured::start().await;
    let operations = operations(&api::document());
    let mut faults = Vec::new();
    assert!(operations.len() > 30, "{}", operations.len());
    for operation in &operations {
        let Operation { id, method, example, .. } = operation;
        let path = path(operation, &operations);
        let has_dry_run = id.starts_with("create") && ORDER.contains(&id.as_str());
        for query in ["?dryRun=true", ""].into_iter().skip(usize::from(!has_dry_run)) {
            let url = format!("{path}{query}");
            let (status, answer) = secured.call(&secured.admin, method, &url, Some(example.clone())).await;
            let expected = REFUSED.iter().find(|(one, _)| one == id).map(|(_, code)| *code);
            let is_expected = match expected {
                Some(code) => answer["code"] == code,
                None => (200..300).contains(&status),
            };
            if !is_expected {
                faults.push(format!("{method} {url}: {status} {answer:#}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every write of agents has an example, and a server decodes it. Only the report needs nothing before it.
#[tokio::test]
async fn every_write_of_an_agent_has_an_example_that_a_server_decodes() {
    let server = support::start().await;
    let node = serde_json::json!({"metadata": {"name": "node-1"}, "spec": {}});
    assert_eq!(server.call("POST", "/v1/nodes", Some(node)).await.0, 201);
    let operations = operations(&api::agent_document());
    assert!(operations.len() >= 4, "{}", operations.len());
    for Operation { id, method, path, example } in &operations {
        let path = path.replace("{node}", "node-1").replace("{id}", "1");
        let (status, answer) = server.call(method, &path, Some(example.clone())).await;
        let code = answer["code"].as_str().unwrap_or_default();
        let is_decoded =
            if id == "replaceReport" { status < 300 } else { !["Invalid", "BadRequest"].contains(&code) };
        assert!(is_decoded, "{id}: {status} {answer:#}");
    }
}
