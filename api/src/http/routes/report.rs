//! `PUT /v1/nodes/{node}/report`: status report of one agent.

mod bgp_limits;

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::StatusCode;
use model::{
    kinds::advertisement::ADVERTISEMENT_ENTRIES_MAX,
    wire::report::{
        ANNOUNCEMENT_CHANGES_MAX, ANNOUNCEMENTS_MAX, CHECK_MESSAGE_BYTES_MAX, CHECKS_REPORTED_MAX,
        EVENT_MESSAGE_BYTES_MAX, EVENTS_MAX, FAILURES_MAX, PEERS_MAX, Report, TRAFFIC_TARGETS_MAX,
    },
};
use utoipa::openapi::HttpMethod;

use super::feed::{NodePath, require_node};
use crate::{
    base::error::{Answer, Code, Problem},
    context::sub_states::ReportState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::Permission,
    state::observations::Arrival,
};

/// Maximum length of `bootId` and `agentVersion` in characters, as in the schema.
const WORD_LENGTH_MAX: usize = 64;
/// Maximum length of a failure message in characters.
const MESSAGE_LENGTH_MAX: usize = 1024;
/// Maximum length of the kernel release in characters.
const KERNEL_LENGTH_MAX: usize = 256;
/// Maximum number of addresses, and of subnets, that a report may contain.
const FACTS_MAX: usize = 1024;

/// Registers the route of agent reports.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("replaceReport", "Agent", "Replace the report of an agent")
        .describe(
            "Replaces the report of the node on this server. Agents send a report to every control \
             server about every 5 seconds and after each change.",
        )
        .named("node", "Name of the Node.")
        .body::<Report>(&OBJECT_TYPES, "Complete report of the agent.")
        .empty(204, "Returned if the report was accepted.")
        .problems(&[Code::NodeNotFound, Code::Invalid]);
    router.routes(
        Route::at("/v1/nodes/{node}/report").on(HttpMethod::Put, Permission::OwnNode, doc, report).done(),
    )
}

async fn report(
    State(state): State<ReportState>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let report: Report = body::typed(&value)?;
    check(&report)?;
    require_node(&state.hub.load().snapshot, &node)?;
    state.metrics.reports.inc();
    let arrival = Arrival { epoch: state.hub.load().epoch, now: state.source.now() };
    state.observations.apply(&*state.store, &node, report, arrival).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns an error if an agent's report exceeds the limits of the schema.
fn check(report: &Report) -> Result<(), Problem> {
    let Report {
        boot_id,
        agent_version,
        mode: _,
        received: _,
        applied: _,
        verified: _,
        held: _,
        failures,
        failures_total: _,
        facts,
        counters: _,
        warnings,
        network_failure,
        events,
        traffic,
        announcements,
        announcements_gone,
        announcements_complete: _,
        announcement_changes,
        peers,
        // Their limits are checked in a separate module.
        bgp: _,
        bgp_routes: _,
        bgp_routes_gone: _,
        bgp_routes_complete: _,
        health,
        health_complete: _,
        traffic_at: _,
        policy,
    } = report;
    let longest_event = events.iter().map(|event| event.message.len()).max().unwrap_or(0);
    let longest_warning = warnings.iter().map(String::len).max().unwrap_or(0);
    let network_failure = network_failure.as_ref().map_or(0, String::len);
    let targets: usize = traffic.values().map(Vec::len).sum();
    let longest = failures.values().map(|failure| failure.message.len()).max().unwrap_or(0);
    let subnets: usize = facts.subnets.values().map(Vec::len).sum();
    let longest_reason = announcements.values().map(|part| part.reason.len()).max().unwrap_or(0);
    let longest_change = announcement_changes.iter().map(|change| change.reason.len()).max().unwrap_or(0);
    let interfaces = announcements.values().map(|part| part.interfaces.len()).max().unwrap_or(0);
    let link_layer = facts.link_layer_addresses.iter().flat_map(|(name, address)| [name, address]);
    let longest_link_layer = link_layer.map(String::len).max().unwrap_or(0);
    let words = announcements.values().flat_map(|part| {
        let heard = part.conflict.iter().flat_map(|conflict| [&conflict.mac, &conflict.interface]);
        part.interfaces.iter().chain(heard)
    });
    let longest_word = words.map(String::len).max().unwrap_or(0);
    let checks: usize = health.values().map(Vec::len).sum();
    let longest_check = health.values().flatten().map(|check| check.message.len()).max().unwrap_or(0);
    let limits = [
        ("/health", health.len(), CHECKS_REPORTED_MAX),
        ("/health/*", checks, CHECKS_REPORTED_MAX),
        ("/health/*/message", longest_check, CHECK_MESSAGE_BYTES_MAX),
        ("/announcements/*/reason", longest_reason, EVENT_MESSAGE_BYTES_MAX),
        ("/announcements/*/interfaces", interfaces, ADVERTISEMENT_ENTRIES_MAX),
        ("/announcements/*/*", longest_word, WORD_LENGTH_MAX),
        ("/bootId", boot_id.len(), WORD_LENGTH_MAX),
        ("/agentVersion", agent_version.len(), WORD_LENGTH_MAX),
        ("/failures", failures.len(), FAILURES_MAX),
        ("/failures/*/message", longest, 4 * MESSAGE_LENGTH_MAX),
        ("/facts/kernel", facts.kernel.len(), KERNEL_LENGTH_MAX),
        ("/facts/addresses", facts.addresses.len(), FACTS_MAX),
        ("/facts/subnets", subnets, FACTS_MAX),
        ("/facts/linkLayerAddresses", facts.link_layer_addresses.len(), FACTS_MAX),
        ("/facts/linkLayerAddresses/*", longest_link_layer, WORD_LENGTH_MAX),
        ("/warnings", warnings.len(), EVENTS_MAX),
        ("/warnings/*", longest_warning, EVENT_MESSAGE_BYTES_MAX),
        ("/networkFailure", network_failure, EVENT_MESSAGE_BYTES_MAX),
        ("/events", events.len(), EVENTS_MAX),
        ("/events/*/message", longest_event, EVENT_MESSAGE_BYTES_MAX),
        ("/announcements", announcements.len(), ANNOUNCEMENTS_MAX),
        ("/announcementsGone", announcements_gone.len(), ANNOUNCEMENTS_MAX),
        ("/announcementChanges", announcement_changes.len(), ANNOUNCEMENT_CHANGES_MAX),
        ("/announcementChanges/*/reason", longest_change, EVENT_MESSAGE_BYTES_MAX),
        ("/peers", peers.len(), PEERS_MAX),
        ("/policy/reason", policy.as_ref().map_or(0, |policy| policy.reason.len()), EVENT_MESSAGE_BYTES_MAX),
        ("/traffic", traffic.len(), TRAFFIC_TARGETS_MAX),
        ("/traffic/*", targets, TRAFFIC_TARGETS_MAX),
    ];
    body::within(limits.into_iter().chain(bgp_limits::limits(report)))
}
