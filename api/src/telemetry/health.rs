//! Health check metrics of the cluster: only totals. The results of single endpoints are at `…/health` of a
//! Service.

use model::{
    cluster::snapshot::Snapshot,
    kinds::resource::Kind,
    observed::health::{Guard, HealthBook},
    primitives::quantity::Timestamp,
};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Registers the health check metrics with their current values.
pub(crate) fn register(
    registry: &mut Registry,
    snapshot: &Snapshot,
    book: &HealthBook,
    guard: &Guard,
    now: Timestamp,
) {
    let records = || {
        let records = snapshot.list(Kind::EndpointHealth, None, None);
        records.filter_map(|object| object.as_endpoint_health()).flat_map(|record| record.endpoints.values())
    };
    let out = records().filter(|verdict| verdict.is_out()).count();
    let growing = records().count() - out;
    for (name, help, value) in [
        (
            "health_checked_endpoints",
            "Endpoints with health checks, counted once per Service",
            guard.checked(),
        ),
        ("health_out_endpoints", "Endpoints taken out of service by health checks", out),
        ("health_growing_endpoints", "Recovered endpoints in slow start", growing),
        (
            "health_left_endpoints",
            "Endpoints taken out of service in the last minute",
            guard.left_lately(now),
        ),
        (
            "health_guard_held_endpoints",
            "Unhealthy endpoints that stay in service because so many failed at once",
            guard.held_count(),
        ),
        ("health_words", "Probe results kept, one for each node and endpoint", book.results()),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
    let refused = Counter::<u64>::default();
    refused.inc_by(book.refused);
    registry.register(
        "health_words_refused",
        "Times that a probe result was dropped because the limit \
                                               was reached",
        refused,
    );
}
