//! Output that is neither a table nor a description: errors, the status summary, outcomes and events.

use model::{
    kinds::resource::Kind,
    observed::status::ConditionType,
    primitives::quantity::Timestamp,
    views::overview::{Impact, PrecedingChange},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use translate::json::field_path;

use crate::{
    age::age,
    error::{Failure, Problem},
    resource::Resource,
    terminal::{
        clean,
        style::{Style, Tone},
    },
    views::typed::{
        Address, AddressPool, Advertisement, Attachment, BfdProfile, BgpPeer, Block, Certificate, DnsZone,
        EndpointHealth, EndpointSet, Gateway, HttpRoute, NetworkPolicy, Node, ObjectHeader, Service,
        TlsRoute, TypedObject, Word, Workload, WorkloadNetwork, decode,
        documents::{
            ClusterStatus, ProblemExtension, StatusAddresses, StatusNodeAddresses, StatusNodes,
            StatusProblem, StatusServices, WatchEvent,
        },
        word, words,
    },
    views::{
        columns::{
            self, addresses as columns_addresses, bgp as columns_bgp, http as columns_http, labels,
            networks as columns_networks, policy as columns_policy,
        },
        health,
    },
};

/// Maximum number of violations printed for a rejected request.
const VIOLATIONS_SHOWN: usize = 100;

/// Maximum number of objects printed for a rejected prune.
const PRUNED_SHOWN: usize = 20;

/// Renders a failure: the error, one line per violation, and hints.
pub(crate) fn failure(failure: &Failure, style: Style) -> String {
    if failure.exit_code() == crate::ExitCode::Success {
        return String::new();
    }
    let mut lines = vec![format!("{} {}", style.paint(Tone::Bad, "error:"), clean(&failure.to_string()))];
    if let Failure::Refused(problem) = failure {
        problem_lines(problem, &mut lines);
    }
    lines.extend(failure.hints().iter().map(|hint| format!("  hint: {}", clean(hint))));
    lines.join("\n") + "\n"
}

/// Returns the error line of a rejection: its detail, or else its title, with code and status.
pub(crate) fn problem_title(problem: &Problem) -> String {
    let client::Problem { status, code, detail, document, .. } = &problem.rejection;
    let ProblemExtension { title, .. } = decode(document).unwrap_or_default();
    let text = [detail, &title]
        .into_iter()
        .find(|text| !text.is_empty())
        .map_or("the server rejected the request", String::as_str);
    let code = if code.is_empty() { String::new() } else { format!("{code}, ") };
    format!("{text} ({code}{status})")
}

fn problem_lines(problem: &Problem, lines: &mut Vec<String>) {
    let rejection = &problem.rejection;
    let violations = &rejection.violations;
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        let (item, field) = split_item(&violation.pointer, &problem.items);
        let place: String =
            [item, field].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        lines.push(format!("{}: {}", clean(&place), clean(&violation.message)));
        let hint = field_hint(&violation.pointer).or(violation.hint.as_deref());
        lines.extend(hint.map(|hint| format!("  hint: {}", clean(hint))));
    }
    if violations.len() > VIOLATIONS_SHOWN {
        lines.push(format!("and {} more", violations.len() - VIOLATIONS_SHOWN));
    }
    let ProblemExtension { would_prune, would_remove, .. } = decode(&rejection.document).unwrap_or_default();
    for (names, verb) in [(would_prune, "prune"), (would_remove, "remove")] {
        let shown = names.iter().take(PRUNED_SHOWN);
        lines.extend(shown.map(|name| format!("would {verb} {}", clean(name))));
        if names.len() > PRUNED_SHOWN {
            lines.push(format!("and {} more", names.len() - PRUNED_SHOWN));
        }
    }
    let hint = command_hint(&rejection.code).or(rejection.hint.as_deref());
    lines.extend(hint.map(|hint| format!("  hint: {}", clean(hint))));
    if let Some(request) = rejection.request_id.as_ref().filter(|_| rejection.status >= 500) {
        lines.push(format!("  hint: see the log of the control server for request {}", clean(request)));
    }
}

/// Returns the hint for a rejection whose remedy is an option or another command of this client. The hint of
/// the server would name a query parameter instead.
fn command_hint(code: &str) -> Option<&'static str> {
    match code {
        "PruneLimit" => Some("if this is intended, raise the limit with --prune-limit N"),
        "GuardHeld" => Some("if this is intended, repeat the command with --confirm"),
        "HistoryDropped" => Some("`tidegate history` lists the available revisions"),
        "ResumeExpired" => Some("omit --resume to start with a full listing"),
        "TooManyRequests" => Some("try again later"),
        _ => None,
    }
}

/// Returns the hint for a field of Kubernetes that has another form here.
fn field_hint(pointer: &str) -> Option<&'static str> {
    match pointer.rsplit_once("/spec/")?.1 {
        "loadBalancerIP" => Some("write `loadBalancer: {addresses: [ADDRESS]}`"),
        "loadBalancerClass" => Some("set the pool instead: `loadBalancer: {pool: NAME}`"),
        _ => None,
    }
}

/// Splits `/items/3/spec/ports/0` into the name of item 3 of the request and `spec.ports[0]`.
fn split_item(pointer: &str, known: &[String]) -> (String, String) {
    let in_item = pointer.strip_prefix("/items/").and_then(|rest| {
        let (number, field) = rest.split_once('/').unwrap_or((rest, ""));
        Some((known.get(number.parse::<usize>().ok()?)?, field))
    });
    match in_item {
        Some((item, "")) => (item.clone(), String::new()),
        Some((item, field)) => (format!("{item}:"), field_path(&format!("/{field}"))),
        None => (String::new(), field_path(pointer)),
    }
}

/// Formats the name of an object, such as `service/web`.
#[must_use]
pub fn object_name(object: &Value) -> String {
    let ObjectHeader { kind, metadata } = ObjectHeader::of(object);
    let word = kind
        .parse::<Resource>()
        .map_or_else(|_| kind.to_ascii_lowercase(), |kind| kind.singular().to_owned());
    let name = if word == "address" { columns_addresses::written(object) } else { metadata.name };
    clean(&format!("{word}/{name}"))
}

/// Returns the outcome line of an object, such as `service/web created`.
#[must_use]
pub fn outcome(object: &Value, action: &str, dry_run: bool, style: Style) -> String {
    let namespace = ObjectHeader::of(object).metadata.namespace;
    let place =
        if matches!(namespace.as_str(), "" | "default") { String::new() } else { format!(" in {namespace}") };
    let tone = match action {
        "created" | "updated" => Tone::Good,
        "deleted" | "pruned" => Tone::Bad,
        _ => Tone::Faint,
    };
    let suffix = if dry_run { " (dry run)" } else { "" };
    format!("{}{} {}{suffix}\n", object_name(object), clean(&place), style.paint(tone, &clean(action)))
}

/// Renders the output of `status`, with convergence times if known.
#[must_use]
pub fn status(status: &Value, lag: Option<&Value>, now: Timestamp, style: Style) -> String {
    let ClusterStatus { position, version, insecure, nodes, services, addresses, objects, problems, .. } =
        decode(status).unwrap_or_default();
    let mut lines = vec![format!("Control    {}, at {}", or_unknown(version), or_unknown(word(&position)))];
    if insecure {
        lines.push(
            style.paint(Tone::Bad, "           INSECURE: anyone who can reach the API can change everything"),
        );
    }
    let StatusNodes { total, connected, converged } = nodes;
    let tone = if converged == total && connected == total { Tone::Good } else { Tone::Bad };
    lines.push(format!(
        "Nodes      {}",
        style.paint(tone, &format!("{connected}/{total} connected, {converged}/{total} converged"))
    ));
    lines.extend(lag.and_then(crate::views::lag::summary));
    let StatusServices { total, ready, not_checked: _ } = services;
    let tone = if ready == total { Tone::Good } else { Tone::Bad };
    lines.push(format!("Services   {}", style.paint(tone, &format!("{ready}/{total} ready"))));
    lines.extend(
        not_checked(&services).map(|text| format!("           {}", style.paint(Tone::Waiting, &text))),
    );
    lines.extend(announced(&addresses).map(|text| format!("Addresses  {text}")));
    let objects: Vec<String> = objects
        .iter()
        .map(|(kind, count)| {
            let suffix = match (count, kind.ends_with('s')) {
                (1, _) => "",
                (_, true) => "es",
                (_, false) => "s",
            };
            format!("{count} {}{suffix}", clean(kind))
        })
        .collect();
    if !objects.is_empty() {
        lines.push(format!("Objects    {}", objects.join(", ")));
    }
    let count = match problems.len() {
        0 => style.paint(Tone::Good, "none"),
        count => style.paint(Tone::Bad, &count.to_string()),
    };
    lines.push(format!("Problems   {count}"));
    for problem in &problems {
        status_problem(problem, now, style, &mut lines);
    }
    lines.join("\n") + "\n"
}

/// Returns the number of announced addresses with those of each node, or `None` if no address is announced.
fn announced(addresses: &StatusAddresses) -> Option<String> {
    let StatusAddresses { total, nodes, nodes_omitted } = addresses;
    let by_node = |StatusNodeAddresses { node, addresses }: &StatusNodeAddresses| {
        format!("{addresses} by {}", clean(node))
    };
    let more = match nodes_omitted {
        0 => String::new(),
        1 => "; 1 more node".to_owned(),
        count => format!("; {count} more nodes"),
    };
    let nodes: Vec<String> = nodes.iter().map(by_node).collect();
    (*total > 0).then(|| format!("{total} announced: {}{more}", nodes.join(", ")))
}

/// Returns a sentence about the Services whose endpoints nobody checks, or `None` if there are none.
fn not_checked(services: &StatusServices) -> Option<String> {
    let StatusServices { total, ready: _, not_checked } = services;
    let verb = if *not_checked == 1 { "is" } else { "are" };
    (*not_checked > 0).then(|| {
        format!("{not_checked} of {total} {verb} not checked: nothing shows that their endpoints answer")
    })
}

/// Returns a sentence about the Services in the status of the cluster whose endpoints nobody checks, or `None` if there
/// are none.
#[must_use]
pub fn unchecked(status: &Value) -> Option<String> {
    let ClusterStatus { services, .. } = decode(status).unwrap_or_default();
    not_checked(&services)
}

fn status_problem(problem: &StatusProblem, now: Timestamp, style: Style, lines: &mut Vec<String>) {
    let StatusProblem { object, impact, since, reason, message, hint, change } = problem;
    let since = since.map(|since| format!(" for {}", age(since, now))).unwrap_or_default();
    let object = style.paint(Tone::Title, &clean(object));
    let reason = style.paint(Tone::Bad, &clean(reason));
    lines.push(format!("\n  {object}: {}{reason}{since}", self::impact(impact)));
    lines.push(format!("    {}", clean(message)));
    lines.extend((!hint.is_empty()).then(|| format!("    hint: {}", clean(hint))));
    lines.extend(change.as_ref().map(|change| preceding(change, now)));
}

/// Returns the impact of a problem on users as text before its reason, such as `degraded, `; empty if the
/// server does not report the impact.
fn impact(impact: &Word<Impact>) -> String {
    let text = match impact {
        Word::Known(Impact::Unreachable) => "users cannot connect",
        Word::Known(Impact::Degraded) => "degraded",
        Word::Known(Impact::Risk) => "at risk",
        Word::Known(Impact::Notice) => "notice",
        Word::Unknown(word) if word.is_empty() => return String::new(),
        Word::Unknown(word) => word,
    };
    format!("{}, ", clean(text))
}

/// Returns the line about the write that preceded a problem.
fn preceding(change: &PrecedingChange, now: Timestamp) -> String {
    let PrecedingChange { revision, at, author, message } = change;
    let part = |before: &str, text: &Option<String>| {
        let text = text.as_ref().filter(|text| !text.is_empty());
        text.map(|text| format!("{before}{}", clean(text))).unwrap_or_default()
    };
    let (by, why) = (part(" by ", author), part(": ", message));
    let ago = age(*at, now);
    format!("    before it: revision {revision}{by}, {ago} ago{why} (`tidegate history {revision}`)")
}

/// Returns true if `status` exits with 0: no problems, every node converged, every Service ready.
#[must_use]
pub fn is_healthy(status: &Value) -> bool {
    let ClusterStatus { nodes, services, problems, .. } = decode(status).unwrap_or_default();
    problems.is_empty()
        && nodes.total == nodes.connected
        && nodes.total == nodes.converged
        && services.total == services.ready
}

/// Renders one line of `watch` without the line end; `None` for events without an object.
#[must_use]
pub fn event(event: &Value, style: Style) -> Option<String> {
    let object = WatchEvent::object(event)?;
    let WatchEvent { event_type, revision, .. } = WatchEvent::of(event);
    let tone = match event_type.as_str() {
        "ADDED" => Tone::Good,
        "DELETED" => Tone::Bad,
        _ => Tone::Waiting,
    };
    let namespace = ObjectHeader::of(object).metadata.namespace;
    let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
    let padded = style.paint(tone, &format!("{:<8}", clean(&event_type)));
    let summary = clean(&summary(object));
    let line = format!("{revision:>8} {padded} {}{}  {summary}", object_name(object), clean(&place));
    Some(line.trim_end().to_owned())
}

/// Returns the summary that follows the name of an object in an event; empty if the object cannot be decoded.
fn summary(object: &Value) -> String {
    let parts = match Kind::parse(&ObjectHeader::of(object).kind) {
        Some(Kind::Service) => parts(object, service_summary),
        Some(Kind::EndpointSet) => parts(object, |EndpointSet { spec, .. }| {
            vec![format!("for service/{}", spec.service), format!("{} endpoints", spec.endpoints.len())]
        }),
        Some(Kind::Workload) => parts(object, workload_summary),
        Some(Kind::Node) => parts(object, node_summary),
        Some(Kind::AddressPool) => parts(object, |AddressPool { spec, .. }| {
            vec![
                words(&spec.addresses),
                if spec.auto_assign { "" } else { "on request only" }.to_owned(),
                if spec.disabled { "disabled" } else { "" }.to_owned(),
            ]
        }),
        Some(Kind::Advertisement) => parts(object, |Advertisement { spec, .. }| {
            let pools = words(&spec.address_pools);
            let pools = match (pools.is_empty(), spec.announces_addresses()) {
                (true, true) => "all pools".to_owned(),
                (true, false) => String::new(),
                (false, _) => format!("pools {pools}"),
            };
            let networks = words(&spec.workload_networks);
            let networks =
                if networks.is_empty() { networks } else { format!("workload networks {networks}") };
            vec![word(&spec.advertisement_type), pools, networks]
        }),
        Some(Kind::BgpPeer) => parts(object, |BgpPeer { spec, .. }| {
            let disabled = if spec.disabled { "disabled" } else { "" };
            vec![columns_bgp::remote(spec), columns_bgp::asn(spec), disabled.to_owned()]
        }),
        Some(Kind::BfdProfile) => {
            parts(object, |profile: &BfdProfile| vec![columns_bgp::intervals(&profile.spec)])
        }
        Some(Kind::DnsZone) => parts(object, |DnsZone { spec, .. }| {
            vec![spec.zone.to_string(), format!("{} records", spec.records.len())]
        }),
        Some(Kind::Certificate) => {
            parts(object, |Certificate { status, .. }| vec![status.dns_names.join(", ")])
        }
        Some(Kind::Gateway) => {
            parts(object, |Gateway { spec, .. }| vec![columns_http::listeners(&spec.listeners)])
        }
        Some(Kind::HttpRoute) => {
            parts(object, |HttpRoute { spec, .. }| vec![format!("{} rules", spec.rules.len())])
        }
        Some(Kind::TlsRoute) => parts(object, |TlsRoute { spec, .. }| vec![words(&spec.hostnames)]),
        Some(Kind::WorkloadNetwork) => {
            parts(object, |WorkloadNetwork { spec, .. }| vec![words(&spec.cidrs), word(&spec.encapsulation)])
        }
        Some(Kind::NetworkPolicy) => parts(object, |NetworkPolicy { spec, .. }| {
            vec![columns_policy::selector(&spec.selector), columns_policy::types(spec)]
        }),
        Some(Kind::Block) => parts(object, |block: &Block| columns_networks::block_summary(&block.spec)),
        Some(Kind::Attachment) => parts(object, |Attachment { spec, .. }| {
            vec![format!("workload/{}", spec.workload), words(&spec.addresses)]
        }),
        Some(Kind::Address) => parts(object, address_summary),
        Some(Kind::EndpointHealth) => {
            parts(object, |record: &EndpointHealth| vec![health::record_summary(&record.spec)])
        }
        None => Vec::new(),
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn parts<Spec: DeserializeOwned, Status: DeserializeOwned + Serialize + Default>(
    object: &Value,
    summary: impl FnOnce(&TypedObject<Spec, Status>) -> Vec<String>,
) -> Vec<String> {
    // Without a spec, its defaults would be printed as if the object had them.
    let object = Some(object).filter(|object| object.get("spec").is_some()).and_then(TypedObject::of);
    object.map(|object| summary(&object)).unwrap_or_default()
}

fn service_summary(service: &Service) -> Vec<String> {
    vec![
        word(&service.spec.service_type),
        columns::cluster_addresses(service),
        columns::service_ports(service),
        columns::external_addresses(service),
    ]
}

fn workload_summary(workload: &Workload) -> Vec<String> {
    vec![
        words(&workload.spec.addresses),
        if workload.spec.ready { "ready" } else { "not ready" }.to_owned(),
        workload.metadata.as_ref().map(|metadata| labels(&metadata.labels)).unwrap_or_default(),
    ]
}

fn node_summary(node: &Node) -> Vec<String> {
    let ready = columns::condition(&node.conditions, ConditionType::Ready);
    vec![
        words(&node.spec.addresses),
        ready.map(|ready| format!("Ready={}", word(&ready))).unwrap_or_default(),
    ]
}

/// Returns the parts of an address summary: the Services with the address, the former Service while a
/// released address is in quarantine, and the candidates (nodes that may announce the address) in order.
fn address_summary(address: &Address) -> Vec<String> {
    let spec = &address.spec;
    let holders = words(&spec.services);
    let nodes = words(spec.announcement.candidates.iter().map(|candidate| &candidate.node));
    vec![
        if holders.is_empty() { holders } else { format!("for {holders}") },
        spec.quarantine
            .as_ref()
            .map(|quarantine| format!("quarantined for {}", quarantine.former))
            .unwrap_or_default(),
        if nodes.is_empty() { nodes } else { format!("at {nodes}") },
    ]
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { "unknown".to_owned() } else { clean(&text) }
}
