//! Measures the kernel writes and the duration of one endpoint change, by proxy mode and number of Services,
//! and prints a Markdown table.
//!
//! Usage, as root: `cargo run --release -p node-agent --example change_lines`. This measures every proxy
//! mode except ipvs, each in network namespaces of this machine. To measure ipvs mode, run the program in
//! the guest VM, whose kernel has IPVS: `lab/guest.sh target/release/examples/change_lines --mode ipvs`.

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
use support::{
    change::{Size, measure, table},
    cost::machine,
};

/// Measures the kernel writes and the duration of one endpoint change
#[derive(Parser)]
struct Options {
    /// Proxy modes to measure
    #[arg(long = "mode", value_delimiter = ',', value_parser = support::cost::mode, default_value = "nftables,iptables,userspace")]
    modes: Vec<ProxyMode>,
    /// Numbers of Services, each of which is measured
    #[arg(long, value_delimiter = ',', default_value = "100,5000")]
    services: Vec<u32>,
    /// Number of endpoints per Service
    #[arg(long, default_value_t = 10)]
    endpoints: u32,
    /// Number of changes; the median duration is reported
    #[arg(long, default_value_t = 20)]
    changes: u32,
}

fn main() {
    let Options { modes, services, endpoints, changes } = Options::parse();
    let mut found = Vec::new();
    for mode in modes {
        for services in &services {
            found.push(measure("changelines", mode, &Size { services: *services, endpoints, changes }));
        }
    }
    println!("{}; {changes} changes\n", machine());
    print!("{}", table(&found));
}
