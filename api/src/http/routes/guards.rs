//! `…/guards/health`: unhealthy endpoints that the health guard keeps in service because too many failed at once,
//! and the confirmation of their removal.

use std::net::IpAddr;

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::ServiceKey,
    observed::health::{GUARD_WINDOW_SECS, Guard},
    primitives::quantity::{Port, Timestamp},
};
use serde::Serialize;
use utoipa::{ToSchema, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::GuardState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Caller, Permission, Subject, Verb},
};

/// Maximum number of endpoints listed as kept in service; the total includes all.
const HELD_LISTED_MAX: usize = 1000;

/// State of the health guard, which keeps unhealthy endpoints in service if too many fail at once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HealthGuard {
    /// Maximum percentage of the health-checked endpoints that may leave service within the window. 100 disables
    /// the guard.
    percent: u8,
    /// Length of the window in seconds. The guard counts the endpoints that leave service within it.
    window_seconds: i64,
    /// Number of endpoints with health checks. An endpoint of several Services counts once for each.
    checked: usize,
    /// Number of health-checked endpoints that left service within the window.
    left: usize,
    /// Number of health-checked endpoints that are unhealthy but kept in service by the guard.
    held_total: usize,
    /// Endpoints that are unhealthy but kept in service; at most the first 1000.
    #[schema(max_items = 1000)]
    held: Vec<HeldEndpoint>,
}

/// Unhealthy endpoint that the health guard keeps in service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HeldEndpoint {
    /// Service of the endpoint, as `namespace/name`.
    #[schema(value_type = String, example = "default/web")]
    service: ServiceKey,
    /// IP address of the endpoint.
    #[schema(value_type = String)]
    address: IpAddr,
    /// Port of the health check.
    port: Port,
    /// Time since which the guard keeps the endpoint in service (RFC 3339, UTC).
    since: Timestamp,
    /// Result of the failed health check, as text.
    message: String,
}

/// Registers the routes of the health guard.
pub(super) fn add(router: Routes) -> Routes {
    let read_doc = Doc::new("readHealthGuard", "Cluster", "Read the health guard")
        .describe(
            "If more checked endpoints become unhealthy at once than `--health-guard-percent` allows, \
             the surplus stays in service until it is confirmed, or until so many recover that the rest \
             is within the limit. With several control servers only the leader holds endpoints.",
        )
        .answer::<HealthGuard>(200, "Returned with the guard and the held endpoints.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let confirm_doc = Doc::new("confirmHealthGuard", "Cluster", "Take held endpoints out of service")
        .describe("The confirmation does not cover endpoints that become unhealthy later.")
        .answer::<HealthGuard>(
            200,
            "Returned with the guard before the confirmation: `held` lists \
                                         the confirmed endpoints.",
            &OBJECT_TYPES,
            &[],
        )
        .problems(&[Code::NotAcceptable, Code::NotLeader]);
    let path = "/v1/guards/health";
    router
        .routes(
            Route::at(path)
                .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Guard), read_doc, read)
                .done(),
        )
        .routes(
            Route::at(format!("{path}/confirm"))
                .on(HttpMethod::Post, Permission::On(Verb::Confirm, Subject::Guard), confirm_doc, confirm)
                .done(),
        )
}

async fn read(State(state): State<GuardState>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let guard = guard_view(&state.observations.health.guard(), state.source.now());
    Ok(render(form, &guard))
}

async fn confirm(
    State(state): State<GuardState>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let now = state.source.now();
    if !state.leadership.holds() {
        return Err(not_leader());
    }
    caller.record_object("guard of health checks".to_owned());
    let guard = state.observations.health.confirm(|guard| guard_view(guard, now));
    tracing::info!(endpoints = guard.held_total, "unhealthy endpoints held in service were confirmed");
    Ok(render(form, &guard))
}

fn not_leader() -> Problem {
    let detail = "this control server does not evaluate health checks: another one is the leader";
    Problem::new(Code::NotLeader, detail).hint(
        "send the request to the server whose `GET /v1/status` \
                                                reports `replica.isLeader`",
    )
}

fn guard_view(guard: &Guard, now: Timestamp) -> HealthGuard {
    let held = guard.held().take(HELD_LISTED_MAX).map(|(service, key, held)| HeldEndpoint {
        service: service.clone(),
        address: key.address,
        port: key.port,
        since: held.since,
        message: held.message.clone(),
    });
    HealthGuard {
        percent: guard.percent(),
        window_seconds: GUARD_WINDOW_SECS,
        checked: guard.checked(),
        left: guard.left_lately(now),
        held_total: guard.held_count(),
        held: held.collect(),
    }
}
