//! Prints what each proxy mode costs on this machine, in one run, as a Markdown table:
//! `cargo run --release -p node-agent --example mode_cost` as root. Everything happens in network namespaces.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "shares the support of the tests, and prints what it measured"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use support::cost::{Size, measure, table};

fn main() {
    let costs = measure("cost", Size { bytes: 512 << 20, connections: 2000, rounds: 3 });
    print!("{}", table(&costs));
}
