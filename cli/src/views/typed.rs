//! Typed access to responses: the specs, statuses and documents of `model`, decoded leniently.
//!
//! A server of another version may send fields and enum values that this command does not have, and may omit
//! fields that it expects. Neither stops a table or a description:
//! - unknown fields are ignored, also of types that reject them on input;
//! - a list entry, map entry or optional field with an invalid value is dropped;
//! - a missing field of a status has its default;
//! - a row of a table that cannot be decoded is printed as [`UNREADABLE`].
//!
//! [`documents`] has the responses without a type in `model`. Whole objects and events stay JSON, because
//! their kinds may be unknown; [`ObjectHeader`] reads the fields that all objects have. `-o json` and `-o
//! yaml` bypass this module and print the complete response.

pub(crate) mod certificates;
pub(crate) mod documents;
mod header;
mod reader;
mod word;

use std::borrow::Cow;

use model::{
    cluster::compiled::CompiledService,
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, advertisement::AdvertisementSpec,
        attachment::AttachmentSpec, bfd_profile::BfdProfileSpec, bgp_peer::BgpPeerSpec, block::BlockSpec,
        certificate::CertificateSpec, dns_zone::DnsZoneSpec, endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec, gateway::GatewaySpec, http_route::HttpRouteSpec, metadata::Metadata,
        network_policy::NetworkPolicySpec, node::NodeSpec, service::ServiceSpec, tls_route::TlsRouteSpec,
        workload::WorkloadSpec, workload_network::WorkloadNetworkSpec,
    },
    observed::network_status::{AttachmentStatus, BlockStatus, WorkloadNetworkStatus},
    observed::policy_status::NetworkPolicyStatus,
    observed::status::{
        AddressPoolStatus, AddressStatus, AdvertisementStatus, BfdProfileStatus, BgpPeerStatus,
        CertificateStatus, ConditionStatus, DnsZoneStatus, EndpointSetStatus, GatewayStatus, HttpRouteStatus,
        NodeStatus, ServiceStatus, TlsRouteStatus, WorkloadStatus,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::Segment;
use translate::json::{entries, scalar};

use self::reader::LenientReader;

pub(crate) use self::{header::ObjectHeader, word::Word};
pub(crate) use translate::json::items;

/// Placeholder for a part of a response that this version cannot decode.
pub(crate) const UNREADABLE: &str = "<unreadable>";
/// Maximum number of invalid values dropped from one response. Limited, because the response is decoded again
/// after each.
const DROPPED_MAX: usize = 200;

pub(crate) type Service = TypedObject<ServiceSpec, ServiceStatus>;
pub(crate) type EndpointSet = TypedObject<EndpointSetSpec, EndpointSetStatus>;
pub(crate) type Workload = TypedObject<WorkloadSpec, WorkloadStatus>;
pub(crate) type Node = TypedObject<NodeSpec, NodeStatus>;
pub(crate) type AddressPool = TypedObject<AddressPoolSpec, AddressPoolStatus>;
pub(crate) type Advertisement = TypedObject<AdvertisementSpec, AdvertisementStatus>;
pub(crate) type BgpPeer = TypedObject<BgpPeerSpec, BgpPeerStatus>;
pub(crate) type BfdProfile = TypedObject<BfdProfileSpec, BfdProfileStatus>;
pub(crate) type DnsZone = TypedObject<DnsZoneSpec, DnsZoneStatus>;
pub(crate) type Certificate = TypedObject<CertificateSpec, CertificateStatus>;
pub(crate) type Gateway = TypedObject<GatewaySpec, GatewayStatus>;
pub(crate) type HttpRoute = TypedObject<HttpRouteSpec, HttpRouteStatus>;
pub(crate) type TlsRoute = TypedObject<TlsRouteSpec, TlsRouteStatus>;
pub(crate) type WorkloadNetwork = TypedObject<WorkloadNetworkSpec, WorkloadNetworkStatus>;
pub(crate) type NetworkPolicy = TypedObject<NetworkPolicySpec, NetworkPolicyStatus>;
pub(crate) type Block = TypedObject<BlockSpec, BlockStatus>;
pub(crate) type Attachment = TypedObject<AttachmentSpec, AttachmentStatus>;
pub(crate) type Address = TypedObject<AddressSpec, AddressStatus>;
pub(crate) type EndpointHealth = TypedObject<EndpointHealthSpec, ()>;

/// Object of a response, decoded as far as this version supports it.
#[derive(Debug, Clone)]
pub(crate) struct TypedObject<Spec, Status> {
    /// Metadata; `None` if the object has no valid name.
    pub(crate) metadata: Option<Metadata>,
    /// Desired state of the object, without unknown fields.
    pub(crate) spec: Spec,
    /// Status, with defaults for missing fields.
    pub(crate) status: Status,
    /// Conditions of the status, including those of unknown types.
    pub(crate) conditions: Vec<ConditionRow>,
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Serialize + Default> TypedObject<Spec, Status> {
    /// Decodes an object; returns `None` if a required field of its spec is missing or invalid.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let empty = Value::Object(serde_json::Map::new());
        Some(Self {
            metadata: object.get("metadata").and_then(decode),
            spec: decode(object.get("spec").unwrap_or(&empty))?,
            status: decode_or_default(object.get("status")),
            conditions: conditions(object),
        })
    }
}

/// Condition of an object, of a known type or not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ConditionRow {
    /// Condition type, spelled as in the response.
    #[serde(rename = "type")]
    pub(crate) condition_type: String,
    /// Condition status; `Unknown` if this version has no such status.
    pub(crate) status: ConditionStatus,
    /// Machine-readable reason in CamelCase.
    pub(crate) reason: String,
    /// Human-readable description of the reason.
    pub(crate) message: String,
    /// Remedy for the reason; empty if the server gives none.
    pub(crate) hint: String,
}

impl Default for ConditionRow {
    fn default() -> Self {
        Self {
            condition_type: String::new(),
            status: ConditionStatus::Unknown,
            reason: String::new(),
            message: String::new(),
            hint: String::new(),
        }
    }
}

/// Returns the conditions of an object.
pub(crate) fn conditions(object: &Value) -> Vec<ConditionRow> {
    decode_items(object, "/status/conditions")
}

/// Decodes the endpoints that the server computed for a Service.
pub(crate) fn compiled(value: &Value) -> Option<CompiledService> {
    decode(value)
}

/// Decodes a value and drops invalid parts; returns `None` if a required part is missing or invalid.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Option<T> {
    let mut value = Cow::Borrowed(value);
    for _ in 0..=DROPPED_MAX {
        let error = match serde_path_to_error::deserialize::<_, T>(LenientReader(&value)) {
            Ok(decoded) => return Some(decoded),
            Err(error) => error,
        };
        let path: Vec<Segment> = error.path().iter().cloned().collect();
        if !remove(value.to_mut(), &path) {
            return None;
        }
    }
    None
}

/// Decodes a value on top of the default of its type, so that missing fields have their defaults.
pub(crate) fn decode_or_default<T: DeserializeOwned + Serialize + Default>(value: Option<&Value>) -> T {
    let Ok(mut merged) = serde_json::to_value(T::default()) else { return T::default() };
    if let Some(value) = value {
        merge(&mut merged, value);
    }
    decode(&merged).unwrap_or_default()
}

/// Decodes the entries of the array at a JSON pointer, without the invalid ones.
pub(crate) fn decode_items<T: DeserializeOwned>(value: &Value, pointer: &str) -> Vec<T> {
    rows(value, pointer).flatten().collect()
}

/// Decodes the entries of the array at a JSON pointer; `None` stands for an invalid entry.
pub(crate) fn rows<T: DeserializeOwned>(
    value: &Value,
    pointer: &str,
) -> impl DoubleEndedIterator<Item = Option<T>> {
    items(value, pointer).iter().map(decode)
}

/// Decodes the entries of the object at a JSON pointer, in key order; `None` stands for an invalid entry.
pub(crate) fn named_rows<'a, T: DeserializeOwned>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a str, Option<T>)> {
    entries(value, pointer).map(|(name, entry)| (name, decode(entry)))
}

/// Formats a scalar as in the JSON of the API, without quotes; empty for `None`.
pub(crate) fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).map(|value| scalar(&value)).unwrap_or_default()
}

/// Formats scalars as in the JSON of the API, separated by commas; empty ones are omitted.
pub(crate) fn words<'a, T: Serialize + 'a>(values: impl IntoIterator<Item = &'a T>) -> String {
    let words = values.into_iter().map(word).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(",")
}

/// Copies `value` over `base`; fields of objects are copied one by one. A value whose JSON type differs from
/// that in `base` is ignored, unless the one in `base` is null.
fn merge(base: &mut Value, value: &Value) {
    match (base, value) {
        (Value::Object(base), Value::Object(fields)) => {
            for (key, value) in fields {
                match base.get_mut(key) {
                    Some(base) => merge(base, value),
                    None => {
                        base.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (base, value) if base.is_null() || std::mem::discriminant(base) == std::mem::discriminant(value) => {
            base.clone_from(value);
        }
        (_, _) => {}
    }
}

/// Removes the value at a path; returns false if there is none.
fn remove(value: &mut Value, path: &[Segment]) -> bool {
    let path: Vec<&Segment> =
        path.iter().filter(|segment| matches!(segment, Segment::Map { .. } | Segment::Seq { .. })).collect();
    let Some((last, parents)) = path.split_last() else { return false };
    let mut parent = value;
    for segment in parents {
        let next = match segment {
            Segment::Map { key } => parent.get_mut(key),
            Segment::Seq { index } => parent.get_mut(index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        let Some(next) = next else { return false };
        parent = next;
    }
    match (last, parent) {
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key).is_some(),
        (Segment::Seq { index }, Value::Array(entries)) if *index < entries.len() => {
            entries.remove(*index);
            true
        }
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_and_words_are_dropped_and_missing_fields_have_defaults() {
        let status = json!({
            "conditions": [
                { "type": "Ready", "status": "True", "reason": "Allocated", "shade": "green" },
                { "type": "Blessed", "status": "False", "reason": "NotYet", "message": "wait" },
                { "type": "Connected", "status": "Maybe", "reason": "Odd" },
            ],
            "nodes": { "total": 3, "colour": 7, "notVerified": {
                "a": { "phase": "Failed", "message": "x", "more": 1 },
                "b": { "phase": "Dreaming", "message": "y" },
            } },
            "endpoints": "many",
            "later": { "a": 1 },
        });
        let decoded: ServiceStatus = decode_or_default(Some(&status));
        assert_eq!((decoded.nodes.total, decoded.nodes.verified), (3, 0));
        assert_eq!(decoded.nodes.not_verified.keys().map(word).collect::<Vec<_>>(), ["a"]);
        assert_eq!((decoded.endpoints.total, decoded.conditions.len()), (0, 1));
        let rows = conditions(&json!({ "status": status }));
        let rows: Vec<_> = rows.iter().map(|row| (row.condition_type.as_str(), row.status)).collect();
        assert_eq!(
            rows,
            [
                ("Ready", ConditionStatus::True),
                ("Blessed", ConditionStatus::False),
                ("Connected", ConditionStatus::Unknown)
            ]
        );
    }

    #[test]
    fn a_spec_is_decoded_without_its_unknown_fields_and_not_without_its_required_ones() {
        let set = json!({ "service": "web", "sparkle": true, "endpoints": [
            { "address": "10.0.0.1", "glow": 1 }, { "address": "nowhere" }, { "weight": 2 },
        ] });
        let decoded: EndpointSetSpec = decode(&set).unwrap();
        assert_eq!(decoded.endpoints.len(), 1);
        for without in [json!({ "endpoints": [] }), json!(null), json!([1]), json!("x")] {
            assert_eq!(decode::<EndpointSetSpec>(&without), None, "{without}");
        }
    }
}
