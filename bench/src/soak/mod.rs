//! A soak ([`lab::soak`]) and its page: what was changed and broken for many minutes, what that cost clients, and what is left of it.

mod curve;
mod render;

use anyhow::Result;
use clap::ValueEnum;
use lab::{
    chaos::soak::{self, Options, Outcome},
    host::random,
};
use serde::{Deserialize, Serialize};

use crate::{
    host::Load,
    pages::record::{Measure, Record, Report},
    progress::Say,
};

/// Where control keeps its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// A file.
    Sqlite,
    /// Members of etcd on the machine of control, of which one is killed now and then.
    Etcd,
}

/// Runs a soak of so many minutes, with the seed that `TIDEGATE_SEED` names, if any.
///
/// # Errors
/// Not root, or something is not built or installed. What is wrong with the product is in the outcome.
pub fn run(minutes: u32, store: Store, say: Say<'_>) -> Result<Record<Outcome>> {
    let (seed, _) = random::seed()?;
    say(&format!("TIDEGATE_SEED={seed}"))?;
    let members = match store {
        Store::Sqlite => 0,
        Store::Etcd => soak::MEMBERS,
    };
    let outcome = soak::run(&Options { members, ..Options::long(seed, minutes) }, say)?;
    of(outcome)
}

/// The record of a soak.
///
/// # Errors
/// The kernel does not say what machine it is.
pub fn of(outcome: Outcome) -> Result<Record<Outcome>> {
    // The programs are those that are built beside this one.
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut record = Record::begin(vec![format!("tidegate {} ({build} build)", env!("CARGO_PKG_VERSION"))])?;
    record.points.push(outcome);
    Ok(record)
}

impl Measure for Outcome {
    const NAME: &'static str = "soak";

    fn page(record: &Record<Self>) -> String {
        render::page(record, Self::NAME, "make soak-cluster")
    }

    fn plot(record: &Record<Self>) -> String {
        curve::plot(record.points.last().map_or(&[], |outcome| &outcome.samples))
    }
}

/// A soak with etcd as the store: a page of its own, so that it takes no other's place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WithEtcd(pub Record<Outcome>);

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
