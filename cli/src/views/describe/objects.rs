//! `describe` sections that differ by kind. Pure functions.

use model::{
    kinds::{
        connections::Survive,
        endpoint_set::Endpoint,
        maintenance::{Maintenance, MaintenanceMode},
        node::ProxyOptions,
        service::{ForwardingMethod, ServicePort, ServiceSpec},
        workload::WorkloadInterface,
    },
    observed::status::{NodeCounts, Phase},
    primitives::quantity::Timestamp,
};

use crate::{
    age::age,
    terminal::{clean, style::Tone},
    views::typed::{EndpointSet, Node, Service, Workload, named_rows, word, words},
    views::{
        columns::{cluster_addresses, external_addresses, labels, node_status, workload_ports},
        describe::{Page, bgp as describe_bgp},
    },
};

/// Returns the optional fields of a Service as titles and values. A field with an empty value is not printed.
fn service_fields(spec: &ServiceSpec) -> [(&'static str, String); 20] {
    let affinity = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let balancer = spec.load_balancer.as_ref();
    let scope =
        if spec.source_ranges_scope.is_default() { String::new() } else { word(&spec.source_ranges_scope) };
    let addresses = balancer.map(|balancer| words(&balancer.addresses)).unwrap_or_default();
    [
        ("IP families", words(&spec.ip_families)),
        ("IP family policy", word(&spec.ip_family_policy)),
        ("Session affinity", word(&spec.session_affinity)),
        ("Affinity timeout (s)", word(&affinity.and_then(|client_ip| client_ip.timeout_seconds))),
        ("External policy", word(&spec.external_traffic_policy)),
        ("Internal policy", word(&spec.internal_traffic_policy)),
        ("Distribution", word(&spec.traffic_distribution)),
        ("Source ranges", words(&spec.load_balancer_source_ranges)),
        ("Source ranges at", scope),
        ("Health check port", word(&spec.health_check_node_port)),
        ("Address pool", word(&balancer.and_then(|balancer| balancer.pool.as_ref()))),
        ("Wanted addresses", addresses),
        ("Host names", words(&spec.hostnames)),
        ("Sharing key", word(&balancer.and_then(|balancer| balancer.sharing_key.as_ref()))),
        ("DNS weight", word(&balancer.and_then(|balancer| balancer.dns_weight))),
        ("Scheduler", word(&spec.scheduler)),
        ("Scheduler flags", words(&spec.scheduler_flags)),
        ("PROXY protocol", word(&spec.proxy_protocol)),
        ("Removal policy", word(&spec.removal_policy)),
        ("Drain (s)", word(&spec.drain_seconds)),
    ]
}

/// Returns the proxy options of a Node as titles and values. An option with an empty value is not printed.
fn proxy_fields(proxy: &ProxyOptions) -> [(&'static str, String); 5] {
    // The server omits the options as a whole if all have their defaults.
    let naming = if *proxy == ProxyOptions::default() { String::new() } else { word(&proxy.naming) };
    [
        ("Cluster networks", words(&proxy.cluster_cidrs)),
        ("Node ports at", words(&proxy.node_port_addresses)),
        ("Masquerade mark bit", word(&proxy.masquerade_bit)),
        ("Drop mark bit", word(&proxy.drop_bit)),
        ("Naming", naming),
    ]
}

pub(crate) fn service(page: &mut Page, object: &Service) {
    let spec = &object.spec;
    page.section("Service");
    page.field("Type", &word(&spec.service_type));
    page.field("Cluster IP", &cluster_addresses(object));
    page.optional("External", &external_addresses(object));
    page.optional("Selector", &labels(&spec.selector));
    for (title, value) in service_fields(spec) {
        page.optional(title, &value);
    }
    if spec.forwarding_method != ForwardingMethod::Masquerade {
        page.field("Forwarding", &word(&spec.forwarding_method));
    }
    if spec.connections.survive == Survive::Always {
        page.field("Connections", "survive the loss of every node but the one of their endpoint");
    }
    if let Some(check) = &spec.health_check {
        let (every, within) = (check.interval_ms, check.timeout_ms);
        let check_type = word(&check.check_type);
        page.field("Health check", &format!("{check_type} every {every} ms, timeout {within} ms"));
    }
    if spec.publish_not_ready_addresses {
        page.field("Not ready endpoints", "receive traffic as if they were ready");
    }
    if spec.disabled {
        page.field("Disabled", "yes: addresses and ports are kept, but no traffic is served");
    }
    page.optional("Out of service", &maintenance(spec.maintenance.as_deref()));
    for port in &spec.ports {
        page.field("Port", &port_line(port));
    }
    for unsupported in &object.status.unsupported {
        page.field("Not carried out", &format!("{}: {}", unsupported.field, unsupported.message));
    }
}

fn port_line(port: &ServicePort) -> String {
    let mut line = format!("{}/{}", port.range(), port.protocol.as_str());
    for (title, value) in [
        (" to port ", word(&port.target_port)),
        (", on every node ", word(&port.node_port)),
        (", named ", word(&port.name)),
        (", application protocol ", word(&port.app_protocol)),
    ] {
        if !value.is_empty() {
            line.push_str(&format!("{title}{value}"));
        }
    }
    line
}

/// Adds the numbers of nodes that have received, applied and verified a Service, and the nodes that have not
/// verified it, with their problems.
pub(crate) fn service_nodes(page: &mut Page, nodes: &NodeCounts) {
    let NodeCounts { total, received, applied, verified, not_verified } = nodes;
    page.section(&format!("Nodes ({verified} of {total} verified)"));
    page.line(&format!(
        "  received {received}/{total}, applied {applied}/{total}, verified {verified}/{total}"
    ));
    for (node, problem) in not_verified {
        let reason = word(&problem.reason);
        let reason = if reason.is_empty() { reason } else { format!(", {reason}") };
        let tone = if problem.phase == Phase::Failed { Tone::Bad } else { Tone::Waiting };
        let state = page.paint(tone, &format!("{}{reason}", word(&problem.phase)));
        page.line(&format!("  {}: {state}: {}", clean(&word(node)), clean(&problem.message)));
    }
    let listed = u32::try_from(not_verified.len()).unwrap_or(u32::MAX);
    let unlisted = total.saturating_sub(*verified).saturating_sub(listed);
    if unlisted > 0 {
        page.line(&format!("  and {unlisted} more"));
    }
}

pub(crate) fn endpoint_set(page: &mut Page, object: &EndpointSet) {
    page.section("Endpoint set");
    page.field("Service", &word(&object.spec.service));
    for port in &object.spec.ports {
        let name = port.name.as_ref().map(|name| format!(", named {}", word(name))).unwrap_or_default();
        page.field("Port", &format!("{}/{}{name}", port.port, port.protocol.as_str()));
    }
    let endpoints = &object.spec.endpoints;
    page.field("Endpoints", &endpoints.len().to_string());
    for endpoint in endpoints {
        page.line(&format!("  {}", clean(&endpoint_line(endpoint))));
    }
}

fn endpoint_line(endpoint: &Endpoint) -> String {
    let mut line = endpoint.address.to_string();
    for (title, value) in [
        (" on ", word(&endpoint.node)),
        (" in zone ", word(&endpoint.zone)),
        (" weight ", word(&endpoint.weight)),
    ] {
        if !value.is_empty() {
            line.push_str(&format!("{title}{value}"));
        }
    }
    let conditions = &endpoint.conditions;
    let states = [
        ("ready", conditions.ready),
        ("not ready", !conditions.ready),
        ("not serving", !conditions.serving),
        ("terminating", conditions.terminating),
        ("draining", endpoint.drain),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(name, holds)| holds.then_some(name)).collect();
    let out = maintenance(endpoint.maintenance.as_deref());
    let out = if out.is_empty() { out } else { format!(", {out}") };
    format!("{line}: {}{out}", states.join(", "))
}

/// Describes the maintenance state, such as `drains until 2026-01-02T03:04:05Z, asked by ops: upgrade`; empty
/// if in service.
fn maintenance(maintenance: Option<&Maintenance>) -> String {
    let Some(Maintenance { mode, reason, by, deadline }) = maintenance else { return String::new() };
    let mut text = match (mode, deadline) {
        (MaintenanceMode::Drain, None) => "drains".to_owned(),
        (MaintenanceMode::Drain, Some(deadline)) => format!("drains until {deadline}"),
        (MaintenanceMode::Maintenance, _) => "in maintenance".to_owned(),
    };
    for (title, value) in [(", asked by ", by), (": ", reason)] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            text.push_str(title);
            text.push_str(&clean(value));
        }
    }
    text
}

pub(crate) fn workload(page: &mut Page, object: &Workload) {
    let spec = &object.spec;
    page.section("Workload");
    page.field("Addresses", &words(&spec.addresses));
    page.field("Node", &word(&spec.node));
    page.optional("Zone", &word(&spec.zone));
    page.field("Phase", &word(&spec.phase));
    page.field("Ready", if spec.ready { "yes" } else { "no" });
    page.optional("Weight", &word(&spec.weight));
    page.optional("Named ports", &workload_ports(spec));
    page.optional("Interface", &interface(spec.interface.as_deref()));
    page.optional("Lease (s)", &word(&spec.lease_seconds));
    page.optional("Out of service", &maintenance(spec.maintenance.as_deref()));
}

/// Formats the interface that a Workload declares, such as `Tap tap0 in network pods`.
fn interface(interface: Option<&WorkloadInterface>) -> String {
    let Some(WorkloadInterface { network, kind, name, network_namespace, mac }) = interface else {
        return String::new();
    };
    let namespace = network_namespace.iter().map(|namespace| format!(" of network namespace {namespace}"));
    let mac = mac.iter().map(|mac| format!(", MAC {mac}"));
    let rest: String = namespace.chain([format!(" in network {network}")]).chain(mac).collect();
    format!("{} {name}{rest}", word(kind))
}

pub(crate) fn node(page: &mut Page, object: &Node, now: Timestamp) {
    let (spec, state) = (&object.spec, &object.status);
    page.section("Node");
    let (status, tone) = node_status(object);
    let status = page.paint(tone, &status);
    page.line(&format!("{:<24}{status}", "Status:"));
    page.field("Addresses", &words(&spec.addresses));
    page.optional("Zone", &word(&spec.zone));
    page.field("Workload networks", &words(&spec.workload_cidrs));
    page.field("Mode", &node_mode(object));
    page.optional("Out of service", &maintenance(spec.maintenance.as_deref()));
    if spec.proxy.masquerade_all {
        page.field("Masquerade", "all traffic to virtual addresses");
    }
    for (title, value) in proxy_fields(&spec.proxy) {
        page.optional(title, &value);
    }
    if !spec.proxy.strict_arp {
        page.field("Strict ARP", "no: in ipvs mode the node answers ARP for all its addresses");
    }
    if !spec.proxy.drops_invalid() {
        page.field("Invalid packets", "forwarded");
    }
    if let Some(identity) = &state.bgp {
        describe_bgp::node(page, identity);
    }
    page.section("Agent");
    page.field("Version", &word(&state.agent_version));
    let reported = state.last_report.map(|then| format!("{then} ({} ago)", age(then, now)));
    page.field("Last report", &reported.unwrap_or_else(|| "never".to_owned()));
    page.field("Received up to", &word(&state.received));
    page.field("Applied up to", &word(&state.applied));
    page.field("Verified up to", &word(&state.verified));
    page.field("Failing services", &state.failures.to_string());
    page.optional("Kernel", &state.facts.kernel);
    page.optional("Supported modes", &words(&state.facts.capabilities));
    page.optional("Found addresses", &words(&state.facts.addresses));
    for (interface, networks) in &state.facts.subnets {
        page.field("Found networks", &format!("{interface}: {}", words(networks)));
    }
    page.section("Counters since agent start");
    let counters = serde_json::to_value(state.counters).unwrap_or_default();
    for (counter, value) in named_rows::<u64>(&counters, "") {
        page.field(&format!("  {}", clean(&spaced(counter))), &word(&value));
    }
    happenings(page, object, now);
}

/// Returns the proxy mode requested for a Node, with the mode in use if it differs; the agent's default if
/// none is requested.
fn node_mode(node: &Node) -> String {
    match (node.spec.mode, node.status.mode) {
        (None, None) => "agent default".to_owned(),
        (None, Some(running)) => format!("{} (agent default)", running.as_str()),
        (Some(requested), Some(running)) if requested != running => {
            format!("{} requested, {} in use", requested.as_str(), running.as_str())
        }
        (Some(requested), Some(_) | None) => requested.as_str().to_owned(),
    }
}

/// Adds the current warnings and the recent events of a node.
fn happenings(page: &mut Page, node: &Node, now: Timestamp) {
    let (warnings, events) = (&node.status.warnings, &node.status.events);
    if !warnings.is_empty() {
        page.section("Warnings");
    }
    for warning in warnings {
        let warning = page.paint(Tone::Waiting, warning);
        page.line(&format!("  {warning}"));
    }
    if !events.is_empty() {
        page.section("Events");
    }
    for event in events {
        let ago = age(event.time, now);
        let times = if event.count > 1 { format!(", {} times", event.count) } else { String::new() };
        let (reason, message) = (word(&event.reason), clean(&event.message));
        page.line(&format!("  {ago} ago{times}: {reason}: {message}"));
    }
}

/// Splits camel case: `kernelMessages` becomes `kernel messages`.
fn spaced(camel: &str) -> String {
    let spaced =
        |c: char| if c.is_ascii_uppercase() { format!(" {}", c.to_ascii_lowercase()) } else { c.to_string() };
    camel.chars().map(spaced).collect()
}
