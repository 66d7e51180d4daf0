//! Results of the connection benchmark.

use std::fmt;

use lab::host::guest;
use serde::{Deserialize, Serialize};

use super::{Options, render};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// Results of one path (a compared way to connect, such as a proxy mode or HAProxy) in one round. Latencies
/// are in microseconds, from the connect call to the reply of the backend.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// Latency of the connections of a single client that connects in a closed loop, in microseconds.
    pub latency_us: Summary,
    /// Connections per second of many concurrent clients.
    pub per_second: f64,
    /// Latency of the connections of the concurrent clients, in microseconds.
    pub crowd_latency_us: Summary,
    /// Total CPU time of clients, node and backend per connection.
    pub processor_us: f64,
    /// Number of connections that failed.
    pub failed: u64,
    /// Throughput in Gbit/s of a single TCP stream, held open for [`ConnectionResults::slice_ms`].
    pub flow_gbit_per_second: f64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency_us, per_second, crowd_latency_us: _, processor_us, failed, flow_gbit_per_second } =
            self;
        write!(
            f,
            "{:>7.0} µs alone; {per_second:>7.0} connections/s, {processor_us:>4.0} µs CPU each; \
             {flow_gbit_per_second:>5.1} Gbit/s; {failed} failed",
            latency_us.median
        )
    }
}

/// Results of one path, such as a proxy mode or HAProxy, in all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionSeries {
    /// Name of the path, such as `tidegate-nftables` or `haproxy`.
    pub contestant: String,
    /// True if the path was measured in the guest VM. Its rates can then be compared only with those of other
    /// paths in the guest.
    pub is_guest: bool,
    /// Number of Services on the node; 0 if the path does not use Tidegate.
    pub services: u32,
    /// Description of the measured configuration, for the page.
    pub settings: String,
    /// Results of all rounds, in the order of execution.
    pub rounds: Vec<Round>,
    /// Latency of a single client in microseconds, over all connections of all rounds; `None` before the end of
    /// the run.
    pub latency_us: Option<Summary>,
    #[serde(skip)]
    latencies_us: Vec<f64>,
}

impl ConnectionSeries {
    /// Returns the value that `of` reads from each round, in the order of execution.
    #[must_use]
    pub fn figures(&self, of: fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    /// Returns the median of a value over the rounds, or `None` without rounds.
    #[must_use]
    pub fn median(&self, of: fn(&Round) -> f64) -> Option<f64> {
        Summary::of(self.figures(of)).map(|summary| summary.median)
    }
}

/// Results of the connection benchmark with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionResults {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the tested software.
    pub versions: Vec<String>,
    /// Duration in milliseconds of each of the three measurements in a round: single client, concurrent
    /// clients, and stream.
    pub slice_ms: u64,
    /// Number of concurrent clients in the rate measurement.
    pub clients: u16,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Results by path and, for Tidegate, by number of Services.
    pub series: Vec<ConnectionSeries>,
}

impl ConnectionResults {
    pub(super) fn new(host: Host, options: Options, versions: Vec<String>) -> Self {
        let Options { rounds: _, slice, sizes: _, modes: _, clients } = options;
        let slice_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
        Self { host, versions, slice_ms, clients, load: None, series: Vec::new() }
    }

    pub(super) fn add_series(&mut self, contestant: &str, services: u32, settings: String) {
        let (rounds, latencies_us) = (Vec::new(), Vec::new());
        self.series.push(ConnectionSeries {
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

    /// Returns the series of a path at a number of Services, or `None` if it was not measured on the kernel
    /// on which this process runs.
    #[must_use]
    pub fn find(&self, contestant: &str, services: u32) -> Option<&ConnectionSeries> {
        let mut all = self.series.iter().filter(|series| series.is_guest == guest::is_inside());
        all.find(|series| (&*series.contestant, series.services) == (contestant, services))
    }

    /// Returns the series of `peer`, a path without Tidegate such as `haproxy`, that was measured on the same
    /// kernel (host or guest) as `own`; `None` if there is none.
    #[must_use]
    pub fn beside(&self, own: &ConnectionSeries, peer: &str) -> Option<&ConnectionSeries> {
        let mut all = self.series.iter().filter(|series| series.is_guest == own.is_guest);
        all.find(|series| (&*series.contestant, series.services) == (peer, 0))
    }
}

impl Report for ConnectionResults {
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
