//! `describe` sections that differ by kind. Pure.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, entries, flag, items, joined, labels, number, port_range, scalar, text, time},
    terminal::style::Tone,
    views::{
        columns::{cluster_addresses, external_addresses, joined_addresses, node_status, workload_ports},
        describe::{Page, bgp as describe_bgp},
    },
};

/// Titles and pointers of the Service fields printed if they have a value.
const SERVICE_FIELDS: [(&str, &str); 17] = [
    ("IP families", "/spec/ipFamilies"),
    ("IP family policy", "/spec/ipFamilyPolicy"),
    ("Session affinity", "/spec/sessionAffinity"),
    ("Affinity timeout (s)", "/spec/sessionAffinityConfig/clientIP/timeoutSeconds"),
    ("External policy", "/spec/externalTrafficPolicy"),
    ("Internal policy", "/spec/internalTrafficPolicy"),
    ("Distribution", "/spec/trafficDistribution"),
    ("Source ranges", "/spec/loadBalancerSourceRanges"),
    ("Health check port", "/spec/healthCheckNodePort"),
    ("Address pool", "/spec/loadBalancer/pool"),
    ("Wanted addresses", "/spec/loadBalancer/addresses"),
    ("Sharing key", "/spec/loadBalancer/sharingKey"),
    ("Scheduler", "/spec/scheduler"),
    ("Scheduler flags", "/spec/schedulerFlags"),
    ("PROXY protocol", "/spec/proxyProtocol"),
    ("Removal policy", "/spec/removalPolicy"),
    ("Drain (s)", "/spec/drainSeconds"),
];

/// Titles and pointers of a Node's proxy options printed if they have a value.
const PROXY_FIELDS: [(&str, &str); 5] = [
    ("Cluster networks", "/spec/proxy/clusterCIDRs"),
    ("Node ports at", "/spec/proxy/nodePortAddresses"),
    ("Masquerade mark bit", "/spec/proxy/masqueradeBit"),
    ("Drop mark bit", "/spec/proxy/dropBit"),
    ("Naming", "/spec/proxy/naming"),
];

pub(crate) fn service(page: &mut Page, object: &Value) {
    page.section("Service");
    let service_type = text(object, "/spec/type");
    page.field("Type", if service_type.is_empty() { "ClusterIP" } else { &service_type });
    page.field("Cluster IP", &cluster_addresses(object));
    page.optional("External", &external_addresses(object));
    page.optional("Selector", &labels(object, "/spec/selector"));
    for (title, at) in SERVICE_FIELDS {
        page.optional(title, &either(object, at));
    }
    let forwarding = text(object, "/spec/forwardingMethod");
    page.optional("Forwarding", if forwarding == "masquerade" { "" } else { &forwarding });
    if let Some(check) = object.pointer("/spec/healthCheck").filter(|check| check.is_object()) {
        let [kind, every, within] = ["/type", "/intervalMs", "/timeoutMs"].map(|at| text(check, at));
        page.field("Health check", &format!("{kind} every {every} ms, timeout {within} ms"));
    }
    if flag(object, "/spec/publishNotReadyAddresses", false) {
        page.field("Not ready endpoints", "receive traffic as if they were ready");
    }
    if flag(object, "/spec/disabled", false) {
        page.field("Disabled", "yes: addresses and ports are kept, but no traffic is served");
    }
    page.optional("Out of service", &maintenance(object, "/spec/maintenance"));
    for port in items(object, "/spec/ports") {
        let [name, target, node_port] = ["/name", "/targetPort", "/nodePort"].map(|at| text(port, at));
        let protocol = port.get("protocol").map_or_else(|| "TCP".to_owned(), scalar);
        let mut line = format!("{}/{protocol}", port_range(port));
        for (word, value) in [(" to port ", target), (", on every node ", node_port), (", named ", name)] {
            if !value.is_empty() {
                line.push_str(&format!("{word}{value}"));
            }
        }
        page.field("Port", &line);
    }
    for unsupported in items(object, "/status/unsupported") {
        page.field(
            "Not carried out",
            &format!("{}: {}", text(unsupported, "/field"), text(unsupported, "/message")),
        );
    }
}

/// Adds the sync state of the nodes for a Service, and the lagging nodes.
pub(crate) fn service_nodes(page: &mut Page, object: &Value) {
    let [total, received, applied, verified] = ["total", "received", "applied", "verified"]
        .map(|key| number(object, &format!("/status/nodes/{key}")));
    page.section(&format!("Nodes ({verified} of {total} verified)"));
    page.line(&format!(
        "  received {received}/{total}, applied {applied}/{total}, verified {verified}/{total}"
    ));
    let mut listed = 0;
    for (node, problem) in entries(object, "/status/nodes/notVerified") {
        let [phase, reason, message] = ["/phase", "/reason", "/message"].map(|at| text(problem, at));
        let reason = if reason.is_empty() { String::new() } else { format!(", {reason}") };
        let tone = if phase == "Failed" { Tone::Bad } else { Tone::Waiting };
        let state = page.paint(tone, &format!("{phase}{reason}"));
        page.line(&format!("  {}: {state}: {}", clean(node), clean(&message)));
        listed += 1;
    }
    let unlisted = total.saturating_sub(verified).saturating_sub(listed);
    if unlisted > 0 {
        page.line(&format!("  and {unlisted} more"));
    }
}

pub(crate) fn endpoint_set(page: &mut Page, object: &Value) {
    page.section("Endpoint set");
    page.field("Service", &text(object, "/spec/service"));
    for port in items(object, "/spec/ports") {
        let protocol = port.get("protocol").map_or_else(|| "TCP".to_owned(), scalar);
        let name = text(port, "/name");
        let name = if name.is_empty() { String::new() } else { format!(", named {name}") };
        page.field("Port", &format!("{}/{protocol}{name}", text(port, "/port")));
    }
    let endpoints = items(object, "/spec/endpoints");
    page.field("Endpoints", &endpoints.len().to_string());
    for endpoint in endpoints {
        page.line(&format!("  {}", clean(&endpoint_line(endpoint))));
    }
}

fn endpoint_line(endpoint: &Value) -> String {
    let mut line = text(endpoint, "/address");
    for (word, at) in [(" on ", "/node"), (" in zone ", "/zone"), (" weight ", "/weight")] {
        let value = text(endpoint, at);
        if !value.is_empty() {
            line.push_str(&format!("{word}{value}"));
        }
    }
    let states = [
        ("ready", flag(endpoint, "/conditions/ready", true)),
        ("not ready", !flag(endpoint, "/conditions/ready", true)),
        ("not serving", !flag(endpoint, "/conditions/serving", true)),
        ("terminating", flag(endpoint, "/conditions/terminating", false)),
        ("draining", flag(endpoint, "/drain", false)),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(word, holds)| holds.then_some(word)).collect();
    let out = maintenance(endpoint, "/maintenance");
    let out = if out.is_empty() { out } else { format!(", {out}") };
    format!("{line}: {}{out}", states.join(", "))
}

/// Describes the maintenance state, such as `drains until 2026-01-02T03:04:05Z, asked by ops: upgrade`; empty
/// if in service.
fn maintenance(object: &Value, at: &str) -> String {
    let Some(asked) = object.pointer(at).filter(|asked| asked.is_object()) else { return String::new() };
    let [mode, deadline, by, reason] =
        ["/mode", "/deadline", "/by", "/reason"].map(|field| clean(&text(asked, field)));
    let mut words = match mode.as_str() {
        "Drain" if deadline.is_empty() => "drains".to_owned(),
        "Drain" => format!("drains until {deadline}"),
        "Maintenance" => "in maintenance".to_owned(),
        _ => mode,
    };
    for (before, word) in [(", asked by ", by), (": ", reason)] {
        if !word.is_empty() {
            words.push_str(before);
            words.push_str(&word);
        }
    }
    words
}

pub(crate) fn workload(page: &mut Page, object: &Value) {
    page.section("Workload");
    page.field("Addresses", &joined_addresses(object));
    page.field("Node", &text(object, "/spec/node"));
    page.optional("Zone", &text(object, "/spec/zone"));
    let phase = text(object, "/spec/phase");
    page.field("Phase", if phase.is_empty() { "Running" } else { &phase });
    page.field("Ready", if flag(object, "/spec/ready", true) { "yes" } else { "no" });
    page.optional("Weight", &text(object, "/spec/weight"));
    page.optional("Named ports", &workload_ports(object));
    page.optional("Lease (s)", &text(object, "/spec/leaseSeconds"));
    page.optional("Out of service", &maintenance(object, "/spec/maintenance"));
}

pub(crate) fn node(page: &mut Page, object: &Value, now: Timestamp) {
    page.section("Node");
    let (status, tone) = node_status(object);
    let status = page.paint(tone, &status);
    page.line(&format!("{:<24}{status}", "Status:"));
    page.field("Addresses", &joined_addresses(object));
    page.optional("Zone", &text(object, "/spec/zone"));
    page.field("Workload networks", &joined(object, "/spec/workloadCIDRs"));
    page.field("Mode", &node_mode(object));
    page.optional("Out of service", &maintenance(object, "/spec/maintenance"));
    if flag(object, "/spec/proxy/masqueradeAll", false) {
        page.field("Masquerade", "all traffic to virtual addresses");
    }
    for (title, at) in PROXY_FIELDS {
        page.optional(title, &either(object, at));
    }
    if !flag(object, "/spec/proxy/strictARP", true) {
        page.field("Strict ARP", "no: in ipvs mode the node answers ARP for all its addresses");
    }
    describe_bgp::node(page, object);
    page.section("Agent");
    page.field("Version", &text(object, "/status/agentVersion"));
    let reported = time(object, "/status/lastReport");
    let reported = reported.map(|then| format!("{then} ({} ago)", age(then, now)));
    page.field("Last report", &reported.unwrap_or_else(|| "never".to_owned()));
    for (title, key) in
        [("Received up to", "received"), ("Applied up to", "applied"), ("Verified up to", "verified")]
    {
        page.field(title, &text(object, &format!("/status/{key}")));
    }
    page.field("Failing services", &number(object, "/status/failures").to_string());
    page.optional("Kernel", &text(object, "/status/facts/kernel"));
    page.optional("Supported modes", &joined(object, "/status/facts/capabilities"));
    page.optional("Found addresses", &joined(object, "/status/facts/addresses"));
    for (interface, networks) in entries(object, "/status/facts/subnets") {
        page.field("Found networks", &format!("{interface}: {}", joined(networks, "")));
    }
    page.section("Counters since agent start");
    for (counter, value) in entries(object, "/status/counters") {
        page.field(&format!("  {}", clean(&words(counter))), &scalar(value));
    }
    happenings(page, object, now);
}

/// Returns the requested mode, with the mode in use if it differs.
fn node_mode(object: &Value) -> String {
    let [wanted, running] = ["/spec/mode", "/status/mode"].map(|at| text(object, at));
    match (wanted.is_empty(), running.is_empty()) {
        (true, true) => "agent default".to_owned(),
        (true, false) => format!("{running} (agent default)"),
        (false, false) if wanted != running => format!("{wanted} requested, {running} in use"),
        (false, true | false) => wanted,
    }
}

/// Adds the warnings and recent events of a node.
fn happenings(page: &mut Page, object: &Value, now: Timestamp) {
    let [warnings, events] = ["/status/warnings", "/status/events"].map(|at| items(object, at));
    if !warnings.is_empty() {
        page.section("Warnings");
    }
    for warning in warnings {
        let warning = page.paint(Tone::Waiting, &scalar(warning));
        page.line(&format!("  {warning}"));
    }
    if !events.is_empty() {
        page.section("Events");
    }
    for event in events {
        let when = time(event, "/time").map_or_else(|| "?".to_owned(), |then| age(then, now));
        let count = number(event, "/count");
        let times = if count > 1 { format!(", {count} times") } else { String::new() };
        let [reason, message] = ["/reason", "/message"].map(|at| clean(&text(event, at)));
        page.line(&format!("  {when} ago{times}: {reason}: {message}"));
    }
}

/// Splits camel case: `kernelMessages` becomes `kernel messages`.
fn words(camel: &str) -> String {
    let spaced =
        |c: char| if c.is_ascii_uppercase() { format!(" {}", c.to_ascii_lowercase()) } else { c.to_string() };
    camel.chars().map(spaced).collect()
}

/// Returns the scalar or the joined scalars at a JSON pointer.
fn either(object: &Value, at: &str) -> String {
    let one = text(object, at);
    if one.is_empty() { joined(object, at) } else { one }
}
