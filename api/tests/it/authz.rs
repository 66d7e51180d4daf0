//! Tests of tokens and roles, and of the permissions on each object in writes, listings and watches.

use serde_json::{Value, json};

use crate::support::{
    self, Lines,
    secured::{self, Secured, Who},
};

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "kind": "Service", "metadata": { "name": name, "namespace": namespace },
        "spec": { "ports": [{ "port": 80 }] },
    })
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    let name = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    items.iter().map(name).collect()
}

/// Starts a server with a Service in each of the namespaces `team-a` and `team-b`, and creates a token with
/// the role `operator` in `team-a`.
async fn two_teams() -> (Secured, Who) {
    let secured = secured::start().await;
    let both = json!([service("team-a", "web"), service("team-b", "web")]);
    secured.admin("POST", "/v1/apply", Some(both)).await;
    let limited = json!({ "role": "operator", "namespaces": ["team-a"] });
    let team_a = secured.token("team-a", limited).await;
    (secured, team_a)
}

/// A token limited to one namespace can neither read nor change objects of another, nor any pool.
#[tokio::test]
async fn f008_a_token_of_one_namespace_sees_and_changes_nothing_of_another() {
    let (secured, team) = two_teams().await;
    let own = "/v1/namespaces/team-a/services";
    let other = "/v1/namespaces/team-b/services";
    let patch = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(secured.call(&team, "PATCH", &format!("{own}/web"), Some(patch.clone())).await.0, 200);
    // The response is the same for existing and missing objects.
    for name in ["web", "none"] {
        for (method, body) in [("GET", None), ("PATCH", Some(&patch)), ("DELETE", None)] {
            let (status, answer) =
                secured.call(&team, method, &format!("{other}/{name}"), body.cloned()).await;
            assert_eq!((status, &answer["code"]), (403, &json!("Forbidden")), "{method} {name}: {answer}");
            assert!(!answer.to_string().contains("there is"), "{answer}");
        }
    }
    let (status, _) = secured.call(&team, "POST", other, Some(service("team-b", "new"))).await;
    assert_eq!(status, 403);
    // The path of the own namespace does not lead to objects of another.
    let (status, _) = secured.call(&team, "POST", own, Some(service("team-b", "new"))).await;
    assert_eq!(status, 422);
    let pool = json!({ "metadata": { "name": "p" }, "spec": { "addresses": ["203.0.113.0/28"] } });
    assert_eq!(secured.call(&team, "POST", "/v1/addresspools", Some(pool)).await.0, 403);
    assert_eq!(secured.call(&team, "GET", "/v1/nodes", None).await.0, 403);
    let (_, all) = secured.call(&team, "GET", "/v1/services", None).await;
    assert_eq!(names(&all), ["team-a/web"]);
    let (_, endpoints) = secured.call(&team, "GET", "/v1/endpoints", None).await;
    assert_eq!(endpoints["items"].as_array().unwrap().len(), 1, "{endpoints}");
    let (_, namespaces) = secured.call(&team, "GET", "/v1/namespaces", None).await;
    assert_eq!(namespaces["items"], json!([{ "name": "team-a", "objects": { "Service": 1 } }]));
    // A listing across namespaces is rejected rather than silently filtered.
    assert_eq!(secured.call(&team, "GET", "/v1/traffic", None).await.0, 403);
    assert_eq!(secured.call(&team, "GET", "/v1/traffic?namespace=team-a", None).await.0, 200);
}

/// `apply`, plan, prune and rollback with one object of another namespace change nothing, and the error lists
/// every missing permission.
#[tokio::test]
async fn bulk_writes_plans_prunes_and_rollbacks_look_at_each_object() {
    let (secured, team) = two_teams().await;
    let mixed = json!([service("team-a", "one"), service("team-b", "two"), service("team-b", "three")]);
    for path in ["/v1/apply", "/v1/apply?dryRun=true", "/v1/plan?nodes=false"] {
        let (status, answer) = secured.call(&team, "POST", path, Some(mixed.clone())).await;
        assert_eq!(status, 403, "{path}: {answer}");
        let pointers: Vec<_> =
            answer["errors"].as_array().unwrap().iter().map(|error| error["pointer"].clone()).collect();
        assert!(pointers.contains(&json!("/items/1")) && pointers.contains(&json!("/items/2")), "{answer}");
        assert!(!pointers.contains(&json!("/items/0")), "{answer}");
    }
    assert_eq!(secured.call(&team, "GET", "/v1/namespaces/team-a/services/one", None).await.0, 404);
    // The plan of a permitted caller, applied by one without permission.
    let plan = secured.admin("POST", "/v1/plan?nodes=false", Some(json!([service("team-b", "two")]))).await;
    let apply = format!("/v1/plans/{}/apply", plan["id"].as_str().unwrap());
    assert_eq!(secured.call(&team, "POST", &apply, None).await.0, 403);
    // A prune leaves the members of an apply set in another namespace alone and does not name them.
    let set = json!([service("team-a", "s1"), service("team-b", "s2")]);
    secured.admin("POST", "/v1/apply?applySet=set", Some(set)).await;
    for more in ["", "&dryRun=true"] {
        let path = format!("/v1/apply?applySet=set&prune=true{more}");
        let (status, answer) =
            secured.call(&team, "POST", &path, Some(json!([service("team-a", "s1")]))).await;
        assert_eq!(status, 200, "{answer}");
        assert!(!answer.to_string().contains("s2"), "{answer}");
    }
    let plan = "/v1/plan?applySet=set&prune=true&nodes=false";
    let (status, answer) = secured.call(&team, "POST", plan, Some(json!([service("team-a", "s1")]))).await;
    assert_eq!((status, &answer["objects"]), (200, &json!([])), "{answer}");
    secured.admin("GET", "/v1/namespaces/team-b/services/s2", None).await;
    // The rollback would change objects written by others.
    let (status, answer) = secured.call(&team, "POST", "/v1/rollback", Some(json!({ "revision": 1 }))).await;
    assert_eq!(status, 403, "{answer}");
    let own = secured.call(&team, "POST", "/v1/apply", Some(json!([service("team-a", "mine")]))).await.1;
    let undo = json!({ "revision": own["revision"], "only": true });
    assert_eq!(secured.call(&team, "POST", "/v1/rollback", Some(undo)).await.0, 200);
}

/// A watch over all namespaces by a token that is limited to one sends only objects of that namespace, including
/// deletions, and ends when the token is revoked.
#[tokio::test]
async fn a_watch_shows_what_may_be_seen_and_ends_with_the_token() {
    let (secured, team) = two_teams().await;
    let mut lines = Lines::new(secured.send(&team, "GET", "/v1/watch", None).await.into_body());
    let mut seen = lines.until("BOOKMARK").await;
    for namespace in ["team-b", "team-a"] {
        secured.admin("DELETE", &format!("/v1/namespaces/{namespace}/services/web"), None).await;
    }
    seen.extend(lines.until("DELETED").await);
    assert!(seen.iter().all(|line| !line.contains("team-b")), "{seen:?}");
    assert!(seen.iter().any(|line| line.contains("ADDED") && line.contains("team-a")), "{seen:?}");
    let tokens = secured.admin("GET", "/v1/tokens", None).await;
    let of_team = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "team-a").unwrap();
    secured.admin("DELETE", &format!("/v1/tokens/{}", of_team["id"].as_str().unwrap()), None).await;
    // The next change is not sent any more.
    secured.admin("POST", "/v1/apply", Some(json!([service("team-a", "late")]))).await;
    let last = lines.until("ERROR").await;
    assert!(last.iter().all(|line| !line.contains("late")), "{last:?}");
    assert!(lines.next().await.is_none());
    assert_eq!(secured.call(&team, "GET", "/v1/whoami", None).await.0, 401);
}

#[tokio::test]
async fn history_shows_of_each_write_what_may_be_seen() {
    let (secured, team) = two_teams().await;
    secured.admin("POST", "/v1/apply", Some(json!([service("team-b", "secret")]))).await;
    let (status, list) = secured.call(&team, "GET", "/v1/history", None).await;
    assert_eq!(status, 200, "{list}");
    assert!(list.to_string().contains("team-a") && !list.to_string().contains("team-b"), "{list}");
    let entries = secured.admin("GET", "/v1/history", None).await;
    let revision = |text: &str| {
        let items = entries["items"].as_array().unwrap();
        items.iter().find(|item| item.to_string().contains(text)).unwrap()["revision"].clone()
    };
    let (status, both) =
        secured.call(&team, "GET", &format!("/v1/history/{}", revision("team-a")), None).await;
    assert_eq!(status, 200);
    assert!(!both.to_string().contains("team-b"), "{both}");
    let (status, answer) =
        secured.call(&team, "GET", &format!("/v1/history/{}", revision("secret")), None).await;
    assert_eq!(status, 403, "{answer}");
}

/// A token limited to an address pool and a range of endpoint addresses can write neither a Service with
/// addresses of another pool, nor an EndpointSet or Workload with addresses outside the range.
#[tokio::test]
async fn pools_and_ranges_of_endpoints_are_granted() {
    let secured = secured::start().await;
    for (name, range) in [("mine", "203.0.113.0/28"), ("theirs", "203.0.113.16/28")] {
        let pool = json!({ "metadata": { "name": name }, "spec": { "addresses": [range] } });
        secured.admin("POST", "/v1/addresspools", Some(pool)).await;
    }
    let binding = json!({
        "role": "operator", "namespaces": ["team-a"], "pools": ["mine"], "endpointRanges": ["10.1.0.0/16"],
    });
    let team = secured.token("team", binding).await;
    let balanced = |name: &str, balancer: Value| {
        let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }], "loadBalancer": balancer });
        ("services", json!({ "metadata": { "name": name }, "spec": spec }))
    };
    let set = |name: &str, address: &str| {
        let spec = json!({ "service": "web", "endpoints": [{ "address": address }] });
        ("endpointsets", json!({ "metadata": { "name": name }, "spec": spec }))
    };
    let workload = |name: &str, address: &str| {
        ("workloads", json!({ "metadata": { "name": name }, "spec": { "addresses": [address] } }))
    };
    let outside = json!({ "ports": [{ "port": 80 }], "externalIPs": ["192.0.2.9"] });
    let refused = [
        balanced("a", json!({})),
        balanced("b", json!({ "pool": "theirs" })),
        balanced("c", json!({ "pool": "mine", "addresses": ["203.0.113.17"] })),
        balanced("d", json!({ "addresses": ["192.0.2.7"] })),
        ("services", json!({ "metadata": { "name": "e" }, "spec": outside })),
        set("f", "10.2.0.1"),
        set("g", "2001:db8::1"),
        workload("h", "10.2.0.1"),
    ];
    for (path, body) in refused {
        let path = format!("/v1/namespaces/team-a/{path}");
        let (status, answer) = secured.call(&team, "POST", &path, Some(body.clone())).await;
        assert_eq!(status, 403, "{body}: {answer}");
        assert!(answer["errors"][0]["pointer"].as_str().unwrap().starts_with("/spec/"), "{answer}");
    }
    let allowed = [
        balanced("a", json!({ "pool": "mine", "addresses": ["203.0.113.3"] })),
        set("f", "10.1.0.1"),
        workload("h", "10.1.0.2"),
        ("services", json!({ "metadata": { "name": "inside" }, "spec": { "ports": [{ "port": 80 }] } })),
    ];
    for (path, body) in allowed {
        let path = format!("/v1/namespaces/team-a/{path}");
        let (status, answer) = secured.call(&team, "POST", &path, Some(body.clone())).await;
        assert_eq!(status, 201, "{body}: {answer}");
    }
    // Text in answers can be tested in the granted range only.
    let check = |name: &str| {
        let check = json!({ "type": "Http", "http": { "expectBody": "secret" } });
        json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }], "healthCheck": check } })
    };
    let unlimited = secured.token("b", json!({ "role": "operator", "namespaces": ["team-a"] })).await;
    let path = "/v1/namespaces/team-a/services";
    assert_eq!(secured.call(&team, "POST", path, Some(check("checked"))).await.0, 201);
    let (status, answer) = secured.call(&unlimited, "POST", path, Some(check("oracle"))).await;
    assert_eq!(
        (status, &answer["errors"][0]["pointer"]),
        (403, &json!("/spec/healthCheck/http/expectBody")),
        "{answer}"
    );
    // Requests can be refused at the listeners to which the route is attached only.
    let path = "/v1/namespaces/team-a/httproutes";
    for (everywhere, expected) in [(true, 403), (false, 201)] {
        let rule = json!({ "refuse": { "reason": "closed", "allListeners": everywhere } });
        let spec =
            json!({ "parentRefs": [{ "name": "edge" }], "hostnames": ["www.example.org"], "rules": [rule] });
        let route = json!({ "metadata": { "name": "closed" }, "spec": spec });
        let (status, answer) = secured.call(&unlimited, "POST", path, Some(route)).await;
        assert_eq!(status, expected, "{answer}");
        let pointer = json!("/spec/rules/0/refuse/allListeners");
        assert_eq!(answer["errors"][0]["pointer"] == pointer, everywhere, "{answer}");
    }
    // A patch that leaves the limits is rejected, too.
    let patch = json!({ "spec": { "loadBalancer": { "pool": "theirs", "addresses": null } } });
    let path = "/v1/namespaces/team-a/services/a";
    assert_eq!(secured.call(&team, "PATCH", path, Some(patch)).await.0, 403);
}

/// Machine-local, link-local and metadata addresses cannot be endpoints or frontends with any token.
#[tokio::test]
async fn addresses_that_may_never_be_endpoints_are_refused_whoever_asks() {
    let secured = secured::start().await;
    let never = [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",
        "169.254.169.254",
        "169.254.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.0.0.1",
    ];
    let mut refused = 0;
    for address in never {
        let set = json!({ "service": "web", "endpoints": [{ "address": address }] });
        let cluster = json!({ "ports": [{ "port": 80 }], "clusterIP": address });
        let external = json!({ "ports": [{ "port": 80 }], "externalIPs": [address] });
        let balancer = json!({
            "type": "LoadBalancer", "ports": [{ "port": 80 }], "loadBalancer": { "addresses": [address] },
        });
        for (path, spec) in [
            ("endpointsets", set),
            ("workloads", json!({ "addresses": [address] })),
            ("services", cluster),
            ("services", external),
            ("services", balancer),
        ] {
            let body = json!({ "metadata": { "name": "never" }, "spec": spec });
            let path = format!("/v1/namespaces/default/{path}");
            let (status, answer) = secured.call(&secured.admin, "POST", &path, Some(body)).await;
            assert_eq!(status, 422, "{address} {path}: {answer}");
            refused += 1;
        }
    }
    println!("{} addresses, {refused} writes refused", never.len());
}

#[tokio::test]
async fn nobody_gives_away_what_they_may_not_do_themselves() {
    let secured = secured::start().await;
    let rules = json!({ "rules": [
        { "verbs": ["*"], "kinds": ["Token", "Role"] }, { "verbs": ["get"], "kinds": ["Service"] },
    ] });
    secured.admin("PUT", "/v1/roles/clerk", Some(rules)).await;
    let clerk = secured.token("clerk", json!({ "role": "clerk" })).await;
    let make = |name: &str, binding: Value| json!({ "name": name, "bindings": [binding] });
    for binding in [json!({ "role": "admin" }), json!({ "role": "viewer" }), json!({ "role": "agent" })] {
        let body = make("more", binding.clone());
        let (status, answer) = secured.call(&clerk, "POST", "/v1/tokens", Some(body)).await;
        assert_eq!(status, 422, "{binding}: {answer}");
    }
    let wider = json!({ "rules": [{ "verbs": ["delete"], "kinds": ["Service"] }] });
    for name in ["clerk", "other"] {
        let path = format!("/v1/roles/{name}");
        assert_eq!(secured.call(&clerk, "PUT", &path, Some(wider.clone())).await.0, 422, "{name}");
    }
    let less = make("less", json!({ "role": "clerk", "namespaces": ["team-a"] }));
    assert_eq!(secured.call(&clerk, "POST", "/v1/tokens", Some(less)).await.0, 201);
    // Built-in roles cannot be changed; roles in use cannot be deleted.
    let admin = secured.admin.clone();
    assert_eq!(secured.call(&admin, "PUT", "/v1/roles/admin", Some(wider)).await.0, 409);
    assert_eq!(secured.call(&admin, "DELETE", "/v1/roles/clerk", None).await.0, 409);
}

#[tokio::test]
async fn a_token_ends_is_noted_when_used_and_is_the_author_of_what_is_done_with_it() {
    let secured = secured::start().await;
    let wanted = json!({ "name": "ci", "bindings": [{ "role": "operator" }], "ttlSeconds": 60 });
    let made = secured.admin("POST", "/v1/tokens", Some(wanted)).await;
    let ci = Who::Token(made["token"].as_str().unwrap().to_owned());
    assert_eq!(secured.call(&ci, "POST", "/v1/apply", Some(json!([service("a", "web")]))).await.0, 200);
    let history = secured.admin("GET", "/v1/history", None).await;
    assert_eq!(history["items"][0]["author"], "ci");
    let shown = secured.admin("GET", &format!("/v1/tokens/{}", made["id"].as_str().unwrap()), None).await;
    assert_eq!(shown["lastUsed"], shown["created"], "{shown}");
    assert_eq!(secured.call(&Who::Nobody, "GET", "/v1/services", None).await.0, 401);
    let audit = secured.admin("GET", "/v1/audit", None).await;
    assert_eq!((&audit["items"][0]["author"], &audit["items"][0]["status"]), (&json!("nobody"), &json!(401)));
    secured.server.source.advance(61);
    assert_eq!(secured.call(&ci, "GET", "/v1/services", None).await.0, 401);
    for wrong in ["", "x", "Basic eDp5", "Bearer", "Bearer tgt_000000000000_0"] {
        let request = http::Request::get("/v1/services").header("authorization", wrong);
        let response = secured.server.send(request.body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 401, "{wrong}");
    }
}

#[tokio::test]
async fn a_token_that_asks_too_fast_is_told_when_to_come_back() {
    let secured = secured::start().await;
    let ci = secured.token("ci", json!({ "role": "viewer" })).await;
    let mut answered = 0;
    let refused = loop {
        let response = secured.send(&ci, "GET", "/healthz", None).await;
        if response.status() != 200 {
            break response;
        }
        answered += 1;
    };
    assert_eq!((answered, refused.status().as_u16()), (5000, 429));
    assert!(refused.headers().contains_key("retry-after"));
    // Other tokens are not affected, and time refills the bucket.
    secured.admin("GET", "/v1/status", None).await;
    secured.server.source.advance(1);
    assert_eq!(secured.call(&ci, "GET", "/healthz", None).await.0, 200);
}

/// If several servers start on a store without an admin token, exactly one creates the bootstrap token, in a file
/// for its owner only. A further token is created only after the first was revoked.
#[tokio::test]
async fn the_first_token_is_made_once_and_again_when_nobody_can_do_everything() {
    use std::os::unix::fs::PermissionsExt;

    let settings =
        || api::base::config::Settings { is_auth_required: true, ..support::settings(30000..=30010) };
    let source = support::Fixed::at(support::START);
    let store =
        store::open("memory:", model::primitives::quantity::Timestamp::from_unix_seconds(1)).await.unwrap();
    let one = support::start_on(settings(), store.clone(), source.clone()).await;
    let two = support::start_on(settings(), store.clone(), source.clone()).await;
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    assert!(api::bootstrap(&one.running.app, &first).await.unwrap());
    // The second server has no copy of it yet and learns about it from the store.
    assert!(!api::bootstrap(&two.running.app, &second).await.unwrap());
    assert!(!api::bootstrap(&one.running.app, &second).await.unwrap());
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(files, ["first"]);
    assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&first).unwrap();
    let secured = Secured { server: one, admin: Who::Token(token.trim().to_owned()) };
    let tokens = secured.admin("GET", "/v1/tokens", None).await;
    let id = tokens["items"][0]["id"].as_str().unwrap();
    secured.admin("DELETE", &format!("/v1/tokens/{id}"), None).await;
    assert!(api::bootstrap(&secured.server.running.app, &second).await.unwrap());
    assert_ne!(std::fs::read_to_string(&second).unwrap(), token);
    // If the file cannot be written, no token is created.
    let three = support::start_on(
        settings(),
        store::open("memory:", model::primitives::quantity::Timestamp::from_unix_seconds(2)).await.unwrap(),
        source,
    )
    .await;
    let nowhere = folder.path().join("none/token");
    assert!(api::bootstrap(&three.running.app, &nowhere).await.is_err());
    assert!(api::bootstrap(&three.running.app, &folder.path().join("third")).await.unwrap());
}
