//! `…/guards/health`: endpoints that are held in service because so many failed at once, and the word that lets them go.

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

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Permission, Subject, Verb},
    write::caller,
};

/// Endpoints listed; the total counts all.
const HELD_LISTED_MAX: usize = 1000;

/// The guard of health checks.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HealthGuard {
    /// Percent of the checked endpoints that may leave service within the window; 100: all of them.
    percent: u8,
    /// What left service within this time counts as one event, in seconds.
    window_seconds: i64,
    /// Endpoints that are checked, each of each Service.
    checked: usize,
    /// Of these, how many have left service within the window.
    left: usize,
    /// Of these, how many are held in service.
    held_total: usize,
    /// The held ones; at most 1000.
    #[schema(max_items = 1000)]
    held: Vec<HeldEndpoint>,
}

/// An endpoint that is held in service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HeldEndpoint {
    /// The Service.
    #[schema(value_type = String, example = "default/web")]
    service: ServiceKey,
    /// The endpoint's address.
    #[schema(value_type = String)]
    address: IpAddr,
    /// The port of the check.
    port: Port,
    /// Since when it is held.
    since: Timestamp,
    /// The result that would take it out, in words.
    message: String,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let read_doc = Doc::new("readHealthGuard", "Cluster", "Says which unhealthy endpoints are held in service.")
        .describe(
            "When more of the checked endpoints become unhealthy at once than `--health-guard-percent` allows, what goes \
             beyond it stays in service until it is confirmed, or so many recover that the rest would have been let go. \
             Of several control servers only the one that leads holds any.",
        )
        .answer::<HealthGuard>(200, "The guard.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let confirm_doc =
        Doc::new("confirmHealthGuard", "Cluster", "Takes the endpoints that are held out of service.")
            .describe("Endpoints that become unhealthy later are not confirmed by it.")
            .answer::<HealthGuard>(200, "The guard as it was: `held` is what was let go.", &OBJECT_TYPES, &[])
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

async fn read(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let guard = show(&app.health.guard(), app.source.now());
    Ok(render(form, &guard))
}

async fn confirm(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let now = app.source.now();
    if !app.leadership.holds() {
        return Err(not_leader());
    }
    caller::note_object("guard of health checks".to_owned());
    let guard = app.health.confirm(|guard| show(guard, now));
    tracing::info!(endpoints = guard.held_total, "unhealthy endpoints that were held were confirmed");
    Ok(render(form, &guard))
}

fn not_leader() -> Problem {
    let detail = "this control server judges no endpoints: another one leads";
    Problem::new(Code::NotLeader, detail).hint("ask the one whose `GET /v1/status` says `replica.isLeader`")
}

fn show(guard: &Guard, now: Timestamp) -> HealthGuard {
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
