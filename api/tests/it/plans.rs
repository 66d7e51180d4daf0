//! Tests of plans: applying a plan has the predicted effects, and is possible only while its objects are
//! unchanged.

use std::collections::BTreeMap;

use api::base::config::Settings;
use axum::body::Body;
use http::Request;
use model::{
    cluster::config::Guards,
    primitives::quantity::{Epoch, Position, Revision},
};
use serde_json::{Value, json};

use crate::support::{self, Lines, START, Server};

async fn feed(server: &Server, node: &str) -> Lines {
    let request = Request::get(format!("/v1/nodes/{node}/state")).body(Body::empty()).unwrap();
    Lines::new(server.send(request).await.into_body())
}

async fn ok(server: &Server, method: &str, path: &str, body: Option<Value>) -> Value {
    let (status, answer) = server.call(method, path, body).await;
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer:#}");
    answer
}

fn service(name: &str, spec: Value) -> Value {
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

fn endpoints(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> =
        addresses.iter().map(|address| json!({ "address": address, "node": "a" })).collect();
    json!({
        "kind": "EndpointSet", "metadata": { "name": service },
        "spec": { "service": service, "endpoints": endpoints },
    })
}

fn balanced() -> Value {
    service("web", json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }))
}

/// Starts a server with default guards and two nodes in the network of the address pool that have verified the
/// newest state.
async fn cluster() -> Server {
    let settings = support::settings(30000..=32767);
    let guards = Guards { vips_percent: 50, endpoints_percent: 33 };
    let settings = Settings { cluster: settings.cluster.with_guards(guards), ..settings };
    let server = support::start_with(settings).await;
    let node = |name: &str| json!({ "kind": "Node", "metadata": { "name": name }, "spec": {} });
    let pool = json!({ "kind": "AddressPool", "metadata": { "name": "p" }, "spec": { "addresses": ["192.0.2.100/30"] } });
    let advertisement = json!({ "kind": "Advertisement", "metadata": { "name": "all" }, "spec": {} });
    ok(&server, "POST", "/v1/apply", Some(json!([node("a"), node("b"), pool, advertisement]))).await;
    let everything = Position { epoch: Epoch(u64::try_from(START).unwrap()), revision: Revision(1_000_000) };
    for (name, host) in [("a", 1), ("b", 2)] {
        let report = json!({
            "bootId": name, "agentVersion": "0", "mode": "nftables",
            "received": everything, "applied": everything, "verified": everything,
            "facts": { "addresses": [format!("192.0.2.{host}")], "subnets": { "eth0": ["192.0.2.0/24"] } },
        });
        ok(&server, "PUT", &format!("/v1/nodes/{name}/report"), Some(report)).await;
    }
    server
}

/// Data that an agent has received in its feed; `None` stands for a removed Service or address. Revisions are
/// left out, because a plan cannot predict them.
#[derive(Debug, Default, Clone, PartialEq)]
struct Brought {
    services: BTreeMap<String, Option<Value>>,
    addresses: BTreeMap<String, Option<Value>>,
    network: Option<Value>,
    node: Option<Value>,
}

fn without_revision(value: &Value) -> Value {
    let mut value = value.clone();
    value.as_object_mut().unwrap().remove("revision");
    value
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

impl Brought {
    fn take(&mut self, line: &str) {
        let mut frame: Value = serde_json::from_str(line).unwrap();
        match frame["type"].as_str().unwrap() {
            "service" => {
                let form = without_revision(&frame["service"]);
                self.services.insert(text(&form["service"]), Some(form));
            }
            "removed" => {
                self.services.insert(text(&frame["service"]), None);
            }
            "address" => {
                let form = without_revision(&frame["address"]);
                self.addresses.insert(text(&form["address"]), Some(form));
            }
            "addressRemoved" => {
                self.addresses.insert(text(&frame["address"]), None);
            }
            kind @ ("network" | "node") => {
                let kind = kind.to_owned();
                frame.as_object_mut().unwrap().remove("type");
                if kind == "network" { self.network = Some(frame) } else { self.node = Some(frame) }
            }
            _ => {}
        }
    }

    fn of_proposal(proposal: &Value) -> Self {
        let list = |name: &str| proposal[name].as_array().cloned().unwrap_or_default();
        let forms = |name: &str, key: &str| {
            let form = |form: &Value| (text(&form[key]), Some(without_revision(form)));
            list(name).iter().map(form).collect::<BTreeMap<_, _>>()
        };
        let mut services = forms("services", "service");
        services.extend(list("removed").iter().map(|key| (text(key), None)));
        let mut addresses = forms("addresses", "address");
        addresses.extend(list("addressesRemoved").iter().map(|address| (text(address), None)));
        Self {
            services,
            addresses,
            network: proposal.get("network").cloned(),
            node: proposal.get("node").cloned(),
        }
    }
}

/// Plans a write of the items, and replies to the query to node `a`. Returns the plan and the query.
async fn plan(server: &Server, feed: &mut Lines, items: &Value) -> (Value, Value) {
    let preview =
        json!({ "kernel": [{ "change": "added", "place": "set inet tidegate x", "line": "10.0.0.1" }] });
    let asked = async {
        let line = feed.until("\"ask\"").await.pop().unwrap();
        let ask: Value = serde_json::from_str(&line).unwrap();
        let mut reply = preview.clone();
        reply["answer"] = json!("plan");
        ok(server, "PUT", &format!("/v1/nodes/a/answers/{}", ask["id"]), Some(reply)).await;
        ask["question"].clone()
    };
    let (plan, question) = tokio::join!(ok(server, "POST", "/v1/plan", Some(items.clone())), asked);
    assert_eq!(plan["nodes"]["a"]["preview"]["kernel"], preview["kernel"]);
    assert_eq!(plan["nodes"]["b"], json!({ "error": "the agent is not connected" }));
    (plan, question)
}

/// Several changes are each planned and then applied by the id of the plan. Each plan predicts the data that the
/// agent then receives, including announcing nodes, which are selected after the write.
#[tokio::test]
async fn what_nodes_are_asked_about_is_what_they_are_told_when_the_plan_is_applied() {
    let server = cluster().await;
    let mut feed = feed(&server, "a").await;
    feed.until("\"synced\"").await;
    let node = json!({ "kind": "Node", "metadata": { "name": "a" }, "spec": { "proxy": { "masqueradeAll": true }, "workloadCIDRs": ["10.1.0.0/16"] } });
    let drained = json!({ "kind": "Node", "metadata": { "name": "a" }, "spec": { "unschedulable": true } });
    for items in [
        json!([balanced(), endpoints("web", &["10.1.1.2"])]),
        json!([endpoints("web", &["10.1.1.2", "10.1.1.3"])]),
        json!([service("plain", json!({ "ports": [{ "port": 80 }] })), balanced()]),
        json!([service("web", json!({ "ports": [{ "port": 80 }] }))]),
        json!([balanced()]),
        json!([node]),
        json!([drained]),
    ] {
        let before = ok(&server, "GET", "/v1/status", None).await["position"].clone();
        let (plan, question) = plan(&server, &mut feed, &items).await;
        assert_eq!(ok(&server, "GET", "/v1/status", None).await["position"], before, "a plan writes nothing");
        let wanted = Brought::of_proposal(&question);
        assert_ne!(wanted, Brought::default(), "{items}");
        let id = plan["id"].as_str().unwrap();
        ok(&server, "POST", &format!("/v1/plans/{id}/apply"), None).await;
        let mut brought = Brought::default();
        while brought != wanted {
            let line = feed.next().await.unwrap();
            // Heartbeats are sent when there is nothing else.
            assert!(
                !line.contains("\"heartbeat\""),
                "{items}: told {brought:#?}, but asked about {wanted:#?}"
            );
            brought.take(&line);
        }
    }
}

#[tokio::test]
async fn a_plan_names_the_fields_and_addresses_that_would_change() {
    let server = cluster().await;
    let items = json!([balanced(), endpoints("web", &["10.1.1.2"])]);
    let plan = ok(&server, "POST", "/v1/plan?nodes=false", Some(items.clone())).await;
    let actions = |plan: &Value| -> Vec<(String, String)> {
        let objects = plan["objects"].as_array().unwrap();
        objects.iter().map(|object| (text(&object["object"]), text(&object["action"]))).collect()
    };
    let created = |name: &str| (name.to_owned(), "created".to_owned());
    assert_eq!(actions(&plan), [created("Service default/web"), created("EndpointSet default/web")]);
    let gets = json!([{ "address": "192.0.2.100", "after": plan["addresses"][0]["after"] }]);
    assert_eq!(plan["addresses"], gets);
    let usage = &plan["addresses"][0]["after"];
    assert_eq!(usage["services"], json!(["default/web"]));
    assert_eq!(usage["nodes"].as_array().unwrap().len(), 2, "both nodes are candidates: {usage}");
    assert_eq!(plan["nodes"], json!({}));
    let id = plan["id"].as_str().unwrap();
    ok(&server, "POST", &format!("/v1/plans/{id}/apply"), None).await;

    let same = ok(&server, "POST", "/v1/plan?nodes=false", Some(items)).await;
    assert_eq!((actions(&same), &same["addresses"]), (vec![], &json!([])), "it is so already");
    let more = json!([endpoints("web", &["10.1.1.2", "10.1.1.3"])]);
    let plan = ok(&server, "POST", "/v1/plan?nodes=false", Some(more)).await;
    let field = &plan["objects"][0]["fields"][0];
    assert_eq!(field["pointer"], "/spec/endpoints/1", "{plan:#}");
    assert_eq!((field.get("before"), &field["after"]["address"]), (None, &json!("10.1.1.3")));
}

#[tokio::test]
async fn a_plan_is_refused_when_one_of_its_objects_has_changed() {
    let server = cluster().await;
    let plan = |items: Value| {
        let server = &server;
        async move { text(&ok(server, "POST", "/v1/plan?nodes=false", Some(items)).await["id"]) }
    };
    let apply = |id: String| {
        let server = &server;
        async move {
            let (status, answer) = server.call("POST", &format!("/v1/plans/{id}/apply"), None).await;
            (status, answer["code"].clone())
        }
    };
    let outdated = (409, json!("PlanOutdated"));
    let web = |port: u16| service("web", json!({ "ports": [{ "port": port }] }));
    assert_eq!(apply("0123".to_owned()).await, outdated, "there is no such plan");

    let (first, second) = (plan(json!([web(80)])).await, plan(json!([web(81)])).await);
    assert_eq!(apply(first.clone()).await.0, 200);
    assert_eq!(apply(second).await, outdated, "it would be made, and is there");
    assert_eq!(apply(first).await, outdated, "once");

    let (changes, other) = (plan(json!([web(82)])).await, plan(json!([web(83)])).await);
    ok(&server, "POST", "/v1/apply", Some(json!([service("else", json!({ "ports": [{ "port": 1 }] }))])))
        .await;
    assert_eq!(apply(changes).await.0, 200, "what it does not concern may change");
    assert_eq!(apply(other).await, outdated, "the Service has changed");

    let gone = plan(json!([web(84)])).await;
    ok(&server, "DELETE", "/v1/namespaces/default/services/web", None).await;
    assert_eq!(apply(gone).await, outdated, "the Service is gone");

    let late = plan(json!([web(85)])).await;
    server.source.advance(3600);
    assert_eq!(apply(late).await, outdated, "an hour has passed");
}

#[tokio::test]
async fn a_plan_with_a_prune_removes_what_it_has_named_and_nothing_else() {
    let server = cluster().await;
    let named = |name: &str| service(name, json!({ "ports": [{ "port": 80 }] }));
    let set = "applySet=shop&prune=true";
    ok(&server, "POST", "/v1/apply?applySet=shop", Some(json!([named("one"), named("two")]))).await;
    let plan = ok(&server, "POST", &format!("/v1/plan?nodes=false&{set}"), Some(json!([named("one")]))).await;
    assert_eq!(plan["objects"].as_array().unwrap().len(), 1, "{plan:#}");
    assert_eq!(
        (&plan["objects"][0]["object"], &plan["objects"][0]["action"]),
        (&json!("Service default/two"), &json!("pruned"))
    );
    // Another member is added after the plan.
    ok(&server, "POST", "/v1/apply?applySet=shop", Some(json!([named("three")]))).await;
    let id = plan["id"].as_str().unwrap();
    ok(&server, "POST", &format!("/v1/plans/{id}/apply"), None).await;
    for (name, status) in [("one", 200), ("two", 404), ("three", 200)] {
        let path = format!("/v1/namespaces/default/services/{name}");
        assert_eq!(server.call("GET", &path, None).await.0, status, "{name}");
    }
}

#[tokio::test]
async fn what_a_guard_holds_is_said_by_the_plan_and_confirmed_by_applying_it() {
    let server = cluster().await;
    let many: Vec<String> = (1..=60).map(|last| format!("10.1.1.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let web = service("web", json!({ "ports": [{ "port": 80 }] }));
    ok(&server, "POST", "/v1/apply", Some(json!([web, endpoints("web", &many)]))).await;
    let none = json!([endpoints("web", &[])]);
    assert_eq!(server.call("POST", "/v1/apply", Some(none.clone())).await.1["code"], "GuardHeld");
    let plan = ok(&server, "POST", "/v1/plan?nodes=false", Some(none)).await;
    assert!(text(&plan["guards"][0]).contains("60 of 60 endpoint addresses"), "{plan:#}");
    let path = format!("/v1/plans/{}/apply", text(&plan["id"]));
    ok(&server, "POST", &path, None).await;
    let audit = ok(&server, "GET", "/v1/audit", None).await["items"].clone();
    let paths: Vec<_> = audit.as_array().unwrap().iter().map(|entry| text(&entry["path"])).collect();
    assert!(paths.contains(&path), "to apply a plan is a deed: {paths:?}");
    assert!(!paths.contains(&"/v1/plan".to_owned()), "to make one is not: {paths:?}");
}
