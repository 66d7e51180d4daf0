//! `GET /metrics`: metrics of this server and of Services in the OpenMetrics format.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use model::{kinds::resource::Kind, observed::rollup::count_endpoints, primitives::name::Name};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    context::server_state::{FEEDS_MAX, ServerState, WATCHES_MAX},
    http::openapi::{Doc, Route, Routes},
    security::{Permission, Subject, Verb},
    telemetry::{
        bgp as bgp_metrics, health as health_metrics, metrics::Reading, otlp, store as store_metrics, traffic,
    },
};

/// Media type of the OpenMetrics text format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Registers the route of metrics.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readMetrics", "Server", "Read metrics in the OpenMetrics text format")
        .describe(
            "Returns the metrics of this server, of Services and of nodes, for a scrape by \
             Prometheus.",
        )
        .text(200, "Returned with the metrics.", CONTENT_TYPE);
    router.routes(
        Route::at("/metrics")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Metrics), doc, metrics)
            .done(),
    )
}

async fn metrics(State(app): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], metrics_text(&app)).into_response()
}

/// Returns the metrics of a server in the OpenMetrics text format.
pub fn metrics_text(app: &ServerState) -> String {
    let view = app.view();
    let published = view.published();
    let position = published.position();
    let in_progress = app.responses.reading();
    let reading = Reading {
        revision: position.revision.0,
        epoch: position.epoch.0,
        compiled: published.compiled.len(),
        endpoints: published.compiled.after(None).map(|(_, entry)| count_endpoints(&entry.form)).sum(),
        objects: Kind::ALL.map(|kind| (kind.as_str(), published.snapshot.count(kind))).to_vec(),
        queue: app.writer.waiting(),
        watchers: WATCHES_MAX - app.watches.available_permits(),
        feeds: FEEDS_MAX - app.feeds.available_permits(),
        nodes_connected: view.table().connected(),
        dns_servers: app.dns_server_count(),
        dns_servers_with_problems: app.dns_server_problems().len(),
        requests: in_progress.requests,
        unsent_bytes: in_progress.bytes,
        is_leader: app.leadership.holds(),
    };
    let mut moment = traffic::registry(&app.observations.traffic());
    let table = view.table();
    let is_reporting = |node: &Name| table.view(node).is_some_and(|view| view.is_reporting());
    bgp_metrics::register(&mut moment, &app.observations.bgp(), is_reporting);
    let (book, guard) = (app.observations.health.book(), app.observations.health.guard());
    health_metrics::register(&mut moment, &published.snapshot, &book, &guard, app.source.now());
    drop((book, guard));
    if let Some(figures) = app.store.figures() {
        store_metrics::register(&mut moment, figures);
    }
    otlp::register(&mut moment, app.settings.tracer.totals());
    app.metrics.render(reading, &moment)
}
