//! Rules that refuse requests (F141, F142): their place in the precedence, the spellings of a path, and other listeners.

use super::*;

/// Gateway `shop/nginx` for `www.example.org` with TLS, and Gateway `admin/nginx` without it, at the same port for plain HTTP.
fn stage() -> RouteStage {
    let mut stage = RouteStage::new();
    let http = json!({ "name": "http", "port": 80, "protocol": "HTTP" });
    let tls = json!({ "certificateRefs": [{ "name": "www" }] });
    let https = json!({ "name": "https", "port": 443, "protocol": "HTTPS", "hostname": "www.example.org", "tls": tls });
    for (namespace, listeners) in [("infra", json!([http, https])), ("admin", json!([http]))] {
        stage.apply(json!({
            "kind": "Gateway", "metadata": { "name": "nginx", "namespace": namespace }, "spec": { "listeners": listeners },
        }));
    }
    stage
}

fn serving(name: &str, host: &str, match_type: &str, path: &str) -> Value {
    let one = json!({ "path": { "type": match_type, "value": path } });
    let backend = json!({ "name": "infra-backend-v1", "port": 8080 });
    let rules = json!([{ "matches": [one], "backendRefs": [backend] }]);
    http_route(name, "nginx", &json!({ "hostnames": [host], "rules": rules }))
}

fn refusing(namespace: &str, name: &str, host: &str, path: &str, more: &Value) -> Value {
    let mut refuse = json!({ "reason": format!("Ingress {namespace}/{name}: whitelist-source-range") });
    refuse.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let rules = json!([{ "matches": [{ "path": { "value": path } }], "refuse": refuse }]);
    http_route(name, "nginx", &json!({ "namespace": namespace, "hostnames": [host], "rules": rules }))
}

fn decide(table: &HttpTable, text: &str) -> String {
    TestRequest::parse(text).decide(table, 80, 0)
}

const SERVED: &str = "infra-backend-v1";

/// Names and ages of routes decide between equal rules, and not between a rule that serves and one that refuses. A more
/// specific path keeps its own rule, unless the refusal covers longer paths.
#[test]
fn a_refusal_precedes_rules_with_its_host_name_and_path() {
    let mut stage = stage();
    stage.apply(serving("aaa", "tie.example.org", "PathPrefix", "/"));
    stage.apply(serving("longer", "tie.example.org", "PathPrefix", "/open"));
    stage.apply(serving("exact", "tie.example.org", "Exact", "/exact"));
    stage.apply(serving("wild", "*.example.org", "PathPrefix", "/"));
    assert_eq!(decide(&stage.table(), "tie.example.org/"), SERVED);
    stage.apply(refusing("infra", "zzz", "tie.example.org", "/", &json!({})));
    let table = stage.table();
    for (text, expected) in [
        ("tie.example.org/", "500"),
        ("tie.example.org/x", "500"),
        ("tie.example.org/open/x", SERVED),
        ("tie.example.org/exact", SERVED),
        ("other.example.org/", SERVED),
    ] {
        assert_eq!(decide(&table, text), expected, "{text}");
    }
    stage.apply(refusing("infra", "zzz", "tie.example.org", "/", &json!({ "coversLongerPaths": true })));
    let table = stage.table();
    for text in ["tie.example.org/open/x", "tie.example.org/exact"] {
        assert_eq!(decide(&table, text), "500", "{text}");
    }
    // A host name of its own is more specific than a wildcard.
    stage.apply(refusing("infra", "wide", "*.example.org", "/", &json!({ "coversLongerPaths": true })));
    stage.routes.retain(|key, _| key.name.as_str() != "zzz");
    let table = stage.table();
    assert_eq!(decide(&table, "tie.example.org/"), SERVED);
    assert_eq!(decide(&table, "other.example.org/"), "500");
}

/// All spellings that an endpoint may resolve to a path meet the rule for this path.
#[test]
fn no_spelling_of_a_path_passes_its_rule() {
    let mut stage = stage();
    stage.apply(serving("site", "norm.example.org", "PathPrefix", "/"));
    stage.apply(refusing("infra", "adm", "norm.example.org", "/admin", &json!({})));
    let table = stage.table();
    for path in [
        "/admin",
        "/%61dmin",
        "//admin",
        "/%2Fadmin",
        "/%2f%2fadmin",
        "/admin%2fx",
        "/admin/x",
        "/%61%64min//x",
        "/admin;x=1",
        "/admin;x=1/y",
        "/;x/admin",
        "/admin%3Bx",
        "/admin/",
    ] {
        assert_eq!(decide(&table, &format!("norm.example.org{path}")), "500", "{path}");
    }
    for path in ["/", "/administrator", "/ADMIN", "/x/admin", "/%2561dmin", "/x;/admin"] {
        assert_eq!(decide(&table, &format!("norm.example.org{path}")), SERVED, "{path}");
    }
    // Rules that serve are compared in the same way.
    stage.apply(serving("caf", "other.example.org", "Exact", "/caf%c3%a9"));
    assert_eq!(decide(&stage.table(), "other.example.org//c%61f%C3%A9"), SERVED);
}

/// Characters without regard to case, as regular expressions of nginx are compared.
#[test]
fn refusals_compare_characters_and_ignore_case_on_request() {
    let mut stage = stage();
    stage.apply(serving("site", "a.example.org", "PathPrefix", "/"));
    stage.apply(serving("longer", "a.example.org", "PathPrefix", "/charsets"));
    let more = json!({ "comparison": "Characters" });
    stage.apply(refusing("infra", "chars", "a.example.org", "/chars", &more));
    let more = json!({ "ignoreCase": true });
    stage.apply(refusing("infra", "case", "a.example.org", "/Private", &more));
    let table = stage.table();
    for (path, expected) in [
        ("/chars", "500"),
        ("/chars.json", "500"),
        ("/charsx", "500"),
        ("/charsets/x", SERVED),
        ("/CHARS", SERVED),
        ("/PRIVATE/x", "500"),
        ("/private", "500"),
        ("/private-docs", SERVED),
    ] {
        assert_eq!(decide(&table, &format!("a.example.org{path}")), expected, "{path}");
    }
}

/// A refusal that is attached to a listener of one Gateway applies at the listeners of others on request.
#[test]
fn a_refusal_applies_at_all_listeners_of_its_host_name() {
    let mut stage = stage();
    stage.apply(serving("site", "www.example.org", "PathPrefix", "/"));
    stage.apply(refusing("admin", "console", "www.example.org", "/admin", &json!({})));
    let table = stage.table();
    assert_eq!(decide(&table, "www.example.org/admin"), "500");
    assert_eq!(decide(&table, "https://www.example.org/admin"), SERVED);
    let everywhere = json!({ "allListeners": true });
    stage.apply(refusing("admin", "console", "www.example.org", "/admin", &everywhere));
    let table = stage.table();
    for text in
        ["www.example.org/admin", "https://www.example.org/admin/x", "https://www.example.org//%61dmin"]
    {
        assert_eq!(decide(&table, text), "500", "{text}");
    }
    assert_eq!(decide(&table, "https://www.example.org/"), SERVED);
    // A route that no listener accepts refuses nothing.
    let mut foreign = refusing("infra", "foreign", "www.example.org", "/", &everywhere);
    foreign["spec"]["parentRefs"] = json!([{ "name": "nginx", "namespace": "admin" }]);
    stage.apply(foreign);
    assert_eq!(decide(&stage.table(), "https://www.example.org/"), SERVED);
}

#[test]
fn a_refusal_has_a_reason_and_no_backends() {
    let found = |rule: Value| {
        let spec = json!({ "parentRefs": [{ "name": "edge" }], "rules": [rule] });
        violations("HttpRoute", spec)
    };
    assert_eq!(found(json!({ "refuse": { "reason": "r" } })), Vec::<String>::new());
    assert_eq!(found(json!({ "refuse": { "reason": "" } })).len(), 1);
    let backend = json!([{ "name": "web", "port": 80 }]);
    assert_eq!(found(json!({ "refuse": { "reason": "r" }, "backendRefs": backend })).len(), 1);
}
