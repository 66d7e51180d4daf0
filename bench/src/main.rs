//! `cargo run --release -p bench -- failover`, as root, after `cargo build --release --workspace`; `make bench` does both.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, Result};
use bench::{bgp, failover};
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
    /// How long it takes until routers have learned, and lost, a route by BGP, and what many routes cost.
    Bgp {
        /// Prefixes that are announced and withdrawn one by one.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Times that the announcing node is cut off.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
        failures: u16,
        /// Prefixes that are announced at once; 0 leaves that out.
        #[arg(long, default_value_t = bgp::BULK, value_parser = clap::value_parser!(u32).range(0..=60_000))]
        bulk: u32,
        /// The directory of `bgp.json`, `bgp.md` and `bgp.svg`.
        #[arg(long, default_value = "docs/benchmarks")]
        out: PathBuf,
    },
}

fn main() -> Result<()> {
    let mut stdout = std::io::stdout();
    let mut say = |line: &str| writeln!(stdout, "{line}").context("cannot write to stdout");
    match Arguments::parse().benchmark {
        Benchmark::Failover { rounds, only, out } => {
            let measured = failover::run(&failover::Options { rounds, only }, &mut say)?;
            measured.write(&out)?;
            say(&measured.markdown())
        }
        Benchmark::Bgp { rounds, failures, bulk, out } => {
            let measured = bgp::run(&bgp::Options { rounds, failures, bulk }, &mut say)?;
            measured.write(&out)?;
            say(&measured.markdown())
        }
    }
}
