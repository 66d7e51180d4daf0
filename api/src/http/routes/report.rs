//! `PUT /v1/nodes/{node}/report`: status report of one agent.

mod bgp_limits;

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::StatusCode;
use model::{
    bgp::{
        book::{self as bgp_book, BgpBook},
        report::{BgpSession, BgpSessionState},
    },
    kinds::advertisement::ADVERTISEMENT_ENTRIES_MAX,
    observed::{announcements::AnnouncementUpdate, health::HealthUpdate},
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
    wire::report::{
        ANNOUNCEMENTS_MAX, CHECK_MESSAGE_BYTES_MAX, CHECKS_REPORTED_MAX, EVENT_MESSAGE_BYTES_MAX, EVENTS_MAX,
        FAILURES_MAX, PEERS_MAX, Report, TRAFFIC_TARGETS_MAX,
    },
};
use utoipa::openapi::HttpMethod;

use super::{
    Shared,
    feed::{NodePath, require_node},
};
use crate::{
    base::error::{Answer, Code, Problem},
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::Permission,
    state::convergence::Ladder,
};

/// Maximum length of `bootId` and `agentVersion` in characters, as in the schema.
const WORD_LENGTH_MAX: usize = 64;
/// Maximum length of a failure message in characters.
const MESSAGE_LENGTH_MAX: usize = 1024;
/// Maximum length of the kernel release in characters.
const KERNEL_LENGTH_MAX: usize = 256;
/// Maximum number of reported addresses and subnets.
const FACTS_MAX: usize = 1024;

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("report", "Agent", "Replace the report of an agent")
        .named("node", "Name of the Node.")
        .body::<Report>(&OBJECT_TYPES, "Complete report of the agent.")
        .empty(204, "Returned if the reply was accepted.")
        .problems(&[Code::NodeNotFound, Code::Invalid]);
    router.routes(
        Route::at("/v1/nodes/{node}/report").on(HttpMethod::Put, Permission::OwnNode, doc, report).done(),
    )
}

async fn report(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let mut report: Report = body::typed(&value)?;
    check(&report)?;
    require_node(&app.hub.load().snapshot, &node)?;
    app.metrics.reports.inc();
    let now = app.source.now();
    let traffic = std::mem::take(&mut report.traffic);
    app.traffic().apply(&node, &report.boot_id, traffic, now);
    let news = AnnouncementUpdate {
        parts: std::mem::take(&mut report.announcements),
        gone: std::mem::take(&mut report.announcements_gone),
        is_complete: report.announcements_complete,
    };
    let bgp = bgp_book::BgpReportUpdate {
        bgp: report.bgp.take(),
        routes: std::mem::take(&mut report.bgp_routes),
        gone: std::mem::take(&mut report.bgp_routes_gone),
        is_complete: report.bgp_routes_complete,
        events: report.events.clone(),
    };
    let is_by_name = !news.parts.is_empty()
        || !news.gone.is_empty()
        || !bgp.routes.is_empty()
        || !bgp.gone.is_empty()
        || !report.health.is_empty();
    let has_other_sessions = {
        let mut book = app.bgp();
        let before = sessions(&book, &node);
        book.apply(&node, bgp, now);
        before != sessions(&book, &node)
    };
    let health =
        HealthUpdate { services: std::mem::take(&mut report.health), is_complete: report.health_complete };
    let report = Arc::new(report);
    let earlier = app.nodes.report(&*app.store, &node, Arc::clone(&report), now).await;
    // Must follow the update of the last-seen time, or the first results would be ignored.
    app.health.report(&node, health);
    let before = earlier.report.as_ref().map(|report| Ladder::from(&**report));
    app.convergence.take(
        &node,
        app.hub.load().epoch,
        (before, Ladder::from(&*report)),
        std::time::Instant::now(),
    );
    let addresses = app.announcements().apply(&node, news);
    if is_by_name || has_other_sessions || is_news(earlier.report.as_deref(), &report) {
        app.overview.report();
    }
    app.newsroom.report(&node, &earlier, &report, addresses, now);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the parts of the sessions of a node that the overview depends on.
fn sessions(book: &BgpBook, node: &Name) -> Vec<(Name, Option<IpAddr>, BgpSessionState, String)> {
    let shown = |one: &BgpSession| (one.peer.clone(), one.address, one.state, one.reason.clone());
    book.sessions_of(node).map(shown).collect()
}

/// True if a report differs from the previous one in more than counters.
fn is_news(before: Option<&Report>, report: &Report) -> bool {
    let Some(before) = before else { return true };
    // Fast path for almost every report after a change; a full comparison costs a copy.
    if before.verified != report.verified {
        return true;
    }
    let Report { counters, traffic_at, boot_id, .. } = before;
    let counted =
        Report { counters: *counters, traffic_at: *traffic_at, boot_id: boot_id.clone(), ..report.clone() };
    counted != *before
}

/// Checks the limits of the schema.
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
        events,
        traffic,
        announcements,
        announcements_gone,
        announcements_complete: _,
        peers,
        // Their limits are checked in a separate module.
        bgp: _,
        bgp_routes: _,
        bgp_routes_gone: _,
        bgp_routes_complete: _,
        health,
        health_complete: _,
        traffic_at: _,
    } = report;
    let longest_event = events.iter().map(|event| event.message.len()).max().unwrap_or(0);
    let longest_warning = warnings.iter().map(String::len).max().unwrap_or(0);
    let targets: usize = traffic.values().map(Vec::len).sum();
    let longest = failures.values().map(|failure| failure.message.len()).max().unwrap_or(0);
    let subnets: usize = facts.subnets.values().map(Vec::len).sum();
    let longest_reason = announcements.values().map(|part| part.reason.len()).max().unwrap_or(0);
    let interfaces = announcements.values().map(|part| part.interfaces.len()).max().unwrap_or(0);
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
        ("/warnings", warnings.len(), EVENTS_MAX),
        ("/warnings/*", longest_warning, EVENT_MESSAGE_BYTES_MAX),
        ("/events", events.len(), EVENTS_MAX),
        ("/events/*/message", longest_event, EVENT_MESSAGE_BYTES_MAX),
        ("/announcements", announcements.len(), ANNOUNCEMENTS_MAX),
        ("/announcementsGone", announcements_gone.len(), ANNOUNCEMENTS_MAX),
        ("/peers", peers.len(), PEERS_MAX),
        ("/traffic", traffic.len(), TRAFFIC_TARGETS_MAX),
        ("/traffic/*", targets, TRAFFIC_TARGETS_MAX),
    ];
    let violations: Vec<_> = limits
        .into_iter()
        .chain(bgp_limits::limits(report))
        .filter(|(_, found, limit)| found > limit)
        .map(|(pointer, found, limit)| {
            Violation::new(pointer, ViolationCode::TooLong, format!("must be at most {limit}, is {found}"))
        })
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(Problem::invalid(violations)) }
}
