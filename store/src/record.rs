//! Stored form of objects and commits, and its schema upgrades. No other module depends on the format.
//!
//! A body is JSON and contains its schema version. An incompatible change of a published type increments
//! [`SCHEMA`] and adds a step to [`UPGRADES`]; bodies are upgraded when read and written back in the current
//! form when their object next changes. A new optional field needs neither.

use std::sync::Arc;

use model::{
    cluster::change::{Change, ChangeKind, Commit},
    kinds::{
        address::AddressSpec,
        address_pool::AddressPoolSpec,
        advertisement::AdvertisementSpec,
        attachment::AttachmentSpec,
        bfd_profile::BfdProfileSpec,
        bgp_peer::BgpPeerSpec,
        block::BlockSpec,
        certificate::CertificateSpec,
        dns_zone::DnsZoneSpec,
        endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec,
        gateway::GatewaySpec,
        http_route::HttpRouteSpec,
        metadata::Metadata,
        network_policy::NetworkPolicySpec,
        node::NodeSpec,
        resource::{Kind, Object, ObjectKey, Spec},
        service::ServiceSpec,
        tls_route::TlsRouteSpec,
        workload::WorkloadSpec,
        workload_network::WorkloadNetworkSpec,
    },
    primitives::quantity::{Revision, Timestamp},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::error::StoreError;

/// Schema version in newly written bodies.
const SCHEMA: u32 = 1;
/// Upgrade steps; step `n` upgrades a document from schema `n + 1` to `n + 2`. Append only.
const UPGRADES: [Upgrade; SCHEMA as usize - 1] = [];

type Upgrade = fn(&mut Value);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<M, S> {
    schema: u32,
    metadata: M,
    spec: S,
}

#[derive(Serialize)]
struct ChangeOut<'a> {
    kind: ChangeKind,
    key: &'a str,
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeIn<'a> {
    kind: ChangeKind,
    key: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Encodes an object as raw JSON, which other documents embed without parsing it.
pub(crate) fn encode(object: &Object) -> Box<RawValue> {
    let metadata = &object.metadata;
    let body = match &object.spec {
        Spec::Node(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::AddressPool(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::BfdProfile(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::BgpPeer(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Advertisement(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::DnsZone(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Certificate(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Gateway(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::HttpRoute(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::TlsRoute(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::WorkloadNetwork(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::NetworkPolicy(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Address(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::EndpointHealth(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Block(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Attachment(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Workload(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::Service(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
        Spec::EndpointSet(spec) => to_raw_value(&Body { schema: SCHEMA, metadata, spec }),
    };
    body.expect("published types have string keys only and serialize without failing")
}

/// Decodes an object from its store key and body.
pub(crate) fn decode(key: &str, body: &[u8]) -> Result<Object, StoreError> {
    let unreadable = |reason: String| StoreError::Unreadable { key: key.to_owned(), reason };
    let parsed = ObjectKey::parse_store_key(key)
        .ok_or_else(|| unreadable("the key has an unknown kind".to_owned()))?;
    let (metadata, spec) = match parsed.kind {
        Kind::Node => read::<NodeSpec>(body).map(|(metadata, spec)| (metadata, Spec::Node(Box::new(spec)))),
        Kind::AddressPool => read::<AddressPoolSpec>(body)
            .map(|(metadata, spec)| (metadata, Spec::AddressPool(Box::new(spec)))),
        Kind::BfdProfile => {
            read::<BfdProfileSpec>(body).map(|(metadata, spec)| (metadata, Spec::BfdProfile(spec)))
        }
        Kind::BgpPeer => {
            read::<BgpPeerSpec>(body).map(|(metadata, spec)| (metadata, Spec::BgpPeer(Box::new(spec))))
        }
        Kind::Advertisement => read::<AdvertisementSpec>(body)
            .map(|(metadata, spec)| (metadata, Spec::Advertisement(Box::new(spec)))),
        Kind::DnsZone => {
            read::<DnsZoneSpec>(body).map(|(metadata, spec)| (metadata, Spec::DnsZone(Box::new(spec))))
        }
        Kind::Certificate => read::<CertificateSpec>(body)
            .map(|(metadata, spec)| (metadata, Spec::Certificate(Box::new(spec)))),
        Kind::Gateway => read::<GatewaySpec>(body).map(|(metadata, spec)| (metadata, Spec::Gateway(spec))),
        Kind::HttpRoute => {
            read::<HttpRouteSpec>(body).map(|(metadata, spec)| (metadata, Spec::HttpRoute(spec)))
        }
        Kind::TlsRoute => read::<TlsRouteSpec>(body).map(|(metadata, spec)| (metadata, Spec::TlsRoute(spec))),
        Kind::WorkloadNetwork => read::<WorkloadNetworkSpec>(body)
            .map(|(metadata, spec)| (metadata, Spec::WorkloadNetwork(Box::new(spec)))),
        Kind::NetworkPolicy => read::<NetworkPolicySpec>(body)
            .map(|(metadata, spec)| (metadata, Spec::NetworkPolicy(Box::new(spec)))),
        Kind::Address => {
            read::<AddressSpec>(body).map(|(metadata, spec)| (metadata, Spec::Address(Box::new(spec))))
        }
        Kind::EndpointHealth => {
            read::<EndpointHealthSpec>(body).map(|(metadata, spec)| (metadata, Spec::EndpointHealth(spec)))
        }
        Kind::Block => read::<BlockSpec>(body).map(|(metadata, spec)| (metadata, Spec::Block(spec))),
        Kind::Attachment => {
            read::<AttachmentSpec>(body).map(|(metadata, spec)| (metadata, Spec::Attachment(Box::new(spec))))
        }
        Kind::Workload => read::<WorkloadSpec>(body).map(|(metadata, spec)| (metadata, Spec::Workload(spec))),
        Kind::Service => {
            read::<ServiceSpec>(body).map(|(metadata, spec)| (metadata, Spec::Service(Box::new(spec))))
        }
        Kind::EndpointSet => {
            read::<EndpointSetSpec>(body).map(|(metadata, spec)| (metadata, Spec::EndpointSet(spec)))
        }
    }
    .map_err(unreadable)?;
    let object = Object { metadata, spec };
    if object.key() == parsed {
        Ok(object)
    } else {
        Err(unreadable(format!("the body belongs to {}", object.key())))
    }
}

/// Encodes the changes of a commit, each given by store key and already encoded object.
pub(crate) fn encode_changes<'a>(
    changes: impl IntoIterator<Item = (ChangeKind, &'a str, &'a RawValue)>,
) -> String {
    let changes: Vec<_> =
        changes.into_iter().map(|(kind, key, object)| ChangeOut { kind, key, object }).collect();
    serde_json::to_string(&changes).expect("strings and raw JSON serialize without failing")
}

/// Decodes a commit from its text in the change log.
pub(crate) fn decode_commit(revision: Revision, at: Timestamp, body: &[u8]) -> Result<Commit, StoreError> {
    let stored: Vec<ChangeIn<'_>> = serde_json::from_slice(body).map_err(|error| StoreError::Unreadable {
        key: format!("commit {revision}"),
        reason: error.to_string(),
    })?;
    let change = |ChangeIn { kind, key, object }: ChangeIn<'_>| {
        let object = decode(&key, object.get().as_bytes()).map_err(|error| in_commit(revision, error))?;
        Ok(Change { kind, object: Arc::new(object) })
    };
    let changes = stored.into_iter().map(change).collect::<Result<_, StoreError>>()?;
    Ok(Commit { revision, at, changes })
}

/// Parses a commit from its text in the change log. Returns the kind, key and still encoded object of each
/// change.
pub(crate) fn split_changes(
    revision: Revision,
    body: &[u8],
) -> Result<Vec<(ChangeKind, String, &str)>, StoreError> {
    let stored: Vec<ChangeIn<'_>> = serde_json::from_slice(body).map_err(|error| StoreError::Unreadable {
        key: format!("commit {revision}"),
        reason: error.to_string(),
    })?;
    Ok(stored.into_iter().map(|change| (change.kind, change.key, change.object.get())).collect())
}

fn in_commit(revision: Revision, error: StoreError) -> StoreError {
    match error {
        StoreError::Unreadable { key, reason } => {
            StoreError::Unreadable { key: format!("{key} of commit {revision}"), reason }
        }
        StoreError::Unavailable { .. } => error,
    }
}

/// Decodes the metadata and spec of a body. A body of an older schema version is upgraded first.
fn read<S: DeserializeOwned>(body: &[u8]) -> Result<(Metadata, S), String> {
    let direct = serde_json::from_slice::<Body<Metadata, S>>(body);
    if let Ok(Body { schema: SCHEMA, metadata, spec }) = direct {
        return Ok((metadata, spec));
    }
    let document: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let current = upgrade(&UPGRADES, document)?;
    let Body { schema: _, metadata, spec } =
        serde_json::from_value::<Body<Metadata, S>>(current).map_err(|error| error.to_string())?;
    Ok((metadata, spec))
}

/// Upgrades a document to the current schema version by applying those of `steps` that follow its own
/// version.
fn upgrade(steps: &[Upgrade], mut document: Value) -> Result<Value, String> {
    let newest = steps.len() as u64 + 1;
    let schema = document.get("schema").and_then(Value::as_u64).ok_or("the schema version is missing")?;
    let done = schema.checked_sub(1).ok_or("there is no schema 0")?;
    let todo = usize::try_from(done).ok().and_then(|done| steps.get(done..)).ok_or_else(|| {
        format!(
            "schema {schema} is newer than {newest}, the latest of this version; start the newer \
                 version"
        )
    })?;
    for step in todo {
        step(&mut document);
    }
    document["schema"] = newest.into();
    Ok(document)
}

#[cfg(test)]
mod tests {
    use model::primitives::name::{Label, Name};

    use super::*;

    fn node(name: &str) -> Object {
        let spec = NodeSpec { zone: Some(Label::parse("z1").unwrap()), ..NodeSpec::default() };
        Object {
            metadata: Metadata::named(Name::parse(name).unwrap(), None),
            spec: Spec::Node(Box::new(spec)),
        }
    }

    fn reason(key: &str, body: &str) -> String {
        decode(key, body.as_bytes()).unwrap_err().to_string()
    }

    /// The golden body was written by released versions and must stay readable forever.
    #[test]
    fn the_body_of_schema_1_is_as_released_and_stays_readable() {
        let golden = r#"{"schema":1,"metadata":{"name":"n1"},"spec":{"addresses":[],"zone":"z1","unschedulable":false}}"#;
        assert_eq!(encode(&node("n1")).get(), golden);
        assert_eq!(decode("nodes//n1", golden.as_bytes()).unwrap(), node("n1"));
    }

    /// Published objects omit passwords; stored ones contain them, so that they survive a restart.
    #[test]
    fn a_password_is_stored_with_its_object() {
        let body = r#"{"schema":1,"metadata":{"name":"r"},"spec":{"peerAddress":"10.0.0.1","peerASN":65001,"password":"hush"}}"#;
        let peer = decode("bgppeers//r", body.as_bytes()).unwrap();
        assert!(!peer.to_json().to_string().contains("hush"));
        let again = decode("bgppeers//r", encode(&peer).get().as_bytes()).unwrap();
        assert_eq!(again, peer);
        assert_eq!(again.as_bgp_peer().unwrap().password.as_ref().unwrap().reveal(), "hush");
    }

    #[test]
    fn an_unreadable_body_is_an_error_that_names_key_and_cause() {
        let good = encode(&node("n1")).get().to_owned();
        let cases = [
            ("nodes//n1", "{".to_owned(), "EOF"),
            ("nodes//n1", "{}".to_owned(), "schema version is missing"),
            ("nodes//n1", good.replace(":1,", ":0,"), "no schema 0"),
            ("nodes//n1", good.replace(":1,", ":2,"), "start the newer version"),
            ("nodes//n1", good.replace(":1,", ":18446744073709551615,"), "start the newer version"),
            ("nodes//n1", good.replace("zone", "area"), "unknown field `area`"),
            ("nodes//n2", good.clone(), "the body belongs to Node n1"),
            ("gadgets//n1", good.clone(), "has an unknown kind"),
            ("services/default/n1", good, "unknown field"),
        ];
        for (key, body, expected) in cases {
            let reason = reason(key, &body);
            assert!(reason.contains(key) && reason.contains(expected), "{key} {body}: {reason}");
        }
    }

    #[test]
    fn old_documents_take_exactly_the_steps_they_have_not_seen() {
        let steps: [Upgrade; 2] =
            [|document| document["one"] = true.into(), |document| document["two"] = true.into()];
        let upgraded =
            |schema: u64| upgrade(&steps, serde_json::json!({ "schema": schema })).map(|it| it.to_string());
        assert_eq!(upgraded(1).unwrap(), r#"{"one":true,"schema":3,"two":true}"#);
        assert_eq!(upgraded(2).unwrap(), r#"{"schema":3,"two":true}"#);
        assert_eq!(upgraded(3).unwrap(), r#"{"schema":3}"#);
        assert!(upgraded(4).is_err());
    }

    #[test]
    fn commits_round_trip_and_name_the_object_that_cannot_be_read() {
        let (at, revision) = (Timestamp::from_unix_seconds(7), Revision(3));
        let body = encode_changes([(ChangeKind::Deleted, "nodes//n1", &*encode(&node("n1")))]);
        let commit = decode_commit(revision, at, body.as_bytes()).unwrap();
        let changes = vec![Change { kind: ChangeKind::Deleted, object: Arc::new(node("n1")) }];
        assert_eq!(commit, Commit { revision, at, changes });
        let error = decode_commit(revision, at, body.replace("zone", "area").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("nodes//n1 of commit 3"), "{error}");
    }
}
