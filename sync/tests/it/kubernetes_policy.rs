//! Tests of network policy of a cluster: the translation of pods and NetworkPolicies as golden files, and the decisions of a real
//! control server on them. `UPDATE_GOLDEN=1 cargo test -p sync` rewrites the files.

use std::collections::BTreeMap;

use model::kinds::resource::Kind;
use serde_json::{Value, json};
use sync::kubernetes::{
    resource::Resource,
    state::{Change, ClusterState, Id, needed},
    translate::{ClusterName, ISOLATED_LABEL, Mode, POD_LABEL, Settings, pod as translated, reduced_pod},
};

use crate::{
    cluster::{self, apiserver::ApiServer},
    kubernetes_end_to_end::adapter,
    kubernetes_translate::{check, directory, read, resource, shown},
    support::{Api, eventually},
};

fn state(cluster: Option<&str>, all: &[Value]) -> ClusterState {
    let cluster = cluster.map(|name| name.parse().unwrap());
    let settings = Settings { cluster, mode: Mode::LoadBalancer, class: None };
    let kinds = needed(false, false).into_iter().chain([Resource::Namespace]).chain(Resource::POLICY);
    let mut state = ClusterState::new(settings, kinds);
    for object in all {
        state.apply(resource(object), Change::Put(object.clone()));
    }
    state
}

/// The translation does not depend on the order in which objects arrive, nor on the other fields of pods than those that are kept.
#[test]
fn pods_and_policies_of_a_cluster_are_translated() {
    let all = read("policies.yaml");
    let whole = shown(&state(None, &all));
    check(&directory().join("golden/policies.yaml"), &whole);
    let backwards: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(shown(&state(None, &backwards)), whole);
    // Only a part of a pod is kept; nothing else of it matters.
    for pod in all.iter().filter(|object| object["kind"] == "Pod") {
        let reduced = reduced_pod(pod);
        assert!(reduced.to_string().len() < pod.to_string().len(), "{reduced}");
        assert_eq!(reduced_pod(&reduced), reduced);
        let settings = Settings { cluster: None, mode: Mode::LoadBalancer, class: None };
        let objects = |pod| translated(&settings, pod).objects;
        assert_eq!(objects(&reduced), objects(pod));
    }
    check(&directory().join("golden/policies_east.yaml"), &shown(&state(Some("east"), &all)));
}

/// A policy follows the labels of namespaces, also of those that are created and deleted.
#[test]
fn a_selector_of_namespaces_follows_their_labels() {
    let namespace = |name: &str, purpose: &str| json!({ "kind": "Namespace", "metadata": { "name": name, "labels": { "purpose": purpose } } });
    let policy = json!({
        "kind": "NetworkPolicy", "metadata": { "name": "api", "namespace": "shop" },
        "spec": { "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "purpose": "x" } } }] }] },
    });
    let mut state = state(None, std::slice::from_ref(&policy));
    let names = |state: &ClusterState| {
        let wanted = state.wanted().objects;
        let policy =
            wanted.values().find(|object| object.key().kind == Kind::NetworkPolicy).unwrap().to_json();
        let peers = policy["spec"]["ingress"][0]["from"].as_array().cloned().unwrap_or_default();
        let values = |peer: &Value| peer["namespaceSelector"]["matchExpressions"][0]["values"].clone();
        peers.iter().flat_map(|peer| values(peer).as_array().cloned().unwrap()).collect::<Vec<_>>()
    };
    assert!(names(&state).is_empty());
    state.apply(Resource::Namespace, Change::Put(namespace("b", "x")));
    state.apply(Resource::Namespace, Change::Put(namespace("a", "x")));
    assert_eq!(names(&state), ["a", "b"]);
    state.apply(Resource::Namespace, Change::Put(namespace("b", "y")));
    assert_eq!(names(&state), ["a"]);
    // The name is a label of every namespace, and may be combined with others.
    state.apply(Resource::Namespace, Change::Put(namespace("b", "x")));
    let expression = json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a"] });
    let mut by_both = policy.clone();
    by_both["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"] = json!([expression]);
    state.apply(Resource::NetworkPolicy, Change::Put(by_both));
    assert_eq!(names(&state), ["b"]);
    state.apply(Resource::NetworkPolicy, Change::Put(policy));
    state.apply(Resource::Namespace, Change::Put(namespace("b", "y")));
    // More namespaces than one expression may list.
    for number in 0..100 {
        state.apply(Resource::Namespace, Change::Put(namespace(&format!("n{number:02}"), "x")));
    }
    assert_eq!(names(&state).len(), 101);
    for number in 0..100 {
        let id = Id { namespace: String::new(), name: format!("n{number:02}") };
        state.apply(Resource::Namespace, Change::Gone(id));
    }
    assert_eq!(names(&state), ["a"]);
}

fn namespace(name: &str, labels: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    object
}

fn pod(namespace: &str, name: &str, addresses: &[&str]) -> Value {
    let addresses: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "a", "image": "x", "ports": [{ "name": "http", "containerPort": 8080 }] }] },
        "status": { "phase": "Running", "podIPs": addresses, "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": name, "namespace": "shop" }, "spec": spec })
}

/// Returns the decisions of the control server: true for accepted connections.
fn decisions<'a>(api: &Api, questions: &[&'a str]) -> BTreeMap<&'a str, bool> {
    let decide = |question: &&'a str| {
        let (status, found) = api.call("GET", &format!("/v1/explain/policy?{question}"), None);
        assert_eq!(status, 200, "{question}: {found}");
        (*question, found["accepted"].as_bool().unwrap())
    };
    questions.iter().map(decide).collect()
}

/// Pods, namespaces and policies in; decisions of Kubernetes out, also after labels of a namespace move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_of_a_cluster_decide_in_tidegate_as_in_kubernetes() {
    let server = ApiServer::start(false).await;
    let api = Api::memory();
    server.put(&namespace("shop", &json!({})));
    server.put(&namespace("ops", &json!({ "purpose": "monitoring" })));
    server.put(&namespace("other", &json!({})));
    server.put(&pod("shop", "api", &["10.1.1.3", "fd00::3"]));
    server.put(&pod("shop", "web", &["10.1.1.2", "fd00::2"]));
    server.put(&pod("ops", "prometheus", &["10.1.1.4"]));
    server.put(&pod("other", "stranger", &["10.1.1.5", "fd00::5"]));
    let mut host = pod("shop", "of-the-host", &["192.0.2.1"]);
    host["spec"]["hostNetwork"] = json!(true);
    server.put(&host);
    server.put(&policy("deny", &json!({ "podSelector": {}, "policyTypes": ["Ingress"] })));
    server.put(&policy(
        "api",
        &json!({
            "podSelector": { "matchLabels": { "app": "api" } }, "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [
                    { "podSelector": { "matchLabels": { "app": "web" } } },
                    { "namespaceSelector": { "matchLabels": { "purpose": "monitoring" } } },
                    { "ipBlock": { "cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"] } },
                ],
                "ports": [{ "port": "http" }],
            }],
        }),
    ));
    let _adapter = adapter(&server, &api.url, &["--network-policies"]);
    eventually("policies", || api.names("networkpolicies"), |names| *names == ["api", "deny"]);
    eventually("workloads", || api.names("workloads"), |names| names.len() == 4);
    let monitoring = "from=ops/prometheus&to=shop/api&port=8080";
    let stranger = "from=other/stranger&to=shop/api&port=8080";
    let expected = [
        ("from=shop/web&to=shop/api&port=8080", true),
        ("from=fd00::2&to=fd00::3&port=8080", true),
        // The port of the name only, and no ICMP.
        ("from=shop/web&to=shop/api&port=8081", false),
        ("from=shop/web&to=shop/api&port=8080&protocol=UDP", false),
        ("from=shop/web&to=shop/api", false),
        (monitoring, true),
        (stranger, false),
        ("from=fd00::5&to=fd00::3&port=8080", false),
        ("from=203.0.113.1&to=shop/api&port=8080", true),
        ("from=203.0.113.129&to=shop/api&port=8080", false),
        // Isolated by the other policy; egress is not.
        ("from=shop/api&to=shop/web&port=8080", false),
        ("from=shop/api&to=other/stranger&port=8080", true),
        // Policies do not apply to pods of the host network.
        ("from=other/stranger&to=192.0.2.1&port=8080", true),
    ];
    let questions = expected.map(|(question, _)| question);
    assert_eq!(decisions(&api, &questions), BTreeMap::from(expected));
    // The label moves to another namespace.
    server.put(&namespace("ops", &json!({})));
    server.put(&namespace("other", &json!({ "purpose": "monitoring" })));
    let moved = BTreeMap::from([(monitoring, false), (stranger, true)]);
    eventually("the label moves", || decisions(&api, &[monitoring, stranger]), |found| *found == moved);
    // A pod that has ended is no longer selected, and its address is free for others.
    let mut ended = pod("shop", "web", &["10.1.1.2", "fd00::2"]);
    ended["status"]["phase"] = json!("Succeeded");
    server.put(&ended);
    eventually("the pod ends", || api.names("workloads"), |names| !names.contains(&"web".to_owned()));
    let free = "from=10.1.1.2&to=shop/api&port=8080";
    eventually(
        "the address is free",
        || decisions(&api, &[free]),
        |found| *found == BTreeMap::from([(free, false)]),
    );
    for name in ["api", "deny"] {
        server.delete(&policy(name, &json!({})));
    }
    eventually("no policies", || api.names("networkpolicies"), Vec::is_empty);
    assert_eq!(decisions(&api, &["from=10.9.9.9&to=shop/api&port=1"]).values().next(), Some(&true));
    let of_policy = |rule: &String| rule.ends_with(" pods") || rule.contains("networking");
    let asked: Vec<_> = server.asked().into_iter().filter(of_policy).collect();
    let allowed: Vec<_> = cluster::rbac::allowed("network-policies.yaml").into_iter().collect();
    assert_eq!(asked, allowed);
}

/// Pods are recognized by their UIDs: a list with one of the known ones is believed, a list of others with their names is not.
#[test]
fn a_list_of_pods_is_believed_if_it_has_a_known_one() {
    let pods = |version: &str| {
        ["a", "b", "c"].map(|name| {
            let mut pod = pod("shop", name, &["10.1.1.1"]);
            pod["metadata"]["uid"] = json!(format!("{name}-{version}"));
            pod
        })
    };
    let names = |state: &ClusterState| {
        state.wanted().objects.keys().map(|key| key.name.to_string()).collect::<Vec<_>>()
    };
    let mut state = state(None, &[]);
    state.apply(Resource::Pod, Change::Listed(pods("1").to_vec()));
    state.apply(Resource::Pod, Change::Listed(pods("1")[..2].to_vec()));
    assert_eq!(names(&state), ["a", "b"]);
    state.apply(Resource::Pod, Change::Listed(pods("2")[..1].to_vec()));
    assert_eq!(names(&state), ["a", "b"]);
}

/// More pods than a fifth of all objects end at once, as when a deployment is scaled down: no confirmation is necessary. The
/// removal of many other objects is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pods_may_end_at_once() {
    let server = ApiServer::start(false).await;
    let api = Api::memory();
    let pods: Vec<_> =
        (1..=20).map(|number| pod("shop", &format!("p{number}"), &[&format!("10.1.1.{number}")])).collect();
    pods.iter().for_each(|pod| server.put(pod));
    let adapter = adapter(&server, &api.url, &["--pods"]);
    eventually("workloads", || api.names("workloads"), |names| names.len() == 20);
    pods.iter().skip(1).for_each(|pod| server.delete(pod));
    eventually("one is left", || api.names("workloads"), |names| *names == ["p1"]);
    adapter.sync.wait_until_equal();
}

/// Gives an object this number of labels. The first one of a pod is `app`.
fn with_labels(mut object: Value, count: usize) -> Value {
    let have = object["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len);
    for number in have..count {
        object["metadata"]["labels"][format!("more-{number}")] = json!("x");
    }
    object
}

/// Pods and a policy with as many labels as an object may have, and more: the policy applies to all of the pods, and those with too
/// many labels are isolated in both directions until they are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_and_policies_with_any_number_of_labels_are_enforced() {
    for (flags, prefix, labels_max) in
        [(&["--network-policies"][..], "", 98), (&["--network-policies", "--cluster", "east"], "east--", 97)]
    {
        let server = ApiServer::start(false).await;
        let api = Api::memory();
        for name in ["shop", "other"] {
            server.put(&namespace(name, &json!({})));
        }
        server.put(&pod("other", "stranger", &["10.1.1.9"]));
        let counts = [("plain", 1), ("full", labels_max), ("over", labels_max + 1), ("many", 150)];
        for (number, (name, count)) in counts.into_iter().enumerate() {
            server.put(&with_labels(pod("shop", name, &[&format!("10.1.1.{number}")]), count));
        }
        let deny = policy("deny", &json!({ "podSelector": {}, "policyTypes": ["Ingress"] }));
        server.put(&with_labels(deny, 100));
        let adapter = adapter(&server, &api.url, flags);
        adapter.sync.wait_until_equal();
        eventually("all Workloads", || api.names("workloads"), |names| names.len() == 5);
        assert_eq!(api.names("networkpolicies"), ["deny", "tidegate-isolated-pods"], "{prefix}");
        for (name, count) in counts {
            let [to, from] = [("other/stranger", name), (name, "other/stranger")].map(|(from, to)| {
                let named = |name: &str| {
                    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
                    format!("{prefix}{namespace}/{name}")
                };
                let question = format!("from={}&to={}&port=8080", named(from), named(to));
                decisions(&api, &[&question])[question.as_str()]
            });
            assert_eq!((to, from), (false, count <= labels_max), "{prefix}{name}");
        }
        let is_reported = |events: &Vec<Value>| {
            let of = |event: &Value| event["regarding"]["name"].as_str().unwrap_or_default().to_owned();
            let warnings = events.iter().filter(|event| event["type"] == "Warning");
            let mut names: Vec<_> = warnings.map(of).collect();
            names.sort_unstable();
            names == ["many", "over"]
        };
        eventually("events", || server.all("apis/events.k8s.io/v1", "events"), is_reported);
        for name in ["over", "many"] {
            server.delete(&pod("shop", name, &[]));
        }
        eventually("the policy is gone", || api.names("networkpolicies"), |names| *names == ["deny"]);
    }
}

/// A pod cannot choose the labels of the adapter, and a policy of the cluster cannot replace the one that isolates pods.
#[test]
fn isolation_cannot_be_claimed_nor_replaced_by_objects_of_the_cluster() {
    let keys =
        |state: &ClusterState| state.wanted().objects.keys().map(ToString::to_string).collect::<Vec<_>>();
    let mut named_alike = policy("tidegate-isolated-pods", &json!({ "podSelector": {}, "ingress": [{}] }));
    let mut liar = pod("shop", "liar", &["10.1.1.1"]);
    liar["metadata"]["labels"] = json!({ ISOLATED_LABEL: "labels", POD_LABEL: "x" });
    let mut state = state(None, &[named_alike.clone(), liar]);
    let workload =
        state.wanted().objects.values().find(|one| one.key().kind == Kind::Workload).unwrap().clone();
    assert_eq!(workload.metadata.labels.len(), 1);
    // No cluster can have the name that stands for the one without a name.
    assert!(workload.metadata.labels[POD_LABEL].parse::<ClusterName>().is_err());
    let over = with_labels(pod("shop", "over", &["10.1.1.2"]), 99);
    state.apply(Resource::Pod, Change::Put(over.clone()));
    let with_isolated = keys(&state);
    assert_eq!(with_isolated.len(), 4, "{with_isolated:?}");
    assert!(with_isolated.contains(&"NetworkPolicy shop/tidegate-isolated-pods".to_owned()));
    named_alike["spec"] = json!({ "podSelector": {} });
    state.apply(Resource::NetworkPolicy, Change::Put(named_alike.clone()));
    assert_eq!(keys(&state), with_isolated);
    state.apply(Resource::NetworkPolicy, Change::Gone(Id::of(&named_alike)));
    assert!(keys(&state).contains(&"NetworkPolicy shop/tidegate-isolated-pods".to_owned()));
    // Isolated until the last such pod is gone, or has fewer labels.
    state.apply(Resource::Pod, Change::Put(with_labels(pod("shop", "third", &["10.1.1.3"]), 120)));
    state.apply(Resource::Pod, Change::Put(pod("shop", "third", &["10.1.1.3"])));
    assert!(keys(&state).contains(&"NetworkPolicy shop/tidegate-isolated-pods".to_owned()));
    state.apply(Resource::Pod, Change::Gone(Id::of(&over)));
    assert_eq!(keys(&state), ["Workload shop/liar", "Workload shop/third"]);
}

/// With `--pods`, a pod with too many labels is a Workload without them. The adapter writes no policies.
#[test]
fn without_policies_a_pod_with_too_many_labels_is_a_workload_without_them() {
    let settings = Settings { cluster: None, mode: Mode::LoadBalancer, class: None };
    let mut state = ClusterState::new(settings, [Resource::Pod]);
    state.apply(Resource::Pod, Change::Put(with_labels(pod("shop", "over", &["10.1.1.2"]), 99)));
    let wanted = state.wanted().objects;
    let found: Vec<_> = wanted.values().map(|one| (one.key().kind, one.metadata.labels.len())).collect();
    assert_eq!(found, [(Kind::Workload, 2)]);
}

/// The control server rejects a Workload for a quota, and a policy because another author has created it: events of the pod and of
/// the NetworkPolicy have the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejections_of_the_control_server_are_events_of_the_pod_and_the_policy() {
    let server = ApiServer::start(false).await;
    let api = Api::memory_with(&["--quota", "workloads=1"]);
    api.apply(&json!({
        "kind": "NetworkPolicy", "metadata": { "name": "deny", "namespace": "shop" },
        "spec": { "selector": { "matchLabels": { "app": "x" } } },
    }));
    server.put(&namespace("shop", &json!({})));
    server.put(&pod("shop", "first", &["10.1.1.1"]));
    server.put(&policy("deny", &json!({ "podSelector": {} })));
    let adapter = adapter(&server, &api.url, &["--network-policies"]);
    eventually("the first Workload", || api.names("workloads"), |names| *names == ["first"]);
    server.put(&pod("shop", "second", &["10.1.1.2"]));
    let rejections = || {
        let events = server.all("apis/events.k8s.io/v1", "events");
        let text = |event: &Value, pointer: &str| {
            event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let refused =
            events.iter().filter(|event| event["reason"] == "Refused" && event["type"] == "Warning");
        let mut refused: Vec<_> = refused
            .map(|event| ["/regarding/kind", "/regarding/name", "/note"].map(|pointer| text(event, pointer)))
            .collect();
        refused.sort_unstable();
        refused
    };
    let found = eventually("events", rejections, |found| found.len() == 2);
    let [policy_event, pod_event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((policy_event[0].as_str(), policy_event[1].as_str()), ("NetworkPolicy", "deny"));
    assert!(policy_event[2].contains("belongs to none"), "{policy_event:?}");
    assert_eq!((pod_event[0].as_str(), pod_event[1].as_str()), ("Pod", "second"));
    assert!(pod_event[2].contains("quota"), "{pod_event:?}");
    // When the reasons are gone, the objects are written, and there are no further events.
    server.delete(&pod("shop", "first", &[]));
    let (status, answer) = api.call("DELETE", "/v1/namespaces/shop/networkpolicies/deny", None);
    assert_eq!(status, 200, "{answer}");
    adapter.sync.wait_until_equal();
    assert_eq!((api.names("workloads"), rejections()), (vec!["second".to_owned()], found));
}
