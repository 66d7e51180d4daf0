//! Restrictions of Ingresses (F141, F142): imported objects are compiled to the table of a gateway, and requests that the restriction may
//! concern reach no backend. The Ingresses are those of a trial migration.

use std::{borrow::Cow, sync::Arc};

use model::{
    admission::decode::{Expect, decode},
    cluster::snapshot::Snapshot,
    http::{Decision, HttpState, RequestHead, route},
    primitives::quantity::{Port, Revision},
};
use serde_json::{Value, json};
use translate::{ImportResult, translate};

/// Result of an import with the table of the gateways.
struct Migration {
    imported: ImportResult,
    state: HttpState,
}

/// Annotation that excludes clients of other networks.
fn allow_list() -> Value {
    json!({ "nginx.ingress.kubernetes.io/whitelist-source-range": "192.0.2.0/24" })
}

fn of_namespace(
    namespace: &str,
    name: &str,
    host: &str,
    path: &str,
    path_type: &str,
    annotations: &Value,
) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let rule = json!({ "host": host, "http": { "paths": [{ "path": path, "pathType": path_type, "backend": backend }] } });
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
        "spec": { "ingressClassName": "nginx", "rules": [rule] },
    })
}

fn ingress(name: &str, host: &str, path: &str, path_type: &str, annotations: &Value) -> Value {
    of_namespace("shop", name, host, path, path_type, annotations)
}

/// Adds the host names with TLS to an Ingress.
fn with_tls(mut ingress: Value, hosts: &[&str]) -> Value {
    ingress["spec"]["tls"] = json!([{ "hosts": hosts, "secretName": "tls" }]);
    ingress
}

impl Migration {
    /// Imports Ingresses together with the Service `web` of the namespaces `shop` and `admin`.
    fn of(ingresses: &[Value]) -> Self {
        Self::with_services(ingresses, &json!({}))
    }

    fn with_services(ingresses: &[Value], annotations: &Value) -> Self {
        let mut documents = ingresses.to_vec();
        for namespace in ["shop", "admin"] {
            let metadata = json!({ "name": "web", "namespace": namespace, "annotations": annotations });
            documents.push(json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }));
            let subset = json!({ "addresses": [{ "ip": "10.1.0.1" }], "ports": [{ "port": 80 }] });
            documents.push(json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "web", "namespace": namespace }, "subsets": [subset] }));
        }
        let imported = translate(&[("cluster.yaml".to_owned(), documents)]);
        let objects = imported.objects.iter().map(|one| Arc::new(decode(one, &Expect::default()).unwrap()));
        let snapshot = Snapshot::from_objects(Revision(1), objects);
        Self { state: HttpState::new(Arc::default(), snapshot), imported }
    }

    /// Returns `served`, the location of a redirection, or the status code of a failure for a URL.
    fn get(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_at(rest.find('/').unwrap());
        let is_tls = scheme == "https";
        let head = RequestHead {
            port: Port::new(if is_tls { 443 } else { 80 }).unwrap(),
            server_name: is_tls.then_some(host),
            method: "GET",
            host,
            path,
            query: None,
            header: &|_| None::<Cow<'_, str>>,
        };
        match route(self.state.table(), &head, 0) {
            Decision::Fail { failure, .. } => failure.status().to_string(),
            Decision::Redirect { location, .. } => location,
            Decision::Preflight { .. } => "204".to_owned(),
            Decision::Forward { .. } => "served".to_owned(),
        }
    }

    fn check(&self, expected: &[(&str, &str)]) {
        for (url, expected) in expected {
            assert_eq!(self.get(url), *expected, "{url}\n{}", self.imported.report.text());
        }
    }

    fn reports(&self, words: &str) {
        let report = self.imported.report.text();
        assert!(report.contains(words), "{words}\n{report}");
    }
}

/// The restricted paths of a regular expression are refused whatever the names of the Ingresses, and the rest of the host is
/// served.
#[test]
fn a_regular_expression_with_a_restriction_is_refused() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/use-regex": "true",
        "nginx.ingress.kubernetes.io/whitelist-source-range": "192.0.2.0/24",
    });
    for name in ["zz-internal", "internal"] {
        let migration = Migration::of(&[
            ingress("site", "tie.example.org", "/", "Prefix", &json!({})),
            ingress(
                name,
                "tie.example.org",
                "/(internal|metrics)(/.*)?",
                "ImplementationSpecific",
                &annotations,
            ),
        ]);
        migration.check(&[
            ("http://tie.example.org/internal", "500"),
            ("http://tie.example.org/INTERNAL/x", "500"),
            ("http://tie.example.org/metrics/a/b", "500"),
            ("http://tie.example.org/", "served"),
            ("http://tie.example.org/shop", "served"),
        ]);
        migration.reports("refuses requests for /internal* and /metrics* of tie.example.org with 500");
    }
    // An expression without a literal start may match every path.
    let migration = Migration::of(&[
        ingress("aaa", "all.example.org", "/open", "Prefix", &json!({})),
        ingress("zzz", "all.example.org", r"/.*\.php", "ImplementationSpecific", &annotations),
    ]);
    migration.check(&[("http://all.example.org/open/x.php", "500"), ("http://all.example.org/", "500")]);
    migration.reports("refuses requests for all paths of all.example.org with 500");
}

/// The spellings of a path that an endpoint resolves to it do not pass its restriction.
#[test]
fn no_spelling_passes_a_restriction() {
    for annotations in [
        allow_list(),
        json!({ "traefik.ingress.kubernetes.io/router.middlewares": "shop-office@kubernetescrd" }),
    ] {
        let migration = Migration::of(&[
            with_tls(ingress("site", "norm.example.org", "/", "Prefix", &json!({})), &["norm.example.org"]),
            ingress("adm", "norm.example.org", "/admin", "Prefix", &annotations),
        ]);
        for path in ["/admin", "/%61dmin", "//admin", "/admin%2fx", "/admin;x=1", "/%2Fadmin"] {
            for scheme in ["http", "https"] {
                assert_eq!(migration.get(&format!("{scheme}://norm.example.org{path}")), "500", "{path}");
            }
        }
        assert_eq!(migration.get("https://norm.example.org/x"), "served");
    }
}

/// An Ingress in another namespace, without TLS, restricts a path of a host name with TLS.
#[test]
fn a_restriction_of_another_namespace_applies_with_and_without_tls() {
    let site = with_tls(ingress("site", "www.example.org", "/", "Prefix", &json!({})), &["www.example.org"]);
    let console = of_namespace("admin", "console", "www.example.org", "/admin", "Prefix", &allow_list());
    Migration::of(&[site, console]).check(&[
        ("http://www.example.org/admin", "500"),
        ("https://www.example.org/admin/x", "500"),
        ("https://www.example.org/", "served"),
    ]);
}

/// Aliases, the name with `www.`, the default backend and other paths of a name with client certificates are refused too, and a canary leaves its path alone.
#[test]
fn all_names_of_a_restricted_ingress_are_refused() {
    let mut private = allow_list();
    private["nginx.ingress.kubernetes.io/server-alias"] = "priv2.example.org, ~^x$".into();
    private["nginx.ingress.kubernetes.io/from-to-www-redirect"] = "true".into();
    let mut canary = json!({ "nginx.ingress.kubernetes.io/canary-by-cookie": "next" });
    canary["nginx.ingress.kubernetes.io/canary"] = "true".into();
    let mut default = ingress("default", "other.example.net", "/", "Prefix", &allow_list());
    default["spec"]["defaultBackend"] = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let safe = json!({ "nginx.ingress.kubernetes.io/auth-tls-secret": "shop/ca" });
    let migration = Migration::of(&[
        ingress("wild", "*.example.org", "/", "Prefix", &json!({})),
        with_tls(ingress("apps", "*.apps.example.org", "/", "Prefix", &json!({})), &["*.apps.example.org"]),
        with_tls(ingress("safe", "safe.apps.example.org", "/", "Prefix", &safe), &["safe.apps.example.org"]),
        with_tls(
            ingress("beside", "safe.apps.example.org", "/b", "Prefix", &json!({})),
            &["safe.apps.example.org"],
        ),
        ingress("alias", "priv.example.org", "/", "Prefix", &private),
        ingress("sec2", "sec2.example.org", "/sec2", "Prefix", &json!({})),
        ingress("canarysec", "sec2.example.org", "/sec2", "Prefix", &canary),
        default,
    ]);
    migration.check(&[
        ("http://priv.example.org/", "500"),
        ("http://priv2.example.org/", "500"),
        ("http://www.priv.example.org/", "500"),
        ("http://any.example.org/", "served"),
        ("https://safe.apps.example.org/", "500"),
        ("https://safe.apps.example.org/b", "500"),
        ("https://any.apps.example.org/", "served"),
        ("http://sec2.example.org/sec2", "served"),
        ("http://unknown.example.com/", "500"),
    ]);
    migration.reports("NOT refused for the host name `~^x$`");
}

/// A path with a restriction that its controller compares by characters, or without regard to case, is refused in this way;
/// a longer path of another Ingress stays open.
#[test]
fn refusals_compare_paths_like_their_controller() {
    let mut regex = json!({ "nginx.ingress.kubernetes.io/auth-url": "https://auth.example.org" });
    regex["nginx.ingress.kubernetes.io/use-regex"] = "true".into();
    let migration = Migration::of(&[
        ingress("site", "a.example.org", "/", "Prefix", &json!({})),
        ingress("open", "a.example.org", "/chars/open", "Prefix", &json!({})),
        ingress("chars", "a.example.org", "/chars", "ImplementationSpecific", &allow_list()),
        ingress("root", "b.example.org", "/", "Prefix", &regex),
        ingress("oauth", "b.example.org", "/oauth2", "Prefix", &json!({})),
        ingress("site2", "c.example.org", "/", "Prefix", &json!({})),
        ingress("private", "c.example.org", "/private", "Prefix", &regex),
    ]);
    migration.check(&[
        ("http://a.example.org/chars", "500"),
        ("http://a.example.org/chars.json", "500"),
        ("http://a.example.org/charsx", "500"),
        ("http://a.example.org/chars/open", "served"),
        ("http://a.example.org/other", "served"),
        ("http://b.example.org/", "500"),
        ("http://b.example.org/oauth2/start", "served"),
        ("http://c.example.org/PRIVATE", "500"),
        ("http://c.example.org/private-docs", "500"),
        ("http://c.example.org/", "served"),
    ]);
}

/// Annotations of other controllers are in the report, and those that restrict requests refuse their paths.
#[test]
fn restrictions_of_other_controllers_are_refused() {
    for annotation in [
        "haproxy.org/allow-list",
        "haproxy.org/auth-type",
        "haproxy-ingress.github.io/allowlist-source-range",
        "alb.ingress.kubernetes.io/inbound-cidrs",
        "konghq.com/plugins",
        "nginx.org/server-snippets",
        "nginx.org/basic-auth-secret",
        "nginx.com/jwt-key",
        "ingress.kubernetes.io/whitelist-source-range",
        "ingress.kubernetes.io/auth-type",
        "traefik.frontend.rule.type",
    ] {
        let annotations = json!({ annotation: "x" });
        let migration = Migration::of(&[
            ingress(
                "site",
                "a.example.org",
                "/",
                "Prefix",
                &json!({ "cert-manager.io/cluster-issuer": "a" }),
            ),
            ingress("adm", "a.example.org", "/admin", "Prefix", &annotations),
        ]);
        // Snippets of the server concern all paths of the host name.
        let beside = if annotation.contains("server") { "500" } else { "served" };
        migration.check(&[("http://a.example.org/admin", "500"), ("http://a.example.org/", beside)]);
        migration.reports(&format!("metadata.annotations[\"{annotation}\"]: the Ingress is left out"));
        migration.reports("cert-manager.io/cluster-issuer\"]: not read");
    }
}

/// TLS that is required, and Services with other protocols.
#[test]
fn requests_are_not_served_with_less_protection() {
    let secure = json!({ "traefik.ingress.kubernetes.io/router.entrypoints": "websecure", "nginx.ingress.kubernetes.io/ssl-redirect": "false" });
    let forced = json!({ "nginx.ingress.kubernetes.io/force-ssl-redirect": "true" });
    let migration = Migration::of(&[
        with_tls(ingress("only", "www.example.org", "/only", "Prefix", &secure), &["www.example.org"]),
        ingress("wild", "*.example.net", "/", "Prefix", &json!({})),
        ingress("forced", "forced.example.net", "/", "Prefix", &forced),
    ]);
    migration.check(&[
        ("https://www.example.org/only", "served"),
        ("http://www.example.org/only", "404"),
        ("http://forced.example.net/", "500"),
        ("http://any.example.net/", "served"),
    ]);
    let https = json!({ "traefik.ingress.kubernetes.io/service.serversscheme": "https" });
    let migration =
        Migration::with_services(&[ingress("a", "a.example.org", "/", "Prefix", &json!({}))], &https);
    migration.check(&[("http://a.example.org/", "500")]);
    migration.reports("traefik.ingress.kubernetes.io/service.serversscheme");
}

/// Plugins of Kong and settings of Google Cloud at a Service may authenticate clients: its paths are refused.
#[test]
fn restrictions_of_services_are_refused() {
    for annotation in ["konghq.com/plugins", "cloud.google.com/backend-config"] {
        let all = [ingress("a", "a.example.org", "/", "Prefix", &json!({}))];
        let migration = Migration::with_services(&all, &json!({ annotation: "{\"default\": \"key-auth\"}" }));
        migration.check(&[("http://a.example.org/", "500")]);
        migration.reports(&format!("Service web with {annotation}, which may restrict requests"));
    }
    for (annotation, value) in
        [("konghq.com/plugins", ""), ("konghq.com/connect-timeout", "5000"), ("cloud.google.com/neg", "{}")]
    {
        let all = [ingress("a", "a.example.org", "/", "Prefix", &json!({}))];
        Migration::with_services(&all, &json!({ annotation: value }))
            .check(&[("http://a.example.org/", "served")]);
    }
}

/// A canary whose Service cannot be used is left out: its requests reach the other backend, with its whole weight.
#[test]
fn a_canary_without_a_usable_service_is_left_out() {
    for (annotation, value) in [("canary-weight", "100"), ("canary-by-header", "X-Canary")] {
        let annotations = json!({ "nginx.ingress.kubernetes.io/canary": "true", format!("nginx.ingress.kubernetes.io/{annotation}"): value });
        let mut canary = ingress("canary", "a.example.org", "/", "Prefix", &annotations);
        let backend = json!({ "service": { "name": "gone", "port": { "name": "unknown" } } });
        canary["spec"]["rules"][0]["http"]["paths"][0]["backend"] = backend;
        let migration = Migration::of(&[ingress("a", "a.example.org", "/", "Prefix", &json!({})), canary]);
        migration.check(&[("http://a.example.org/", "served")]);
        migration.reports("its requests reach the other backend");
    }
}

/// Classes often stand for different networks of clients.
#[test]
fn classes_that_share_ports_are_reported() {
    let mut internal = ingress("erp", "erp.example.org", "/", "Prefix", &json!({}));
    internal["spec"]["ingressClassName"] = "nginx-internal".into();
    let migration = Migration::of(&[internal, ingress("site", "www.example.org", "/", "Prefix", &json!({}))]);
    migration.reports("unless `--serve` names the Gateways of one class");
}

/// The ConfigMap of the controller restricts all Ingresses.
#[test]
fn restrictions_of_the_controller_are_refused() {
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ingress-nginx-controller", "namespace": "ingress-nginx" },
        "data": { "whitelist-source-range": "192.0.2.0/24", "hsts": "true", "enable-modsecurity": "false" },
    });
    // The status code of a limit limits nothing.
    let mut status = settings.clone();
    status["data"] = json!({ "limit-req-status-code": "429", "limit-conn-status-code": "429" });
    let served = Migration::of(&[status, ingress("site", "www.example.org", "/", "Prefix", &json!({}))]);
    served.check(&[("http://www.example.org/", "served")]);
    served.reports("data[\"limit-req-status-code\"]: not translated");
    let migration = Migration::of(&[settings, ingress("site", "www.example.org", "/", "Prefix", &json!({}))]);
    migration.check(&[("http://www.example.org/", "500")]);
    migration.reports("data[\"hsts\"]: not translated");
    migration.reports("data[\"enable-modsecurity\"]: not translated");
}
