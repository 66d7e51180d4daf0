//! Rules that refuse requests for the paths of Ingresses that are left out.

use model::{kinds::http_route::ROUTE_HOSTNAMES_MAX, primitives::hostname_pattern::HostnamePattern};
use serde_json::{Value, json};

use super::{HostRoute, IngressRoutes, PathRule, is_special};
use crate::{
    draft::Draft,
    ingress::{
        GatewayId, IngressInput,
        annotations::{is_of_traefik, raw},
        gateway_id, host_of,
        refusal::{PathStyle, RefusedPath},
    },
    json::{items, text},
};

/// Maximum length of the part of the name of an HttpRoute that is the name of an Ingress whose paths are refused.
const NAME_BYTES_MAX: usize = 200;

/// Ingress whose paths are refused.
pub(super) struct RefusedIngress<'a> {
    pub(super) input: &'a IngressInput<'a>,
    pub(super) ingress: &'a Value,
    pub(super) gateway: GatewayId,
    pub(super) name: String,
    pub(super) reason: String,
    /// True if the restrictions concern the whole host name, not the paths of the Ingress alone.
    pub(super) is_of_host: bool,
}

/// Words in the names of annotations that controllers apply to all paths of a host name.
const OF_HOST: &[&str] = &["auth-tls", "server-snippet", "ssl-passthrough"];

impl IngressRoutes {
    /// Adds rules that refuse requests for the paths of an Ingress that is left out.
    pub(in crate::ingress) fn refuse(
        &mut self,
        draft: &mut Draft,
        input: &IngressInput<'_>,
        ingress: &Value,
        restrictions: &[String],
    ) {
        let (gateway, name) = (gateway_id(ingress), text(ingress, "/metadata/name"));
        let reason = format!("Ingress {}/{name}: {}", gateway.0, restrictions.join(", "));
        let is_of_host = restrictions.iter().any(|one| OF_HOST.iter().any(|word| one.contains(word)));
        let source = RefusedIngress { input, ingress, gateway, name, reason, is_of_host };
        for (index, rule) in items(ingress, "/spec/rules").iter().enumerate() {
            let at = format!("spec.rules[{index}]");
            self.refuse_host(draft, &source, &at, index, &host_of(rule), items(rule, "/http/paths"));
        }
        if ["/spec/defaultBackend", "/spec/backend"].iter().any(|at| ingress.pointer(at).is_some()) {
            let index = items(ingress, "/spec/rules").len();
            self.refuse_host(draft, &source, "spec.defaultBackend", index, "", &[]);
        }
    }

    /// Refuses the paths of a host name and its aliases, all paths if there are none.
    pub(super) fn refuse_host(
        &mut self,
        draft: &mut Draft,
        source: &RefusedIngress<'_>,
        at: &str,
        index: usize,
        host: &str,
        paths: &[Value],
    ) {
        let RefusedIngress { input, ingress, gateway, name, reason, is_of_host } = source;
        // Without paths, a restriction concerns all requests for the host name.
        let is_whole = !host.is_empty() && (*is_of_host || paths.is_empty());
        let everything = [json!({ "path": "/", "pathType": "Prefix" })];
        let paths = if paths.is_empty() || is_whole { &everything[..] } else { paths };
        let refused = paths.iter().flat_map(|path| {
            let style = path_style(input, ingress, host, path);
            RefusedPath::of(&text(path, "/path"), style)
        });
        let refused = refused.map(RefusedPath::at_all_listeners);
        let refused: Vec<_> =
            refused.map(|one| if is_whole { one.covering_longer_paths() } else { one }).collect();
        let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
        // The name of the Ingress may have the maximum length.
        let short = name.get(..NAME_BYTES_MAX).unwrap_or(name).trim_end_matches(['-', '.']);
        let route = format!("{short}-refused{number}");
        let mut hostnames = Vec::new();
        for one in names_of(host, &raw(ingress, "server-alias"), &raw(ingress, "from-to-www-redirect")) {
            match HostnamePattern::parse(&one) {
                Ok(_) => hostnames.push(one),
                Err(problem) => {
                    let words = format!("NOT refused for the host name `{one}`, which {problem}");
                    draft.report.ignored(at, &words);
                }
            }
        }
        if hostnames.is_empty() && !host.is_empty() {
            return;
        }
        let words: Vec<_> = refused.iter().map(RefusedPath::words).collect();
        let shown =
            if host.is_empty() { "every host name without rules".to_owned() } else { hostnames.join(", ") };
        let words =
            format!("httproute/{route} refuses requests for {} of {shown} with 500", words.join(" and "));
        draft.report.ignored(at, &words);
        let sections = input.listeners(gateway, host).into_iter();
        let sections = std::iter::once("http".to_owned()).chain(sections);
        let parents: Vec<_> =
            sections.map(|name| json!({ "name": gateway.1, "sectionName": name })).collect();
        let chunks: Vec<&[String]> =
            if hostnames.is_empty() { vec![&[]] } else { hostnames.chunks(ROUTE_HOSTNAMES_MAX).collect() };
        for hostnames in chunks {
            self.routes.push(HostRoute {
                namespace: gateway.0.clone(),
                name: route.clone(),
                hostnames: hostnames.to_vec(),
                parents: parents.clone(),
                rules: refused.iter().map(|one| PathRule::refusing(one, reason)).collect(),
            });
        }
    }
}

/// Returns the host names of a rule: its own one, its aliases and, on request, the one with or without `www.`.
pub(super) fn names_of(host: &str, aliases: &str, from_to_www: &str) -> Vec<String> {
    let aliases = aliases.split(',').map(|alias| alias.trim().to_ascii_lowercase());
    let www = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
    let www = Some(www).filter(|_| from_to_www == "true" && !host.is_empty());
    let mut names = Vec::new();
    for name in std::iter::once(host.to_owned()).chain(aliases).chain(www) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the comparison of paths by the controller that served an Ingress.
pub(super) fn path_style(input: &IngressInput<'_>, ingress: &Value, host: &str, path: &Value) -> PathStyle {
    if input.regex_hosts.contains(host) {
        return PathStyle::Regex;
    }
    match text(path, "/pathType").as_str() {
        "Exact" => PathStyle::Exact,
        "Prefix" if !is_of_traefik(ingress) => PathStyle::Elements,
        "Prefix" => PathStyle::Characters,
        _ if text(path, "/path").contains(is_special) => PathStyle::Regex,
        _ => PathStyle::Characters,
    }
}
