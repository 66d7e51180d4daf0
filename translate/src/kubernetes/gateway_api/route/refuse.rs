//! Refusals of the paths of routes that are left out.
//!
//! A rule with a filter or a condition that gateways do not have may restrict requests. Other routes of the host name must not serve its
//! paths, so that the HttpRoute of such a route refuses them; the Gateway API requires the status code 500 for filters that
//! cannot be applied.

use model::kinds::http_route::MATCHES_MAX;
use serde_json::{Map, Value, json};

use super::{RouteKind, RouteProblem, RouteSource, RouteTranslation, http_route};
use crate::{
    ingress::refusal::{PathStyle, RefusedPath},
    json::{items, text},
    kubernetes::{Settings, TranslationResult},
};

/// Condition and refusal of the requests that meet it.
type RefusedMatch = (Value, Value);

/// Replaces the translation of a route by the refusal of its paths, for the given reason.
pub(super) fn reject(
    made: &mut RouteTranslation,
    settings: &Settings,
    source: RouteSource<'_>,
    parents: &[Value],
    message: String,
) {
    let RouteSource { kind, route, .. } = source;
    let name = format!("{}/{}", text(route, "/metadata/namespace"), text(route, "/metadata/name"));
    let reason = format!("{} {name}: {message}", kind.as_str());
    let rules = items(route, "/spec/rules").iter();
    let rules = grouped(rules.flat_map(|rule| refused_matches(kind, rule, &reason)).collect());
    for rules in [rules, grouped(whole(&reason))] {
        // Findings of the refusal itself would be in addition to that of the route.
        let mut refusal = TranslationResult::default();
        if refusal.finish(&http_route(settings, source, parents, rules)) {
            made.result.objects = refusal.objects;
            made.result.documents = refusal.documents;
            break;
        }
    }
    made.backends.clear();
    made.unresolved = None;
    made.rejected = Some(RouteProblem { reason: "UnsupportedValue", message });
}

/// Returns the refusal of all requests of the host names.
fn whole(reason: &str) -> Vec<RefusedMatch> {
    let all = RefusedPath::of("/", PathStyle::WholeRegex);
    all.iter().map(|one| (json!({ "path": one.path() }), one.refusal(reason))).collect()
}

/// Returns the refusals of all requests that a rule may match.
fn refused_matches(kind: RouteKind, rule: &Value, reason: &str) -> Vec<RefusedMatch> {
    let everything = [json!({})];
    let matches = items(rule, "/matches");
    let matches = if matches.is_empty() { &everything[..] } else { matches };
    let mut found = Vec::new();
    for one in matches {
        let (path, style) = match kind {
            RouteKind::Http | RouteKind::Tls => path_of(one),
            RouteKind::Grpc => call_path(one),
        };
        for refused in RefusedPath::of(&path, style) {
            let mut condition = conditions(kind, one);
            condition.insert("path".to_owned(), refused.path());
            found.push((Value::Object(condition), refused.refusal(reason)));
        }
    }
    found
}

/// Returns rules for refusals, with the conditions of equal ones together: the number of rules is limited.
fn grouped(all: Vec<RefusedMatch>) -> Vec<Value> {
    let mut rules: Vec<(Value, Vec<Value>)> = Vec::new();
    for (condition, refusal) in all {
        match rules.iter_mut().find(|(of, found)| *of == refusal && found.len() < MATCHES_MAX) {
            Some((_, found)) => found.push(condition),
            None => rules.push((refusal, vec![condition])),
        }
    }
    rules.into_iter().map(|(refusal, found)| json!({ "matches": found, "refuse": refusal })).collect()
}

fn path_of(one: &Value) -> (String, PathStyle) {
    let style = match text(one, "/path/type").as_str() {
        "Exact" => PathStyle::Exact,
        "" | "PathPrefix" => PathStyle::Elements,
        _ => PathStyle::WholeRegex,
    };
    (text(one, "/path/value"), style)
}

/// Returns the path of the calls that a match of a GRPCRoute selects.
fn call_path(one: &Value) -> (String, PathStyle) {
    let (service, method) = (text(one, "/method/service"), text(one, "/method/method"));
    let is_exact = ["", "Exact"].contains(&text(one, "/method/type").as_str());
    match (is_exact, service.is_empty(), method.is_empty()) {
        (true, false, false) => (format!("/{service}/{method}"), PathStyle::Exact),
        (true, false, true) => (format!("/{service}"), PathStyle::Elements),
        (true, true, true) => ("/".to_owned(), PathStyle::Elements),
        (false, false, _) => (format!("/{service}"), PathStyle::WholeRegex),
        // Every service may have the method.
        (_, true, _) => ("/".to_owned(), PathStyle::WholeRegex),
    }
}

/// Returns the conditions of a match that gateways have, except that for the path. Without the others, more requests are refused.
fn conditions(kind: RouteKind, one: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    let method = match kind {
        RouteKind::Http | RouteKind::Tls => one.get("method").cloned().unwrap_or_default(),
        // Calls of gRPC are POST requests.
        RouteKind::Grpc => "POST".into(),
    };
    if method.is_string() {
        kept.insert("method".to_owned(), method);
    }
    for field in ["headers", "queryParams"] {
        let fields = items(one, &format!("/{field}")).iter();
        let exact: Vec<_> =
            fields.filter(|field| ["", "Exact"].contains(&text(field, "/type").as_str())).cloned().collect();
        if !exact.is_empty() {
            kept.insert(field.to_owned(), json!(exact));
        }
    }
    kept
}
