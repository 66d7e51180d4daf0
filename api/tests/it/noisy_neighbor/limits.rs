//! Namespace `greedy` at each of its quotas and at the limits of plans, repeated requests, apply sets and the
//! audit log, while namespace `shop` works on.

use api::base::config::Settings;
use http::Request;
use model::cluster::quota::Quotas;
use serde_json::{Value, json};

use crate::support::{
    self,
    secured::{self, Secured, Who},
};

/// Number of node ports and of pool addresses. Each namespace may have half of them.
const SHARED: u16 = 8;

/// Server with quotas, and tokens of operators of the namespaces `greedy` and `shop`.
struct Neighbors {
    secured: Secured,
    greedy: Who,
    shop: Who,
}

async fn start() -> Neighbors {
    let quotas = [
        "services=20",
        "endpoint-sets=10",
        "workloads=5",
        "endpoints=50",
        "node-ports=4",
        "load-balancer-addresses=4",
        "checked-endpoints=10",
    ];
    let quotas = Quotas::new(quotas.into_iter().map(|text| text.parse().unwrap()));
    let settings = support::settings(30000..=30000 + SHARED - 1);
    let cluster = settings.cluster.clone().with_quotas(quotas);
    let secured = secured::start_on(Settings { cluster, ..settings }).await;
    let last = SHARED - 1;
    let pool = json!({ "addresses": [format!("198.51.100.0-198.51.100.{last}")], "avoidBuggyIPs": false });
    let pool = json!({ "kind": "AddressPool", "metadata": { "name": "pool" }, "spec": pool });
    secured.admin("POST", "/v1/apply", Some(json!([pool]))).await;
    let operator = |namespace: &str| json!({ "role": "operator", "namespaces": [namespace] });
    let greedy = secured.token("greedy", operator("greedy")).await;
    let shop = secured.token("shop", operator("shop")).await;
    Neighbors { secured, greedy, shop }
}

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({ "kind": kind, "metadata": { "namespace": namespace, "name": name }, "spec": spec })
}

fn service(namespace: &str, name: &str) -> Value {
    object("Service", namespace, name, json!({ "ports": [{ "port": 80 }] }))
}

impl Neighbors {
    async fn apply(&self, who: &Who, objects: &[Value]) -> (u16, Value) {
        self.secured.call(who, "POST", "/v1/apply", Some(json!(objects))).await
    }

    async fn plan(&self, who: &Who, object: Value) -> String {
        let path = "/v1/plan?nodes=false";
        let (status, plan) = self.secured.call(who, "POST", path, Some(json!([object]))).await;
        assert_eq!(status, 200, "{plan}");
        plan["id"].as_str().unwrap().to_owned()
    }
}

/// Returns one object for each shared resource, with a number in its name.
fn one_of_each(namespace: &str, number: usize) -> [Value; 6] {
    let name = |kind: &str| format!("{kind}-{number}");
    let ports = json!([{ "port": 80 }]);
    let checked = json!({ "ports": ports, "healthCheck": { "type": "Tcp" } });
    let endpoints: Vec<_> =
        (1..=5).map(|host| json!({ "address": format!("10.1.{number}.{host}") })).collect();
    let balancer = json!({ "ports": ports, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false });
    [
        object("Service", namespace, &name("plain"), json!({ "ports": ports })),
        object("Service", namespace, &name("port"), json!({ "ports": ports, "type": "NodePort" })),
        object("Service", namespace, &name("balancer"), balancer),
        object("Service", namespace, &name("checked"), checked),
        object(
            "EndpointSet",
            namespace,
            &name("checked"),
            json!({ "service": name("checked"), "endpoints": endpoints }),
        ),
        object("Workload", namespace, &name("pod"), json!({ "addresses": [format!("10.2.0.{number}")] })),
    ]
}

/// A namespace that creates all it can is stopped at its quotas. Another namespace gets its own share of node
/// ports, pool addresses, objects, endpoints and checks.
#[tokio::test]
async fn a_namespace_at_its_quotas_leaves_the_share_of_another() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    let mut refused = 0;
    for number in 0..30 {
        for one in one_of_each("greedy", number) {
            let (status, answer) = neighbors.apply(greedy, &[one]).await;
            match (status, answer["code"].as_str()) {
                (200, _) => {}
                (409, Some("QuotaExceeded")) => refused += 1,
                _ => panic!("{status} {answer}"),
            }
        }
    }
    let (_, quota) = secured.call(greedy, "GET", "/v1/namespaces/greedy/quota", None).await;
    let full = |name: &str| {
        let resources = quota["resources"].as_array().unwrap();
        let one = resources.iter().find(|one| one["resource"] == name).unwrap();
        (one["used"].as_u64().unwrap(), one["limit"].as_u64().unwrap())
    };
    for (name, limit) in
        [("services", 20), ("node-ports", 4), ("load-balancer-addresses", 4), ("checked-endpoints", 10)]
    {
        assert_eq!(full(name), (limit, limit), "{quota:#}");
    }
    assert_eq!(full("workloads"), (5, 5));
    assert!(refused > 100, "{refused}");
    assert_eq!(secured.call(greedy, "GET", "/v1/namespaces/shop/quota", None).await.0, 403);
    for number in 0..2 {
        let (status, answer) = neighbors.apply(shop, &one_of_each("shop", number)).await;
        assert_eq!(status, 200, "{answer}");
        let path = format!("/v1/namespaces/shop/services/balancer-{number}");
        let (_, balancer) = secured.call(shop, "GET", &path, None).await;
        assert!(balancer["status"].to_string().contains("198.51.100."), "{balancer:#}");
    }
    // The rejection has the quota, the use, the limit and the remedy, also in a plan and a dry run.
    for path in ["/v1/apply?dryRun=true", "/v1/plan?nodes=false", "/v1/apply"] {
        let (status, answer) =
            secured.call(greedy, "POST", path, Some(json!([service("greedy", "x")]))).await;
        assert_eq!((status, &answer["code"]), (409, &json!("QuotaExceeded")), "{answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains("namespace greedy: 20 Services; 20 are in use"), "{detail}");
        let hint = answer["errors"][0]["hint"].as_str().unwrap();
        assert!(hint.contains("greedy/services=21"), "{hint}");
    }
}

/// Plans of one caller do not evict the plan of another one.
#[tokio::test]
async fn a_caller_with_many_plans_evicts_its_own() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    let kept = neighbors.plan(shop, service("shop", "web")).await;
    let first = neighbors.plan(greedy, service("greedy", "web-0")).await;
    for number in 1..=64 {
        neighbors.plan(greedy, service("greedy", &format!("web-{number}"))).await;
    }
    let apply =
        async |who: &Who, id: &str| secured.call(who, "POST", &format!("/v1/plans/{id}/apply"), None).await;
    assert_eq!(apply(shop, &kept).await.0, 200);
    assert_eq!(apply(greedy, &first).await.1["code"], "PlanOutdated");
}

/// Repeated requests of one namespace get the first response, however many keys another namespace uses.
#[tokio::test]
async fn a_caller_with_large_answers_evicts_its_own_idempotency_keys() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    let send = async |who: &Who, key: &str, object: &Value| {
        let Who::Token(token) = who else { panic!("a token") };
        let request = Request::post("/v1/apply")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(json!([object]).to_string().into());
        let response = secured.server.send(request.unwrap()).await;
        (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"))
    };
    let web = service("shop", "web");
    assert_eq!(send(shop, "k", &web).await, (200, false));
    let mut large = service("greedy", "large");
    large["metadata"]["annotations"] = json!({ "text": "x".repeat(250_000) });
    // More than the cache holds: 64 MiB.
    for number in 0..300 {
        assert_eq!(send(greedy, &number.to_string(), &large).await, (200, false));
    }
    assert_eq!(send(greedy, "299", &large).await, (200, true));
    assert_eq!(send(greedy, "0", &large).await, (200, false), "its oldest key is gone");
    assert_eq!(send(shop, "k", &web).await, (200, true));
}

/// Objects that one namespace adds to the apply set of others do not stop their prunes.
#[tokio::test]
async fn an_apply_set_is_pruned_in_spite_of_the_objects_of_another_namespace() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    let set = async |who: &Who, objects: &[Value]| {
        let path = "/v1/apply?applySet=kubernetes&prune=true";
        let (status, answer) = secured.call(who, "POST", path, Some(json!(objects))).await;
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().unwrap().clone();
        results.iter().filter(|one| one["action"] == "pruned").count()
    };
    let squatters: Vec<_> = (0..9).map(|number| service("greedy", &format!("s{number}"))).collect();
    assert_eq!(set(greedy, &squatters).await, 0);
    let admin = secured.admin.clone();
    assert_eq!(set(&admin, &[service("default", "one"), service("default", "two")]).await, 0);
    assert_eq!(set(&admin, &[service("default", "one")]).await, 1);
    assert_eq!(set(shop, &[service("shop", "one"), service("shop", "two")]).await, 0);
    assert_eq!(set(shop, &[service("shop", "two")]).await, 1);
    assert_eq!(set(&admin, &[]).await, 1);
    assert_eq!(set(greedy, &squatters[5..]).await, 5);
    for (path, status) in
        [("shop/services/two", 200), ("greedy/services/s8", 200), ("default/services/one", 404)]
    {
        let path = format!("/v1/namespaces/{path}");
        assert_eq!(secured.call(&admin, "GET", &path, None).await.0, status, "{path}");
    }
}

/// A caller that may write objects of one kind everywhere, and objects of other kinds in one namespace only, adds
/// members to the part of its namespace.
#[tokio::test]
async fn a_caller_with_a_permission_for_all_namespaces_is_limited_in_the_others() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, .. } = &neighbors;
    let rules = json!({ "rules": [{ "verbs": ["*"], "kinds": ["Node", "Workload"] }] });
    secured.admin("PUT", "/v1/roles/inventory", Some(rules)).await;
    let bindings = json!([{ "role": "inventory" }, { "role": "operator", "namespaces": ["greedy"] }]);
    let made =
        secured.admin("POST", "/v1/tokens", Some(json!({ "name": "both", "bindings": bindings }))).await;
    let both = Who::Token(made["token"].as_str().unwrap().to_owned());
    let inventory = secured.token("inventory", json!({ "role": "inventory" })).await;
    for (who, scope) in [
        (&both, json!(["greedy"])),
        (greedy, json!(["greedy"])),
        (&inventory, Value::Null),
        (&secured.admin, Value::Null),
    ] {
        let (_, answer) = secured.call(who, "GET", "/v1/whoami", None).await;
        assert_eq!(answer["applySetNamespaces"], scope, "{answer}");
    }
    let path = "/v1/apply?applySet=kubernetes";
    let (status, answer) = secured.call(&both, "POST", path, Some(json!([service("greedy", "web")]))).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["results"][0]["object"]["metadata"]["applySetLimited"], true, "{answer}");
}

/// Rejected requests of one namespace do not push the accepted writes of another one out of the audit log.
#[tokio::test]
async fn rejected_requests_leave_the_audit_entries_of_accepted_writes() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    assert_eq!(neighbors.apply(shop, &[service("shop", "web")]).await.0, 200);
    for _ in 0..2_200 {
        let path = "/v1/namespaces/shop/services/web";
        assert_eq!(secured.call(greedy, "DELETE", path, None).await.0, 403);
    }
    let audit = secured.admin("GET", "/v1/audit?limit=5000", None).await;
    let entries = audit["items"].as_array().unwrap();
    assert!(
        entries.iter().any(|one| one.to_string().contains("/v1/apply") && one["revision"].is_u64()),
        "{}",
        entries.len()
    );
}

/// Errors name the Service that has a requested address or port only to callers that may read this Service.
#[tokio::test]
async fn errors_do_not_name_services_of_another_namespace() {
    let neighbors = start().await;
    let Neighbors { greedy, shop, .. } = &neighbors;
    let spec =
        json!({ "ports": [{ "port": 80, "nodePort": 30001 }], "type": "NodePort", "clusterIP": "10.96.7.7" });
    assert_eq!(neighbors.apply(shop, &[object("Service", "shop", "secret", spec.clone())]).await.0, 200);
    let taken = object("Service", "greedy", "web", spec.clone());
    let (status, answer) = neighbors.apply(greedy, &[taken]).await;
    let errors = answer["errors"].to_string();
    assert_eq!(status, 422, "{answer}");
    assert!(errors.contains("10.96.7.7 is held by a Service of another namespace"), "{errors}");
    assert!(errors.contains("30001") && !answer.to_string().contains("secret"), "{answer}");
    let taken = object("Service", "shop", "web", spec);
    let (_, answer) = neighbors.apply(shop, &[taken]).await;
    assert!(answer.to_string().contains("Service shop/secret"), "{answer}");
}

/// The history has the same pages for a caller whether objects of other namespaces were written or not.
#[tokio::test]
async fn the_history_does_not_reveal_objects_of_another_namespace() {
    let neighbors = start().await;
    let Neighbors { secured, greedy, shop } = &neighbors;
    assert_eq!(neighbors.apply(shop, &[service("shop", "secret")]).await.0, 200);
    let labels = json!({ "metadata": { "labels": { "round": "2" } } });
    let path = "/v1/namespaces/shop/services/secret";
    assert_eq!(secured.call(shop, "PATCH", path, Some(labels)).await.0, 200);
    for name in ["secret", "absent"] {
        let path = format!("/v1/history?limit=1&kind=Service&namespace=shop&name={name}");
        let (status, page) = secured.call(greedy, "GET", &path, None).await;
        assert_eq!((status, &page["items"], &page["metadata"]["continue"]), (200, &json!([]), &Value::Null));
    }
    // Pages of the history contain as many visible entries as they can.
    for number in 0..3 {
        assert_eq!(neighbors.apply(greedy, &[service("greedy", &format!("w{number}"))]).await.0, 200);
        assert_eq!(neighbors.apply(shop, &[service("shop", &format!("w{number}"))]).await.0, 200);
    }
    let (_, page) = secured.call(greedy, "GET", "/v1/history?limit=2&kind=Service", None).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2, "{page:#}");
    let next = page["metadata"]["continue"].as_str().unwrap();
    let path = format!("/v1/history?limit=2&kind=Service&continue={next}");
    let (_, page) = secured.call(greedy, "GET", &path, None).await;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["metadata"]["continue"]), (1, &Value::Null));
}
