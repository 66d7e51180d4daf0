//! Time series of the last hour for the cluster, each Node and each Service: one point every ten seconds, in
//! memory.
//!
//! ```text
//! every 10 s: traffic, roll-up, convergence ─▶ Sample ─▶ Book: a Track of 360 slots per metric ─▶ GET /v1/series
//! ```
//! A `Sample` contains the values of all metrics at one moment. A `Track` contains the values of one metric of
//! one subject; the `Book` contains all tracks. Unknown values are gaps, never zero. The series are
//! informational only, and begin again after a restart.

mod track;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
};
use serde::Serialize;
use utoipa::ToSchema;

use self::track::{POINTS, Track};

/// Interval of points in seconds, the same as that of traffic reports.
pub(crate) const STEP_SECS: i64 = 10;
/// Maximum number of tracks (a metric of one subject over an hour) that store non-zero values: 1,440 bytes each,
/// 17 MB in total. A Service with traffic has three of them, one without traffic has none, so that some 4,000
/// Services with traffic fit. If there are more, the busiest are kept.
pub(crate) const TRACKS_WITH_VALUES_MAX: usize = 12_000;
/// Maximum number of Services with time series, some 300 bytes each: more than in the largest supported cluster.
pub(crate) const SERVICES_MAX: usize = 20_000;
/// Interval at which the series of deleted Nodes and Services are removed, in steps of 10 s: one minute.
pub(crate) const STEPS_TO_FORGET: i64 = 6;
/// Maximum number of Nodes with time series. Further Nodes have none.
pub(crate) const NODES_MAX: usize = 2048;

/// Subject of a time series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Of {
    /// The whole cluster.
    Cluster,
    /// Node with this name.
    Node(Name),
    /// Service with this namespace and name.
    Service(ServiceKey),
}

/// Time series of the last hour of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeriesAnswer {
    /// Subject of the series: `service/NAMESPACE/NAME`, `node/NAME` or `cluster`.
    #[schema(example = "service/default/web")]
    of: String,
    /// Time of the first point (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    start: Timestamp,
    /// Interval between points in seconds.
    step_seconds: i64,
    /// Reason why measured values are missing: the memory limit was reached. Absent if none are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// Time series of the cluster, Node or Service, one for each metric, all with the same number of points.
    #[schema(max_items = 8)]
    series: Vec<Series>,
}

/// Values of one metric over time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Series {
    /// Name of the metric.
    #[schema(example = "connections")]
    name: &'static str,
    /// Unit of the values; empty for a plain number.
    #[schema(example = "1/s")]
    unit: &'static str,
    /// Values, oldest first, at most 360; `null` if unknown.
    #[schema(max_items = 360)]
    points: Vec<Option<f64>>,
}

/// Name and unit of a metric.
type Figure = (&'static str, &'static str);

/// Names and units of the metrics of a Service.
pub(crate) const OF_SERVICE: [Figure; 3] = [("connections", "1/s"), ("bytes", "B/s"), ("active", "")];
/// Names and units of the metrics of a Node. `behind` is the number of revisions that the node has not verified;
/// `programmed` is the revision that it has applied.
pub(crate) const OF_NODE: [Figure; 4] = [("lag", "ms"), ("behind", ""), ("programmed", ""), ("healthy", "")];
/// Names and units of the metrics of the cluster.
pub(crate) const OF_CLUSTER: [Figure; 6] = [
    ("servicesNotOk", ""),
    ("nodesNotConverged", ""),
    ("endpointsUnhealthy", ""),
    ("convergenceP99", "ms"),
    ("connections", "1/s"),
    ("bytes", "B/s"),
];

/// Time series of the last hour, of the cluster, its Nodes and its Services.
#[derive(Debug, Default)]
pub(crate) struct SeriesBook(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// Steps (multiples of 10 s since 1970) of the newest and of the first point.
    newest: Option<(i64, i64)>,
    cluster: [Track; OF_CLUSTER.len()],
    nodes: BTreeMap<Name, NodeTracks>,
    services: BTreeMap<ServiceKey, ServiceTracks>,
    /// Number of tracks that store non-zero values, limited by [`TRACKS_WITH_VALUES_MAX`].
    full: usize,
}

#[derive(Debug, Default)]
struct NodeTracks {
    /// Revision that is subtracted from the values of `programmed`, because a point cannot represent a large
    /// revision exactly.
    base: u64,
    tracks: [Track; OF_NODE.len()],
}

#[derive(Debug, Default)]
struct ServiceTracks {
    tracks: [Track; OF_SERVICE.len()],
    /// Step of the last value that was dropped because the memory limit was reached, if within the last hour.
    left_out: Option<i64>,
}

impl SeriesBook {
    /// Returns the step (10 s) that contains `now`, or `None` if it already has a point.
    pub(crate) fn due(&self, now: Timestamp) -> Option<i64> {
        let step = now.unix_seconds().div_euclid(STEP_SECS);
        let is_new = self.lock().newest.is_none_or(|(newest, _)| newest != step);
        is_new.then_some(step)
    }

    /// Adds one point to every series: the value from the sample, at the time step (10 s).
    pub(crate) fn take(&self, step: i64, sample: &Sample) {
        self.lock().take(step, sample);
    }

    /// Removes the series of deleted Nodes and Services.
    pub(crate) fn forget_gone(
        &self,
        has_service: impl Fn(&ServiceKey) -> bool,
        has_node: impl Fn(&Name) -> bool,
    ) {
        self.lock().forget_gone(has_service, has_node);
    }

    /// Returns the time series of the cluster, a Node or a Service, or `None` before the first point.
    pub(crate) fn read(&self, of: &Of) -> Option<SeriesAnswer> {
        self.lock().read(of)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Informational data; a panicking holder leaves at worst an incomplete record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn take(&mut self, step: i64, sample: &Sample) {
        let first = match self.newest {
            // After a clock change backwards, or far forwards, the series start over.
            Some((newest, first)) if (newest..newest.saturating_add(POINTS_I64)).contains(&step) => {
                (newest.saturating_add(1)..=step).for_each(|passed| self.forget(passed));
                first
            }
            Some(_) | None => {
                *self = Self::default();
                step
            }
        };
        self.newest = Some((step, first));
        let slot = slot(step);
        let Sample { cluster, nodes, services } = sample;
        for (track, value) in self.cluster.iter_mut().zip(cluster) {
            set(track, slot, *value, &mut self.full);
        }
        for (name, node) in nodes.iter().take(NODES_MAX) {
            let is_new = !self.nodes.contains_key(name);
            let kept = self.nodes.entry(name.clone()).or_default();
            if is_new {
                kept.base = node.programmed.unwrap_or(0);
            }
            for (track, value) in kept.tracks.iter_mut().zip(node.values(kept.base)) {
                set(track, slot, value, &mut self.full);
            }
        }
        for (key, values) in services {
            if !self.services.contains_key(key) && self.services.len() >= SERVICES_MAX {
                continue;
            }
            let kept = self.services.entry(key.clone()).or_default();
            for (track, value) in kept.tracks.iter_mut().zip(values) {
                if !set(track, slot, *value, &mut self.full) {
                    kept.left_out = Some(step);
                }
            }
        }
        if step % POINTS_I64 == 0 {
            self.tidy(sample);
        }
    }

    /// Marks the slot of a new step as unknown in all tracks, because the slot still contains the point from
    /// one hour before.
    fn forget(&mut self, step: i64) {
        let slot = slot(step);
        let nodes = self.nodes.values_mut().flat_map(|node| &mut node.tracks);
        let services = self.services.values_mut().flat_map(|service| &mut service.tracks);
        self.cluster.iter_mut().chain(nodes).chain(services).for_each(|track| track.forget(slot));
    }

    /// Releases the memory of tracks that were zero for an hour, and removes subjects without known values.
    fn tidy(&mut self, sample: &Sample) {
        let named: BTreeSet<_> = sample.services.iter().map(|(key, _)| key).collect();
        self.services.retain(|key, service| named.contains(key) || service.tracks.iter().any(Track::has_any));
        self.nodes.retain(|_, node| node.tracks.iter().any(Track::has_any));
        let nodes = self.nodes.values_mut().flat_map(|node| &mut node.tracks);
        let services = self.services.values_mut().flat_map(|service| &mut service.tracks);
        let all = self.cluster.iter_mut().chain(nodes).chain(services);
        self.full = all.map(|track| usize::from(track.shrink())).sum();
    }

    fn forget_gone(&mut self, has_service: impl Fn(&ServiceKey) -> bool, has_node: impl Fn(&Name) -> bool) {
        let services = self.services.extract_if(.., |key, _| !has_service(key));
        let nodes = self.nodes.extract_if(.., |name, _| !has_node(name));
        let of_services = services.flat_map(|(_, service)| service.tracks);
        let tracks = of_services.chain(nodes.flat_map(|(_, node)| node.tracks));
        self.full -= tracks.filter(Track::has_values).count();
    }

    fn read(&self, of: &Of) -> Option<SeriesAnswer> {
        let (newest, first) = self.newest?;
        let first = first.max(newest - POINTS_I64 + 1);
        let slots: Vec<usize> = (first..=newest).map(slot).collect();
        let points = |track: Option<&Track>, base: u64| {
            let value = |slot: &usize| Some(rounded(track?.get(*slot)?, base));
            slots.iter().map(value).collect::<Vec<_>>()
        };
        let all = |figures: &[Figure], tracks: Option<&[Track]>, base: u64| {
            let one = |(index, (name, unit)): (usize, &Figure)| {
                let base = if *name == "programmed" { base } else { 0 };
                Series { name, unit, points: points(tracks.and_then(|tracks| tracks.get(index)), base) }
            };
            figures.iter().enumerate().map(one).collect()
        };
        let (mut left_out, series) = (
            None,
            match of {
                Of::Cluster => all(&OF_CLUSTER, Some(&self.cluster), 0),
                Of::Node(name) => {
                    let kept = self.nodes.get(name);
                    all(&OF_NODE, kept.map(|node| &node.tracks[..]), kept.map_or(0, |node| node.base))
                }
                Of::Service(key) => all(&OF_SERVICE, self.services.get(key).map(|one| &one.tracks[..]), 0),
            },
        );
        if let Of::Service(key) = of {
            left_out = self.left_out(key, first);
        }
        let start = Timestamp::from_unix_seconds(first.saturating_mul(STEP_SECS));
        Some(SeriesAnswer { of: of.to_string(), start, step_seconds: STEP_SECS, left_out, series })
    }

    fn left_out(&self, key: &ServiceKey, first: i64) -> Option<String> {
        let kept = self.services.get(key);
        let is_beyond = match kept {
            Some(kept) => kept.left_out.is_some_and(|step| step >= first),
            None => self.services.len() >= SERVICES_MAX,
        };
        is_beyond.then(|| {
            format!(
                "the memory limit is reached: series of at most {TRACKS_WITH_VALUES_MAX} non-zero \
                 metrics and of {SERVICES_MAX} Services are kept; use /metrics with Prometheus for more"
            )
        })
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Service(key) => write!(f, "service/{}/{}", key.namespace, key.name),
        }
    }
}

/// Number of points of a track ([`POINTS`]) as `i64`, the type of steps.
const POINTS_I64: i64 = POINTS as i64;

fn slot(step: i64) -> usize {
    usize::try_from(step.rem_euclid(POINTS_I64)).expect("a remainder of a small number is small")
}

/// Sets the value of a slot. If the memory limit is reached, leaves a gap and returns `false`.
fn set(track: &mut Track, slot: usize, value: Option<f32>, full: &mut usize) -> bool {
    let may_grow = *full < TRACKS_WITH_VALUES_MAX;
    let was_full = track.has_values();
    let is_set = track.set(slot, value, may_grow);
    *full += usize::from(track.has_values() && !was_full);
    is_set
}

/// Returns the sum of `base` and a stored value, rounded to thousandths.
#[expect(clippy::cast_precision_loss, reason = "a figure for people; exact up to 2^53")]
fn rounded(value: f32, base: u64) -> f64 {
    base as f64 + (f64::from(value) * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;

/// Values of all metrics at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Values of the cluster, in the order of [`OF_CLUSTER`]; `None` if unknown.
    pub(crate) cluster: [Option<f32>; OF_CLUSTER.len()],
    /// Values of the metrics of every Node.
    pub(crate) nodes: Vec<(Name, NodeSample)>,
    /// Values of the Services with traffic, in the order of [`OF_SERVICE`], the busiest Services first.
    pub(crate) services: Vec<(ServiceKey, [Option<f32>; OF_SERVICE.len()])>,
}

/// Values of the metrics of one Node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeSample {
    /// Time since the oldest change that the node has not verified, in milliseconds.
    pub(crate) lag_ms: Option<u64>,
    /// Number of published revisions that the Node has not verified.
    pub(crate) behind: Option<u64>,
    /// Newest revision that the Node has applied.
    pub(crate) programmed: Option<u64>,
    /// True if the Node has verified the current state, according to the overview.
    pub(crate) is_healthy: bool,
}

impl NodeSample {
    /// Returns the values in the order of [`OF_NODE`], with `programmed` reduced by `base`.
    pub(crate) fn values(&self, base: u64) -> [Option<f32>; OF_NODE.len()] {
        let Self { lag_ms, behind, programmed, is_healthy } = *self;
        let programmed = programmed.and_then(|revision| revision.checked_sub(base));
        [lag_ms.map(short), behind.map(short), programmed.map(short), Some(f32::from(u8::from(is_healthy)))]
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people: seven digits")]
pub(crate) fn short(value: u64) -> f32 {
    value as f32
}
