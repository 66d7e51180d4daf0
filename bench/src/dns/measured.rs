//! Results of the DNS benchmark.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Options,
    contestant::{Contest, NameServer},
    data::{NameKind, NameSet},
    render,
};
use crate::{
    host::{Host, Load},
    pages::record::Report,
    statistics::figures::Summary,
};

/// Results of one server and kind of names in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsRound {
    /// Answers per second, with a limited number of unanswered questions.
    pub per_second: f64,
    /// CPU time of the server per answer in microseconds.
    pub processor_us: f64,
    /// Latency of answers at a fixed rate in microseconds.
    pub latency_us: Summary,
    /// Number of questions without an answer.
    pub lost: u64,
}

impl fmt::Display for DnsRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, processor_us, latency_us, lost } = self;
        write!(
            f,
            "{per_second:>8.0} answers/s, {processor_us:>5.1} µs CPU each; p99 {:>6.0} µs; {lost} lost",
            latency_us.p99
        )
    }
}

/// Results of one server and kind of names in all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsSeries {
    /// Name of the server.
    pub contestant: String,
    /// Kind of names.
    pub kind: NameKind,
    /// Description of the measured configuration, for the page.
    pub settings: String,
    /// Resident memory of the server at the end of the run in KiB.
    pub resident_kib: u64,
    /// Results of all rounds, in the order of execution.
    pub rounds: Vec<DnsRound>,
}

impl DnsSeries {
    /// Returns the values that `of` reads from each round.
    #[must_use]
    pub fn figures(&self, of: fn(&DnsRound) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    /// Returns the median of a value over the rounds, or `None` without rounds.
    #[must_use]
    pub fn median(&self, of: fn(&DnsRound) -> f64) -> Option<f64> {
        Summary::of(self.figures(of)).map(|summary| summary.median)
    }
}

/// Results of the DNS benchmark with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsResults {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the tested software.
    pub versions: Vec<String>,
    /// Numbers of names.
    pub names: NameSet,
    /// Duration in milliseconds of each of the two measurements in a round.
    pub slice_ms: u64,
    /// Questions per second in the latency measurement.
    pub per_second: u32,
    /// Resident memory of `tidegate-dns` in KiB, with all Services and before the first question.
    pub resident_kib: u64,
    /// Times in milliseconds from the start of a write until the changed endpoint is in an answer.
    pub changes_ms: Vec<f64>,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Results by kind of names and server.
    pub series: Vec<DnsSeries>,
}

impl DnsResults {
    pub(super) fn new(host: Host, options: &Options, versions: Vec<String>) -> Self {
        let Options { rounds: _, slice, names, per_second, changes: _ } = options.clone();
        let slice_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
        Self {
            host,
            versions,
            names,
            slice_ms,
            per_second,
            resident_kib: 0,
            changes_ms: Vec::new(),
            load: None,
            series: Vec::new(),
        }
    }

    pub(super) fn add_series(&mut self, contest: &Contest) {
        let Contest { server, kind } = *contest;
        self.series.push(DnsSeries {
            contestant: server.as_str().to_owned(),
            kind,
            settings: server.settings().to_owned(),
            resident_kib: 0,
            rounds: Vec::new(),
        });
    }

    pub(super) fn enter(&mut self, contest: &Contest, round: DnsRound) {
        self.of(contest).rounds.push(round);
    }

    pub(super) fn set_resident(&mut self, contest: &Contest, resident_kib: u64) {
        self.of(contest).resident_kib = resident_kib;
    }

    fn of(&mut self, contest: &Contest) -> &mut DnsSeries {
        let Contest { server, kind } = *contest;
        let mut all = self.series.iter_mut();
        let found = all.find(|series| series.contestant == server.as_str() && series.kind == kind);
        found.expect("every contest has a series")
    }

    /// Returns the series of a server and a kind of names, or `None` if the server does not answer such names.
    #[must_use]
    pub fn find(&self, server: NameServer, kind: NameKind) -> Option<&DnsSeries> {
        self.series.iter().find(|series| series.contestant == server.as_str() && series.kind == kind)
    }
}

impl Report for DnsResults {
    const NAME: &'static str = "dns";

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
