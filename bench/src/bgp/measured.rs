//! The results of a run.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Options, render, routers::Both};
use crate::host::{Host, Load};

/// What was measured of one contestant; times in milliseconds, from the beginning of the write.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The contestant.
    pub contestant: &'static str,
    /// How it is set.
    pub settings: String,
    /// Resident memory before anything is announced.
    pub memory_kib: u64,
    /// How long the write took.
    pub command_ms: Vec<f64>,
    /// Until the router's kernel had the route.
    pub announced_ms: Vec<Both<f64>>,
    /// Until it had lost it.
    pub withdrawn_ms: Vec<Both<f64>>,
    /// From the cut of the node's cable until the route was lost.
    pub failed_ms: Vec<Both<f64>>,
    /// From the opening of the sessions until all prefixes of the bulk run were there.
    pub bulk_ms: Option<Both<f64>>,
    /// Resident memory then.
    pub bulk_memory_kib: Option<u64>,
}

/// Everything that a run of the benchmark has found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The machine.
    pub host: Host,
    /// What was measured, with versions.
    pub versions: Vec<String>,
    /// Prefixes announced one by one.
    pub rounds: u16,
    /// Prefixes announced at once.
    pub bulk: u32,
    /// Set at the end.
    pub load: Option<Load>,
    /// By contestant.
    pub series: Vec<Series>,
}

impl Measured {
    pub(super) fn new(host: Host, options: Options, versions: Vec<String>) -> Self {
        let Options { rounds, failures: _, bulk } = options;
        Self { host, versions, rounds, bulk, load: None, series: Vec::new() }
    }

    pub(super) fn add(&mut self, contestant: &'static str, settings: String, memory_kib: u64) {
        self.series.push(Series {
            contestant,
            settings,
            memory_kib,
            command_ms: Vec::new(),
            announced_ms: Vec::new(),
            withdrawn_ms: Vec::new(),
            failed_ms: Vec::new(),
            bulk_ms: None,
            bulk_memory_kib: None,
        });
    }

    pub(super) fn enter(&mut self, contestant: &str, enter: impl FnOnce(&mut Series)) {
        if let Some(series) = self.series.iter_mut().find(|series| series.contestant == contestant) {
            enter(series);
        }
    }

    /// The page, as it is written.
    #[must_use]
    pub fn markdown(&self) -> String {
        render::page(self)
    }

    /// Writes `bgp.json`, `bgp.md` and `bgp.svg`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let json = serde_json::to_string_pretty(self).context("figures serialise")? + "\n";
        for (name, text) in
            [("bgp.json", json), ("bgp.md", render::page(self)), ("bgp.svg", render::plot(self))]
        {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}
