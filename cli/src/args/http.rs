//! Arguments of `http`.

use clap::{Args, Subcommand};

use super::TrafficOutput;

pub(super) const HTTP_HELP: &str = "\
`http gateways` lists the processes of tidegate-gateway with their problems. `tidegate get gateways` lists the
objects that they serve, and `tidegate explain http URL` explains their decision for a request.

Examples:
  tidegate http gateways";

const HTTP_GATEWAYS_HELP: &str = "\
Lists the gateways that have reported to the control server within the last hour. REQUESTS/S and 5XX are those
of about the last minute; 5XX counts responses with a code from 500. A gateway without a report for 15
seconds is a problem; so is a port at which it cannot listen.

Exits with code 3 if a gateway has a problem.

Examples:
  tidegate http gateways
  tidegate http gateways -o yaml     with the sockets and status codes of each gateway";

/// Subcommands of `http`.
#[derive(Debug, Clone, Subcommand)]
pub enum Http {
    /// List the gateways with their sockets, requests and problems
    #[command(after_help = HTTP_GATEWAYS_HELP)]
    Gateways(HttpGateways),
}

impl Http {
    /// Returns true if the output is printed again on each change.
    #[must_use]
    pub const fn is_watch(&self) -> bool {
        let Self::Gateways(HttpGateways { watch, .. }) = self;
        *watch
    }
}

/// Arguments of `http gateways`.
#[derive(Debug, Clone, Args)]
pub struct HttpGateways {
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}
