//! Annotations of ingress-nginx and Traefik: their meaning for the translated objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::controllers::controller_fate;
use crate::{
    json::{entries, items, scalar},
    report::Report,
};

/// Prefix of the annotations of ingress-nginx.
const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Annotation with the class of an Ingress.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Prefix of the annotations of Traefik.
const TRAEFIK: &str = "traefik.ingress.kubernetes.io/";

/// Meaning of an annotation for the translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnnotationFate {
    /// Translated.
    Used,
    /// Left out; the text is the reason.
    Ignored(&'static str),
    /// Restricts requests in a way that gateways do not have, so that the Ingress is left out.
    Restricts(&'static str),
}

use AnnotationFate::{Ignored, Restricts, Used};

const AUTHENTICATION: &str = "gateways do not authenticate clients";
const TIMEOUT: &str = "nginx limits pauses, and `timeouts` of an HttpRoute limit whole requests; see also the settings of the gateway";
const BUFFERS: &str = "gateways do not buffer bodies";
const LOGS: &str = "see `--access-log` of the gateway";
const AFFINITY: &str = "gateways choose an endpoint for each request";
const SNIPPET: &str = "nginx configuration may restrict requests, and gateways cannot execute it";
const UPSTREAM_TLS: &str = "gateways do not use TLS to endpoints";
const TLS: &str = "gateways use the defaults of rustls with TLS 1.2 and 1.3";
const LIMIT: &str = "gateways do not limit rates";

/// Annotations without the prefix, in alphabetical order. An entry that ends with `*` stands for all names that begin
/// with it.
const ANNOTATIONS: &[(&str, AnnotationFate)] = &[
    ("affinity", Ignored(AFFINITY)),
    ("affinity-*", Ignored(AFFINITY)),
    ("allowlist-source-range", Restricts("gateways do not compare addresses of clients")),
    ("app-root", Ignored("add a rule for the exact path `/` with a filter RequestRedirect to the HttpRoute")),
    ("auth-*", Restricts(AUTHENTICATION)),
    ("backend-protocol", Used),
    ("canary", Used),
    ("canary-by-cookie", Restricts("the rule depends on a cookie, which routes cannot match")),
    ("canary-by-header", Used),
    ("canary-by-header-pattern", Restricts("routes do not match headers by regular expressions")),
    ("canary-by-header-value", Used),
    ("canary-weight", Used),
    ("canary-weight-total", Used),
    ("client-body-buffer-size", Ignored(BUFFERS)),
    ("configuration-snippet", Restricts(SNIPPET)),
    ("connection-proxy-header", Ignored("gateways set the header `Connection` themselves")),
    ("cors-*", Used),
    ("custom-headers", Ignored("add a filter ResponseHeaderModifier to the rules of the HttpRoute")),
    ("custom-http-errors", Ignored("gateways pass on the responses of endpoints")),
    ("default-backend", Ignored("gateways respond with 503 if a Service has no endpoint")),
    ("denylist-source-range", Restricts("gateways do not compare addresses of clients")),
    ("disable-proxy-intercept-errors", Ignored("gateways pass on the responses of endpoints")),
    ("enable-access-log", Ignored(LOGS)),
    ("enable-cors", Used),
    ("enable-global-auth", Restricts(AUTHENTICATION)),
    ("enable-modsecurity", Restricts("gateways have no web application firewall")),
    ("enable-opentelemetry", Ignored("gateways do not record traces")),
    ("enable-opentracing", Ignored("gateways do not record traces")),
    ("enable-owasp-core-rules", Restricts("gateways have no web application firewall")),
    ("enable-rewrite-log", Ignored(LOGS)),
    ("force-ssl-redirect", Used),
    ("from-to-www-redirect", Used),
    ("global-rate-limit*", Restricts(LIMIT)),
    ("http2-push-preload", Ignored("HTTP/2 push has been removed from browsers")),
    ("limit-*", Restricts(LIMIT)),
    ("load-balance", Ignored("gateways prefer the less loaded of two endpoints")),
    ("mirror-*", Ignored("add a filter RequestMirror with a Service to the rules of the HttpRoute")),
    ("modsecurity-*", Restricts("gateways have no web application firewall")),
    ("opentelemetry-*", Ignored("gateways do not record traces")),
    ("permanent-redirect", Used),
    ("permanent-redirect-code", Used),
    ("preserve-trailing-slash", Ignored("redirections keep the path")),
    ("proxy-body-size", Ignored("gateways do not limit the size of bodies")),
    ("proxy-buffer-size", Ignored(BUFFERS)),
    ("proxy-buffering", Ignored(BUFFERS)),
    ("proxy-buffers-number", Ignored(BUFFERS)),
    ("proxy-busy-buffers-size", Ignored(BUFFERS)),
    ("proxy-connect-timeout", Ignored(TIMEOUT)),
    ("proxy-cookie-*", Ignored("gateways do not change cookies")),
    ("proxy-http-version", Ignored("endpoints receive HTTP/1.1")),
    ("proxy-max-temp-file-size", Ignored(BUFFERS)),
    ("proxy-next-upstream*", Ignored("gateways try up to three endpoints")),
    ("proxy-read-timeout", Ignored(TIMEOUT)),
    ("proxy-redirect-*", Ignored("gateways do not change `Location` of endpoints")),
    ("proxy-request-buffering", Ignored(BUFFERS)),
    ("proxy-send-timeout", Ignored(TIMEOUT)),
    ("proxy-ssl-*", Ignored(UPSTREAM_TLS)),
    ("relative-redirects", Ignored("redirections are absolute")),
    ("rewrite-target", Used),
    ("satisfy", Restricts(AUTHENTICATION)),
    ("server-alias", Used),
    ("server-snippet", Restricts(SNIPPET)),
    ("service-upstream", Ignored("gateways send requests to endpoints, not to the cluster IP")),
    ("session-cookie-*", Ignored(AFFINITY)),
    ("ssl-ciphers", Ignored(TLS)),
    ("ssl-passthrough", Restricts("gateways terminate TLS; use a Service of type LoadBalancer")),
    ("ssl-prefer-server-ciphers", Ignored(TLS)),
    ("ssl-redirect", Used),
    ("stream-snippet", Restricts(SNIPPET)),
    ("temporal-redirect", Used),
    ("temporal-redirect-code", Used),
    ("upstream-hash-by*", Ignored(AFFINITY)),
    ("upstream-vhost", Used),
    ("use-regex", Used),
    ("whitelist-source-range", Restricts("gateways do not compare addresses of clients")),
    ("x-forwarded-prefix", Used),
];

const ENTRY_POINT: &str =
    "the entry point is neither `web` nor `websecure`, and may be for some clients only";
const MIDDLEWARE: &str = "a middleware may restrict requests; write an HTTPRoute with filters instead";
const TLS_ONLY: &str = "requests without TLS would be served; add the host names and a Secret to `spec.tls`";

/// Annotations of Traefik without the prefix, in alphabetical order. None is used: routes follow from the rules of the Ingress.
const TRAEFIK_ANNOTATIONS: &[(&str, AnnotationFate)] = &[
    ("router.entrypoints", Restricts(ENTRY_POINT)),
    ("router.middlewares", Restricts(MIDDLEWARE)),
    ("router.observability.*", Ignored(LOGS)),
    ("router.pathmatcher", Restricts("paths are compared by `pathType`")),
    ("router.priority", Ignored("the most specific rule applies")),
    ("router.rulesyntax", Ignored("paths are compared by `pathType`")),
    ("router.tls", Restricts(TLS_ONLY)),
    ("router.tls.certresolver", Ignored("certificates are those of the Secrets in `spec.tls`")),
    ("router.tls.domains.*", Ignored("certificates are those of the Secrets in `spec.tls`")),
    ("router.tls.options", Restricts("the options may demand certificates of clients")),
    ("service.nativelb", Ignored("gateways send requests to endpoints, not to the cluster IP")),
    ("service.nodeportlb", Ignored("gateways send requests to endpoints, not to node ports")),
    ("service.passhostheader", Ignored("endpoints receive the host name of the client")),
    (
        "service.serversscheme",
        Restricts("gateways send HTTP/1.1, or HTTP/2 if the port has `appProtocol: kubernetes.io/h2c`"),
    ),
    ("service.serverstransport", Ignored(UPSTREAM_TLS)),
    ("service.sticky.*", Ignored(AFFINITY)),
];

/// Annotations of one Ingress that the translation reads.
#[derive(Debug, Clone, Default)]
pub(super) struct IngressOptions {
    /// Annotations of ingress-nginx without their prefix.
    used: BTreeMap<String, String>,
    /// True if the Ingress must not be served without TLS (entry point `websecure` of Traefik alone).
    pub(super) is_secure_only: bool,
}

impl IngressOptions {
    /// Reads the annotations and reports those without a translation. `of_all` are the restrictions of all Ingresses.
    ///
    /// # Errors
    /// Returns the restrictions for which the Ingress must be left out.
    pub(super) fn read(ingress: &Value, of_all: &[String], report: &mut Report) -> Result<Self, Vec<String>> {
        let mut options = Self::default();
        let mut restrictions = of_all.to_vec();
        let has_tls = !items(ingress, "/spec/tls").is_empty();
        for (full, value) in entries(ingress, "/metadata/annotations") {
            let value = &*scalar(value);
            let at = format!("metadata.annotations[\"{full}\"]");
            let fate = if let Some(name) = full.strip_prefix(TRAEFIK) {
                options.is_secure_only |= name == "router.entrypoints" && value.trim() == "websecure";
                traefik_fate(name, value, has_tls)
            } else if let Some(name) = full.strip_prefix(PREFIX) {
                fate(name, value)
            } else if let Some(fate) = controller_fate(full, value) {
                fate
            } else {
                if full != CLASS_ANNOTATION {
                    report.note(&at, "not read");
                }
                continue;
            };
            match fate {
                Used => {
                    let name = full.strip_prefix(PREFIX).unwrap_or(full);
                    options.used.insert(name.to_owned(), value.trim().to_owned());
                }
                Ignored(reason) => report.ignored(&at, reason),
                Restricts(reason) => {
                    report.ignored(&at, &format!("the Ingress is left out: {reason}"));
                    restrictions.push(full.to_owned());
                }
            }
        }
        let used = &mut options.used;
        if used.get("enable-cors").is_none_or(|value| value != "true") {
            for (name, _) in
                used.extract_if(.., |name, _| name.ends_with("-cors") || name.starts_with("cors-"))
            {
                report.ignored(&field(&name), "it is not in effect without `enable-cors`");
            }
        }
        if restrictions.is_empty() { Ok(options) } else { Err(restrictions) }
    }

    /// Returns the value of an annotation that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.used.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns true if an annotation is `true`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns the annotations that are set.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.used.keys().map(String::as_str)
    }
}

/// Returns the value of an annotation of ingress-nginx at an Ingress that is left out; empty if there is none.
pub(super) fn raw(ingress: &Value, name: &str) -> String {
    let annotations = ingress.pointer("/metadata/annotations");
    let value = annotations.and_then(|all| all.get(format!("{PREFIX}{name}"))).map(scalar);
    value.unwrap_or_default().trim().to_owned()
}

/// Returns true if paths of an Ingress are those of Traefik, which compares characters.
pub(super) fn is_of_traefik(ingress: &Value) -> bool {
    entries(ingress, "/metadata/annotations").any(|(name, _)| name.contains("traefik"))
}

/// Annotations of Services with settings of Google Cloud that may authenticate clients or compare their addresses.
const BACKEND_CONFIGS: [&str; 2] =
    ["cloud.google.com/backend-config", "beta.cloud.google.com/backend-config"];

/// Returns the annotation of a controller at a Service for which gateways cannot send requests to it, with the reason if it may
/// restrict requests.
pub(super) fn service_restriction(service: &Value) -> Option<String> {
    let annotations = entries(service, "/metadata/annotations");
    annotations.into_iter().find_map(|(full, value)| {
        let value = &*scalar(value);
        let of_controller = match full.strip_prefix(TRAEFIK) {
            Some(name) => {
                let restricts = matches!(traefik_fate(name, value, true), Restricts(_));
                return (name.starts_with("service.") && restricts).then(|| full.to_owned());
            }
            None => matches!(controller_fate(full, value), Some(Restricts(_))),
        };
        let is_config = BACKEND_CONFIGS.contains(&full) && !value.trim().is_empty();
        (of_controller || is_config).then(|| format!("{full}{MAY_RESTRICT}"))
    })
}

/// End of the text for an annotation of a Service that may restrict requests.
pub(super) const MAY_RESTRICT: &str = ", which may restrict requests";

/// Returns the path of an annotation in the document.
pub(super) fn field(name: &str) -> String {
    format!("metadata.annotations[\"{PREFIX}{name}\"]")
}

/// Returns the entry of a list for an annotation; unknown ones may restrict requests.
fn entry_of(list: &[(&str, AnnotationFate)], name: &str) -> AnnotationFate {
    let is_entry = |(entry, _): &&(&str, AnnotationFate)| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => *entry == name,
    };
    let found = list.iter().find(is_entry).map(|(_, fate)| *fate);
    found.unwrap_or(Restricts("the annotation is unknown and may restrict requests"))
}

/// Returns the meaning of an annotation of Traefik. `has_tls` is true if the Ingress has host names with TLS.
fn traefik_fate(name: &str, value: &str, has_tls: bool) -> AnnotationFate {
    let value = value.trim();
    match (name, entry_of(TRAEFIK_ANNOTATIONS, name)) {
        (_, Restricts(_)) if value.is_empty() || value == "false" => Ignored("it is not in effect"),
        ("router.entrypoints", _)
            if value.split(',').all(|one| ["web", "websecure"].contains(&one.trim())) =>
        {
            match has_tls || value.split(',').any(|one| one.trim() == "web") {
                true => Ignored("a Gateway has listeners for the ports 80 and 443"),
                false => Restricts(TLS_ONLY),
            }
        }
        ("router.tls", _) if has_tls => Ignored("host names with TLS are those of `spec.tls`"),
        ("router.pathmatcher", _) if value == "PathPrefix" => Ignored("paths are compared by `pathType`"),
        ("service.serversscheme", _) if value == "http" => Ignored("endpoints receive HTTP without TLS"),
        (_, found) => found,
    }
}

fn fate(name: &str, value: &str) -> AnnotationFate {
    match entry_of(ANNOTATIONS, name) {
        Restricts(_) if value.trim() == "false" || value.trim().is_empty() => Ignored("it is not in effect"),
        Used if name == "backend-protocol" && !value.trim().eq_ignore_ascii_case("http") => {
            Restricts("gateways send HTTP/1.1, or HTTP/2 if the port has `appProtocol: kubernetes.io/h2c`")
        }
        found @ (Used | Ignored(_) | Restricts(_)) => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_annotation_and_a_lost_restriction_take_the_ingress_with_them() {
        for (name, value, is_restriction) in [
            ("auth-url", "https://auth.example.org", true),
            ("whitelist-source-range", "10.0.0.0/8", true),
            ("limit-rps", "5", true),
            ("invented", "x", true),
            ("enable-modsecurity", "false", false),
            ("backend-protocol", "HTTP", false),
            ("backend-protocol", "GRPC", true),
            ("proxy-body-size", "8m", false),
            ("rewrite-target", "/", false),
        ] {
            assert_eq!(matches!(fate(name, value), Restricts(_)), is_restriction, "{name}: {value}");
        }
    }

    #[test]
    fn restrictions_of_traefik_are_recognized() {
        for (name, value, has_tls, is_restriction) in [
            ("router.middlewares", "shop-auth@kubernetescrd", true, true),
            ("router.middlewares", "", true, false),
            ("router.entrypoints", "web", false, false),
            ("router.entrypoints", "web, websecure", false, false),
            ("router.entrypoints", "websecure", true, false),
            ("router.entrypoints", "websecure", false, true),
            ("router.entrypoints", "internal", true, true),
            ("router.tls", "true", false, true),
            ("router.tls", "true", true, false),
            ("router.tls.options", "shop-mutual@kubernetescrd", true, true),
            ("router.tls.certresolver", "letsencrypt", true, false),
            ("router.pathmatcher", "PathRegexp", true, true),
            ("router.priority", "42", true, false),
            ("service.serversscheme", "https", true, true),
            ("service.sticky.cookie", "true", true, false),
            ("router.invented", "x", true, true),
        ] {
            let found = traefik_fate(name, value, has_tls);
            assert_eq!(matches!(found, Restricts(_)), is_restriction, "{name}: {value}");
        }
    }
}
