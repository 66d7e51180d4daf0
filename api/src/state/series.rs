//! How it went in the last hour: some figures of the cluster, of each Node and of each Service, every ten seconds, in memory.
//!
//! ```text
//! every 10 s: traffic, roll-up, convergence ─▶ Sample ─▶ Book: a Track of 360 slots for each figure ─▶ GET /v1/series
//! ```
//! What was not known at a time is a gap, never zero. Nothing rests on it, and a restart begins anew.

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

/// Seconds between two points: agents report their traffic as often.
pub(crate) const STEP_SECS: i64 = 10;
/// Figures that have values other than zero at once, each with 1,440 bytes: 17 MB in total. A Service with traffic has three,
/// one without has none, so that is some 4,000 Services that are used within an hour, the busiest of the moment first.
pub(crate) const TRACKS_WITH_VALUES_MAX: usize = 12_000;
/// Services that are remembered at all, with some 300 bytes each: more than a cluster of the size that we aim at has.
pub(crate) const SERVICES_MAX: usize = 20_000;
/// Steps between two looks for what is no longer there: a minute.
pub(crate) const STEPS_TO_FORGET: i64 = 6;
/// Nodes that are remembered.
pub(crate) const NODES_MAX: usize = 2048;

/// What a series is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Of {
    /// The cluster.
    Cluster,
    /// One Node.
    Node(Name),
    /// One Service.
    Service(ServiceKey),
}

/// The last hour of something.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeriesAnswer {
    /// What it is of.
    #[schema(example = "service/default/web")]
    of: String,
    /// The time of the first point.
    #[schema(value_type = String, format = DateTime)]
    start: Timestamp,
    /// Seconds between two points.
    step_seconds: i64,
    /// Why values are missing that the server would have, when there is no room for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// The figures, each with as many points.
    #[schema(max_items = 8)]
    series: Vec<Series>,
}

/// One figure over time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Series {
    /// What it is.
    #[schema(example = "connections")]
    name: &'static str,
    /// Its unit; empty for a plain number.
    #[schema(example = "1/s")]
    unit: &'static str,
    /// The oldest first; `null` where nobody knows.
    #[schema(max_items = 360)]
    points: Vec<Option<f64>>,
}

/// A figure by name and unit.
type Figure = (&'static str, &'static str);

/// Of a Service.
pub(crate) const OF_SERVICE: [Figure; 3] = [("connections", "1/s"), ("bytes", "B/s"), ("active", "")];
/// Of a Node. `behind` is how many revisions it has not verified; `programmed` the revision that it has.
pub(crate) const OF_NODE: [Figure; 4] = [("lag", "ms"), ("behind", ""), ("programmed", ""), ("healthy", "")];
/// Of the cluster.
pub(crate) const OF_CLUSTER: [Figure; 6] = [
    ("servicesNotOk", ""),
    ("nodesNotConverged", ""),
    ("endpointsUnhealthy", ""),
    ("convergenceP99", "ms"),
    ("connections", "1/s"),
    ("bytes", "B/s"),
];

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct SeriesBook(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// The step of the newest point, and that of the first.
    newest: Option<(i64, i64)>,
    cluster: [Track; OF_CLUSTER.len()],
    nodes: BTreeMap<Name, NodeTracks>,
    services: BTreeMap<ServiceKey, ServiceTracks>,
    /// Tracks with values.
    full: usize,
}

#[derive(Debug, Default)]
struct NodeTracks {
    /// The revision from which `programmed` is counted: the points have not the digits of a large one.
    base: u64,
    tracks: [Track; OF_NODE.len()],
}

#[derive(Debug, Default)]
struct ServiceTracks {
    tracks: [Track; OF_SERVICE.len()],
    /// Whether a value found no room within the hour: the step of the last.
    left_out: Option<i64>,
}

impl SeriesBook {
    /// The step that a time is in, if there is no point of it yet.
    pub(crate) fn due(&self, now: Timestamp) -> Option<i64> {
        let step = now.unix_seconds().div_euclid(STEP_SECS);
        let is_new = self.lock().newest.is_none_or(|(newest, _)| newest != step);
        is_new.then_some(step)
    }

    /// Takes the point of a step.
    pub(crate) fn take(&self, step: i64, sample: &Sample) {
        self.lock().take(step, sample);
    }

    /// Forgets what is no longer there: nobody can ask for it, and what is there may need the room.
    pub(crate) fn forget_gone(
        &self,
        has_service: impl Fn(&ServiceKey) -> bool,
        has_node: impl Fn(&Name) -> bool,
    ) {
        self.lock().forget_gone(has_service, has_node);
    }

    /// The last hour of something; `None` before the first point.
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
            // A clock that was set back, or far ahead, leaves nothing to go on from.
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

    /// Makes room in the slot of a step, of which nothing is known yet.
    fn forget(&mut self, step: i64) {
        let slot = slot(step);
        let nodes = self.nodes.values_mut().flat_map(|node| &mut node.tracks);
        let services = self.services.values_mut().flat_map(|service| &mut service.tracks);
        self.cluster.iter_mut().chain(nodes).chain(services).for_each(|track| track.forget(slot));
    }

    /// Gives back the room of what was zero for an hour, and of what is no longer known at all.
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
                "there is no room for more: series of {TRACKS_WITH_VALUES_MAX} figures that are not zero, and of \
                 {SERVICES_MAX} Services, are kept; /metrics and a Prometheus keep more"
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

/// The points of a track.
const POINTS_I64: i64 = POINTS as i64;

fn slot(step: i64) -> usize {
    usize::try_from(step.rem_euclid(POINTS_I64)).expect("a remainder of a small number is small")
}

/// Sets a value; `false` when there is no room for it, which leaves a gap.
fn set(track: &mut Track, slot: usize, value: Option<f32>, full: &mut usize) -> bool {
    let may_grow = *full < TRACKS_WITH_VALUES_MAX;
    let was_full = track.has_values();
    let is_set = track.set(slot, value, may_grow);
    *full += usize::from(track.has_values() && !was_full);
    is_set
}

/// A point as it is shown: thousandths are all that a figure for people needs.
#[expect(clippy::cast_precision_loss, reason = "a figure for people; exact up to 2^53")]
fn rounded(value: f32, base: u64) -> f64 {
    base as f64 + (f64::from(value) * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;

/// What is known at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// In the order of the figures.
    pub(crate) cluster: [Option<f32>; OF_CLUSTER.len()],
    /// Every Node.
    pub(crate) nodes: Vec<(Name, NodeSample)>,
    /// The Services that had traffic, the busiest first.
    pub(crate) services: Vec<(ServiceKey, [Option<f32>; OF_SERVICE.len()])>,
}

/// What is known of a Node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeSample {
    /// How long the oldest change that it lacks waits, in milliseconds.
    pub(crate) lag_ms: Option<u64>,
    /// Revisions that it has not verified.
    pub(crate) behind: Option<u64>,
    /// The revision that it has programmed.
    pub(crate) programmed: Option<u64>,
    /// Whether the overview says that it has everything.
    pub(crate) is_healthy: bool,
}

impl NodeSample {
    /// The values in the order of the figures, `programmed` from a revision on.
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
