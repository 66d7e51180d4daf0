//! Decoding of request bodies into valid objects: all violations at once, each with its JSON pointer.
//!
//! serde stops at the first error. The decoder removes the offending value and continues, so that one response
//! lists all violations; pointers refer to the input as it was sent.

mod error;
mod nearest;
mod reader;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use self::{nearest::nearest, reader::Reader};
use crate::{
    admission::validate::validate,
    kinds::{
        metadata::{Metadata, pointer},
        resource::{API_VERSION, Kind, Object, Spec},
    },
    primitives::{
        name::{Name, Namespace},
        violation::{Violation, ViolationCode},
    },
};

/// Maximum number of structural violations in one response. Decoding stops there, because each violation requires
/// another decoding attempt.
pub const VIOLATIONS_MAX: usize = 50;

/// Namespace of an object whose metadata names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Names of the top-level fields of every object.
const ENVELOPE: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Kubernetes kinds that run processes, such as Deployment. Tidegate does not run processes, so the error for
/// these kinds includes a hint.
const RUNNERS: [&str; 8] = [
    "Deployment",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Pod",
    "Job",
    "CronJob",
];

/// Identity that a decoded object must have, as given by the request path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expect {
    /// Kind in the request path. If present, `kind` and `apiVersion` may be absent from the body.
    pub kind: Option<Kind>,
    /// Namespace in the request path, if any.
    pub namespace: Option<Namespace>,
    /// Object name in the request path, if any.
    pub name: Option<Name>,
}

/// Decodes one object. A client may send back a response unchanged: `status` and the server-managed fields of
/// `metadata` are ignored, except `uid` and `resourceVersion`, which are compared with the stored object
/// during admission.
///
/// # Errors
/// Returns all violations that can be found without other objects.
pub fn decode(value: &Value, expect: &Expect) -> Result<Object, Vec<Violation>> {
    let mut violations = Vec::new();
    let object = decode_fields(value, expect, &mut violations);
    if let Some(object) = &object {
        merge_rule_violations(object, &mut violations);
    }
    object.filter(|_| violations.is_empty()).ok_or(violations)
}

/// Decodes an object that a control server has sent. The rules for writes do not apply, so objects that only the server
/// writes, such as an Address, are decoded too. `selfLink` is left out, because it follows from the key and takes memory for
/// each object.
///
/// # Errors
/// Returns the fields that cannot be decoded.
pub fn decode_received(value: &Value) -> Result<Object, Vec<Violation>> {
    let mut violations = Vec::new();
    let object = decode_fields(value, &Expect::default(), &mut violations).map(|mut object| {
        object.metadata.self_link = None;
        object
    });
    object.filter(|_| violations.is_empty()).ok_or(violations)
}

/// Decodes the fields of an object. Returns `None` if its kind, metadata or spec cannot be decoded.
fn decode_fields(value: &Value, expect: &Expect, violations: &mut Vec<Violation>) -> Option<Object> {
    let Value::Object(fields) = value else {
        violations.push(Violation::new("", ViolationCode::Invalid, "must be a JSON object"));
        return None;
    };
    check_envelope(fields, violations);
    let kind = decode_kind(fields, expect, violations);
    let metadata = decode_metadata(fields, kind, expect, violations);
    let spec = kind.and_then(|kind| decode_spec(kind, fields.get("spec"), violations));
    Some(Object { metadata: metadata?, spec: spec? })
}

/// Adds the violations that [`validate`] finds in a decoded object, except those at a field that could not be
/// decoded, or above or below such a field.
fn merge_rule_violations(object: &Object, violations: &mut Vec<Violation>) {
    let unread: Vec<String> = violations.iter().map(|violation| violation.pointer.clone()).collect();
    let related = |a: &str, b: &str| a.starts_with(b) || b.starts_with(a);
    let found = validate(object);
    violations.extend(found.into_iter().filter(|new| !unread.iter().any(|old| related(old, &new.pointer))));
}

fn check_envelope(fields: &Map<String, Value>, violations: &mut Vec<Violation>) {
    for key in fields.keys() {
        if !ENVELOPE.contains(&key.as_str()) {
            let hint = match nearest(key, ENVELOPE.into_iter()) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("known: {}; the desired state belongs into `spec`", ENVELOPE.join(", ")),
            };
            let unknown =
                Violation::new(pointer("", key), ViolationCode::UnknownField, "is not a field here");
            violations.push(unknown.hint(hint));
        }
    }
    match fields.get("apiVersion") {
        None => {}
        Some(Value::String(version)) if version == API_VERSION => {}
        Some(other) => violations.push(Violation::new(
            "/apiVersion",
            ViolationCode::Invalid,
            format!("must be `{API_VERSION}`, not {other}"),
        )),
    }
}

fn decode_kind(
    fields: &Map<String, Value>,
    expect: &Expect,
    violations: &mut Vec<Violation>,
) -> Option<Kind> {
    let known = Kind::ALL.map(Kind::as_str).join(", ");
    let fail = |violations: &mut Vec<Violation>, code, message: String| {
        violations.push(Violation::new("/kind", code, message));
        None
    };
    match (fields.get("kind"), expect.kind) {
        (None, Some(kind)) => Some(kind),
        (None, None) => fail(violations, ViolationCode::Required, format!("must be one of {known}")),
        (Some(value), expected) => match (value.as_str().and_then(Kind::parse), expected) {
            (Some(kind), None) => Some(kind),
            (Some(kind), Some(expected)) if kind == expected => Some(kind),
            (_, Some(expected)) => {
                fail(violations, ViolationCode::Invalid, format!("must be `{expected}` here, not {value}"))
            }
            (None, None) => {
                let near =
                    value.as_str().and_then(|word| nearest(word, Kind::ALL.into_iter().map(Kind::as_str)));
                let hint = match (value.as_str().filter(|word| RUNNERS.contains(word)), near) {
                    (Some(word), _) => format!(
                        "Tidegate schedules and runs nothing, so there is no {word}: run it elsewhere, and declare its addresses \
                         as Workloads or an EndpointSet, or let `tidegate-sync` do so"
                    ),
                    (None, Some(word)) => format!("did you mean `{word}`?"),
                    (None, None) => "Tidegate does not schedule or run workloads; use \
                                     `tidegate import` for objects of other systems"
                        .to_owned(),
                };
                let message = format!("must be one of {known}, not {value}");
                violations.push(Violation::new("/kind", ViolationCode::Invalid, message).hint(hint));
                None
            }
        },
    }
}

fn decode_metadata(
    fields: &Map<String, Value>,
    kind: Option<Kind>,
    expect: &Expect,
    violations: &mut Vec<Violation>,
) -> Option<Metadata> {
    let mut value = fields.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let (Value::Object(fields), Some(name)) = (&mut value, &expect.name) {
        fields.entry("name").or_insert_with(|| Value::String(name.to_string()));
    }
    let mut metadata: Metadata = decode_part(value, "/metadata", violations)?;
    if let Some(name) = expect.name.as_ref().filter(|name| **name != metadata.name) {
        let message = format!("must be `{name}` as in the path, not `{}`", metadata.name);
        violations.push(Violation::new("/metadata/name", ViolationCode::Immutable, message));
    }
    settle_namespace(&mut metadata, kind, expect, violations);
    if metadata.resource_version.as_deref().is_some_and(|text| text.parse::<u64>().is_err()) {
        let message = "must be a resource version that this API has given out";
        violations.push(Violation::new("/metadata/resourceVersion", ViolationCode::Invalid, message));
    }
    Some(metadata)
}

fn settle_namespace(
    metadata: &mut Metadata,
    kind: Option<Kind>,
    expect: &Expect,
    violations: &mut Vec<Violation>,
) {
    let mut fail = |message: String| {
        violations.push(Violation::new("/metadata/namespace", ViolationCode::Invalid, message));
    };
    let Some(kind) = kind else { return };
    match (kind.is_namespaced(), &metadata.namespace, &expect.namespace) {
        (false, None, _) => {}
        (false, Some(_), _) => fail(format!("must be left out: a {kind} is not in a namespace")),
        (true, Some(given), Some(expected)) if given != expected => {
            fail(format!("must be `{expected}` as in the path, not `{given}`"));
        }
        (true, Some(_), _) => {}
        (true, None, Some(expected)) => metadata.namespace = Some(expected.clone()),
        (true, None, None) => {
            let default = Namespace::parse(DEFAULT_NAMESPACE).expect("the default namespace is a label");
            metadata.namespace = Some(default);
        }
    }
}

fn decode_spec(kind: Kind, value: Option<&Value>, violations: &mut Vec<Violation>) -> Option<Spec> {
    let Some(value) = value.cloned() else {
        violations.push(Violation::new("/spec", ViolationCode::Required, "must be present"));
        return None;
    };
    match kind {
        Kind::Node => decode_part(value, "/spec", violations).map(|spec| Spec::Node(Box::new(spec))),
        Kind::AddressPool => {
            decode_part(value, "/spec", violations).map(|spec| Spec::AddressPool(Box::new(spec)))
        }
        Kind::BfdProfile => decode_part(value, "/spec", violations).map(Spec::BfdProfile),
        Kind::BgpPeer => decode_part(value, "/spec", violations).map(|spec| Spec::BgpPeer(Box::new(spec))),
        Kind::Advertisement => {
            decode_part(value, "/spec", violations).map(|spec| Spec::Advertisement(Box::new(spec)))
        }
        Kind::DnsZone => decode_part(value, "/spec", violations).map(|spec| Spec::DnsZone(Box::new(spec))),
        Kind::Certificate => {
            decode_part(value, "/spec", violations).map(|spec| Spec::Certificate(Box::new(spec)))
        }
        Kind::Gateway => decode_part(value, "/spec", violations).map(Spec::Gateway),
        Kind::HttpRoute => decode_part(value, "/spec", violations).map(Spec::HttpRoute),
        Kind::TlsRoute => decode_part(value, "/spec", violations).map(Spec::TlsRoute),
        Kind::WorkloadNetwork => {
            decode_part(value, "/spec", violations).map(|spec| Spec::WorkloadNetwork(Box::new(spec)))
        }
        Kind::NetworkPolicy => {
            decode_part(value, "/spec", violations).map(|spec| Spec::NetworkPolicy(Box::new(spec)))
        }
        Kind::Address => decode_part(value, "/spec", violations).map(|spec| Spec::Address(Box::new(spec))),
        Kind::EndpointHealth => decode_part(value, "/spec", violations).map(Spec::EndpointHealth),
        Kind::Block => decode_part(value, "/spec", violations).map(Spec::Block),
        Kind::Attachment => {
            decode_part(value, "/spec", violations).map(|spec| Spec::Attachment(Box::new(spec)))
        }
        Kind::Workload => decode_part(value, "/spec", violations).map(Spec::Workload),
        Kind::Service => decode_part(value, "/spec", violations).map(|spec| Spec::Service(Box::new(spec))),
        Kind::EndpointSet => decode_part(value, "/spec", violations).map(Spec::EndpointSet),
    }
}

/// Decodes `value`, which the body contains at the JSON pointer `at`, to a typed value. A field that cannot
/// be decoded is reported in `violations` and removed, and decoding is repeated without it. Returns `None` if
/// the error cannot be removed or there are too many violations.
pub fn decode_part<T: DeserializeOwned>(
    mut value: Value,
    at: &str,
    violations: &mut Vec<Violation>,
) -> Option<T> {
    let mut removed = RemovedElements::default();
    loop {
        // The value is kept for the next attempt: inputs are bounded and almost always valid at once.
        let located = match serde_path_to_error::deserialize::<_, T>(Reader(&value)) {
            Ok(part) => return Some(part),
            Err(located) => located,
        };
        let path: Vec<PathStep> = located.path().iter().filter_map(PathStep::of).collect();
        let error = located.into_inner();
        let steps = error.locate(&path);
        let violation = error.violation(&removed.original_pointer(at, &steps));
        // A required field that was removed as invalid is not reported as missing too.
        if !violations.iter().any(|earlier| earlier.pointer == violation.pointer) {
            violations.push(violation);
        }
        let offender = if error.is_missing() { &path } else { &steps };
        if violations.len() >= VIOLATIONS_MAX || !removed.remove(&mut value, offender) {
            return None;
        }
    }
}

/// Field or array index in a path into a JSON value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathStep {
    Field(String),
    Index(usize),
}

impl PathStep {
    fn of(segment: &Segment) -> Option<Self> {
        match segment {
            Segment::Map { key } => Some(Self::Field(key.clone())),
            Segment::Seq { index } => Some(Self::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        }
    }
}

/// Original indices of the array elements removed so far, by path of the array. Used to compute the original
/// index of a later element.
#[derive(Default)]
struct RemovedElements(BTreeMap<Vec<PathStep>, BTreeSet<usize>>);

impl RemovedElements {
    /// Removes the value at a path; returns false if no value exists there.
    fn remove(&mut self, value: &mut Value, steps: &[PathStep]) -> bool {
        let Some((last, parents)) = steps.split_last() else { return false };
        let original = self.original(parents);
        let mut parent = value;
        for step in parents {
            let next = match step {
                PathStep::Field(name) => parent.get_mut(name),
                PathStep::Index(index) => parent.get_mut(index),
            };
            let Some(next) = next else { return false };
            parent = next;
        }
        match (last, parent) {
            (PathStep::Field(name), Value::Object(fields)) => fields.remove(name).is_some(),
            (PathStep::Index(index), Value::Array(elements)) if *index < elements.len() => {
                elements.remove(*index);
                let removed = self.0.entry(original).or_default();
                let sent_index = nth_absent(removed, *index);
                removed.insert(sent_index)
            }
            (PathStep::Field(_) | PathStep::Index(_), _) => false,
        }
    }

    fn original(&self, steps: &[PathStep]) -> Vec<PathStep> {
        let mut original: Vec<PathStep> = Vec::with_capacity(steps.len());
        for step in steps {
            let step = match step {
                PathStep::Field(name) => PathStep::Field(name.clone()),
                PathStep::Index(index) => PathStep::Index(
                    self.0.get(&original).map_or(*index, |removed| nth_absent(removed, *index)),
                ),
            };
            original.push(step);
        }
        original
    }

    fn original_pointer(&self, at: &str, steps: &[PathStep]) -> String {
        self.original(steps).iter().fold(at.to_owned(), |at, step| match step {
            PathStep::Field(name) => pointer(&at, name),
            PathStep::Index(index) => pointer(&at, &index.to_string()),
        })
    }
}

/// Returns the `n`th number (from 0) that is not in the set.
fn nth_absent(set: &BTreeSet<usize>, n: usize) -> usize {
    set.iter().fold(n, |candidate, &taken| if taken <= candidate { candidate + 1 } else { candidate })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(value: Value) -> Vec<(String, ViolationCode)> {
        let expect = Expect { kind: Some(Kind::Service), ..Expect::default() };
        let violations = decode(&value, &expect).map(|object| format!("{object:?}")).unwrap_err();
        violations.into_iter().map(|violation| (violation.pointer, violation.code)).collect()
    }

    #[test]
    fn every_structural_violation_is_reported_where_the_sender_wrote_it() {
        let found = pointers(json!({
            "metadata": { "name": "Web", "lables": {} },
            "spec": {
                "type": "ClusterIp",
                "externalIPs": ["bogus", "192.0.2.1", "nonsense"],
                "ports": [{ "port": 80 }, { "port": 0, "protocl": "TCP" }],
                "extra": 1,
            },
            "more": true,
        }));
        let expected = [
            ("/more", ViolationCode::UnknownField),
            ("/metadata/lables", ViolationCode::UnknownField),
            ("/spec/externalIPs/0", ViolationCode::Invalid),
            ("/spec/externalIPs/2", ViolationCode::Invalid),
            ("/spec/type", ViolationCode::Invalid),
            ("/spec/extra", ViolationCode::UnknownField),
            ("/spec/ports/1/protocl", ViolationCode::UnknownField),
        ];
        for (pointer, code) in expected {
            assert!(found.contains(&(pointer.to_owned(), code)), "{pointer} is missing in {found:#?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_words_and_a_slip_is_recognised() {
        let expect = Expect { kind: Some(Kind::Service), ..Expect::default() };
        let value = json!({
            "metadata": { "name": 7, "lables": {} },
            "spec": {
                "type": "clusterip",
                "selecter": {},
                "disabled": "yes",
                "externalIPs": ["bogus", 4],
                "loadBalancerSourceRanges": ["10/8"],
                "sessionAffinity": 5,
                "ports": [{ "port": "80" }, { "port": -1 }, { "port": 1.5 }, { "port": 70000 }, ["http", "TCP", 80], { "port": 1, "targetPort": [] }],
                "healthCheck": { "type": "Tcp", "rise": 300, "http": "/" },
                "selector": [],
                "ipFamilies": null,
            },
        });
        let mut said: Vec<String> = decode(&value, &expect)
            .unwrap_err()
            .into_iter()
            .map(|violation| {
                let hint = violation.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                format!("{} {}{hint}", violation.pointer, violation.message)
            })
            .collect();
        said.sort();
        let expected = [
            "/metadata/lables is not a field here (did you mean `labels`?)",
            "/metadata/name must be a text, not 7 (put it in quotes)",
            "/spec/disabled must be true or false, not the text `yes` (write true or false without quotes)",
            "/spec/externalIPs/0 must be an IP address, such as 192.0.2.1 or 2001:db8::1, not `bogus`",
            "/spec/externalIPs/1 must be an IP address, not 4",
            "/spec/healthCheck/http must be an object, not the text `/`",
            "/spec/healthCheck/rise must be a whole number between 0 and 255, not 300",
            "/spec/ipFamilies must be a list, not null (leave the field out, or give it a value)",
            "/spec/loadBalancerSourceRanges/0 must be a network, such as 192.0.2.0/24 or 2001:db8::/64, not `10/8`",
            "/spec/ports/0/port must be a whole number, not the text `80` (write the number without quotes)",
            "/spec/ports/1/port must be a whole number that is not negative, not -1",
            "/spec/ports/2/port must be a whole number, not 1.5",
            "/spec/ports/3/port must be a port between 1 and 65535, not 70000",
            "/spec/ports/4 must be an object, not a list",
            "/spec/ports/5/targetPort must be a port number between 1 and 65535 or the name of a port",
            "/spec/selecter is not a field here (did you mean `selector`?)",
            "/spec/selector must be an object, not a list",
            "/spec/sessionAffinity must be one of None, ClientIP, not 5",
            "/spec/type must be one of ClusterIP, NodePort, LoadBalancer, ExternalName, not `clusterip` (did you mean `ClusterIP`?)",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_good_object_is_read_with_the_defaults_of_its_place() {
        let value = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] }, "status": { "x": 1 } });
        let expect = Expect { kind: Some(Kind::Service), ..Expect::default() };
        let object = decode(&value, &expect).unwrap();
        assert_eq!(object.key().to_store_key(), "services/default/web");
    }

    #[test]
    fn received_objects_have_no_path() {
        let metadata = json!({ "name": "n1", "selfLink": "/v1/nodes/n1", "uid": "67e55044-10b1-426f-9247-bb680e5fe0c8" });
        let value = json!({ "kind": "Node", "metadata": metadata, "spec": {} });
        let received = decode_received(&value).unwrap().metadata;
        assert_eq!((received.self_link, received.uid.is_some()), (None, true));
    }

    #[test]
    fn reading_is_total_and_bounded() {
        let many: Map<String, Value> = (0..10_000).map(|n| (format!("x{n}"), Value::Null)).collect();
        let value = json!({ "metadata": { "name": "web" }, "spec": many });
        let expect = Expect { kind: Some(Kind::Service), ..Expect::default() };
        assert!(decode(&value, &expect).unwrap_err().len() <= VIOLATIONS_MAX + 1);
        for odd in
            [json!(null), json!([]), json!("x"), json!({ "spec": [] }), json!({ "spec": {}, "metadata": 3 })]
        {
            assert!(decode(&odd, &expect).is_err());
        }
    }
}
