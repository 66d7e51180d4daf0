//! `cargo run --release -p bench -- failover`, as root, after `cargo build --release --workspace`; `make bench` does both.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, Result};
use bench::failover::{self, Options};
use clap::{Parser, Subcommand};

/// Measures Tidegate beside others on this machine, in network namespaces of its own.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// How long the traffic of a load balancer address is interrupted when the node that announces it fails.
    Failover {
        /// Failures of each kind for each contestant.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Only contestants and failures whose names contain one of these, such as `keepalived,link-cut`.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// The directory of `failover.json`, `failover.md` and `failover.svg`.
        #[arg(long, default_value = "docs/benchmarks")]
        out: PathBuf,
    },
}

fn main() -> Result<()> {
    let Benchmark::Failover { rounds, only, out } = Arguments::parse().benchmark;
    let mut stdout = std::io::stdout();
    let mut say = |line: &str| writeln!(stdout, "{line}").context("cannot write to stdout");
    let measured = failover::run(&Options { rounds, only }, &mut say)?;
    measured.write(&out)?;
    say(&measured.markdown())
}
