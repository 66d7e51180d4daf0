//! Measurement of the cost of each proxy mode for packets on this machine, next to a direct path without
//! Tidegate, as a Markdown table.
//!
//! `cargo run --release -p node-agent --example mode_cost` as root. All paths run in network namespaces. For
//! ipvs: `lab/guest.sh target/release/examples/mode_cost --mode ipvs`.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "shares the support of the tests, and prints what it measured"
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use clap::Parser;
use model::kinds::node::ProxyMode;
use support::cost::{Size, machine, measure, table};

/// Measures the way of packets through proxy modes.
#[derive(Parser)]
struct Options {
    /// The modes
    #[arg(long = "mode", value_delimiter = ',', value_parser = support::cost::mode, default_value = "nftables,iptables,userspace")]
    modes: Vec<ProxyMode>,
    /// How many Services there are; several numbers are measured side by side
    #[arg(long, value_delimiter = ',', default_value = "100")]
    services: Vec<u32>,
    /// Endpoints of each Service
    #[arg(long, default_value_t = 2)]
    endpoints: u32,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// New connections in a round
    #[arg(long, default_value_t = 4000)]
    connections: usize,
    /// Clients that make them at once
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// MiB of the long flow in a round; 0 measures none
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
}

fn main() {
    let Options { modes, services, endpoints, rounds, connections, clients, mebibytes } = Options::parse();
    let bytes = mebibytes << 20;
    let size = Size { modes, services, endpoints, rounds, connections, clients, bytes };
    let costs = measure("modecost", &size);
    println!("{}; medians of {rounds} rounds, {clients} clients\n", machine());
    print!("{}", table(&costs));
}
