//! Results of the failover benchmark: all values, their summaries, and a check that the machine was idle
//! enough.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{contestant::Failure, milliseconds, render};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// Maximum 99th percentile, in milliseconds, of the delay of probe datagrams behind their schedule. Above it
/// the machine was overloaded, and replies may be missing only because the client sent late.
const LATENESS_P99_MS_MAX: f64 = 5.0;
/// Maximum CPU pressure (share of time with a task waiting for a CPU); beyond it, delays may be caused by the
/// machine.
const PRESSURE_MAX: f64 = 0.25;
/// Maximum CPU utilization, 0–1; beyond it, delays may be caused by the machine.
const BUSY_MAX: f64 = 0.7;

/// One failure in one failover system, from steady traffic to recovery; times in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Longest time in milliseconds between two consecutive replies, from the failure until the traffic is
    /// steady through another node.
    pub silence_ms: f64,
    /// Time in milliseconds from the failure to the first reply through another node.
    pub moved_ms: f64,
    /// Number of datagrams without a reply.
    pub unanswered: usize,
    /// Longest time in milliseconds between two replies while the failed node recovered.
    pub return_silence_ms: f64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { silence_ms, moved_ms, unanswered, return_silence_ms: _ } = self;
        write!(
            f,
            "{silence_ms:>8.1} ms without replies, {unanswered} datagrams lost; moved after \
             {moved_ms:.1} ms"
        )
    }
}

/// Results of one failover system for one kind of failure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailoverSeries {
    /// Name of the failover system.
    pub contestant: String,
    /// Description of the system's configuration.
    pub settings: String,
    /// Failure that was injected.
    pub failure: Failure,
    /// Results of all rounds, in the order of execution.
    pub runs: Vec<Run>,
}

impl FailoverSeries {
    /// Summarizes the value that `figure` selects over all runs; `None` without runs.
    #[must_use]
    pub fn summary(&self, figure: impl Fn(&Run) -> f64) -> Option<Summary> {
        Summary::of(self.runs.iter().map(figure))
    }
}

/// Results of the failover benchmark with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailoverResults {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the tested software.
    pub versions: Vec<String>,
    /// Number of failures of each kind per failover system.
    pub rounds: u16,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Delay of probe datagrams behind their schedule, in milliseconds.
    pub lateness_ms: Option<Summary>,
    /// Results by failover system and injected failure.
    pub series: Vec<FailoverSeries>,
    #[serde(skip)]
    lateness: Vec<Duration>,
}

impl FailoverResults {
    pub(super) fn new(host: Host, rounds: u16, versions: Vec<String>) -> Self {
        Self {
            host,
            versions,
            rounds,
            load: None,
            lateness_ms: None,
            series: Vec::new(),
            lateness: Vec::new(),
        }
    }

    pub(super) fn add_series(&mut self, contestant: &str, settings: String, failure: Failure) {
        let contestant = contestant.to_owned();
        self.series.push(FailoverSeries { contestant, settings, failure, runs: Vec::new() });
    }

    pub(super) fn enter(&mut self, contestant: &str, failure: Failure, run: Run, lateness: &[Duration]) {
        let mut all = self.series.iter_mut();
        let series = all.find(|series| series.contestant == contestant && series.failure == failure);
        series.expect("every contestant has a series for every failure").runs.push(run);
        self.lateness.extend_from_slice(lateness);
    }

    pub(super) fn finish(&mut self, load: Load) {
        self.load = Some(load);
        self.lateness_ms = Summary::of(self.lateness.iter().copied().map(milliseconds));
    }

    /// Returns the series of a failover system and a kind of failure, or `None` if it was not measured.
    #[must_use]
    pub fn find(&self, contestant: &str, failure: Failure) -> Option<&FailoverSeries> {
        self.series.iter().find(|series| series.contestant == contestant && series.failure == failure)
    }
}

impl Report for FailoverResults {
    const NAME: &'static str = "failover";

    fn page(&self) -> String {
        render::page(self)
    }

    fn plot(&self) -> String {
        render::plot(self)
    }

    fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Returns the reason why the results are unreliable, or `None` if the machine was idle enough.
    fn too_busy(&self) -> Option<String> {
        let (load, lateness) = (self.load.as_ref()?, self.lateness_ms?);
        if lateness.p99 > LATENESS_P99_MS_MAX {
            return Some(format!(
                "the 99th percentile of the probe lateness was {:.1} ms, more than {LATENESS_P99_MS_MAX} ms",
                lateness.p99
            ));
        }
        if load.pressure.is_some_and(|pressure| pressure > PRESSURE_MAX) {
            let percent = PRESSURE_MAX * 100.0;
            return Some(format!("tasks waited for a CPU during more than {percent:.0} % of the time"));
        }
        let percent = BUSY_MAX * 100.0;
        (load.busy > BUSY_MAX).then(|| format!("CPU utilization was above {percent:.0} %"))
    }
}
