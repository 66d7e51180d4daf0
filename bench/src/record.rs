//! What a run has found: points of one sort, with where and how they were measured.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::{
    host::{Host, Load},
    page,
};

/// What a benchmark measures at one setting, such as a proxy mode at a number of Services.
pub trait Measure: Serialize + Sized {
    /// The benchmark's name: of its command and of its files.
    const NAME: &'static str;

    /// The page of a run.
    fn page(record: &Record<Self>) -> String;

    /// The plot of a run.
    fn plot(record: &Record<Self>) -> String;
}

/// Everything that a run has found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record<P> {
    /// The machine.
    pub host: Host,
    /// What was measured, and beside what.
    pub versions: Vec<String>,
    /// Set at the end.
    pub load: Option<Load>,
    /// In the order in which they were measured.
    pub points: Vec<P>,
}

impl<P: Measure> Record<P> {
    /// Nothing yet, on this machine.
    ///
    /// # Errors
    /// The kernel does not say what machine it is.
    pub fn begin(versions: Vec<String>) -> Result<Self> {
        Ok(Self { host: Host::ask()?, versions, load: None, points: Vec::new() })
    }

    /// The page, as it is written.
    #[must_use]
    pub fn markdown(&self) -> String {
        P::page(self)
    }

    /// Why the figures say little; none when the machine was quiet.
    #[must_use]
    pub fn too_busy(&self) -> Option<String> {
        self.load.as_ref().and_then(Load::too_busy)
    }

    /// Writes the figures, the page and the plot.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        page::write(directory, P::NAME, self, &P::page(self), &P::plot(self))
    }
}
