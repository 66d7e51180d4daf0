//! Lying node: with the certificate of one node, every field of the report, and every request of an agent, is
//! false. Other nodes receive the same state, and no object changes but those of the liar.
//!
//! The rows are complete: a field without a row fails the test.

mod report;
mod world;

use serde_json::{Value, json};

use self::world::World;
use crate::support::secured::Who;

/// Returns the names of the properties of a schema in the OpenAPI document for agents.
fn properties(schema: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(&api::agent_document()).unwrap();
    let properties = document["components"]["schemas"][schema]["properties"].as_object();
    properties.unwrap_or_else(|| panic!("{schema} has no properties")).keys().cloned().collect()
}

/// Asserts that the rows of a test have exactly the fields of a schema.
fn assert_complete(schema: &str, rows: impl Iterator<Item = String>) {
    let rows: std::collections::BTreeSet<String> = rows.collect();
    let fields = properties(schema).into_iter().collect();
    assert_eq!(rows, fields, "each field of {schema} needs a row with lies in this test");
}

/// The agent of a node reads no state of another node, answers no query to another node, and cannot resume the
/// feed of its own node with another position so that other nodes notice.
#[tokio::test]
async fn a_lying_node_has_no_other_feed_and_answers_no_other_query() {
    let world = World::new().await;
    let before = world.look().await;
    for node in ["n1", "n2"] {
        let state = world.call("n9", "GET", &format!("/v1/nodes/{node}/state"), None).await;
        assert_eq!(state.0, 403, "{}", state.1);
        for id in [0, 1, u64::MAX] {
            let path = format!("/v1/nodes/{node}/answers/{id}");
            let reply = json!({ "doctor": { "findings": [], "clock": null } });
            let reply = world.call("n9", "PUT", &path, Some(reply)).await;
            assert_eq!(reply.0, 403, "{}", reply.1);
        }
    }
    for resume in ["1-1", "99999999999-1", "0-0", "1795251600-99999999"] {
        let path = format!("/v1/nodes/n9/state?resume={resume}");
        let response = world.secured.send(&Who::Agent("n9"), "GET", &path, None).await;
        assert_eq!(response.status(), 200, "{resume}");
    }
    world.pass_tasks().await;
    world::assert_same("the feed and the queries", &before, &world.look().await);
}
