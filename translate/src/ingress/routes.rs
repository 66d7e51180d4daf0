//! Rules of Ingresses as HttpRoutes.

mod refuse;

use std::collections::BTreeMap;

use model::kinds::http_route::ROUTE_RULES_MAX;
use serde_json::{Value, json};

use self::refuse::{RefusedIngress, names_of, path_style};
use super::{
    GatewayId, IngressInput,
    annotations::{IngressOptions, MAY_RESTRICT, field},
    gateway_id, host_of, object,
    refusal::RefusedPath,
};
use crate::{
    draft::Draft,
    json::{items, text},
};

/// Sum of the weights of a rule with a canary, unless `canary-weight-total` is set.
const WEIGHT_TOTAL: u64 = 100;

/// HttpRoutes of all Ingresses.
#[derive(Default)]
pub(super) struct IngressRoutes {
    routes: Vec<HostRoute>,
}

/// Rules for one host name of an Ingress.
struct HostRoute {
    namespace: String,
    name: String,
    /// Host names; none stands for all.
    hostnames: Vec<String>,
    parents: Vec<Value>,
    rules: Vec<PathRule>,
}

/// Headers that ingress-nginx allows in requests from pages of other origins.
const CORS_HEADERS: &str = "DNT, Keep-Alive, User-Agent, X-Requested-With, If-Modified-Since, Cache-Control, Content-Type, Range, Authorization";
/// Time for which browsers may keep the answer of ingress-nginx to a preflight request, in seconds.
const CORS_MAX_AGE: u32 = 1_728_000;

/// Rule for one path.
struct PathRule {
    path: Value,
    /// Header that a canary requires.
    header: Option<Value>,
    filters: Vec<Value>,
    backends: Vec<Value>,
    /// Refusal of the requests.
    refuse: Option<Value>,
}

/// Ingress with the data that its routes share.
struct IngressContext<'a> {
    input: &'a IngressInput<'a>,
    ingress: &'a Value,
    options: &'a IngressOptions,
    gateway: GatewayId,
    name: String,
}

impl IngressRoutes {
    /// Adds the routes of an Ingress.
    pub(super) fn add(
        &mut self,
        draft: &mut Draft,
        input: &IngressInput<'_>,
        ingress: &Value,
        options: &IngressOptions,
    ) {
        let name = text(ingress, "/metadata/name");
        let context = IngressContext { input, ingress, options, gateway: gateway_id(ingress), name };
        for (index, rule) in items(ingress, "/spec/rules").iter().enumerate() {
            let host = host_of(rule);
            if host.starts_with("*.") {
                let words = "`*` stands for one label or more, and for exactly one in an Ingress";
                draft.report.approximated(&format!("spec.rules[{index}].host"), words);
            }
            let paths = items(rule, "/http/paths").iter().enumerate();
            let rules: Vec<_> = paths
                .filter_map(|(at, path)| {
                    let at = format!("spec.rules[{index}].http.paths[{at}]");
                    context.path_rule(draft, &at, &host, path)
                })
                .collect();
            if options.is_on("canary") {
                self.add_canary(draft, &context, &host, rules);
            } else {
                self.add_host(draft, &context, index, host, rules);
            }
        }
        let default = ["/spec/defaultBackend", "/spec/backend"];
        if let Some(backend) = default.iter().find_map(|at| ingress.pointer(at)) {
            let rule = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
            let rules = context.path_rule(draft, "spec.defaultBackend", "", &rule).into_iter().collect();
            let index = items(ingress, "/spec/rules").len();
            self.add_host(draft, &context, index, String::new(), rules);
        }
        context.report_options(draft);
    }

    fn add_host(
        &mut self,
        draft: &mut Draft,
        context: &IngressContext<'_>,
        index: usize,
        host: String,
        rules: Vec<PathRule>,
    ) {
        if rules.is_empty() {
            return;
        }
        let (options, gateway) = (context.options, &context.gateway);
        let secure = context.input.listeners(gateway, &host);
        let has_redirect = match options.get("ssl-redirect") {
            Some(value) => value == "true" || options.is_on("force-ssl-redirect"),
            None => true,
        };
        let is_redirected = has_redirect && !secure.is_empty();
        if (options.is_on("force-ssl-redirect") || options.is_secure_only) && secure.is_empty() {
            let reason =
                format!("Ingress {}/{}: TLS is required without a certificate", gateway.0, context.name);
            let source = RefusedIngress {
                input: context.input,
                ingress: context.ingress,
                gateway: gateway.clone(),
                name: context.name.clone(),
                reason,
                is_of_host: false,
            };
            let paths = items(context.ingress, "/spec/rules").get(index);
            let paths = paths.map_or(&[][..], |rule| items(rule, "/http/paths"));
            self.refuse_host(draft, &source, &format!("spec.rules[{index}]"), index, &host, paths);
            return;
        }
        let hostnames = names_of(&host, options.get("server-alias").unwrap_or_default(), "");
        let parent = |section: &str| json!({ "name": gateway.1, "sectionName": section });
        let mut parents: Vec<_> = secure.iter().map(|section| parent(section)).collect();
        let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
        let name = format!("{}{number}", context.name);
        if is_redirected {
            let filter = redirect(json!({ "scheme": "https", "statusCode": 308 }));
            let rule = |rule: &PathRule| PathRule {
                filters: vec![filter.clone()],
                ..PathRule::new(rule.path.clone())
            };
            self.routes.push(HostRoute {
                namespace: gateway.0.clone(),
                name: format!("{name}-to-https"),
                hostnames: hostnames.clone(),
                parents: vec![parent("http")],
                rules: rules.iter().map(rule).collect(),
            });
        } else if !options.is_secure_only {
            parents.insert(0, parent("http"));
        }
        self.add_www(context, &name, &hostnames, &parents);
        let namespace = gateway.0.clone();
        self.routes.push(HostRoute { namespace, name, hostnames, parents, rules });
    }

    /// Adds the redirection of the host name with or without `www.` to the other one.
    fn add_www(&mut self, context: &IngressContext<'_>, name: &str, hostnames: &[String], parents: &[Value]) {
        let Some(host) = hostnames.first().filter(|_| context.options.is_on("from-to-www-redirect")) else {
            return;
        };
        let other = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
        let rule = PathRule {
            filters: vec![redirect(json!({ "hostname": host, "statusCode": 308 }))],
            ..PathRule::new(json!({ "type": "PathPrefix", "value": "/" }))
        };
        self.routes.push(HostRoute {
            namespace: context.gateway.0.clone(),
            name: format!("{name}-www"),
            hostnames: vec![other],
            parents: parents.to_vec(),
            rules: vec![rule],
        });
    }

    /// Adds the backends of a canary to the rules with the same host name and path.
    fn add_canary(
        &mut self,
        draft: &mut Draft,
        context: &IngressContext<'_>,
        host: &str,
        rules: Vec<PathRule>,
    ) {
        let number = |name: &str| context.options.get(name).and_then(|text| text.parse::<u64>().ok());
        let total = number("canary-weight-total").unwrap_or(WEIGHT_TOTAL).max(1);
        let weight = number("canary-weight").unwrap_or(0).min(total);
        for canary in rules {
            let is_host = |route: &&mut HostRoute| {
                route.namespace == context.gateway.0
                    && (route.hostnames.iter().any(|name| name == host)
                        || (host.is_empty() && route.hostnames.is_empty()))
                    && route.rules.iter().any(|rule| rule.path == canary.path && !rule.backends.is_empty())
            };
            let Some(route) = self.routes.iter_mut().find(is_host) else {
                let reason = format!("left out: no Ingress has the host {host} and the path of the canary");
                draft.report.ignored("spec.rules", &reason);
                continue;
            };
            let Some(rule) = route.rules.iter_mut().find(|rule| rule.path == canary.path) else { continue };
            let header = context.options.get("canary-by-header").map(|name| {
                let value = context.options.get("canary-by-header-value").unwrap_or("always");
                json!({ "name": name, "value": value })
            });
            let filters = rule.filters.clone();
            if weight > 0 || header.is_none() {
                weigh(&mut rule.backends, total - weight);
                let mut added = canary.backends.clone();
                weigh(&mut added, weight);
                rule.backends.extend(added);
            }
            if let Some(header) = header {
                let canary = PathRule { header: Some(header), filters, ..canary };
                route.rules.push(canary);
            }
        }
    }

    /// Returns the HttpRoutes.
    pub(super) fn finish(self) -> Vec<Value> {
        let mut taken: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut objects = Vec::new();
        for route in self.routes {
            for (index, rules) in route.rules.chunks(ROUTE_RULES_MAX).enumerate() {
                let mut name = route.name.clone();
                if index > 0 {
                    name = format!("{name}-part-{}", index + 1);
                }
                let count = taken.entry((route.namespace.clone(), name.clone())).or_default();
                *count += 1;
                if *count > 1 {
                    name = format!("{name}-again-{count}");
                }
                let mut spec = json!({
                    "parentRefs": route.parents,
                    "rules": rules.iter().map(PathRule::to_json).collect::<Vec<_>>(),
                });
                if !route.hostnames.is_empty() {
                    spec["hostnames"] = json!(route.hostnames);
                }
                objects.push(object("HttpRoute", &route.namespace, &name, spec));
            }
        }
        objects
    }
}

impl PathRule {
    /// Returns a rule without conditions, filters and backends.
    fn new(path: Value) -> Self {
        Self { path, header: None, filters: Vec::new(), backends: Vec::new(), refuse: None }
    }

    /// Returns a rule that refuses requests.
    fn refusing(refused: &RefusedPath, reason: &str) -> Self {
        Self { refuse: Some(refused.refusal(reason)), ..Self::new(refused.path()) }
    }

    fn to_json(&self) -> Value {
        let mut one = json!({ "path": self.path });
        if let Some(header) = &self.header {
            one["headers"] = json!([header]);
        }
        let mut rule = json!({ "matches": [one] });
        if let Some(refuse) = &self.refuse {
            rule["refuse"] = refuse.clone();
            return rule;
        }
        if !self.filters.is_empty() {
            rule["filters"] = json!(self.filters);
        }
        if !self.backends.is_empty() {
            rule["backendRefs"] = json!(self.backends);
        }
        rule
    }
}

impl IngressContext<'_> {
    /// Translates one path. Returns `None`, with a line in the report, if it must be left out.
    fn path_rule(&self, draft: &mut Draft, at: &str, host: &str, rule: &Value) -> Option<PathRule> {
        let (path_type, path) = (text(rule, "/pathType"), text(rule, "/path"));
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let mut fail = |field: &str, reason: &str| {
            draft.report.ignored(&format!("{at}.{field}"), &format!("the path is left out: {reason}"));
        };
        let options = self.options;
        let is_regex = options.is_on("use-regex")
            || options.get("rewrite-target").is_some_and(|target| target.contains('$'));
        let (matched, rewrite) = match read_path(&path_type, &path, options, is_regex) {
            Ok(found) => found,
            Err(reason) => {
                fail("path", reason);
                return None;
            }
        };
        let filters = match self.filters(rewrite) {
            Ok(filters) => filters,
            Err(reason) => {
                fail("path", &reason);
                return None;
            }
        };
        let is_redirect = filters.iter().any(|filter| text(filter, "/type") == "RequestRedirect");
        let backends = match self.backend(rule.get("backend").unwrap_or(&Value::Null)) {
            _ if is_redirect => Vec::new(),
            Ok(backend) => vec![backend],
            // Requests that would reach the canary reach the other backend of the path.
            Err(reason) if options.is_on("canary") => {
                fail("backend", &format!("{reason}; its requests reach the other backend"));
                return None;
            }
            Err(reason) => {
                let words = format!("requests for the path are refused with 500: {reason}");
                draft.report.ignored(&format!("{at}.backend"), &words);
                let style = path_style(self.input, self.ingress, host, rule);
                let reason = format!("Ingress {}/{}: {reason}", self.gateway.0, self.name);
                // A regular expression of a usual form has one path.
                let refused = RefusedPath::of(&path, style).into_iter().next()?;
                let refused =
                    if reason.ends_with(MAY_RESTRICT) { refused.at_all_listeners() } else { refused };
                return Some(PathRule { path: matched, ..PathRule::refusing(&refused, &reason) });
            }
        };
        let target = format!("httproute/{}", self.name);
        let is_raw = path_type != "Exact" && path_type != "Prefix" && path != "/";
        if is_regex || is_raw {
            let words = "compared by whole path elements; nginx compares characters or a regular expression";
            draft.report.approximated(&format!("{at}.path"), &format!("{target}: {words}"));
        } else {
            draft.report.mapped(at, &target);
        }
        Some(PathRule { filters, backends, ..PathRule::new(matched) })
    }

    fn backend(&self, backend: &Value) -> Result<Value, String> {
        let (service, number) = (text(backend, "/service/name"), backend.pointer("/service/port/number"));
        let old = text(backend, "/serviceName");
        let (service, name, number) = if service.is_empty() {
            let port = backend.get("servicePort");
            (old, port.and_then(Value::as_str).unwrap_or_default().to_owned(), port.and_then(Value::as_u64))
        } else {
            (service, text(backend, "/service/port/name"), number.and_then(Value::as_u64))
        };
        if service.is_empty() {
            return Err("only Services can be backends".to_owned());
        }
        if let Some(annotation) = self.input.unusable_services.get(&(self.gateway.0.clone(), service.clone()))
        {
            return Err(format!("gateways cannot send requests to Service {service} with {annotation}"));
        }
        let parsed = number.or_else(|| name.parse().ok());
        let port = parsed.or_else(|| self.input.port(&self.gateway.0, &service, &name));
        let port = port.ok_or_else(|| {
            format!("the number of port `{name}` is unknown; add the Service {service} to the input")
        })?;
        Ok(json!({ "name": service, "port": port }))
    }

    /// Returns the filters of a path: those of the annotations, and the rewrite of its path.
    fn filters(&self, rewrite: Option<Value>) -> Result<Vec<Value>, String> {
        let options = self.options;
        for (target, code, default) in [
            ("permanent-redirect", "permanent-redirect-code", 301),
            ("temporal-redirect", "temporal-redirect-code", 302),
        ] {
            if let Some(url) = options.get(target) {
                let status = options.get(code).and_then(|code| code.parse().ok()).unwrap_or(default);
                return Ok(vec![redirect(redirect_to(url, status)?)]);
            }
        }
        let mut filters = Vec::new();
        if let Some(prefix) = options.get("x-forwarded-prefix") {
            let set = json!([{ "name": "X-Forwarded-Prefix", "value": prefix }]);
            filters.push(json!({ "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": set } }));
        }
        let mut change = json!({});
        if let Some(path) = rewrite {
            change["path"] = path;
        }
        if let Some(host) = options.get("upstream-vhost") {
            change["hostname"] = host.into();
        }
        if change != json!({}) {
            filters.push(json!({ "type": "URLRewrite", "urlRewrite": change }));
        }
        if options.is_on("enable-cors") {
            filters.push(json!({ "type": "CORS", "cors": cors(options) }));
        }
        Ok(filters)
    }

    fn report_options(&self, draft: &mut Draft) {
        for name in self.options.names() {
            let target = format!("httproute/{}", self.name);
            match name {
                "rewrite-target" => draft.report.approximated(
                    &field(name),
                    &format!("{target}: paths are case-sensitive, and unlike the type of path in nginx, prefixes stay prefixes"),
                ),
                _ => draft.report.mapped(&field(name), &target),
            }
        }
    }
}

/// Returns the settings of a filter CORS, with the defaults of ingress-nginx.
fn cors(options: &IngressOptions) -> Value {
    let list = |name: &str, default: &str| {
        let words = options.get(name).unwrap_or(default).split(',').map(str::trim);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        if words.contains(&"*") { json!(["*"]) } else { json!(words) }
    };
    let max_age = options.get("cors-max-age").and_then(|text| text.parse::<u32>().ok());
    let mut policy = json!({
        "allowOrigins": list("cors-allow-origin", "*"),
        "allowMethods": list("cors-allow-methods", "GET, PUT, POST, DELETE, PATCH, OPTIONS"),
        "allowHeaders": list("cors-allow-headers", CORS_HEADERS),
        "allowCredentials": options.get("cors-allow-credentials") != Some("false"),
        "maxAge": max_age.unwrap_or(CORS_MAX_AGE),
    });
    if options.get("cors-expose-headers").is_some() {
        policy["exposeHeaders"] = list("cors-expose-headers", "");
    }
    policy
}

/// Returns the match of a path and the replacement by `rewrite-target`.
///
/// # Errors
/// Returns the reason if the path is a regular expression without an equivalent.
fn read_path(
    path_type: &str,
    path: &str,
    options: &IngressOptions,
    is_regex: bool,
) -> Result<(Value, Option<Value>), &'static str> {
    let prefix = |value: &str| json!({ "type": "PathPrefix", "value": value });
    let full = |target: &str| json!({ "type": "ReplaceFullPath", "replaceFullPath": target });
    let target = options.get("rewrite-target");
    if path_type == "Exact" && !is_regex {
        return Ok((json!({ "type": "Exact", "value": path }), target.map(full)));
    }
    if !is_regex {
        return Ok((prefix(path), target.map(full)));
    }
    // The usual forms: the rest of the path is the last group.
    let forms =
        [("(/|$)(.*)", "$2"), ("/?(.*)", "$1"), ("/(.*)", "$1"), ("(.*)", "$1"), ("/.*", ""), (".*", "")];
    for (end, group) in forms {
        let Some(base) = path.strip_suffix(end) else { continue };
        if base.contains(is_special) {
            continue;
        }
        let base = if base.is_empty() { "/" } else { base };
        return match target {
            None => Ok((prefix(base), None)),
            Some(target) if !target.contains('$') => Ok((prefix(base), Some(full(target)))),
            Some(target) => {
                let new = target.strip_suffix(group).filter(|new| !group.is_empty() && !new.contains('$'));
                let new = new.ok_or("its rewrite-target has no equivalent")?;
                let new = if new.len() > 1 { new.trim_end_matches('/') } else { new };
                if new.trim_end_matches('/') == base.trim_end_matches('/') {
                    return Ok((prefix(base), None));
                }
                let replace = json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": new });
                Ok((prefix(base), Some(replace)))
            }
        };
    }
    if path.contains(is_special) || target.is_some_and(|target| target.contains('$')) {
        return Err("it is a regular expression without an equivalent");
    }
    Ok((prefix(path), target.map(full)))
}

/// Returns true if a character has a meaning in regular expressions.
fn is_special(c: char) -> bool {
    "()[]{}*+?|^$\\".contains(c)
}

fn redirect(settings: Value) -> Value {
    json!({ "type": "RequestRedirect", "requestRedirect": settings })
}

/// Returns the redirection to a URL.
fn redirect_to(url: &str, status: u16) -> Result<Value, String> {
    let malformed = || format!("`{url}` is not a redirection without variables");
    let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
    if url.contains('$') || url.contains(['?', '#']) || !["http", "https"].contains(&scheme) {
        return Err(malformed());
    }
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let path = if path.is_empty() { "/" } else { path };
    let mut settings = json!({
        "scheme": scheme, "hostname": host, "statusCode": status,
        "path": { "type": "ReplaceFullPath", "replaceFullPath": path },
    });
    if let Some(port) = port {
        settings["port"] = json!(port.parse::<u16>().map_err(|_| malformed())?);
    }
    Ok(settings)
}

/// Sets the weight of each backend.
fn weigh(backends: &mut [Value], weight: u64) {
    for backend in backends {
        backend["weight"] = json!(weight);
    }
}
