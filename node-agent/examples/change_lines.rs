//! Measurement of one endpoint change: kernel writes and duration by mode and number of Services, as a
//! Markdown table.
//!
//! `cargo run --release -p node-agent --example change_lines` as root. All modes run in network namespaces.
//! For ipvs: `lab/guest.sh target/release/examples/change_lines --mode ipvs`.

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

/// Counts what one endpoint change writes.
#[derive(Parser)]
struct Options {
    /// The modes
    #[arg(long = "mode", value_delimiter = ',', value_parser = support::cost::mode, default_value = "nftables,iptables,userspace")]
    modes: Vec<ProxyMode>,
    /// How many Services there are
    #[arg(long, value_delimiter = ',', default_value = "100,5000")]
    services: Vec<u32>,
    /// Endpoints of each Service
    #[arg(long, default_value_t = 10)]
    endpoints: u32,
    /// Changes, of which the median time counts
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
