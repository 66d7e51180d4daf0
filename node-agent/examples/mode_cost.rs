//! Measures the connection rate, latency and throughput through each proxy mode and over a direct path
//! without Tidegate, and prints a Markdown table.
//!
//! Usage, as root: `cargo run --release -p node-agent --example mode_cost`. This measures every proxy mode
//! except ipvs, each in network namespaces of this machine. To measure ipvs mode, run the program in the
//! guest VM, whose kernel has IPVS: `lab/guest.sh target/release/examples/mode_cost --mode ipvs`.

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

/// Measures connection rate, latency and throughput through proxy modes
#[derive(Parser)]
struct Options {
    /// Proxy modes to measure
    #[arg(long = "mode", value_delimiter = ',', value_parser = support::cost::mode, default_value = "nftables,iptables,userspace")]
    modes: Vec<ProxyMode>,
    /// Numbers of Services; several numbers are measured side by side
    #[arg(long, value_delimiter = ',', default_value = "100")]
    services: Vec<u32>,
    /// Number of endpoints per Service
    #[arg(long, default_value_t = 2)]
    endpoints: u32,
    /// Number of rounds; the medians are reported
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Number of new connections per round
    #[arg(long, default_value_t = 4000)]
    connections: usize,
    /// Number of clients that open connections concurrently
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// MiB sent over one connection per round; 0 skips this measurement
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
