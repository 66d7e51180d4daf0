//! Copies labels, zone and pod networks of the cluster's nodes to Tidegate's Nodes. Nodes are created by
//! their agents and configured by operators; the adapter never creates or removes any, and changes no other
//! fields.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use imbl::OrdMap;
use model::{
    kinds::{node::NodeSpec, resource::Object},
    primitives::name::Name,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use translate::json::{items, text};

use crate::control::{Control, Request};

/// Annotation with the names of the labels that came from the cluster, so that they are removed when the
/// cluster removes them.
const LABELS_NOTE: &str = "tidegate.io/kubernetes-labels";
/// Annotation that marks `unschedulable` as set by the cluster.
const UNSCHEDULABLE_NOTE: &str = "tidegate.io/kubernetes-unschedulable";
/// Interval at which Tidegate's Nodes are read without changes in the cluster, because an agent may have
/// created a Node.
const LOOK: Duration = Duration::from_secs(10);
/// Number of Nodes per page of a listing.
const PAGE: usize = 500;

/// Data of the cluster's nodes to copy, by the name of the Tidegate Node.
pub type Nodes = OrdMap<Name, Object>;

/// Writes the data of the cluster's nodes to Tidegate's Nodes after each change, until the channel of node
/// data is closed.
pub(super) async fn keep(control: Arc<Control>, mut nodes: watch::Receiver<Nodes>) {
    loop {
        let wanted = nodes.borrow_and_update().clone();
        if !wanted.is_empty()
            && let Err(cause) = look(&control, &wanted).await
        {
            tracing::warn!(cause, "cannot read or write Nodes; retrying");
        }
        tokio::select! {
            changed = nodes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn look(control: &Control, wanted: &Nodes) -> Result<(), String> {
    let mut token = String::new();
    loop {
        let request = Request::get("/v1/nodes")
            .query("limit", Some(PAGE.to_string()))
            .query("continue", Some(token).filter(|token| !token.is_empty()));
        let page = control.send(&request).await.map_err(|failure| failure.to_string())?;
        for node in items(&page, "/items") {
            let name = Name::parse(&text(node, "/metadata/name")).ok();
            let Some(new) = name.and_then(|name| wanted.get(&name)).and_then(|wanted| merged(node, wanted))
            else {
                continue;
            };
            let written = control.send(&Request::post("/v1/apply").json(&new)).await;
            let name = text(node, "/metadata/name");
            match written {
                Ok(_) => tracing::info!(node = name, "labels and networks of the cluster node written"),
                // Another writer was faster; the next poll retries.
                Err(failure) => tracing::warn!(node = name, "cannot write the Node: {failure}"),
            }
        }
        token = text(&page, "/metadata/continue");
        if token.is_empty() {
            return Ok(());
        }
    }
}

/// Merges the data of a cluster node into a Node read from the server, keeping the resource version that was
/// read. Returns `None` if the Node already has the data. Does no I/O.
fn merged(node: &Value, wanted: &Object) -> Option<Value> {
    let NodeSpec { addresses, zone, workload_cidrs, unschedulable, .. } = wanted.as_node()?;
    let fields = |at: &str| node.pointer(at).and_then(Value::as_object).cloned().unwrap_or_default();
    let (old_labels, old_annotations, old_spec) =
        (fields("/metadata/labels"), fields("/metadata/annotations"), fields("/spec"));
    let (mut labels, mut annotations, mut spec) =
        (old_labels.clone(), old_annotations.clone(), old_spec.clone());
    for gone in text_of(&annotations, LABELS_NOTE).split(',') {
        labels.remove(gone);
    }
    labels.extend(wanted.metadata.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    let names: BTreeSet<&str> = wanted.metadata.labels.keys().map(String::as_str).collect();
    annotations.insert(LABELS_NOTE.to_owned(), json!(names.into_iter().collect::<Vec<_>>().join(",")));
    if let Some(zone) = zone {
        spec.insert("zone".to_owned(), json!(zone));
    }
    if !workload_cidrs.is_empty() {
        spec.insert("workloadCIDRs".to_owned(), json!(workload_cidrs));
    }
    if spec.get("addresses").is_none_or(|known| *known == json!([])) && !addresses.is_empty() {
        spec.insert("addresses".to_owned(), json!(addresses));
    }
    if *unschedulable {
        spec.insert("unschedulable".to_owned(), json!(true));
        annotations.insert(UNSCHEDULABLE_NOTE.to_owned(), json!("true"));
    } else if annotations.remove(UNSCHEDULABLE_NOTE).is_some() {
        spec.insert("unschedulable".to_owned(), json!(false));
    }
    let is_same = labels == old_labels && annotations == old_annotations && spec == old_spec;
    (!is_same).then(|| {
        let metadata = json!({
            "name": node["metadata"]["name"], "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": labels, "annotations": annotations,
        });
        json!({ "apiVersion": node["apiVersion"], "kind": node["kind"], "metadata": metadata, "spec": spec })
    })
}

fn text_of(fields: &Map<String, Value>, key: &str) -> String {
    fields.get(key).map(translate::json::scalar).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::admission::decode::{Expect, decode};

    fn wanted(labels: &Value, is_unschedulable: bool) -> Object {
        let object = json!({
            "apiVersion": "tidegate/v1", "kind": "Node", "metadata": { "name": "n1", "labels": labels },
            "spec": { "addresses": ["192.0.2.1"], "workloadCIDRs": ["10.1.1.0/24"], "unschedulable": is_unschedulable },
        });
        decode(&object, &Expect::default()).unwrap()
    }

    #[test]
    fn a_node_gets_what_the_cluster_knows_and_keeps_what_others_set() {
        let node = json!({
            "apiVersion": "tidegate/v1", "kind": "Node",
            "metadata": { "name": "n1", "resourceVersion": "4", "labels": { "own": "x" } },
            "spec": { "addresses": ["198.51.100.7"], "mode": "ipvs", "unschedulable": false },
        });
        let new = merged(&node, &wanted(&json!({ "rack": "a", "disk": "b" }), true)).unwrap();
        assert_eq!(new["metadata"]["labels"], json!({ "own": "x", "rack": "a", "disk": "b" }));
        assert_eq!(new["metadata"]["resourceVersion"], "4", "a concurrent write is detected");
        assert_eq!(
            (&new["spec"]["mode"], &new["spec"]["addresses"]),
            (&json!("ipvs"), &json!(["198.51.100.7"]))
        );
        assert_eq!(new["spec"]["unschedulable"], true);
        assert_eq!(
            merged(&new, &wanted(&json!({ "rack": "a", "disk": "b" }), true)),
            None,
            "the merge \
                                                                                             is \
                                                                                             idempotent"
        );
        let less = merged(&new, &wanted(&json!({ "rack": "a" }), false)).unwrap();
        assert_eq!(less["metadata"]["labels"], json!({ "own": "x", "rack": "a" }));
        assert_eq!(less["spec"]["unschedulable"], false);
    }

    #[test]
    fn a_drain_by_an_operator_is_not_taken_back() {
        let node = json!({ "metadata": { "name": "n1" }, "spec": { "unschedulable": true } });
        let new = merged(&node, &wanted(&json!({}), false)).unwrap();
        assert_eq!(new["spec"]["unschedulable"], true);
    }
}
