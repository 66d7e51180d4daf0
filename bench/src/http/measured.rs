//! Results of the HTTP benchmark.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Options,
    contestant::{HttpContest, HttpProxy},
    data::{HttpLoad, RouteCounts},
    render,
};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// Results of one proxy and kind of load in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRound {
    /// Requests per second of clients that send the next request as soon as a response has arrived.
    pub per_second: f64,
    /// CPU time of all processes of the proxy per request in microseconds.
    pub processor_us: f64,
    /// Latency in microseconds at half of that rate; with a connection for each request, the latency of connection, handshake and
    /// request at the full rate.
    pub latency_us: Summary,
    /// Number of requests that failed.
    pub failed: u64,
}

impl fmt::Display for HttpRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, processor_us, latency_us, failed } = self;
        write!(
            f,
            "{per_second:>8.0} requests/s, {processor_us:>6.1} µs CPU each; p99 {:>6.0} µs; {failed} failed",
            latency_us.p99
        )
    }
}

/// Results of one proxy and kind of load in all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpSeries {
    /// Proxy that was measured.
    pub contestant: HttpProxy,
    /// Kind of the requests.
    pub load: HttpLoad,
    /// Description of the measured configuration, for the page.
    pub settings: String,
    /// Results of all rounds, in the order of execution.
    pub rounds: Vec<HttpRound>,
}

impl HttpSeries {
    /// Returns the values that `of` reads from each round.
    #[must_use]
    pub fn figures(&self, of: fn(&HttpRound) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    /// Returns the median of a value over the rounds, or `None` without rounds.
    #[must_use]
    pub fn median(&self, of: fn(&HttpRound) -> f64) -> Option<f64> {
        Summary::of(self.figures(of)).map(|summary| summary.median)
    }
}

/// Memory of a proxy without and with idle connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleMemory {
    /// Proxy that was measured.
    pub proxy: HttpProxy,
    /// Number of connections, each of which has sent one request.
    pub connections: u32,
    /// Memory of all processes of the proxy in KiB before the first connection. Shared pages count once.
    pub before_kib: u64,
    /// Memory in KiB with all connections.
    pub after_kib: u64,
}

impl IdleMemory {
    /// Returns the memory of one connection in KiB.
    #[must_use]
    pub fn connection_kib(&self) -> f64 {
        self.after_kib.saturating_sub(self.before_kib) as f64 / f64::from(self.connections.max(1))
    }
}

impl fmt::Display for IdleMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy: _, connections, before_kib, after_kib } = self;
        write!(f, "{before_kib} KiB, {after_kib} KiB with {connections} idle connections")
    }
}

/// Results of the HTTP benchmark with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpResults {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the tested software.
    pub versions: Vec<String>,
    /// Numbers of routes.
    pub routes: RouteCounts,
    /// Duration in milliseconds of each of the two measurements in a round.
    pub slice_ms: u64,
    /// Number of connections of the load.
    pub clients: u16,
    /// Memory of idle connections by proxy.
    pub idle: Vec<IdleMemory>,
    /// Times in milliseconds from the start of a write until the changed route decides requests.
    pub changes_ms: Vec<f64>,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Results by kind of load and proxy.
    pub series: Vec<HttpSeries>,
}

impl HttpResults {
    pub(super) fn new(host: Host, options: &Options, versions: Vec<String>) -> Self {
        let Options { rounds: _, slice, routes, clients, idle: _, changes: _ } = options.clone();
        let slice_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
        Self {
            host,
            versions,
            routes,
            slice_ms,
            clients,
            idle: Vec::new(),
            changes_ms: Vec::new(),
            load: None,
            series: Vec::new(),
        }
    }

    pub(super) fn add_series(&mut self, contest: &HttpContest) {
        self.series.push(HttpSeries {
            contestant: contest.proxy,
            load: contest.load,
            settings: contest.proxy.settings().to_owned(),
            rounds: Vec::new(),
        });
    }

    pub(super) fn enter(&mut self, contest: &HttpContest, round: HttpRound) {
        let mut all = self.series.iter_mut();
        let found = all.find(|series| series.contestant == contest.proxy && series.load == contest.load);
        found.expect("every contest has a series").rounds.push(round);
    }

    /// Returns the series of a proxy and a kind of load, or `None` if they are not measured together.
    #[must_use]
    pub fn find(&self, proxy: HttpProxy, load: HttpLoad) -> Option<&HttpSeries> {
        self.series.iter().find(|series| series.contestant == proxy && series.load == load)
    }
}

impl Report for HttpResults {
    const NAME: &'static str = "http";

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
