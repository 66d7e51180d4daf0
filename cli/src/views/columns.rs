//! Columns of the tables of `get`, by kind. Pure functions: the cells depend only on the object, the time,
//! and the choice between the narrow and the wide table.

pub(crate) mod addresses;
pub(crate) mod bgp;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod networks;
pub(crate) mod policy;

use std::{collections::BTreeSet, net::IpAddr};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        endpoint_set::{Endpoint, EndpointPort},
        metadata::{Labels, Metadata},
        resource::Kind,
        service::{ServicePort, ServiceType},
        workload::WorkloadSpec,
    },
    observed::{
        health::{HealthSource, health_source},
        status::{ConditionStatus, ConditionType},
    },
    primitives::quantity::{PortRange, Timestamp},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use translate::json::{entries, scalar};

use crate::{
    age::age,
    resource::Resource,
    terminal::{
        style::Tone,
        table::{Cell, Table},
    },
    views::typed::{
        ConditionRow, EndpointSet, Node, ObjectHeader, Service, TypedObject, Workload, compiled, documents,
        word, words,
    },
    views::{
        columns::{
            addresses as columns_addresses, bgp as columns_bgp, http as columns_http, names as columns_names,
            networks as columns_networks, policy as columns_policy,
        },
        health,
    },
};

/// Maximum number of endpoints in the narrow table, followed by the number of further ones, as in kubectl.
const ENDPOINTS_SHOWN: usize = 3;

/// Selection of the columns of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Columns {
    /// True for the wide form.
    pub wide: bool,
    /// True to add a leading namespace column.
    pub namespace: bool,
    /// True to print names as `kind/name`, for consecutive tables of several kinds.
    pub qualified: bool,
    /// True to add a leading event column, for watches.
    pub event: bool,
    /// True to add a last column with the labels.
    pub labels: bool,
}

/// Column headings of a resource: those of the narrow table, and the additional ones of `-o wide`.
type Headings = (&'static [&'static str], &'static [&'static str]);

/// Returns an empty table with the headings of a resource.
#[must_use]
pub fn empty(resource: Resource, columns: Columns) -> Table {
    let (narrow, wide) = headings(resource, columns);
    let mut header = Vec::new();
    header.extend(columns.event.then_some("EVENT"));
    header.extend((columns.namespace && resource.is_namespaced()).then_some("NAMESPACE"));
    header.extend(narrow);
    header.extend(if columns.wide { wide } else { &[] });
    header.extend(columns.labels.then_some("LABELS"));
    Table::new(header)
}

fn headings(resource: Resource, columns: Columns) -> Headings {
    match (resource, columns.wide) {
        (Resource::Object(Kind::Service), _) => (
            &["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"],
            &["SELECTOR", "ENDPOINTS", "PROGRAMMED", "READY"],
        ),
        (Resource::Object(Kind::EndpointSet), _) => {
            (&["NAME", "SERVICE", "PORTS", "READY", "AGE"], &["ENDPOINTS", "ACCEPTED"])
        }
        (Resource::Object(Kind::Workload), _) => {
            (&["NAME", "READY", "STATUS", "IP", "NODE", "LABELS", "AGE"], &["ZONE", "PORTS", "WEIGHT"])
        }
        (Resource::Object(Kind::Node), _) => (
            &["NAME", "STATUS", "MODE", "ADDRESSES", "REVISION", "VERSION", "AGE"],
            &["ZONE", "WORKLOAD-CIDRS", "KERNEL", "FAILURES"],
        ),
        (Resource::Object(Kind::AddressPool), _) => columns_addresses::POOL,
        (Resource::Object(Kind::Advertisement), _) => columns_addresses::ADVERTISEMENT,
        (Resource::Object(Kind::BgpPeer), _) => columns_bgp::PEER,
        (Resource::Object(Kind::BfdProfile), _) => columns_bgp::PROFILE,
        (Resource::Object(Kind::DnsZone), _) => columns_names::ZONE,
        (Resource::Object(Kind::Certificate), _) => columns_http::CERTIFICATE,
        (Resource::Object(Kind::Gateway), _) => columns_http::GATEWAY,
        (Resource::Object(Kind::HttpRoute), _) => columns_http::ROUTE,
        (Resource::Object(Kind::TlsRoute), _) => columns_http::TLS_ROUTE,
        (Resource::Object(Kind::WorkloadNetwork), _) => columns_networks::NETWORK,
        (Resource::Object(Kind::NetworkPolicy), _) => columns_policy::POLICY,
        (Resource::Object(Kind::Block), _) => columns_networks::BLOCK,
        (Resource::Object(Kind::Attachment), _) => columns_networks::ATTACHMENT,
        (Resource::Object(Kind::Address), _) => columns_addresses::ADDRESS,
        (Resource::Object(Kind::EndpointHealth), _) => health::RECORD,
        (Resource::Endpoints, false) => (&["NAME", "ENDPOINTS"], &[]),
        (Resource::Endpoints, true) => {
            (&["NAME", "PORT", "ENDPOINT", "READY", "SERVING", "TERMINATING", "WEIGHT", "NODE", "ZONE"], &[])
        }
    }
}

/// Adds the rows of one object; `event` is used if [`Columns::event`] is set.
pub fn push(
    table: &mut Table,
    resource: Resource,
    columns: Columns,
    object: &Value,
    now: Timestamp,
    event: &str,
) {
    let rows = rows(resource, columns, object, now).unwrap_or_else(|| vec![unreadable(resource, columns)]);
    let (namespace, name) = identity(resource, object);
    for rest in rows {
        let mut row = Vec::new();
        row.extend(columns.event.then(|| Cell::toned(event_tone(event), event)));
        row.extend((columns.namespace && resource.is_namespaced()).then(|| Cell::from(&namespace)));
        row.push(if columns.qualified {
            format!("{}/{name}", resource.singular()).into()
        } else {
            (&name).into()
        });
        row.extend(rest);
        row.extend(columns.labels.then(|| Cell::from(labels_of(object))));
        table.push(row);
    }
}

/// Returns the table rows of one object, each without the event, namespace and name cells; `None` if the
/// object cannot be decoded.
fn rows(resource: Resource, columns: Columns, object: &Value, now: Timestamp) -> Option<Vec<Vec<Cell>>> {
    let Columns { wide, .. } = columns;
    match resource {
        Resource::Object(Kind::Service) => row(object, |object| service(object, wide, now)),
        Resource::Object(Kind::EndpointSet) => row(object, |object| endpoint_set(object, wide, now)),
        Resource::Object(Kind::Workload) => row(object, |object| workload(object, wide, now)),
        Resource::Object(Kind::Node) => row(object, |object| node(object, wide, now)),
        Resource::Object(Kind::AddressPool) => {
            row(object, |object| columns_addresses::pool(object, wide, now))
        }
        Resource::Object(Kind::Advertisement) => {
            row(object, |object| columns_addresses::advertisement(object, wide, now))
        }
        Resource::Object(Kind::BgpPeer) => row(object, |object| columns_bgp::peer(object, wide, now)),
        Resource::Object(Kind::BfdProfile) => row(object, |object| columns_bgp::profile(object, wide, now)),
        Resource::Object(Kind::DnsZone) => row(object, |object| columns_names::zone(object, wide, now)),
        Resource::Object(Kind::Certificate) => {
            row(object, |object| columns_http::certificate(object, wide, now))
        }
        Resource::Object(Kind::Gateway) => row(object, |object| columns_http::gateway(object, now)),
        Resource::Object(Kind::HttpRoute) => row(object, |object| columns_http::route(object, wide, now)),
        Resource::Object(Kind::TlsRoute) => row(object, |object| columns_http::tls_route(object, wide, now)),
        Resource::Object(Kind::WorkloadNetwork) => {
            row(object, |object| columns_networks::network(object, wide, now))
        }
        Resource::Object(Kind::NetworkPolicy) => {
            row(object, |object| columns_policy::policy(object, wide, now))
        }
        Resource::Object(Kind::Block) => row(object, |object| columns_networks::block(object, now)),
        Resource::Object(Kind::Attachment) => {
            row(object, |object| columns_networks::attachment(object, wide, now))
        }
        Resource::Object(Kind::Address) => {
            row(object, |object| columns_addresses::address(object, wide, now))
        }
        Resource::Object(Kind::EndpointHealth) => row(object, |object| health::record(object, wide, now)),
        Resource::Endpoints if wide => compiled(object).map(|compiled| endpoints_wide(&compiled)),
        Resource::Endpoints => compiled(object).map(|compiled| vec![endpoints(&compiled)]),
    }
}

fn row<Spec: DeserializeOwned, Status: DeserializeOwned + Serialize + Default>(
    object: &Value,
    cells: impl FnOnce(&TypedObject<Spec, Status>) -> Vec<Cell>,
) -> Option<Vec<Vec<Cell>>> {
    TypedObject::of(object).map(|object| vec![cells(&object)])
}

/// Returns the cells of an object that this version cannot decode.
fn unreadable(resource: Resource, columns: Columns) -> Vec<Cell> {
    let (narrow, wide) = headings(resource, columns);
    let width = narrow.len() + if columns.wide { wide.len() } else { 0 };
    let mut cells = vec![Cell::toned(Tone::Waiting, "<unreadable>")];
    cells.resize(width.saturating_sub(1).max(1), Cell::from(""));
    cells
}

/// Sorts objects for display: addresses and blocks numerically, others in server order.
#[must_use]
pub fn in_order(resource: Resource, objects: &[Value]) -> Vec<&Value> {
    let mut objects: Vec<&Value> = objects.iter().collect();
    if resource == Resource::Object(Kind::Address) {
        objects.sort_by_cached_key(|object| columns_addresses::rank(object));
    }
    if resource == Resource::Object(Kind::Block) {
        objects.sort_by_cached_key(|object| columns_networks::rank(object));
    }
    objects
}

/// Returns namespace (empty if there is none) and name of an object or of computed endpoints; addresses are
/// returned in textual form.
#[must_use]
pub fn identity(resource: Resource, object: &Value) -> (String, String) {
    match resource {
        Resource::Object(Kind::Address) => (String::new(), columns_addresses::written(object)),
        Resource::Object(_) => {
            let metadata = ObjectHeader::of(object).metadata;
            (metadata.namespace, metadata.name)
        }
        Resource::Endpoints => {
            let service = documents::service_of(object);
            let (namespace, name) = service.split_once('/').unwrap_or(("", &service));
            (namespace.to_owned(), name.to_owned())
        }
    }
}

/// Formats the ports of a Service, such as `80:30080/TCP,53/UDP,8000-8100/TCP`.
pub(crate) fn service_ports(service: &Service) -> String {
    let port = |port: &ServicePort| {
        let node_port = port.node_port.map(|number| format!(":{number}")).unwrap_or_default();
        format!("{}{node_port}/{}", port.range(), port.protocol.as_str())
    };
    service.spec.ports.iter().map(port).collect::<Vec<_>>().join(",")
}

/// Returns the external addresses of a Service: load balancer addresses, `externalIPs` and the external name.
pub(crate) fn external_addresses(service: &Service) -> String {
    let ingress = service.status.load_balancer.ingress.iter().map(|ingress| ingress.ip.to_string());
    let external = service.spec.external_ips.iter().map(ToString::to_string);
    let name = service.spec.external_name.as_ref().map(ToString::to_string);
    let all: Vec<String> = ingress.chain(external).chain(name).collect();
    let is_balancer = service.spec.service_type == ServiceType::LoadBalancer;
    if all.is_empty() && is_balancer { "<pending>".to_owned() } else { all.join(",") }
}

/// Returns the virtual addresses of a Service, or `None` for a headless one.
pub(crate) fn cluster_addresses(service: &Service) -> String {
    let several = words(&service.spec.cluster_ips);
    if several.is_empty() { word(&service.spec.cluster_ip) } else { several }
}

/// Formats labels as `key=value,key=value`.
pub(crate) fn labels(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Formats the labels of an object of any kind.
fn labels_of(object: &Value) -> String {
    let labels = entries(object, "/metadata/labels");
    labels.map(|(key, value)| format!("{key}={}", scalar(value))).collect::<Vec<_>>().join(",")
}

fn service(object: &Service, wide: bool, now: Timestamp) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![
        word(&object.spec.service_type).into(),
        cluster_addresses(object).into(),
        external_addresses(object).into(),
        service_ports(object).into(),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let (endpoints, nodes) = (&object.status.endpoints, &object.status.nodes);
        row.push(labels(&object.spec.selector).into());
        row.push(ratio(endpoints.ready.into(), endpoints.total.into()));
        row.push(ratio(nodes.verified.into(), nodes.total.into()));
        row.push(condition_cell(&object.conditions, ConditionType::Ready));
    }
    row
}

fn endpoint_set(object: &EndpointSet, wide: bool, now: Timestamp) -> Vec<Cell> {
    let port = |port: &EndpointPort| format!("{}/{}", port.port, port.protocol.as_str());
    let takes =
        |endpoint: &&Endpoint| endpoint.conditions.ready && !endpoint.drain && endpoint.maintenance.is_none();
    let endpoints = &object.spec.endpoints;
    let mut row: Vec<Cell> = vec![
        word(&object.spec.service).into(),
        object.spec.ports.iter().map(port).collect::<Vec<_>>().join(",").into(),
        ratio(endpoints.iter().filter(takes).count() as u64, endpoints.len() as u64),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(words(endpoints.iter().map(|endpoint| &endpoint.address)).into());
        row.push(condition_cell(&object.conditions, ConditionType::Accepted));
    }
    row
}

fn workload(object: &Workload, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row: Vec<Cell> = vec![
        match &spec.maintenance {
            None if spec.ready => Cell::toned(Tone::Good, "yes"),
            None => Cell::toned(Tone::Waiting, "no"),
            Some(maintenance) => Cell::toned(Tone::Waiting, maintenance.mode.as_str()),
        },
        word(&spec.phase).into(),
        words(&spec.addresses).into(),
        word(&spec.node).into(),
        object.metadata.as_ref().map(|metadata| labels(&metadata.labels)).unwrap_or_default().into(),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(word(&spec.zone).into());
        row.push(workload_ports(spec).into());
        row.push(word(&spec.weight).into());
    }
    row
}

/// Formats the named ports of a Workload, such as `http=8080/TCP`.
pub(crate) fn workload_ports(workload: &WorkloadSpec) -> String {
    let ports = workload.ports.iter();
    let ports = ports.map(|(name, port)| format!("{}={}/{}", word(name), port.port, port.protocol.as_str()));
    ports.collect::<Vec<_>>().join(",")
}

fn node(object: &Node, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (status, tone) = node_status(object);
    let mut row: Vec<Cell> = vec![
        Cell::toned(tone, status),
        running_mode(object).into(),
        words(&object.spec.addresses).into(),
        word(&object.status.verified).into(),
        word(&object.status.agent_version).into(),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        row.push(word(&object.spec.zone).into());
        row.push(words(&object.spec.workload_cidrs).into());
        row.push((&object.status.facts.kernel).into());
        row.push(object.status.failures.to_string().into());
    }
    row
}

/// Returns the proxy mode in use on a Node, or the requested one if its agent has not reported yet.
fn running_mode(node: &Node) -> String {
    word(&node.status.mode.or(node.spec.mode))
}

/// Returns a one-word summary of a Node: its first problem, or `Ready`.
pub(crate) fn node_status(node: &Node) -> (String, Tone) {
    let status = |condition_type| condition(&node.conditions, condition_type);
    let is = |condition_type| status(condition_type) == Some(ConditionStatus::True);
    let (summary, tone) = match (is(ConditionType::Connected), is(ConditionType::Converged)) {
        (false, _) => ("NotConnected", Tone::Bad),
        (true, false) if node.status.failures > 0 => ("Failing", Tone::Bad),
        (true, false) => ("Converging", Tone::Waiting),
        (true, true) if status(ConditionType::Accepted) == Some(ConditionStatus::False) => {
            ("Unsupported", Tone::Waiting)
        }
        (true, true) => ("Ready", Tone::Good),
    };
    let drained = if node.spec.unschedulable { ",Unschedulable" } else { "" };
    let out = node.spec.maintenance.as_ref();
    let out = out.map(|maintenance| format!(",{}", maintenance.mode.as_str())).unwrap_or_default();
    (format!("{summary}{drained}{out}"), tone)
}

/// Formats `ip:port` with brackets around IPv6 (RFC 3986 §3.2.2).
#[must_use]
pub fn socket(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Formats the address and port of an endpoint. For a port range, prints the whole range, because connections
/// keep the destination port that the client chose.
fn endpoint_socket(port: &CompiledPort, endpoint: &CompiledEndpoint) -> String {
    let is_range = port.range().single().is_none();
    let own = if is_range { port.range() } else { PortRange::from(endpoint.port) };
    socket(&endpoint.address.to_string(), &own.to_string())
}

/// Counts the endpoints of a Service over all its ports. Returns the number of distinct addresses, and the
/// number of those that are ready.
pub(crate) fn endpoint_counts(compiled: &CompiledService) -> (usize, usize) {
    let endpoints = || compiled.ports.iter().flat_map(|port| &port.endpoints);
    let all: BTreeSet<IpAddr> = endpoints().map(|endpoint| endpoint.address).collect();
    let ready: BTreeSet<IpAddr> =
        endpoints().filter(|endpoint| endpoint.ready).map(|endpoint| endpoint.address).collect();
    (all.len(), ready.len())
}

fn endpoints(compiled: &CompiledService) -> Vec<Cell> {
    let of_port = |port| Vec::from_iter(ready_sockets(port));
    let ready: Vec<String> = compiled.ports.iter().flat_map(of_port).collect();
    let shown = ready.get(..ENDPOINTS_SHOWN).unwrap_or(&ready).join(",");
    let more = ready.len().saturating_sub(ENDPOINTS_SHOWN);
    vec![if more == 0 { shown.into() } else { format!("{shown} + {more} more").into() }]
}

fn ready_sockets(port: &CompiledPort) -> impl Iterator<Item = String> {
    let ready = port.endpoints.iter().filter(|endpoint| endpoint.ready);
    ready.map(|endpoint| endpoint_socket(port, endpoint))
}

fn endpoints_wide(compiled: &CompiledService) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for port in &compiled.ports {
        let front = format!("{}/{}", port.range(), port.protocol.as_str());
        for endpoint in &port.endpoints {
            let is_checked = health_source(compiled, port, endpoint) != HealthSource::Nobody;
            let ready = match (endpoint.ready, is_checked) {
                (true, true) => Cell::toned(Tone::Good, "true"),
                (true, false) => Cell::toned(Tone::Waiting, "true, not checked"),
                (false, _) => Cell::toned(Tone::Bad, "false"),
            };
            rows.push(vec![
                front.as_str().into(),
                endpoint_socket(port, endpoint).into(),
                ready,
                endpoint.serving.to_string().into(),
                endpoint.terminating.to_string().into(),
                word(&endpoint.weight).into(),
                word(&endpoint.node).into(),
                word(&endpoint.zone).into(),
            ]);
        }
    }
    if rows.is_empty() {
        rows.push(vec![Cell::from(""); 8]);
    }
    rows
}

pub(crate) fn age_cell(metadata: Option<&Metadata>, now: Timestamp) -> Cell {
    let created = metadata.and_then(|metadata| metadata.creation_timestamp);
    created.map_or_else(|| "<unknown>".to_owned(), |created| age(created, now)).into()
}

/// Returns the status of the condition with type `condition_type`, or `None` if the object lacks this
/// condition.
pub(crate) fn condition(
    conditions: &[ConditionRow],
    condition_type: ConditionType,
) -> Option<ConditionStatus> {
    let name = word(&condition_type);
    conditions.iter().find(|condition| condition.condition_type == name).map(|condition| condition.status)
}

fn condition_cell(conditions: &[ConditionRow], condition_type: ConditionType) -> Cell {
    let status = condition(conditions, condition_type).unwrap_or(ConditionStatus::Unknown);
    Cell::toned(condition_tone(status), word(&status))
}

/// Returns the tone (meaning, from which the color is derived) of a condition's status.
pub(crate) const fn condition_tone(status: ConditionStatus) -> Tone {
    match status {
        ConditionStatus::True => Tone::Good,
        ConditionStatus::False => Tone::Bad,
        ConditionStatus::Unknown => Tone::Waiting,
    }
}

fn ratio(part: u64, whole: u64) -> Cell {
    let tone = match part {
        _ if part == whole => Tone::Plain,
        0 => Tone::Bad,
        _ => Tone::Waiting,
    };
    Cell::toned(tone, format!("{part}/{whole}"))
}

fn event_tone(event: &str) -> Tone {
    match event {
        "ADDED" => Tone::Good,
        "DELETED" => Tone::Bad,
        _ => Tone::Plain,
    }
}
