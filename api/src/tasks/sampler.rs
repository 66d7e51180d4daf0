//! Task that adds a point to the time series every 10 s, from data that the server already has in memory.

use std::{
    collections::BTreeSet,
    iter::repeat,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    kinds::resource::{Kind, ObjectKey},
    observed::{
        rollup::NodeView,
        traffic::{Busiest, SortBy},
    },
    primitives::{name::Name, quantity::Position},
    views::overview::{NodeConvergence, Overview, Totals},
    wire::traffic_counts::{Counts, Rate, Rates},
};

use crate::{
    context::server_state::ServerState,
    state::series::{NodeSample, OF_CLUSTER, OF_SERVICE, SERVICES_MAX, STEPS_TO_FORGET, Sample, short},
};

/// Interval at which the task checks if the time for the next point has come (one point every 10 s).
const LOOK: Duration = Duration::from_millis(500);

/// Runs the task that adds a point to all time series every 10 s.
pub(crate) async fn run(app: Arc<ServerState>) {
    let mut turn = tokio::time::interval(LOOK);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let Some(step) = app.series.due(app.source.now()) else { continue };
        let Some(shown) = app.overview.current(&app).await else { return };
        let taker = Arc::clone(&app);
        // Visits all traffic data; must not block an async worker thread.
        let taken = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            taker.series.take(step, &gather(&taker, &shown.overview));
            if step % STEPS_TO_FORGET == 0 {
                forget_gone(&taker);
            }
            tracing::trace!(took_us = started.elapsed().as_micros(), "added a point to the time series");
        });
        if taken.await.is_err() {
            tracing::error!("cannot add a point to the time series");
        }
    }
}

fn forget_gone(app: &ServerState) {
    let published = app.hub.load();
    let is_there = |key: &ObjectKey| published.snapshot.get(key).is_some();
    let node_key = |name: &Name| ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() };
    app.series.forget_gone(|service| is_there(&service.object_key()), |node| is_there(&node_key(node)));
}

fn gather(app: &ServerState, shown: &Overview) -> Sample {
    let view = app.view();
    let views = view.table().views();
    let head = view.published().nodes_head();
    let lag = app.observations.convergence.brief(&views, head, Instant::now());
    let converged: BTreeSet<_> = shown
        .nodes
        .iter()
        .filter(|row| row.state == NodeConvergence::Converged)
        .map(|row| &row.name)
        .collect();
    let waiting = lag.waiting_ms.iter().copied().chain(repeat(None));
    let nodes = views.iter().zip(waiting).map(|(one, waiting_ms)| {
        (one.name.clone(), node(one, waiting_ms, converged.contains(one.name), head))
    });
    let nodes = nodes.collect();
    let Busiest { services, services_omitted: _, total } =
        app.observations.traffic().busiest(None, SortBy::default(), SERVICES_MAX, &views);
    let services = services.into_iter().map(|one| (one.service, traffic(&one.counts))).collect();
    Sample { cluster: cluster(&shown.totals, lag.p99_ms, &total), nodes, services }
}

/// Returns the values of the cluster's metrics, from the totals of the overview and the total traffic.
fn cluster(totals: &Totals, p99_ms: Option<u64>, traffic_of_all: &Counts) -> [Option<f32>; OF_CLUSTER.len()] {
    let count = |count: usize| Some(short(u64::try_from(count).unwrap_or(u64::MAX)));
    let services = &totals.services;
    let fine = services.ok.saturating_add(services.disabled);
    let [connections, bytes, _] = traffic(traffic_of_all);
    [
        count(services.total.saturating_sub(fine)),
        totals.nodes.as_ref().and_then(|nodes| count(nodes.total.saturating_sub(nodes.converged))),
        Some(short(totals.endpoints.unhealthy)),
        p99_ms.map(short),
        connections,
        bytes,
    ]
}

/// Returns connections per second, bytes per second and open connections; each is `None` if it is not counted.
fn traffic(counts: &Counts) -> [Option<f32>; OF_SERVICE.len()] {
    let rate =
        |of: fn(Rates) -> Option<Rate>| counts.per_second.and_then(of).map(|rate| narrow(rate.per_second()));
    [rate(|rates| Some(rates.connections)), rate(|rates| rates.bytes), counts.active.map(short)]
}

fn node(one: &NodeView<'_>, waiting_ms: Option<u64>, is_healthy: bool, head: Position) -> NodeSample {
    let report = one.report.filter(|_| one.is_connected);
    let verified = report.map(|report| report.verified).filter(|at| at.epoch == head.epoch);
    let behind = verified.map(|at| head.revision.0.saturating_sub(at.revision.0));
    NodeSample {
        // A converged node has no lag; the lag of a silent node is known from earlier reports only.
        lag_ms: waiting_ms.or_else(|| behind.filter(|behind| *behind == 0)),
        behind,
        programmed: report.map(|report| report.applied.revision.0),
        is_healthy,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a figure for people: seven digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}
