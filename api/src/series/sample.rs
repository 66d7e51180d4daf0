//! What is known at one moment, gathered from what the server has anyway.

use std::{sync::Arc, time::Duration, time::Instant};

use model::{
    lag::{LagOverview, overview},
    name::Name,
    quantity::Position,
    resource::{Kind, ServiceKey},
    rollup::NodeView,
    status::{Condition, ConditionStatus, ConditionType},
    traffic::{Busiest, Counts, SortBy},
};

use super::{OF_CLUSTER, OF_NODE, OF_SERVICE, SERVICES_MAX};
use crate::{app::App, view::View};

/// How often is looked whether the next point is due.
const LOOK: Duration = Duration::from_millis(500);

/// What is known at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// In the order of the figures.
    pub(super) cluster: [Option<f32>; OF_CLUSTER.len()],
    /// Every Node.
    pub(super) nodes: Vec<(Name, NodeSample)>,
    /// The Services that had traffic, the busiest first.
    pub(super) services: Vec<(ServiceKey, [Option<f32>; OF_SERVICE.len()])>,
}

/// What is known of a Node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeSample {
    /// How long the oldest change that it lacks waits, in milliseconds.
    pub(super) lag_ms: Option<u64>,
    /// Revisions that it has not verified.
    pub(super) behind: Option<u64>,
    /// The revision that it has programmed.
    pub(super) programmed: Option<u64>,
    /// Whether it reports and has everything.
    pub(super) is_healthy: bool,
}

impl NodeSample {
    /// The values in the order of the figures, `programmed` from a revision on.
    pub(super) fn values(&self, base: u64) -> [Option<f32>; OF_NODE.len()] {
        let Self { lag_ms, behind, programmed, is_healthy } = *self;
        let programmed = programmed.and_then(|revision| revision.checked_sub(base));
        [lag_ms.map(short), behind.map(short), programmed.map(short), Some(f32::from(u8::from(is_healthy)))]
    }
}

/// Takes a point whenever one is due.
pub(crate) async fn run(app: Arc<App>) {
    let mut turn = tokio::time::interval(LOOK);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let Some(step) = app.series.due(app.source.now()) else { continue };
        let taker = Arc::clone(&app);
        // It walks over everything; nobody else waits for that.
        let taken = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            taker.series.take(step, &gather(&taker));
            tracing::trace!(took_us = started.elapsed().as_micros(), "a point of the series was taken");
        });
        if taken.await.is_err() {
            tracing::error!("a point of the series was not taken");
        }
    }
}

fn gather(app: &App) -> Sample {
    let view = app.view();
    let views = view.table().views();
    let busiest = app.traffic().busiest(None, SortBy::default(), SERVICES_MAX, &views);
    let head = view.published().nodes_head();
    let lag = overview(&app.convergence.changes(Instant::now()), &views, head);
    let nodes: Vec<_> = views.iter().map(|one| (one.name.clone(), node(&view, one, &lag, head))).collect();
    let (not_ok, unhealthy) = services_of(&view);
    let not_converged = nodes.iter().filter(|(_, node)| !node.is_healthy).count();
    let Busiest { services, services_omitted: _, total } = busiest;
    let [connections, bytes, _] = traffic(&total);
    let count = |count: usize| Some(short(u64::try_from(count).unwrap_or(u64::MAX)));
    let cluster =
        [count(not_ok), count(not_converged), count(unhealthy), lag.p99_ms.map(short), connections, bytes];
    let services = services.into_iter().map(|one| (one.service, traffic(&one.counts))).collect();
    Sample { cluster, nodes, services }
}

/// Connections and bytes a second, and open connections; each only where somebody counts it at the moment.
fn traffic(counts: &Counts) -> [Option<f32>; OF_SERVICE.len()] {
    let rate = |of: fn(model::traffic::Rates) -> Option<model::traffic::Rate>| {
        counts.per_second.and_then(of).map(|rate| narrow(rate.per_second()))
    };
    [rate(|rates| Some(rates.connections)), rate(|rates| rates.bytes), counts.active.map(short)]
}

fn node(view: &View<'_>, one: &NodeView<'_>, lag: &LagOverview, head: Position) -> NodeSample {
    let object = model::resource::ObjectKey { kind: Kind::Node, namespace: None, name: one.name.clone() };
    let status = view.published().snapshot.get(&object).and_then(|object| view.shower().node(object));
    let holds = |wanted| status.as_ref().is_some_and(|status| holds(&status.conditions, wanted));
    let report = one.report.filter(|_| one.is_connected);
    let waits = lag.nodes.iter().find(|lag| lag.node == *one.name).and_then(|lag| lag.waiting_ms);
    let verified = report.map(|report| report.verified);
    let behind = verified.filter(|at| at.epoch == head.epoch);
    let behind = behind.map(|at| head.revision.0.saturating_sub(at.revision.0));
    NodeSample {
        // Who has everything waits for nothing; of who is silent only is known what it lacks.
        lag_ms: waits.or_else(|| behind.filter(|behind| *behind == 0)),
        behind,
        programmed: report.map(|report| report.applied.revision.0),
        is_healthy: holds(ConditionType::Connected) && holds(ConditionType::Converged),
    }
}

/// How many Services are not as they should be, and how many endpoints their health checks keep out.
fn services_of(view: &View<'_>) -> (usize, usize) {
    let shower = view.shower();
    let (mut not_ok, mut unhealthy) = (0, 0);
    for object in view.published().snapshot.list(Kind::Service, None, None) {
        let Some(status) = shower.service(object) else { continue };
        not_ok += usize::from(!holds(&status.conditions, ConditionType::Ready));
        unhealthy += usize::try_from(status.endpoints.unhealthy).unwrap_or(usize::MAX);
    }
    (not_ok, unhealthy)
}

fn holds(conditions: &[Condition], wanted: ConditionType) -> bool {
    conditions.iter().any(|one| one.condition_type == wanted && one.status == ConditionStatus::True)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people: seven digits")]
fn short(value: u64) -> f32 {
    value as f32
}

#[expect(clippy::cast_possible_truncation, reason = "a figure for people: seven digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}
