//! Tests of the announcement of addresses with simulated agents over HTTP: candidates, takeovers, drains, leases,
//! moves.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use http_body_util::BodyExt;
use model::{
    admission::decode::{Expect, decode},
    cluster::change::{Change, ChangeKind, Commit},
    kinds::{
        address::{AddressSpec, name_of},
        metadata::Metadata,
        resource::{Object, ServiceKey, Spec},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision, Timestamp},
    },
};
use serde_json::{Value, json};
use store::Store;

use crate::support::{self, Fixed, Lines, START, Server};

/// Creates a store with Services `s0`, `s1`, … and an Advertisement. The addresses of the Services are
/// 192.0.2.100, .101, … of pool `p`.
async fn filled(addresses: usize) -> Arc<dyn Store> {
    let store = store::open("memory:", Timestamp::from_unix_seconds(START)).await.unwrap();
    let object = |value: Value| decode(&value, &Expect::default()).unwrap();
    let mut objects =
        vec![object(json!({ "kind": "Advertisement", "metadata": { "name": "all" }, "spec": {} }))];
    for at in 0..addresses {
        let name = format!("s{at}");
        let spec = json!({ "type": "LoadBalancer", "clusterIP": format!("10.96.0.{}", at + 1), "ports": [{ "port": 80 }] });
        objects.push(object(json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })));
        let address = format!("192.0.2.{}", 100 + at).parse().unwrap();
        let mut record = AddressSpec::new(address, Some(Name::parse("p").unwrap()));
        record.services.insert(ServiceKey::try_from(format!("default/{name}")).unwrap());
        objects.push(Object {
            metadata: Metadata::named(name_of(address), None),
            spec: Spec::Address(Box::new(record)),
        });
    }
    let at = Timestamp::from_unix_seconds(START);
    let changes = objects.into_iter().enumerate().map(|(number, mut object)| {
        object.metadata.resource_version = Some("1".to_owned());
        object.metadata.uid = Some(format!("00000000-0000-7000-8000-{number:012}").parse().unwrap());
        object.metadata.generation = Some(1);
        object.metadata.creation_timestamp = Some(at);
        Change { kind: ChangeKind::Added, object: Arc::new(object) }
    });
    let commit = Commit { revision: Revision(1), at, changes: changes.collect() };
    let head = store.load().await.unwrap().position;
    store.commit(head, &[commit]).await.unwrap();
    store
}

/// Starts a server at time `START` and creates Nodes with the given names.
async fn start(store: &Arc<dyn Store>, nodes: &[&str]) -> Server {
    let server =
        support::start_on(support::settings(30000..=32767), Arc::clone(store), Fixed::at(START)).await;
    for node in nodes {
        let body = json!({ "kind": "Node", "metadata": { "name": node }, "spec": {} });
        assert_eq!(server.call("POST", "/v1/nodes", Some(body)).await.0, 201);
    }
    server
}

/// Returns the report of an agent that has verified the newest state. `host` is the last octet of its address
/// in 192.0.2.0/24; `more` contains further fields of the report.
fn report(host: usize, more: Value) -> Value {
    let everything = Position { epoch: Epoch(u64::try_from(START).unwrap()), revision: Revision(1_000_000) };
    let mut report = json!({
        "bootId": "b", "agentVersion": "0", "mode": "nftables",
        "received": everything, "applied": everything, "verified": everything,
        "facts": { "addresses": [format!("192.0.2.{host}")], "subnets": { "eth0": ["192.0.2.0/24"] } },
    });
    report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    report
}

fn host(node: &str) -> usize {
    usize::from(node.as_bytes()[0] - b'a') + 1
}

async fn send(server: &Server, node: &str, more: Value) {
    let (status, body) =
        server.call("PUT", &format!("/v1/nodes/{node}/report"), Some(report(host(node), more))).await;
    assert_eq!(status, 204, "{body}");
}

/// Returns the part of an agent's report about the address 192.0.2.100. `role` states if the agent announces
/// the address or is on standby for it.
fn part(role: &str, epoch: u64) -> Value {
    let announced = json!({ "role": role, "epoch": epoch, "since": "2026-11-21T09:00:00Z", "reason": "first in rank", "interfaces": ["eth0"] });
    json!({ "announcements": { "192.0.2.100": announced } })
}

async fn get(server: &Server, path: &str) -> Value {
    let (status, body) = server.call("GET", path, None).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn order(record: &Value) -> Vec<String> {
    let candidates = record["spec"]["announcement"]["candidates"].as_array().cloned().unwrap_or_default();
    candidates.iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect()
}

fn condition<'a>(object: &'a Value, wanted: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == wanted).unwrap()
}

/// Repeats a request until its response matches. Changes take effect within moments, but asynchronously.
async fn until(server: &Server, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..600 {
        last = get(server, path).await;
        if wanted(&last) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} stays {last:#}");
}

async fn feed(server: &Server, node: &str) -> Lines {
    let request = Request::get(format!("/v1/nodes/{node}/state")).body(Body::empty()).unwrap();
    Lines::new(server.send(request).await.into_body())
}

const ADDRESS: &str = "/v1/addresses/192.0.2.100";

/// F117: nodes that can announce an address are recorded as its candidates, in order, and their agents receive the
/// address.
#[tokio::test]
async fn f117_candidates_are_recorded_fed_to_agents_and_shown() {
    let store = filled(1).await;
    let server = start(&store, &["a", "b", "c"]).await;
    let mut feed = feed(&server, "a").await;
    let first = feed.until("\"synced\"").await.concat();
    assert!(first.contains("\"type\":\"address\"") && first.contains("192.0.2.100"), "{first}");
    for node in ["a", "b"] {
        send(&server, node, json!({})).await;
    }
    let record = until(&server, ADDRESS, |record| order(record).len() == 2).await;
    let line = feed.until("\"candidates\":[{").await.pop().unwrap();
    let frame: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(frame["address"]["announcement"]["candidates"][0]["interfaces"], json!(["eth0"]), "{line}");
    assert_eq!(record["status"]["notCandidates"], json!({ "c": "no agent has reported for it" }));
    let owner = order(&record)[0].clone();
    let epoch = record["spec"]["announcement"]["epoch"].as_u64().unwrap();
    assert_eq!(condition(&record, "Announced")["reason"], "NotYetAnnounced");
    send(&server, &owner, part("Owner", epoch)).await;
    let record = get(&server, ADDRESS).await;
    assert_eq!(
        (record["status"]["owner"].as_str(), condition(&record, "Announced")["status"].as_str()),
        (Some(&*owner), Some("True"))
    );
    let service = get(&server, "/v1/namespaces/default/services/s0").await;
    assert_eq!(condition(&service, "Announced")["message"], format!("{owner} announces 192.0.2.100 on eth0"));
}

/// Starts a server whose three nodes are candidates for [`ADDRESS`]. Returns the server, the candidates in their order,
/// and the epoch of the order.
async fn start_with_candidates(store: &Arc<dyn Store>) -> (Server, Vec<String>, u64) {
    let server = start(store, &["a", "b", "c"]).await;
    for node in ["a", "b", "c"] {
        send(&server, node, json!({})).await;
    }
    let record = until(&server, ADDRESS, |record| order(record).len() == 3).await;
    let epoch = record["spec"]["announcement"]["epoch"].as_u64().unwrap();
    (server, order(&record), epoch)
}

/// F117: if another candidate takes over an address, the server records it as the announcer. A drain of this
/// node moves the address, and the node does not get the address back when it returns.
#[tokio::test]
async fn f117_takeovers_are_adopted_also_by_a_server_that_was_away_and_drains_move() {
    let store = filled(1).await;
    let (server, before, epoch) = start_with_candidates(&store).await;
    send(&server, &before[0], part("Owner", epoch)).await;
    server.running.stop().await;

    // While control is down, the second node takes over.
    let server = start(&store, &[]).await;
    send(&server, &before[1], part("Owner", epoch)).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        order(&get(&server, ADDRESS).await),
        before,
        "nothing is decided before the others were heard"
    );
    send(&server, &before[2], part("Standby", epoch)).await;
    send(&server, &before[0], part("Standby", epoch)).await;
    let record = until(&server, ADDRESS, |record| order(record)[0] == before[1]).await;
    assert_eq!(record["spec"]["announcement"]["epoch"].as_u64(), Some(epoch + 1));

    let node = json!({ "metadata": { "name": before[1] }, "spec": { "unschedulable": true } });
    server.call("PUT", &format!("/v1/nodes/{}", before[1]), Some(node)).await;
    let record = until(&server, ADDRESS, |record| order(record).len() == 2).await;
    assert!(record["status"]["notCandidates"][&before[1]].as_str().unwrap().contains("unschedulable"));
    let owner = order(&record)[0].clone();
    let node = json!({ "metadata": { "name": before[1] }, "spec": {} });
    server.call("PUT", &format!("/v1/nodes/{}", before[1]), Some(node)).await;
    let record = until(&server, ADDRESS, |record| order(record).len() == 3).await;
    assert_eq!((&order(&record)[0], &order(&record)[2]), (&owner, &before[1]));
}

/// Returns the part of a report with the BFD states of other nodes.
fn monitored(peers: &[(&str, &str)]) -> Value {
    let peer = |(node, state): &(&str, &str)| json!({ "node": node, "address": format!("192.0.2.{}", host(node)), "state": state, "since": "2026-11-21T09:00:00Z" });
    json!({ "peers": peers.iter().map(peer).collect::<Vec<_>>() })
}

/// F117: a candidate that is cut off, or lies, claims an address in vain while another candidate reaches the
/// owner. As soon as that candidate reports the owner as down, the takeover is recorded.
#[tokio::test]
async fn f117_a_takeover_from_a_reporting_owner_needs_another_candidate_to_confirm_it() {
    let store = filled(1).await;
    let (server, before, epoch) = start_with_candidates(&store).await;
    let [owner, claimant, third] = &before[..] else { panic!("{before:?}") };
    send(&server, owner, part("Owner", epoch)).await;
    send(&server, third, monitored(&[(owner, "Up"), (claimant, "Down")])).await;
    send(&server, claimant, part("Owner", epoch)).await;
    // The assigner handles reports in order, so a Node that becomes a candidate later marks the end of the wait.
    let node = json!({ "kind": "Node", "metadata": { "name": "d" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(node)).await.0, 201);
    send(&server, "d", json!({})).await;
    let record = until(&server, ADDRESS, |record| order(record).len() == 4).await;
    assert_eq!(&order(&record)[..3], before);
    let epoch = record["spec"]["announcement"]["epoch"].as_u64().unwrap();
    send(&server, owner, part("Owner", epoch)).await;
    send(&server, claimant, part("Standby", epoch)).await;
    send(&server, claimant, part("Owner", epoch)).await;
    send(&server, third, monitored(&[(owner, "Down"), (claimant, "Up")])).await;
    let record = until(&server, ADDRESS, |record| order(record)[0] == *claimant).await;
    assert_eq!(order(&record)[1], *owner);
    let events = get(&server, "/v1/addresses/events?address=192.0.2.100&limit=2").await;
    let rows = events["items"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|row| json!([row["node"], row["reason"], row["previous"]])).collect();
    let withdrawn = json!([claimant, "Withdrawn", null]);
    assert_eq!(
        rows,
        [json!([claimant, "Announced", null]), withdrawn],
        "the claimant had announced it before"
    );
    let token = events["metadata"]["continue"].as_str().unwrap();
    let rest =
        get(&server, &format!("/v1/addresses/events?address=192.0.2.100&limit=2&continue={token}")).await;
    assert_eq!(rest["items"][0]["previous"], json!(owner), "{rest}");
    assert_eq!(rest["items"][1]["node"], json!(owner), "{rest}");
    assert_eq!(get(&server, "/v1/addresses/events?address=192.0.2.101").await["items"], json!([]));
    assert_eq!(server.call("GET", "/v1/addresses/events?address=web", None).await.0, 400);
    let metrics = server.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let metrics = metrics.into_body().collect().await.unwrap().to_bytes();
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(metrics.contains("\ntidegate_address_owner_changes_total 1\n"), "{metrics}");
}

/// F117: addresses are distributed over the nodes, and a drain moves only the addresses of the drained node.
#[tokio::test]
async fn f117_addresses_are_spread_and_only_those_of_a_drained_node_move() {
    let store = filled(12).await;
    let server = start(&store, &["a", "b", "c"]).await;
    for node in ["a", "b", "c"] {
        send(&server, node, json!({})).await;
    }
    let complete = |list: &Value| list["items"].as_array().unwrap().iter().all(|one| order(one).len() == 3);
    let before = until(&server, "/v1/addresses", complete).await;
    for node in ["a", "b", "c"] {
        let of_node = get(&server, &format!("/v1/addresses?node={node}")).await;
        assert_eq!(of_node["items"].as_array().unwrap().len(), 4, "{node}");
    }
    assert_eq!(get(&server, "/v1/addresses?pool=other").await["items"], json!([]));
    assert_eq!(
        get(&server, "/v1/addresses?pool=p&service=default/s7").await["items"][0]["metadata"]["name"],
        "192.0.2.107"
    );
    let node = json!({ "metadata": { "name": "a" }, "spec": { "unschedulable": true } });
    server.call("PUT", "/v1/nodes/a", Some(node)).await;
    let moved = |list: &Value| list["items"].as_array().unwrap().iter().all(|one| order(one).len() == 2);
    let after = until(&server, "/v1/addresses", moved).await;
    for (before, after) in before["items"].as_array().unwrap().iter().zip(after["items"].as_array().unwrap())
    {
        let (before, after) = (order(before), order(after));
        assert!(before[0] == "a" || before[0] == after[0], "{before:?} {after:?}");
    }
    assert_eq!(get(&server, "/v1/addresses?node=b").await["items"].as_array().unwrap().len(), 6);
}

/// F117: an operator can move an address to another node. A move to a node that cannot announce it is rejected
/// with the reason.
#[tokio::test]
async fn f117_an_address_is_moved_on_request_or_the_request_says_why_not() {
    let store = filled(1).await;
    let server = start(&store, &["a", "b", "c"]).await;
    for node in ["a", "b"] {
        send(&server, node, json!({})).await;
    }
    let before = order(&until(&server, ADDRESS, |record| order(record).len() == 2).await);
    let to = |node: &str| Some(json!({ "node": node }));
    let path = format!("{ADDRESS}/move");
    let (status, tried) = server.call("POST", &format!("{path}?dryRun=true"), to(&before[1])).await;
    assert_eq!((status, order(&tried)[0].as_str()), (200, before[1].as_str()), "{tried}");
    assert_eq!(order(&get(&server, ADDRESS).await), before, "only tried");
    let (status, moved) = server.call("POST", &path, to(&before[1])).await;
    assert_eq!((status, order(&moved)), (200, vec![before[1].clone(), before[0].clone()]), "{moved}");
    let (status, again) = server.call("POST", &path, to(&before[1])).await;
    assert_eq!((status, &again["metadata"]["resourceVersion"]), (200, &moved["metadata"]["resourceVersion"]));
    let (status, refused) = server.call("POST", &path, to("c")).await;
    assert_eq!(status, 422);
    assert!(
        refused["errors"][0]["message"].as_str().unwrap().contains("no agent has reported for it"),
        "{refused}"
    );
    assert_eq!(server.call("POST", "/v1/addresses/2001:db8::1/move", to("a")).await.0, 404);
    assert_eq!(server.call("POST", "/v1/addresses/web/move", to("a")).await.0, 404);
    assert_eq!(server.call("POST", &path, Some(json!({ "nodes": "a" }))).await.0, 422);
}

/// F117: after failures, a plan names the moves that spread the addresses again. The plan changes nothing, and has no
/// moves after they were made.
#[tokio::test]
async fn f117_a_plan_names_the_moves_that_spread_addresses_again() {
    const ADDRESSES: usize = 5;
    let store = filled(ADDRESSES).await;
    let server = start(&store, &["a", "b"]).await;
    for node in ["a", "b"] {
        send(&server, node, json!({})).await;
    }
    let complete = |list: &Value| list["items"].as_array().unwrap().iter().all(|one| order(one).len() == 2);
    until(&server, "/v1/addresses", complete).await;
    let to = |node: &str| Some(json!({ "node": node }));
    for at in 0..ADDRESSES {
        let path = format!("/v1/addresses/192.0.2.{}/move", 100 + at);
        assert_eq!(server.call("POST", &path, to("a")).await.0, 200);
    }
    let plan = get(&server, "/v1/rebalance").await;
    assert_eq!(
        (&plan["moves"], &plan["unsettled"]),
        (&json!([]), &json!(ADDRESSES)),
        "nobody announces them yet"
    );
    announce_recorded(&server).await;
    let of_node = |node: &str, addresses: usize| json!({ "node": node, "addresses": addresses });
    let expected =
        json!({ "total": ADDRESSES, "nodes": [of_node("a", ADDRESSES), of_node("b", 0)], "nodesOmitted": 0 });
    until(&server, "/v1/status", |status| status["addresses"] == expected).await;
    let plan = get(&server, "/v1/rebalance").await;
    let moves = plan["moves"].as_array().unwrap();
    assert_eq!((moves.len(), &plan["unsettled"]), (2, &json!(0)), "{plan}");
    let load = |node: &str, addresses: u64, after: u64| json!({ "node": node, "addresses": addresses, "after": after });
    assert_eq!(plan["nodes"], json!([load("a", 5, 3), load("b", 0, 2)]));
    assert_eq!(
        get(&server, "/v1/addresses?node=a").await["items"].as_array().unwrap().len(),
        ADDRESSES,
        "only planned"
    );
    for one in moves {
        assert_eq!((one["from"].as_str(), one["to"].as_str()), (Some("a"), Some("b")));
        let path = format!("/v1/addresses/{}/move", one["address"].as_str().unwrap());
        assert_eq!(server.call("POST", &path, to("b")).await.0, 200);
    }
    announce_recorded(&server).await;
    assert_eq!(get(&server, "/v1/rebalance").await["moves"], json!([]));
}

/// Sends reports in which the first candidate of each address announces it.
async fn announce_recorded(server: &Server) {
    let list = get(server, "/v1/addresses").await;
    for node in ["a", "b"] {
        let announced = list["items"].as_array().unwrap().iter().map(|record| {
            let role = if order(record)[0] == node { "Owner" } else { "Standby" };
            let part = part(role, record["spec"]["announcement"]["epoch"].as_u64().unwrap());
            let part = part["announcements"]["192.0.2.100"].clone();
            (record["spec"]["address"].as_str().unwrap().to_owned(), part)
        });
        let announced: serde_json::Map<String, Value> = announced.collect();
        send(server, node, json!({ "announcements": announced })).await;
    }
}

/// F168: a silent Node is no candidate after its announcement lease has expired. After its longer endpoint lease
/// has expired, other Nodes check its Workloads, which leave service if they fail. Both change back when the Node
/// reports again.
#[tokio::test]
async fn f168_a_silent_node_loses_its_addresses_and_its_failing_workloads_and_gets_them_back() {
    let store = filled(1).await;
    let server = start(&store, &["a", "b", "c"]).await;
    let workload = |node: &str| json!({ "metadata": { "name": format!("w-{node}"), "labels": { "app": "x" } }, "spec": { "addresses": [format!("10.1.0.{}", host(node))], "node": node } });
    for node in ["a", "b"] {
        let (status, body) =
            server.call("POST", "/v1/namespaces/default/workloads", Some(workload(node))).await;
        assert_eq!(status, 201, "{body}");
    }
    let service = json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "x" }, "ports": [{ "port": 80 }] } });
    server.call("POST", "/v1/namespaces/default/services", Some(service)).await;
    for node in ["a", "b", "c"] {
        send(&server, node, json!({})).await;
    }
    let silent = order(&until(&server, ADDRESS, |record| order(record).len() == 3).await)[0].clone();
    let others: Vec<_> = ["a", "b", "c"].into_iter().filter(|node| *node != silent).collect();
    let pass = async |secs: i64| {
        for _ in 0..secs / 5 {
            server.source.advance(5);
            for node in &others {
                send(&server, node, json!({})).await;
            }
        }
    };
    pass(20).await;
    let record = until(&server, ADDRESS, |record| order(record).len() == 2).await;
    assert!(record["status"]["notCandidates"][&silent].as_str().unwrap().contains("has not reported since"));
    let node_path = format!("/v1/nodes/{silent}");
    assert_eq!(
        get(&server, &node_path).await["spec"]["lostSince"],
        Value::Null,
        "its Workloads are still endpoints"
    );
    pass(25).await;
    let node = until(&server, &node_path, |node| node["spec"]["lostSince"].is_string()).await;
    let endpoints = "/v1/namespaces/default/endpoints/web";
    let count = |endpoints: &Value, field: &str| {
        let all = endpoints["ports"][0]["endpoints"].as_array().unwrap();
        all.iter().filter(|one| one[field] == true).count()
    };
    let (suspected, left) = if silent == "c" { (0, 2) } else { (1, 1) };
    let compiled = get(&server, endpoints).await;
    assert_eq!((count(&compiled, "ready"), count(&compiled, "nodeLost")), (2, suspected));
    let workload_path = format!("/v1/namespaces/default/workloads/w-{silent}");
    let address = format!("10.1.0.{}", host(&silent));
    if silent != "c" {
        assert_eq!(condition(&get(&server, &workload_path).await, "Used")["reason"], "Selected");
        let failed = json!({
            "address": address, "port": 80, "state": "Unhealthy", "since": "2026-11-21T09:00:00Z",
            "message": "no answer",
        });
        for node in &others {
            let health = json!({ "health": { "default/web": [failed] }, "healthComplete": true });
            send(&server, node, health).await;
        }
    }
    until(&server, endpoints, |compiled| count(compiled, "ready") == left).await;
    if silent != "c" {
        assert_eq!(condition(&get(&server, &workload_path).await, "Used")["reason"], "NodeLost");
    }
    // The field is set by the server: a body may repeat or omit it, but not change it.
    let spec = |since: Value| Some(json!({ "metadata": { "name": silent }, "spec": { "lostSince": since } }));
    assert_eq!(server.call("PUT", &node_path, spec(json!("2020-01-01T00:00:00Z"))).await.0, 422);
    assert_eq!(server.call("PUT", &node_path, spec(node["spec"]["lostSince"].clone())).await.0, 200);
    server.call("PUT", &node_path, Some(json!({ "metadata": { "name": silent }, "spec": {} }))).await;
    assert!(get(&server, &node_path).await["spec"]["lostSince"].is_string(), "left out, it stays");

    send(&server, &silent, json!({})).await;
    until(&server, &node_path, |node| node["spec"]["lostSince"].is_null()).await;
    let compiled = get(&server, endpoints).await;
    assert_eq!((count(&compiled, "ready"), count(&compiled, "nodeLost")), (2, 0));
    let record = until(&server, ADDRESS, |record| order(record).len() == 3).await;
    assert_eq!(order(&record)[2], silent, "it stands by");
}

/// F168: if all Nodes become silent at once, only some of them lose their addresses and Workloads, and the
/// cluster status reports the problem.
#[tokio::test]
async fn f168_when_all_nodes_fall_silent_only_a_part_is_taken_out() {
    let store = filled(1).await;
    let server = start(&store, &["a", "b", "c"]).await;
    for node in ["a", "b", "c"] {
        send(&server, node, json!({})).await;
    }
    until(&server, ADDRESS, |record| order(record).len() == 3).await;
    server.source.advance(100);
    let lost = |list: &Value| {
        list["items"].as_array().unwrap().iter().filter(|node| node["spec"]["lostSince"].is_string()).count()
    };
    until(&server, "/v1/nodes", |list| lost(list) == 1).await;
    let record = until(&server, ADDRESS, |record| order(record).len() == 2).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(order(&get(&server, ADDRESS).await), order(&record));
    assert_eq!(lost(&get(&server, "/v1/nodes").await), 1);
    let status = get(&server, "/v1/status").await;
    let problems = status["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["reason"] == "TooManySilent"), "{status:#}");
}

/// The peer key is sent to agents only, and remains the same after a restart of the server.
#[tokio::test]
async fn the_key_of_the_nodes_is_told_to_agents_only() {
    let store = filled(1).await;
    let server = start(&store, &["a"]).await;
    send(&server, "a", json!({})).await;
    let key = BASE64_STANDARD.encode([7; 32]);
    let told = feed(&server, "a").await.until("\"synced\"").await.concat();
    assert!(told.contains(&key), "{told}");
    for path in [
        "/v1/status",
        "/v1/nodes",
        "/v1/nodes/a",
        ADDRESS,
        "/v1/addresses",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/nodes/z/state",
    ] {
        let response = server.send(Request::get(path).body(Body::empty()).unwrap()).await;
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8_lossy(&text).contains(&key), "{path}");
    }
    let mut watch =
        Lines::new(server.send(Request::get("/v1/watch").body(Body::empty()).unwrap()).await.into_body());
    assert!(!watch.until("BOOKMARK").await.concat().contains(&key));
    server.running.stop().await;
    let stored = store.vault().await.unwrap();
    assert_eq!(stored["peer-key"].body, key.as_bytes());
    // A server without a vault stored the key with the statuses: that key is migrated.
    store.put_vault("peer-key", stored["peer-key"].version, None).await.unwrap();
    store.put_status("peer-key", BASE64_STANDARD.encode([9; 32]).as_bytes()).await.unwrap();
    let server = start(&store, &[]).await;
    let told = feed(&server, "a").await.until("\"synced\"").await.concat();
    assert!(told.contains(&BASE64_STANDARD.encode([9; 32])), "the stored key counts");
    assert!(!store.statuses().await.unwrap().contains_key("peer-key"));
}

/// Returns the part of a report with the facts of a node, among them the public key of its agent.
fn with_key(node: &str, key: Option<u8>) -> Value {
    let address = format!("192.0.2.{}", host(node));
    let mut facts = json!({ "addresses": [address], "subnets": { "eth0": ["192.0.2.0/24"] } });
    if let Some(byte) = key {
        facts["peerPublicKey"] = json!(BASE64_STANDARD.encode([byte; 32]));
    }
    json!({ "facts": facts })
}

/// The public keys that agents report reach the other candidates of an address with the address, and follow changes.
/// Older agents, which reject unknown fields of candidates, find none there.
#[tokio::test]
async fn public_keys_of_agents_are_sent_with_the_address() {
    let store = filled(1).await;
    let server = start(&store, &["a", "b"]).await;
    let (mut feed_a, mut feed_b) = (feed(&server, "a").await, feed(&server, "b").await);
    for keys in [[Some(1), None], [Some(1), Some(2)], [Some(3), Some(2)]] {
        for (node, key) in ["a", "b"].into_iter().zip(keys) {
            send(&server, node, with_key(node, key)).await;
        }
        let by_name = ["a", "b"].into_iter().zip(keys);
        let known = by_name.filter_map(|(node, key)| Some((node, BASE64_STANDARD.encode([key?; 32]))));
        let wanted = format!(r#""peerPublicKeys":{}"#, json!(known.collect::<BTreeMap<_, _>>()));
        for feed in [&mut feed_a, &mut feed_b] {
            let line = feed.until(&wanted).await.pop().unwrap();
            let frame: Value = serde_json::from_str(&line).unwrap();
            let candidates = frame["address"]["announcement"]["candidates"].as_array().unwrap();
            assert!(candidates.iter().all(|one| one.as_object().unwrap().len() == 3), "{line}");
        }
    }
    let node = get(&server, "/v1/nodes/a").await;
    assert_eq!(node["status"]["facts"]["peerPublicKey"], BASE64_STANDARD.encode([3; 32]));

    for wrong in [json!("key"), json!(BASE64_STANDARD.encode([1; 31])), json!(7), json!("")] {
        let mut report = report(1, with_key("a", None));
        report["facts"]["peerPublicKey"] = wrong.clone();
        let (status, body) = server.call("PUT", "/v1/nodes/a/report", Some(report)).await;
        assert_eq!((status, &body["errors"][0]["pointer"]), (422, &json!("/facts/peerPublicKey")), "{body}");
    }
    // An agent that loses its key, or is replaced by an older one, has none any more.
    send(&server, "a", with_key("a", None)).await;
    let lines = feed_b.until("\"candidates\":[{").await;
    let line = lines.last().unwrap();
    assert!(!line.contains(&BASE64_STANDARD.encode([3; 32])), "{line}");
}

/// F128: a pool whose addresses are in no network of a node is reported as a problem.
#[tokio::test]
async fn f128_a_pool_in_no_network_of_a_node_is_a_problem_on_the_status_page() {
    let store = filled(0).await;
    let server = start(&store, &["a"]).await;
    send(&server, "a", json!({})).await;
    for (name, range) in [("near", "192.0.2.128/25"), ("far", "198.51.100.0/24")] {
        let pool = json!({ "metadata": { "name": name }, "spec": { "addresses": [range] } });
        assert_eq!(server.call("POST", "/v1/addresspools", Some(pool)).await.0, 201);
    }
    let far = get(&server, "/v1/addresspools/far").await;
    assert_eq!(condition(&far, "Announced")["reason"], "NoNodeInSubnet");
    assert_eq!(condition(&get(&server, "/v1/addresspools/near").await, "Announced")["status"], "True");
    let status = get(&server, "/v1/status").await;
    let problems: Vec<_> =
        status["problems"].as_array().unwrap().iter().map(|one| one["object"].as_str().unwrap()).collect();
    assert_eq!(problems, ["AddressPool far"]);
}
