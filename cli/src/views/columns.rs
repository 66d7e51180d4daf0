//! Columns of `get`, per kind. Pure: a row is computed from an object, the time and the width.

pub(crate) mod addresses;
pub(crate) mod bgp;

use model::{kinds::resource::Kind, primitives::quantity::Timestamp};
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{
        condition, condition_tone, entries, flag, items, joined, labels, number, port_range, scalar, text,
        time,
    },
    resource::Resource,
    terminal::{
        style::Tone,
        table::{Cell, Table},
    },
    views::{
        columns::{addresses as columns_addresses, bgp as columns_bgp},
        health,
    },
};

/// Maximum number of endpoints in the narrow table; the rest is counted. Same as kubectl.
const ENDPOINTS_SHOWN: usize = 3;

/// Selection of columns.
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
}

/// Returns an empty table with the headings of a resource.
#[must_use]
pub fn empty(resource: Resource, columns: Columns) -> Table {
    let (narrow, wide): (&[&str], &[&str]) = match (resource, columns.wide) {
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
        (Resource::Object(Kind::Address), _) => columns_addresses::ADDRESS,
        (Resource::Object(Kind::EndpointHealth), _) => health::RECORD,
        (Resource::Endpoints, false) => (&["NAME", "ENDPOINTS"], &[]),
        (Resource::Endpoints, true) => {
            (&["NAME", "PORT", "ENDPOINT", "READY", "SERVING", "TERMINATING", "WEIGHT", "NODE", "ZONE"], &[])
        }
    };
    let mut header = Vec::new();
    header.extend(columns.event.then_some("EVENT"));
    header.extend((columns.namespace && resource.is_namespaced()).then_some("NAMESPACE"));
    header.extend(narrow);
    header.extend(if columns.wide { wide } else { &[] });
    Table::new(header)
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
    let rows = match resource {
        Resource::Object(Kind::Service) => vec![service(object, columns.wide, now)],
        Resource::Object(Kind::EndpointSet) => vec![endpoint_set(object, columns.wide, now)],
        Resource::Object(Kind::Workload) => vec![workload(object, columns.wide, now)],
        Resource::Object(Kind::Node) => vec![node(object, columns.wide, now)],
        Resource::Object(Kind::AddressPool) => vec![columns_addresses::pool(object, columns.wide, now)],
        Resource::Object(Kind::Advertisement) => {
            vec![columns_addresses::advertisement(object, columns.wide, now)]
        }
        Resource::Object(Kind::BgpPeer) => vec![columns_bgp::peer(object, columns.wide, now)],
        Resource::Object(Kind::BfdProfile) => vec![columns_bgp::profile(object, columns.wide, now)],
        Resource::Object(Kind::Address) => vec![columns_addresses::address(object, columns.wide, now)],
        Resource::Object(Kind::EndpointHealth) => vec![health::record(object, columns.wide, now)],
        Resource::Endpoints if columns.wide => endpoints_wide(object),
        Resource::Endpoints => vec![endpoints(object)],
    };
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
        table.push(row);
    }
}

/// Sorts objects for display: addresses numerically, others in server order.
#[must_use]
pub fn in_order(resource: Resource, objects: &[Value]) -> Vec<&Value> {
    let mut objects: Vec<&Value> = objects.iter().collect();
    if resource == Resource::Object(Kind::Address) {
        objects.sort_by_key(|object| columns_addresses::rank(object));
    }
    objects
}

/// Returns namespace (empty if there is none) and name of an object or of computed endpoints; addresses are
/// returned in textual form.
#[must_use]
pub fn identity(resource: Resource, object: &Value) -> (String, String) {
    match resource {
        Resource::Object(Kind::Address) => (String::new(), columns_addresses::written(object)),
        Resource::Object(_) => (text(object, "/metadata/namespace"), text(object, "/metadata/name")),
        Resource::Endpoints => {
            let service = text(object, "/service");
            let (namespace, name) = service.split_once('/').unwrap_or(("", &service));
            (namespace.to_owned(), name.to_owned())
        }
    }
}

/// Formats the ports of a Service, such as `80:30080/TCP,53/UDP,8000-8100/TCP`.
#[must_use]
pub fn service_ports(service: &Value) -> String {
    let port = |port: &Value| {
        let node_port = port.get("nodePort").map(|number| format!(":{}", scalar(number))).unwrap_or_default();
        let protocol = port.get("protocol").map_or_else(|| "TCP".to_owned(), scalar);
        format!("{}{node_port}/{protocol}", port_range(port))
    };
    items(service, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(",")
}

/// Returns the external addresses of a Service: load balancer addresses, `externalIPs` and the external name.
#[must_use]
pub fn external_addresses(service: &Value) -> String {
    let ingress = items(service, "/status/loadBalancer/ingress").iter().map(|ingress| text(ingress, "/ip"));
    let external = items(service, "/spec/externalIPs").iter().map(scalar);
    let name = Some(text(service, "/spec/externalName"));
    let all: Vec<String> = ingress.chain(external).chain(name).filter(|text| !text.is_empty()).collect();
    let is_balancer = text(service, "/spec/type") == "LoadBalancer";
    if all.is_empty() && is_balancer { "<pending>".to_owned() } else { all.join(",") }
}

/// Returns the virtual addresses of a Service, or `None` for a headless one.
#[must_use]
pub fn cluster_addresses(service: &Value) -> String {
    let several = joined(service, "/spec/clusterIPs");
    if several.is_empty() { text(service, "/spec/clusterIP") } else { several }
}

/// Returns the addresses of a Workload or a Node.
#[must_use]
pub fn joined_addresses(object: &Value) -> String {
    joined(object, "/spec/addresses")
}

fn service(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let service_type = Some(text(object, "/spec/type")).filter(|text| !text.is_empty());
    let mut row: Vec<Cell> = vec![
        service_type.unwrap_or_else(|| "ClusterIP".to_owned()).into(),
        cluster_addresses(object).into(),
        external_addresses(object).into(),
        service_ports(object).into(),
        age_cell(object, now),
    ];
    if wide {
        row.push(labels(object, "/spec/selector").into());
        row.push(ratio(number(object, "/status/endpoints/ready"), number(object, "/status/endpoints/total")));
        row.push(ratio(number(object, "/status/nodes/verified"), number(object, "/status/nodes/total")));
        row.push(condition_cell(object, "Ready"));
    }
    row
}

fn endpoint_set(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let port = |port: &Value| {
        let protocol = port.get("protocol").map_or_else(|| "TCP".to_owned(), scalar);
        format!("{}/{protocol}", text(port, "/port"))
    };
    let takes = |endpoint: &&Value| {
        flag(endpoint, "/conditions/ready", true)
            && !flag(endpoint, "/drain", false)
            && endpoint.pointer("/maintenance/mode").is_none()
    };
    let endpoints = items(object, "/spec/endpoints");
    let mut row: Vec<Cell> = vec![
        text(object, "/spec/service").into(),
        items(object, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(",").into(),
        ratio(endpoints.iter().filter(takes).count() as u64, endpoints.len() as u64),
        age_cell(object, now),
    ];
    if wide {
        row.push(
            endpoints.iter().map(|endpoint| text(endpoint, "/address")).collect::<Vec<_>>().join(",").into(),
        );
        row.push(condition_cell(object, "Accepted"));
    }
    row
}

fn workload(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let phase = Some(text(object, "/spec/phase")).filter(|text| !text.is_empty());
    let ready = flag(object, "/spec/ready", true);
    let mut row: Vec<Cell> = vec![
        match text(object, "/spec/maintenance/mode").as_str() {
            "" if ready => Cell::toned(Tone::Good, "yes"),
            "" => Cell::toned(Tone::Waiting, "no"),
            mode => Cell::toned(Tone::Waiting, mode),
        },
        phase.unwrap_or_else(|| "Running".to_owned()).into(),
        joined(object, "/spec/addresses").into(),
        text(object, "/spec/node").into(),
        labels(object, "/metadata/labels").into(),
        age_cell(object, now),
    ];
    if wide {
        row.push(text(object, "/spec/zone").into());
        row.push(workload_ports(object).into());
        row.push(object.pointer("/spec/weight").map_or_else(|| "1".to_owned(), scalar).into());
    }
    row
}

/// Formats the named ports of a Workload, such as `http=8080/TCP`.
#[must_use]
pub fn workload_ports(workload: &Value) -> String {
    let port = |(name, port): (&str, &Value)| {
        let protocol = port.get("protocol").map_or_else(|| "TCP".to_owned(), scalar);
        format!("{name}={}/{protocol}", text(port, "/port"))
    };
    entries(workload, "/spec/ports").map(port).collect::<Vec<_>>().join(",")
}

fn node(object: &Value, wide: bool, now: Timestamp) -> Vec<Cell> {
    let (status, tone) = node_status(object);
    let mut row: Vec<Cell> = vec![
        Cell::toned(tone, status),
        running_mode(object).into(),
        joined(object, "/spec/addresses").into(),
        text(object, "/status/verified").into(),
        text(object, "/status/agentVersion").into(),
        age_cell(object, now),
    ];
    if wide {
        row.push(text(object, "/spec/zone").into());
        row.push(joined(object, "/spec/workloadCIDRs").into());
        row.push(text(object, "/status/facts/kernel").into());
        row.push(number(object, "/status/failures").to_string().into());
    }
    row
}

/// Returns the mode in use on a Node, or the requested one before its agent has reported.
#[must_use]
pub fn running_mode(object: &Value) -> String {
    let running = text(object, "/status/mode");
    if running.is_empty() { text(object, "/spec/mode") } else { running }
}

/// Returns a one-word summary of a Node: its first problem, or `Ready`.
#[must_use]
pub fn node_status(object: &Value) -> (String, Tone) {
    let is = |condition_type| condition(object, condition_type) == "True";
    let (word, tone) = match (is("Connected"), is("Converged")) {
        (false, _) => ("NotConnected", Tone::Bad),
        (true, false) if number(object, "/status/failures") > 0 => ("Failing", Tone::Bad),
        (true, false) => ("Converging", Tone::Waiting),
        (true, true) if condition(object, "Accepted") == "False" => ("Unsupported", Tone::Waiting),
        (true, true) => ("Ready", Tone::Good),
    };
    let drained = if flag(object, "/spec/unschedulable", false) { ",Unschedulable" } else { "" };
    let out = text(object, "/spec/maintenance/mode");
    let out = if out.is_empty() { out } else { format!(",{out}") };
    (format!("{word}{drained}{out}"), tone)
}

/// Formats `ip:port` with brackets around IPv6 (RFC 3986 §3.2.2).
#[must_use]
pub fn socket(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Returns the socket of an endpoint; for a port range, the range, because the client's port is kept.
fn endpoint_socket(port: &Value, endpoint: &Value) -> String {
    let range = port_range(port);
    let own = if range.contains('-') { range } else { text(endpoint, "/port") };
    socket(&text(endpoint, "/address"), &own)
}

fn endpoints(compiled: &Value) -> Vec<Cell> {
    let of_port = |port| items(port, "/endpoints").iter().map(move |endpoint| (port, endpoint));
    let all = items(compiled, "/ports").iter().flat_map(of_port);
    let ready = all.filter(|(_, endpoint)| flag(endpoint, "/ready", false));
    let ready: Vec<String> = ready.map(|(port, endpoint)| endpoint_socket(port, endpoint)).collect();
    let shown = ready.get(..ENDPOINTS_SHOWN).unwrap_or(&ready).join(",");
    let more = ready.len().saturating_sub(ENDPOINTS_SHOWN);
    vec![if more == 0 { shown.into() } else { format!("{shown} + {more} more").into() }]
}

fn endpoints_wide(compiled: &Value) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for port in items(compiled, "/ports") {
        let front = format!("{}/{}", port_range(port), text(port, "/protocol"));
        for endpoint in items(port, "/endpoints") {
            let ready = flag(endpoint, "/ready", false);
            rows.push(vec![
                front.as_str().into(),
                endpoint_socket(port, endpoint).into(),
                Cell::toned(if ready { Tone::Good } else { Tone::Bad }, ready.to_string()),
                flag(endpoint, "/serving", false).to_string().into(),
                flag(endpoint, "/terminating", false).to_string().into(),
                text(endpoint, "/weight").into(),
                text(endpoint, "/node").into(),
                text(endpoint, "/zone").into(),
            ]);
        }
    }
    if rows.is_empty() {
        rows.push(vec![Cell::from(""); 8]);
    }
    rows
}

pub(crate) fn age_cell(object: &Value, now: Timestamp) -> Cell {
    let created = time(object, "/metadata/creationTimestamp");
    created.map_or_else(|| "<unknown>".to_owned(), |created| age(created, now)).into()
}

fn condition_cell(object: &Value, condition_type: &str) -> Cell {
    let status = condition(object, condition_type);
    let tone = condition_tone(&status);
    Cell::toned(tone, if status.is_empty() { "Unknown" } else { &status })
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
