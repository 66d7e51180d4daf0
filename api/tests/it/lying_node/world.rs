//! Cluster with two honest nodes, `n1` and `n2`, and a third one, `n9`, and the state that must not depend on
//! `n9`.

use std::{cell::Cell, time::Duration};

use api::base::config::Settings;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{
    Lines, START,
    secured::{self, Secured, Who},
    settings,
};

/// Address of Service `web`, which an honest node announces.
pub(super) const ADDRESS: &str = "198.51.100.100";
/// Link-layer address of a stranger that announces this address as well.
pub(super) const STRANGER: &str = "02:00:00:00:00:66";
/// Time of the changes that reports contain.
pub(super) const SINCE: &str = "2026-11-21T09:00:00Z";

pub(super) struct World {
    pub(super) secured: Secured,
    /// Number of canaries so far; each has a name of its own.
    canaries: Cell<u8>,
}

/// State that does not depend on `n9`, one text per frame or object.
pub(super) type View = Vec<String>;

impl World {
    /// Starts a server with authentication, in which `n1` or `n2` announces the address of Service `web`, all
    /// endpoints are healthy, and each node has a BGP peer with a password.
    pub(super) async fn new() -> Self {
        let settings = Settings { health_guard_percent: 100, ..settings(30000..=32767) };
        let world = Self { secured: secured::start_on(settings).await, canaries: Cell::new(0) };
        let (status, answer) =
            world.secured.call(&world.secured.admin.clone(), "POST", "/v1/apply", Some(objects())).await;
        assert_eq!(status, 200, "{answer:#}");
        for node in ["n1", "n2", "n9"] {
            world.report(node, json!({})).await;
        }
        let record =
            world.until(&format!("/v1/addresses/{ADDRESS}"), |record| order(record).len() == 2).await;
        let owner = if order(&record)[0] == "n1" { "n1" } else { "n2" };
        let announced = json!({
            "role": "Owner", "epoch": record["spec"]["announcement"]["epoch"], "since": SINCE, "reason": "first in rank",
            "interfaces": ["eth0"], "conflict": { "mac": STRANGER, "interface": "eth0", "at": SINCE },
        });
        world.report(owner, json!({ "announcements": { ADDRESS: announced } })).await;
        world.pass_tasks().await;
        world
    }

    /// Sends the honest report of a node with further or other fields, and asserts that it is accepted.
    pub(super) async fn report(&self, node: &'static str, more: Value) {
        let (status, answer) = self.try_report(node, more).await;
        assert_eq!(status, 204, "{answer:#}");
    }

    pub(super) async fn try_report(&self, node: &'static str, more: Value) -> (u16, Value) {
        let mut report = honest_report(node);
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call(node, "PUT", &format!("/v1/nodes/{node}/report"), Some(report)).await
    }

    pub(super) async fn call(
        &self,
        node: &'static str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        self.secured.call(&Who::Agent(node), method, path, body).await
    }

    async fn until(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..1200 {
            last = self.secured.call(&self.secured.admin.clone(), "GET", path, None).await.1;
            if is_wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{path} stays {last:#}");
    }

    /// Waits until the tasks that follow reports have processed all earlier ones: they decide about a new Service
    /// whose endpoint the honest nodes report as unhealthy, and about its address. Both tasks process in order.
    pub(super) async fn pass_tasks(&self) {
        let number = self.canaries.get() + 1;
        self.canaries.set(number);
        let name = format!("canary-{number}");
        let service = format!("/v1/namespaces/default/services/{name}");
        let address = format!("198.51.100.{}", 100 + number);
        let canary = json!([
            { "kind": "Service", "metadata": { "name": name }, "spec": {
                "type": "LoadBalancer", "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" },
                "loadBalancer": { "pool": "p", "addresses": [address] },
            } },
            { "kind": "EndpointSet", "metadata": { "name": name }, "spec": {
                "service": name, "endpoints": [{ "address": "10.1.0.200" }],
            } },
        ]);
        self.secured.admin("POST", "/v1/apply", Some(canary)).await;
        let key = format!("default/{name}");
        for node in ["n1", "n2"] {
            let mut health = honest_report(node)["health"].clone();
            health[&key] = json!([checked("10.1.0.200", "Unhealthy")]);
            self.report(node, json!({ "health": health })).await;
        }
        self.until(&format!("/v1/namespaces/default/endpointhealths/{name}"), |record| {
            record["spec"]["endpoints"]["10.1.0.200:80"]["share"] == 0
        })
        .await;
        self.until(&format!("/v1/addresses/{address}"), |record| !order(record).is_empty()).await;
        self.secured.admin("DELETE", &format!("/v1/namespaces/default/endpointsets/{name}"), None).await;
        self.secured.admin("DELETE", &service, None).await;
    }

    /// Returns the state that must not depend on `n9`: the feeds of the other nodes, all objects except the Node
    /// of the liar, and the status of the honest Nodes.
    pub(super) async fn look(&self) -> View {
        let mut view = View::new();
        for node in ["n1", "n2"] {
            let path = format!("/v1/nodes/{node}/state");
            let response = self.secured.send(&Who::Agent(node), "GET", &path, None).await;
            let frames = Lines::new(response.into_body()).until("\"synced\"").await;
            view.extend(
                frames.iter().filter_map(|frame| frame_of(frame)).map(|frame| format!("{node}: {frame}")),
            );
        }
        for kind in [
            "services",
            "endpointsets",
            "workloads",
            "nodes",
            "addresspools",
            "advertisements",
            "bgppeers",
            "addresses",
            "endpointhealths",
        ] {
            let list = self.secured.admin("GET", &format!("/v1/{kind}?limit=500"), None).await;
            view.extend(list["items"].as_array().unwrap().iter().filter_map(object_of));
        }
        view
    }
}

/// Asserts that two views are equal, and names the first difference otherwise.
pub(super) fn assert_same(what: &str, before: &View, after: &View) {
    let gone: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    assert!(gone.is_empty() && new.is_empty(), "{what} changed the state of others\n- {gone:#?}\n+ {new:#?}");
}

/// Returns the nodes of an address record, in the order of rank.
fn order(record: &Value) -> Vec<String> {
    let candidates = record["spec"]["announcement"]["candidates"].as_array().cloned().unwrap_or_default();
    candidates.iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect()
}

fn is_liar(node: &Value) -> bool {
    node == "n9"
}

/// Returns a frame of the feed without positions, or `None` for frames that contain nothing else. A liar may be
/// listed as a live agent, and as a candidate behind the node that announces an address.
fn frame_of(frame: &str) -> Option<String> {
    let mut frame: Value = serde_json::from_str(frame).unwrap();
    match frame["type"].as_str().unwrap() {
        "start" | "synced" | "heartbeat" => return None,
        "network" => frame["checkers"].as_array_mut().unwrap().retain(|node| !is_liar(node)),
        "address" => {
            without_liar(&mut frame["address"]["announcement"]);
            if let Some(keys) = frame["address"]["peerPublicKeys"].as_object_mut() {
                keys.remove("n9");
            }
        }
        _ => {}
    }
    for part in ["service", "address"] {
        if let Some(part) = frame[part].as_object_mut() {
            part.remove("revision");
        }
    }
    if frame["type"] != "service" && frame["type"] != "address" {
        // Indexing above adds absent fields as null.
        let fields = frame.as_object_mut().unwrap();
        fields.retain(|_, value| !value.is_null());
    }
    Some(frame.to_string())
}

/// Removes the liar from the candidates, but not from the first rank, which announces the address.
fn without_liar(announcement: &mut Value) {
    let Some(fields) = announcement.as_object_mut() else { return };
    fields.remove("epoch");
    let Some(candidates) = fields.get_mut("candidates").and_then(Value::as_array_mut) else { return };
    let first = candidates.first().cloned();
    candidates.retain(|one| !is_liar(&one["node"]) || Some(one) == first.as_ref());
}

/// Returns an object without its revision, and without its status unless it is an honest Node; `None` for the Node
/// of the liar and for the address of a canary.
fn object_of(object: &Value) -> Option<String> {
    let mut object = object.clone();
    let is_node = object["kind"] == "Node";
    if is_node && is_liar(&object["metadata"]["name"]) {
        return None;
    }
    // Addresses of canaries are in quarantine.
    if object["kind"] == "Address" && object["spec"]["address"] != ADDRESS {
        return None;
    }
    let fields = object.as_object_mut().unwrap();
    if !is_node {
        let status = fields.remove("status");
        // The alarm about the stranger.
        let conditions = status.as_ref().and_then(|status| status["conditions"].as_array());
        let announced = conditions.into_iter().flatten().find(|one| one["type"] == "Announced");
        if let Some(announced) = announced.filter(|_| fields["kind"] == "Address") {
            fields.insert("announced".to_owned(), announced["reason"].clone());
        }
    } else if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        // Depends on the newest revision.
        status.remove("conditions");
        status.remove("lastReport");
    }
    fields["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    without_liar(&mut fields["spec"]["announcement"]);
    Some(object.to_string())
}

/// Returns the check result of an endpoint.
pub(super) fn checked(address: &str, state: &str) -> Value {
    json!({ "address": address, "port": 80, "state": state, "since": SINCE, "message": format!("is {state}") })
}

/// Returns the public key of the node with this number.
pub(super) fn public_key(host: u8) -> String {
    BASE64_STANDARD.encode([host; 32])
}

/// Returns the true report of a node that has verified everything.
pub(super) fn honest_report(node: &str) -> Value {
    let (everything, host) = (format!("{START}-1000000"), node.trim_start_matches('n'));
    let address = format!("198.51.100.{host}");
    let subnets = if node == "n9" { json!({}) } else { json!({ "eth0": ["198.51.100.0/24"] }) };
    let own = format!("10.1.{host}.1");
    json!({
        "bootId": format!("boot-{node}"), "agentVersion": "0.1.0", "mode": "nftables",
        "received": everything, "applied": everything, "verified": everything,
        "facts": {
            "addresses": [address], "subnets": subnets, "kernel": "6.8.0", "capabilities": ["nftables"],
            "peerPublicKey": public_key(host.parse().unwrap()),
        },
        "health": { "default/web": [checked(&own, "Healthy"), checked("10.1.0.1", "Healthy")] },
        "healthComplete": true,
    })
}

fn objects() -> Value {
    let node = |name: &str, host: u8| {
        json!({
            "kind": "Node", "metadata": { "name": name, "labels": { "who": name } },
            "spec": { "addresses": [format!("198.51.100.{host}")], "workloadCIDRs": [format!("10.1.{host}.0/24")] },
        })
    };
    let peer = |node: &str| {
        json!({
            "kind": "BgpPeer", "metadata": { "name": format!("of-{node}") },
            "spec": {
                "peerAddress": "198.51.100.254", "peerASN": 65001, "password": format!("secret-of-{node}"),
                "nodeSelectors": [{ "matchLabels": { "who": node } }],
            },
        })
    };
    json!([
        node("n1", 1), node("n2", 2), node("n9", 9), peer("n1"), peer("n2"), peer("n9"),
        { "kind": "AddressPool", "metadata": { "name": "p" }, "spec": { "addresses": ["198.51.100.100-198.51.100.250"], "quarantineSeconds": 0 } },
        { "kind": "Advertisement", "metadata": { "name": "all" }, "spec": {} },
        { "kind": "Service", "metadata": { "name": "web" }, "spec": {
            "type": "LoadBalancer", "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" },
            "loadBalancer": { "pool": "p", "addresses": [ADDRESS] },
        } },
        { "kind": "EndpointSet", "metadata": { "name": "web" }, "spec": { "service": "web", "endpoints": [
            { "address": "10.1.1.1", "node": "n1" }, { "address": "10.1.2.1", "node": "n2" }, { "address": "10.1.0.1" },
        ] } },
        { "kind": "Service", "metadata": { "name": "pods" }, "spec": { "selector": { "app": "pods" }, "ports": [{ "port": 81 }] } },
        { "kind": "Workload", "metadata": { "name": "pod", "labels": { "app": "pods" } }, "spec": { "addresses": ["10.1.1.2"], "node": "n1" } },
    ])
}
