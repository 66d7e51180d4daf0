//! The results of a run.

use std::fmt;

use lab::host::guest;
use serde::{Deserialize, Serialize};

use super::{Options, render};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// One turn of a contestant; latencies in microseconds, from the call that connects to the backend's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// Of one client that makes one connection after the other.
    pub latency_us: Summary,
    /// Connections per second of many clients at once.
    pub per_second: f64,
    /// Their latency.
    pub crowd_latency_us: Summary,
    /// Time of all processors, of clients, node and backend together, for one of their connections.
    pub processor_us: f64,
    /// Connections that failed.
    pub failed: u64,
    /// What one long flow carried, in Gbit/s.
    pub flow_gbit_per_second: f64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency_us, per_second, crowd_latency_us: _, processor_us, failed, flow_gbit_per_second } =
            self;
        write!(
            f,
            "{:>7.0} µs alone; {per_second:>7.0} connections/s, {processor_us:>4.0} µs of processor each; \
             {flow_gbit_per_second:>5.1} Gbit/s; {failed} failed",
            latency_us.median
        )
    }
}

/// All turns of a contestant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The contestant.
    pub contestant: String,
    /// Whether it was measured on the second kernel, where ratios mean something, and rates little.
    pub is_guest: bool,
    /// Services on the node; 0 where there is no such thing.
    pub services: u32,
    /// How it is set.
    pub settings: String,
    /// In the order in which they were run.
    pub rounds: Vec<Round>,
    /// Latency of one client, over all connections of all rounds; set at the end.
    pub latency_us: Option<Summary>,
    #[serde(skip)]
    latencies_us: Vec<f64>,
}

impl Series {
    /// A figure of every round.
    #[must_use]
    pub fn figures(&self, of: fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    /// The median of a figure over the rounds; none when there are no rounds.
    #[must_use]
    pub fn median(&self, of: fn(&Round) -> f64) -> Option<f64> {
        Summary::of(self.figures(of)).map(|summary| summary.median)
    }
}

/// Everything that a run of the benchmark has found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The machine.
    pub host: Host,
    /// What was measured, with versions.
    pub versions: Vec<String>,
    /// Length of each of the three parts of a turn, in milliseconds.
    pub slice_ms: u64,
    /// Clients at once where the rate is measured.
    pub clients: u16,
    /// Set at the end.
    pub load: Option<Load>,
    /// By contestant and number of Services.
    pub series: Vec<Series>,
}

impl Measured {
    pub(super) fn new(host: Host, options: Options, versions: Vec<String>) -> Self {
        let Options { rounds: _, slice, sizes: _, modes: _, clients } = options;
        let slice_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
        Self { host, versions, slice_ms, clients, load: None, series: Vec::new() }
    }

    pub(super) fn add_series(&mut self, contestant: &str, services: u32, settings: String) {
        let (rounds, latencies_us) = (Vec::new(), Vec::new());
        self.series.push(Series {
            contestant: contestant.to_owned(),
            is_guest: guest::is_inside(),
            services,
            settings,
            rounds,
            latency_us: None,
            latencies_us,
        });
    }

    pub(super) fn enter(&mut self, contestant: &str, services: u32, turn: (Round, Vec<f64>)) {
        let mut all = self.series.iter_mut();
        let series = all.find(|series| (&*series.contestant, series.services) == (contestant, services));
        let series = series.expect("every contestant has a series");
        series.rounds.push(turn.0);
        series.latencies_us.extend(turn.1);
    }

    pub(super) fn finish(&mut self, load: Load) {
        self.load = Some(load);
        for series in &mut self.series {
            series.latency_us = Summary::of(series.latencies_us.drain(..));
        }
    }

    /// The series of a contestant with so many Services, if it was measured on this kernel.
    #[must_use]
    pub fn find(&self, contestant: &str, services: u32) -> Option<&Series> {
        let mut all = self.series.iter().filter(|series| series.is_guest == guest::is_inside());
        all.find(|series| (&*series.contestant, series.services) == (contestant, services))
    }

    /// The series of a peer on the kernel on which another was measured.
    #[must_use]
    pub fn beside(&self, own: &Series, peer: &str) -> Option<&Series> {
        let mut all = self.series.iter().filter(|series| series.is_guest == own.is_guest);
        all.find(|series| (&*series.contestant, series.services) == (peer, 0))
    }
}

impl Report for Measured {
    const NAME: &'static str = "connections";

    fn page(&self) -> String {
        render::page(self)
    }

    fn plot(&self) -> String {
        render::plot(self)
    }

    fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }
}
