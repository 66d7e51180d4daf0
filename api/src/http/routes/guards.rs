//! `…/guards/health`: unhealthy endpoints that the health guard keeps in service because too many failed at once,
//! and the confirmation of their removal.

use axum::extract::State;
use http::HeaderMap;
use model::{
    observed::{
        health::{GUARD_WINDOW_SECS, Guard},
        service_health::{GuardedEndpoint, HealthGuard},
    },
    primitives::quantity::Timestamp,
};
use utoipa::openapi::HttpMethod;

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

/// Maximum number of unhealthy endpoints listed as kept in service; the total in the response counts all of
/// them.
const HELD_LISTED_MAX: usize = 1000;

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
    let held = guard.held().take(HELD_LISTED_MAX).map(|(service, key, held)| GuardedEndpoint {
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
