//! Discovery documents of the Kubernetes API: version, groups and resources. No I/O.

use serde_json::{Value, json};

use super::catalogue::{Group, Resource, Words};

/// Major version of the Kubernetes API that the server claims. Clients compare it with their own.
const MAJOR: &str = "1";
/// Minor version of the Kubernetes API that the server claims: that of the oldest `kubectl` release in the tests,
/// 1.20.
const MINOR: &str = "20";

/// Returns the response of `GET /version`.
pub(super) fn version() -> Value {
    let own = env!("CARGO_PKG_VERSION");
    json!({
        "major": MAJOR, "minor": MINOR, "gitVersion": format!("v{MAJOR}.{MINOR}.0+tidegate-{own}"), "gitCommit": "",
        "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux",
    })
}

/// Returns the response of `GET /api`: the versions of the core API group.
pub(super) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": Group::Core.versions(), "serverAddressByClientCIDRs": [],
    })
}

/// Returns the response of `GET /apis`: all API groups except the core group.
pub(super) fn groups() -> Value {
    let groups: Vec<_> = Group::NAMED.into_iter().map(group_fields).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns the response of `GET /apis/GROUP`: the versions of this API group.
pub(super) fn group(of: Group) -> Value {
    let mut group = group_fields(of);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn group_fields(group: Group) -> Value {
    let of = |version: &&str| json!({ "groupVersion": group.api_version(version), "version": version });
    let versions: Vec<Value> = group.versions().iter().map(of).collect();
    json!({ "name": group.name(), "versions": versions, "preferredVersion": versions[0] })
}

/// Returns the response of `GET /api/v1`, or of the path of another API group and version: the list of its
/// resources. ReplicationControllers are listed although they cannot be created: `kubectl` then sends the
/// request, and the response explains which Tidegate command to use.
pub(super) fn resources(group: Group, version: &str) -> Value {
    let own = Resource::ALL.into_iter().filter(|resource| resource.group() == group);
    let mut resources: Vec<Value> = own.map(resource).collect();
    if group == Group::Core {
        resources.push(json!({
            "name": "replicationcontrollers", "singularName": "", "namespaced": true,
            "kind": "ReplicationController", "shortNames": ["rc"], "verbs": ["create"],
        }));
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group.api_version(version),
        "resources": resources,
    })
}

fn resource(resource: Resource) -> Value {
    let Words { plural, kind, short, is_in_all } = resource.words();
    let verbs: &[&str] = if resource.is_watchable() { &["get", "list", "watch"] } else { &["get", "list"] };
    let mut json = json!({
        "name": plural, "singularName": "", "namespaced": resource.is_namespaced(), "kind": kind, "verbs": verbs,
        "shortNames": short,
    });
    if is_in_all {
        json["categories"] = json!(["all"]);
    }
    json
}

/// Returns the response of `GET /openapi/v2` in JSON: a document without schemas, so that clients send
/// objects without validating them first.
pub(super) fn document() -> Value {
    json!({ "swagger": "2.0", "info": { "title": "Tidegate", "version": "v1" }, "paths": {} })
}

/// Returns the response of `GET /openapi/v2` in protobuf, the format that `kubectl` requests. Field numbers:
/// `swagger` 1, `info` 2 (with `title` 1 and `version` 2), and `paths` 8.
pub(super) fn document_in_protobuf() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        // A length below 128 is one byte, and all of these are.
        let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        [&[number << 3 | 2, length], bytes].concat()
    };
    let info = [field(1, b"Tidegate"), field(2, b"v1")].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}
