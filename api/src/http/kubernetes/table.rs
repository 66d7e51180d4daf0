//! Table rows that `kubectl get` prints. No I/O: the cells of a row depend only on a rendered object and the time.

use model::primitives::{age::age, quantity::Timestamp};
use serde_json::{Map, Value, json};

use super::{catalogue::Resource, objects::node, options::Include};

/// Maximum number of endpoints listed in a cell; further ones are only counted, as in Kubernetes.
const ENDPOINTS_SHOWN: usize = 3;
/// Table cell for an absent value.
const NONE: &str = "<none>";
/// Table cell for an unknown value.
const UNKNOWN: &str = "<unknown>";

/// Names of the columns that every table of a resource has, and of the additional columns that `kubectl get
/// -o wide` prints.
type Columns = (&'static [&'static str], &'static [&'static str]);

const fn columns(resource: Resource) -> Columns {
    match resource {
        Resource::Nodes => (
            &["Name", "Status", "Roles", "Age", "Version"],
            &["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
        ),
        Resource::Services => {
            (&["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"], &["Selector"])
        }
        Resource::Endpoints => (&["Name", "Endpoints", "Age"], &[]),
        Resource::EndpointSlices => (&["Name", "AddressType", "Ports", "Endpoints", "Age"], &[]),
        Resource::Pods => (
            &["Name", "Ready", "Status", "Restarts", "Age"],
            &["IP", "Node", "Nominated Node", "Readiness Gates"],
        ),
        Resource::Namespaces => (&["Name", "Status", "Age"], &[]),
        Resource::Ingresses => (&["Name", "Class", "Hosts", "Address", "Ports", "Age"], &[]),
        Resource::Gateways => (&["Name", "Class", "Address", "Programmed", "Age"], &[]),
        Resource::HttpRoutes => (&["Name", "Hostnames", "Age"], &[]),
        Resource::Events => {
            (&["Last Seen", "Type", "Reason", "Object", "Message"], &["Source", "Count", "Name"])
        }
    }
}

/// Returns the `columnDefinitions` of a resource's table.
pub(super) fn head(resource: Resource) -> Value {
    let (narrow, wide) = columns(resource);
    let column = |(name, priority): (&str, u8)| {
        let is_name = name == "Name";
        json!({
            "name": name, "type": "string", "format": if is_name { "name" } else { "" }, "description": name,
            "priority": priority,
        })
    };
    let all = narrow.iter().map(|name| (*name, 0)).chain(wide.iter().map(|name| (*name, 1)));
    all.map(column).collect()
}

/// Renders an object as a table row.
pub(super) fn row(resource: Resource, object: &Value, now: Timestamp, include: Include) -> Value {
    let cells = match resource {
        Resource::Nodes => of_node(object, now),
        Resource::Services => of_service(object, now),
        Resource::Endpoints => vec![name(object), endpoints(object), created(object, now)],
        Resource::EndpointSlices => of_slice(object, now),
        Resource::Pods => of_pod(object, now),
        Resource::Namespaces => vec![name(object), text(object, "/status/phase"), created(object, now)],
        Resource::Events => of_event(object, now),
        Resource::Ingresses => of_ingress(object, now),
        Resource::Gateways => of_gateway(object, now),
        Resource::HttpRoutes => {
            let hosts: Vec<_> = items(object, "/spec/hostnames").iter().map(plain).collect();
            vec![name(object), or(hosts.join(","), "*"), created(object, now)]
        }
    };
    let mut row = json!({ "cells": cells });
    match include {
        Include::None => {}
        Include::Metadata => {
            row["object"] = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
            });
        }
        Include::Object => row["object"] = object.clone(),
    }
    row
}

/// Renders a `Table` object from rows, for a list or a watch event.
pub(super) fn table(version: &str, resource: Resource, metadata: Value, rows: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("meta.k8s.io/{version}"), "kind": "Table", "metadata": metadata,
        "columnDefinitions": head(resource), "rows": rows,
    })
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn or(text: String, word: &str) -> String {
    if text.is_empty() { word.to_owned() } else { text }
}

fn name(object: &Value) -> String {
    text(object, "/metadata/name")
}

fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    let then = Timestamp::try_from(text(object, pointer));
    then.map_or_else(|_| UNKNOWN.to_owned(), |then| age(then, now))
}

fn created(object: &Value, now: Timestamp) -> String {
    since(object, "/metadata/creationTimestamp", now)
}

fn of_service(object: &Value, now: Timestamp) -> Vec<String> {
    let several: Vec<String> = items(object, "/spec/clusterIPs").iter().map(plain).collect();
    let cluster = or(several.join(","), &text(object, "/spec/clusterIP"));
    let selector = object.pointer("/spec/selector").and_then(Value::as_object).map(pairs);
    vec![
        name(object),
        text(object, "/spec/type"),
        or(cluster, NONE),
        external(object),
        or(items(object, "/spec/ports").iter().map(service_port).collect::<Vec<_>>().join(","), NONE),
        created(object, now),
        or(selector.unwrap_or_default(), NONE),
    ]
}

fn external(service: &Value) -> String {
    let ingress = items(service, "/status/loadBalancer/ingress").iter().map(|ingress| text(ingress, "/ip"));
    let given = items(service, "/spec/externalIPs").iter().map(plain);
    let stands_for = Some(text(service, "/spec/externalName"));
    let all: Vec<String> = ingress.chain(given).chain(stands_for).filter(|text| !text.is_empty()).collect();
    let is_balancer = text(service, "/spec/type") == "LoadBalancer";
    or(all.join(","), if is_balancer { "<pending>" } else { NONE })
}

/// Formats a port of a Service as `80:30080/TCP`, or a port range as `8000-8100/TCP`.
fn service_port(port: &Value) -> String {
    let [number, last, node] = ["port", "endPort", "nodePort"].map(|field| port.get(field).map(plain));
    let last = last.map(|last| format!("-{last}")).unwrap_or_default();
    let node = node.map(|node| format!(":{node}")).unwrap_or_default();
    format!("{}{last}{node}/{}", number.unwrap_or_default(), text(port, "/protocol"))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pairs(labels: &Map<String, Value>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(",")
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        for address in items(subset, "/addresses") {
            let ports = items(subset, "/ports").iter().map(|port| port.get("port").map(plain));
            all.extend(ports.map(|port| socket(&text(address, "/ip"), &port.unwrap_or_default())));
        }
    }
    // Subsets are ordered by port; sort by address instead.
    all.sort();
    shortened(&all)
}

fn shortened(all: &[String]) -> String {
    let shown = all.get(..ENDPOINTS_SHOWN).unwrap_or(all).join(",");
    match all.len().saturating_sub(ENDPOINTS_SHOWN) {
        0 => or(shown, NONE),
        more => format!("{shown} + {more} more..."),
    }
}

/// Formats an address and port as `ip:port`, with brackets around an IPv6 address (RFC 3986 §3.2.2).
fn socket(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn of_slice(object: &Value, now: Timestamp) -> Vec<String> {
    let ports: Vec<String> =
        items(object, "/ports").iter().filter_map(|port| port.get("port").map(plain)).collect();
    let addresses = items(object, "/endpoints").iter().flat_map(|one| items(one, "/addresses"));
    let addresses: Vec<String> = addresses.map(plain).collect();
    let kind = text(object, "/addressType");
    let (ports, endpoints) = (or(ports.join(","), "<unset>"), shortened(&addresses).replace(NONE, "<unset>"));
    vec![name(object), kind, ports, endpoints, created(object, now)]
}

fn of_ingress(object: &Value, now: Timestamp) -> Vec<String> {
    let hosts: Vec<_> = items(object, "/spec/rules")
        .iter()
        .map(|rule| text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .collect();
    let addresses = items(object, "/status/loadBalancer/ingress").iter().map(|one| text(one, "/ip"));
    let ports = if items(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        text(object, "/spec/ingressClassName"),
        or(hosts.join(","), "*"),
        addresses.collect::<Vec<_>>().join(","),
        ports.to_owned(),
        created(object, now),
    ]
}

fn of_gateway(object: &Value, now: Timestamp) -> Vec<String> {
    let addresses = items(object, "/status/addresses").iter().map(|one| text(one, "/value"));
    let mut conditions = items(object, "/status/conditions").iter();
    let programmed = conditions.find(|condition| condition["type"] == "Programmed");
    vec![
        name(object),
        text(object, "/spec/gatewayClassName"),
        addresses.collect::<Vec<_>>().join(","),
        programmed.map(|condition| text(condition, "/status")).unwrap_or_default(),
        created(object, now),
    ]
}

fn of_pod(object: &Value, now: Timestamp) -> Vec<String> {
    let containers = items(object, "/status/containerStatuses");
    let ready = containers.iter().filter(|one| one["ready"] == true).count();
    let restarts: u64 = containers.iter().filter_map(|one| one["restartCount"].as_u64()).sum();
    let ended = containers.iter().find_map(|one| one.pointer("/state/terminated/reason")).map(plain);
    let phase = or(text(object, "/status/reason"), &text(object, "/status/phase"));
    vec![
        name(object),
        format!("{ready}/{}", items(object, "/spec/containers").len()),
        ended.unwrap_or(phase),
        restarts.to_string(),
        created(object, now),
        or(text(object, "/status/podIP"), NONE),
        or(text(object, "/spec/nodeName"), NONE),
        NONE.to_owned(),
        NONE.to_owned(),
    ]
}

fn of_node(object: &Value, now: Timestamp) -> Vec<String> {
    let ready = if node::is_ready(object) { "Ready" } else { "NotReady" };
    let is_out = object.pointer("/spec/unschedulable").is_some_and(|flag| *flag == true);
    let status = if is_out { format!("{ready},SchedulingDisabled") } else { ready.to_owned() };
    let mut addresses = items(object, "/status/addresses").iter();
    let internal = addresses.find(|address| address["type"] == "InternalIP");
    let info = |field: &str| or(text(object, &format!("/status/nodeInfo/{field}")), UNKNOWN);
    vec![
        name(object),
        status,
        NONE.to_owned(),
        created(object, now),
        info("kubeletVersion"),
        or(internal.map(|address| text(address, "/address")).unwrap_or_default(), NONE),
        NONE.to_owned(),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn of_event(object: &Value, now: Timestamp) -> Vec<String> {
    let about = format!(
        "{}/{}",
        text(object, "/involvedObject/kind").to_ascii_lowercase(),
        text(object, "/involvedObject/name")
    );
    vec![
        since(object, "/lastTimestamp", now),
        text(object, "/type"),
        text(object, "/reason"),
        about,
        text(object, "/message"),
        format!("{}, {}", text(object, "/source/component"), text(object, "/source/host")),
        object["count"].to_string(),
        name(object),
    ]
}
