//! Annotations of other programs than ingress-nginx and Traefik at an Ingress.

use super::annotations::AnnotationFate::{self, Ignored, Restricts};

/// Beginnings of the annotations of Ingress controllers whose names do not contain one of [`CONTROLLER_WORDS`].
const CONTROLLERS: &[&str] = &[
    "projectcontour.io/",
    "contour.heptio.com/",
    "getambassador.io/",
    "k8s.apisix.apache.org/",
    "appprotect.f5.com/",
    "appprotectdos.f5.com/",
    "virtual-server.f5.com/",
    "zalando.org/",
    "networking.gke.io/",
];
/// Words in the beginnings of the annotations of Ingress controllers.
const CONTROLLER_WORDS: &[&str] =
    &["ingress", "nginx", "haproxy", "traefik", "kong", "proxy", "gateway", "waf", "voyager"];
/// Words in the names of annotations that restrict requests.
const RESTRICTING_WORDS: &[&str] = &[
    "acl",
    "allow",
    "auth",
    "block",
    "bot",
    "captcha",
    "cidr",
    "client-ca",
    "conditions.",
    "config-backend",
    "config-frontend",
    "consumer",
    "deny",
    "filter",
    "forbid",
    "frontend.rule",
    "frontendconfig",
    "header-match",
    "headers.",
    "internal",
    "ip-restriction",
    "jwt",
    "limit",
    "list",
    "methods",
    "middleware",
    "modsec",
    "mtls",
    "oauth",
    "oidc",
    "override",
    "passthrough",
    "plugin",
    "polic",
    "predicate",
    "private-ip",
    "protect",
    "protocols",
    "rate",
    "restrict",
    "rule",
    "scheme",
    "secur",
    "shield",
    "skipper-routes",
    "snippet",
    "source-range",
    "verify",
    "waf",
    "white",
];

/// Returns the meaning of an annotation of another Ingress controller; `None` if it belongs to another kind of program.
pub(super) fn controller_fate(full: &str, value: &str) -> Option<AnnotationFate> {
    let (prefix, name) = match full.split_once('/') {
        Some((prefix, name)) => (prefix, name),
        // Traefik 1 had names without a domain.
        None => ("", full.strip_prefix("traefik.")?),
    };
    let is_controller = prefix.is_empty()
        || CONTROLLERS.iter().any(|one| full.starts_with(one))
        || CONTROLLER_WORDS.iter().any(|word| prefix.contains(word))
        || full.starts_with("kubernetes.io/ingress.");
    if !is_controller || full == "kubernetes.io/ingress.class" {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let restricts = !name.contains("cors") && RESTRICTING_WORDS.iter().any(|word| name.contains(word));
    let value = value.trim();
    // Plain HTTP is forbidden by the value `false`.
    let is_off = value.is_empty() || (value == "false" && !name.contains("allow-http"));
    Some(match restricts {
        true if is_off => Ignored("it is not in effect"),
        true => Restricts("the annotation of another controller may restrict requests"),
        false => Ignored("annotations of this controller are not translated"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restrictions_of_other_controllers_are_recognized() {
        for (name, value, expected) in [
            ("haproxy.org/allow-list", "10.0.0.0/8", Some(true)),
            ("haproxy.org/auth-type", "basic-auth", Some(true)),
            ("haproxy-ingress.github.io/allowlist-source-range", "10.0.0.0/8", Some(true)),
            ("alb.ingress.kubernetes.io/inbound-cidrs", "10.0.0.0/8", Some(true)),
            ("alb.ingress.kubernetes.io/scheme", "internal", Some(true)),
            ("alb.ingress.kubernetes.io/healthcheck-path", "/", Some(false)),
            ("konghq.com/plugins", "key-auth", Some(true)),
            ("nginx.org/server-snippets", "deny all;", Some(true)),
            ("nginx.org/basic-auth-secret", "users", Some(true)),
            ("nginx.com/jwt-key", "key", Some(true)),
            ("ingress.kubernetes.io/whitelist-source-range", "10.0.0.0/8", Some(true)),
            ("ingress.kubernetes.io/auth-type", "basic", Some(true)),
            ("traefik.frontend.rule.type", "PathPrefixStrip", Some(true)),
            ("kubernetes.io/ingress.allow-http", "false", Some(true)),
            ("zalando.org/skipper-filter", "oauthTokeninfoAnyScope(\"uid\")", Some(true)),
            ("zalando.org/skipper-predicate", "Source(\"10.0.0.0/8\")", Some(true)),
            ("konghq.com/methods", "GET", Some(true)),
            ("konghq.com/protocols", "https", Some(true)),
            ("alb.ingress.kubernetes.io/conditions.web", "[{}]", Some(true)),
            ("haproxy-ingress.github.io/http-header-match", "x: y", Some(true)),
            ("networking.gke.io/v1beta1.FrontendConfig", "https-only", Some(true)),
            ("haproxy.org/whitelist", "", Some(false)),
            ("haproxy.org/cors-allow-origin", "*", Some(false)),
            ("haproxy.org/timeout-server", "50s", Some(false)),
            ("kubernetes.io/ingress.class", "nginx", None),
            ("cert-manager.io/cluster-issuer", "letsencrypt", None),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}", None),
        ] {
            let found = controller_fate(name, value).map(|fate| matches!(fate, Restricts(_)));
            assert_eq!(found, expected, "{name}");
        }
    }
}
