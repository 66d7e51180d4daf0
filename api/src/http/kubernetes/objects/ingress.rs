//! Conversion of an HttpRoute to an Ingress, for `kubectl get ingress` and `kubectl describe ingress`.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    cluster::snapshot::Snapshot,
    http::certificate_refs,
    kinds::{
        gateway::{GatewayListener, GatewaySpec, ListenerProtocol},
        http_route::{HttpRouteMatch, HttpRouteRule, HttpRouteSpec, ParentRef, PathMatchType},
        resource::{Kind, Object, ObjectKey},
    },
    primitives::{hostname_pattern::HostnamePattern, quantity::Epoch},
};
use serde_json::{Map, Value, json};

use super::{
    Resource, annotate_rest,
    gateway::{CLASS, addresses_of},
    metadata,
};

/// Renders the hosts, paths and backends of a route, the certificates of its listeners, and the addresses of its Gateways. The
/// annotation `tidegate/spec` has the complete specification if an Ingress cannot express it.
pub(in super::super) fn render(
    object: &Object,
    spec: &HttpRouteSpec,
    snapshot: &Snapshot,
    epoch: Epoch,
) -> Value {
    let mut metadata = metadata(&object.metadata, Resource::Ingresses, epoch);
    let is_complete = spec.rules.iter().all(is_expressible);
    if !is_complete && let Value::Object(rest) = object.spec.to_json() {
        annotate_rest(&mut metadata, &rest);
    }
    let paths: Vec<_> = spec.rules.iter().flat_map(|rule| paths(object, rule)).collect();
    let http = json!({ "paths": paths });
    let rules: Vec<_> = if spec.hostnames.is_empty() {
        vec![json!({ "http": http })]
    } else {
        spec.hostnames.iter().map(|host| json!({ "host": host, "http": http })).collect()
    };
    let mut shown = Map::new();
    shown.insert("ingressClassName".to_owned(), json!(CLASS));
    shown.insert("rules".to_owned(), json!(rules));
    let (mut addresses, mut tls) = (BTreeSet::new(), BTreeMap::new());
    if let Some(namespace) = &object.metadata.namespace {
        for parent in &spec.parent_refs {
            let of = Some(parent.namespace.as_ref().unwrap_or(namespace).clone());
            let key = ObjectKey { kind: Kind::Gateway, namespace: of, name: parent.name.clone() };
            let Some(gateway) = snapshot.get(&key) else { continue };
            addresses.extend(addresses_of(snapshot, gateway));
            note_tls(gateway, parent, spec, &mut tls);
        }
    }
    if !tls.is_empty() {
        let tls: Vec<_> =
            tls.into_iter().map(|(secret, hosts)| json!({ "hosts": hosts, "secretName": secret })).collect();
        shown.insert("tls".to_owned(), json!(tls));
    }
    let ingress: Vec<_> = addresses.into_iter().map(|address| json!({ "ip": address })).collect();
    let balancer = if ingress.is_empty() { json!({}) } else { json!({ "ingress": ingress }) };
    json!({
        "apiVersion": Resource::Ingresses.group().api_version("v1"), "kind": "Ingress",
        "metadata": metadata, "spec": shown, "status": { "loadBalancer": balancer },
    })
}

fn is_plain(one: &HttpRouteMatch) -> bool {
    one.method.is_none() && one.headers.is_empty() && one.query_params.is_empty()
}

fn is_expressible(rule: &HttpRouteRule) -> bool {
    rule.filters.is_empty() && rule.backend_refs.len() == 1 && rule.matches.iter().all(is_plain)
}

/// Returns the paths of a rule, one for each match without other conditions and each backend. A rule without backends has the
/// route itself as backend.
fn paths(object: &Object, rule: &HttpRouteRule) -> Vec<Value> {
    let all = [HttpRouteMatch::default()];
    let matches = if rule.matches.is_empty() { &all[..] } else { &rule.matches };
    let services = rule.backend_refs.iter();
    let mut backends: Vec<_> = services
        .map(|backend| json!({ "service": { "name": backend.name, "port": { "number": backend.port } } }))
        .collect();
    if backends.is_empty() {
        let group = Resource::HttpRoutes.group().name();
        let own = json!({ "apiGroup": group, "kind": "HTTPRoute", "name": object.metadata.name });
        backends.push(json!({ "resource": own }));
    }
    let mut paths = Vec::new();
    for one in matches.iter().filter(|one| is_plain(one)) {
        let path_type = match one.path.match_type {
            PathMatchType::Exact => "Exact",
            PathMatchType::PathPrefix => "Prefix",
        };
        let path = |backend| json!({ "path": one.path.value, "pathType": path_type, "backend": backend });
        paths.extend(backends.iter().map(path));
    }
    paths
}

/// Adds the certificates of the listeners of a parent, with the host names of the route that they serve.
fn note_tls(
    gateway: &Object,
    parent: &ParentRef,
    route: &HttpRouteSpec,
    tls: &mut BTreeMap<String, BTreeSet<String>>,
) {
    let Some(GatewaySpec { listeners, published_by: _ }) = gateway.as_gateway() else { return };
    let is_named = |section: &model::primitives::name::Label| {
        parent.section_name.as_ref().is_none_or(|name| name == section)
    };
    let is_own = |listener: &&GatewayListener| {
        listener.protocol == ListenerProtocol::Https && is_named(&listener.name)
    };
    for listener in listeners.iter().filter(is_own) {
        let common = |host: &HostnamePattern| match &listener.hostname {
            Some(own) => host.intersection(own).map(ToString::to_string),
            None => Some(host.to_string()),
        };
        let hosts: Vec<_> = if route.hostnames.is_empty() {
            listener.hostname.iter().map(ToString::to_string).collect()
        } else {
            route.hostnames.iter().filter_map(common).collect()
        };
        for one in certificate_refs(listener) {
            tls.entry(one.name.to_string()).or_default().extend(hosts.iter().cloned());
        }
    }
}
