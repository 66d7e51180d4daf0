//! The results of a run: every figure, their summaries, and whether the machine was quiet enough to judge by them.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{contestant::Failure, milliseconds, render};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// Probes are late by more than this, in the 99th percentile, only where the machine has no time for them: then silence may
/// be the client's own.
const LATENESS_P99_MS_MAX: f64 = 5.0;
/// Above this share of the time in which somebody waits for a processor, what is late may be late for want of one.
const PRESSURE_MAX: f64 = 0.25;
/// The same for the share of processor time in use.
const BUSY_MAX: f64 = 0.7;

/// One failure of one contestant; times in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The longest time between two replies around the failure.
    pub silence_ms: f64,
    /// From the failure to the first reply through another node.
    pub moved_ms: f64,
    /// Datagrams without an answer.
    pub unanswered: usize,
    /// The longest time between two replies while the node came back.
    pub return_silence_ms: f64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { silence_ms, moved_ms, unanswered, return_silence_ms: _ } = self;
        write!(
            f,
            "{silence_ms:>8.1} ms without replies, {unanswered} unanswered; moved after {moved_ms:.1} ms"
        )
    }
}

/// All runs of a contestant with a failure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The contestant.
    pub contestant: String,
    /// How it is set.
    pub settings: String,
    /// The failure.
    pub failure: Failure,
    /// In the order in which they were run.
    pub runs: Vec<Run>,
}

impl Series {
    /// Summarises a figure of all runs; none when there are no runs.
    #[must_use]
    pub fn summary(&self, figure: impl Fn(&Run) -> f64) -> Option<Summary> {
        Summary::of(self.runs.iter().map(figure))
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
    /// Failures of each kind for each contestant.
    pub rounds: u16,
    /// Set at the end.
    pub load: Option<Load>,
    /// How late probes were sent, in milliseconds.
    pub lateness_ms: Option<Summary>,
    /// By contestant and failure.
    pub series: Vec<Series>,
    #[serde(skip)]
    lateness: Vec<Duration>,
}

impl Measured {
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
        self.series.push(Series { contestant, settings, failure, runs: Vec::new() });
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

    /// The series of a contestant and a failure, if it was measured.
    #[must_use]
    pub fn find(&self, contestant: &str, failure: Failure) -> Option<&Series> {
        self.series.iter().find(|series| series.contestant == contestant && series.failure == failure)
    }
}

impl Report for Measured {
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

    /// Why these figures say too little about the contestants; none when the machine was quiet.
    fn too_busy(&self) -> Option<String> {
        let (load, lateness) = (self.load.as_ref()?, self.lateness_ms?);
        if lateness.p99 > LATENESS_P99_MS_MAX {
            return Some(format!(
                "the 99th percentile of the probes' lateness was {:.1} ms, more than {LATENESS_P99_MS_MAX} ms",
                lateness.p99
            ));
        }
        if load.pressure.is_some_and(|pressure| pressure > PRESSURE_MAX) {
            let percent = PRESSURE_MAX * 100.0;
            return Some(format!("somebody waited for a processor in more than {percent:.0} % of the time"));
        }
        let percent = BUSY_MAX * 100.0;
        (load.busy > BUSY_MAX)
            .then(|| format!("the processors were busy for more than {percent:.0} % of the time"))
    }
}
