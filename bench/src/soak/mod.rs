//! Soak test ([`lab::chaos::soak`]) and its page, which shows changes and faults over many minutes, their
//! effect on clients, and leaks found at the end.

mod curve;
mod render;

use anyhow::Result;
use clap::ValueEnum;
use lab::{
    chaos::soak::{self, Options, SoakOutcome},
    host::random,
};
use serde::{Deserialize, Serialize};

use crate::{
    host::Load,
    pages::record::{Measure, Record, Report},
    progress::Say,
};

/// Store that the control server uses in a soak test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SoakStore {
    /// SQLite database in a file.
    Sqlite,
    /// Members of etcd next to the control server, one of which is killed from time to time.
    Etcd,
}

/// Runs a soak test for `minutes` minutes, with the random seed in `TIDEGATE_SEED` if set.
///
/// # Errors
/// Returns an error if the process is not root or software is missing. Defects of the product are part of the
/// outcome.
pub fn run(minutes: u32, store: SoakStore, say: Say<'_>) -> Result<Record<SoakOutcome>> {
    let (seed, _) = random::seed()?;
    say(&format!("TIDEGATE_SEED={seed}"))?;
    let members = match store {
        SoakStore::Sqlite => 0,
        SoakStore::Etcd => soak::MEMBERS,
    };
    let outcome = soak::run(&Options { members, ..Options::long(seed, minutes) }, say)?;
    of(outcome)
}

/// Creates the [`Record`] of a soak test from its outcome, with a description of this machine.
///
/// # Errors
/// Returns an error if the machine properties cannot be read.
pub fn of(outcome: SoakOutcome) -> Result<Record<SoakOutcome>> {
    // The tested programs are of the same build type as this one.
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut record = Record::begin(vec![format!("tidegate {} ({build} build)", env!("CARGO_PKG_VERSION"))])?;
    record.points.push(outcome);
    Ok(record)
}

impl Measure for SoakOutcome {
    const NAME: &'static str = "soak";

    fn page(record: &Record<Self>) -> String {
        render::page(record, Self::NAME, "make soak-cluster")
    }

    fn plot(record: &Record<Self>) -> String {
        curve::plot(record.points.last().map_or(&[], |outcome| &outcome.samples))
    }
}

/// Results of a soak test with an etcd store, which are rendered as a separate page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WithEtcd(pub Record<SoakOutcome>);

impl Report for WithEtcd {
    const NAME: &'static str = "soak-etcd";

    fn page(&self) -> String {
        render::page(&self.0, Self::NAME, "make soak-cluster STORE=etcd")
    }

    fn plot(&self) -> String {
        self.0.plot()
    }

    fn load(&self) -> Option<&Load> {
        self.0.load()
    }
}
