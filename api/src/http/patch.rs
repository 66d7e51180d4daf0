//! JSON merge patch (RFC 7396) on the JSON form of an object that the API returns, with retries after
//! conflicting writes.
//!
//! The patched object is written on condition that the state it was computed from is still current. After a
//! conflicting write the patch is applied to the new state, unless the client sent a precondition. This is safe
//! because a patch contains only the fields that it changes.

use std::sync::Arc;

use http::StatusCode;
use model::{
    admission::{
        admit::{Operation, Request},
        decode::{Expect, decode},
    },
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::violation::{Violation, ViolationCode},
};
use serde_json::Value;

use crate::{
    base::{
        error::{Answer, Code, Problem},
        etag::{self, IfMatch},
    },
    context::server_state::ServerState,
    http::mutation::{self as mutate, WriteOptions},
    security::Caller,
    state::published::Published,
};

/// Maximum number of attempts of a patch if concurrent writes conflict with it.
const ATTEMPTS_MAX: usize = 5;
/// Metadata fields that the server sets. The server removes these fields before it applies a patch, so that only
/// values in the patch itself are validated.
const SERVER_SET: [&str; 7] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "applySet", "applySetLimited"];

/// Applies a merge patch to an object and writes the result. Repeats both after a conflicting write.
pub(crate) async fn patch(
    app: &Arc<ServerState>,
    caller: &Caller,
    key: &ObjectKey,
    changes: &Value,
    demand: Option<&IfMatch>,
    manner: WriteOptions,
) -> Answer {
    let mut attempt = 1;
    loop {
        let replacement = |published: &Published| {
            let current = published.snapshot.get(key).ok_or_else(|| not_found(key))?;
            if let Some(demand) = demand {
                etag::required_revision(demand, current)?;
            }
            let object = patched(current, key, changes)?;
            Ok(Operation::Replace { object, if_revision: Some(current.metadata.revision()) })
        };
        let operation = app.decide(replacement).await?;
        let request = Request { operations: vec![operation], ..Request::default() };
        match mutate::write(app, caller, request, manner).await {
            Ok(written) => return mutate::answer_object(app, manner, StatusCode::OK, &written),
            Err(problem) if problem.code() == Code::PreconditionFailed && may_retry(demand, attempt) => {
                attempt += 1
            }
            Err(problem) => return Err(problem),
        }
    }
}

fn may_retry(demand: Option<&IfMatch>, attempt: usize) -> bool {
    // A client with a precondition wants an error if the state has changed.
    !matches!(demand, Some(IfMatch::Tags(_))) && attempt < ATTEMPTS_MAX
}

fn patched(current: &Object, key: &ObjectKey, changes: &Value) -> Result<Object, Problem> {
    let mut json = current.to_json();
    if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
        for field in SERVER_SET {
            metadata.remove(field);
        }
    }
    if let Some(wanted) = changes.pointer("/spec/type").and_then(Value::as_str) {
        drop_allocated(&mut json, wanted);
    }
    drop_health_check_node_port(&mut json, changes);
    let read_only = read_only_changes(current, changes);
    if !read_only.is_empty() {
        return Err(Problem::invalid(read_only));
    }
    json_patch::merge(&mut json, changes);
    end_password(key, &mut json, changes);
    let expect =
        Expect { kind: Some(key.kind), namespace: key.namespace.clone(), name: Some(key.name.clone()) };
    decode(&json, &expect).map_err(Problem::invalid)
}

/// Returns a violation for each server-set metadata field that the patch would change. `uid` and `resourceVersion`
/// are not checked, because admission compares them as preconditions.
fn read_only_changes(current: &Object, changes: &Value) -> Vec<Violation> {
    let json = current.to_json();
    let is_changed = |field: &&str| {
        let pointer = format!("/metadata/{field}");
        changes
            .pointer(&pointer)
            .is_some_and(|wanted| json.pointer(&pointer).unwrap_or(&Value::Null) != wanted)
    };
    let fields = SERVER_SET
        .iter()
        .filter(|field| !matches!(**field, "uid" | "resourceVersion"))
        .filter(|field| is_changed(field));
    fields
        .map(|field| {
            Violation::new(format!("/metadata/{field}"), ViolationCode::Immutable, "is set by the server")
        })
        .collect()
}

/// Removes the allocated values (addresses, node ports) that a Service of the type `wanted` cannot have. A
/// patch that changes `type` therefore need not remove them itself.
fn drop_allocated(json: &mut Value, wanted: &str) {
    let Some(Value::Object(spec)) = json.get_mut("spec") else { return };
    let (keeps_addresses, keeps_node_ports) = match wanted {
        "ExternalName" => (false, false),
        "ClusterIP" => (true, false),
        _ => return,
    };
    if !keeps_addresses {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter(|_| !keeps_node_ports) {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

/// Replaces `null` for the password of a BgpPeer by an empty password, which clears it. Without this, removing the
/// field would keep the current password.
fn end_password(key: &ObjectKey, json: &mut Value, changes: &Value) {
    let is_ended = changes.pointer("/spec/password").is_some_and(Value::is_null);
    if let Some(Value::Object(spec)) = json.get_mut("spec").filter(|_| is_ended && key.kind == Kind::BgpPeer)
    {
        spec.insert("password".to_owned(), Value::from(""));
    }
}

/// Removes the health check node port if the patch `changes` sets a `type` other than `LoadBalancer`, or an
/// `externalTrafficPolicy` other than `Local`: only Services with both have such a port.
fn drop_health_check_node_port(json: &mut Value, changes: &Value) {
    let ends = |pointer: &str, needed: &str| changes.pointer(pointer).is_some_and(|wanted| wanted != needed);
    let is_over = ends("/spec/type", "LoadBalancer") || ends("/spec/externalTrafficPolicy", "Local");
    if let Some(Value::Object(spec)) = json.get_mut("spec").filter(|_| is_over) {
        spec.remove("healthCheckNodePort");
    }
}

/// Creates the problem response for a patch of an object that does not exist.
pub(crate) fn not_found(key: &ObjectKey) -> Problem {
    Problem::new(Code::NotFound, format!("there is no {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_of_what_only_the_server_sets_is_refused_unless_it_is_so_already() {
        let service = json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        let mut object = decode(&service, &Expect::default()).unwrap();
        object.metadata.generation = Some(3);
        let patch = |metadata: Value| patched(&object, &object.key(), &json!({ "metadata": metadata }));
        assert!(patch(json!({ "generation": 3, "labels": { "a": "b" } })).is_ok());
        for refused in
            [json!({ "generation": 4 }), json!({ "generation": null }), json!({ "selfLink": "/x" })]
        {
            assert!(patch(refused.clone()).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_patch_of_the_type_alone_leaves_behind_what_the_type_has_not() {
        let service = json!({
            "kind": "Service", "metadata": { "name": "web" },
            "spec": { "type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
                      "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                      "ports": [{ "port": 80, "nodePort": 30080 }] },
        });
        let object = decode(&service, &Expect::default()).unwrap();
        let patched = |changes: Value| {
            let object = patched(&object, &object.key(), &changes).unwrap();
            object.to_json()["spec"].clone()
        };
        let inside = patched(json!({ "spec": { "type": "ClusterIP" } }));
        assert_eq!(
            (&inside["clusterIP"], &inside["ports"][0]["nodePort"]),
            (&json!("10.96.0.9"), &Value::Null)
        );
        let alias = patched(json!({ "spec": { "type": "ExternalName", "externalName": "example.com" } }));
        assert_eq!((&alias["clusterIP"], &alias["clusterIPs"]), (&Value::Null, &Value::Null));
        let same = patched(json!({ "spec": { "type": "LoadBalancer" } }));
        assert_eq!(same["ports"][0]["nodePort"], 30080);
        let asked = json!({ "spec": { "type": "ClusterIP", "ports": [{ "port": 80, "nodePort": 30081 }] } });
        assert!(super::patched(&object, &object.key(), &asked).is_err());
    }
}
