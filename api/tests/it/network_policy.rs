//! Network policy over HTTP: the frames of a feed that each change sends.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{self, Lines, Server};

/// Opens a feed of node n1. `policy` is the value of the header by which agents declare that they know network policy.
async fn open(server: &Server, resume: Option<&str>, policy: Option<&str>) -> Lines {
    let query = resume.map(|position| format!("?resume={position}")).unwrap_or_default();
    let mut request = Request::get(format!("/v1/nodes/n1/state{query}"));
    if let Some(policy) = policy {
        request = request.header("tidegate-network-policy", policy);
    }
    let response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status().as_u16(), 200);
    Lines::new(response.into_body())
}

async fn batch(feed: &mut Lines) -> Vec<Value> {
    let lines = feed.until("\"synced\"").await;
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the frames as `type key`, such as `policyWorkload shop/web`; the ids of sets are left out.
fn frames(batch: &[Value]) -> Vec<String> {
    let frame = |frame: &Value| {
        let name = frame["type"].as_str().unwrap();
        let key = frame["workload"].as_str().or_else(|| frame["workload"]["workload"].as_str());
        key.map_or_else(|| name.to_owned(), |key| format!("{name} {key}"))
    };
    batch.iter().map(frame).collect()
}

fn workload(name: &str, app: &str, address: &str) -> Value {
    json!({
        "kind": "Workload", "metadata": { "namespace": "shop", "name": name, "labels": { "app": app } },
        "spec": { "addresses": [address], "node": "n1", "ports": { "http": { "port": 8080 } } },
    })
}

fn policy(app: &str) -> Value {
    json!({
        "kind": "NetworkPolicy", "metadata": { "namespace": "shop", "name": "api" },
        "spec": {
            "selector": { "matchLabels": { "app": "api" } },
            "ingress": [{
                "from": [{ "workloadSelector": { "matchLabels": { "app": app } } }], "ports": [{ "port": "http" }],
            }],
        },
    })
}

async fn apply(server: &Server, items: Value) {
    let (status, body) = server.call("POST", "/v1/apply", Some(items)).await;
    assert_eq!(status, 200, "{body}");
}

/// A change of a workload sends its own frame only, and those of sets that it adds or removes. Agents that do not know network
/// policy receive none of these frames.
#[tokio::test]
async fn a_change_sends_the_frames_of_this_change_only() {
    let server = support::start().await;
    let node =
        json!({ "kind": "Node", "metadata": { "name": "n1" }, "spec": { "addresses": ["172.16.0.1"] } });
    let all = json!([
        node,
        workload("api-1", "api", "10.1.0.1"),
        workload("api-2", "api", "10.1.0.2"),
        workload("web", "web", "10.1.0.3"),
        workload("db", "db", "10.1.0.4"),
    ]);
    apply(&server, all).await;
    let mut feed = open(&server, None, Some("new")).await;
    let first = batch(&mut feed).await;
    assert_eq!(frames(&first), ["start", "network", "node", "synced"], "no policy yet");
    assert_eq!(first[3]["networkPolicy"], true);
    let position = first[3]["position"].as_str().unwrap().to_owned();

    apply(&server, json!([policy("web")])).await;
    let next = batch(&mut feed).await;
    let expected = [
        "policySet",
        "policyWorkload shop/api-1",
        "policyWorkload shop/api-2",
        "policyWorkload shop/web",
        "synced",
    ];
    assert_eq!(frames(&next), expected);
    let (set, api, web) = (&next[0]["set"], &next[1]["workload"], &next[3]["workload"]);
    assert_eq!((&api["ingress"], &api["egress"], &web["ingress"]), (&set["id"], &Value::Null, &Value::Null));
    assert_eq!(api["addresses"], json!(["10.1.0.1"]));
    assert_eq!(api["node"], "n1");
    assert_eq!(set["isolated"], true);
    let rule = &set["rules"][0];
    assert_eq!(rule["ports"], json!({ "protocol": "TCP", "first": 8080, "last": 8080 }));
    assert_eq!(rule["source"], json!({ "policy": "shop/api", "rule": 0 }));
    assert_eq!(web["peers"], json!([rule["peer"]["id"]]), "{rule}");

    // Not a part of policy, and a change that moves an address.
    let mut ready = workload("web", "web", "10.1.0.3");
    ready["spec"]["ready"] = json!(false);
    apply(&server, json!([ready, workload("api-1", "api", "10.1.0.9")])).await;
    assert_eq!(frames(&batch(&mut feed).await), ["policyWorkload shop/api-1", "synced"]);
    // Another number of the named port: a set of its own.
    let mut other = workload("api-2", "api", "10.1.0.2");
    other["spec"]["ports"]["http"]["port"] = json!(8081);
    apply(&server, json!([other])).await;
    assert_eq!(frames(&batch(&mut feed).await), ["policySet", "policyWorkload shop/api-2", "synced"]);
    // The last workload with the set, which no longer is one of the policy.
    apply(&server, json!([workload("api-2", "db", "10.1.0.2")])).await;
    let gone = batch(&mut feed).await;
    assert_eq!(frames(&gone), ["policySetRemoved", "policyWorkloadRemoved shop/api-2", "synced"]);

    let (_, shown) = server.call("GET", "/v1/namespaces/shop/networkpolicies/api", None).await;
    assert_eq!(shown["status"]["selected"], 1, "{shown}");
    assert_eq!(shown["status"]["conditions"][1]["reason"], "WorkloadsSelected", "{shown}");

    let mut resumed = open(&server, Some(&position), Some("known")).await;
    let frames_since = frames(&batch(&mut resumed).await);
    let expected = ["start", "policySet", "policyWorkload shop/api-1", "policyWorkload shop/web"];
    assert!(expected.iter().all(|frame| frames_since.iter().any(|one| one == frame)), "{frames_since:?}");
    let mut upgraded = open(&server, Some(&position), Some("new")).await;
    let full = batch(&mut upgraded).await;
    assert_eq!(full[0]["mode"], "full");
    assert_eq!(
        frames(&full)[3..],
        ["policySet", "policyWorkload shop/api-1", "policyWorkload shop/web", "synced"]
    );
    let mut older = open(&server, Some(&position), None).await;
    let older = batch(&mut older).await;
    assert!(frames(&older).iter().all(|frame| !frame.contains("policy")), "{older:?}");
    assert_eq!(older.last().unwrap().get("networkPolicy"), None);
}

/// Errors name the field and the remedy; nothing is accepted and then ignored.
#[tokio::test]
async fn settings_without_effect_are_refused() {
    let server = support::start().await;
    let team = json!({ "matchLabels": { "team": "a" } });
    let block = json!({ "cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"] });
    let cases = [
        (
            json!({ "ingress": [{ "from": [{ "namespaceSelector": team }] }] }),
            "/spec/ingress/0/from/0/namespaceSelector/matchLabels/team",
        ),
        (json!({ "policyTypes": ["Egress"], "ingress": [{}] }), "/spec/ingress"),
        (json!({ "policyTypes": ["Ingress"], "egress": [{}] }), "/spec/egress"),
        (json!({ "ingress": [{ "from": [{}] }] }), "/spec/ingress/0/from/0"),
        (
            json!({ "ingress": [{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8" }, "workloadSelector": {} }] }] }),
            "/spec/ingress/0/from/0",
        ),
        (
            json!({ "ingress": [{ "from": [{ "ipBlock": block }] }] }),
            "/spec/ingress/0/from/0/ipBlock/except/0",
        ),
        (
            json!({ "ingress": [{ "ports": [{ "port": 80, "endPort": 79 }] }] }),
            "/spec/ingress/0/ports/0/endPort",
        ),
        (
            json!({ "ingress": [{ "ports": [{ "port": "http", "endPort": 90 }] }] }),
            "/spec/ingress/0/ports/0/endPort",
        ),
        (
            json!({ "egress": [{ "to": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }], "ports": [{ "port": "http" }] }] }),
            "/spec/egress/0/ports/0/port",
        ),
    ];
    for (mut spec, pointer) in cases {
        spec["selector"] = json!({});
        let object = json!({ "metadata": { "name": "p" }, "spec": spec });
        let (status, problem) =
            server.call("POST", "/v1/namespaces/shop/networkpolicies", Some(object)).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{problem}");
    }
    let many: Vec<_> = (0..100).map(|port| json!({ "port": port + 1 })).collect();
    let peers: Vec<_> = (0..21).map(|_| json!({ "workloadSelector": {} })).collect();
    let spec = json!({ "selector": {}, "ingress": [{ "from": peers, "ports": many }] });
    let object = json!({ "metadata": { "name": "p" }, "spec": spec });
    let (status, problem) = server.call("POST", "/v1/namespaces/shop/networkpolicies", Some(object)).await;
    assert_eq!((status, &problem["errors"][0]["code"]), (422, &json!("TooLong")), "{problem}");
}

/// Input: connections of workloads and addresses. Output: the decision with the policies and the rule of each direction.
#[tokio::test]
async fn the_decision_on_a_connection_is_explained() {
    let server = support::start().await;
    let deny = json!({
        "kind": "NetworkPolicy", "metadata": { "namespace": "shop", "name": "deny" },
        "spec": { "selector": { "matchLabels": { "app": "db" } }, "policyTypes": ["Egress"] },
    });
    let items = json!([
        workload("api", "api", "10.1.0.1"),
        workload("web", "web", "10.1.0.3"),
        workload("db", "db", "10.1.0.4"),
        policy("web"),
        deny,
    ]);
    apply(&server, items).await;
    let explain = async |query: &str| server.call("GET", &format!("/v1/explain/policy?{query}"), None).await;
    let (status, found) = explain("from=shop/web&to=shop/api&port=8080").await;
    assert_eq!((status, &found["accepted"]), (200, &json!(true)), "{found}");
    assert_eq!(found["egress"], json!({ "accepted": true, "reason": "NotSelected", "policies": [] }));
    let rule = json!({ "policy": "shop/api", "rule": 0 });
    let accepted =
        json!({ "accepted": true, "reason": "RuleAccepts", "policies": ["shop/api"], "rule": rule });
    assert_eq!(found["ingress"], accepted);
    assert_eq!(found["destination"], json!({ "address": "10.1.0.1", "workload": "shop/api" }));
    for (query, direction, reason) in [
        ("from=shop/web&to=shop/api&port=8081&protocol=UDP", "ingress", "Isolated"),
        ("from=shop/web&to=shop/api", "ingress", "Isolated"),
        ("from=192.0.2.1&to=10.1.0.1&port=8080", "ingress", "Isolated"),
        ("from=shop/db&to=192.0.2.1&port=443", "egress", "Isolated"),
    ] {
        let (_, found) = explain(query).await;
        assert_eq!(found["accepted"], false, "{query}: {found}");
        assert_eq!(found[direction]["reason"], reason, "{query}: {found}");
    }
    // No node enforces the policies of a workload without one.
    let mut unplaced = workload("db", "db", "10.1.0.4");
    unplaced["spec"].as_object_mut().unwrap().remove("node");
    apply(&server, json!([unplaced])).await;
    let (_, found) = explain("from=shop/db&to=192.0.2.1&port=443").await;
    let expected = json!({ "accepted": true, "reason": "NotEnforced", "policies": ["shop/deny"] });
    assert_eq!(found["egress"], expected, "{found}");
    apply(&server, json!([workload("db", "db", "10.1.0.4")])).await;
    let (_, own) = explain("from=shop/db&to=shop/db&port=443").await;
    assert_eq!((&own["accepted"], &own["egress"]["reason"]), (&json!(true), &json!("SameAddress")), "{own}");
    for bad in [
        "from=shop/none&to=shop/api",
        "from=shop/web&to=fd00::1&port=1",
        "from=web&to=shop/api",
        "from=shop/web&to=shop/api&port=0",
    ] {
        assert_eq!(explain(bad).await.0, 400, "{bad}");
    }
}
