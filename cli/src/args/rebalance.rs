//! Arguments of `rebalance`.

use std::time::Duration;

use clap::Args;

use super::{history::parse_message, parse_timeout};

/// Arguments of `rebalance`.
#[derive(Debug, Args)]
pub struct Rebalance {
    /// Print the planned moves without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum time to wait until a moved address is announced by its new node, such as 500ms, 60s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    pub at_most: Duration,
    /// Reason for the change, recorded in the history
    #[arg(short, long, value_name = "TEXT", value_parser = parse_message)]
    pub message: Option<String>,
}
